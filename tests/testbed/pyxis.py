"""The fake Pyxis plugin (pyxis.c): build it, and read what it recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("pyxis.c")
HEADER = Path("/usr/include/slurm/spank.h")
PACKAGES = "gcc libc6-dev libslurm-dev"
NAMED = "/run/pyxis"  # the named containers, by node; removed when the cluster is reset


class Step(NamedTuple):
    """A step of srun on one node, as the plugin recorded it. Batch scripts are not recorded."""

    node: str
    job: int
    step: int
    how: str  # host, unnamed (an unnamed container), start (a named one), attach, failed
    options: dict[str, str | bool]  # without "--"; True for those without a value
    command: list[str]


def missing() -> list[str]:
    """What is missing on this machine to build it."""
    return ["gcc"] * (not shutil.which("gcc")) + [str(HEADER)] * (not HEADER.exists())


def build(state: Path) -> None:
    """Build the plugin in the state folder of a cluster, and write its plugstack.conf."""
    plugin = state / "spank_pyxis.so"  # the name of the real one, which appears in Slurm's messages
    argv = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    done = subprocess.run([*argv, "-o", str(plugin), str(SOURCE)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"cannot build {SOURCE}:\n{done.stderr}")
    (state / "plugstack.conf").write_text(f"required /testbed/{plugin.name}\n")


def recorded(state: Path) -> list[Step]:
    """All steps so far, sorted by job, step and node."""
    lines = [line for path in state.glob("log/pyxis.*.jsonl") for line in path.read_text().splitlines()]
    return sorted((Step(**json.loads(line)) for line in lines), key=lambda step: (step.job, step.step, step.node))
