"""The errors that users see, each with its exit code, and how messages quote values. Never prints."""

from __future__ import annotations

import logging
from collections.abc import Callable

Notify = Callable[[str], object]  # receives messages for the user, one line at a time
warn: Notify = logging.getLogger("slurm_launch").warning


def show(value: object, limit: int = 60) -> str:
    """A value as an error message quotes it: control characters escaped, truncated after `limit` characters."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


class LaunchError(Exception):
    """An error that a user can act on: what is wrong, where, and what to do."""

    exit_code = 1

    def __init__(
        self, message: str, *, at: str | None = None, hint: str | None = None, script: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.hint = hint
        self.script = script  # the path of the script that a failed submission left behind

    def __str__(self) -> str:
        lines = [self.message]
        if self.at:
            lines.append(f"  at: {self.at}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class UsageError(LaunchError):
    """A flag, an environment variable or a file has an invalid value."""

    exit_code = 2


class InvalidSpec(UsageError):
    """One or more options are invalid; `problems` lists all of them, so that one run shows every error."""

    def __init__(self, problems: list[UsageError]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class SubmitRefused(LaunchError):
    """sbatch rejected the job."""

    exit_code = 3


class SlurmUnavailable(LaunchError):
    """Slurm's commands are not installed, or slurmctld cannot be reached."""

    exit_code = 4


class NoCommandCode(LaunchError):
    """The job ended without an exit code of the command: canceled, time limit, node failure."""

    exit_code = 5


class ProblemsFound(LaunchError):
    """The doctor found at least one problem; its report lists them."""

    exit_code = 6


class WrongMoment(LaunchError):
    """The job is in the wrong state: not running yet, already ended, or still running after a cancellation."""

    exit_code = 7
