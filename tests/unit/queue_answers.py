"""Answers of squeue and sacct to the questions of `slurm.py`."""

from __future__ import annotations

from slurm_launch.process import Result

GONE = Result((), 1, "", "slurm_load_jobs error: Invalid job id specified\n")
DOWN = Result((), 1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
NO_SACCT = Result((), 1, "", "Slurm accounting storage is disabled\n")


def queued(
    job: str,
    state: str,
    code: str = "0:0",
    reason: str = "None",
    *,
    nodes: str | None = None,
    restarts: int = 0,
    start: str = "N/A",
    end: str = "N/A",
    partition: str = "main",
) -> str:
    """The line of one job, or of one task of an array."""
    nodes = ("" if state == "PENDING" else "n[1-3]") if nodes is None else nodes
    submitted = "2026-11-16T09:05:08"
    fields = [job, state, code, reason, str(restarts), "3", nodes, partition, "alice", submitted, start, end]
    return "|".join([*fields, "(null)", "t", ""]) + "\n"


def sacct(*lines: str) -> Result:
    """The answer with these beginnings of lines: 12|FAILED|3:0."""
    return Result((), 0, "".join(f"{line}|1|n1|main|alice||||t|\n" for line in lines), "")
