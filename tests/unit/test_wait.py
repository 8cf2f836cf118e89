"""Waiting for the end of a job, with scripted output of squeue, sacct and scontrol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.errors import LaunchError, NoCommandCode, SlurmUnavailable
from slurm_launch.process import Result
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.status import saved_outcomes
from slurm_launch.status import wait as waiting
from slurm_launch.status.task import TIMES, Task
from tests.unit.queue_answers import DOWN, GONE, NO_SACCT, queued, sacct
from tests.unit.some_run import END, START, some_run


def shown(state: str, code: str = "0:0", reason: str = "None", job: str = "12") -> Result:
    return Result((), 0, queued(job, state, code, reason), "")


def array(*tasks: tuple[str, str, str]) -> Result:
    named = [(f"12_{task}" if task.isdigit() else f"12_[{task}]", state, code) for task, state, code in tasks]
    return Result((), 0, "".join(queued(job, state, code) for job, state, code in named), "")


class Scripted:
    """Answers squeue and sacct from lists; scontrol knows nothing that squeue does not."""

    def __init__(self, squeue: Sequence[Any], sacct: Sequence[Any] = (NO_SACCT,)) -> None:
        self.answers = {"squeue": list(squeue), "sacct": list(sacct), "scontrol": [GONE]}
        self.asked: list[list[str]] = []
        self.told: list[str] = []
        self.slept: list[float] = []

    def __call__(self, argv: Sequence[str], **_: Any) -> Result:
        self.asked.append(list(argv))
        answers = self.answers[argv[0]]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Result)
        return answer

    def wait(self, run: Run) -> int:
        poll = lambda: repeat(0.0)  # noqa: E731
        return waiting.wait(run, env={}, runner=self, poll=poll, sleep=self.slept.append, notify=self.told.append)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return some_run(tmp_path)


@pytest.mark.parametrize(("state", "code", "expected"), [("COMPLETED", "0:0", 0), ("FAILED", "3:0", 3)])
def test_the_commands_own_code(run: Run, state: str, code: str, expected: int) -> None:
    slurm = Scripted([shown("PENDING", reason="Priority"), shown("RUNNING"), shown("COMPLETING"), shown(state, code)])
    assert slurm.wait(run) == expected
    assert slurm.told == []
    assert len(slurm.slept) == 3


@pytest.mark.parametrize(
    ("state", "code", "words"),
    [
        ("CANCELLED", "0:15", "was canceled"),
        ("TIMEOUT", "0:15", "timed out"),
        ("NODE_FAIL", "0:0", "a node failed"),
        ("PREEMPTED", "0:15", "was preempted"),
        ("OUT_OF_MEMORY", "0:125", "ran out of memory"),
        ("BOOT_FAIL", "0:0", "did not boot"),
        ("FAILED", "0:9", "was killed by signal 9"),
        ("FAILED", "0:53", "failed to start"),
        ("REVOKED", "0:0", "ended in state REVOKED"),
    ],
)
def test_an_end_without_the_commands_code(run: Run, state: str, code: str, words: str) -> None:
    with pytest.raises(NoCommandCode, match=words) as caught:
        Scripted([shown(state, code)]).wait(run)
    assert caught.value.exit_code == 5
    assert caught.value.at == run.log


def end_line(outcome: str, code: int) -> str:
    return f"[slurm-launch] 2026-11-16T09:05:09+00:00 end outcome={outcome} code={code} total_s=3\n"


def test_a_code_of_the_script_is_not_the_commands(run: Run) -> None:
    Path(run.log).write_text(end_line("nodes-missing", 71))
    with pytest.raises(NoCommandCode, match=r"nodes-missing \(exit code 71\)"):
        Scripted([shown("FAILED", "71:0")]).wait(run)


def test_the_same_code_from_the_command_is(run: Run) -> None:
    Path(run.log).write_text(end_line("command-failed", 71))
    assert Scripted([shown("FAILED", "71:0")]).wait(run) == 71


def test_accounting_after_slurmctld_purged_the_job(run: Run) -> None:
    late = [sacct("12|RUNNING|0:0"), sacct("12|FAILED|4:0")]
    slurm = Scripted([shown("RUNNING"), GONE], late)
    assert slurm.wait(run) == 4


def test_all_times_are_saved(run: Run) -> None:
    Path(run.record).write_text(run.to_json())
    stopping = "[slurm-launch] 2026-11-16T09:05:59+0000 stopping\n"
    Path(run.log).write_text(START + stopping + END.format(outcome="ok", code=0))
    started, ended = "2026-11-16T09:05:08", "2026-11-16T09:06:00"
    squeue = Result((), 0, queued("12", "COMPLETED", start=started, end=ended), "")
    assert Scripted([squeue]).wait(run) == 0
    assert list(records.read(run.record).tasks["12"]["times"]) == list(TIMES)


def test_saved_tasks_of_an_array_count(tmp_path: Path) -> None:
    run = some_run(tmp_path, spec={"array": "0-1"})
    Path(run.record).write_text(run.to_json())
    first = array(("0", "FAILED", "3:0"), ("1", "RUNNING", "0:0"))
    assert Scripted([first, array(("1", "RUNNING", "0:0")), array(("1", "COMPLETED", "0:0"))]).wait(run) == 3
    assert sorted(records.read(run.record).tasks) == ["12_0", "12_1"]


def test_a_saved_end_counts_if_squeue_loses_the_restart(run: Run) -> None:
    """Nothing more is known, and the wait must end."""
    with_end = replace(run, tasks={"12": saved_outcomes.to_record(Task("12", "FAILED", "squeue", run.log, code=3))})
    assert Scripted([shown("RUNNING"), GONE]).wait(with_end) == 3


@pytest.mark.parametrize("sacct", [NO_SACCT, Result((), 0, "", ""), process.SlurmNotFound("sacct is not in PATH")])
def test_the_log_is_the_last_source(run: Run, sacct: Any) -> None:
    Path(run.log).write_text(end_line("command-failed", 6))
    assert Scripted([GONE], [sacct]).wait(run) == 6
    Path(run.log).write_text(end_line("ok", 0))
    assert Scripted([GONE], [sacct]).wait(run) == 0


@pytest.mark.parametrize(("outcome", "code"), [("ok", 0), ("command-failed", 6)])
def test_slurm_hides_the_code_of_a_command_that_lost_a_process(run: Run, outcome: str, code: int) -> None:
    """To the kernel, for memory: then Slurm reports the state OUT_OF_MEMORY."""
    Path(run.log).write_text(end_line(outcome, code))
    assert Scripted([shown("OUT_OF_MEMORY", "0:125")]).wait(run) == code
    Path(run.log).write_text(end_line("out-of-memory", 80))
    with pytest.raises(NoCommandCode, match=r"\(exit code 80\)"):
        Scripted([shown("OUT_OF_MEMORY", "0:125")]).wait(run)
    Path(run.log).unlink()
    with pytest.raises(NoCommandCode, match="ran out of memory"):
        Scripted([shown("OUT_OF_MEMORY", "0:125")]).wait(run)


def test_the_end_line_of_another_job_is_ignored(run: Run) -> None:
    Path(run.log).write_text(end_line("ok", 0).replace("total", "job=99 total"))
    with pytest.raises(NoCommandCode, match="left the queue; its final state is unknown"):
        Scripted([GONE]).wait(run)


def test_an_unknown_end_is_not_success(run: Run) -> None:
    with pytest.raises(NoCommandCode, match="left the queue; its final state is unknown"):
        Scripted([GONE]).wait(run)


def test_an_array_ends_with_its_last_task_and_worst_code(run: Run) -> None:
    slurm = Scripted(
        [
            array(("0-2%1", "PENDING", "0:0")),
            array(("1-2%1", "PENDING", "0:0"), ("0", "RUNNING", "0:0")),
            array(("2", "PENDING", "0:0"), ("1", "RUNNING", "0:0"), ("0", "FAILED", "3:0")),
            array(("2", "RUNNING", "0:0"), ("1", "COMPLETED", "0:0")),  # task 0 is forgotten by now
            array(("2", "FAILED", "2:0"), ("1", "COMPLETED", "0:0")),
        ]
    )
    assert slurm.wait(run) == 3


def test_a_task_without_a_code_fails_the_array(run: Run) -> None:
    with pytest.raises(NoCommandCode, match="job 12_1 was canceled"):
        Scripted([array(("0", "FAILED", "3:0"), ("1", "CANCELLED", "0:15"))]).wait(run)


def test_a_purged_task_is_looked_up_in_accounting(run: Run) -> None:
    slurm = Scripted([array(("0", "RUNNING", "0:0"), ("1", "RUNNING", "0:0")), GONE], [sacct("12_0|COMPLETED|0:0", "12_1|FAILED|9:0")])  # fmt: skip  # noqa: E501
    assert slurm.wait(run) == 9


def test_observed_ends_of_an_array_are_kept_without_accounting(run: Run) -> None:
    """And the log of one task contains lines of the other."""
    Path(run.log.replace(".log", "_1.log")).write_text(end_line("command-failed", 2))
    slurm = Scripted([array(("0", "FAILED", "3:0"), ("1", "RUNNING", "0:0")), GONE])
    assert slurm.wait(run) == 3
    with pytest.raises(NoCommandCode, match="job 12_2 left the queue"):
        Scripted([array(("1", "RUNNING", "0:0"), ("2", "RUNNING", "0:0")), GONE]).wait(run)


def test_an_array_only_in_accounting(run: Run) -> None:
    tasks = sacct("12_0|COMPLETED|0:0", "12_1|FAILED|1:0", "12_2|FAILED|2:0")
    assert Scripted([GONE], [tasks]).wait(run) == 2


def test_an_array_lost_while_pending(run: Run) -> None:
    with pytest.raises(NoCommandCode, match="its final state is unknown"):
        Scripted([array(("0-2", "PENDING", "0:0")), GONE]).wait(run)


def test_an_unreachable_controller_is_reported_once_and_retried(run: Run) -> None:
    late = process.SlurmTimedOut("squeue did not answer within 60 s")
    slurm = Scripted([DOWN, late, DOWN, shown("RUNNING"), shown("COMPLETED")])
    assert slurm.wait(run) == 0
    assert len(slurm.told) == 2
    assert "Unable to contact slurm controller" in slurm.told[0]
    assert "reachable again" in slurm.told[1]


def test_no_squeue_is_an_error(run: Run) -> None:
    with pytest.raises(SlurmUnavailable):
        Scripted([process.SlurmNotFound("squeue is not in PATH")]).wait(run)


def test_ctrl_c_leaves_the_job_alone(run: Run) -> None:
    slurm = Scripted([shown("RUNNING"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        slurm.wait(run)
    assert slurm.told == [
        "job 12 keeps running; `slurm-launch watch 12` resumes watching, `slurm-launch cancel 12` cancels it"
    ]
    assert {argv[0] for argv in slurm.asked} == {"squeue"}


def test_queries_about_a_federated_job_go_to_its_cluster(run: Run) -> None:
    slurm = Scripted([shown("COMPLETED")])
    slurm.wait(replace(run, cluster="west"))
    assert all(argv[1:3] == ["-M", "west"] for argv in slurm.asked)


def test_a_run_without_a_job(run: Run) -> None:
    with pytest.raises(LaunchError, match="no job ID"):
        Scripted([GONE]).wait(replace(run, job_id=None))


def test_the_pauses_grow_and_stay_bounded() -> None:
    pauses = [pause for pause, _ in zip(waiting.backoff(), range(20), strict=False)]
    assert pauses[0] == 0.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0
