"""Every example runs, as its README says: in a rehearsal, from its own directory with its project file."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_slurm import ROOT, RehearsalProcess, leftovers, send_warning, start_rehearsal

EXAMPLES = ROOT / "examples"
PATH = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
real_ray = pytest.mark.skipif(
    not shutil.which("ray", path=os.path.dirname(sys.executable)), reason="Ray is not installed: run `make test`"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy, because runs leave files behind."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("runs", "results", "__pycache__"))
    return tmp_path / "examples"


def rehearsed(folder: Path, *arguments: str) -> RehearsalProcess:
    done = start_rehearsal(folder, *arguments, env={**os.environ, "PATH": PATH}).wait()
    assert done.code == 0, done.out + done.err
    assert leftovers(int(done.out.split(" job=")[1].split()[0])) == []
    return done


@real_ray
def test_pi(folder: Path) -> None:
    """By the project file: three nodes, and the run's files in runs/."""
    done = rehearsed(folder, "--", "python", "pi.py")
    for node in ("node0", "node1", "node2"):
        assert f"  {node}  ##########  10 tasks" in done.out, done.out
    assert "pi = 3.14" in done.out
    assert {path.suffix for path in (folder / "runs").iterdir()} == {".sh", ".log", ".json"}


@real_ray
def test_rollouts(folder: Path) -> None:
    done = rehearsed(folder, "--num-nodes", "2", "--", "python", "rollouts.py")
    assert all(node in done.out for node in ("node0", "node1")), done.out


@real_ray
def test_a_gpu_that_is_not_there(folder: Path) -> None:
    done = rehearsed(folder, "--num-nodes", "1", "--num-gpus", "2", "--", "python", "gpu_torch.py")
    assert "worker 1 on node0" in done.out, done.out
    assert "no GPU: " in done.out
    assert "weights 2.000, -3.000, 0.500" in done.out


@real_ray
@pytest.mark.skipif(not importlib.util.find_spec("pandas"), reason="Ray Tune is not installed: run `make test`")
def test_tune(folder: Path) -> None:
    done = rehearsed(folder, "--num-nodes", "2", "--", "python", "tune.py", "--trials", "3")
    assert "3 trials, 0 failed" in done.out, done.out


@real_ray
def test_checkpoint(folder: Path) -> None:
    """Two attempts. The test sends the warning itself: by the clock it could come before the command has started."""
    flags = ["--num-nodes", "1", "--run-dir", ".", "--time", "60", "--signal-before", "30", "--requeue"]
    command = ["--", "python", "checkpoint.py", "--steps", "80"]
    running = start_rehearsal(folder, *flags, *command, env={**os.environ, "PATH": PATH}).wait_for("attempt 0")
    send_warning(running.job_id)
    done = running.wait()
    assert done.code == 0, done.out + done.err
    assert " requeue restart=1 reason=time-limit" in done.out, done.out
    saved = done.out.split("saved after step ")[1].split()[0]
    assert f"attempt 1: continuing after step {saved}\n" in done.out, done.out
    assert "the sum of 1 to 80 is 3240" in done.out


@real_ray
def test_a_point_of_a_sweep(folder: Path) -> None:
    words = [
        "--sweep-file",
        "points.csv",
        "--tasks",
        "1",
        "--",
        "python",
        "sweep.py",
        "--lr",
        "{lr}",
        "--seed",
        "{seed}",
    ]
    done = rehearsed(folder, "--num-nodes", "1", *words)
    assert "lr=0.2 seed=1: slope 2.0" in done.out, done.out
    assert " point number=1 lr=0.2 seed=1\n" in done.out


def test_the_profile_is_valid(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "config/slurm-launch"
    shutil.copytree(folder / "profiles", home / "profiles")
    argv = [sys.executable, "-m", "slurm_launch", "render", "--profile", "pyxis-gpu", "--exp-name", "pi"]
    argv += ["--node", "[01-02]", "--num-nodes", "2", "--num-gpus", "1", "--command", "python pi.py"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(home.parent), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in (
        "#SBATCH --gres=gpu:a100:1",
        "#SBATCH --partition=gpu",
        "interface=ib0",
        "#SBATCH --nodelist=gpu[01-02]",
    ):
        assert line in done.stdout


def test_every_example_is_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("**/*.[py][ya]*"):
        if path.suffix in (".py", ".yaml") and "runs" not in path.parts:
            assert f"({path.relative_to(EXAMPLES)})" in readme
