"""`slurm-launch explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from slurm_launch.cli.output import (
    markup,
    note,
    print_json,
    printable,
)
from slurm_launch.cli.run_argument import RunArgument, found, slurm_client
from slurm_launch.errors import SlurmUnavailable
from slurm_launch.explain.explain import Explanation, explain_task
from slurm_launch.runs import search
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.status import lookup
from slurm_launch.status.report import tasks_in
from slurm_launch.status.task import UNKNOWN, Task
from slurm_launch.status.task_points import points_of

MOST = 20  # tasks of an array that are shown

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


@app.command(help="Tell why a run failed: the cause, the lines in which it stands, and what to do.")
def explain(
    run_argument: RunArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    run = found(run_argument)
    wanted = search.task_ids_in(run, run_argument)
    tasks = lookup.these(run, _look(run), wanted)
    explained = [(task, explain_task(run, task)) for task in worth_telling(tasks)]
    if as_json:
        answers = [{"id": task.id, "state": task.state, "log": task.log, **asdict(why)} for task, why in explained]
        print_json(name=run.name, tasks=answers)
        return 0
    points = points_of(run)
    for number, (task, why) in enumerate(explained):
        if len(tasks) > 1:
            print("\n" * bool(number) + printable(f"task {points.label(task.id)}", sys.stdout))
        show(why)
        print(printable(f"the log: {task.log}", sys.stdout))
    shown = {task.id for task, _ in explained}
    if others := [task for task in tasks if task.id not in shown]:
        note(_of_others(others, failed=_failed(tasks)))
    return 0


def _of_others(others: Sequence[Task], failed: Sequence[Task]) -> str:
    """Why the rest of an array is not shown."""
    number = sum(map(tasks_in, others))
    if failed and not any(task in failed or task.state == UNKNOWN for task in others):
        return f"the other {number} did not fail" + ("" if all(task.ended for task in others) else " so far")
    example = array_ids.task_ids(others[0].id)[0]
    return f"not shown: {number} more of its tasks; name one, as {example}"


def _look(run: Run) -> list[Task]:
    """What is known of the run; without an answer of Slurm's the files must do."""
    try:
        tasks = lookup.look(run, slurm_client())
    except SlurmUnavailable as error:
        note(f"{error.message}; this is what the files tell")
        return lookup.look_at_files(run)
    lookup.remember(run, tasks)
    return tasks


def worth_telling(tasks: Sequence[Task]) -> list[Task]:
    """Of an array the tasks that failed, or else the first ones."""
    return (_failed(tasks) or list(tasks))[:MOST]


def _failed(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.ended and task.state != "COMPLETED"]


def show(why: Explanation) -> None:
    """The sentence, the lines, the advice. A log may hold anything: nothing of it gets through to the terminal."""
    lines = [why.sentence if why.sure else f"not sure: {why.sentence}"]
    lines += ["evidence:", *(f"  {line}" for line in why.evidence)] if why.evidence else []
    lines.append(f"what to do: {why.advice}")
    for line in lines:
        print(printable(line.replace("\n", " "), sys.stdout))
