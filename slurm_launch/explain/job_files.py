"""The files of a run that failed: its log, parsed once, and Ray's logs if they were kept.

They may be of any size and kind: only regular files are read, never more than a part of them, and no link is followed
out of the run's directory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from slurm_launch.runs import ray_logs
from slurm_launch.runs.log_phases import Attempt, Attempts, End, Phase

LOG_BYTES = 4 << 20  # of a longer log, its beginning and its end are read
RAY_LOG_BYTES = 1 << 18
RAY_LOGS = 200  # maximum number of files that are read, the most relevant first
ENTRIES = 20_000  # maximum number of files that are considered
CLOCK_SKEW = 9  # seconds between the clocks of two machines
CUT = "[... cut ...]"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_TASK_PREFIX = re.compile(r"^\((?:[\w.:]+ )?pid=\d+(?:, ip=[^)]*)?\) ")  # Ray's prefix of what tasks print
_SCRIPT_MARK = "[slurm-launch] "


@dataclass(frozen=True)
class Line:
    """A line and its location."""

    where: str  # log:12, or n2/ray-start.log:3
    text: str
    node: str | None = None  # the node whose Ray printed it, if the script repeats it in the log

    def __str__(self) -> str:
        node = f"[{self.node}] " if self.node else ""
        return f"{self.where}: {node}{self.text[:300].rstrip()}"


@dataclass(frozen=True)
class ParsedLog:
    """The part of a log that the job's last attempt wrote."""

    lines: tuple[tuple[Line, Phase | None], ...] = ()  # those that are not blank; with the phase of a script's line
    attempt: Attempt = field(default_factory=Attempt)
    end: End | None = None  # if the attempt has ended and is not followed by another
    is_restart: bool = False  # whether there are earlier attempts
    complete: bool = True  # False for a log that is too long to be read as a whole

    @property
    def first_time(self) -> datetime | None:
        """The time of the first line of the script."""
        return next((phase.time for _, phase in self.lines if phase), None)


@dataclass(frozen=True)
class JobFiles:
    """The texts of a job's files."""

    log: ParsedLog = field(default_factory=ParsedLog)
    ray_logs: Mapping[str, str] = field(default_factory=dict)  # by their paths below <name>.ray


def read_files(log: str, ray_dir: str) -> JobFiles:
    """Read and parse the files of a job. Files that cannot be read are left out."""
    text, complete = read_text(log, LOG_BYTES)
    parsed = parse_log(text, complete)
    node = parsed.end.node if parsed.end else None
    return JobFiles(parsed, _read_ray_logs(ray_dir, node, parsed.first_time if parsed.is_restart else None))


def read_text(path: str, most: int) -> tuple[str, bool]:
    """A file's text and whether it is complete; an empty text if it does not exist or is not a regular file."""
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:  # a pipe, say
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "", True
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size <= most:
                return _decode(file.read(most)), True
            begin = file.read(most // 4)
            file.seek(size - most * 3 // 4)
            return f"{_decode(begin)}\n{CUT}\n{_decode(file.read(most))}", False
    except OSError:
        return "", True


def _decode(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


def parse_log(text: str, complete: bool = True) -> ParsedLog:
    """Parse a log in one pass. If its text is not complete, the numbers of the lines are unknown."""
    attempts = Attempts()
    lines: list[tuple[Line, Phase | None]] = []
    begin = 0  # of the last attempt, in `lines`
    after_end: int | None = None
    for where, raw in _located("log", text, complete):
        known = len(attempts.all)
        phase = attempts.take(raw) if _SCRIPT_MARK in raw else None
        if len(attempts.all) > known:
            # An attempt that was killed has no end line: what its successor printed first counts as its own.
            begin = len(lines) if after_end is None else after_end
            after_end = None
        if raw.strip():
            lines.append((Line(where, _clean(raw)), phase))
        if phase is not None and phase.name == "end":
            after_end = len(lines)
    return ParsedLog(
        tuple(lines[begin:]), attempts.last, attempts.final_end, is_restart=len(attempts.all) > 1, complete=complete
    )


def numbered_lines(name: str, text: str) -> Iterator[Line]:
    """The lines of a file that are not blank."""
    return (Line(where, _clean(raw)) for where, raw in _located(name, text) if raw.strip())


def _located(name: str, text: str, numbered: bool = True) -> Iterator[tuple[str, str]]:
    """Each line with its location; behind a cut the numbers are unknown."""
    for number, line in enumerate(text.split("\n"), 1):
        numbered = numbered and line != CUT
        yield f"{name}:{number}" if numbered else name, line


def _clean(line: str) -> str:
    return _TASK_PREFIX.sub("", _COLOR.sub("", line))


# Ray's logs


def _read_ray_logs(folder: str, node: str | None, oldest: datetime | None) -> dict[str, str]:
    """The most relevant of Ray's logs, first those of the node that failed; none older than `oldest`."""
    found = []
    earliest = oldest.timestamp() - CLOCK_SKEW if oldest else 0
    for name in _file_names(folder):
        base = os.path.basename(name)
        if ray_logs.may_show_failure(base) and _modified(os.path.join(folder, name)) >= earliest:
            of_other_node = not name.startswith(f"{node}/")
            found.append((of_other_node, ray_logs.is_worker_log(base), ray_logs.rank(base), name))
    texts = ((name, read_text(os.path.join(folder, name), RAY_LOG_BYTES)[0]) for *_, name in sorted(found)[:RAY_LOGS])
    return {name: text for name, text in texts if text.strip()}


def _modified(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0


def _file_names(folder: str) -> Iterator[str]:
    """The relative paths of the files below a folder. Links are skipped."""
    count = 0
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not os.path.islink(os.path.join(path, name)))
        for name in sorted(files):
            count += 1
            if count > ENTRIES:
                return
            if not os.path.islink(os.path.join(path, name)):
                yield os.path.relpath(os.path.join(path, name), folder)
