"""The tasks of an array, as Slurm and its users write them: 12_3, 12_[4-9%2]."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_TASKS = 100_000  # of an array; Slurm allows a thousand unless the site wants more


def task_ids(text: str) -> list[str]:
    """The tasks in an id: of 12_[4-6,9%2] these are 12_4, 12_5, 12_6 and 12_9; of 12 or 12_3 it is itself."""
    job, bracket, tasks = text.partition("_[")
    return [f"{job}_{number}" for number in array_numbers(tasks.removesuffix("]"))] if bracket else [text]


def array_numbers(text: str) -> list[int]:
    """The numbers of an array's tasks, of 0-9, 1,3,5 or 0-20:4%2; what cannot be read is left out."""
    found: dict[int, None] = {}
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?(?:,|$)", text.partition("%")[0], re.ASCII):
        numbers = range(int(first), int(last or first) + 1, int(step or 1) or 1)
        found |= dict.fromkeys(numbers[:MAX_TASKS])
    return sorted(found)


def together(task_ids: Sequence[str]) -> str:
    """Tasks of an array in one, as Slurm does: 12_[4-9]."""
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
    return task_id.partition("_")[0]


def holds(group: str, task_id: str) -> bool:
    """Whether a task is among those that wait together: 12_[1,4-9:2%3] holds 12_6. squeue cuts off long lists."""
    together = group.startswith(f"{task_id.partition('_')[0]}_[")
    return together and (task_id in task_ids(group) or "..." in group)
