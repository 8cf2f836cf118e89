"""Watching a run with a fake clock and a fake Slurm: how often Slurm is queried, and what is shown."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.errors import LaunchError, NoCommandCode, SlurmUnavailable, UsageError
from slurm_launch.process import Result
from slurm_launch.runs import log_phases
from slurm_launch.runs import record as records
from slurm_launch.runs.growing_file import LogFile
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status.wait import TRIES
from slurm_launch.status.watch import LOGS_PER_ROUND, LogFeed, QueryPace, RunWatcher, Snapshot, ThreadedQuery
from tests.unit.queue_answers import DOWN, GONE, NO_SACCT, queued, sacct
from tests.unit.some_run import END, START, some_run


class World:
    """A Slurm that answers by the time, a clock that sleeping advances, and a view that records what it gets."""

    def __init__(self, run: Run, squeue: Callable[[float], str | Result | BaseException]) -> None:
        self.run, self.squeue = run, squeue
        self.now = 0.0
        self.asked: list[tuple[float, str]] = []
        self.others = ""  # the jobs that wait
        self.sacct: Result = NO_SACCT
        self.at: list[tuple[float, Callable[[], object]]] = []  # what happens when
        self.out = b""
        self.notes: list[str] = []
        self.seen: list[str] = []

    # Slurm

    def __call__(self, argv: Sequence[str], **_: Any) -> Result:
        self.asked.append((self.now, argv[0] if "PENDING" not in argv else "place"))
        if "PENDING" in argv:
            return Result((), 0, self.others, "")
        if argv[0] != "squeue":
            return self.sacct if argv[0] == "sacct" else GONE
        answer = self.squeue(self.now)
        if isinstance(answer, BaseException):
            raise answer
        return Result((), 0, answer, "") if isinstance(answer, str) else answer

    # The clock

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 100_000, "it does not end"
        while self.at and self.at[0][0] <= self.now:
            self.at.pop(0)[1]()

    # The view

    def text(self, feed: LogFeed, data: bytes) -> None:
        self.out += data

    def show(self, snapshot: Snapshot) -> None:
        said = ", ".join(f"{task.id} {task.in_words}" for task in snapshot.tasks)
        if snapshot.place:
            said += f" {snapshot.place.place}/{snapshot.place.of}"
        if said and (not self.seen or self.seen[-1] != said):
            self.seen.append(said)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def log(self, time: float, text: str, path: str | None = None) -> None:
        """So much more in the log, at that time."""

        def write() -> None:
            with open(path or self.run.log, "a") as file:
                file.write(text)

        self.at.append((time, write))

    def watch(self, **options: Any) -> RunWatcher:
        watch = RunWatcher(
            self.run, self, SlurmClient({}, self), clock=lambda: self.now, sleep=self.sleep, start_query=_Now, **options
        )
        watch.run_to_end()
        return watch

    def calls(self, begin: float = 0, end: float = 1e9) -> int:
        return len([1 for time, _ in self.asked if begin <= time < end])


class _Now:
    """A query that is answered at once."""

    def __init__(self, question: Callable[[], object]) -> None:
        self._result = question()

    def done(self) -> bool:
        return True

    def answer(self) -> object:
        return self._result


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return some_run(tmp_path)


def until(*phases: tuple[float, str | Result | BaseException]) -> Callable[[float], Any]:
    """Each answer is given until its time, the last one from then on."""

    def answer(now: float) -> Any:
        return next((said for time, said in phases if now < time), phases[-1][1])

    return answer


FAILED = queued("12", "FAILED", "3:0")


# Load on Slurm


def test_ten_minutes_of_a_running_job(run: Run) -> None:
    world = World(run, until((600, queued("12", "RUNNING", nodes="n1")), (0, FAILED)))
    world.log(0.1, START)
    for second in range(1, 600):  # however much it writes
        world.log(second, f"line {second}\n")
    world.log(599, END.format(outcome="command-failed", code=3))
    assert world.watch().exit_code() == 3
    assert world.calls(0, 600) <= 55
    assert world.out.count(b"\n") == START.count("\n") + 599 + 1


def test_two_hours_in_the_queue(run: Run) -> None:
    world = World(run, until((7200, queued("12", "PENDING", reason="Priority")), (0, FAILED)))
    world.others = "12|5|alice|Priority\n9|7|bob|Resources\n"
    world.watch()
    assert world.calls(0, 7200) <= 280
    assert 20 <= len([1 for _, what in world.asked if what == "place"]) <= 100
    assert "2/2" in world.seen[1]


def test_at_most_one_query_in_two_seconds(run: Run) -> None:
    """Regardless of the log."""
    world = World(run, until((30, queued("12", "RUNNING", nodes="n1")), (0, FAILED)))
    for tenth in range(290):
        world.log(tenth / 10, START + END.format(outcome="ok", code=0))  # one life after the other
    world.watch()
    assert_polite(world)


def assert_polite(world: World) -> None:
    """No two lookups within two seconds, of any program."""
    times = sorted({time for time, _ in world.asked})
    assert all(later - earlier >= 2 for earlier, later in itertools.pairwise(times))


def test_an_end_in_the_log_triggers_a_query(run: Run) -> None:
    world = World(run, until((1000, queued("12", "RUNNING", nodes="n1")), (0, FAILED)))
    world.log(0.1, START)
    world.log(1000.1, END.format(outcome="command-failed", code=3))
    world.watch()
    assert world.now < 1005, "not thirty seconds later"


def test_the_first_text_of_the_log_triggers_a_query(run: Run) -> None:
    running = queued("12", "RUNNING", nodes="n1")
    world = World(run, until((2000, queued("12", "PENDING")), (2060, running), (0, FAILED)))
    world.log(2000.1, START)
    world.watch()
    assert world.calls(2000, 2005) >= 1


def test_a_start_in_the_log_counts_before_slurm_reports_it(run: Run) -> None:
    """It has started since the query: `pending` must not be shown above its output."""
    world = World(run, until((4, queued("12", "PENDING")), (0, FAILED)))
    world.log(0.5, START)
    world.watch()
    assert world.seen[:2] == ["12 pending: not yet considered by the scheduler", "12 running your command"]


def test_the_pauses() -> None:
    pace = QueryPace(0.0)
    times, now = [], 0.0
    while now < 1000:
        if pace.due(now):
            times.append(now)
            pace.queried(now)
        now += 0.25
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[0] == 2
    assert pauses == sorted(pauses)
    assert max(pause for pause, time in zip(pauses, times, strict=False) if time < 290) <= 10.25
    assert 30 <= pauses[-1] <= 30.25
    pace.changed(now)
    assert pace.next <= now + 2


# How it ends


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("FAILED", 3)])
def test_the_code_is_the_commands(run: Run, state: str, code: int) -> None:
    world = World(run, until((5, queued("12", "RUNNING", nodes="n1")), (0, queued("12", state, f"{code}:0"))))
    world.log(1, START + "out\n")
    world.log(5, END.format(outcome="ok" if not code else "command-failed", code=code))
    assert world.watch().exit_code() == code
    assert world.out.endswith(b"out\n" + END.format(outcome="ok" if not code else "command-failed", code=code).encode())


def test_a_canceled_job(run: Run) -> None:
    watch = World(run, until((5, queued("12", "RUNNING")), (0, queued("12", "CANCELLED", "0:15")))).watch()
    with pytest.raises(NoCommandCode, match="job 12 was canceled"):
        watch.exit_code()


def test_a_job_ended_by_our_cancel(run: Run) -> None:
    """Slurm takes its teardown for a failure; `cancel` has written to the record that it is not."""
    world = World(run, until((5, queued("12", "RUNNING")), (0, queued("12", "FAILED", "75:0"))))
    Path(run.record).write_text(run.to_json())
    cancelled = replace(run, cancelled={"12": "2026-11-16T09:05:30+00:00"}).to_json()
    world.at.append((3, lambda: Path(run.record).write_text(cancelled)))
    watch = world.watch()
    with pytest.raises(NoCommandCode, match="job 12 was canceled"):
        watch.exit_code()


def test_a_job_that_ended_before(run: Run) -> None:
    Path(run.log).write_text(START + "out\n" + END.format(outcome="command-failed", code=3))
    world = World(run, lambda _: FAILED)
    assert world.watch().exit_code() == 3
    assert world.now < 1
    assert world.calls() <= 3


def test_a_purged_job_with_an_end_in_its_log(run: Run) -> None:
    Path(run.log).write_text(START + END.format(outcome="command-failed", code=3))
    world = World(run, lambda _: GONE)
    assert world.watch().exit_code() == 3


def test_a_job_purged_while_it_is_watched(run: Run) -> None:
    world = World(run, until((100, queued("12", "RUNNING", nodes="n1")), (0, GONE)))
    world.sacct = sacct("12|FAILED|7:0")
    world.log(1, START)
    assert world.watch().exit_code() == 7


def test_a_job_that_no_source_knows(run: Run) -> None:
    world = World(run, lambda _: GONE)
    watch = world.watch()
    assert watch.snapshot.tasks[0].state == "UNKNOWN"
    with pytest.raises(NoCommandCode, match="its final state is unknown") as caught:
        watch.exit_code()
    assert caught.value.exit_code == 5
    assert world.now > 5, "the accounting may be late"


def test_accounting_lags_behind(run: Run) -> None:
    world = World(run, lambda _: GONE)
    world.at.append((4, lambda: setattr(world, "sacct", sacct("12|COMPLETED|0:0"))))
    assert world.watch().exit_code() == 0


def test_the_last_line_comes_late(run: Run) -> None:
    """With NFS, Slurm may report the end before the log shows it."""
    world = World(run, until((5, queued("12", "RUNNING")), (0, FAILED)))
    world.log(1, START)
    world.log(8, "late\n" + END.format(outcome="command-failed", code=3))
    world.watch()
    assert b"late\n" in world.out


def test_no_log_at_all(run: Run) -> None:
    world = World(run, until((5, queued("12", "RUNNING")), (0, FAILED)))
    assert world.watch().exit_code() == 3
    assert world.out == b""


def test_the_end_is_saved(run: Run) -> None:
    Path(run.record).write_text(run.to_json())
    Path(run.log).write_text(START + END.format(outcome="ok", code=0))
    World(run, lambda _: queued("12", "COMPLETED")).watch().exit_code()
    assert '"COMPLETED"' in Path(run.record).read_text()


# Slurm fails


def test_an_unreachable_controller_is_reported_once_and_retried(run: Run) -> None:
    late = process.SlurmTimedOut("squeue did not answer within 60 s")
    world = World(run, until((20, DOWN), (40, late), (60, queued("12", "RUNNING")), (0, FAILED)))
    world.log(30, START + "the log goes on\n")
    assert world.watch().exit_code() == 3
    assert len(world.notes) == 2
    assert "Unable to contact slurm controller" in world.notes[0]
    assert world.notes[1] == "slurmctld is reachable again"
    assert world.out.endswith(b"the log goes on\n")


def test_no_slurm_here(run: Run) -> None:
    with pytest.raises(SlurmUnavailable, match="not in PATH"):
        World(run, lambda _: process.SlurmNotFound("squeue is not in PATH")).watch()


def test_a_run_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no job ID"):
        World(some_run(tmp_path, job_id=None), lambda _: GONE).watch()


def test_a_query_in_a_thread() -> None:
    asked = ThreadedQuery(lambda: 5)
    while not asked.done():
        pass
    assert asked.answer() == 5

    def fails() -> None:
        raise SlurmUnavailable("no")

    failed = ThreadedQuery(fails)
    while not failed.done():
        pass
    with pytest.raises(SlurmUnavailable):
        failed.answer()


# The log changes


def test_a_requeued_job_is_followed_through_its_restart(run: Run) -> None:
    running, again = queued("12", "RUNNING"), queued("12", "RUNNING", restarts=1)
    waits = queued("12", "PENDING", reason="BeginTime", restarts=1)
    world = World(run, until((10, running), (130, waits), (140, again), (0, queued("12", "COMPLETED", restarts=1))))
    world.log(1, START + "first\n")
    world.log(10, END.format(outcome="ended-from-outside", code=75))
    world.log(130, START + "second\n")
    world.log(140, END.format(outcome="ok", code=0))
    watch = world.watch()
    assert watch.exit_code() == 0
    assert world.out.index(b"first") < world.out.index(b"second")
    assert any("pending" in said for said in world.seen)
    assert len(watch.snapshot.feeds["12"].attempts.all) == 2


def test_a_truncated_log(run: Run) -> None:
    world = World(run, until((20, queued("12", "RUNNING")), (0, FAILED)))
    world.log(1, START + "before\n")
    world.at.append((5, lambda: Path(run.log).write_text("")))
    world.log(10, "after\n")
    watch = world.watch()
    assert watch.snapshot.feeds["12"].attempt.count == 0, "what was cut off is not taken for the new one's"
    assert world.out.endswith(b"before\nafter\n")
    assert world.notes == ["the log of job 12 was truncated or replaced: continuing with the new one"]


def test_a_log_that_is_removed(run: Run) -> None:
    world = World(run, until((20, queued("12", "RUNNING")), (0, FAILED)))
    world.log(1, START + "before\n")
    world.at.append((5, lambda: Path(run.log).unlink()))
    assert world.watch().exit_code() == 3
    assert world.out.endswith(b"before\n")


def test_a_long_log_is_read_near_its_end_only(run: Run) -> None:
    """And the lines at its beginning are still found."""
    with open(run.log, "w") as file:
        file.write(START)
        file.seek(3_000_000_000)  # a hole: it takes no space
        file.write("\nlast\n")
    read: list[int] = []

    class Counting(LogFile):
        def read(self, most: int = 1 << 20) -> bytes:
            data = super().read(most)
            read.append(len(data))
            return data

    world = World(run, until((60, queued("12", "RUNNING")), (0, FAILED)))
    watch = world.watch(log_file=lambda path: Counting(path, last=1 << 16))
    assert world.out == b"last\n"
    assert sum(read) < 1 << 17
    assert watch.snapshot.feeds["12"].attempt.count == 3
    assert "12 running your command" in world.seen


def test_a_log_that_grows_fast_is_read_without_a_pause(run: Run) -> None:
    """In parts, but without a pause between them."""
    size = Path(run.log).write_bytes(b"x" * 99 + b"\n" + b"\0" * (12 << 20) + END.format(outcome="ok", code=0).encode())
    world = World(run, lambda _: queued("12", "COMPLETED"))
    world.watch(log_file=LogFile)
    assert (len(world.out), world.now < 1) == (size, True)


# Arrays


def tasks(*states: str) -> str:
    return "".join(queued(f"12_{number}", *state.split()) for number, state in enumerate(states))


@pytest.fixture
def array(tmp_path: Path) -> Run:
    return some_run(tmp_path, spec={"array": "0-2"})


def test_an_array_to_its_last_task(array: Run, tmp_path: Path) -> None:
    world = World(
        array,
        until(
            (10, queued("12_[0-2]", "PENDING")),
            (20, tasks("RUNNING", "RUNNING") + queued("12_[2]", "PENDING")),
            (30, tasks("FAILED 2:0", "RUNNING", "RUNNING")),
            (0, tasks("FAILED 2:0", "COMPLETED", "FAILED 4:0")),
        ),
    )
    for number, (begin, end) in enumerate([(10, 20), (11, 30), (20, 30)]):
        world.log(begin, f"out of {number}\n", f"{tmp_path}/t_{number}.log")
        world.log(end, END.format(outcome="command-failed", code=number), f"{tmp_path}/t_{number}.log")
    world.at.sort(key=lambda one: one[0])
    assert world.watch().exit_code() == 4
    assert sorted(world.out.decode().splitlines())[-3:] == ["out of 0", "out of 1", "out of 2"]


def test_purged_tasks_cost_no_more_queries(tmp_path: Path) -> None:
    run = some_run(tmp_path, spec={"array": "0-1"})
    running, done = queued("12_1", "RUNNING"), queued("12_1", "COMPLETED")
    world = World(run, until((10, tasks("FAILED 2:0", "RUNNING")), (600, running), (0, done)))
    assert world.watch().exit_code() == 2
    assert [what for time, what in world.asked if 10 < time < 600 and what != "squeue"] == []


@pytest.mark.parametrize("seen", [True, False])
def test_tasks_that_no_source_knows_are_queried_a_few_times_only(tmp_path: Path, seen: bool) -> None:
    """sacct and scontrol are queried as long as accounting may lag behind, not as long as the array runs."""
    run = some_run(tmp_path, spec={"array": "0-1"})
    both, running, done = tasks("RUNNING", "RUNNING"), queued("12_1", "RUNNING"), queued("12_1", "COMPLETED")
    world = World(run, until((10 if seen else 0, both), (900, running), (0, done)))
    world.watch()
    assert_polite(world)
    asked = [what for _, what in world.asked]
    assert asked.count("sacct") == asked.count("scontrol") == TRIES
    assert world.calls() <= 75


def test_a_task_that_was_given_up_and_comes_back(tmp_path: Path) -> None:
    run = some_run(tmp_path, spec={"array": "0-1"})
    gone, back = queued("12_1", "RUNNING"), tasks("RUNNING", "RUNNING")
    world = World(run, until((10, back), (200, gone), (300, back), (0, tasks("FAILED 4:0", "COMPLETED"))))
    assert world.watch().exit_code() == 4


def test_one_task_of_an_array(array: Run) -> None:
    waits = queued("12_[0-2]", "PENDING")
    world = World(array, until((10, waits), (20, tasks("RUNNING", "RUNNING", "RUNNING")), (0, tasks("RUNNING", "FAILED 6:0", "RUNNING"))))  # fmt: skip  # noqa: E501
    watch = world.watch(task="12_1")
    assert watch.exit_code() == 6
    assert [task.id for task in watch.snapshot.tasks] == ["12_1"]


def test_the_end_of_one_task_is_saved(array: Run) -> None:
    Path(array.record).write_text(array.to_json())
    for number in (1, 2):  # two who watch, and have read the record before
        World(array, lambda _: tasks("RUNNING", "FAILED 6:0", "FAILED 5:0")).watch(task=f"12_{number}")
    assert list(records.read(array.record).tasks) == ["12_1", "12_2"]


def test_a_task_that_does_not_exist(array: Run) -> None:
    with pytest.raises(UsageError, match="no task 12_9") as caught:
        World(array, lambda _: tasks("RUNNING", "RUNNING", "RUNNING")).watch(task="12_9")
    assert "12_0, 12_1, 12_2" in str(caught.value.hint)


def test_a_large_array_is_read_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = some_run(tmp_path, spec={"array": "0-199"})
    opened: dict[float, int] = {}
    world = World(run, until((60, tasks(*["RUNNING"] * 200)), (0, tasks(*["COMPLETED"] * 200))))
    for number in range(200):
        world.log(1, f"{number}\n", f"{tmp_path}/t_{number}.log")
    for number in range(200):
        world.log(60, "last\n", f"{tmp_path}/t_{number}.log")

    class Counting(LogFile):
        def read(self, most: int = 1 << 20) -> bytes:
            opened[world.now] = opened.get(world.now, 0) + 1
            return super().read(most)

    world.watch(log_file=Counting)
    assert max(count for time, count in opened.items() if time < 55) <= 16
    assert sorted(map(int, world.out.replace(b"last", b"").split())) == list(range(200)), "and all of it is shown"
    assert world.out.count(b"last") == 200


def test_a_large_array_does_not_keep_its_logs_open(tmp_path: Path) -> None:
    """A process may usually have only 1024 files open."""
    run = some_run(tmp_path, spec={"array": "0-199"})
    world = World(run, until((60, tasks(*["RUNNING"] * 200)), (0, tasks(*["COMPLETED"] * 200))))
    for number in range(200):
        world.log(1, f"{number}\n", f"{tmp_path}/t_{number}.log")
    most, before = 0, len(os.listdir("/proc/self/fd"))

    def count(snapshot: Snapshot) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    world.show = count  # type: ignore[method-assign]
    world.watch()
    assert most <= before + LOGS_PER_ROUND
    assert sorted(map(int, world.out.split())) == list(range(200))


@pytest.mark.parametrize(
    ("group", "number", "there"),
    [
        ("12_[0-9]", 9, True),
        ("12_[0-9%2]", 10, False),
        ("12_[0-9:3%2]", 6, True),
        ("12_[0-9:3%2]", 7, False),
        ("12_[1,5-6]", 5, True),
        ("12_[1,5-6]", 4, False),
        ("13_[1,5-6]", 5, False),
        ("12_[1,3,...]", 77, True),
        ("12_5", 5, False),
    ],
)
def test_pending_tasks_in_one_entry(group: str, number: int, there: bool) -> None:
    assert array_ids.contains(group, f"12_{number}") is there


def test_the_lines_of_the_log_are_those_of_the_script() -> None:
    """Otherwise these tests would prove nothing."""
    attempts = log_phases.Attempts()
    for line in (START + END.format(outcome="ok", code=0)).splitlines():
        attempts.take(line)
    assert (attempts.last.count, list(attempts.last.joined), attempts.last.phase) == (3, ["n1", "n2", "n3"], "end")
