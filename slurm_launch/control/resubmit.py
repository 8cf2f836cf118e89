"""What of a run is to run again, and how that is remembered.

The record of a run says which of its tasks were run again, and as which run; the record of that one may say the same.
So every task has a chain of runs, and the last of them is where its newest outcome is. A new run is always noted at
that end: nothing is run again twice because somebody asked twice.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_launch.errors import UsageError, show
from slurm_launch.runs import files as run_files
from slurm_launch.runs import index
from slurm_launch.runs import record as run_record
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.spec import array_checks, checks
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded
from slurm_launch.status import lookup
from slurm_launch.status.task import UNKNOWN, Task
from slurm_launch.status.task_points import short

MOST = 200  # characters of a list of tasks that people get to see
Number = int | None  # of a task; None: the run is no array
Find = Callable[[Run, str], Run | None]  # the run that the record of another one names


@dataclass(frozen=True)
class Last:
    """The run in which some tasks were run last."""

    run: Run
    numbers: list[Number]
    lost: str | None = None  # the name of a later one, of which there is no record

    @property
    def ids(self) -> list[str]:
        return [task_id(self.run, number) for number in self.numbers]


@dataclass(frozen=True)
class Outcomes:
    """How tasks ended, where they were run last, by what that means for another try."""

    failed: list[Last]
    going: list[str]  # wait or run; for people
    unknown: list[str]


def task_id(run: Run, number: Number) -> str:
    return (run.job_id or "") if number is None else f"{run.job_id}_{number}"


def numbers_of(run: Run) -> list[Number]:
    array = run.array_indexes
    return [None] if array is None else list(array_ids.array_numbers(array))


def spelled(numbers: Iterable[Number]) -> str:
    """Numbers of tasks as sbatch reads them: 3,7-9."""
    ids = [f"0_{number}" for number in numbers]
    return array_ids.together(ids).removeprefix("0_").strip("[]")


def chosen(run: Run, text: str, flag: str) -> list[Number]:
    """The tasks that were asked for by their numbers: 3,7-9."""
    there = numbers_of(run)
    if there == [None]:
        raise UsageError(f"{run.name} is no array: it has no tasks to choose from", at=flag, hint=f"leave {flag} out")
    try:
        array_checks.task_numbers(text, f"{show(text)} names no tasks", "write 3,7 or 3,7-9")
    except checks.BadValue as error:
        raise UsageError(str(error), at=flag, hint=error.hint) from None
    wanted: list[Number] = list(array_ids.array_numbers(text))
    known = set(there)
    if absent := [number for number in wanted if number not in known]:
        hint = f"its tasks are {short(spelled(there), MOST)}"
        raise UsageError(f"{run.name} has no task {short(spelled(absent), MOST)}", at=flag, hint=hint)
    return wanted


def last_runs(run: Run, numbers: Sequence[Number], find: Find) -> list[Last]:
    """Where these tasks were run last: in this run, or in one that was made from it."""
    found: list[Last] = []
    open_ones = [(run, list(numbers), frozenset({run.record}))]
    while open_ones:
        run, numbers, way = open_ones.pop(0)
        later = run.run_again()
        here = [number for number in numbers if task_id(run, number) not in later]
        found += [Last(run, here)] if here else []
        by_name: dict[str, list[Number]] = {}
        for number in numbers:
            if name := later.get(task_id(run, number)):
                by_name.setdefault(name, []).append(number)
        for name, again in by_name.items():
            following = find(run, name)
            there = set() if following is None else set(numbers_of(following))
            # A record that was written by hand may lead back.
            if following is None or following.record in way or not there.issuperset(again):
                found.append(Last(run, again, lost=name))
            else:
                open_ones.append((following, again, way | {following.record}))
    return _joined(found)


def _joined(found: Iterable[Last]) -> list[Last]:
    """Each run once: tasks may have come to it by different ways."""
    joined: dict[tuple[str, str | None], list[Number]] = {}
    by_record = {last.run.record: last.run for last in found}
    for last in found:
        joined.setdefault((last.run.record, last.lost), []).extend(last.numbers)
    return [
        Last(by_record[record], sorted(numbers, key=lambda number: number or 0), lost)
        for (record, lost), numbers in joined.items()
    ]


def finder(env: Mapping[str, str], cwd: Path) -> Find:
    """Finds runs that `note` has entered. A directory may have been moved: then by the name."""

    def find(run: Run, entered: str) -> Run | None:
        for record in records(run, entered):
            with suppress(UsageError):
                return run_record.read(record)
        return None

    def records(run: Run, entered: str) -> Iterator[str]:
        name = os.path.basename(entered).removesuffix(".json")
        if os.path.isabs(entered):
            yield entered
        yield os.path.join(os.path.dirname(run.record), f"{name}.json")
        yield from (entry.record for entry in index.entries(env, cwd) if entry.name == name)

    return find


def first_of(candidates: Sequence[Run], find: Find) -> Run | None:
    """The first of these runs, if the others were all made from it by running it again; else None."""
    open_ones, reached = [candidates[0]], set()
    while open_ones:
        run = open_ones.pop()
        if (run.name, run.job_id) not in reached:
            reached.add((run.name, run.job_id))
            following = [find(run, name) for name in run.resubmitted.values()]
            open_ones += [one for one in following if one is not None]
    return candidates[0] if reached.issuperset((run.name, run.job_id) for run in candidates) else None


def outcomes(lasts: Iterable[Last], client: SlurmClient) -> Outcomes:
    """How these tasks ended, as far as anybody knows. What is learned is remembered in the records."""
    told = Outcomes([], [], [])
    for last in lasts:
        if last.lost is not None:
            told.unknown.append(f"{_listed(last.ids)} (run again as {last.lost}, whose record is gone)")
            continue
        tasks = lookup.look(last.run, client, logs=False)
        lookup.remember(last.run, tasks)
        by_id = {one: task for task in tasks for one in array_ids.task_ids(task.id)}
        bad, going, unknown = [], [], []
        for number, one in zip(last.numbers, last.ids, strict=True):
            task = by_id.get(one) or Task(one, UNKNOWN, "none", "")
            if task.state == UNKNOWN:
                unknown.append(one)
            elif not task.ended:
                going.append(one)
            elif task.state != "COMPLETED":
                bad.append(number)
        told.failed.extend([replace(last, numbers=bad)] if bad else [])
        told.going.extend([_listed(going)] if going else [])
        told.unknown.extend([_listed(unknown) or f"the job of {last.run.name}"] if unknown else [])
    return told


def _listed(ids: Sequence[str]) -> str:
    return short(array_ids.together(ids), MOST)


def note(lasts: Iterable[Last], new: Run) -> None:
    """Enter into the records of the former runs as what their tasks were run again."""
    for last in lasts:
        ids = array_ids.together(last.ids)
        # Two runs in different directories can have the same name, if they were made in the same second.
        beside = os.path.dirname(last.run.record) == os.path.dirname(new.record)

        def enter(run: Run, ids: str = ids, name: str = new.name if beside else new.record) -> Run:
            others = {key: name for key, name in run.resubmitted.items() if key != ids}
            return replace(run, resubmitted={**others, ids: name})  # the newest last

        run_record.change(last.run.record, enter)


# The script of the former run


@dataclass(frozen=True)
class Origin:
    """What a run was made from."""

    script: str
    embedded: EmbeddedSpec
    edited: bool


def origin(run: Run) -> Origin:
    """The spec in the run's script. Raises UsageError when that is somebody else's, or gone."""
    if run.user != run_record.user_name():
        hint = f"`slurm-launch render --from {shlex.quote(run.script)}` makes a script of your own from it"
        raise UsageError(f"{run.name} is a run of {run.user}'s", at=run.record, hint=hint)
    for path in _scripts(run):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(
                f"the run's script cannot be read: {why}", at=path, hint="mend it, or launch anew"
            ) from None
        edited = run.script_sha256 is not None and run_files.sha256(Path(path)) != run.script_sha256
        return Origin(path, read_embedded(text, path), edited)
    hint = "it holds all that the run was made from: put it back, or launch anew"
    raise UsageError("the run's script is gone", at=run.script, hint=hint)


def _scripts(run: Run) -> Iterator[str]:
    """Where it can be: a directory may have been moved."""
    yield run.script
    yield os.path.join(os.path.dirname(run.record), os.path.basename(run.script))


def by_hand(origin: Origin, numbers: Sequence[Number], *, all_of_it: bool) -> str:
    """The command that runs the script as it is now."""
    tasks = [] if all_of_it or numbers == [None] else [f"--array={spelled(numbers)}"]
    return shlex.join(["sbatch", *tasks, origin.script])
