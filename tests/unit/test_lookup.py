"""What is known about a run, with scripted output of squeue, sacct and scontrol of Slurm 22.05 and 24.11."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.errors import LaunchError, SlurmUnavailable
from slurm_launch.process import Result
from slurm_launch.runs import files as run_files
from slurm_launch.runs import record as records
from slurm_launch.runs.log_phases import MemoryKills
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.plain_words import describe_pending_reason, describe_state
from slurm_launch.status import lookup, saved_outcomes
from slurm_launch.status.task import Task
from tests.unit.some_run import some_run

SCRIPT = "/home/alice/t_20261116-114800.sh"
GONE = Result((), 1, "", "slurm_load_jobs error: Invalid job id specified\n")
DOWN = Result((), 1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
NO_SACCT = Result((), 1, "", "Slurm accounting storage is disabled\n")
NO_DATABASE = Result((), 1, "", "sacct: error: Problem talking to the database: Connection refused\n")


def queue(*lines: str) -> Result:
    return Result((), 0, "".join(f"{line}\n" for line in lines), "")


def q(
    job: str, state: str, code: str = "0", reason: str = "None", restarts: int = 0, nodes: str = "n[1-2]", **more: str
) -> str:
    """A line of squeue, as 22.05 prints it: the status as wait(2) gives it. 24.11 prints 3:0."""
    times = f"{more.get('submit', '11:48:18')}|{more.get('start', '11:48:20')}|{more.get('end', '11:58:20')}"
    times = re.sub(r"(\d\d:\d\d:\d\d)", r"2026-11-16T\1", times)
    return f"{job}|{state}|{code}|{reason}|{restarts}|2|{nodes}|main|alice|{times}|{more.get('script', SCRIPT)}|t|"


def a(job: str, state: str, code: str = "0:0", nodes: str = "n[1-2]", **more: str) -> str:
    """A line of sacct."""
    times = f"{more.get('submit', '11:48:18')}|{more.get('start', '11:48:20')}|{more.get('end', '11:50:00')}"
    times = re.sub(r"(\d\d:\d\d:\d\d)", r"2026-11-16T\1", times)
    return f"{job}|{state}|{code}|2|{nodes}|main|alice|{times}|t|sbatch --parsable {more.get('script', SCRIPT)}"


def shown(state: str, code: str = "0:0", script: str = SCRIPT) -> Result:
    """As scontrol of 22.05 prints it, cut short."""
    return queue(
        f"JobId=12 JobName=t UserId=alice(7001) GroupId=alice(7001) MCS_label=N/A Priority=1 Nice=0 Account=lab"
        f" QOS=normal JobState={state} Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1"
        f" ExitCode={code} RunTime=00:00:01 SubmitTime=2026-11-16T11:48:18 StartTime=2026-11-16T11:48:20"
        f" EndTime=2026-11-16T11:48:21 Partition=main NodeList=n1 NumNodes=1 Command={script} WorkDir=/home/alice "
    )


class Scripted:
    """Returns scripted output and records the queries."""

    def __init__(self, squeue: Any = GONE, sacct: Any = NO_SACCT, scontrol: Any = GONE) -> None:
        self.answers = {"squeue": squeue, "sacct": sacct, "scontrol": scontrol}
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], **_: Any) -> Result:
        self.asked.append(list(argv))
        answer = self.answers[argv[0]]
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Result)
        return answer

    @property
    def programs(self) -> list[str]:
        return [argv[0] for argv in self.asked]

    def look(self, run: Run) -> list[Task]:
        return lookup.look_up(run, SlurmClient({}, self))

    def one(self, run: Run) -> Task:
        (task,) = self.look(run)
        return task

    def all(self, *of: Run) -> tuple[list[list[Task]], LaunchError | None]:
        found, problem = lookup.look_up_all(of, SlurmClient({}, self), "alice")
        return [found[run.record] for run in of], problem


@pytest.fixture
def run(tmp_path: Path) -> Run:
    times = {"created": "2026-11-16T11:48:17+00:00", "submitted": "2026-11-16T11:48:18+00:00"}
    made = replace(some_run(tmp_path, script=SCRIPT, **times), name="t_20261116-114800")
    records.write(made)
    return made


@pytest.fixture
def array(run: Run) -> Run:
    return replace(run, spec={"array": "0-5%2"})


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-16T{clock}+00:00")


def phase(clock: str, text: str) -> str:
    return f"[slurm-launch] 2026-11-16T{clock}+0000 {text}\n"


def attempt(minute: str = "11:48", end: str = "") -> str:
    lines = [
        ("21", "starting nodes=2 head=n1 address=10.0.0.1:2400 auth=token job=12 dir=/tmp/r12-ab"),
        ("25", "joined node=n1 nodes=1/2"),
        ("29", "joined node=n2 nodes=2/2"),
        ("29", "ready nodes=2/2 ray=2.60.0"),
        ("30", "command python train.py"),
    ]
    text = "".join(phase(f"{minute}:{second}", line) for second, line in lines)
    if end:
        text += phase(f"{minute}:40", "stopping") + phase(f"{minute}:41", f"end {end}")
    return text


# Which source counts


def test_squeue_is_sufficient(run: Run) -> None:
    slurm = Scripted(queue(q("12", "RUNNING")))
    task = slurm.one(run)
    assert (task.state, task.source, task.nodes, task.partition) == ("RUNNING", "squeue", "n[1-2]", "main")
    assert (task.times["submitted"], task.times["started"]) == (at("11:48:18"), at("11:48:20"))
    assert task.limit == at("11:58:20")
    assert slurm.programs == ["squeue"]


@pytest.mark.parametrize("status", ["768", "3:0"])
def test_the_exit_code_from_squeue(run: Run, status: str) -> None:
    slurm = Scripted(queue(q("12", "FAILED", status, "NonZeroExitCode", end="11:48:50")))
    task = slurm.one(run)
    assert (task.state, task.code, task.ended, task.in_words) == ("FAILED", 3, True, "failed with exit code 3")
    assert task.times["ended"] == at("11:48:50")
    assert slurm.programs == ["squeue"]


@pytest.mark.parametrize(
    ("line", "state", "code"),
    [
        (a("12", "COMPLETED"), "COMPLETED", 0),
        (a("12", "FAILED", "3:0"), "FAILED", 3),
        (a("12", "CANCELLED by 7001", "0:15"), "CANCELLED", None),
        (a("12", "TIMEOUT"), "TIMEOUT", None),
        (a("12", "NODE_FAIL"), "NODE_FAIL", None),
    ],
)
def test_a_job_that_left_the_queue_comes_from_sacct(run: Run, line: str, state: str, code: int | None) -> None:
    slurm = Scripted(GONE, queue(line))
    task = slurm.one(run)
    assert (task.state, task.code, task.source, task.times["ended"]) == (state, code, "sacct", at("11:50:00"))
    assert slurm.programs == ["squeue", "sacct"]


@pytest.mark.parametrize(
    "accounting",
    [NO_SACCT, NO_DATABASE, queue(), process.SlurmNotFound("sacct is not in PATH"), process.SlurmTimedOut("late")],
)
def test_then_from_scontrol_and_the_log(run: Run, accounting: Any) -> None:
    slurm = Scripted(GONE, accounting, shown("FAILED", "3:0"))
    task = slurm.one(run)
    assert (task.state, task.code, task.source) == ("FAILED", 3, "scontrol")
    assert slurm.programs == ["squeue", "sacct", "scontrol"]
    Path(run.log).write_text(attempt(end="outcome=command-failed code=4"))
    slurm = Scripted(GONE, accounting)
    task = slurm.one(run)
    assert (task.state, task.code, task.source) == ("FAILED", 4, "log")
    assert task.times["command-start"] == at("11:48:30")
    assert task.times["command-end"] == at("11:48:40")
    assert task.times["ended"] == at("11:48:41")
    assert slurm.programs == ["squeue", "sacct", "scontrol"]


@pytest.mark.parametrize(
    ("end", "state", "code"),
    [
        ("outcome=ok code=0", "COMPLETED", 0),
        ("outcome=nodes-missing code=71", "FAILED", 71),
        ("outcome=time-limit code=74", "TIMEOUT", None),
        ("outcome=ended-from-outside code=75", "CANCELLED", None),
        ("outcome=ok", "UNKNOWN", None),
    ],
)
def test_then_from_the_last_line_of_the_log(run: Run, end: str, state: str, code: int | None) -> None:
    Path(run.log).write_text(attempt(end=end))
    task = Scripted().one(run)
    assert (task.state, task.code) == (state, code)
    ((listed,),), _ = Scripted().all(run)
    assert (listed.state, listed.code, listed.source) == (task.state, task.code, task.source)


@pytest.mark.parametrize("log", [None, "", "hello\n", attempt(), attempt(end="outcome=ok code=0") + attempt("11:52")])
def test_a_job_that_no_source_knows_is_unknown(run: Run, log: str | None) -> None:
    if log is not None:
        Path(run.log).write_text(log)
    task = Scripted().one(run)
    assert (task.state, task.source, task.ended, task.running, task.phase) == (
        "UNKNOWN",
        "none",
        False,
        False,
        "unknown",
    )
    assert "left the queue; its final state is unknown" in task.in_words
    ((listed,),), problem = Scripted().all(run)
    assert (listed.state, problem) == ("UNKNOWN", None)
    assert saved_outcomes.save(run, [task]) == run


def test_accounting_that_missed_the_end(run: Run) -> None:
    """slurmdbd missed the end: it reports RUNNING for ever."""
    said = queue(a("12", "RUNNING", end="Unknown"))
    assert Scripted(GONE, said).one(run).state == "UNKNOWN"
    Path(run.log).write_text(attempt(end="outcome=ok code=0"))
    assert Scripted(GONE, said).one(run).state == "COMPLETED"
    ((listed,),), _ = Scripted(queue(), said).all(run)
    assert (listed.state, listed.source) == ("COMPLETED", "log")


# slurmctld cannot be reached


@pytest.mark.parametrize(
    "problem",
    [DOWN, process.SlurmTimedOut("squeue did not answer within 60 s"), process.SlurmNotFound("squeue is not in PATH")],
)
def test_slurmctld_cannot_be_reached(run: Run, problem: Any) -> None:
    Path(run.log).write_text(attempt())
    slurm = Scripted(problem)
    with pytest.raises(SlurmUnavailable) as caught:
        slurm.look(run)
    assert caught.value.exit_code == 4
    assert slurm.programs == ["squeue"], "the others would not answer either"
    ((listed,),), told = slurm.all(run)
    assert isinstance(told, SlurmUnavailable)
    assert (listed.state, listed.in_words) == ("UNKNOWN", "cannot reach slurmctld")
    assert slurm.programs == ["squeue", "squeue"]


def test_a_saved_outcome_needs_no_slurm(run: Run) -> None:
    Path(run.log).write_text(attempt(end='outcome=node-lost code=72 cause="n2 was lost" hint="look"'))
    seen = Scripted(queue(q("12", "FAILED", "72:0", end="11:48:42"))).look(run)
    run = saved_outcomes.save(run, seen)
    assert records.read(run.record) == run
    for slurm in (Scripted(DOWN), Scripted()):
        task = slurm.one(run)
        assert (task.state, task.code, task.source, task.times) == ("FAILED", 72, "record", seen[0].times)
        assert task.in_words == "failed with exit code 72: n2 was lost"
        assert slurm.programs == ["squeue"], "neither sacct nor scontrol can know more"
    Path(run.log).unlink()
    assert Scripted().one(run).in_words == "failed with exit code 72"


def test_a_requeued_job_has_not_ended(run: Run) -> None:
    run = saved_outcomes.save(run, Scripted(queue(q("12", "FAILED", "3:0"))).look(run))
    slurm = Scripted(queue(q("12", "PENDING", reason="BeginTime", restarts=1, nodes="")))
    task = slurm.one(run)
    assert (task.state, task.source, slurm.programs) == ("PENDING", "squeue", ["squeue"])
    run = saved_outcomes.save(run, [task])
    assert run.tasks == {}
    assert records.read(run.record).tasks == {}


def test_saving_keeps_what_others_wrote(run: Run) -> None:
    """`cancel` writes to the record while `watch` is running."""
    tasks = Scripted(queue(q("12", "CANCELLED", "15", end="11:49:00"))).look(run)
    records.update(replace(run, cancelled={"12": "2026-11-16T11:48:59+00:00"}))
    saved_outcomes.save(run, tasks)
    kept = records.read(run.record)
    assert (kept.cancelled, list(kept.tasks)) == ({"12": "2026-11-16T11:48:59+00:00"}, ["12"])


def test_two_processes_save_at_the_same_time(array: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has read the record before the other wrote it."""
    first = Task("12_0", "FAILED", "squeue", "", code=3)
    second = Task("12_1", "COMPLETED", "squeue", "", code=0)
    saved_outcomes.save(array, [first])
    saved_outcomes.save(array, [second])
    assert list(records.read(array.record).tasks) == ["12_0", "12_1"]
    many = [Task(f"12_{number}", "COMPLETED", "squeue", "", code=0) for number in range(40)]
    monkeypatch.setattr(run_files, "LOCK_TIMEOUT", 60.0)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda task: saved_outcomes.save(array, [task]), many))
    assert len(records.read(array.record).tasks) == 40


def test_a_record_is_changed_without_locks_if_there_are_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    saved_outcomes.save(run, [Task("12", "FAILED", "squeue", "", code=3)])
    assert list(records.read(run.record).tasks) == ["12"]


def test_a_record_that_cannot_be_written_or_does_not_exist(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Scripted(queue(q("12", "COMPLETED"))).look(run)

    def refuse(*_: Any) -> None:
        raise OSError(30, os.strerror(30))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        assert list(saved_outcomes.save(run, tasks).tasks) == ["12"]
    assert records.read(run.record).tasks == {}
    Path(run.record).unlink()
    saved_outcomes.save(run, tasks)
    assert not Path(run.record).exists(), "who deleted it meant it"


@pytest.mark.parametrize(
    "memory",
    [
        {"12": None},
        {"12": []},
        {"12": {"state": "FAILED"}},
        {"13": "x"},
        {"12": {"state": "RUNNING"}},
    ],
)
def test_damaged_saved_outcomes_are_ignored(run: Run, memory: Any) -> None:
    assert Scripted().one(replace(run, tasks=memory)).state == "UNKNOWN"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("code", "x"),
        ("times", {"ended": "soon"}),
        ("times", {"ended": "2026-11-16T11:48:50"}),
        ("times", []),
        ("state", "RUNNING"),
        ("restarts", None),
        ("memory_kills", [{"node": "n2"}]),
        ("memory_kills", 3),
        ("code", float("inf")),
        ("signal", float("-inf")),
    ],
)
def test_a_damaged_key_of_a_saved_outcome(run: Run, key: str, value: Any) -> None:
    run = saved_outcomes.save(run, Scripted(queue(q("12", "FAILED", "3:0"))).look(run))
    assert len(saved_outcomes.load(run)) == 1
    run.tasks["12"][key] = value
    assert len(saved_outcomes.load(run)) == (1 if value == [] else 0)
    Scripted().one(run)


# Another job


@pytest.mark.parametrize(
    "line",
    [
        q("12", "RUNNING", script="/home/alice/other.sh"),
        q("12", "RUNNING", script="/home/bob/t_20261116-114800.sh"),
        q("12", "RUNNING", script="(null)").replace("|t|", "|other|"),
        q("12", "RUNNING", script="(null)").replace("|alice|", "|bob|"),
        q("12", "RUNNING", script="(null)", submit="11:40:00"),
    ],
)
def test_a_job_id_that_was_reused(run: Run, line: str) -> None:
    """After a reset of the cluster. Recognized by the script, or if that is unknown, by name, user and time."""
    slurm = Scripted(queue(line), queue(a("12", "FAILED", "9:0", script="/home/alice/other.sh")))
    assert slurm.one(run).state == "UNKNOWN"
    ((listed,),), _ = slurm.all(run)
    assert listed.state == "UNKNOWN"
    Path(run.log).write_text(attempt(end="outcome=ok code=0"))
    assert slurm.one(run).state == "COMPLETED", "its own log still counts"


def test_a_job_whose_script_slurm_does_not_report(run: Run) -> None:
    assert Scripted(queue(q("12", "RUNNING", script="(null)"))).one(run).state == "RUNNING"
    assert Scripted(queue(q("12", "PENDING", script="(null)", submit="12:48:18"))).one(run).state == "PENDING", (
        "requeued"
    )


def test_a_script_with_spaces_in_its_path(run: Run) -> None:
    run = replace(run, script="/home/alice/my runs|x/t.sh")
    assert Scripted(queue(q("12", "RUNNING", script=run.script))).one(run).state == "RUNNING"
    assert Scripted(GONE, queue(a("12", "FAILED", "2:0", script=run.script))).one(run).code == 2


# Slurm's states


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("PENDING", "waiting"),
        ("REQUEUED", "waiting"),
        ("REQUEUE_HOLD", "waiting"),
        ("SPECIAL_EXIT", "waiting"),
        ("EXPEDITING", "waiting"),
        ("RUNNING", "running"),
        ("CONFIGURING", "running"),
        ("COMPLETING", "running"),
        ("SUSPENDED", "running"),
        ("RESIZING", "running"),
        ("SIGNALING", "running"),
        ("STAGE_OUT", "running"),
        ("STOPPED", "running"),
        ("COMPLETED", "ended"),
        ("CANCELLED", "ended"),
        ("FAILED", "ended"),
        ("TIMEOUT", "ended"),
        ("NODE_FAIL", "ended"),
        ("BOOT_FAIL", "ended"),
        ("PREEMPTED", "ended"),
        ("OUT_OF_MEMORY", "ended"),
        ("DEADLINE", "ended"),
        ("REVOKED", "ended"),
        ("LAUNCH_FAILED", "ended"),
        ("A_NEW_ONE", "running"),
    ],
)
def test_every_state_is_one_of_three_kinds(run: Run, state: str, kind: str) -> None:
    Path(run.log).write_text(attempt())
    task = Scripted(queue(q("12", state))).one(run)
    assert [name for name in ("waiting", "running", "ended") if getattr(task, name)] == [kind]
    assert task.in_words
    special = describe_state(state)
    assert task.in_words == special if special else True


def test_the_phases(run: Run) -> None:
    slurm = Scripted(queue(q("12", "RUNNING")))
    assert (slurm.one(run).phase, slurm.one(run).in_words) == ("running", "running"), "no log, no claim"
    log = Path(run.log)
    phases = []
    for text in ("", *attempt(end="outcome=ok code=0").splitlines(keepends=True)):
        with open(log, "a") as out:
            out.write(text)
        phases.append(slurm.one(run).phase)
    assert phases == ["environment", *["bring-up"] * 3, *["command"] * 2, "stopping", "stopping"]
    assert "ended" not in slurm.one(run).times, "as long as Slurm says that it runs"


def test_a_job_canceled_while_pending_never_started(run: Run) -> None:
    """Slurm reports that moment as its start, too. The log of a requeued job is of its previous attempt."""
    Path(run.log).write_text(attempt(end='outcome=ended-from-outside code=75 cause="it got SIGTERM" hint=""'))
    cancelled = ("11:52:00", "11:52:00")
    lines = [
        Scripted(queue(q("12", "CANCELLED", "0", "BeginTime", 1, "", start=cancelled[0], end=cancelled[1]))),
        Scripted(
            GONE, queue(a("12", "CANCELLED by 7001", "0:0", "None assigned", start=cancelled[0], end=cancelled[1]))
        ),
    ]
    for slurm in lines:
        task = slurm.one(run)
        assert (task.state, task.in_words) == ("CANCELLED", "was canceled")
        assert list(task.times) == ["submitted", "ended"]


def test_a_job_ended_by_our_cancel_has_not_failed(run: Run) -> None:
    run = replace(run, cancelled={"12": "2026-11-16T11:49:00+00:00"})
    assert Scripted(queue(q("12", "FAILED", "75:0", "NonZeroExitCode"))).one(run).state == "CANCELLED"
    assert Scripted(queue(q("12", "FAILED", "3:0", "NonZeroExitCode"))).one(run).code == 3


def test_only_the_task_that_we_canceled_is_canceled(array: Run) -> None:
    """A task that somebody else killed has failed."""
    slurm = Scripted(queue(*(q(f"12_{task}", "FAILED", "0:9") for task in range(6))))
    when = "2026-11-16T11:49:00+00:00"
    for ended, states in (
        ({"12_0": when}, ["CANCELLED", *["FAILED"] * 5]),
        ({"12_[0-1,4]": when}, ["CANCELLED", "CANCELLED", "FAILED", "FAILED", "CANCELLED", "FAILED"]),
        ({"12": when}, ["CANCELLED"] * 6),
        ({}, ["FAILED"] * 6),
    ):
        assert [task.state for task in slurm.look(replace(array, cancelled=ended))] == states


def test_requeued(run: Run) -> None:
    Path(run.log).write_text(attempt(end="outcome=node-lost code=72"))
    task = Scripted(queue(q("12", "PENDING", "0", "BeginTime", 1, "", start="11:50:24"))).one(run)
    assert (task.attempt, task.expected, task.phase) == (None, at("11:50:24"), "queued")
    assert "head-ready" not in task.times
    again = Scripted(queue(q("12", "RUNNING", restarts=1, start="11:50:24")))
    assert (again.one(run).phase, list(again.one(run).times)) == ("environment", ["submitted", "started"])
    with open(run.log, "a") as out:
        out.write(attempt("11:51"))
    assert (again.one(run).phase, again.one(run).times["head-ready"]) == ("command", at("11:51:25"))


def test_clock_skew(run: Run) -> None:
    """A node's clock is a minute behind the controller's."""
    Path(run.log).write_text(attempt("11:47"))
    assert Scripted(queue(q("12", "RUNNING"))).one(run).phase == "command"


def test_times_are_utc_wherever_we_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        slurm = Scripted(queue(q("12", "RUNNING")))
        told = slurm.one(run).times["started"]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert told == datetime(2026, 11, 16, 11, 48, 20, tzinfo=timezone.utc)
    assert told.utcoffset() == timedelta(0)


def test_a_run_without_a_job(run: Run) -> None:
    slurm = Scripted()
    task = slurm.one(replace(run, job_id=None, submitted=None))
    assert (task.id, task.state, task.times, slurm.asked) == ("", "UNKNOWN", {}, [])
    assert "squeue --me" in task.in_words
    found, problem = slurm.all(replace(run, job_id=None, submitted=None))
    assert (found, problem, slurm.asked) == ([[task]], None, [])


def test_saved_times_are_kept(run: Run) -> None:
    """A lookup without logs finds fewer of them."""
    Path(run.log).write_text(attempt(end="outcome=ok code=0"))
    said = Scripted(queue(q("12", "COMPLETED", end="11:50:00")))
    run = saved_outcomes.save(run, lookup.look_up(run, SlurmClient({}, said), logs=False))
    assert "command-start" not in run.tasks["12"]["times"]
    run = saved_outcomes.save(run, Scripted().look(run))
    assert "command-start" in records.read(run.record).tasks["12"]["times"]
    again = saved_outcomes.save(run, lookup.look_up(run, SlurmClient({}, said), logs=False))
    assert again.tasks == run.tasks


def test_the_start_time_from_the_last_line_of_the_log(run: Run) -> None:
    Path(run.log).write_text(attempt(end="outcome=ok code=0 total=30s"))
    task = Scripted().one(run)
    assert task.source == "log"
    assert task.times["ended"] - task.times["started"] == timedelta(seconds=30)


# Arrays


def test_pending_tasks_that_we_canceled_leave_no_trace(array: Run) -> None:
    array = replace(array, cancelled={"12_[3-5]": "2026-11-16T11:49:00+00:00"})
    states = [(task.id, task.state) for task in Scripted(queue(q("12_0", "RUNNING"))).look(array)]
    assert states == [("12_0", "RUNNING"), ("12_[1-2]", "UNKNOWN"), ("12_[3-5]", "CANCELLED")]


def test_an_array_from_all_sources(array: Run) -> None:
    """Task 0 is only in the record, 1 in accounting, 2 in its log; 3 is running, 4 and 5 are pending."""
    array = saved_outcomes.save(
        array, Scripted(queue(q("12_0", "FAILED", "256"), q("12_[1-5%2]", "PENDING"))).look(array)
    )
    assert list(records.read(array.record).tasks) == ["12_0"], "what has ended is kept while the others go on"
    Path(array.log.replace(".log", "_2.log")).write_text(attempt(end="outcome=command-failed code=2"))
    slurm = Scripted(
        queue(q("12_3", "RUNNING"), q("12_[4-5%2]", "PENDING", reason="JobArrayTaskLimit", nodes="")),
        queue(a("12_1", "COMPLETED"), a("12_3", "RUNNING", end="Unknown"), a("12_[4-5%2]", "PENDING", end="Unknown")),
    )
    tasks = slurm.look(array)
    assert [(task.id, task.state, task.source) for task in tasks] == [
        ("12_0", "FAILED", "record"),
        ("12_1", "COMPLETED", "sacct"),
        ("12_2", "FAILED", "log"),
        ("12_3", "RUNNING", "squeue"),
        ("12_[4-5%2]", "PENDING", "squeue"),
    ]
    assert slurm.programs == ["squeue", "sacct", "scontrol"]
    assert tasks[3].log.endswith("/t_3.log")
    (listed,), _ = slurm.all(array)
    assert [(task.id, task.state) for task in listed] == [(task.id, task.state) for task in tasks]


def test_an_array_in_the_queue_needs_no_other_query(array: Run) -> None:
    slurm = Scripted(queue(q("12_0", "COMPLETED"), q("12_1", "RUNNING"), q("12_[2-5%2]", "PENDING")))
    assert len(slurm.look(array)) == 3
    assert slurm.programs == ["squeue"]


def test_an_array_that_no_source_knows(array: Run) -> None:
    Path(array.log.replace(".log", "_1.log")).write_text(attempt())
    tasks = Scripted(queue(q("12_3", "FAILED", "3:0"))).look(array)
    assert [(task.id, task.state) for task in tasks] == [
        ("12_[0,2,4-5]", "UNKNOWN"),
        ("12_1", "UNKNOWN"),
        ("12_3", "FAILED"),
    ]
    kept = saved_outcomes.save(array, tasks)
    assert list(kept.tasks) == ["12_3"]
    tasks = Scripted(DOWN).all(kept)[0][0]
    assert [task.state for task in tasks] == ["UNKNOWN", "UNKNOWN", "FAILED"]


def test_saved_tasks_and_one_in_the_queue(array: Run) -> None:
    ended = [q(f"12_{number}", "COMPLETED") for number in range(6)]
    array = saved_outcomes.save(array, Scripted(queue(*ended)).look(array))
    slurm = Scripted(queue(ended[5]))
    assert [(task.id, task.source) for task in slurm.look(array)][4:] == [("12_4", "record"), ("12_5", "squeue")]
    assert slurm.programs == ["squeue"]
    requeued = Scripted(queue(q("12_2", "PENDING", restarts=1)))
    assert [task.state for task in requeued.look(array)].count("COMPLETED") == 5
    array = saved_outcomes.save(array, requeued.look(array))
    assert len(array.tasks) == 5


def test_an_array_canceled_while_pending(array: Run) -> None:
    (task,) = Scripted(queue(q("12_[0-5%2]", "CANCELLED", nodes=""))).look(array)
    kept = saved_outcomes.save(array, [task])
    (again,) = Scripted().look(kept)
    assert (again.id, again.state, again.source) == ("12_[0-5%2]", "CANCELLED", "record")


def test_an_array_given_as_a_directive(run: Run) -> None:
    array = replace(run, spec={"sbatch": {"array": "1,3"}})
    slurm = Scripted(queue(q("12_1", "RUNNING")), queue(a("12_3", "FAILED", "7:0")))
    assert [(task.id, task.code) for task in slurm.look(array)] == [("12_1", None), ("12_3", 7)]


# Many runs


def test_a_thousand_runs_take_two_queries(run: Run) -> None:
    many = [replace(run, job_id=str(number), record=f"/r/{number}.json") for number in range(1, 1001)]
    slurm = Scripted(queue(*(q(str(number), "RUNNING") for number in range(901, 1001))), queue(a("7", "FAILED", "2:0")))
    found, problem = slurm.all(*many)
    assert (slurm.programs, problem) == (["squeue", "sacct"], None)
    assert [tasks[0].state for tasks in found].count("RUNNING") == 100
    assert (found[6][0].code, found[0][0].state) == (2, "UNKNOWN")
    asked = slurm.asked[1][slurm.asked[1].index("-j") + 1]
    assert asked.split(",") == [str(number) for number in range(1, 901)]


def test_more_runs_than_fit_into_one_argument(run: Run) -> None:
    many = [replace(run, job_id=str(10_000_000 + number), record=f"/r/{number}.json") for number in range(12_000)]
    slurm = Scripted(queue())
    slurm.all(*many)
    assert len(slurm.programs) == 2
    assert max(len(word) for argv in slurm.asked for word in argv) < 128 * 1024
    assert str(10_000_000 + 11_999) in slurm.asked[1][slurm.asked[1].index("-j") + 1]


def test_queued_jobs_of_unknown_runs_are_adopted(run: Run) -> None:
    """The index was lost: the queue shows the scripts, and the records are next to them."""
    new = replace(run, job_id="13", script="/far/new.sh", record="/far/new.json")
    asked_for: list[list[str]] = []

    def adopt(scripts: list[str]) -> list[Run]:
        asked_for.append(scripts)
        return [new]

    lines = [q("12", "RUNNING"), q("13", "PENDING", script="/far/new.sh"), q("14", "RUNNING", script="/far/other.sh")]
    bobs = q("15", "RUNNING", script="/home/bob/x.sh").replace("|alice|", "|bob|")
    slurm = Scripted(queue(*lines, bobs))
    for known in ([run], []):
        found, _ = lookup.look_up_all(known, SlurmClient({}, slurm), "alice", adopt)
        assert [found[one.record][0].state for one in (*known, new)] == [*["RUNNING"] * len(known), "PENDING"]
    assert asked_for == [["/far/new.sh", "/far/other.sh"], [SCRIPT, "/far/new.sh", "/far/other.sh"]]
    assert slurm.programs == ["squeue", "squeue"]


def test_saved_or_queued_runs_need_no_sacct(run: Run) -> None:
    done = saved_outcomes.save(run, Scripted(queue(q("12", "COMPLETED"))).look(run))
    slurm = Scripted(queue())
    found, _ = slurm.all(done)
    assert (found[0][0].source, slurm.programs) == ("record", ["squeue"])


def test_each_cluster_is_queried_for_its_own_runs(run: Run) -> None:
    near = replace(run, job_id="1", record="/r/1.json")
    west = replace(run, job_id="2", record="/r/2.json", cluster="west", user="al")
    east = replace(run, job_id="3", record="/r/3.json", cluster="east")
    slurm = Scripted(queue("CLUSTER: west", q("2", "RUNNING"), q("1", "RUNNING")))
    found, _ = slurm.all(near, west, east)
    assert [tasks[0].state for tasks in found] == ["RUNNING", "RUNNING", "UNKNOWN"]
    assert [argv[:3] for argv in slurm.asked] == [
        ["squeue", "-h", "-t"],
        ["squeue", "-M", "east,west"],
        ["sacct", "-M", "east"],
    ]
    assert slurm.asked[1][slurm.asked[1].index("-u") + 1] == "alice,al"


# Slurm's words


def reasons_in_the_manual() -> list[str]:
    """Those in `man squeue` of the Slurm on this machine; `*` in a name stands for anything."""
    page = Path("/usr/share/man/man1/squeue.1.gz")
    if not page.exists():
        pytest.skip(f"no {page}")
    text = gzip.decompress(page.read_bytes()).decode()
    part = text.partition('.SH "JOB REASON CODES"')[2].partition('.SH "JOB STATE CODES"')[0]
    found = re.findall(r"^\\fB([A-Za-z*]+)\\fR$", part, re.MULTILINE)
    assert len(found) > 30
    return found


# How a job ended, not why it is pending: Slurm's word is shown.
OF_THE_END = {"InactiveLimit", "TimeLimit", "RaisedExitCode", "RaisedSignal", "OutOfMemory"}


def test_all_reasons_of_the_manual_have_words() -> None:
    wordless = [name for name in reasons_in_the_manual() if describe_pending_reason(name.replace("*", "Node")) is None]
    assert set(wordless) <= OF_THE_END


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("QOSMaxWallDurationPerJobLimit", "will not start; cancel it"),
        ("AssocMaxCpuPerJobLimit", "will not start; cancel it"),
        ("AssocMaxGRESPerNode", "will not start; cancel it"),
        ("QOSMinGRES", "will not start; cancel it"),
        ("MaxMemPerLimit", "will not start; cancel it"),
        ("QOSMaxJobsPerUserLimit", "other jobs must end first"),
        ("QOSMaxGRESPerUser", "other jobs must end first"),
        ("AssocGrpGRES", "other jobs must end first"),
        ("AssocGrpCPURunMinutesLimit", "other jobs must end first"),
        ("MaxGRESPerAccount", "other jobs must end first"),
        ("AssocGrpCPUMinutesLimit", "is used up"),
        ("QOSGrpBillingMinutes", "is used up"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-3]", "sinfo -R"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "are down"),
        ("launch failed requeued held", "scontrol release"),
        ("ReservationDeleted", "no longer exists"),
        ("BurstBufferStageIn", "burst buffer"),
        ("JobArrayTaskLimit", "--max-parallel"),
    ],
)
def test_what_a_reason_means(reason: str, part: str) -> None:
    assert part in (describe_pending_reason(reason) or "")


def test_an_unknown_reason_is_shown_verbatim(run: Run) -> None:
    task = Scripted(queue(q("12", "PENDING", reason="WaitForTheMoon", nodes=""))).one(run)
    assert task.in_words == "pending (WaitForTheMoon)"


def test_what_the_kernel_killed_survives_the_log(run: Run) -> None:
    kill = "[slurm-launch] 2026-11-16T11:49:00+0000 out-of-memory node=n2 limit=2000M killed=ray::hog kills=3\n"
    Path(run.log).write_text(attempt() + kill)
    said = Scripted(queue(q("12", "FAILED", "1:0", end="11:50:00")))
    run = saved_outcomes.save(run, lookup.look_up(run, SlurmClient({}, said), logs=False))
    assert "memory_kills" not in run.tasks["12"], "the log was not read"
    run = saved_outcomes.save(run, said.look(run))
    saved = records.read(run.record).tasks["12"]["memory_kills"]
    assert saved == [{"node": "n2", "limit_mb": 2000, "killed": "ray::hog", "kills": 3, "step": None}]
    again = saved_outcomes.save(run, lookup.look_up(run, SlurmClient({}, said), logs=False))
    assert again.tasks == run.tasks, "a lookup without logs keeps it"
    Path(run.log).write_text(attempt())  # cut off
    assert len(Scripted().one(run).memory_kills) == 1
    Path(run.log).unlink()
    assert Scripted().one(run).memory_kills == (MemoryKills("n2", 2000, "ray::hog", 3),)
