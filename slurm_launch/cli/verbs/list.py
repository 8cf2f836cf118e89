"""`slurm-launch list`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Annotated

import typer

from slurm_launch.cli.output import (
    markup,
    note,
    print_error,
    print_json,
    print_table,
    table_lines,
    warn,
)
from slurm_launch.cli.run_argument import (
    complete,
    current_directory,
    found,
    slurm_client,
)
from slurm_launch.errors import UsageError
from slurm_launch.runs import index
from slurm_launch.runs.record import Run, user_name
from slurm_launch.status import chains, lookup, report
from slurm_launch.status.task import Task
from slurm_launch.status.task_points import points_of
from slurm_launch.status.task_table import task_rows

LAST = 20  # runs on a terminal
HEAD = ["RUN", "JOB", "STATE", "NODES", "ELAPSED", "EXIT", "SUBMITTED"]
OneRun = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN", help="Only this run, with a row for each of its tasks. Default: all.", autocompletion=complete
    ),
]
STATES = (
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "UNKNOWN", "ACTIVE",
)  # fmt: skip

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


def _complete_state(incomplete: str) -> list[str]:
    return [state.lower() for state in STATES if state.startswith(incomplete.upper())]


@app.command(name="list", help="List the runs, the newest first.")
def list_runs(
    run_argument: OneRun = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only runs in this state (pending, running, failed ...; active: waiting or running).",
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
        bool, typer.Option("--points", help="Below a run that is an array or a sweep, a row for each of its tasks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    now = datetime.now(timezone.utc)
    points = points or run_argument is not None
    states, earliest = _states(state or []), _earliest(since, now)

    def wanted(run: Run) -> bool:
        return exp in (None, run.exp_name) and (earliest is None or datetime.fromisoformat(run.created) >= earliest)

    def adopt(scripts: list[str]) -> list[Run]:
        """Runs of jobs in the queue that the index does not know: it has been lost, or was another machine's."""
        new = [run for run in _read(index.adopt(scripts, os.environ)) if wanted(run)]
        runs[:] = sorted([*new, *runs], key=lambda run: run.created, reverse=True)
        return new

    runs = [run for run in ([found(run_argument)] if run_argument is not None else _records()) if wanted(run)]
    if last is None and not as_json and sys.stdout.isatty():
        last = LAST
    older = 0
    if not states:  # the older ones need not even be asked for
        older, runs = len(runs) - len(runs[:last]), runs[:last]
    asked_for = bool(runs)
    known, problem = lookup.look_at_all(
        tuple(runs), slurm_client(), user_name(), adopt if run_argument is None else None
    )
    for place, run in enumerate(runs):
        runs[place] = lookup.with_job(run, known[run.record])
        if runs[place] != run:  # now it can be found by its job id, too
            index.add(runs[place], os.environ)
    problem = problem if asked_for else None  # who has launched nothing need not have Slurm
    if states:
        runs = [run for run in runs if any(_is_in(task, states) for task in known[run.record])]
    older, runs = older + len(runs) - len(runs[:last]), runs[:last]  # some may have been found in the queue
    if as_json:
        print_json(runs=[report.as_json(run, known[run.record], now, points_of(run)) for run in runs])
    elif runs and points:
        _print_with_tasks(runs, known, now)
    elif runs:
        print_table([HEAD, *(_row(run, known[run.record], now) for run in runs)])
    else:
        note("no runs" + (" like that" if state or since or exp else ": launch one, then it is listed here"))
    if older and not as_json:
        note(f"and {older} older; --last N shows more")
    if problem is not None:
        print_error(problem)
    return problem.exit_code if problem else 0


def _records() -> list[Run]:
    """All records that can be read, the newest first."""
    return _read(index.entries(os.environ, current_directory())[::-1])


def _read(entries: Iterable[index.Entry]) -> list[Run]:
    found, damaged = [], 0
    for entry in entries:
        try:
            found.append(entry.read())
        except UsageError:
            damaged += 1
    if damaged:
        warn(f"{damaged} record{'s' * (damaged > 1)} cannot be read; `slurm-launch status PATH` tells why")
    return found


def _states(given: Sequence[str]) -> set[str]:
    wanted = {word.strip().upper().replace("-", "_") for text in given for word in text.split(",")}
    unknown = sorted(wanted - set(STATES))
    if unknown:
        hint = "one of: " + ", ".join(name.lower() for name in STATES)
        raise UsageError(f"no state is called {unknown[0].lower()!r}", at="--state", hint=hint)
    return wanted


def _is_in(task: Task, states: set[str]) -> bool:
    return task.state in states or ("ACTIVE" in states and (task.waiting or task.running))


def _earliest(text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    if span := re.fullmatch(r"(\d{1,6})\s*(s|m|min|h|d|w)", text):
        seconds = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}[span[2]]
        return now - min(timedelta(seconds=int(span[1]) * seconds), timedelta(days=36500))
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        hint = "write 30m, 2h, 3d or 1w; today or yesterday; or a time such as 2026-11-16 or 2026-11-16T09:30"
        raise UsageError(f"no time can be read from {text!r}", at="--since", hint=hint) from None


def _row(run: Run, tasks: Sequence[Task], now: datetime) -> list[str]:
    first = tasks[0]
    nodes = {task.num_nodes for task in tasks if task.num_nodes}
    ran = [seconds for task in tasks if (seconds := report.elapsed(task, now)) is not None]
    codes = [task.code for task in chains.that_count(run, tasks) if task.code is not None]
    submitted = first.times.get("submitted")
    return [
        run.name,
        run.job_id or "-",
        report.summary(tasks),
        str(max(nodes)) if nodes else "-",
        report.duration(max(ran)) if ran else "-",
        str(max(codes)) if codes else "-",
        report.clock(submitted, now) if submitted else "-",
    ]


def _print_with_tasks(runs: Sequence[Run], known: Mapping[str, Sequence[Task]], now: datetime) -> None:
    """Every run with its own row, and its tasks below."""
    lines = iter(table_lines([HEAD, *(_row(run, known[run.record], now) for run in runs)]))
    print(next(lines))
    for run, line in zip(runs, lines, strict=True):
        print(line)
        tasks = known[run.record]
        if len(tasks) > 1 or "_" in tasks[0].id:
            print_table(task_rows(run, tasks, points_of(run), now), "  ")
