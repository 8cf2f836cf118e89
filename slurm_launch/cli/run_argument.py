"""The RUN argument of the verbs that come after a launch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from slurm_launch.errors import UsageError
from slurm_launch.runs import index, search
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient

HELP = (
    "A job id, a run's name or the beginning of it, or the path of its .sh, .log or .json."
    " Default: the newest run of this directory, or else of all."
)


def complete(incomplete: str) -> list[str]:
    """Names and job ids, the newest first."""
    known = index.entries(os.environ, Path.cwd())[::-1]
    words = [word for entry in known for word in (entry.name, entry.job_id) if word]
    return [word for word in words if word.startswith(incomplete)]


RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=HELP, autocompletion=complete)]


def found(argument: str | None, among: Callable[[list[Run]], Run | None] | None = None) -> Run:
    """The run that is meant; of several `among` may choose one."""
    return search.find(argument, os.environ, current_directory(), among)


def current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", hint="cd to one that does") from None


def slurm_client() -> SlurmClient:
    """How this process asks Slurm."""
    return SlurmClient(os.environ)
