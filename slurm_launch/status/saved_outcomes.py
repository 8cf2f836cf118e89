"""The outcomes that a run's record keeps, because Slurm removes a job minutes after its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from slurm_launch.errors import LaunchError
from slurm_launch.runs import record as records
from slurm_launch.runs.log_phases import MemoryKills
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.status.task import TIMES, UNKNOWN, Task, log_path

_KEYS = ("state", "reason", "code", "signal", "nodes", "num_nodes", "partition", "restarts")


def to_record(task: Task) -> dict[str, Any]:
    """The entry of a task in the record."""
    times = {name: task.times[name].isoformat(timespec="seconds") for name in TIMES if name in task.times}
    kills = {"memory_kills": [asdict(kills) for kills in task.memory_kills]} if task.memory_kills else {}
    return {key: getattr(task, key) for key in _KEYS} | {"times": times} | kills


def _from_record(run: Run, task_id: str, entry: Mapping[str, Any]) -> Task:
    """The inverse of `to_record`. Raises one of several exceptions if the entry is damaged."""
    times = {name: datetime.fromisoformat(entry["times"][name]) for name in TIMES if name in entry["times"]}
    if any(time.tzinfo is None for time in times.values()):
        raise ValueError("a time without a time zone")
    return Task(
        task_id,
        str(entry["state"]),
        "record",
        log_path(run, task_id),
        reason=_optional_text(entry["reason"]),
        code=_optional_number(entry["code"]),
        signal=int(entry["signal"]),
        nodes=_optional_text(entry["nodes"]),
        num_nodes=_optional_number(entry["num_nodes"]),
        partition=_optional_text(entry["partition"]),
        restarts=int(entry["restarts"]),
        times=times,
        memory_kills=tuple(_memory_kills(kills) for kills in entry.get("memory_kills", ())),
    )


def _memory_kills(entry: Mapping[str, Any]) -> MemoryKills:
    return MemoryKills(
        str(entry["node"]),
        _optional_number(entry["limit_mb"]),
        _optional_text(entry["killed"]),
        int(entry["kills"]),
        _optional_text(entry["step"]),
    )


def _optional_text(value: Any) -> str | None:
    return str(value) if value else None


def _optional_number(value: Any) -> int | None:
    return None if value is None else int(value)


def load(run: Run) -> list[Task]:
    """The tasks of the run whose end the record keeps. Damaged entries are skipped."""
    found = []
    for task_id, entry in run.tasks.items():
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            found.append(_from_record(run, task_id, entry))
    return [task for task in found if task.ended and array_ids.job_of(task.id) == run.job_id]


def save(run: Run, tasks: Sequence[Task]) -> Run:
    """Write the tasks that have ended to the record, and return the run with them.

    A record that cannot be written is not an error: the directory may belong to another user, or the disk may be full.
    """
    before = {task.id: task for task in load(run)}
    known = [_with_saved_details(task, before.get(task.id)) for task in tasks if task.state != UNKNOWN]
    news = [task for task in known if task.source != "record" or to_record(task) != run.tasks.get(task.id)]
    replaced = {one for task in news for one in array_ids.task_ids(task.id)}  # includes requeued tasks
    ended = {task.id: to_record(task) for task in news if task.ended}

    def with_outcomes(run: Run) -> Run:
        kept = {
            task_id: old for task_id, old in run.tasks.items() if not replaced.intersection(array_ids.task_ids(task_id))
        }
        return replace(run, tasks=kept | ended)

    if with_outcomes(run) == run:
        return run
    with suppress(LaunchError):
        records.change(run.record, with_outcomes)
    return with_outcomes(run)


def _with_saved_details(task: Task, before: Task | None) -> Task:
    """The task, with what the record has of its log, which may not have been read this time."""
    if before is None or (task.state, task.restarts) != (before.state, before.restarts):
        return task
    return replace(task, times={**before.times, **task.times}, memory_kills=task.memory_kills or before.memory_kills)
