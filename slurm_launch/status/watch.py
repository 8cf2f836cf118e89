"""Watch a run to its end: its logs are read often, Slurm is asked seldom, and a view gets to see what is new."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.runs.growing_file import MOST, LogFile
from slurm_launch.runs.log_phases import MARK, Attempt, Attempts
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids, jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import QueuePlace
from slurm_launch.status import lookup
from slurm_launch.status.task import UNKNOWN, Task
from slurm_launch.status.task_points import PointsOf, points_of
from slurm_launch.status.wait import Follower

READ = 0.25  # seconds between two looks at the logs
NEAR_END = 1 << 16  # bytes before the end at which the reading of a long log begins
HEAD = 1 << 18  # of a long log so much is searched for the lines of the bring-up
GRACE = 2.0  # seconds for the last line of a job that has ended: NFS may be late
AT_ONCE = 16  # logs of an array that are read in one round
_LONGEST = 1 << 14  # of a line of ours


class Pace:
    """When Slurm may be asked again: every two seconds at most, and less and less often while nothing changes."""

    LEAST, SOON, LONG = 2.0, 10.0, 30.0
    PATIENT = 300.0  # seconds without a change after which the pauses grow from SOON to LONG

    def __init__(self, now: float, dear: bool = False) -> None:
        """A question about an array costs Slurm more."""
        self.least = self.LEAST * (2 if dear else 1)
        self.pause = self.least
        self.next = now
        self.asked_at = now - self.least
        self.changed_at = now

    def due(self, now: float) -> bool:
        return now >= self.next

    def asked(self, now: float) -> None:
        self.asked_at = now
        longest = self.SOON if now - self.changed_at < self.PATIENT else self.LONG
        self.next = now + min(self.pause, longest)
        self.pause = min(self.pause * 1.5, longest)

    def changed(self, now: float) -> None:
        """Something has happened: Slurm will have more to tell soon."""
        self.changed_at, self.pause = now, self.least
        self.next = min(self.next, max(now, self.asked_at + self.least))


class Feed:
    """The log of one task: its text as it comes, and what its lines of ours tell."""

    def __init__(self, task_id: str, file: LogFile) -> None:
        self.task_id = task_id
        self.file = file
        self.attempts = Attempts()
        self.begun = False  # whether there was any text
        self._rest = b""

    @property
    def attempt(self) -> Attempt:
        return self.attempts.last

    @property
    def ended(self) -> bool:
        """Whether its last line has been written."""
        return self.attempt.end is not None

    @property
    def started_attempts(self) -> int:
        return len([attempt for attempt in self.attempts.all if attempt.times])

    def read(self) -> bytes:
        restarts = self.file.restarts
        data = self.file.read()
        if self.file.restarts != restarts:  # another file under the same name tells another story
            self.attempts, self._rest = Attempts(), b""
        if data and not self.begun:
            self.begun = True
            if self.file.left_out:
                self._take(_beginning(self.file.path, min(HEAD, self.file.left_out)))
                self._rest = b""
        self._take(data)
        return data

    def _take(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[-_LONGEST:]
        for line in lines:
            if MARK in line:
                self.attempts.take(line[-_LONGEST:].decode("utf-8", errors="replace").rstrip("\r"))


def _beginning(path: str, size: int) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(size)
    return b""


@dataclass
class Sight:
    """What is known at a moment."""

    run: Run
    tasks: list[Task] = field(default_factory=list)  # with what their logs tell
    feeds: dict[str, Feed] = field(default_factory=dict)
    place: QueuePlace | None = None  # in the queue
    problem: str | None = None  # why Slurm does not answer
    points: PointsOf = field(default_factory=PointsOf)  # of a sweep

    @property
    def array(self) -> bool:
        """Whether there is more than one to look at."""
        return len(self.tasks) > 1


class View(Protocol):
    """Who gets to see it."""

    def text(self, feed: Feed, data: bytes) -> None:
        """More of a log; it may end within a character."""

    def show(self, sight: Sight) -> None:
        """Called several times a second, whether there is anything new or not."""

    def note(self, text: str) -> None:
        """Something worth knowing."""


class Pending(Protocol):
    """A question that has been asked."""

    def done(self) -> bool: ...

    def answer(self) -> object: ...


class InThread:
    """A question to Slurm, in a thread: the logs and the screen do not wait for the answer, nor does Ctrl-C."""

    def __init__(self, question: Callable[[], object]) -> None:
        self._question = question
        self._answer: object = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._answer = self._question()
        except BaseException as error:  # for the one who asked
            self._error = error

    def done(self) -> bool:
        return not self._thread.is_alive()

    def answer(self) -> object:
        if self._error is not None:
            raise self._error
        return self._answer


def near_its_end(path: str) -> LogFile:
    return LogFile(path, last=NEAR_END)


class Watch:
    """A run that is being watched."""

    PLACE_EVERY = 3  # of so many questions about a job that waits, one is for its place in the queue

    def __init__(
        self,
        run: Run,
        view: View,
        client: SlurmClient,
        *,
        task: str | None = None,
        places: bool = True,
        log_file: Callable[[str], LogFile] = near_its_end,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        ask: Callable[[Callable[[], object]], Pending] = InThread,
    ) -> None:
        """With `task`, that one task of an array. `places`: whether to ask for the place in the queue, too."""
        self._log_file, self._places = log_file, places
        self._known_attempts: dict[str, int] = {}  # of each log, when Slurm was asked last
        self.view, self.clock, self.sleep = view, clock, sleep
        self.sight = Sight(run, points=points_of(run))
        self.task = task
        only = None if task is None else (lambda task_id: task_id == task or array_ids.holds(task_id, task))
        self.follower = Follower(run, client, view.note, only)
        self.pace = Pace(clock(), dear=run.array_indexes is not None)
        self._ask_in, self._client = ask, client
        self._asked: Pending | None = None
        self._questions = 0
        self._turn = 0
        self._more = False  # whether a log has more to read at once
        self._over_at: float | None = None
        self._attempts_then: dict[str, int] = {}
        if run.array_indexes is None:  # it can be read before Slurm has told anything
            self._feed(run.job_id or "", run.log)

    def to_its_end(self) -> list[Task]:
        """Until all of it has ended and been shown; then the record learns how it ended."""
        while not self.step():
            if not self._more:
                self.sleep(READ)
        lookup.remember(self.sight.run, self.sight.tasks)
        return self.sight.tasks

    def step(self) -> bool:
        """One round; whether it was the last."""
        over = self.follower.over  # first this, then the logs: so nothing of them is missed
        self._ask()
        news = self._read(everything=over)
        self.sight.tasks = [self._with_attempt(task) for task in self.follower.tasks.values()]
        self.sight.problem = self.follower.problem
        self.view.show(self.sight)
        if not over or not self.follower.over or news:
            self._over_at = None
            return False
        self._over_at = self.clock() if self._over_at is None else self._over_at
        complete = all(feed.ended for feed in self.sight.feeds.values())
        return complete or self.clock() - self._over_at >= GRACE

    def code(self) -> int:
        """The exit code of the command, or NoCommandCode."""
        return self.follower.code()

    # Slurm

    def _ask(self) -> None:
        now = self.clock()
        if self._asked is None and self.pace.due(now) and not self.follower.over:
            self.pace.asked(now)
            self._attempts_then = {feed.task_id: feed.started_attempts for feed in self.sight.feeds.values()}
            self._asked = self._ask_in(self._next_question())
        if self._asked is None or not self._asked.done():
            return
        answer = self._asked.answer()
        self._asked = None
        if isinstance(answer, _Placed):
            self.sight.place = answer.place
            return
        self._known_attempts = self._attempts_then
        before = _states(self.follower.tasks.values())
        self._check_task(answer)
        self.follower.take(answer)  # type: ignore[arg-type]
        if _states(self.follower.tasks.values()) != before:
            self.pace.changed(self.clock())
        if not any(task.waiting for task in self.follower.tasks.values()):
            self.sight.place = None

    def _next_question(self) -> Callable[[], object]:
        waiting = self._waiting()
        self._questions = self._questions + 1 if waiting else 0
        if waiting and self._places and self._questions % self.PLACE_EVERY == 1:
            return lambda: _Placed(find_place(waiting, self.sight.run, self._client))
        return self.follower.ask

    def _waiting(self) -> Task | None:
        """The job, or what remains of an array, while nothing of it has begun."""
        tasks = self.sight.tasks
        return tasks[0] if len(tasks) == 1 and tasks[0].waiting else None

    def _check_task(self, answer: object) -> None:
        """A task that an array does not have is a mistake of the user's."""
        if self.task is None or self.follower.tasks or not isinstance(answer, list):
            return
        known = [task.id for task in answer if task.source != "none"]
        if known and not any(one == self.task or array_ids.holds(one, self.task) for one in known):
            raise UsageError(f"there is no task {self.task}", at="RUN", hint=f"there are {', '.join(known[:20])}")

    # The logs

    def _read(self, everything: bool) -> bool:
        """Read what is new; of an array, of some tasks in each round."""
        for task in self.follower.tasks.values():
            if not task.waiting and not task.id.endswith("]"):
                self._feed(task.id, task.log)
        feeds = list(self.sight.feeds.values())
        if len(feeds) > AT_ONCE and not everything:
            open_ones = [feed for feed in feeds if not self._done(feed)]
            self._turn = (self._turn + AT_ONCE) % max(1, len(open_ones))
            feeds = [*open_ones[self._turn :], *open_ones[: self._turn]][:AT_ONCE]
        news = [self._read_one(feed) for feed in feeds]
        self._more = any(size >= MOST for size in news)
        return any(news)

    def _read_one(self, feed: Feed) -> int:
        """How much of it was new."""
        restarts, ended = feed.file.restarts, feed.ended
        begun, attempts = feed.begun, len(feed.attempts.all)
        data = feed.read()
        if feed.file.restarts > restarts:
            self.view.note(f"the log of job {feed.task_id} was cut off or replaced: it goes on from its new beginning")
        if data:
            self.view.text(feed, data)
        if len(self.sight.feeds) > AT_ONCE:  # a process may have but 1024 files open
            feed.file.close()
        # What the log tells, Slurm knows too: it has begun, it has ended, it lives again.
        if (begun, attempts, ended) != (feed.begun, len(feed.attempts.all), feed.ended):
            self.pace.changed(self.clock())
        return len(data)

    def _done(self, feed: Feed) -> bool:
        task = self.follower.tasks.get(feed.task_id)
        return task is not None and (task.ended or task.state == UNKNOWN) and feed.ended

    def _feed(self, task_id: str, path: str) -> None:
        if task_id not in self.sight.feeds:
            self.sight.feeds[task_id] = Feed(task_id, self._log_file(path))

    def _with_attempt(self, task: Task) -> Task:
        feed = self.sight.feeds.get(task.id)
        if feed is None:
            return task
        if task.waiting and not feed.ended and feed.started_attempts > self._known_attempts.get(task.id, 0):
            task = replace(task, state="RUNNING", source="log", reason=None)  # it has begun since Slurm was asked
        return lookup.with_attempt(task, feed.attempt)


def _states(tasks: Iterable[Task]) -> dict[str, tuple[str, int]]:
    return {task.id: (task.state, task.restarts) for task in tasks}


@dataclass(frozen=True)
class _Placed:
    place: QueuePlace | None


def find_place(task: Task, run: Run, client: SlurmClient) -> QueuePlace | None:
    """Where a job stands in the queue; None where that is not to be known."""
    if task.partition is None:
        return None
    try:
        result = client(jobs.squeue_waiting_argv(task.partition, run.cluster))
    except LaunchError:
        return None
    return jobs.parse_place(result.stdout, task.id) if result.returncode == 0 else None
