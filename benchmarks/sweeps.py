"""What do 10,000 points cost? `make bench` runs this; 1 is a missed goal. README.md says how it measures."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.launcher import ROOT, Measured, report
from slurm_launch import points_table, runs

POINTS = 10_000
SWEEP = ["--sweep", "lr=1e-1,1e-2,1e-3,1e-4", "--sweep", "seed=0..249", "--sweep", 'name="a b",it\'s,c,d,e,f,g,h,i,j']
SBATCH = "#!/bin/sh\necho 12\n"
SCONTROL = "#!/bin/sh\necho 'MaxArraySize = 20000'\n"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return report(measure(Path(folder)))


def measure(folder: Path) -> Iterator[Measured]:
    for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    seconds, megabytes = _submit(folder)
    what = f"submit of {POINTS:,} points: script, record and table"
    yield Measured(what, "<= 2 s", f"{seconds:.2f} s", seconds <= 2, "the whole command, with stand-ins for Slurm")
    yield Measured("its memory", "<= 150 MB", f"{megabytes:.0f} MB", megabytes <= 150, "at most resident")
    run = runs.read(next((folder / "work").glob("*.json")))
    begin = time.perf_counter()
    points = points_table.read(run)
    seconds = time.perf_counter() - begin
    assert len(points) == POINTS
    assert points[POINTS - 1] == {"lr": "1e-4", "seed": "249", "name": "j"}
    yield Measured("reading its table", "<= 0.2 s", f"{seconds:.2f} s", seconds <= 0.2, "for `status` and `list`")


def _submit(folder: Path) -> tuple[float, float]:
    """Seconds and megabytes of one submission, the best of three: other work only makes it slower."""
    found = []
    for _ in range(3):
        work = folder / "work"
        work.mkdir(exist_ok=True)
        for path in work.iterdir():
            path.unlink()
        env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-m", "slurm_launch", "--exp-name", "x", "--command", "echo {lr} {seed} {name}", *SWEEP]
        begin = time.perf_counter()
        process = subprocess.Popen(argv, cwd=work, env=env, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0, status
        found.append((time.perf_counter() - begin, used.ru_maxrss / 1024))
    return min(found)


if __name__ == "__main__":
    sys.exit(main())
