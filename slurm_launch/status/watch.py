"""Watch a run to its end: read its logs often, query Slurm rarely, and pass what is new to a view."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.runs.growing_file import MAX_READ, LogFile
from slurm_launch.runs.log_phases import MARK, Attempt, Attempts
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids, jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import QueuePosition
from slurm_launch.status import lookup, saved_outcomes
from slurm_launch.status.task import UNKNOWN, Task
from slurm_launch.status.task_points import TaskPoints, read_points
from slurm_launch.status.wait import JobPoller

READ_INTERVAL = 0.25  # seconds
NEAR_END = 1 << 16  # bytes; reading of a long log starts this far before its end
HEAD = 1 << 18  # bytes at the beginning of a long log that are searched for the lines of the bring-up
GRACE = 2.0  # seconds to wait for the last line of a job that has ended: NFS may be late
LOGS_PER_ROUND = 16  # logs of an array that are read in one round
_LONGEST = 1 << 14  # bytes of a line of the script


class QueryPace:
    """When Slurm may be queried again: at most every two seconds, and less often while nothing changes."""

    LEAST, SOON, LONG = 2.0, 10.0, 30.0
    PATIENT = 300.0  # seconds without a change after which the longest pause grows from SOON to LONG

    def __init__(self, now: float, expensive: bool = False) -> None:
        """`expensive`: queries about an array cost Slurm more."""
        self.least = self.LEAST * (2 if expensive else 1)
        self.pause = self.least
        self.next = now
        self.queried_at = now - self.least
        self.changed_at = now

    def due(self, now: float) -> bool:
        return now >= self.next

    def queried(self, now: float) -> None:
        self.queried_at = now
        longest = self.SOON if now - self.changed_at < self.PATIENT else self.LONG
        self.next = now + min(self.pause, longest)
        self.pause = min(self.pause * 1.5, longest)

    def changed(self, now: float) -> None:
        """Something has happened, so Slurm will report something new soon."""
        self.changed_at, self.pause = now, self.least
        self.next = min(self.next, max(now, self.queried_at + self.least))


class LogFeed:
    """The log of one task: its text as it grows, and the attempts in it."""

    def __init__(self, task_id: str, file: LogFile) -> None:
        self.task_id = task_id
        self.file = file
        self.attempts = Attempts()
        self.begun = False  # whether there has been any text
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
        """Return the new text."""
        restarts = self.file.restarts
        data = self.file.read()
        if self.file.restarts != restarts:  # the file was replaced or truncated
            self.attempts, self._rest = Attempts(), b""
        if data and not self.begun:
            self.begun = True
            if self.file.skipped:
                self._parse(_beginning(self.file.path, min(HEAD, self.file.skipped)))
                self._rest = b""
        self._parse(data)
        return data

    def _parse(self, data: bytes) -> None:
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
class Snapshot:
    """What is known about a run at one moment."""

    run: Run
    tasks: list[Task] = field(default_factory=list)  # with what their logs contain
    feeds: dict[str, LogFeed] = field(default_factory=dict)
    place: QueuePosition | None = None  # in the queue
    problem: str | None = None  # why slurmctld cannot be reached
    points: TaskPoints = field(default_factory=TaskPoints)  # of a sweep

    @property
    def array(self) -> bool:
        """Whether there is more than one task."""
        return len(self.tasks) > 1


class WatchView(Protocol):
    """Displays a run that is watched."""

    def text(self, feed: LogFeed, data: bytes) -> None:
        """More text of a log; it may end within a character."""

    def show(self, snapshot: Snapshot) -> None:
        """Called several times a second, even if nothing is new."""

    def note(self, text: str) -> None:
        """A message for the user."""


class PendingQuery(Protocol):
    """A query that was started."""

    def done(self) -> bool: ...

    def answer(self) -> object: ...


class ThreadedQuery:
    """A query in a thread, so that the logs, the screen and Ctrl-C do not wait for Slurm."""

    def __init__(self, query: Callable[[], object]) -> None:
        self._query = query
        self._answer: object = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._query()
        except BaseException as error:  # raised by `answer`
            self._error = error

    def done(self) -> bool:
        return not self._thread.is_alive()

    def answer(self) -> object:
        if self._error is not None:
            raise self._error
        return self._answer


def open_near_end(path: str) -> LogFile:
    return LogFile(path, last=NEAR_END)


class RunWatcher:
    """Watches a run to its end."""

    PLACE_EVERY = 3  # of this many queries about a pending job, one is for its place in the queue

    def __init__(
        self,
        run: Run,
        view: WatchView,
        client: SlurmClient,
        *,
        task: str | None = None,
        places: bool = True,
        log_file: Callable[[str], LogFile] = open_near_end,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
        start_query: Callable[[Callable[[], object]], PendingQuery] = ThreadedQuery,
    ) -> None:
        """With `task`, only that task of an array. `places`: whether to query the place in the queue, too."""
        self._log_file, self._places = log_file, places
        self.view, self.clock, self.sleep = view, clock, sleep
        self.snapshot = Snapshot(run, points=read_points(run))
        self.task = task
        only = None if task is None else (lambda task_id: task_id == task or array_ids.contains(task_id, task))
        self.poller = JobPoller(run, client, view.note, only)
        self.pace = QueryPace(clock(), expensive=run.array_indexes is not None)
        self._start_query, self._client = start_query, client
        self._pending: PendingQuery | None = None
        self._queries = 0  # about a pending job
        self._turn = 0  # of the logs of a large array
        self._more = False  # whether a log has more text that can be read at once
        self._over_at: float | None = None
        # How many attempts each log showed when the last query was started, and the last answered one.
        self._attempts_at_query: dict[str, int] = {}
        self._attempts_at_answer: dict[str, int] = {}
        if run.array_indexes is None:  # its log can be read before Slurm has answered
            self._add_feed(run.job_id or "", run.log)

    def run_to_end(self) -> list[Task]:
        """Watch until all tasks have ended and been shown, and save the outcome in the record."""
        while not self.step():
            if not self._more:
                self.sleep(READ_INTERVAL)
        saved_outcomes.save(self.snapshot.run, self.snapshot.tasks)
        return self.snapshot.tasks

    def step(self) -> bool:
        """One round; returns whether it was the last."""
        over = self.poller.over  # checked before the logs are read, so that none of their text is missed
        self._poll()
        news = self._read(everything=over)
        self.snapshot.tasks = [self._with_attempt(task) for task in self.poller.tasks.values()]
        self.snapshot.problem = self.poller.problem
        self.view.show(self.snapshot)
        if not over or not self.poller.over or news:
            self._over_at = None
            return False
        self._over_at = self.clock() if self._over_at is None else self._over_at
        complete = all(feed.ended for feed in self.snapshot.feeds.values())
        return complete or self.clock() - self._over_at >= GRACE

    def exit_code(self) -> int:
        """The exit code of the command. Raises NoCommandCode if there is none."""
        return self.poller.exit_code()

    # Slurm

    def _poll(self) -> None:
        """Start a query if one is due, and apply the answer of one that is done."""
        now = self.clock()
        if self._pending is None and self.pace.due(now) and not self.poller.over:
            self.pace.queried(now)
            self._attempts_at_query = {feed.task_id: feed.started_attempts for feed in self.snapshot.feeds.values()}
            self._pending = self._start_query(self._next_query())
        if self._pending is None or not self._pending.done():
            return
        answer = self._pending.answer()
        self._pending = None
        if isinstance(answer, _PlaceAnswer):
            self.snapshot.place = answer.place
            return
        self._attempts_at_answer = self._attempts_at_query
        before = _states(self.poller.tasks.values())
        self._check_task(answer)
        self.poller.update(answer)  # type: ignore[arg-type]
        if _states(self.poller.tasks.values()) != before:
            self.pace.changed(self.clock())
        if not any(task.waiting for task in self.poller.tasks.values()):
            self.snapshot.place = None

    def _next_query(self) -> Callable[[], object]:
        pending = self._pending_task()
        self._queries = self._queries + 1 if pending else 0
        if pending and self._places and self._queries % self.PLACE_EVERY == 1:
            return lambda: _PlaceAnswer(find_place(pending, self.snapshot.run, self._client))
        return self.poller.query

    def _pending_task(self) -> Task | None:
        """The job, or the whole array, while none of it has started."""
        tasks = self.snapshot.tasks
        return tasks[0] if len(tasks) == 1 and tasks[0].waiting else None

    def _check_task(self, answer: object) -> None:
        """Raise UsageError if the array does not have the task."""
        if self.task is None or self.poller.tasks or not isinstance(answer, list):
            return
        known = [task.id for task in answer if task.source != "none"]
        if known and not any(one == self.task or array_ids.contains(one, self.task) for one in known):
            hint = f"existing tasks: {', '.join(known[:20])}"
            raise UsageError(f"there is no task {self.task}", at="RUN", hint=hint)

    # The logs

    def _read(self, everything: bool) -> bool:
        """Read what is new, of a large array in some of the logs, and return whether there was anything."""
        for task in self.poller.tasks.values():
            if not task.waiting and not task.id.endswith("]"):
                self._add_feed(task.id, task.log)
        feeds = list(self.snapshot.feeds.values())
        if len(feeds) > LOGS_PER_ROUND and not everything:
            unfinished = [feed for feed in feeds if not self._is_finished(feed)]
            self._turn = (self._turn + LOGS_PER_ROUND) % max(1, len(unfinished))
            feeds = [*unfinished[self._turn :], *unfinished[: self._turn]][:LOGS_PER_ROUND]
        news = [self._read_one(feed) for feed in feeds]
        self._more = any(size >= MAX_READ for size in news)
        return any(news)

    def _read_one(self, feed: LogFeed) -> int:
        """Read a log and return the number of new bytes."""
        restarts, ended = feed.file.restarts, feed.ended
        begun, attempts = feed.begun, len(feed.attempts.all)
        data = feed.read()
        if feed.file.restarts > restarts:
            self.view.note(f"the log of job {feed.task_id} was truncated or replaced: continuing with the new one")
        if data:
            self.view.text(feed, data)
        if len(self.snapshot.feeds) > LOGS_PER_ROUND:  # a process may have only 1024 files open
            feed.file.close()
        # A start, an end or a restart in the log: Slurm has it, too.
        if (begun, attempts, ended) != (feed.begun, len(feed.attempts.all), feed.ended):
            self.pace.changed(self.clock())
        return len(data)

    def _is_finished(self, feed: LogFeed) -> bool:
        task = self.poller.tasks.get(feed.task_id)
        return task is not None and (task.ended or task.state == UNKNOWN) and feed.ended

    def _add_feed(self, task_id: str, path: str) -> None:
        if task_id not in self.snapshot.feeds:
            self.snapshot.feeds[task_id] = LogFeed(task_id, self._log_file(path))

    def _with_attempt(self, task: Task) -> Task:
        feed = self.snapshot.feeds.get(task.id)
        if feed is None:
            return task
        if task.waiting and not feed.ended and feed.started_attempts > self._attempts_at_answer.get(task.id, 0):
            task = replace(task, state="RUNNING", source="log", reason=None)  # it has started since the query
        return lookup.with_attempt(task, feed.attempt)


def _states(tasks: Iterable[Task]) -> dict[str, tuple[str, int]]:
    return {task.id: (task.state, task.restarts) for task in tasks}


@dataclass(frozen=True)
class _PlaceAnswer:
    place: QueuePosition | None


def find_place(task: Task, run: Run, client: SlurmClient) -> QueuePosition | None:
    """The place of a pending job in the queue; None if it cannot be determined."""
    if task.partition is None:
        return None
    try:
        result = client(jobs.squeue_pending_argv(task.partition, run.cluster))
    except LaunchError:
        return None
    return jobs.parse_queue_position(result.stdout, task.id) if result.returncode == 0 else None
