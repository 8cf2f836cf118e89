"""`slurm-launch cancel`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from slurm_launch.cli.output import (
    markup,
    note,
    print_json,
    printable,
    warn,
)
from slurm_launch.cli.run_argument import complete, found, slurm_client
from slurm_launch.control import cancel as cancelling
from slurm_launch.control.cancel import Target
from slurm_launch.errors import UsageError

HELP = "Job ids, tasks of an array such as 12_3, names or their beginnings, or paths of .sh, .log or .json files."
app = typer.Typer(add_completion=False, rich_markup_mode=markup())


@app.command()
def cancel(
    run: Annotated[list[str], typer.Argument(metavar="RUN...", help=HELP, autocompletion=complete)],
    now: Annotated[bool, typer.Option("--now", help="End Ray and the command at once, as scancel does.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if it is more than one job.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the jobs have ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    """End runs by their own teardown: the command gets SIGTERM and ten seconds, with its Ray still there."""
    client = slurm_client()
    wanted = [(found(argument), argument) for argument in run]
    there = cancelling.survey(wanted, client)
    for text in there.over:
        note(text)
    if len(there.targets) > 1 and not yes:
        if not _agreed(there.targets):
            note("nothing was cancelled")
            return 0
        told = there.over
        there = cancelling.survey(wanted, client)  # much may have begun or ended before the answer came
        for text in there.over:
            note(text) if text not in told else None
    targets = there.targets
    left: list[Target] = []
    try:
        if targets:
            left = _end(targets, now, wait=not no_wait, quiet=as_json)
    finally:
        if as_json:
            print_json(
                cancelled=[
                    {"id": target.id, "name": target.run.name, "ended": not no_wait and target not in left}
                    for target in targets
                ],
                ended_before=there.over,
            )
    if left:
        raise cancelling.still_there(left, now)
    return 0


def _end(targets: Sequence[Target], now: bool, *, wait: bool, quiet: bool) -> list[Target]:
    """Cancel, and wait; returns those that are still there."""
    client = slurm_client()
    cancelling.end(targets, client, warn, now=now)
    try:
        _explain(targets, now)
        if not wait:
            if not now and {"PENDING", "RUNNING"} <= {target.state for target in targets}:  # one may just have begun
                cancelling.wait(targets, client, grace=0, gone=lambda _: None)
            return []
        show = (lambda _: None) if quiet else (lambda target: print(f"job {target.id} has ended", flush=True))
        return cancelling.wait(targets, client, now=now, gone=show)
    except KeyboardInterrupt:
        note(f"the cancellation goes on; `slurm-launch status {targets[0].id}` tells how far it is")
        raise


def _explain(targets: Sequence[Target], now: bool) -> None:
    running = [target for target in targets if target.listening]
    if now and running:
        note("Ray ends at once, so the command may not be able to save what is in it")
    elif running:
        what = f"job {running[0].id} has" if len(running) == 1 else f"{len(running)} jobs have"
        note(f"{what} been asked to end; the command gets ten seconds to save its work")


def _agreed(targets: Sequence[Target]) -> bool:
    """Ask the person at the terminal; where there is none, more than one job is not ended without -y."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "nothing was cancelled; say so with -y"
        raise UsageError(f"this would end {len(targets)} jobs, and there is nobody to ask", hint=hint)
    for target in targets[:20]:
        print(printable(f"  {target.id}  {target.state.lower()}  {target.run.name}", sys.stderr), file=sys.stderr)
    if len(targets) > 20:
        print(f"  and {len(targets) - 20} more", file=sys.stderr)
    print(f"End these {len(targets)} jobs? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
