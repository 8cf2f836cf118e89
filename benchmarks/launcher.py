"""Start-up time, throughput and memory of the launcher. README.md describes the method."""

from __future__ import annotations

import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.measured import Measured, at_least, at_most, seconds_and_megabytes
from slurm_launch import LaunchSpec, render

ROOT = Path(__file__).parents[1]
ROUNDS = 41
LAZY = ("jinja2", "yaml", "slurm_launch.spec.model", "rich", "hostlist")  # what `--version` must not import

HELLO = """
import typer

app = typer.Typer()

@app.command()
def hello(name: str = "world") -> None:
    print(f"hello {name}")
"""
START = "from {module} import {main}\n{main}()\n"  # as a console script does
MODULES = """
import sys
from slurm_launch.cli.main import run
run(["--version"])
print(*sorted(sys.modules), file=sys.stderr)
"""


def measure() -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        yield from Bench(Path(folder)).measure()


class Bench:
    """The launcher and a hello-world app, installed the same way: below `folder`, compiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "slurm_launch", folder / "slurm_launch", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "templates", folder / "slurm_launch/templates")
        (folder / "hello.py").write_text(HELLO)
        compileall.compile_dir(folder, quiet=1)
        self.launcher = self._script("launch", START.format(module="slurm_launch.cli", main="main"))
        self.hello = self._script("greet", START.format(module="hello", main="app"))
        self.modules = self._script("modules", MODULES)
        (folder / "work").mkdir()  # the working directory, without a project file
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder / "work"), "PYTHONPATH": str(folder)}

    def _script(self, name: str, code: str) -> str:
        path = self.folder / f"{name}.script"
        path.write_text(code)
        return str(path)

    def measure(self) -> Iterator[Measured]:
        job = [self.launcher, "render", "--exp-name", "x", "--command", "true"]
        three = [*job, "--num-nodes", "3"]
        yield self._ratio("render of a 3-node job / hello-world Typer app", 1.5, three, [self.hello, "--name", "x"])
        many, few = [*job, "--node", "n[00001-10000]"], [*job, "--node", "n[01-10]"]
        yield self._ratio("render with --node of 10,000 hosts / of 10 hosts", 2.0, many, few)
        yield self._version()
        yield _scripts_a_second()
        yield self._memory()

    def _ratio(self, what: str, goal: float, ours: list[str], other: list[str]) -> Measured:
        above, below = self._medians([ours, other])
        detail = f"{above * 1000:.0f} ms / {below * 1000:.0f} ms, medians of {ROUNDS}"
        return at_most(what, goal, above / below, detail)

    def _medians(self, calls: Sequence[list[str]]) -> list[float]:
        """Return the median time of each call. The calls take turns, so that other load affects all of them alike."""
        for argv in calls:  # warm the page cache
            self._call(argv)
        times: list[list[float]] = [[] for _ in calls]
        for turn in range(ROUNDS):
            for index in range(len(calls)) if turn % 2 else reversed(range(len(calls))):
                begin = time.perf_counter()
                self._call(calls[index])
                times[index].append(time.perf_counter() - begin)
        return [statistics.median(taken) for taken in times]

    def _call(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *argv]
        return subprocess.run(
            command, cwd=self.folder / "work", env=self.env, capture_output=True, text=True, check=True
        )

    def _version(self) -> Measured:
        loaded = self._call([self.modules]).stderr.split()
        lazy = [name for name in LAZY if name in loaded]
        others = sorted({name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"__main__"})
        detail = (
            f"loaded besides the standard library: {', '.join(name for name in others if not name.startswith('_'))}"
        )
        return Measured(
            f"imported by --version, of {', '.join(LAZY)}", "none", " ".join(lazy) or "none", not lazy, detail
        )

    def _memory(self) -> Measured:
        """Measure one submission, with a fake sbatch."""
        (self.folder / "sbatch").write_text("#!/bin/sh\necho 12\n")
        (self.folder / "sbatch").chmod(0o755)
        argv = [sys.executable, self.launcher, "--exp-name", "x", "--command", "true", "--num-nodes", "3"]
        env = self.env | {"PATH": f"{self.folder}:{self.env['PATH']}"}
        _, megabytes = seconds_and_megabytes(argv, self.folder / "work", env)
        return at_most("memory of one submission", 150, megabytes, "peak resident set", " MB")


def _scripts_a_second(seconds: float = 2.0) -> Measured:
    """Render through the Python API, on one core: a new spec and its script each time."""
    when, count = datetime(2026, 1, 2, tzinfo=timezone.utc), 0
    render(LaunchSpec(exp_name="first", command="true", num_nodes=3), when=when)  # compiles the template
    begin = time.process_time()
    while (taken := time.process_time() - begin) < seconds:
        render(LaunchSpec(exp_name=f"x{count}", command="python train.py", num_nodes=3), when=when)
        count += 1
    detail = f"{count} in {taken:.1f} s of CPU time"
    return at_least("scripts per second through the Python API", 1000, count / taken, detail)
