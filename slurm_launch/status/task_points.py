"""The points of a sweep beside the tasks that have them, for those who tell of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slurm_launch.runs import points_table
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.status.lookup import log_of
from slurm_launch.status.task import Task


@dataclass(frozen=True)
class PointsOf:
    """The points of a run's tasks; of a run that is no sweep there are none."""

    by_number: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        return list(next(iter(self.by_number.values()), {}))

    def of(self, task_id: str) -> Mapping[str, str] | None:
        """The point of 12_3; None for 12, and for tasks that wait together."""
        number = task_id.rpartition("_")[2]
        return self.by_number.get(int(number)) if number.isdigit() and "_" in task_id else None

    def label(self, task_id: str) -> str:
        """The task and, in a sweep, its point: 12_3 (lr=1e-3 seed=0)."""
        point = self.of(task_id)
        return f"{task_id} ({' '.join(f'{key}={short(value)}' for key, value in point.items())})" if point else task_id

    def each(self, run: Run, tasks: Sequence[Task]) -> Iterator[Task]:
        """The tasks; in a sweep those that wait together one by one, for each has a point of its own."""
        for task in tasks:
            ids = array_ids.task_ids(task.id) if self.by_number else [task.id]
            if len(ids) < 2:
                yield task
            else:
                yield from (replace(task, id=one, log=log_of(run, one)) for one in ids)


def points_of(run: Run) -> PointsOf:
    return PointsOf(points_table.read(run))


def short(value: str, most: int = 40) -> str:
    """A value that fits into a column."""
    return value if len(value) <= most else value[: most - 3] + "..."
