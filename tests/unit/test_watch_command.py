"""`slurm-launch watch` and `submit --follow` on the command line, with a scripted Slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.cli import watch_view
from slurm_launch.cli.verbs import watch as verb
from slurm_launch.process import Result
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import watch as watching
from tests.unit.queue_answers import NO_SACCT, queued
from tests.unit.some_run import END, START, some_run

Launcher = Callable[..., Any]  # tests/unit/conftest.py
NAME = "t_20261116-090507"
Slurm = Callable[[Any], None]


@pytest.fixture
def log() -> Path:
    here = Path.cwd()
    files = {key: f"{here}/{NAME}.{key}" for key in ("log", "script")} | {"record": f"{here}/{NAME}.json"}
    run = some_run(here, name=NAME, **files)
    Path(run.record).write_text(run.to_json())
    return Path(run.log)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    def answer(squeue: str | BaseException) -> None:
        def runner(argv: Sequence[str], **_: Any) -> Result:
            if argv[0] != "squeue":
                return NO_SACCT
            if isinstance(squeue, BaseException):
                raise squeue
            return Result((), 0, squeue, "")

        monkeypatch.setattr(verb, "slurm_client", lambda: SlurmClient({}, runner))

    return answer


def test_a_run_that_has_ended(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm(queued("12", "FAILED", "3:0"))
    whole = START + "out\n" + END.format(outcome="command-failed", code=3)
    log.write_text(whole)
    answer = launcher("watch", "12")
    assert (answer.code, answer.err) == (3, "")
    assert answer.out.startswith(whole)
    assert "[watch] job 12 failed: its command exited with code 3" in answer.out


def test_the_newest_run(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm(queued("12", "COMPLETED"))
    log.write_text(END.format(outcome="ok", code=0))
    assert launcher("watch").code == 0


def test_an_end_without_a_code_of_the_command(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    """In the words of the job's own last line, with what to do."""
    slurm(queued("12", "FAILED", "71:0"))
    log.write_text(
        START + END.strip().format(outcome="node-failed", code=71) + ' cause="n2 is gone" hint="leave it out"\n'
    )
    answer = launcher("watch", "12")
    assert answer.code == 5
    assert "[watch] job 12 failed with exit code 71: n2 is gone" in answer.out
    assert "[watch] what to do: leave it out" in answer.out
    assert answer.err == "", "it is said once"


def test_ctrl_c_leaves_the_job_running(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm(KeyboardInterrupt())
    answer = launcher("watch", "12")
    assert answer.code == 130
    assert (
        "job 12 keeps running; `slurm-launch watch 12` resumes watching, `slurm-launch cancel 12` cancels it"
        in answer.err
    )


def test_no_slurm_here(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm(process.SlurmNotFound("squeue is not in PATH"))
    answer = launcher("watch", "12")
    assert answer.code == 4
    assert "squeue is not in PATH" in answer.err


def test_a_run_that_does_not_exist(launcher: Launcher) -> None:
    assert launcher("watch", "77").code == 2


@pytest.mark.parametrize("other", ["--wait", "--json", "--parsable"])
def test_options_that_conflict_with_follow(launcher: Launcher, other: str) -> None:
    answer = launcher("submit", "--exp-name", "x", "--command", "true", "--follow", other)
    assert answer.code == 2
    assert f"--follow and {other} are mutually exclusive" in answer.err
    assert list(Path.cwd().iterdir()) == []


def test_rich_is_not_loaded_for_lines(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm(queued("12", "COMPLETED"))
    log.write_text(END.format(outcome="ok", code=0))
    for name in [name for name in sys.modules if name == "rich.live"]:
        del sys.modules[name]
    launcher("watch", "12")
    assert "rich.live" not in sys.modules


def test_the_screen_is_updated_during_a_query(
    launcher: Launcher, log: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is shown although squeue has not answered yet."""
    import threading

    shown = threading.Event()
    plain = watch_view.PlainView.text

    def text(self: Any, feed: watching.LogFeed, data: bytes) -> None:
        plain(self, feed, data)
        shown.set()

    def runner(argv: Sequence[str], **_: Any) -> Result:
        assert shown.wait(30), "the log waited for Slurm"
        return Result((), 0, queued("12", "COMPLETED"), "") if argv[0] == "squeue" else NO_SACCT

    monkeypatch.setattr(watch_view.PlainView, "text", text)
    monkeypatch.setattr(verb, "slurm_client", lambda: SlurmClient({}, runner))
    log.write_text("out\n" + END.format(outcome="ok", code=0))
    assert launcher("watch", "12").code == 0


def in_a_process(log: Path, shell: str, answer: str) -> subprocess.CompletedProcess[bytes]:
    """`$watch` in a shell, with a fake squeue in PATH."""
    programs = log.parent / "bin"
    programs.mkdir()
    for name, code in (("squeue", f"printf '%s' {shlex.quote(answer)}"), ("sacct", "exit 1"), ("scontrol", "exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{code}\n")
        (programs / name).chmod(0o755)
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": root}
    watch = f"{shlex.quote(sys.executable)} -m slurm_launch watch 12"
    argv = ["timeout", "100", "bash", "-c", shell]  # which ends the whole group
    return subprocess.run(argv, env={**env, "watch": watch}, capture_output=True, check=False)


def test_a_closed_pipe(log: Path) -> None:
    log.write_text("line\n" * 100_000)  # what is shown of it does not fit into a pipe
    done = in_a_process(log, "$watch | head -n 1; exit ${PIPESTATUS[0]}", queued("12", "RUNNING"))
    assert (done.returncode, done.stderr) == (141, b"")


def test_sigterm_restores_the_terminal(log: Path) -> None:
    """The screen and the cursor of a terminal are restored, so the command must exit normally."""
    shell = "$watch & until [[ -s out ]]; do sleep 0.1; done; kill $!; wait $!"
    done = in_a_process(log, shell.replace("$watch &", "$watch >out &"), queued("12", "RUNNING"))
    assert (done.returncode, done.stderr) == (143, b"")
