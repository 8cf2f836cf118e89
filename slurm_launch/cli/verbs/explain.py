"""`slurm-launch explain`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, note, print_json, printable
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.errors import SlurmUnavailable
from slurm_launch.explain.explain import Explanation, explain_tasks
from slurm_launch.runs import search
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.status import lookup, saved_outcomes
from slurm_launch.status.report import tasks_in
from slurm_launch.status.task import UNKNOWN, Task
from slurm_launch.status.task_points import read_points

MAX_TASKS = 20  # of an array

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = "Names the cause and shows the lines of the log that prove it."


@app.command(help=help_text("explain", DETAILS))
def explain(
    run_argument: RunArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    run = find_run(run_argument)
    wanted = search.task_ids_in(run, run_argument)
    all_tasks, reachable = _look_up(run)
    tasks = lookup.select_tasks(run, all_tasks, wanted)
    explained = explain_tasks(run, tasks_to_explain(tasks))
    if reachable:
        with_logs = {task.id: task for task, _ in explained}
        saved_outcomes.save(run, [lookup.with_short_log(with_logs.get(task.id, task)) for task in all_tasks])
    if as_json:
        answers = [{"id": task.id, "state": task.state, "log": task.log, **asdict(why)} for task, why in explained]
        print_json(name=run.name, tasks=answers)
        return 0
    points = read_points(run)
    for number, (task, why) in enumerate(explained):
        if len(tasks) > 1:
            print("\n" * bool(number) + printable(f"task {points.label(task.id)}", sys.stdout))
        show(why)
        print(printable(f"log: {task.log}", sys.stdout))
    shown = {task.id for task, _ in explained}
    if others := [task for task in tasks if task.id not in shown]:
        note(_describe_others(others, failed=_failed(tasks)))
    return 0


def _describe_others(others: Sequence[Task], failed: Sequence[Task]) -> str:
    """A note on the tasks that are not shown."""
    number = sum(map(tasks_in, others))
    if failed and not any(task in failed or task.state == UNKNOWN for task in others):
        return f"the other {number} did not fail" + ("" if all(task.ended for task in others) else " so far")
    example = array_ids.task_ids(others[0].id)[0]
    return f"not shown: {number} more task{'s' * (number > 1)}; name one, such as {example}"


def _look_up(run: Run) -> tuple[list[Task], bool]:
    """The tasks of the run, and whether Slurm could be reached; if not, they come from the files."""
    try:
        return lookup.look_up(run, slurm_client(), logs=False), True
    except SlurmUnavailable as error:
        note(f"{error.message}; using the record and the logs instead")
        return lookup.look_up_files(run, logs=False), False


def tasks_to_explain(tasks: Sequence[Task]) -> list[Task]:
    """The failed tasks of an array, otherwise its first tasks."""
    return (_failed(tasks) or list(tasks))[:MAX_TASKS]


def _failed(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.ended and task.state != "COMPLETED"]


def show(why: Explanation) -> None:
    """Print the cause, the evidence and the advice, without the control characters that a log may contain."""
    lines = [why.sentence if why.sure else f"not sure: {why.sentence}"]
    lines += ["evidence:", *(f"  {line}" for line in why.evidence)] if why.evidence else []
    lines.append(f"what to do: {why.advice}")
    for line in lines:
        print(printable(line.replace("\n", " "), sys.stdout))
