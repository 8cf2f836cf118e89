"""A stage for plays without Slurm: the rehearsal's stand-ins, for any script or for `slurm-launch rehearse`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from slurm_launch.rehearsal import node_daemon, rehearse
from slurm_launch.rehearsal.job import Folder, State

ROOT = Path(__file__).parents[1]
# A `ray` that only stands there: says that it runs, and as the head listens. For tests of what is around Ray.
RAY = """#!/bin/bash
echo 'Ray runtime started.'
[[ " $* " != *' --head '* ]] || exec {python} -c '
import socket, sys, time
port = next(int(word.split("=")[1]) for word in sys.argv if word.startswith("--port="))
listener = socket.create_server(("", port), backlog=200)
time.sleep(900)' "$@"
exec sleep 900
"""
PYTHON = "#!/bin/sh\necho 2.60.0\n"  # beside `ray`, so that the script asks it for the version


@dataclass
class Play:
    """What a script did on the stage."""

    output: str
    state: State
    submitted: subprocess.CompletedProcess[str]


def play(script: str, cwd: Path, *arguments: str, timeout: float = 60) -> Play:
    """Hand any script to the stand-in for sbatch, and wait for its end."""
    path = cwd / "play.sh"
    path.write_text(script)
    with rehearse.stage() as (folder, _):
        folder.write("setup.json", {"temp_dir": str(cwd)})
        programs = rehearse.stand_ins(folder)
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        argv = ["sbatch", "--parsable", *arguments, str(path)]
        done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
        job = folder.job()
        if done.returncode or job is None:
            return Play("", State(), done)
        _wait(folder, timeout)
        return Play(Path(job.output).read_text(), folder.state(), done)


def _wait(folder: Folder, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not folder.state().over:
        assert time.monotonic() < deadline, "the play does not end"
        time.sleep(0.05)


def without_ray(folder: Path) -> dict[str, str]:
    """An environment whose `ray` is none, so that a bring-up takes no time."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("ray", RAY.replace("{python}", sys.executable)), ("python3", PYTHON)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


@dataclass
class Rehearsed:
    """A call of `slurm-launch rehearse`, running or ended."""

    process: subprocess.Popen[bytes]
    cwd: Path
    tmp: Path  # its TMPDIR
    out: str = ""
    err: str = ""

    @property
    def code(self) -> int:
        return self.process.returncode

    @property
    def log(self) -> str:
        logs = list(self.cwd.glob("*.log"))
        return _text(logs[0].read_bytes()) if logs else ""

    @property
    def job_id(self) -> int:
        return int(self.log.split(" job=")[1].split()[0])

    def wait(self, timeout: float = 120) -> Rehearsed:
        """To its end, at which nothing of it may be left in TMPDIR."""
        out, err = self.process.communicate(timeout=timeout)
        self.out, self.err = _text(out), _text(err)
        assert left_in(self.tmp) == []
        shutil.rmtree(self.tmp)
        return self

    def wait_for(self, text: str, timeout: float = 90) -> Rehearsed:
        deadline = time.monotonic() + timeout
        while text not in self.log:
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.log}"
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        return self


def begin(cwd: Path, *arguments: str, env: dict[str, str] | None = None, tmp: Path | None = None) -> Rehearsed:
    argv = [sys.executable, "-m", "slurm_launch", "rehearse", "--exp-name", "test", *arguments]
    tmp = tmp or Path(tempfile.mkdtemp(prefix="slt-", dir="/tmp"))  # paths of sockets must be short
    env = {**(env or os.environ), "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp)}
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    return Rehearsed(process, cwd, tmp)


def warn(job_id: int) -> None:
    """Send the job's script what Slurm sends it before the time limit."""
    scripts = [
        pid for pid in node_daemon.marked(job_id) if b"slurm_script\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert scripts, "the script does not run"
    os.kill(min(scripts), signal.SIGUSR1)  # the first: its subshells have the same command line


def _text(data: bytes | None) -> str:
    """Such that equal texts are equal bytes; None when the test itself has closed the pipe."""
    return (data or b"").decode(errors="surrogateescape")


def left_in(tmp: Path) -> list[str]:
    """What is in a TMPDIR; Ray's dashboard is killed and leaves a directory of Python's own, everywhere."""
    return [path.name for path in tmp.iterdir() if not path.name.startswith("pymp-")]


def left(job_id: int, timeout: float = 20, tmp: Path | None = None) -> list[str]:
    """Processes and files of a rehearsal that are still there after a while."""
    found: list[str] = []
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = [f"process {pid}" for pid in node_daemon.marked(job_id)]
        found += [str(path) for path in Path("/tmp").glob(f"r{job_id}-*")]
        found += left_in(tmp) if tmp else []
        if not found:
            return []
        time.sleep(0.1)
    return found
