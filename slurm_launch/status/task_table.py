"""A run as a table with a row for each task of its array; of a sweep with the points' values. For people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from slurm_launch.runs.record import Run
from slurm_launch.status.report import duration, elapsed
from slurm_launch.status.task import NOT_NEEDED, NOT_NEEDED_SENTENCE, Task
from slurm_launch.status.task_points import PointsOf, short

Row = list[str]


def task_rows(run: Run, tasks: Sequence[Task], points: PointsOf, now: datetime) -> list[Row]:
    """The head of the table, and its rows."""
    return [["TASK", *points.keys, "STATE", "NODES", "ELAPSED", "EXIT", "REMARK"], *_rows(run, tasks, points, now)]


def _rows(run: Run, tasks: Sequence[Task], points: PointsOf, now: datetime) -> Iterator[Row]:
    again = run.run_again()
    keys = points.keys
    for task in points.each(run, tasks):
        point = points.of(task.id) or {}
        ran = elapsed(task, now)
        yield [
            task.id,
            *(short(point.get(key, "")) for key in keys),
            task.state,
            task.nodes or "-",
            "-" if ran is None else duration(ran),
            "-" if task.code is None else str(task.code),
            _remark(task, again.get(task.id)),
        ]


def _remark(task: Task, again: str | None) -> str:
    """What the other columns do not say: why it waits, how far it is, what it failed of; as what it was run again."""
    end = task.attempt.end if task.attempt else None
    if task.reason == NOT_NEEDED:
        words = NOT_NEEDED_SENTENCE
    elif task.ended:
        words = (end.cause if end and task.state != "COMPLETED" else "") or ""
    else:
        words = task.in_words.removeprefix("waits: ").removeprefix("runs: ").removeprefix("runs")
    return "; ".join(text for text in (words, f"run again as {again}" if again else "") if text)
