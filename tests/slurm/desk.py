"""A user on the login node of the test cluster, who uses slurm-launch from the command line."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
import uuid
from pathlib import Path
from typing import IO

from slurm_launch.runs.record import Run
from tests.slurm.jobs import ROOT, VENV, standing_ray
from tests.terminal import Terminal
from tests.testbed import Cluster


def read_until(process: subprocess.Popen[str], pattern: str, seconds: float = 90, stream: IO[str] | None = None) -> str:
    """Read the stdout of a process, or that stream, up to the end of the line that matches the pattern.

    Reads byte by byte and unbuffered, so that communicate() returns all the rest.
    """
    stream = stream or process.stdout
    assert stream
    deadline, output, line = time.monotonic() + seconds, b"", b""
    while not (line.endswith(b"\n") and re.search(pattern, line.decode(errors="replace"))):
        line = b"" if line.endswith(b"\n") else line
        ready, _, _ = select.select([stream], [], [], max(0, deadline - time.monotonic()))
        byte = os.read(stream.fileno(), 1) if ready else b""
        why = "it ended" if ready else f"timeout after {seconds} s"
        output, line = output + byte, line + byte
        assert byte, f"{pattern!r} did not appear, {why}:\n{output.decode(errors='replace')}"
    return output.decode(errors="replace")


class Desk:
    """A user with their own directory and index of runs."""

    def __init__(self, cluster: Cluster, user: str = "alice", home: str | None = None) -> None:
        self.cluster = cluster
        self.user = user
        self.home = home or f"/home/{user}/{uuid.uuid4().hex[:8]}"
        cluster.run(["mkdir", "-p", self.home], user=user, check=True)
        self.env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "XDG_STATE_HOME": f"{self.home}/state"}
        self.python = str(VENV / "bin/python")

    def argv(self, *words: str) -> list[str]:
        return [self.python, "-m", "slurm_launch", *words]

    def call(self, *words: str, stdin: str | None = None, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """Run slurm-launch once."""
        return self.cluster.run(
            self.argv(*words), user=self.user, env=self.env, cwd=self.home, stdin=stdin, timeout=timeout
        )

    def terminal(self, *words: str) -> Terminal:
        """The same on a terminal inside the cluster, so that Ctrl-C does not end the connection to it."""
        env = self.env | {"TERM": "xterm", "NO_COLOR": "1"}
        argv = ["setsid", "--ctty", "--wait", *self.argv(*words)]
        return Terminal(self.cluster._argv(argv, self.user, None, env, self.home))

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return self.cluster.popen(self.argv(*words), user=self.user, env=self.env, cwd=self.home)

    def launch(self, *flags: str, ray: Path | None = None) -> Run:
        """Submit a run; `ray` is the virtual environment with Ray, by default a fake `ray` is used."""
        bin_folder = f"export PATH={ray}/bin:$PATH" if ray else standing_ray(self.cluster)
        done = self.call("--exp-name", "test", "--cpus-per-task", "1", "--load-env", bin_folder, "--json", *flags)
        assert done.returncode == 0, done.stderr
        return self.record(json.loads(done.stdout)["record"])

    def record(self, path: str) -> Run:
        """Read a record by its path in the cluster; records.read would expect it at the same path on this machine."""
        return Run(**json.loads(self.cluster.path(path).read_text()))

    def log(self, run: Run, task: str = "") -> str:
        path: Path = self.cluster.path(run.log.removesuffix(".log") + task + ".log")
        return path.read_text() if path.exists() else ""

    def wait_for(self, run: Run, text: str, task: str = "", seconds: float = 150) -> None:
        """Wait until the pattern appears in the log."""
        deadline = time.monotonic() + seconds
        while not re.search(text, log := self.log(run, task)):
            over = time.monotonic() > deadline or " end outcome=" in log
            assert not over, f"{text!r} did not appear:\n{log}"
            time.sleep(0.1)

    def up(self, run: Run, task: str = "") -> Run:
        """Wait until the command has printed `up`."""
        self.wait_for(run, r"\nup\n", task)
        return run

    def states(self, run: Run) -> list[str]:
        return sorted(job["JobState"] for job in self.cluster.jobs(str(run.job_id)))

    def file(self, name: str, text: str) -> str:
        """Write a file as the user and return its path."""
        path = f"{self.home}/{name}"
        self.cluster.run(["tee", path], user=self.user, stdin=text, check=True)
        return path


WAIT = "echo up; exec sleep 600"  # a command that runs until it is ended
