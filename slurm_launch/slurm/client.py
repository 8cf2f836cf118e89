"""How Slurm is queried: its queue, its accounting and its controller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.errors import LaunchError
from slurm_launch.process import TIMEOUT, Result, Runner
from slurm_launch.slurm import environment, jobs, sbatch
from slurm_launch.slurm.jobs import JobState

MAX_JOBS = 10_000  # passed to one sacct: a single argument holds 128 kB


@dataclass(frozen=True)
class SlurmClient:
    """Runs Slurm's commands with an environment in which the output is always the same."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = TIMEOUT

    def __call__(self, argv: list[str]) -> Result:
        return self.runner(argv, env=environment.query_env(self.env), timeout=self.timeout)

    def squeue(self, argv: list[str]) -> tuple[list[JobState], LaunchError | None]:
        """The jobs in the queue, and the reason if Slurm could not be reached."""
        try:
            result = self(argv)
        except (process.NotFound, process.TimedOut) as error:
            return [], error
        if result.returncode and not jobs.is_gone(result.stderr):
            return [], jobs.no_answer(result)
        return jobs.parse_squeue(result.stdout), None

    def sacct(self, job_ids: Iterable[str], clusters: Iterable[str] = ()) -> list[JobState]:
        """The jobs that the accounting knows; none where there is no accounting."""
        newest = sorted(set(job_ids), key=int)[-MAX_JOBS:]
        return self._jobs(jobs.sacct_argv(",".join(newest), ",".join(sorted(set(clusters))) or None), jobs.parse_sacct)

    def show_job(self, job_id: str, cluster: str | None) -> list[JobState]:
        """The job as slurmctld knows it, which may be longer than the queue does."""
        return self._jobs(jobs.show_job_argv(job_id, cluster), jobs.parse_show_job)

    def _jobs(self, argv: list[str], parse: Callable[[str], list[JobState]]) -> list[JobState]:
        try:
            result = self(argv)
        except (process.NotFound, process.TimedOut):
            return []
        return parse(result.stdout) if result.returncode == 0 else []


# For the doctor, which queries many programs and reports each failure.

PROBE_TIMEOUT = 20.0  # seconds; a healthy slurmctld needs less than one
_UNCONFIGURED = re.compile(r"Could not establish a configuration source|Unable to process configuration file")


class NoAnswer(Exception):
    """A program did not answer, and why."""

    def __init__(
        self,
        text: str,
        hint: str | None = None,
        *,
        missing: bool = False,
        silent: bool = False,
        unconfigured: bool = False,
    ) -> None:
        super().__init__(text)
        self.text, self.hint = text, hint
        self.missing = missing  # it is not installed
        self.silent = silent  # Slurm's controller is not there: to ask it more would only take time
        self.unconfigured = unconfigured  # nor will any other command of Slurm's find one


@dataclass(frozen=True)
class Probe:
    """Runs one program at a time, each with a timeout: returns its standard output or raises NoAnswer."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = PROBE_TIMEOUT

    def __call__(self, argv: Sequence[str], *, stdin: str | None = None) -> str:
        try:
            result = self.runner(argv, env=self.env, timeout=self.timeout, stdin=stdin)
        except process.NotFound as error:
            raise NoAnswer(error.message, error.hint, missing=True) from None
        except process.TimedOut as error:
            raise NoAnswer(error.message, error.hint, silent=True) from None
        except LaunchError as error:
            raise NoAnswer(error.message, error.hint) from None
        if result.returncode:
            said = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()
            if _UNCONFIGURED.search(result.stderr):
                text = "Slurm's commands are here, but no configuration"
                raise NoAnswer(text, "this is no login node; `rehearse` works without", silent=True, unconfigured=True)
            silent = sbatch.is_unreachable(result.stderr)
            hint = "`scontrol ping` tells whether Slurm is up; try again later" if silent else None
            raise NoAnswer(f"{' '.join(argv[:3])}: {'; '.join(said[:3])}", hint, silent=silent)
        return result.stdout
