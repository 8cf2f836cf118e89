"""What a failed run has left behind: its log, and Ray's own logs if they were kept.

Files of any size and kind are met: only regular ones are read, never more than a part of them, and no link is followed
out of the run's directory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from slurm_launch.runs import log_phases

LOG_BYTES = 4 << 20  # of the log; of a longer one its beginning and its end
RAY_LOG_BYTES = 1 << 18
RAY_LOGS = 200  # files that are read, the telling ones first
ENTRIES = 20_000  # files that are looked at
CLOCKS = 9  # seconds by which the clocks of two machines may differ
CUT = "[... cut ...]"
TAIL = 40  # lines of a command's output in which a cause is searched where there is no traceback
# Which of Ray's logs tell most; what is not here is not read.
_TELLING = (
    re.compile(r"ray-start\.log"),
    re.compile(r"(raylet|gcs_server)\.(err|out)"),
    re.compile(r"ray_process_exit\.log|(dashboard|dashboard_agent|monitor|runtime_env_agent)\.(err|log)"),
    re.compile(r"worker-.*\.err"),
    re.compile(r"python-core-(worker|driver)-.*\.log"),
)


@dataclass(frozen=True)
class Facts:
    """All that a rule may look at."""

    state: str = "UNKNOWN"  # Slurm's word
    reason: str | None = None  # Slurm's too
    code: int | None = None  # of the job's script, if that ended by itself
    signal: int = 0
    log: str = ""  # of the last life, perhaps shortened
    log_line: int | None = 1  # the number of its first line; None: unknown
    ray_logs: Mapping[str, str] = field(default_factory=dict)  # by their paths below <name>.ray
    spec: Mapping[str, Any] = field(default_factory=dict)  # the options given, by their YAML keys
    asked: bool = True  # whether Slurm has answered
    cancelled: str | None = None  # when `slurm-launch cancel` was asked to end it


@dataclass(frozen=True)
class Line:
    """A line and where it stands."""

    where: str  # log:12, or n2/ray-start.log:3
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text[:300].rstrip()}"


# Reading


def gather(log: str, ray_dir: str) -> dict[str, Any]:
    """The texts of a run, as arguments for Facts; what cannot be read is left out."""
    text, whole = read_text(log, LOG_BYTES)
    text, before = last_attempt(text)
    end = log_phases.parse_end(text)
    began = next((phase.time for line in text.split("\n") if before and (phase := log_phases.phase_of(line))), None)
    ray_logs = _ray_logs(ray_dir, end.node if end else None, began)
    return {"log": text, "log_line": before + 1 if whole else None, "ray_logs": ray_logs}


def read_text(path: str, most: int) -> tuple[str, bool]:
    """A file's text, and whether it is all of it; nothing where there is no such file, or it is none."""
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:  # a pipe, say
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "", True
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size <= most:
                return _decoded(file.read(most)), True
            begin = file.read(most // 4)
            file.seek(size - most * 3 // 4)
            return f"{_decoded(begin)}\n{CUT}\n{_decoded(file.read(most))}", False
    except OSError:
        return "", True


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def last_attempt(text: str) -> tuple[str, int]:
    """The part of a log that the job's last life wrote, and how many lines stand before it."""
    attempts, lines, begin, ended = log_phases.Attempts(), text.split("\n"), 0, 0
    for number, line in enumerate(lines):
        known = len(attempts.all)
        phase = attempts.take(line)
        if len(attempts.all) > known:
            begin = ended or number  # one that was killed has no end: its successor's first words are lost to it
            ended = 0
        if phase is not None and phase.name == "end":
            ended = number + 1
    return "\n".join(lines[begin:]), begin


def _ray_logs(folder: str, node: str | None, began: datetime | None = None) -> dict[str, str]:
    """The most telling of Ray's logs; those of the node that failed go first. With `began`, none of a former life."""
    found = []
    oldest = began.timestamp() - CLOCKS if began else 0
    for name in _files(folder):
        base = os.path.basename(name)
        rank = next((rank for rank, telling in enumerate(_TELLING) if telling.fullmatch(base)), None)
        if rank is not None and _written(os.path.join(folder, name)) >= oldest:
            found.append((not name.startswith(f"{node}/"), rank, name))
    texts = ((name, read_text(os.path.join(folder, name), RAY_LOG_BYTES)[0]) for *_, name in sorted(found)[:RAY_LOGS])
    return {name: text for name, text in texts if text.strip()}


def _written(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0


def _files(folder: str) -> Iterator[str]:
    """The paths of the files below a folder; links are neither files nor folders."""
    seen = 0
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not os.path.islink(os.path.join(path, name)))
        for name in sorted(files):
            seen += 1
            if seen > ENTRIES:
                return
            if not os.path.islink(os.path.join(path, name)):
                yield os.path.relpath(os.path.join(path, name), folder)


# Looking

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OF_A_TASK = re.compile(r"^\((?:[\w.:]+ )?pid=\d+(?:, ip=[^)]*)?\) ")  # Ray's prefix of what tasks print
_SAID = re.compile(r"\[slurm-launch\] \d{4}-\S+ (\S+) said: (.*)")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'\s+File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_RAISED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:\((?P<inner>[\w.]+)\))?(?:: ?(?P<message>.*))?")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3|^<frozen|^python/ray/")


@dataclass(frozen=True)
class Raised:
    """The exception that ended a Python program."""

    name: str  # without its module
    message: str
    file: str | None  # the last place in the user's own code
    line: str | None
    function: str | None
    evidence: tuple[Line, ...]

    @property
    def place(self) -> str:
        inside = f" in {self.function}" if self.function and not self.function.startswith("<") else ""
        return f"{self.file}:{self.line}{inside}" if self.file else ""


class Scene:
    """The facts, sorted by who wrote what."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.end: log_phases.End | None = log_phases.parse_end(facts.log)
        self.lines = list(_numbered("log", facts.log, facts.log_line))
        self.said: dict[str, list[Line]] = {}  # the last words of a node's Ray
        self.warnings: list[Line] = []
        self.before: list[Line] = []  # the environment's words, bash's and srun's
        self.output: list[Line] = []  # the command's
        self.end_line: Line | None = None
        self.version: str | None = None  # of the head's Ray, once it was ready
        began, attempts = False, log_phases.Attempts()
        for line in self.lines:
            phase, said = attempts.take(line.text), _SAID.search(line.text)
            if said is not None:
                self.said.setdefault(said[1], []).append(Line(f"{line.where}: {said[1]} said", said[2]))
            elif phase is None:
                (self.output if began else self.before).append(line)
            elif phase.name == "command":
                began = True
            elif phase.name == "ready":
                self.version = phase.value("ray")
            elif phase.name == "warning":
                self.warnings.append(line)
            elif phase.name == "end":
                self.end_line = line

    @property
    def outcome(self) -> str:
        return self.end.outcome if self.end else ""

    @property
    def told(self) -> list[Line]:
        """What the script's last line and the node that it names have to say."""
        node = self.end.node if self.end else None
        return [*([self.end_line] if self.end_line else []), *self.said.get(node or "", ())]

    @cached_property
    def _traceback(self) -> tuple[int, int] | None:
        """Where the last traceback begins in the output, with those that led to it, and alone."""
        starts = [number for number, line in enumerate(self.output) if line.text == _TRACEBACK]
        if not starts:
            broken = [
                number
                for number, line in enumerate(self.output)
                if re.match(r"(Syntax|Indentation|Tab)Error: ", line.text)
            ]
            return (max(0, broken[-1] - 4),) * 2 if broken else None  # such a one has no head line
        chain = starts[-1]
        for start, after in zip(starts[-2::-1], starts[:0:-1], strict=True):
            if not any(line.text.startswith(_CHAINED) for line in self.output[start:after]):
                break
            chain = start
        return chain, starts[-1]

    @property
    def error(self) -> list[Line]:
        """Where the command's own cause stands: the last traceback and all that follows it, or else the last lines."""
        return self.output[self._traceback[0] :] if self._traceback else self.output[-TAIL:]

    @cached_property
    def raised(self) -> Raised | None:
        """The exception of the last traceback in the command's output."""
        if self._traceback is None:
            return None
        block = self.output[self._traceback[1] :]
        plain = [number for number, line in enumerate(block) if number and line.text[:1].strip()]
        first = next((number for number in plain if _RAISED.fullmatch(block[number].text)), None)
        if first is None:
            return None
        name = _RAISED.fullmatch(block[first].text)
        assert name is not None
        last = first
        if name["inner"]:  # of a task: its own traceback follows
            inner = [
                n for n in plain if n > first and block[n].text.split(":")[0].endswith(name["inner"].split(".")[-1])
            ]
            last = inner[-1] if inner else first
        raised = _RAISED.fullmatch(block[last].text) or name
        frames = [(line, frame) for line in block[:last] if (frame := _FRAME.match(line.text))]
        own = [(line, frame) for line, frame in frames if not _LIBRARY.search(frame["file"])]
        at = own[-1] if own else None
        evidence = [*([at[0]] if at else []), *([block[first]] if last != first else []), *block[last : last + 2]]
        evidence.sort(key=block.index)
        return Raised(
            raised["name"].split(".")[-1],
            (raised["message"] or "").strip(),
            file=at[1]["file"] if at else None,
            line=at[1]["line"] if at else None,
            function=at[1]["function"] if at else None,
            evidence=tuple(evidence),
        )

    def ray(self, node: str | None = None, file: str = "") -> Iterator[Line]:
        """The lines of Ray's logs: of that node, of files with that name; without its statistics."""
        for name, text in self.facts.ray_logs.items():
            if (node is None or name.startswith(f"{node}/")) and file in name:
                yield from (line for line in _numbered(name, text, 1) if not line.text.startswith("[state-dump]"))


def _numbered(name: str, text: str, first: int | None) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n")):
        if line == CUT:
            first = None
        if line.strip():
            where = name if first is None else f"{name}:{first + number}"
            yield Line(where, _OF_A_TASK.sub("", _COLOUR.sub("", line)))


def matching(lines: Iterable[Line], pattern: re.Pattern[str]) -> list[tuple[Line, re.Match[str]]]:
    return [(line, match) for line in lines if (match := pattern.search(line.text))]


def some(lines: Sequence[Line], most: int = 4) -> tuple[Line, ...]:
    """Of many lines the last ones; the same text but once."""
    different = {re.sub(r"[\d:,.+-]+", "", line.text): line for line in lines}
    return tuple(different.values())[-most:]
