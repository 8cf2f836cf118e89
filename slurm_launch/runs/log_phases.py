"""The phase lines that the script writes to the log of a job, among the output of the command.

    [slurm-launch] 2026-11-16T02:52:23+0000 joined node=n2 nodes=2/3

docs/script.md lists the phases. A job that is requeued appends to its log: each part is an attempt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

MARK = b"[slurm-launch] "
REQUEUED = "requeued"  # the outcome of an attempt after which the job is requeued
TAIL = 1 << 16  # bytes at the end of a log that are searched for the end line
_CHUNK = 1 << 20
_MAX_LINE = 1 << 14  # bytes of a phase line; longer lines are the command's
# Also in the middle of a line: the last line of the command may lack its newline.
_PHASE = re.compile(r"\[slurm-launch\] (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([+-]\d\d):?(\d\d) ([a-z-]+)(?: (.*))?$")


@dataclass(frozen=True)
class Phase:
    """One phase line."""

    time: datetime
    name: str
    rest: str

    def value(self, key: str) -> str | None:
        """The value of the first `key=`: quoted text may follow and contain anything."""
        found = re.search(rf'(?:^| ){key}=(?:"(.*?)"(?= [a-z-]+=|$)|(\S+))', self.rest)
        return None if found is None else found[1] if found[1] is not None else found[2]


def phase_of(line: str) -> Phase | None:
    """The phase in a line of the log; None if there is none."""
    found = _PHASE.search(line)
    if found is None:
        return None
    try:
        time = datetime.fromisoformat(f"{found[1]}{found[2]}:{found[3]}")
    except ValueError:  # printed by the command
        return None
    return Phase(time, found[4], found[5] or "")


def number(text: str | None) -> int | None:
    """A number of up to 9 ASCII digits, otherwise None: int() accepts and rejects more than that."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else None


@dataclass(frozen=True)
class End:
    """The end line of a log."""

    outcome: str
    code: int | None
    cause: str | None = None
    hint: str | None = None
    node: str | None = None
    job: str | None = None  # the ID inside the job, which differs for an array task
    began: datetime | None = None  # when the script started

    @property
    def command_ended(self) -> bool:
        """Whether the code is the command's exit code."""
        return self.outcome in ("ok", "command-failed")


def end_of(phase: Phase) -> End:
    before, quoted, _ = phase.rest.partition(' cause="')
    unquoted = Phase(phase.time, phase.name, before)
    why = re.search(r' cause="(.*?)" hint="(.*)"$', phase.rest) if quoted else None
    return End(
        phase.value("outcome") or "unknown",
        number(phase.value("code")),
        cause=why[1] if why else None,
        hint=why[2] if why else None,
        node=unquoted.value("node"),
        job=unquoted.value("job"),
        began=_before(phase.time, number((unquoted.value("total") or "").removesuffix("s"))),
    )


def _before(time: datetime, seconds: int | None) -> datetime | None:
    with suppress(OverflowError):  # printed by the command
        return None if seconds is None else time - timedelta(seconds=seconds)
    return None


@dataclass(frozen=True)
class MemoryKills:
    """What the kernel has killed at the memory limit of one step of a job on one node."""

    node: str
    limit_mb: int | None  # None: unknown
    killed: str | None  # name of the process, of several the last; None: unknown
    kills: int  # so far
    step: str | None = None  # batch: the command's own; None: that of the node's Ray

    @property
    def in_words(self) -> str:
        """`out of memory on n2 (limit 2000M): ray::hog killed, 3 times`."""
        limit = f" (limit {self.limit_mb}M)" if self.limit_mb else ""
        times = f", {self.kills} times" if self.kills > 1 else ""
        return f"out of memory on {self.node}{limit}: {self.killed or 'a process'} killed{times}"


def kills_of(phase: Phase) -> MemoryKills:
    killed = phase.value("killed")
    return MemoryKills(
        phase.value("node") or "?",
        number((phase.value("limit") or "").removesuffix("M")) or None,
        None if killed == "unknown" else killed,
        number(phase.value("kills")) or 1,
        phase.value("step"),
    )


@dataclass
class Attempt:
    """One attempt of a job, from its start to its end, according to the log."""

    count: int = 0  # number of nodes
    head: str | None = None
    address: str | None = None  # of Ray, with the port
    job: str | None = None  # the ID inside the job, which differs for an array task
    directory: str | None = None  # the prefix of the job's directories on the nodes
    auth: str | None = None
    main: str | None = None  # the job whose cluster it grows
    ray: str | None = None  # version
    client: str | None = None  # URL, if available
    dashboard: str | None = None
    joined: dict[str, datetime] = field(default_factory=dict)  # time by node
    lost: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    memory_kills: dict[tuple[str, str | None], MemoryKills] = field(default_factory=dict)  # by node and step
    saving: bool = False  # the time limit is near, and the command was asked to save its work
    times: dict[str, datetime] = field(default_factory=dict)  # by name of the phase
    end: End | None = None

    @property
    def phase(self) -> str:
        """The current phase: waiting, starting, missing (in a container), ready, command, stopping or end."""
        return list(self.times)[-1] if self.times else ""

    @property
    def head_ready(self) -> datetime | None:
        return self.joined.get(self.head or "")

    @property
    def began(self) -> datetime | None:
        return next(iter(self.times.values()), None)

    def take(self, phase: Phase) -> None:
        """Process one phase."""
        if phase.name == "starting":
            self.count = number(phase.value("nodes")) or 0
            self.head, self.address, self.auth = (phase.value(key) for key in ("head", "address", "auth"))
            self.job, self.directory, self.main = phase.value("job"), phase.value("dir"), phase.value("main")
            self.joined.clear()  # after a retry all nodes join again
        elif phase.name == "waiting":
            self.main = phase.value("main")
        elif phase.name == "joined":
            self.joined[phase.value("node") or "?"] = phase.time
        elif phase.name == "ready":
            self.ray, self.client, self.dashboard = (phase.value(key) for key in ("ray", "client", "dashboard"))
        elif phase.name == "lost":
            self.lost.append(phase.value("node") or "?")
        elif phase.name == "warning":
            self.warnings.append(phase.rest)
        elif phase.name == "out-of-memory":
            kills = kills_of(phase)
            self.memory_kills.pop((kills.node, kills.step), None)  # the last one of all comes last
            self.memory_kills[kills.node, kills.step] = kills
        elif phase.name == "saving":
            self.saving = True
        elif phase.name == "end":
            self.end = end_of(phase)
        if phase.name in ("waiting", "starting", "missing", "ready", "command", "stopping", "end"):
            self.times.pop(phase.name, None)
            self.times[phase.name] = phase.time


class Attempts:
    """The attempts of a job, built from the lines of its log.

    The command may print the log of another job, with `cat` or `submit --follow`: those lines are ignored. Each attempt
    names its job in its first and its last phase.
    """

    def __init__(self, job: str | None = None) -> None:
        """With `job`, the attempts of that job; otherwise of the first job that starts."""
        self.all: list[Attempt] = [Attempt()]
        self._retried = False
        self._job = self._expected = job
        self._other: str | None = None  # the other job whose log is being printed

    @property
    def last(self) -> Attempt:
        return self.all[-1]

    @property
    def final_end(self) -> End | None:
        """The end line if it is the last phase; None for a job that is running, will be requeued or was killed."""
        end = self.last.end
        return end if end and end.outcome != REQUEUED else None

    def take(self, line: str) -> Phase | None:
        """Process one line of the log; return its phase, or None."""
        phase = phase_of(line)
        if phase is None or self._is_foreign(phase):
            return None
        # A new attempt begins after an end line. A killed attempt has none: then a second start marks the new one.
        again = phase.name == "starting" and "starting" in self.last.times and not self._retried
        if self.last.end is not None or again:
            self.all.append(Attempt())
        if phase.name not in ("warning", "out-of-memory"):
            # Another port: all nodes start again. With `node=`, only that node does.
            self._retried = phase.name == "retry" and phase.value("node") is None
        self.last.take(phase)
        if phase.name == "starting":
            self._job = self._job or self.last.job
        elif phase.name == "end":
            self._job = self._expected
        return phase

    def _is_foreign(self, phase: Phase) -> bool:
        """Whether a phase is from the log of another job. Older versions did not name the job."""
        named = phase.name in ("starting", "end")
        job = (end_of(phase).job if phase.name == "end" else phase.value("job")) if named else None
        if job is not None and self._job is not None:
            if job == self._job:
                self._other = None  # the other log has no end line
                return False
            if phase.name == "starting":
                self._other = job
            elif job == self._other:
                self._other = None
            return True
        foreign = self._other is not None
        if phase.name == "end":
            self._other = None
        return foreign


def lines_of(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a log file that may contain a phase. The file is read in chunks."""
    with open(path, "rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _MAX_LINE:  # such as a progress bar: only its end can be a phase
                rest = rest[-_MAX_LINE:]
            yield from (_text(line) for line in lines if MARK in line)
        if MARK in rest:
            yield _text(rest)


def _text(line: bytes) -> str:
    return line[-_MAX_LINE:].decode("utf-8", errors="replace").rstrip("\r")


def read(path: str | os.PathLike[str], task_id: str | None = None) -> Attempts:
    """The attempts in a log file. Raises OSError if it cannot be read."""
    attempts = Attempts(_job_in_log(task_id))
    for line in lines_of(path):
        attempts.take(line)
    return attempts


def parse_end(log: str, job: str | None = None) -> End | None:
    """The `final_end` of a log's text."""
    attempts = Attempts(job)
    for line in log.splitlines():
        attempts.take(line)
    return attempts.final_end


def read_end(log: str | os.PathLike[str], task_id: str | None = None) -> End | None:
    """The `final_end` of a log file, searched in its tail; None if the file cannot be read."""
    return parse_end(tail(log), _job_in_log(task_id))


def _job_in_log(task_id: str | None) -> str | None:
    """The job ID that the log names, if it is known: an array task has another ID there."""
    return None if task_id is None or "_" in task_id else task_id


def tail(log: str | os.PathLike[str]) -> str:
    """The end of a log; empty if it cannot be read."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
