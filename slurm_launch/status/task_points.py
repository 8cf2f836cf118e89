"""The points of a sweep, by the tasks that run them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_launch.runs import points_table
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.status.task import Task, log_path


@dataclass(frozen=True)
class TaskPoints:
    """The points of a run's tasks; empty if the run is not a sweep."""

    by_number: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return list(next(iter(self.by_number.values()), {}))

    def of(self, task_id: str) -> Mapping[str, str] | None:
        """The point of 12_3; None for 12, and for several pending tasks in one entry."""
        number = task_id.rpartition("_")[2]
        return self.by_number.get(int(number)) if number.isdigit() and "_" in task_id else None

    def label(self, task_id: str) -> str:
        """The task and, in a sweep, its point: 12_3 (lr=1e-3 seed=0)."""
        point = self.of(task_id)
        return (
            f"{task_id} ({' '.join(f'{key}={shorten(value)}' for key, value in point.items())})" if point else task_id
        )

    def each(self, run: Run, tasks: Sequence[Task]) -> Iterator[Task]:
        """The tasks; in a sweep pending tasks in one entry are yielded one by one, because each has its own point."""
        for task in tasks:
            ids = array_ids.task_ids(task.id) if self.by_number else [task.id]
            if len(ids) < 2:
                yield task
            else:
                yield from (replace(task, id=one, log=log_path(run, one)) for one in ids)


def read_points(run: Run) -> TaskPoints:
    """The points of a run, from its table of points."""
    return TaskPoints(points_table.read(run))


def shorten(value: str, most: int = 40) -> str:
    """A value that fits into a column: at most `most` characters."""
    return value if len(value) <= most else value[: most - 3] + "..."
