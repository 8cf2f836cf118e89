"""`slurm-launch status`."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime, timezone
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, print_json, print_table, printable
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.runs import search
from slurm_launch.status import lookup, report, saved_outcomes
from slurm_launch.status.task_points import read_points

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = "Shows the queue, the nodes, the phase, the times and the outcome."


@app.command(help=help_text("status", DETAILS))
def status(
    run_argument: RunArgument = None,
    timings: Annotated[bool, typer.Option("--timings", help="Show how long each phase took, as bars.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    run = find_run(run_argument)
    tasks = lookup.look_up(run, slurm_client())
    run = saved_outcomes.save(run, tasks)
    tasks = lookup.select_tasks(run, tasks, search.task_ids_in(run, run_argument))
    now, points = datetime.now(timezone.utc), read_points(run)
    if as_json:
        print_json(**report.as_json(run, tasks, now, points))
        return 0
    several = len(tasks) > 1 or (bool(points.by_number) and report.tasks_in(tasks[0]) > 1)
    if several and not timings:
        print(printable(f"{run.name}: {report.summary(tasks)}", sys.stdout))
        print_table(report.task_rows(run, tasks, points, now), "  ")
        return 0
    print(printable(f"{run.name}", sys.stdout))
    for task in tasks:
        point = points.of(task.id) or {}
        rows = [("job", task.id or "unknown: sbatch was interrupted")]
        rows += [("point", " ".join(f"{key}={value}" for key, value in point.items()))] if point else []
        rows += report.status_rows(run, task, now)
        for label, text in rows:
            print(f"  {label:<10} {printable(text, sys.stdout)}")
        if timings:
            for line in report.timing_rows(task, now, _width(), _block()):
                print(f"  {line}")
    return 0


def _width() -> int:
    return max(10, min(60, shutil.get_terminal_size().columns - 40))


def _block() -> str:
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "#"
    return "█"
