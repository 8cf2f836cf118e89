"""The errors that a user may meet, each with its exit code, and how values and notices are reported. Never prints."""

from __future__ import annotations

import logging
from collections.abc import Callable

Notify = Callable[[str], object]  # receives what the user should know besides the result, one line at a time
warn: Notify = logging.getLogger("slurm_launch").warning


def show(value: object, limit: int = 60) -> str:
    """A value as an error message quotes it: control characters visible, never pages long."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= limit else text[:limit] + "..."


class LaunchError(Exception):
    """Something went wrong that a person can act on: what, where, and what to do."""

    exit_code = 1

    def __init__(self, message: str, *, at: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.at:
            lines.append(f"  at: {self.at}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class UsageError(LaunchError):
    """A flag, a variable or a file holds something that cannot work."""

    exit_code = 2


class InvalidSpec(UsageError):
    """One or more options are wrong; `problems` has all of them, so that one run shows every mistake."""

    def __init__(self, problems: list[UsageError]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class SubmitRefused(LaunchError):
    """sbatch answered, and the answer was no."""

    exit_code = 3


class SlurmUnavailable(LaunchError):
    """No Slurm command here, or no answer from it."""

    exit_code = 4


class NoCommandCode(LaunchError):
    """The job ended without a code of the command: cancelled, time limit, node failure."""

    exit_code = 5


class ProblemsFound(LaunchError):
    """The doctor has found at least one problem; its report has them."""

    exit_code = 6


class WrongMoment(LaunchError):
    """The job is not where this needs it to be: not up yet, over, or, after a cancellation, still there."""

    exit_code = 7
