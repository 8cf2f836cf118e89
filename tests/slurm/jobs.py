"""Submit a job on the test cluster as the user alice, and read its files."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any

from slurm_launch import LaunchSpec
from slurm_launch.rendering.render import render_script
from tests import fake_slurm
from tests.testbed import Cluster

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv"
OLD_RAY = ROOT / ".venv-old-ray"
HOME = "/home/alice"
_numbers = count(1)


@dataclass
class Job:
    """A submitted job."""

    cluster: Cluster
    id: str
    name: str
    user: str = "alice"
    state: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        path = self.cluster.path(f"/home/{self.user}/{self.name}.log")
        return path.read_text() if path.exists() else ""

    @property
    def script(self) -> str:
        return self.cluster.path(f"/home/{self.user}/{self.name}.sh").read_text()

    @property
    def output(self) -> list[str]:
        """The lines of the command's output."""
        return [line for line in self.log.splitlines() if not line.startswith("[slurm-launch]")]

    @property
    def phases(self) -> list[str]:
        return [line.split()[2] for line in self.log.splitlines() if re.match(r"\[slurm-launch\] \d{4}-", line)]

    @property
    def end(self) -> dict[str, str]:
        """The fields of the last line of the script; slurmstepd may append a message of its own."""
        lines = [line for line in self.log.splitlines() if not re.match(r"slurmstepd(-\w+)?: |\[\S+ error: ", line)]
        last = lines[-1] if lines else ""
        assert " end outcome=" in last, self.log
        return {key: plain or quoted for key, quoted, plain in re.findall(r'([a-z-]+)=(?:"([^"]*)"|(\S+))', last)}

    @property
    def code(self) -> int:
        return int(self.state["ExitCode"].split(":")[0])

    def kept(self, node: str) -> list[str]:
        folder = self.cluster.path(f"/home/{self.user}/{self.name}.ray/{node}")
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []

    def wait(self, timeout: float = 90) -> Job:
        self.state = self.cluster.wait_job(self.id, timeout)
        return self

    def wait_for(self, text: str, timeout: float = 60) -> Job:
        """Wait until the pattern appears in the log."""
        import time

        for _ in range(int(timeout * 10)):
            if re.search(text, self.log):
                return self
            time.sleep(0.1)
        raise AssertionError(f"{text!r} did not appear within {timeout} s:\n{self.log}")


def write(cluster: Cluster, *, user: str = "alice", ray: Path = VENV, **options: Any) -> Job:
    """Write a script with these options, for a job without an ID; `ray` is the virtual environment with Ray."""
    # The dashboard is a fifth of the work of a bring-up; tests that need it enable it.
    options = {"exp_name": "test", "cpus_per_task": 1, "command": "true", "dashboard": False, **options}
    options["load_env"] = [f"export PATH={shlex.quote(str(ray / 'bin'))}:$PATH", *options.get("load_env", [])]
    spec = LaunchSpec(**options)
    name = f"{spec.exp_name}-{next(_numbers)}"
    text = render_script(spec, name=name, when=datetime(2026, 11, 16, tzinfo=timezone.utc))
    cluster.run(["tee", f"{name}.sh"], user=user, stdin=text, check=True)
    return Job(cluster, "", name, user)


def submit(cluster: Cluster, *, arguments: tuple[str, ...] = (), **options: Any) -> Job:
    """Write a script with these options and submit it, with additional arguments for sbatch."""
    job = write(cluster, **options)
    result = cluster.run(["sbatch", "--parsable", *arguments, f"{job.name}.sh"], user=job.user)
    assert result.returncode == 0, result.stderr
    job.id = result.stdout.strip()
    return job


def run(cluster: Cluster, timeout: float = 90, **options: Any) -> Job:
    return submit(cluster, **options).wait(timeout)


def python(code: str) -> str:
    """A shell command that runs this Python code."""
    return f"python3 -c {shlex.quote(code)}"


def wrapped_ray(cluster: Cluster, code: str, ray: str = f"{VENV}/bin/ray") -> str:
    """Shell code for load_env that adds a `ray` to PATH which runs this code before the real one."""
    folder = f"{HOME}/wrapped-{next(_numbers)}"
    script = f'#!/bin/bash\n{code}\nexec "{ray}" "$@"\n'
    cluster.run(["mkdir", folder], check=True)
    cluster.run(["tee", f"{folder}/ray"], stdin=script, check=True)
    cluster.run(["chmod", "755", f"{folder}/ray"], check=True)
    return f"export PATH={folder}:$PATH"


def standing_ray(cluster: Cluster, python: str = "/usr/bin/python3") -> str:
    """Shell code for load_env that adds a fake `ray` to PATH, which starts in no time.

    It appends the node's name to ~/started."""
    ray = fake_slurm.FAKE_RAY.replace("{python}", python).replace(
        "\n", f'\necho "$SLURMD_NODENAME" >>{HOME}/started\n', 1
    )
    cluster.run(["mkdir", "-p", f"{HOME}/standing"], check=True)
    for name, text in (("ray", ray), ("python3", fake_slurm.FAKE_PYTHON)):
        cluster.run(["tee", f"{HOME}/standing/{name}"], stdin=text, check=True)
        cluster.run(["chmod", "755", f"{HOME}/standing/{name}"], check=True)
    return f"export PATH={HOME}/standing:$PATH"
