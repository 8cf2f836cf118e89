"""Queries of Slurm's queue, accounting and controller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.errors import LaunchError
from slurm_launch.process import TIMEOUT, Result, Runner
from slurm_launch.slurm import environment, jobs, sbatch
from slurm_launch.slurm.jobs import JobState

MAX_JOBS = 10_000  # in one call of sacct: a single argument is limited to 128 kB


@dataclass(frozen=True)
class SlurmClient:
    """Runs Slurm's commands in an environment that makes their output independent of the user's settings."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = TIMEOUT

    def __call__(self, argv: list[str]) -> Result:
        return self.runner(argv, env=environment.query_env(self.env), timeout=self.timeout)

    def squeue(self, argv: list[str]) -> tuple[list[JobState], LaunchError | None]:
        """The jobs in the queue, and the error if slurmctld cannot be reached."""
        try:
            result = self(argv)
        except (process.NotFound, process.TimedOut) as error:
            return [], error
        if result.returncode and not jobs.is_gone(result.stderr):
            return [], jobs.unreachable(result)
        return jobs.parse_squeue(result.stdout), None

    def sacct(self, job_ids: Iterable[str], clusters: Iterable[str] = ()) -> list[JobState]:
        """The jobs in the accounting database; none where there is no accounting."""
        newest = sorted(set(job_ids), key=int)[-MAX_JOBS:]
        return self._jobs(jobs.sacct_argv(",".join(newest), ",".join(sorted(set(clusters))) or None), jobs.parse_sacct)

    def show_job(self, job_id: str, cluster: str | None) -> list[JobState]:
        """The job as slurmctld reports it, possibly after it has left the queue."""
        return self._jobs(jobs.show_job_argv(job_id, cluster), jobs.parse_show_job)

    def _jobs(self, argv: list[str], parse: Callable[[str], list[JobState]]) -> list[JobState]:
        try:
            result = self(argv)
        except (process.NotFound, process.TimedOut):
            return []
        return parse(result.stdout) if result.returncode == 0 else []


# For the doctor, which runs many programs and reports each failure.

# Shorter than process.TIMEOUT: the doctor runs a dozen commands, and a healthy slurmctld answers within a second.
PROBE_TIMEOUT = 20.0
_UNCONFIGURED = re.compile(r"Could not establish a configuration source|Unable to process configuration file")


class ProbeFailed(Exception):
    """A program could not be run, or it failed."""

    def __init__(
        self,
        text: str,
        hint: str | None = None,
        *,
        missing: bool = False,
        unreachable: bool = False,
        unconfigured: bool = False,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.missing = missing  # the program is not installed
        self.unreachable = unreachable  # slurmctld cannot be reached: further queries would only time out
        self.unconfigured = unconfigured  # Slurm's commands find no configuration


@dataclass(frozen=True)
class Probe:
    """Runs one program at a time, each with a timeout: returns its standard output or raises ProbeFailed."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = PROBE_TIMEOUT

    def __call__(self, argv: Sequence[str], *, stdin: str | None = None) -> str:
        try:
            result = self.runner(argv, env=self.env, timeout=self.timeout, stdin=stdin)
        except process.NotFound as error:
            raise ProbeFailed(error.message, error.hint, missing=True) from None
        except process.TimedOut as error:
            raise ProbeFailed(error.message, error.hint, unreachable=True) from None
        except LaunchError as error:
            raise ProbeFailed(error.message, error.hint) from None
        if result.returncode:
            raise _failure(argv, result)
        return result.stdout


def _failure(argv: Sequence[str], result: Result) -> ProbeFailed:
    if _UNCONFIGURED.search(result.stderr):
        text = "Slurm's commands are installed, but they find no configuration"
        hint = "this is not a login node; `rehearse` works without Slurm"
        return ProbeFailed(text, hint, unreachable=True, unconfigured=True)
    unreachable = sbatch.is_unreachable(result.stderr)
    lines = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()
    return ProbeFailed(
        f"{' '.join(argv[:3])}: {'; '.join(lines[:3])}",
        "check slurmctld with `scontrol ping`; try again later" if unreachable else None,
        unreachable=unreachable,
    )
