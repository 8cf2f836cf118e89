"""Reaching a running job: which task, whether it is up, and the messages of srun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.control import running_job
from slurm_launch.control.running_job import SrunStderr
from slurm_launch.errors import LaunchError, SlurmUnavailable, UsageError, WrongMoment
from slurm_launch.process import Result
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient
from tests.unit.test_cancel import line
from tests.unit.test_cancel import run as run  # a fixture

UP = """\
[slurm-launch] 2026-11-16T09:05:07+0000 starting nodes=2 head=n1 address=1.2.3.4:5 auth=token job=15 dir=/tmp/r15-abc
[slurm-launch] 2026-11-16T09:05:09+0000 ready nodes=2/2 ray=2.60.0 dashboard=http://127.0.0.1:7
[slurm-launch] 2026-11-16T09:05:09+0000 command python train.py
"""
ENDING = UP + "[slurm-launch] 2026-11-16T09:06:07+0000 stopping\n"


def slurm_client(squeue: str) -> SlurmClient:
    def answer(argv: Sequence[str], **_: Any) -> Result:
        return Result(tuple(argv), 0, squeue if argv[0] == "squeue" else "", "")

    return SlurmClient({}, runner=answer)


def test_where_the_command_runs(run: Run) -> None:
    Path(run.log).write_text(UP)
    place = running_job.find_running(run, "12", slurm_client(line("12", "RUNNING")))
    assert (place.task, place.slurm_id, place.head, place.directory) == ("12", "15", "n1", "/tmp/r15-abc")


@pytest.mark.parametrize(
    ("state", "log", "why"),
    [
        ("PENDING", "", "job 12 is pending"),
        ("RUNNING", "", "loading the environment"),
        ("RUNNING", UP.splitlines()[0] + "\n", "starting Ray"),
        ("RUNNING", ENDING, "stopping Ray"),
        ("TIMEOUT", UP, "job 12 timed out"),
        ("RUNNING", UP.replace(" dir=/tmp/r15-abc", ""), "does not show where its Ray runs"),
    ],
)
def test_a_job_that_is_not_running_its_command(run: Run, state: str, log: str, why: str) -> None:
    Path(run.log).write_text(log)
    with pytest.raises(WrongMoment) as error:
        running_job.find_running(run, None, slurm_client(line("12", state)))
    assert why in error.value.message
    with pytest.raises(WrongMoment, match="no job ID"):
        running_job.find_running(replace(run, job_id=None), None, slurm_client(""))


def test_the_task_of_an_array(run: Run) -> None:
    run = replace(run, spec={"array": "0-3"})
    for task in (1, 2):
        Path(run.log.replace(".log", f"_{task}.log")).write_text(UP.replace("job=15", f"job=2{task}"))
    two = slurm_client(line("12_1", "RUNNING") + line("12_2", "RUNNING") + line("12_[3]", "PENDING"))
    assert running_job.find_running(run, "12_2", two).slurm_id == "22"
    assert running_job.find_running(run, f"runs/{run.name}_1.log", two).slurm_id == "21"
    with pytest.raises(UsageError, match="array with 2 running tasks") as error:
        running_job.find_running(run, "12", two)
    assert "12_1, 12_2" in str(error.value)
    with pytest.raises(UsageError, match="there is no task 12_9"):
        running_job.find_running(run, "12_9", two)
    assert (
        running_job.find_running(run, None, slurm_client(line("12_1", "RUNNING") + line("12_[3]", "PENDING"))).slurm_id
        == "21"
    )
    with pytest.raises(WrongMoment, match="no task of job 12 is running"):
        running_job.find_running(run, None, slurm_client(line("12_1", "FAILED") + line("12_[3]", "PENDING")))


# What srun says

OWN = b"srun: cluster configuration lacks support for cpu binding\n"
EXITED = b"srun: error: n1: task 0: Exited with exit code 7\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_messages_of_srun_are_filtered(size: int) -> None:
    shown = b""

    def show(data: bytes) -> None:
        nonlocal shown
        shown += data

    theirs = b"said\nsrunning\rsrun of mine: srun: no\nsrun: job 12 queued\nlast"
    text = OWN + theirs + b"\n" + EXITED
    stderr = SrunStderr(show)
    for at in range(0, len(text), size):
        stderr.feed(text[at : at + size])
    stderr.close()
    assert shown == theirs + b"\n"
    assert (stderr.command_exited, stderr.errors) == (True, "")


def test_output_of_the_command_is_shown_at_once() -> None:
    """A prompt, or a bar of progress, has no end of line."""
    shown: list[bytes] = []
    stderr = SrunStderr(shown.append)
    stderr.feed(b"password: ")
    stderr.feed(b"\r10 %")
    stderr.feed(b"\r20 %")
    assert b"".join(shown) == b"password: \r10 %\r20 %"


def test_srun_fails(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(run.log).write_text(UP)
    place = running_job.find_running(run, "12", slurm_client(line("12", "RUNNING")))
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")

    def enter(code: str) -> int:
        srun.write_text(f"#!/bin/bash\n{code}\n")
        srun.chmod(0o755)
        return running_job.run_command(place, ["true"], node=None, pty=False, env=os.environ, show=lambda _: None)

    assert enter("echo 'srun: error: n1: task 0: Exited with exit code 3' >&2; exit 3") == 3
    assert enter("exit 0") == 0
    for said, kind in (
        ("Unable to create step for job 15: Access/permission denied", UsageError),
        ("Unable to contact slurm controller (connect failure)", SlurmUnavailable),
    ):
        with pytest.raises(kind, match=said.split()[-1].strip("()")) as error:
            enter(f"echo 'srun: error: {said}' >&2; exit 1")
        assert isinstance(error.value, LaunchError)
    Path(run.log).write_text(ENDING)
    with pytest.raises(WrongMoment, match="job 12 is ending"):
        enter("echo 'srun: error: Unable to confirm allocation for job 15: Invalid job id specified' >&2; exit 1")
    srun.unlink()
    monkeypatch.setenv("PATH", "/nosuch")
    with pytest.raises(SlurmUnavailable, match="srun is not in PATH"):
        running_job.run_command(place, ["true"], node=None, pty=False, env={"PATH": "/nosuch"}, show=lambda _: None)


def test_the_error_of_srun(run: Run) -> None:
    Path(run.log).write_text(UP)
    place = running_job.find_running(replace(run, cluster="far"), "12", slurm_client(line("12", "RUNNING")))
    words = ["a b", "", "new\nline", "--pty"]
    argv = running_job.srun_argv(place, words, node="n2")
    assert argv[:4] == ["srun", "-M", "far", "--jobid=15"]
    assert argv[argv.index("attach") :] == ["attach", "/tmp/r15-abc", run.name, "n2", "", *words]
    assert not any(word in ("--pty", "--unbuffered") for word in argv[: argv.index("bash")])
    assert "--pty" in running_job.srun_argv(place, [], pty=True)[: argv.index("bash") + 1]


def test_signals_are_forwarded_and_handlers_restored() -> None:
    code = """\
import os, signal, sys
from slurm_launch import process
heard = b""
def hear(data):
    global heard
    heard += data
    if b"ready" in data:
        os.kill(os.getpid(), signal.SIGTERM)
child = "trap 'echo term >&2; exit 5' TERM; trap 'echo int >&2' INT; echo ready >&2; while :; do sleep 0.05; done"
print(process.interact(["bash", "-c", child], env=dict(os.environ), on_stderr=hear))
assert heard.endswith(b"term\\n"), heard
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(process.interact(["bash", "-c", "kill -9 $$"], env=dict(os.environ), on_stderr=hear))
"""
    root = Path(process.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "5\n137\n"), done.stderr
