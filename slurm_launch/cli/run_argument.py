"""The RUN argument of verbs that act on existing runs."""

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
    "A job ID, a run name or a prefix of it, or the path of its .sh, .log or .json."
    " Default: the newest run of this directory, otherwise the newest of all."
)


def complete_run(incomplete: str) -> list[str]:
    """Complete run names and job IDs, the newest first."""

    def matches(key: index.RunKey) -> bool:
        return key.name.startswith(incomplete) or (key.job_id or "").startswith(incomplete)

    known = index.entries(os.environ, Path.cwd(), matches)[::-1]
    words = [word for entry in known for word in (entry.name, entry.job_id) if word]
    return [word for word in words if word.startswith(incomplete)]


RunArgument = Annotated[str | None, typer.Argument(metavar="RUN", help=HELP, autocompletion=complete_run)]


def find_run(argument: str | None, among: Callable[[list[Run]], Run | None] | None = None) -> Run:
    """The run that an argument names; if several match, `among` may choose one."""
    return search.find(argument, os.environ, current_directory(), among)


def current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory no longer exists", hint="cd to an existing directory") from None


def slurm_client() -> SlurmClient:
    """The Slurm client for the environment of this process."""
    return SlurmClient(os.environ)
