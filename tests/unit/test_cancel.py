"""Which jobs are canceled and how, with scripted answers of squeue and scancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.control import cancel
from slurm_launch.errors import SlurmUnavailable, UsageError
from slurm_launch.process import Result
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient
from tests.unit.conftest import Launcher
from tests.unit.some_run import some_run


def line(job: str, state: str, user: str = "alice", script: str = "/runs/t.sh", name: str = "t") -> str:
    fields = [job, state, "0", "None", "0", "1", "n1", "main", user, *["2026-11-16T09:05:07"] * 3, script, name]
    return "|".join(fields) + "|\n"


class Slurm:
    """Answers squeue from a list, repeating the last answer, and records the calls of scancel."""

    def __init__(self, *answers: str | Result | BaseException, scancel: Result | None = None) -> None:
        self.answers = list(answers)
        self.scancel = scancel or Result(("scancel",), 0, "", "")
        self.asked: list[list[str]] = []
        self.ask = SlurmClient({}, runner=self)

    def __call__(self, argv: Sequence[str], **_: Any) -> Result:
        self.asked.append(list(argv))
        if argv[0] == "scancel":
            return self.scancel
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, Result) else Result(("squeue",), 0, answer, "")

    def cancelled(self) -> list[list[str]]:
        return [argv[1:] for argv in self.asked if argv[0] == "scancel"]


GONE = Result(("squeue",), 1, "", "slurm_load_jobs error: Invalid job id specified\n")
DOWN = Result(("squeue",), 1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return some_run(tmp_path, "t_20261116-090507", script="/runs/t.sh")


def plan_cancel(slurm: Slurm, *wanted: tuple[Run, str]) -> cancel.CancelPlan:
    return cancel.plan_cancel(wanted, slurm.ask, "alice")


def test_one_query_for_all_runs(run: Run) -> None:
    slurm = Slurm(line("12", "RUNNING") + line("13", "PENDING") + line("14", "COMPLETED"))
    found = plan_cancel(slurm, *((replace(run, job_id=job, record=job), job) for job in ("12", "13", "14", "12")))
    assert [(target.id, target.state) for target in found.targets] == [("12", "RUNNING"), ("13", "PENDING")]
    assert found.already_ended == [f"job 14 ({run.name}) has already ended: COMPLETED"]
    assert [argv[argv.index("-j") + 1] for argv in slurm.asked] == ["12,13,14"]


def test_each_cluster_of_a_federation_is_queried_for_its_own_jobs(run: Run) -> None:
    slurm = Slurm("CLUSTER: a\n" + line("12", "RUNNING"), "CLUSTER: b\n" + line("12", "PENDING"))
    found = plan_cancel(slurm, *((replace(run, cluster=name, record=name), "t") for name in ("a", "b")))
    cancel.send(found.targets, slurm.ask)
    assert slurm.cancelled() == [["-M", "a", "--batch", "--signal=TERM", "12"], ["-M", "b", "12"]]


def test_running_jobs_are_signaled_and_pending_ones_removed(run: Run) -> None:
    states = ["RUNNING", "PENDING", "CONFIGURING", "SUSPENDED", "COMPLETING"]
    slurm = Slurm("".join(line(str(12 + place), state) for place, state in enumerate(states)))
    wanted = [(replace(run, job_id=str(12 + place), record=str(place)), "t") for place in range(len(states))]
    targets = plan_cancel(slurm, *wanted).targets
    assert len(targets) == len(states)
    cancel.send(targets, slurm.ask)
    assert slurm.cancelled() == [["13", "14", "15"], ["--batch", "--signal=TERM", "12"]]
    slurm.asked.clear()
    cancel.send(targets, slurm.ask, now=True)
    assert slurm.cancelled() == [["12", "13", "14", "15"]]


def test_an_array_is_canceled_by_one_id(run: Run) -> None:
    waiting = "".join(line(f"12_{task}", "PENDING") for task in range(2, 2000))
    slurm = Slurm(line("12_0", "RUNNING") + line("12_1", "COMPLETED") + waiting)
    found = plan_cancel(slurm, (run, "12"))
    assert len(found.targets) == 1999
    cancel.send(found.targets, slurm.ask)
    assert slurm.cancelled() == [["--state=PENDING", "12"], ["--batch", "--signal=TERM", "12_0"]]
    slurm.asked.clear()
    cancel.send(found.targets, slurm.ask, now=True)
    assert slurm.cancelled() == [["12"]]


def test_tasks_of_an_array_alone(run: Run) -> None:
    slurm = Slurm("".join(line(f"12_{task}", state) for task, state in enumerate(["RUNNING", "RUNNING", "PENDING"])))
    run = replace(run, spec={"array": "0-7"})
    found = plan_cancel(slurm, (run, "12_1"), (run, f"{run.name}_2.log"), (run, "12_7"))
    assert [target.id for target in found.targets] == ["12_1", "12_2"]
    assert found.already_ended == [f"job 12_7 ({run.name}) has already ended"]
    assert found.targets[0].log == f"{run.log.removesuffix('.log')}_1.log"
    cancel.send(found.targets, slurm.ask)
    assert slurm.cancelled() == [["12_2"], ["--batch", "--signal=TERM", "12_1"]]


def test_several_tasks_in_one_word(run: Run) -> None:
    run = replace(run, spec={"array": "0-9"})
    slurm = Slurm("".join(line(f"12_{task}", "PENDING" if task else "RUNNING") for task in range(8)))
    found = plan_cancel(slurm, (run, "12_[3-5]"), (run, "12_[8-9]"))
    assert [target.id for target in found.targets] == ["12_3", "12_4", "12_5"]
    assert found.already_ended == [f"job 12_[8-9] ({run.name}) has already ended"]
    cancel.send(found.targets, slurm.ask)
    assert slurm.cancelled() == [["12_3", "12_4", "12_5"]]


def test_a_task_that_the_array_does_not_have(run: Run) -> None:
    slurm = Slurm(line("12_0", "RUNNING") + line("12_1", "PENDING"))
    array = replace(run, spec={"array": "0-1"})
    for argument, missing in (("12_99", "12_99"), ("12_[0-3]", r"12_\[2-3\]")):
        with pytest.raises(UsageError, match=f"job 12 has no task {missing}") as error:
            plan_cancel(slurm, (array, argument))
        assert "nothing was canceled; its tasks are 12_[0-1]" in str(error.value)
    with pytest.raises(UsageError, match="has no task 12_0"):
        plan_cancel(Slurm(line("12", "RUNNING")), (run, "12_0"))


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (line("12", "RUNNING", user="bob"), "another job: user bob"),
        (line("12", "RUNNING", script="/else/t.sh"), "another job: user alice, name 't', script /else/t.sh"),
        (line("12", "PENDING", script="", name="else"), "'else'"),
        (line("12", "RUNNING", user=""), "user unknown"),
    ],
)
def test_another_job_with_the_same_id(run: Run, there: str, why: str) -> None:
    slurm = Slurm(line("11", "RUNNING") + there)
    with pytest.raises(UsageError, match="does not belong to") as error:
        plan_cancel(slurm, (replace(run, job_id="11", record="x"), "11"), (run, "12"))
    assert why in error.value.message
    assert not slurm.cancelled()


def test_another_ended_job_with_the_same_id(run: Run) -> None:
    found = plan_cancel(Slurm(line("12", "FAILED", script="/else/t.sh")), (run, "12"))
    assert found == cancel.CancelPlan([], [f"job 12 ({run.name}) has already ended"])


def test_a_record_of_another_user_is_not_queried(run: Run) -> None:
    slurm = Slurm(line("12", "RUNNING"))
    with pytest.raises(UsageError, match="job 12 belongs to bob according to its record; you are alice"):
        plan_cancel(slurm, (replace(run, user="bob"), "12"))
    with pytest.raises(UsageError, match="no job ID"):
        plan_cancel(slurm, (replace(run, job_id=None), "t"))
    assert not slurm.asked


def test_a_job_that_slurm_no_longer_lists(run: Run) -> None:
    Path(run.log).write_text("[slurm-launch] 2026-11-16T09:06:00+0000 end outcome=ok code=0\n")
    assert plan_cancel(Slurm(GONE), (run, "12")).already_ended == [f"job 12 ({run.name}) has already ended: ok"]


def test_slurm_does_not_answer(run: Run) -> None:
    for answer in (DOWN, process.SlurmTimedOut("squeue did not answer")):
        with pytest.raises(SlurmUnavailable):
            plan_cancel(Slurm(answer), (run, "12"))


@pytest.mark.parametrize(
    ("said", "fails"),
    [
        ("scancel: error: Kill job error on job id 12: Invalid job id specified", False),
        ("scancel: error: Kill job error on job id 12: Job/step already completing or completed", False),
        ("scancel: error: Kill job error on job id 12: Access/permission denied", True),
        ("scancel: error: Unable to contact slurm controller (connect failure)", True),
    ],
)
def test_scancel_fails(run: Run, said: str, fails: bool) -> None:
    slurm = Slurm(line("12", "RUNNING"), scancel=Result(("scancel",), 1, "", said + "\n"))
    targets = plan_cancel(slurm, (run, "12")).targets
    if fails:
        with pytest.raises(SlurmUnavailable, match=r"denied|contact"):
            cancel.send(targets, slurm.ask)
    else:
        cancel.send(targets, slurm.ask)


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait(slurm: Slurm, targets: Sequence[cancel.CancelTarget], gone: list[str]) -> list[cancel.CancelTarget]:
    clock = Clock()
    return cancel.wait(targets, slurm.ask, on_end=lambda target: gone.append(target.id), sleep=clock.sleep, clock=clock)


def test_waiting_queries_rarely_and_reports_each_end(run: Run) -> None:
    both = line("12_0", "RUNNING") + line("12_1", "RUNNING")
    slurm = Slurm(both)
    targets = plan_cancel(slurm, (run, "12")).targets
    slurm.answers = [both, DOWN, process.SlurmTimedOut("slow"), line("12_1", "COMPLETING"), GONE]
    gone: list[str] = []
    assert wait(slurm, targets, gone) == []
    assert gone == ["12_0", "12_1"]
    slurm = Slurm(both)
    assert wait(slurm, targets, gone) == targets
    assert len(slurm.asked) < 12, "in a minute"
    error = cancel.not_ended_error(targets, now=False)
    assert error.exit_code == 7
    assert "still running after 60 s: job 12_0 12_1" in str(error)
    assert "slurm-launch cancel --now 12_0 12_1" in str(error)


@pytest.mark.parametrize("now", [False, True])
def test_a_job_that_starts_meanwhile_is_signaled_too(run: Run, now: bool) -> None:
    both = line("12_0", "RUNNING") + line("12_1", "PENDING")
    slurm = Slurm(both)
    targets = plan_cancel(slurm, (run, "12")).targets
    slurm.answers = [*[line("12_0", "RUNNING") + line("12_1", "RUNNING")] * 3, GONE]
    clock = Clock()
    left = cancel.wait(targets, slurm.ask, now=now, on_end=lambda _: None, sleep=clock.sleep, clock=clock)
    assert left == []
    assert slurm.cancelled() == ([] if now else [["--batch", "--signal=TERM", "12_1"]]), "once"


def test_a_job_that_starts_meanwhile_has_the_full_grace_period(run: Run) -> None:
    slurm = Slurm(line("12", "PENDING"))
    targets = plan_cancel(slurm, (run, "12")).targets
    slurm.answers = [*[line("12", "PENDING")] * 8, line("12", "RUNNING")]
    clock = Clock()
    assert cancel.wait(targets, slurm.ask, on_end=lambda _: None, sleep=clock.sleep, clock=clock) == targets
    assert clock.now >= cancel.GRACE * 1.5
    slurm.asked.clear()
    assert cancel.wait(targets, slurm.ask, grace=0, on_end=lambda _: None, sleep=clock.sleep, clock=clock) == targets
    assert slurm.cancelled() == [["--batch", "--signal=TERM", "12"]], "without waiting for it"


def test_slurm_is_queried_again_after_the_confirmation(
    run: Run, launcher: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A job may have started while the user was deciding: it must be signaled, not removed."""
    records.write(replace(run, spec={"array": "0-1"}))
    slurm = Slurm(line("12_0", "PENDING") + line("12_1", "PENDING"), line("12_0", "RUNNING") + line("12_1", "PENDING"))
    monkeypatch.setattr("slurm_launch.cli.verbs.cancel.slurm_client", lambda: slurm.ask)
    monkeypatch.setattr(cancel, "_unix_user", lambda: "alice")
    monkeypatch.setattr("slurm_launch.cli.verbs.cancel._confirmed", lambda _: True)
    assert launcher("cancel", run.record, "--no-wait").code == 0
    assert slurm.cancelled() == [["--state=PENDING", "12"], ["--batch", "--signal=TERM", "12_0"]]


def test_an_end_in_the_log_triggers_a_query(run: Run) -> None:
    """Otherwise the next query would come after ten seconds."""
    slurm = Slurm(line("12", "RUNNING"))
    targets = plan_cancel(slurm, (run, "12")).targets
    slurm.asked.clear()
    Path(run.log).write_text("[slurm-launch] 2026-11-16T09:06:00+0000 end outcome=ended-from-outside code=75\n")
    slurm.answers = [*[line("12", "RUNNING")] * 3, line("12", "FAILED")]
    clock = Clock()
    assert cancel.wait(targets, slurm.ask, on_end=lambda _: None, sleep=clock.sleep, clock=clock) == []
    assert (len(slurm.asked), clock.now) == (4, 4.0)


def test_the_record_remembers_which_tasks(run: Run) -> None:
    run = replace(run, spec={"array": "0-4"})
    records.write(run)
    slurm = Slurm("".join(line(f"12_{task}", "FAILED" if task == 2 else "RUNNING") for task in range(5)))
    told: list[str] = []
    cancel.cancel(plan_cancel(slurm, (run, "12_0")).targets, slurm.ask, told.append)
    ((ids, when),) = records.read(run.record).cancelled.items()
    assert (ids, told) == ("12_0", [])
    cancel.cancel(plan_cancel(slurm, (run, "12")).targets, slurm.ask, told.append)
    kept = records.read(run.record)
    assert list(kept.cancelled) == ["12_[0-1,3-4]", "12_0"], "not what had ended before"
    assert kept.cancelled_at("12_0") == when
    assert [bool(kept.cancelled_at(f"12_{task}")) for task in range(5)] == [True, True, False, True, True]
    strange = replace(plan_cancel(slurm, (run, "12_0")).targets[0], run=replace(run, record="/nosuch/t.json"))
    cancel.cancel([strange], slurm.ask, told.append)
    assert "cannot update the record" in told[0]


def test_other_changes_of_the_record_are_kept(run: Run) -> None:
    """For example while the user is asked."""
    records.write(run)
    slurm = Slurm(line("12", "RUNNING"))
    targets = plan_cancel(slurm, (run, "12")).targets
    records.update(replace(run, tasks={"12": {"state": "FAILED"}}))
    cancel.cancel(targets, slurm.ask, pytest.fail)
    assert records.read(run.record).tasks == {"12": {"state": "FAILED"}}


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (Result(("scancel",), 1, "", "scancel: error: Kill job error on job id 12: Access/permission denied\n"), False),
        (Result(("scancel",), 1, "", "scancel: error: Unable to contact slurm controller (connect failure)\n"), False),
        (Result(("scancel",), 1, "", "scancel: error: Socket timed out on send/recv operation\n"), True),
        (process.SlurmTimedOut("scancel did not answer"), True),
    ],
)
def test_the_record_is_updated_before_the_signal(run: Run, answer: Any, kept: bool) -> None:
    """Who follows the job may see its end at once. What scancel refuses is taken back."""
    records.write(run)
    slurm = Slurm(line("12", "RUNNING"))
    targets = plan_cancel(slurm, (run, "12")).targets
    seen: list[dict[str, str]] = []

    def scancel(argv: Sequence[str], **_: Any) -> Result:
        seen.append(records.read(run.record).cancelled)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    with pytest.raises(SlurmUnavailable):
        cancel.cancel(targets, SlurmClient({}, runner=scancel), pytest.fail)
    assert list(seen[0]) == ["12"]
    assert bool(records.read(run.record).cancelled) is kept
