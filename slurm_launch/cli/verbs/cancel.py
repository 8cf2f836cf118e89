"""`slurm-launch cancel`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, note, print_json, printable, warn
from slurm_launch.cli.run_argument import complete_run, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.control import cancel as control
from slurm_launch.control.cancel import CancelTarget
from slurm_launch.errors import UsageError

HELP = "Job IDs, array tasks such as 12_3, run names or prefixes of them, or paths of .sh, .log or .json files."
app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = "The command gets SIGTERM and ten seconds to save its work; Ray stays up until it has ended."


@app.command(help=help_text("cancel", DETAILS))
def cancel(
    run: Annotated[list[str], typer.Argument(metavar="RUN...", help=HELP, autocompletion=complete_run)],
    now: Annotated[bool, typer.Option("--now", help="Kill Ray and the command at once, as scancel does.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Cancel several jobs without confirmation.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait for the jobs to end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    client = slurm_client()
    wanted = [(find_run(argument), argument) for argument in run]
    plan = control.plan_cancel(wanted, client)
    for text in plan.already_ended:
        note(text)
    if len(plan.targets) > 1 and not yes:
        if not _confirmed(plan.targets):
            note("nothing was canceled")
            return 0
        noted = plan.already_ended
        plan = control.plan_cancel(wanted, client)  # jobs may have started or ended before the answer
        for text in plan.already_ended:
            if text not in noted:
                note(text)
    targets = plan.targets
    left: list[CancelTarget] = []
    try:
        if targets:
            left = _cancel(targets, now, wait=not no_wait, quiet=as_json)
    finally:
        if as_json:
            print_json(
                cancelled=[
                    {"id": target.id, "name": target.run.name, "ended": not no_wait and target not in left}
                    for target in targets
                ],
                ended_before=plan.already_ended,
            )
    if left:
        raise control.not_ended_error(left, now)
    return 0


def _cancel(targets: Sequence[CancelTarget], now: bool, *, wait: bool, quiet: bool) -> list[CancelTarget]:
    """Cancel and wait; returns the jobs that are still running."""
    client = slurm_client()
    control.cancel(targets, client, warn, now=now)
    try:
        _note_effect(targets, now)
        if not wait:
            states = {target.state for target in targets}
            if not now and {"PENDING", "RUNNING"} <= states:  # a pending task may have just started
                control.wait(targets, client, grace=0, on_end=lambda _: None)
            return []
        show = (lambda _: None) if quiet else (lambda target: print(f"job {target.id} has ended", flush=True))
        return control.wait(targets, client, now=now, on_end=show)
    except KeyboardInterrupt:
        note(f"the cancellation continues; `slurm-launch status {targets[0].id}` shows the progress")
        raise


def _note_effect(targets: Sequence[CancelTarget], now: bool) -> None:
    running = [target for target in targets if target.script_running]
    if now and running:
        note("Ray is killed at once, so the command may be unable to save data that is in it")
    elif running:
        what = f"job {running[0].id}" if len(running) == 1 else f"{len(running)} jobs"
        note(f"stopping {what}; the command has ten seconds to save its work")


def _confirmed(targets: Sequence[CancelTarget]) -> bool:
    """Ask on the terminal; without one, canceling several jobs needs -y."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "nothing was canceled; confirm with -y"
        raise UsageError(f"this would cancel {len(targets)} jobs, and there is no terminal to confirm on", hint=hint)
    for target in targets[:20]:
        print(printable(f"  {target.id}  {target.state.lower()}  {target.run.name}", sys.stderr), file=sys.stderr)
    if len(targets) > 20:
        print(f"  and {len(targets) - 20} more", file=sys.stderr)
    print(f"Cancel these {len(targets)} jobs? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
