"""Asking Slurm about jobs: its queue, its accounting, its controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.errors import LaunchError
from slurm_launch.launch.submit import TIMEOUT
from slurm_launch.process import Result, Runner
from slurm_launch.runs.record import Run
from slurm_launch.slurm import jobs, sbatch
from slurm_launch.slurm.jobs import JobState

MOST_JOBS = 10_000  # that sacct is asked for: an argument holds 128 kB


@dataclass(frozen=True)
class Asking:
    """How Slurm is asked."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = TIMEOUT

    def __call__(self, argv: list[str]) -> Result:
        return self.runner(argv, env=sbatch.query_env(self.env), timeout=self.timeout)


def squeue(argv: list[str], ask: Asking) -> tuple[list[JobState], LaunchError | None]:
    try:
        result = ask(argv)
    except (process.NotFound, process.TimedOut) as error:
        return [], error
    if result.returncode and not jobs.is_gone(result.stderr):
        return [], jobs.no_answer(result)
    return jobs.parse_squeue(result.stdout), None


def sacct(of: Iterable[Run], ask: Asking) -> list[JobState]:
    """What the accounting knows, where there is one."""
    job_ids = sorted({run.job_id for run in of if run.job_id}, key=int)[-MOST_JOBS:]
    clusters = ",".join(sorted({run.cluster for run in of if run.cluster}))
    try:
        result = ask(jobs.sacct_argv(",".join(job_ids), clusters or None))
    except (process.NotFound, process.TimedOut):
        return []
    return jobs.parse_sacct(result.stdout) if result.returncode == 0 else []


def scontrol(run: Run, job_id: str, ask: Asking) -> list[JobState]:
    try:
        result = ask(jobs.show_job_argv(job_id, run.cluster))
    except (process.NotFound, process.TimedOut):
        return []
    return jobs.parse_show_job(result.stdout) if result.returncode == 0 else []
