"""In which run a task ran last.

The record of a run lists which of its tasks were resubmitted, and as which run; the record of that run may list further
ones. So every task has a chain of runs, and the last one has its latest outcome. A resubmission is always recorded at
that end, so that no task is resubmitted twice by mistake.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_launch.errors import UsageError
from slurm_launch.runs import index
from slurm_launch.runs import record as run_record
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import lookup, saved_outcomes
from slurm_launch.status.task import UNKNOWN, Task
from slurm_launch.status.task_points import shorten

MAX_CHARACTERS = 200  # of a list of tasks in a message
TaskNumber = int | None  # of an array task; None: the run is not an array
FindRun = Callable[[Run, str], Run | None]  # finds the run that a record names as a resubmission


@dataclass(frozen=True)
class LatestRun:
    """The run in which some tasks ran last."""

    run: Run
    numbers: list[TaskNumber]
    lost: str | None = None  # the name of a later run whose record is missing

    @property
    def ids(self) -> list[str]:
        return [task_id(self.run, number) for number in self.numbers]


@dataclass(frozen=True)
class TaskOutcomes:
    """The latest outcomes of tasks."""

    failed: list[LatestRun]
    active: list[str]  # IDs of pending and running tasks, for messages
    unknown: list[str]


def task_id(run: Run, number: TaskNumber) -> str:
    return (run.job_id or "") if number is None else f"{run.job_id}_{number}"


def task_numbers_of(run: Run) -> list[TaskNumber]:
    array = run.array_indexes
    return [None] if array is None else list(array_ids.array_numbers(array))


def format_ids(ids: Sequence[str]) -> str:
    """Task IDs in a message: 12_[3-7], shortened."""
    return shorten(array_ids.join_task_ids(ids), MAX_CHARACTERS)


def latest_runs(run: Run, numbers: Sequence[TaskNumber], find: FindRun) -> list[LatestRun]:
    """The runs in which these tasks ran last: this run, or resubmissions of it."""
    latest: list[LatestRun] = []
    to_visit = [(run, list(numbers), frozenset({run.record}))]
    while to_visit:
        run, numbers, visited = to_visit.pop(0)
        later = run.resubmitted_as()
        here = [number for number in numbers if task_id(run, number) not in later]
        latest += [LatestRun(run, here)] if here else []
        by_name: dict[str, list[TaskNumber]] = {}
        for number in numbers:
            if name := later.get(task_id(run, number)):
                by_name.setdefault(name, []).append(number)
        for name, resubmitted in by_name.items():
            following = find(run, name)
            known = set() if following is None else set(task_numbers_of(following))
            # A record that was edited by hand may lead back.
            if following is None or following.record in visited or not known.issuperset(resubmitted):
                latest.append(LatestRun(run, resubmitted, lost=name))
            else:
                to_visit.append((following, resubmitted, visited | {following.record}))
    return _merge_by_run(latest)


def _merge_by_run(latest: Iterable[LatestRun]) -> list[LatestRun]:
    """One entry per run: tasks may reach it through different chains."""
    merged: dict[tuple[str, str | None], list[TaskNumber]] = {}
    by_record = {one.run.record: one.run for one in latest}
    for one in latest:
        merged.setdefault((one.run.record, one.lost), []).extend(one.numbers)
    return [
        LatestRun(by_record[record], sorted(numbers, key=lambda number: number or 0), lost)
        for (record, lost), numbers in merged.items()
    ]


def run_finder(env: Mapping[str, str], cwd: Path) -> FindRun:
    """Return a function that finds recorded resubmissions, by name if their directory was moved."""

    def find(run: Run, entry: str) -> Run | None:
        for record in records(run, entry):
            with suppress(UsageError):
                return run_record.read(record)
        return None

    def records(run: Run, entry: str) -> Iterator[str]:
        name = os.path.basename(entry).removesuffix(".json")
        if os.path.isabs(entry):
            yield entry
        yield os.path.join(os.path.dirname(run.record), f"{name}.json")
        yield from (known.record for known in index.entries(env, cwd, lambda key: key.name == name))

    return find


def original_of(candidates: Sequence[Run], find: FindRun) -> Run | None:
    """The first candidate, if all others are resubmissions of it; else None."""
    to_visit, reached = [candidates[0]], set()
    while to_visit:
        run = to_visit.pop()
        if (run.name, run.job_id) not in reached:
            reached.add((run.name, run.job_id))
            following = [find(run, name) for name in run.resubmitted.values()]
            to_visit += [one for one in following if one is not None]
    return candidates[0] if reached.issuperset((run.name, run.job_id) for run in candidates) else None


def outcomes(latest: Iterable[LatestRun], client: SlurmClient) -> TaskOutcomes:
    """How these tasks ended, as far as it is known. Saves new outcomes in the records."""
    result = TaskOutcomes([], [], [])
    for one in latest:
        if one.lost is not None:
            result.unknown.append(f"{format_ids(one.ids)} (resubmitted as {one.lost}, whose record is missing)")
            continue
        tasks = lookup.look_up(one.run, client, logs=False)
        saved_outcomes.save(one.run, tasks)
        by_id = {id: task for task in tasks for id in array_ids.task_ids(task.id)}
        failed, active, unknown = [], [], []
        for number, id in zip(one.numbers, one.ids, strict=True):
            task = by_id.get(id) or Task(id, UNKNOWN, "none", "")
            if task.state == UNKNOWN:
                unknown.append(id)
            elif not task.ended:
                active.append(id)
            elif task.state != "COMPLETED":
                failed.append(number)
        result.failed.extend([replace(one, numbers=failed)] if failed else [])
        result.active.extend([format_ids(active)] if active else [])
        result.unknown.extend([format_ids(unknown) or f"the job of {one.run.name}"] if unknown else [])
    return result


def record_resubmission(latest: Iterable[LatestRun], new: Run) -> None:
    """Record in the previous runs that their tasks were resubmitted as a new run."""
    for one in latest:
        ids = array_ids.join_task_ids(one.ids)
        # Two runs in different directories have the same name if they were launched in the same second.
        beside = os.path.dirname(one.run.record) == os.path.dirname(new.record)

        def enter(run: Run, ids: str = ids, name: str = new.name if beside else new.record) -> Run:
            others = {key: name for key, name in run.resubmitted.items() if key != ids}
            return replace(run, resubmitted={**others, ids: name})  # the newest last

        run_record.change(one.run.record, enter)
