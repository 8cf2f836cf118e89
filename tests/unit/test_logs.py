"""`slurm-launch logs`, with a scripted Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import process
from slurm_launch.cli.verbs import logs as verb
from slurm_launch.control import node_logs
from slurm_launch.errors import SlurmUnavailable, WrongMoment
from slurm_launch.process import Result
from slurm_launch.runs import ray_logs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import lookup
from slurm_launch.status.task import Task
from tests.unit.queue_answers import DOWN, GONE, NO_SACCT, queued
from tests.unit.some_run import END, START, some_run

Launcher = Callable[..., Any]  # tests/unit/conftest.py
NAME = "t_20261116-090507"


class Slurm:
    """Answers squeue with a text, or a Result; counts."""

    def __init__(self) -> None:
        self.queue: str | Result = GONE
        self.asked = 0
        self.then: list[Callable[[], object]] = []  # after each question one of these happens

    def __call__(self, argv: Sequence[str], **_: Any) -> Result:
        if argv[0] != "squeue":
            return NO_SACCT
        self.asked += 1
        answer = self.queue
        if self.then:
            self.then.pop(0)()
        return Result((), 0, answer, "") if isinstance(answer, str) else answer


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    slurm = Slurm()
    monkeypatch.setattr(verb, "slurm_client", lambda: SlurmClient({}, slurm))
    return slurm


@pytest.fixture
def log(slurm: Slurm) -> Path:
    """Of a run in the current directory."""
    return made()


def made(**other: Any) -> Path:
    here = Path.cwd()
    files = {key: f"{here}/{NAME}.{key}" for key in ("log", "script")} | {"record": f"{here}/{NAME}.json"}
    run = some_run(here, name=NAME, **files, **other)
    Path(run.record).write_text(run.to_json())
    return Path(run.log)


def ended(log: Path, text: str = "out\n") -> str:
    whole = START + text + END.format(outcome="ok", code=0)
    log.write_text(whole)
    return whole


# The log


def test_the_log_is_printed_unchanged(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    whole = ended(log)
    for argument in ("12", NAME, f"{NAME}.log", f"./{NAME}.json"):
        assert launcher("logs", argument).out == whole
    assert launcher("logs").out == whole
    assert slurm.asked == 0, "a log needs no Slurm"


def test_bytes_are_printed_unchanged(log: Path) -> None:
    data = bytes(range(256)) * 5000
    log.write_bytes(data)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "slurm_launch", "logs", "12"]
    assert subprocess.run(argv, env=env, capture_output=True, check=True).stdout == data


def test_a_closed_pipe(log: Path) -> None:
    log.write_bytes(b"line\n" * 1_000_000)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = f"{sys.executable} -m slurm_launch logs 12 | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", argv], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (141, b"line\n", b"")


@pytest.mark.parametrize(("count", "lines"), [("0", []), ("1", ["c"]), ("2", ["b", "c"]), ("99", ["a", "b", "c"])])
def test_the_last_lines(launcher: Launcher, log: Path, count: str, lines: list[str]) -> None:
    log.write_text("a\nb\nc\n")
    assert launcher("logs", "12", "--tail", count).out.splitlines() == lines


def test_only_the_commands_output(launcher: Launcher, log: Path) -> None:
    said = "[slurm-launch] 2026-11-16T09:05:09+0000 n2 said: no space\n"  # before version 0.2.0
    said += "[slurm-launch] 2026-11-16T09:05:09+0000 [n2] no space\n"
    ended(log, "one\n\n[not ours] [slurm-launch] is a tool\n" + said + "two [x\nunfinished")
    out = launcher("logs", "12", "--command-only").out
    assert out == "one\n\n[not ours] [slurm-launch] is a tool\ntwo [x\nunfinished\n"
    assert launcher("logs", "12", "--command-only", "--tail", "2").out == "two [x\nunfinished\n"


def test_the_last_lines_of_the_commands_output(launcher: Launcher, log: Path) -> None:
    ended(log, "one\ntwo\nthree\n")
    assert launcher("logs", "12", "--command-only", "--tail", "2").out == "two\nthree\n"


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_only_the_commands_output_in_pieces(capsys: pytest.CaptureFixture[str], size: int) -> None:
    data = (START + "50%\r100%\nx[y\n" + END.format(outcome="ok", code=0) + "late").encode()
    out = verb._Output(command_only=True)
    for place in range(0, len(data), size):
        out.write(data[place : place + size])
    out.close()
    assert capsys.readouterr().out == "50%\r100%\nx[y\nlate"


def test_a_progress_bar_is_not_delayed(capsys: pytest.CaptureFixture[str]) -> None:
    verb._Output(command_only=True).write(b"50% [###  ]\r")
    assert capsys.readouterr().out == "50% [###  ]\r"


def test_no_log_yet(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm.queue = queued("12", "PENDING", reason="Resources")
    answer = launcher("logs", "12")
    assert answer.code == 7
    assert "there is no log yet: job 12 is pending: next to start" in answer.err
    assert "-f waits for it" in answer.err


@pytest.mark.parametrize(("queue", "words"), [(GONE, "its final state is unknown"), (DOWN, "cannot reach slurmctld"), (queued("12", "COMPLETED"), "completed")])  # fmt: skip  # noqa: E501
def test_a_missing_log(launcher: Launcher, log: Path, slurm: Slurm, queue: Any, words: str) -> None:
    slurm.queue = queue
    answer = launcher("logs", "12")
    assert answer.code == 2
    assert "there is no log" in answer.err
    assert words in answer.err
    assert str(log) in answer.err


def test_an_array_needs_a_task(launcher: Launcher, slurm: Slurm) -> None:
    log = made(spec={"array": "0-19"})
    answer = launcher("logs", "12")
    assert answer.code == 2
    assert "none has a log yet; its tasks are 12_N, with N of 0-19" in answer.err
    first, second = (log.with_name(f"{NAME}_{task}.log") for task in (3, 10))
    first.write_text("three\n")
    assert launcher("logs", "12").out == "three\n", "the only one"
    second.write_text("ten\n")
    answer = launcher("logs", "12")
    assert answer.code == 2
    assert "12_3, 12_10" in answer.err
    assert launcher("logs", "12_10").out == "ten\n"
    assert launcher("logs", f"{NAME}_3.log").out == "three\n"


@pytest.mark.parametrize(
    "flags",
    [
        ("--node", "n1", "--head"),
        ("-f", "--ray"),
        ("--head", "--command-only"),
        ("--tail", "-1"),
        ("--tail", "x"),
    ],
)
def test_conflicting_options(launcher: Launcher, log: Path, flags: tuple[str, ...]) -> None:
    ended(log)
    answer = launcher("logs", "12", *flags)
    assert (answer.code, answer.out) == (2, "")
    assert "error:" in answer.err


# Following


def test_following_an_ended_job(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    whole = ended(log)
    slurm.queue = queued("12", "FAILED", "3:0")
    answer = launcher("logs", "12", "-f")
    assert (answer.code, answer.out, answer.err) == (0, whole, "")
    assert launcher("logs", "12", "-f", "--tail", "1").out == whole.splitlines(keepends=True)[-1]


def test_following_before_the_log_exists(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    """The reason is noted once; then the whole log is printed."""
    slurm.queue = queued("12", "PENDING", reason="JobHeldUser")

    def begins() -> None:
        ended(log)
        slurm.queue = queued("12", "COMPLETED")

    slurm.then = [begins]
    answer = launcher("logs", "12", "-f")
    assert answer.code == 0
    assert answer.out == log.read_text()
    assert answer.err.count("job 12 is pending: ") == 1


def test_following_a_job_that_never_had_a_log(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    slurm.queue = queued("12", "CANCELLED")
    answer = launcher("logs", "12", "-f")
    assert answer.code == 2
    assert "there is no log: job 12 was canceled" in answer.err


# The nodes


def kept(log: Path, *nodes: str) -> None:
    for node in nodes:
        folder = node_logs.folder_of(str(log)) / node
        (folder / "logs/old").mkdir(parents=True)
        (folder / "ray-start.log").write_text(f"start of {node}\n")
        for name in ("raylet.out", "gcs_server.err", "zzz", "worker-1-2.err", "old/raylet.out"):
            (folder / "logs" / name).write_text("".join(f"{name} {n}\n" for n in range(100)))
        (folder / "logs/raylet.err").write_text("")


def test_how_ray_started_on_a_node(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    ended(log)
    kept(log, "n1", "n2")
    assert launcher("logs", "12", "--node", "n2").out == "start of n2\n"
    assert launcher("logs", "12", "--head").out == "start of n1\n"
    assert slurm.asked == 0


def test_rays_own_logs(launcher: Launcher, log: Path) -> None:
    ended(log)
    kept(log, "n1", "n2")
    out = launcher("logs", "12", "--ray", "--node", "n2", "--tail", "2").out
    names = [line.split()[1] for line in out.splitlines() if line.startswith("==>")]
    assert names == [
        "n2/ray-start.log",
        "n2/logs/gcs_server.err",
        "n2/logs/worker-1-2.err",
        "n2/logs/old/raylet.out",
        "n2/logs/raylet.out",
        "n2/logs/zzz",
    ]
    assert "==> n2/logs/raylet.out <==\nraylet.out 98\nraylet.out 99\n\n" in out
    everything = launcher("logs", "12", "--ray").out
    assert everything.count("==> n1/") == 6
    assert everything.count("raylet.out 80\n") == 4, "twenty lines of each"
    assert "raylet.out 79\n" not in everything


@pytest.mark.parametrize("flags", [("--node", "n2"), ("--head",), ("--ray",), ("--ray", "--node", "n2")])
def test_kept_logs_of_a_previous_attempt_are_not_shown_for_the_current_one(
    launcher: Launcher, log: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    asked: list[str] = []

    def show(task: Task, node: str, **_: Any) -> int:
        asked.append(node)
        return 0

    monkeypatch.setattr(node_logs, "show_from_node", show)
    kept(log, "n1", "n2")
    attempt = START + END.format(outcome="node-lost", code=72)
    log.write_text(attempt + START)
    slurm.queue = queued("12", "RUNNING", restarts=1)
    assert launcher("logs", "12", *flags).out == ""
    assert asked == ["n2" if "n2" in flags else "n1"]
    for text, queue in ((attempt + START, DOWN), (attempt, queued("12", "PENDING", restarts=1)), (attempt, GONE)):
        log.write_text(text)
        slurm.queue = queue
        answer = launcher("logs", "12", *flags)
        assert (answer.code, len(asked)) == (0, 1)
        assert answer.out, "what was kept"


def test_the_node_that_failed_comes_first(launcher: Launcher, log: Path) -> None:
    log.write_text(START + END.format(outcome="node-lost", code=72).replace("phase=command", "phase=command node=n9"))
    kept(log, *(f"n{n}" for n in range(1, 20)))
    answer = launcher("logs", "12", "--ray")
    names = [line.split()[1] for line in answer.out.splitlines() if line.startswith("==>")]
    assert names[0].startswith("n9/")
    assert names[3].startswith("n1/")
    assert len(names) == 19 * 3, "of each node the most telling"
    assert f"{19 * 3} more files are in {node_logs.folder_of(str(log))}" in answer.err


def test_nothing_was_kept(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    ended(log)
    slurm.queue = queued("12", "COMPLETED")
    for flags in (("--node", "n2"), ("--head",), ("--ray",), ("--ray", "--head")):
        answer = launcher("logs", "12", *flags)
        assert (answer.code, answer.out) == (7, "")
        assert "were kept" in answer.err
        assert "kept when a job fails, or with --keep-ray-logs" in answer.err


def test_a_node_that_does_not_exist(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    log.write_text(START)
    slurm.queue = queued("12", "RUNNING", nodes="n[1-4]")
    answer = launcher("logs", "12", "--node", "n9")
    assert answer.code == 2
    assert "job 12 has no node 'n9'" in answer.err
    assert "its nodes are n1, n2, n3, n4" in answer.err


def test_an_unknown_head_node(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    answer = launcher("logs", "12", "--head")
    assert answer.code == 7
    assert "does not name the head node" in answer.err


def running(log: Path) -> Task:
    log.write_text(START)
    found = Task("12", "RUNNING", "squeue", str(log), nodes="n[1-3]")
    attempt = node_logs.last_attempt(str(log))
    assert attempt
    return lookup.with_attempt(found, attempt)


class Step:
    """Stands for srun."""

    def __init__(self, code: int, said: bytes = b"") -> None:
        self.code, self.said = code, said
        self.argv: list[str] = []

    def __call__(self, argv: list[str], *, env: Any, on_stderr: Callable[[bytes], object]) -> int:
        self.argv = argv
        on_stderr(self.said)
        return self.code


def from_node(task: Task, step: Step, node: str = "n3", **options: Any) -> int:
    options = {"ray": False, "tail": None, "follow": False, **options}
    return node_logs.show_from_node(task, node, cluster=None, env={}, on_stderr=print, interact=step, **options)


def test_from_the_node_itself(log: Path) -> None:
    step = Step(0)
    assert from_node(running(log), step, tail=5) == 0
    assert "--jobid=12" in step.argv
    assert "--nodelist=n3" in step.argv
    assert step.argv[-3:] == ["/tmp/r12-ab", "2", "5"], "the third node has the number 2"


def test_the_file_is_not_there(log: Path) -> None:
    said = b"srun: error: n3: task 0: Exited with exit code 66\n"
    with pytest.raises(WrongMoment, match="no logs of n3 were kept, and Ray is not running there"):
        from_node(running(log), Step(66, said))


def test_srun_does_not_reach_the_node(log: Path) -> None:
    step = Step(1, b"srun: error: Unable to create step for job 12: Requested nodes are busy\n")
    with pytest.raises(SlurmUnavailable, match="nodes are busy"):
        from_node(running(log), step)


def test_followed_to_the_end_of_the_job(log: Path) -> None:
    task = running(log)
    ended(log)
    step = Step(1, b"slurmstepd-n3: error: *** STEP 12.7 ON n3 CANCELLED AT 2026 ***\nsrun: error: x\n")
    assert from_node(task, step, follow=True) == 0


def test_interrupted_while_following(log: Path) -> None:
    assert from_node(running(log), Step(130), follow=True) == 130


@pytest.mark.parametrize("shared", [False, True])
def test_the_code_for_the_node(tmp_path: Path, shared: bool) -> None:
    """What srun would run there, run here."""
    for number in range(3 if shared else 1):
        folder = tmp_path / f"r12-ab.{number}"
        logs = folder / "t/session_1/logs"
        logs.mkdir(parents=True)
        (folder / "t/session_latest").symlink_to("session_1")
        (folder / "ray-start.log").write_text(f"first\nstart {number}\n")
        (logs / "raylet.out").write_text("a\nb\n")
        (logs / "raylet.err").write_text("")
        (logs / "gcs_server.err").write_text("c\n")

    def done(code: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["bash", "-c", code, "logs", str(tmp_path / "r12-ab"), "2" if shared else "7", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    number = 2 if shared else 0
    assert done(node_logs._START, "1").stdout == f"start {number}\n"
    assert done(node_logs._START, "+1").stdout == f"first\nstart {number}\n"
    ray = done(node_logs._RAY, "1", "30", *ray_logs.PRIORITY)
    assert (ray.returncode, ray.stdout) == (0, "==> gcs_server.err <==\nc\n\n==> raylet.out <==\nb\n\n")
    assert done(node_logs._RAY, "1", "1", *ray_logs.PRIORITY).stdout == "==> gcs_server.err <==\nc\n\n"


def test_the_code_for_a_node_without_ray(tmp_path: Path) -> None:
    for code in (node_logs._START, node_logs._FOLLOW, node_logs._RAY):
        argv = ["bash", "-c", code, "logs", str(tmp_path / "r12-ab"), "0", "5", "30", "*"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (66, "", "")


def test_no_slurm_here(launcher: Launcher, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Result:
        raise process.SlurmNotFound("squeue is not in PATH")

    log.write_text(START)
    monkeypatch.setattr(verb, "slurm_client", lambda: SlurmClient({}, missing))
    answer = launcher("logs", "12", "--head")
    assert answer.code == 4
    assert "squeue is not in PATH" in answer.err


def test_rays_logs_before_any_node_is_named(launcher: Launcher, log: Path, slurm: Slurm) -> None:
    """The job has its nodes, and its log is still empty."""
    slurm.queue = queued("12", "RUNNING", nodes="n[1-2]")
    answer = launcher("logs", "12", "--ray")
    assert (answer.code, answer.out) == (7, "")
    assert "no logs of the nodes were kept, and Ray is not running there: job 12 is running" in answer.err
