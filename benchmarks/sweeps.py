"""The cost of a sweep of 10,000 points. README.md describes the method."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.launcher import ROOT
from benchmarks.measured import Measured, at_most, seconds_and_megabytes
from slurm_launch.runs import points_table
from slurm_launch.runs import record as records

POINTS, SUBMISSIONS = 10_000, 3
SWEEP = ["--sweep", "lr=1e-1,1e-2,1e-3,1e-4", "--sweep", "seed=0..249", "--sweep", 'name="a b",it\'s,c,d,e,f,g,h,i,j']
SBATCH = "#!/bin/sh\necho sbatch >>../calls\necho 12\n"
SCONTROL = "#!/bin/sh\necho 'MaxArraySize = 20000'\n"


def measure() -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure(Path(folder))


def _measure(folder: Path) -> Iterator[Measured]:
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    seconds, megabytes = _submit(folder)
    calls = len((folder / "calls").read_text().split()) / SUBMISSIONS
    what = f"submit of {POINTS:,} points: script, record and table"
    yield at_most(what, 2, seconds, "the whole command, with a fake Slurm", " s")
    yield Measured("its sbatch calls", "1", f"{calls:g}", calls == 1, "one array job")
    yield at_most("its memory", 150, megabytes, "peak resident set", " MB")
    run = records.read(next((folder / "work").glob("*.json")))
    begin = time.perf_counter()
    points = points_table.read(run)
    seconds = time.perf_counter() - begin
    assert len(points) == POINTS
    assert points[POINTS - 1] == {"lr": "1e-4", "seed": "249", "name": "j"}
    yield at_most("reading its table", 0.2, seconds, "for `status` and `list`", " s")


def _submit(folder: Path) -> tuple[float, float]:
    """Return seconds and megabytes of one submission, the best of three: other load only makes it slower."""
    found = []
    for _ in range(SUBMISSIONS):
        work = folder / "work"
        work.mkdir(exist_ok=True)
        for path in work.iterdir():
            path.unlink()
        env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "slurm_launch", "--exp-name", "x", "--command", "echo {lr} {seed} {name}", *SWEEP]
        found.append(seconds_and_megabytes(argv, work, env))
    return min(found)
