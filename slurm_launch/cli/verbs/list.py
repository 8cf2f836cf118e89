"""`slurm-launch list`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, note, print_error, print_json, print_table, table_lines, warn
from slurm_launch.cli.run_argument import complete_run, current_directory, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.runs import index
from slurm_launch.runs.record import Run
from slurm_launch.status import chains, report, run_list
from slurm_launch.status.run_list import RunFilter, RunList
from slurm_launch.status.task import Task
from slurm_launch.status.task_points import read_points

LAST = 20  # runs on a terminal
COLUMNS = ["RUN", "JOB", "STATE", "NODES", "ELAPSED", "EXIT", "SUBMITTED"]
OneRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="List only this run, with a row for each of its tasks. Default: all runs.",
        autocompletion=complete_run,
    ),
]

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


def _complete_state(incomplete: str) -> list[str]:
    return [state.lower() for state in run_list.STATES if state.startswith(incomplete.upper())]


@app.command(name="list", help=help_text("list"))
def list_runs(
    run_argument: OneRun = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only runs in this state (pending, running, failed ...; active: pending or running). Repeatable.",
            autocompletion=_complete_state,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs since then: 2h, 3d, 1w, today, 2026-11-16.")
    ] = None,
    exp: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this experiment.")] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", "-n", metavar="N", min=1, help=f"Only the newest N. Default: {LAST} on a terminal."),
    ] = None,
    points: Annotated[
        bool, typer.Option("--points", help="Show a row for each task of an array or a sweep, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    now = datetime.now(timezone.utc)
    earliest = None if since is None else run_list.parse_since(since, now)
    wanted = RunFilter(run_list.parse_states(state or []), earliest, exp)
    if last is None and not as_json and sys.stdout.isatty():
        last = LAST
    one_run = run_argument is not None
    candidates = [find_run(run_argument)] if one_run else _all_runs()
    selected = run_list.collect(
        candidates, wanted, last, slurm_client(), os.environ, adopt_queued=not one_run, notify=warn
    )
    if as_json:
        print_json(runs=list(_as_json(selected, now)))
    elif selected.runs:
        _print(selected, now, with_tasks=points or one_run)
    else:
        note("no matching runs" if state or since or exp else "no runs yet; submitted runs are listed here")
    if selected.older and not as_json:
        note(f"and {selected.older} older; --last N shows more")
    if selected.problem is None:
        return 0
    print_error(selected.problem)
    return selected.problem.exit_code


def _all_runs() -> list[Run]:
    """All runs whose record can be read, the newest first."""
    return run_list.read_runs(index.entries(os.environ, current_directory())[::-1], warn)


def _as_json(selected: RunList, now: datetime) -> Iterable[dict[str, object]]:
    for run in selected.runs:
        yield report.as_json(run, selected.tasks[run.record], now, read_points(run))


def _print(selected: RunList, now: datetime, with_tasks: bool) -> None:
    """Print a table of the runs, and below each run its tasks."""
    rows = [_row(run, selected.tasks[run.record], now) for run in selected.runs]
    header, *lines = table_lines([COLUMNS, *rows])
    print(header)
    for run, line in zip(selected.runs, lines, strict=True):
        print(line)
        tasks = selected.tasks[run.record]
        if with_tasks and (len(tasks) > 1 or "_" in tasks[0].id):
            print_table(report.task_rows(run, tasks, read_points(run), now), "  ")


def _row(run: Run, tasks: Sequence[Task], now: datetime) -> list[str]:
    """The row of a run: a text for each of COLUMNS."""
    nodes = {task.num_nodes for task in tasks if task.num_nodes}
    elapsed = [seconds for task in tasks if (seconds := report.elapsed(task, now)) is not None]
    codes = [task.code for task in chains.deciding_tasks(run, tasks) if task.code is not None]
    submitted = tasks[0].times.get("submitted")
    return [
        run.name,
        run.job_id or "-",
        report.summary(tasks),
        str(max(nodes)) if nodes else "-",
        report.duration(max(elapsed)) if elapsed else "-",
        str(max(codes)) if codes else "-",
        report.clock(submitted, now) if submitted else "-",
    ]
