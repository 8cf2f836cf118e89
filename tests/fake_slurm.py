"""Jobs without Slurm: any script on the rehearsal's fake Slurm commands, or `slurm-launch rehearse`."""

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
from slurm_launch.rehearsal.job import RehearsalFolder, RehearsedState
from tests.processes import DEFAULT_HANGUP

ROOT = Path(__file__).parents[1]
# A fake `ray`: prints that it runs, sleeps, and listens as the head. For tests of the code around Ray.
FAKE_RAY = """#!/bin/bash
echo 'Ray runtime started.'
[[ " $* " != *' --head '* ]] || exec {python} -c '
import socket, sys, time
port = next(int(word.split("=")[1]) for word in sys.argv if word.startswith("--port="))
listener = socket.create_server(("", port), backlog=200)
time.sleep(900)' "$@"
exec sleep 900
"""
FAKE_PYTHON = "#!/bin/sh\necho 2.60.0\n"  # next to `ray`: the script asks it for the version of Ray


@dataclass
class JobRun:
    """What a script did as a job on the fake Slurm commands."""

    output: str
    state: RehearsedState
    submitted: subprocess.CompletedProcess[str]


def run_job(script: str, cwd: Path, *arguments: str, timeout: float = 60) -> JobRun:
    """Submit a script to the fake sbatch and wait for its end."""
    path = cwd / "job.sh"
    path.write_text(script)
    with rehearse.rehearsal_folder() as (folder, _):
        folder.write("setup.json", {"temp_dir": str(cwd)})
        programs = rehearse.install_fake_commands(folder)
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        argv = ["sbatch", "--parsable", *arguments, str(path)]
        done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
        job = folder.job()
        if done.returncode or job is None:
            return JobRun("", RehearsedState(), done)
        _wait(folder, timeout)
        return JobRun(Path(job.output).read_text(), folder.state(), done)


def _wait(folder: RehearsalFolder, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not folder.state().over:
        assert time.monotonic() < deadline, "the job does not end"
        time.sleep(0.05)


def env_with_fake_ray(folder: Path) -> dict[str, str]:
    """An environment with a fake `ray`, so that a bring-up takes no time."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("ray", FAKE_RAY.replace("{python}", sys.executable)), ("python3", FAKE_PYTHON)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


@dataclass
class RehearsalProcess:
    """A process of `slurm-launch rehearse`, running or ended."""

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

    def wait(self, timeout: float = 120) -> RehearsalProcess:
        """Wait for its end; it must leave nothing in TMPDIR."""
        out, err = self.process.communicate(timeout=timeout)
        self.out, self.err = _text(out), _text(err)
        assert files_in(self.tmp) == []
        shutil.rmtree(self.tmp)
        return self

    def wait_for(self, text: str, timeout: float = 90) -> RehearsalProcess:
        deadline = time.monotonic() + timeout
        while text not in self.log:
            assert time.monotonic() < deadline, f"{text!r} did not appear:\n{self.log}"
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        return self


def start_rehearsal(
    cwd: Path, *arguments: str, env: dict[str, str] | None = None, tmp: Path | None = None
) -> RehearsalProcess:
    argv = [*DEFAULT_HANGUP, sys.executable, "-m", "slurm_launch", "rehearse", "--exp-name", "test", *arguments]
    tmp = tmp or Path(tempfile.mkdtemp(prefix="slt-", dir="/tmp"))  # socket paths must be short
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
    started.append(RehearsalProcess(process, cwd, tmp))
    return started[-1]


started: list[RehearsalProcess] = []  # by the current test


def end_unfinished() -> None:
    """End the rehearsals that a failed test has left running, with all processes of their jobs."""
    while started:
        one = started.pop()
        if one.process.poll() is not None:
            continue
        one.process.kill()  # its daemon notices and ends the job
        one.process.communicate()
        if " job=" in one.log:
            leftovers(one.job_id, 40)
            node_daemon.kill(signal.SIGKILL, node_daemon.processes_of_job(one.job_id))
        shutil.rmtree(one.tmp, ignore_errors=True)


def send_warning(job_id: int) -> None:
    """Send the job's script the signal that Slurm sends before the time limit."""
    scripts = [
        pid
        for pid in node_daemon.processes_of_job(job_id)
        if b"slurm_script\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert scripts, "the script is not running"
    os.kill(min(scripts), signal.SIGUSR1)  # the first: its subshells have the same command line


def _text(data: bytes | None) -> str:
    """Decode without loss, so that equal texts are equal bytes; None if the test has closed the pipe."""
    return (data or b"").decode(errors="surrogateescape")


def files_in(tmp: Path) -> list[str]:
    """The names in a TMPDIR, without pymp-*: Ray's dashboard is killed and leaves such a directory on any system."""
    return [path.name for path in tmp.iterdir() if not path.name.startswith("pymp-")]


def leftovers(job_id: int, timeout: float = 20, tmp: Path | None = None) -> list[str]:
    """Processes and files of a rehearsal that remain after a while."""
    found: list[str] = []
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = [f"process {pid}" for pid in node_daemon.processes_of_job(job_id)]
        found += [str(path) for path in Path("/tmp").glob(f"r{job_id}-*")]
        found += files_in(tmp) if tmp else []
        if not found:
            return []
        time.sleep(0.1)
    return found
