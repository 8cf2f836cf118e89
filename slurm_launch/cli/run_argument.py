"""The RUN argument of the verbs that come after a launch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slurm_launch import index
from slurm_launch.errors import UsageError
from slurm_launch.observe import Asking, Task
from slurm_launch.runs import Run

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


def found(argument: str | None) -> Run:
    """The run that is meant."""
    return index.find(argument, os.environ, current_directory())


def of_argument(tasks: Sequence[Task], argument: str | None) -> list[Task]:
    """All tasks, or the one of an array that the argument names: as 12_3, or by its log."""
    if argument is None:
        return list(tasks)
    logs = [task for task in tasks if argument.endswith(".log") and _base(task.log) == _base(argument)]
    jobs = {task.id.partition("_")[0] for task in tasks}
    if not re.fullmatch(r"\d+_\d+", argument) or argument.partition("_")[0] not in jobs:  # or a name begins so
        return logs or list(tasks)
    named = [task for task in tasks if task.id == argument]
    if not named:
        known = ", ".join(task.id for task in tasks[:20])
        raise UsageError(f"there is no task {argument}", at="RUN", hint=f"known are {known}")
    return named


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", hint="cd to one that does") from None


def asking() -> Asking:
    """How this process asks Slurm."""
    return Asking(os.environ)
