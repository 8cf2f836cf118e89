"""A run's record, and the lines of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_launch.runs.record import Run

_AT = "[slurm-launch] 2026-11-16T09:05:0"
JOINED = [f"{_AT}9+0000 joined node=n{number} nodes={number}/3\n" for number in (1, 2, 3)]
STARTING = f"{_AT}8+0000 starting nodes=3 head=n1 address=10.0.0.1:2400 auth=token job=12 dir=/tmp/r12-ab\n"
COMMAND = f"{_AT}9+0000 ready nodes=3/3 ray=2.60.0\n{_AT}9+0000 command python train.py\n"
START = STARTING + "".join(JOINED) + COMMAND
END = "[slurm-launch] 2026-11-16T09:06:00+0000 end outcome={outcome} code={code} phase=command total=52s\n"


def some_run(folder: Path | str, name: str = "t", **other: Any) -> Run:
    """Job 12 of the experiment t, with its files in that folder."""
    values: dict[str, Any] = {
        "name": name,
        "exp_name": "t",
        "spec": {},
        "job_id": "12",
        "cluster": None,
        "script": f"{folder}/{name}.sh",
        "log": f"{folder}/{name}.log",
        "record": f"{folder}/{name}.json",
        "run_dir": str(folder),
        "submit_dir": str(folder),
        "created": "2026-11-16T09:05:07+00:00",
        "submitted": "2026-11-16T09:05:08+00:00",
        "argv": [],
        "user": "alice",
        "host": "login",
        "version": "0.1.0",
    }
    return Run(**{**values, **other})
