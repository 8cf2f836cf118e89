"""What the log of a job tells: the lines that the script writes between the command's own.

    [slurm-launch] 2026-11-16T02:52:23+0000 joined node=n2 nodes=2/3

docs/script.md lists the phases. A job that is requeued appends to its log: every such part is a life.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

MARK = b"[slurm-launch] "
REQUEUED = "requeued"  # the outcome of a life after which there is to be another
TAIL = 1 << 16  # as much of a log's end as is searched for the line that tells the outcome
_CHUNK = 1 << 20
_LONGEST = 1 << 14  # of our lines; what is longer is the command's
# Not only at the beginning of a line: the command may have left its last one unfinished.
_PHASE = re.compile(r"\[slurm-launch\] (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([+-]\d\d):?(\d\d) ([a-z-]+)(?: (.*))?$")


@dataclass(frozen=True)
class Phase:
    """One line of ours."""

    time: datetime
    name: str
    rest: str

    def value(self, key: str) -> str | None:
        """What stands behind `key=`: the first counts, for a text in quotes may follow and hold anything."""
        found = re.search(rf'(?:^| ){key}=(?:"(.*?)"(?= [a-z-]+=|$)|(\S+))', self.rest)
        return None if found is None else found[1] if found[1] is not None else found[2]


def phase_of(line: str) -> Phase | None:
    """The line of ours in a line of the log, if there is one."""
    found = _PHASE.search(line)
    if found is None:
        return None
    try:
        time = datetime.fromisoformat(f"{found[1]}{found[2]}:{found[3]}")
    except ValueError:  # the command may print what it likes
        return None
    return Phase(time, found[4], found[5] or "")


def number(text: str | None) -> int | None:
    """A number in a log, where anything may stand: int() fails at some digits, and at too many."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else None


@dataclass(frozen=True)
class End:
    """What the last line of a log says."""

    outcome: str
    code: int | None
    cause: str | None = None
    hint: str | None = None
    node: str | None = None
    job: str | None = None  # of a task of an array this is a number of its own
    began: datetime | None = None  # when the script did

    @property
    def command_ended(self) -> bool:
        """Whether the code is the command's own."""
        return self.outcome in ("ok", "command-failed")


def end_of(phase: Phase) -> End:
    before, quoted, _ = phase.rest.partition(' cause="')
    told = Phase(phase.time, phase.name, before)
    why = re.search(r' cause="(.*?)" hint="(.*)"$', phase.rest) if quoted else None
    return End(
        phase.value("outcome") or "unknown",
        number(phase.value("code")),
        cause=why[1] if why else None,
        hint=why[2] if why else None,
        node=told.value("node"),
        job=told.value("job"),
        began=_before(phase.time, number((told.value("total") or "").removesuffix("s"))),
    )


def _before(time: datetime, seconds: int | None) -> datetime | None:
    with suppress(OverflowError):  # the command may print what it likes
        return None if seconds is None else time - timedelta(seconds=seconds)
    return None


@dataclass
class Attempt:
    """A job from its start to its end, as far as its log tells."""

    count: int = 0  # nodes of the job
    head: str | None = None
    address: str | None = None  # of Ray, with the port
    job: str | None = None  # of a task of an array this is a number of its own
    directory: str | None = None  # the beginning of the job's directories on the nodes
    auth: str | None = None
    main: str | None = None  # the job whose cluster it grows, if it does
    ray: str | None = None  # its version
    client: str | None = None  # URLs, where this Ray offers them
    dashboard: str | None = None
    joined: dict[str, datetime] = field(default_factory=dict)  # when each node did
    lost: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    saving: bool = False  # its time is short, and the command has been told so
    times: dict[str, datetime] = field(default_factory=dict)  # of the phases, by their names
    end: End | None = None

    @property
    def phase(self) -> str:
        """How far it is: waiting, starting, ready, command, stopping, end; `missing` if a container lacks something."""
        return list(self.times)[-1] if self.times else ""

    @property
    def head_ready(self) -> datetime | None:
        return self.joined.get(self.head or "")

    @property
    def began(self) -> datetime | None:
        return next(iter(self.times.values()), None)

    def take(self, phase: Phase) -> None:
        """One line more."""
        if phase.name == "starting":
            self.count = number(phase.value("nodes")) or 0
            self.head, self.address, self.auth = (phase.value(key) for key in ("head", "address", "auth"))
            self.job, self.directory, self.main = phase.value("job"), phase.value("dir"), phase.value("main")
            self.joined.clear()  # after a retry all of them join anew
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
        elif phase.name == "saving":
            self.saving = True
        elif phase.name == "end":
            self.end = end_of(phase)
        if phase.name in ("waiting", "starting", "missing", "ready", "command", "stopping", "end"):
            self.times.pop(phase.name, None)
            self.times[phase.name] = phase.time


class Attempts:
    """The lives of a job, put together line by line.

    The command may show the log of another job, by `cat` or `submit --follow`: what that tells is left out. Every life
    names its job at its start, and at its end.
    """

    def __init__(self, job: str | None = None) -> None:
        """With `job`, the lives of that one alone; else of the first that starts."""
        self.all: list[Attempt] = [Attempt()]
        self._retried = False
        self._job = self._expected = job
        self._other: str | None = None  # the job whose log is being shown

    @property
    def last(self) -> Attempt:
        return self.all[-1]

    def take(self, line: str) -> Phase | None:
        """One line of the log; returns what it is, if it is one of ours."""
        phase = phase_of(line)
        if phase is None or self._is_foreign(phase):
            return None
        # After an end comes another life. One that was killed has no end: then a second start is its sign.
        again = phase.name == "starting" and "starting" in self.last.times and not self._retried
        if self.last.end is not None or again:
            self.all.append(Attempt())
        self._retried = phase.name == "retry"
        self.last.take(phase)
        if phase.name == "starting":
            self._job = self._job or self.last.job
        elif phase.name == "end":
            self._job = self._expected
        return phase

    def _is_foreign(self, phase: Phase) -> bool:
        """Whether a line is from the log of another job. Older versions did not name the job."""
        named = phase.name in ("starting", "end")
        job = (end_of(phase).job if phase.name == "end" else phase.value("job")) if named else None
        if job is not None and self._job is not None:
            if job == self._job:
                self._other = None  # the other one did not come to its end
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
    """The lines of a log file that hold one of ours; reads no more than a part of it into memory."""
    with open(path, "rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST:  # a bar of progress, say: only its end can be a line of ours
                rest = rest[-_LONGEST:]
            yield from (_text(line) for line in lines if MARK in line)
        if MARK in rest:
            yield _text(rest)


def _text(line: bytes) -> str:
    return line[-_LONGEST:].decode("utf-8", errors="replace").rstrip("\r")


def read(path: str | os.PathLike[str]) -> Attempts:
    """What a log file tells. Raises OSError where it cannot be read."""
    attempts = Attempts()
    for line in lines_of(path):
        attempts.take(line)
    return attempts


def parse_end(log: str, job: str | None = None) -> End | None:
    """The end line; None when the last phase is another one, as in a job that runs, will run again or was killed."""
    attempts = Attempts(job)
    phases = [phase for line in log.splitlines() if (phase := attempts.take(line)) is not None]
    end = end_of(phases[-1]) if phases and phases[-1].name == "end" else None
    return end if end and end.outcome != REQUEUED else None


def read_end(log: str | os.PathLike[str], task_id: str | None = None) -> End | None:
    """`parse_end` of a log file; one that cannot be read tells nothing."""
    job = None if task_id is None or "_" in task_id else task_id  # a task of an array has another id in its log
    return parse_end(tail(log), job)


def tail(log: str | os.PathLike[str]) -> str:
    """The end of a log; nothing when it cannot be read."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
