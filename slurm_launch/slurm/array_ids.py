"""Array task IDs as Slurm writes them: 12_3, 12_[4-9%2]."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_TASKS = 100_000  # of an array; Slurm's MaxArraySize is 1001 by default


def task_ids(text: str) -> list[str]:
    """Expand an ID: 12_[4-6,9%2] to 12_4, 12_5, 12_6 and 12_9; 12 and 12_3 to themselves."""
    job, bracket, tasks = text.partition("_[")
    return [f"{job}_{number}" for number in array_numbers(tasks.removesuffix("]"))] if bracket else [text]


def array_numbers(text: str) -> list[int]:
    """The task numbers in 0-9, 1,3,5 or 0-20:4%2, sorted; invalid parts are ignored."""
    found: dict[int, None] = {}
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?(?:,|$)", text.partition("%")[0], re.ASCII):
        numbers = range(int(first), int(last or first) + 1, int(step or 1) or 1)
        found |= dict.fromkeys(numbers[:MAX_TASKS])
    return sorted(found)


def join_task_ids(task_ids: Sequence[str]) -> str:
    """Array tasks as one ID: 12_4, 12_5 and 12_6 as 12_[4-6]."""
    if len(task_ids) == 1:
        return task_ids[0]
    spans: list[list[int]] = []
    for number in (int(task_id.rpartition("_")[2]) for task_id in task_ids):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    text = ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in spans)
    return f"{job_of(task_ids[0])}_[{text}]"


def job_of(task_id: str) -> str:
    """The job ID of an array task: 12 of 12_3."""
    return task_id.partition("_")[0]


def contains(group: str, task_id: str) -> bool:
    """Whether a task is part of a group of pending tasks: 12_6 of 12_[1,4-9:2%3]. squeue truncates long lists."""
    same_job = group.startswith(f"{job_of(task_id)}_[")
    return same_job and (task_id in task_ids(group) or "..." in group)
