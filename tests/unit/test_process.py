"""Running a program: its result, and that no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_launch import process
from slurm_launch.errors import SlurmUnavailable, UsageError

ROOT = Path(__file__).parents[2]


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 30
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.01)
    return path.read_text()


def is_ended(pid: int) -> bool:
    """A killed process may take a moment to disappear; a forgotten one stays."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_the_result_has_the_whole_output() -> None:
    result = process.run(["bash", "-c", "echo out; echo err >&2; exit 7"], timeout=30)
    assert result == process.Result(("bash", "-c", "echo out; echo err >&2; exit 7"), 7, "out\n", "err\n")


def test_stdin_environment_and_directory_arrive(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "ONLY": "this"}
    result = process.run(["bash", "-c", "cat; pwd -P; env"], env=env, cwd=str(tmp_path), timeout=30, stdin="in ü\n")
    assert result.stdout.startswith(f"in ü\n{tmp_path.resolve()}\n")
    assert "ONLY=this" in result.stdout
    assert "HOME=" not in result.stdout


def test_without_stdin_a_program_reads_nothing() -> None:
    assert process.run(["cat"], timeout=30).stdout == ""


def test_output_that_is_not_utf_8() -> None:
    assert process.run(["printf", r"a\377b"], timeout=30).stdout == "a\ufffdb"


def test_missing_slurm_program_is_slurm_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SlurmUnavailable, match="sbatch is not in PATH") as caught:
        process.run(["sbatch", "x"], env={"PATH": str(tmp_path)}, timeout=30)
    assert isinstance(caught.value, process.NotFound)
    assert caught.value.exit_code == 4
    assert "login node" in str(caught.value.hint)


def test_another_missing_program_is_not_slurm_unavailable(tmp_path: Path) -> None:
    with pytest.raises(process.NotFound, match="shellcheck is not in PATH") as caught:
        process.run(["shellcheck", "x"], env={"PATH": str(tmp_path)}, timeout=30)
    assert not isinstance(caught.value, SlurmUnavailable)
    assert "install shellcheck" in str(caught.value.hint)


def test_a_file_that_is_not_executable(tmp_path: Path) -> None:
    (tmp_path / "sbatch").write_bytes(b"\0\1\2")
    (tmp_path / "sbatch").chmod(0o755)
    with pytest.raises(process.SlurmNotFound, match="cannot start sbatch"):
        process.run(["sbatch"], env={"PATH": str(tmp_path)}, timeout=30)


def test_missing_directory_is_not_taken_for_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        process.run(["true"], cwd=str(tmp_path / "gone"), timeout=30)


def test_a_timeout_terminates_the_program_and_its_children(tmp_path: Path) -> None:
    """Even a child that ignores SIGTERM and holds the pipes open."""
    text = "#!/bin/bash\n(trap '' TERM; echo $BASHPID > child.tmp; mv child.tmp child; exec sleep 600) & wait\n"
    program(tmp_path / "sbatch", text)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with pytest.raises(SlurmUnavailable, match="sbatch did not answer within 1 s") as caught:
        process.run(["sbatch"], env=env, cwd=str(tmp_path), timeout=1)
    assert caught.value.exit_code == 4
    assert isinstance(caught.value, process.TimedOut)
    assert is_ended(int(wait_for(tmp_path / "child")))


def test_a_timeout_of_another_program() -> None:
    with pytest.raises(process.TimedOut, match="sleep did not answer") as caught:
        process.run(["sleep", "600"], timeout=0.1)
    assert not isinstance(caught.value, SlurmUnavailable)
    assert "sleep 600" in str(caught.value.hint)


def test_ctrl_c_terminates_the_program_and_is_raised_again(tmp_path: Path) -> None:
    program(tmp_path / "hang", "#!/bin/bash\necho $$ > pid.tmp; mv pid.tmp pid; sleep 600 & wait\n")
    driver = (
        "from slurm_launch import process\n"
        "try:\n    process.run(['./hang'], timeout=600)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    ours = subprocess.Popen(
        [sys.executable, "-c", driver],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(wait_for(tmp_path / "pid"))
    ours.send_signal(signal.SIGINT)
    assert ours.communicate(timeout=30)[0] == "interrupted\n"
    assert is_ended(child)
