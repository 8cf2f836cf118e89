"""How fast runs are found and listed among a thousand. README.md describes the method."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measured import Measured
from slurm_launch import LaunchSpec
from slurm_launch.launch import submit as submission
from slurm_launch.process import Result
from slurm_launch.runs import index, search

RUNS, ROUNDS = 1000, 11
ROOT = Path(__file__).parents[1]
# A fake Slurm: every tenth run is in the queue, the others in accounting. Each call adds a line.
SQUEUE = """#!/bin/sh
echo squeue >>{calls}
cat {folder}/queue
"""
SACCT = """#!/bin/sh
echo sacct >>{calls}
cat {folder}/accounts
"""


def measure() -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        yield from Bench(Path(folder)).measure()


class Bench:
    """A thousand launches in ten directories, and a fake Slurm that lists them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"HOME": str(folder / "home"), "PATH": f"{folder}:{os.environ['PATH']}", "USER": "me"}
        queue, accounts = [], []
        for number in range(RUNS):
            where = folder / f"runs{number % 10}"
            where.mkdir(exist_ok=True)
            spec = LaunchSpec(exp_name=f"e{number}", command="python train.py", num_nodes=3)
            answer = Result((), 0, f"{number + 1}\n", "")
            run = submission.submit(spec, env=self.env, cwd=where, runner=lambda *_, said=answer, **__: said)
            if number % 10:
                times = "2026-11-16T11:48:18|2026-11-16T11:48:20|2026-11-16T11:50:00"
                line = (
                    f"{run.job_id}|COMPLETED|0:0|3|n[1-3]|main|me|{times}|{run.exp_name}|sbatch --parsable {run.script}"
                )
                accounts.append(line)
            else:
                times = "2026-11-16T11:48:18|2026-11-16T11:48:20|N/A"
                line = f"{run.job_id}|RUNNING|0:0|None|0|3|n[1-3]|main|me|{times}|{run.script}|{run.exp_name}|"
                queue.append(line)
        (folder / "queue").write_text("\n".join(queue) + "\n")
        (folder / "accounts").write_text("\n".join(accounts) + "\n")
        for name, text in (("squeue", SQUEUE), ("sacct", SACCT)):
            (folder / name).write_text(text.format(calls=folder / "calls", folder=folder))
            (folder / name).chmod(0o755)

    def measure(self) -> Iterator[Measured]:
        elsewhere = self.folder / "home"
        taken = _median(lambda: [entry.read() for entry in index.entries(self.env, elsewhere)])
        count = len(index.entries(self.env, elsewhere))
        yield Measured(
            f"seconds to find and read {count} records through the index",
            "<= 0.3",
            f"{taken:.3f}",
            taken <= 0.3 and count == RUNS,
            f"median of {ROUNDS}, in one process",
        )
        yield self._find(elsewhere)
        yield from self._list()

    def _find(self, elsewhere: Path) -> Measured:
        one = _median(lambda: search.find("e500_", self.env, elsewhere))
        folder = index.index_folder(self.env)
        assert folder is not None
        stat = _median(lambda: [os.path.isfile(f"{folder}/{name}") for name in os.listdir(folder)])
        return Measured(
            f"to find one run of {RUNS} by its name / to list the index and check each of its links",
            "<= 1.0",
            f"{one / stat:.2f}",
            one / stat <= 1,
            f"{one * 1000:.1f} ms / {stat * 1000:.1f} ms, medians of {ROUNDS}",
        )

    def _list(self) -> Iterator[Measured]:
        """Compare the whole command with one that only starts."""
        ours: list[float] = []
        start: list[float] = []
        for _ in range(ROUNDS):
            (self.folder / "calls").write_text("")
            ours.append(self._call("list", "--json"))
            start.append(self._call("--version"))
        own = statistics.median(ours) - statistics.median(start)
        yield Measured(
            f"seconds of `list` with {RUNS} runs, without its start",
            "<= 1.0",
            f"{own:.2f}",
            own <= 1,
            f"{statistics.median(ours) * 1000:.0f} ms, of which the start {statistics.median(start) * 1000:.0f} ms",
        )
        calls = (self.folder / "calls").read_text().split()
        yield Measured("Slurm commands run by `list`", "<= 2", str(len(calls)), len(calls) <= 2, ", ".join(calls))

    def _call(self, *argv: str) -> float:
        env = self.env | {"PYTHONPATH": str(ROOT), "LOGNAME": "me"}
        begin = time.perf_counter()
        command = [sys.executable, "-m", "slurm_launch", *argv]
        done = subprocess.run(command, cwd=self.folder / "home", env=env, capture_output=True, text=True, check=True)
        taken = time.perf_counter() - begin
        if argv[0] == "list":
            states = [run["state"] for run in json.loads(done.stdout)["runs"]]
            assert (states.count("RUNNING"), states.count("COMPLETED")) == (RUNS // 10, RUNS - RUNS // 10)
        return taken


def _median(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
