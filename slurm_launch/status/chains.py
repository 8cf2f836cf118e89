"""Chains: which links never ran because the work was done, and which links decide the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_launch.runs import log_phases
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.status.task import NOT_NEEDED, Task


def with_reasons(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """The tasks of a run, with the reason NOT_NEEDED for the links that an earlier link canceled.

    Slurm drops the pending tasks of an array as soon as they are canceled, or reports only that they were. The
    log of the last link that ran contains the reason."""
    if run.spec.get("chain-while") not in ("ok", "notok"):
        return list(tasks)
    ran = [task for task in tasks if not _never_ran(task)]
    if not ran or len(ran) == len(tasks) or not is_over(ran[-1].log, _link_number(ran[-1])):
        return list(tasks)
    last = _link_number(ran[-1])
    return [_not_needed(task) if _never_ran(task) and _link_number(task) > last else task for task in tasks]


def _never_ran(task: Task) -> bool:
    return not task.nodes and (task.state == "CANCELLED" or task.source == "none")


def _not_needed(task: Task) -> Task:
    source = "log" if task.source == "none" else task.source
    return replace(task, state="CANCELLED", source=source, reason=NOT_NEEDED)


def is_over(log: str, link: int) -> bool:
    """Whether the log of a link shows that the link has ended the chain."""
    lines = log_phases.tail(log).splitlines()
    phases = [phase for line in lines if (phase := log_phases.phase_of(line)) is not None]
    return any(phase.name == "chain" and phase.value("link") == str(link) for phase in phases)


def _link_number(task: Task) -> int:
    """The number of a link; of several pending links in one entry the first."""
    return int(array_ids.task_ids(task.id)[0].rpartition("_")[2])


def deciding_tasks(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """The tasks whose exit codes decide that of the run: of a chain the last link that ran, of an array all."""
    if not run.spec.get("chain"):
        return list(tasks)
    wanted = [task for task in tasks if task.reason != NOT_NEEDED]
    return [max(wanted or tasks, key=_link_number)]
