"""The table of a sweep, `<name>.points.csv`: the point of each array task, also for spreadsheets.

task,job,lr,seed,log
0,1234_0,1e-3,0,/home/me/test_20261116-025047_0.log
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from slurm_launch.runs import files as run_files
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids

_BEFORE, _AFTER = ["task", "job"], ["log"]  # the columns around those of the keys, whose names are free


def write(run: Run, keys: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Create the table of a submitted run; an existing file is never overwritten."""
    if run.points is None:
        return
    stem = run.log.removesuffix(".log")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*_BEFORE, *keys, *_AFTER])
    for task in array_ids.array_numbers(run.array_indexes or ""):
        table.writerow([task, f"{run.job_id}_{task}", *rows[task], f"{stem}_{task}.log"])
    path = Path(run.points)
    try:
        run_files.write_new(path, text.getvalue().encode("utf-8"), 0o600)
    except OSError as error:
        raise run_files.unwritable(path, error) from None


def read(run: Run) -> dict[int, dict[str, str]]:
    """The point of each task by its number; empty without a sweep, or if the table is missing or damaged."""
    if run.points is None:
        return {}
    try:
        with open(run.points, encoding="utf-8", newline="") as file:
            rows = iter(csv.reader(file, strict=True))
            header = next(rows)
            if header[:2] != _BEFORE or header[2:][-1:] != _AFTER:
                return {}
            keys = header[2:-1]
            return {int(task): dict(zip(keys, values, strict=True)) for task, _, *values, _ in rows}
    except (OSError, ValueError, StopIteration, csv.Error):
        return {}
