"""Chains: when they continue, which links were not needed, and which link determines the exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, render
from slurm_launch.config.resolve import resolve
from slurm_launch.errors import NoCommandCode
from slurm_launch.explain.explain import explain_task
from slurm_launch.process import Result
from slurm_launch.runs.record import Run
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import chains, lookup, report, saved_outcomes, watch_messages
from slurm_launch.status.task import NOT_NEEDED, NOT_NEEDED_SENTENCE, Task
from slurm_launch.status.wait import JobPoller
from tests.script_parts import loaded
from tests.unit.queue_answers import GONE, NO_SACCT, queued
from tests.unit.some_run import END, START, some_run

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "x", "--command", "true")
OVER = "[slurm-launch] 2026-11-16T09:06:00+0000 chain over link={} this link ended ok: those after it do not run\n"


def chain(tmp_path: Path, until: str = "notok") -> Run:
    run = some_run(tmp_path, spec={"chain": 5, "chain-while": until}, array="0-4%1")
    Path(f"{tmp_path}/t_0.log").write_text(START + END.format(outcome="command-failed", code=3))
    Path(f"{tmp_path}/t_1.log").write_text(START + OVER.format(1) + END.format(outcome="ok", code=0))
    return run


def slurm_client(lines: str) -> SlurmClient:
    def answer(argv: Any, **_: Any) -> Result:
        return {"squeue": Result((), 0, lines, ""), "sacct": NO_SACCT}.get(argv[0], GONE)

    return SlurmClient({}, answer)


RAN = queued("12_0", "FAILED", "3:0") + queued("12_1", "COMPLETED")
# How Slurm 22.05 shows the rest of an array whose pending tasks were canceled.
REST = queued("12", "CANCELLED", reason="JobArrayTaskLimit", nodes="")


CONTINUES = [
    ("ok", "0 ok", False),
    ("ok", "3 command-failed", True),
    ("notok", "0 ok", True),
    ("notok", "3 command-failed", False),
]


@pytest.mark.parametrize(
    ("mode", "end", "over", "warned", "reason"),
    [
        *((*case, warned, "") for case in CONTINUES for warned in (False, True)),
        # After a warning the command is not done, and has not failed.
        *(
            (mode, end, False, True, "time-limit")
            for mode in ("ok", "notok")
            for end in ("0 ok", "138 command-failed", "74 time-limit")
        ),
    ],
)
def test_when_a_chain_continues(mode: Any, end: str, over: bool, warned: bool, reason: str) -> None:
    """Without --signal-before, there is neither a warning nor a reason."""
    spec = LaunchSpec(exp_name="x", command="true", chain=5, chain_while=mode, signal_before=60 if warned else None)
    before = 'scancel() { echo "scancel $*"; }; slaunch_link=1 SLURM_ARRAY_TASK_MAX=4 SLURM_ARRAY_JOB_ID=7'
    note = f"slaunch_reason={reason}" if reason else ""
    script = f"{loaded(render(spec))}\n{before}\n{note}\nfinish {end}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    number, outcome = end.split()
    assert (done.returncode, done.stderr) == (int(number), "")
    assert ("chain over link=1" in done.stdout) == over, done.stdout
    assert ("scancel --state=PENDING 7\n" in done.stdout) == over
    assert f" end outcome={outcome} code={number} " in done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("link", "answer", "words"),
    [
        (4, "true", ""),
        (3, "true", "chain over link=3 this link ended ok: the links after it do not run (--chain-while notok)"),
        (3, "false", "warning this link ended ok, but the links after it could not be canceled: run scancel 7"),
    ],
    ids=["the last one", "canceled", "refused"],
)
def test_what_the_log_says_at_the_end_of_a_chain(link: int, answer: str, words: str) -> None:
    text = render(LaunchSpec(exp_name="x", command="true", chain=5, chain_while="notok"))
    before = f"scancel() {{ {answer}; }}; slaunch_link={link} SLURM_ARRAY_TASK_MAX=4 SLURM_ARRAY_JOB_ID=7"
    argv = ["bash", "-c", f"{loaded(text)}\n{before}\nfinish 0 ok"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    said = [line.split(" ", 2)[2] for line in done.stdout.splitlines()[:-1]]
    assert said == ([words] if words else [])


def test_links_that_were_not_needed(tmp_path: Path) -> None:
    run = chain(tmp_path)
    tasks = lookup.look_up(run, slurm_client(RAN + REST))
    assert [(task.id, task.state, task.reason) for task in tasks[2:]] == [("12_[2-4]", "CANCELLED", NOT_NEEDED)]
    assert tasks[2].in_words == "was not needed: the chain ended before it"
    assert explain_task(run, tasks[2]).cause == "not-needed"
    remembered = saved_outcomes.load(saved_outcomes.save(run, tasks))
    assert remembered[-1].in_words == tasks[2].in_words, "when Slurm has forgotten it, too"


def test_links_that_someone_canceled(tmp_path: Path) -> None:
    run = chain(tmp_path)
    Path(f"{tmp_path}/t_1.log").write_text(START + END.format(outcome="ok", code=0))
    assert lookup.look_up(run, slurm_client(RAN + REST))[-1].reason is None


def test_the_line_of_another_link_does_not_count(tmp_path: Path) -> None:
    """The command may show the log of another run."""
    run = chain(tmp_path)
    Path(f"{tmp_path}/t_1.log").write_text(START + OVER.format(0) + END.format(outcome="ok", code=0))
    assert lookup.look_up(run, slurm_client(RAN + REST))[-1].reason is None


def code(run: Run, lines: str) -> int:
    poller = JobPoller(run, slurm_client(lines))
    for _ in range(9):
        poller.update(poller.query())
    assert poller.over
    return poller.exit_code()


def test_the_last_link_that_ran_determines_the_code(tmp_path: Path) -> None:
    assert code(chain(tmp_path), RAN + REST) == 0


def test_a_canceled_chain_has_no_code(tmp_path: Path) -> None:
    run = some_run(tmp_path, spec={"chain": 3}, array="0-2%1")
    with pytest.raises(NoCommandCode):
        code(run, queued("12_0", "COMPLETED") + queued("12_1", "COMPLETED") + queued("12_2", "CANCELLED", nodes="n1"))


def test_a_pending_link(tmp_path: Path) -> None:
    run = chain(tmp_path)
    task = Task("12_[2-4%1]", "PENDING", "squeue", run.log, reason="JobArrayTaskLimit")
    assert chains.with_reasons(run, [task]) == [task]


BAD = [
    (("--chain", "1"), "--chain must be at least 2, not 1", "use 2 or more"),
    (("--chain", "0"), "--chain must be at least 2, not 0", "use 2 or more"),
    (("--chain", "x"), "--chain is not a whole number: 'x'", "5"),
    (("--chain", "1000000"), "--chain must be at most 100000, not 1000000", "MaxArraySize"),
    (("--chain", "5", "--array", "0-4"), "--array and --chain are mutually exclusive", "use one"),
    (("--chain", "5", "--sweep", "a=1,2"), "--sweep and --chain are mutually exclusive", "use one"),
    (("--chain", "5", "--max-parallel", "2"), "--max-parallel and --chain are mutually", "one at a time"),
    (("--chain", "5", "--no-sbatch", "array"), "--no-sbatch array removes the directive that a chain needs", "omit it"),
    (("--chain-while", "ok"), "--chain-while has no effect without --chain", "--chain N"),
    (("--chain", "5", "--chain-while", "okay"), "--chain-while has an invalid value: 'okay'", "'ok'"),
]


@pytest.mark.parametrize(("flags", "message", "hint"), BAD, ids=[" ".join(flags) for flags, *_ in BAD])
def test_bad_chains(launcher: Launcher, flags: tuple[str, ...], message: str, hint: str) -> None:
    answer = launcher("render", *GOOD, *flags)
    assert answer.code == 2
    assert message in answer.err
    assert hint in answer.err.partition("hint:")[2]


def test_a_chain_is_an_array_with_one_at_a_time() -> None:
    assert LaunchSpec(exp_name="x", command="true", chain=5).tasks() == "0-4%1"
    assert LaunchSpec(exp_name="x", command="true", array="1-3").tasks() == "1-3"
    assert LaunchSpec(exp_name="x", command="true").tasks() is None


def test_a_launch_from_within_a_link_has_files_of_its_own() -> None:
    """They do not belong in the folder of the chain, although its variable is that of an option."""
    inner = {"SLAUNCH_LINK": "1", "SLAUNCH_RUN_DIR": "/home/me/t.run", "SLAUNCH_PARTITION": "main"}
    assert set(slurm_environment.outer_job_variables(inner)) == {"SLAUNCH_LINK", "SLAUNCH_RUN_DIR"}
    assert slurm_environment.outer_job_variables({"SLAUNCH_RUN_DIR": "/home/me/t.run"}) == (), "a user's own wish"
    found = resolve({"exp_name": "x", "command": "true"}, inner, Path.cwd())
    assert (found.spec().run_dir, found.spec().partition, found.warnings) == (".", "main", ())
    clean, _ = slurm_environment.submit_env(inner)
    assert clean == {"SLAUNCH_PARTITION": "main"}


def test_watch_does_not_count_it_as_a_failure() -> None:
    ran = Task("12_0", "COMPLETED", "squeue", "x_0.log", code=0)
    spared = Task("12_[1-2]", "CANCELLED", "record", "x.log", reason=NOT_NEEDED)
    assert watch_messages.outcome(spared) == NOT_NEEDED_SENTENCE
    assert report.summary([ran, spared]) == "1 ok, 2 not needed"
