"""`slurm-launch attach`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from slurm_launch.cli.output import markup, note
from slurm_launch.cli.run_argument import RunArgument, found, slurm_client
from slurm_launch.control import running_job
from slurm_launch.errors import UsageError

_WORDS = "slurm_launch.words"  # in the context: the command after --


class WithWords(TyperCommand):
    """A command line that may end in `-- CMD...`, so that what comes before it needs no --."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_WORDS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


app = typer.Typer(add_completion=False, rich_markup_mode=markup())


@app.command(cls=WithWords)
def attach(
    ctx: typer.Context,
    run: RunArgument = None,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Another node of the job. Default: Ray's head node.")
    ] = None,
) -> int:
    """A shell, or a command after --, inside a running job: with its environment, its Ray and its container.

    slurm-launch attach 12 -- ray status
    """
    words: list[str] = ctx.meta.get(_WORDS, [])
    if len(words) == 1 and any(char.isspace() for char in words[0]):
        hint = f"take the quotes away, or let a shell read it: -- bash -c {words[0]!r}"
        raise UsageError("the command after -- is one quoted word, so it would name a program", at="--", hint=hint)
    if _WORDS in ctx.meta and not words:
        raise UsageError("there is no command after --", at="--", hint="leave the -- away for a shell")
    place = running_job.find(found(run), run, slurm_client())
    pty = sys.stdin.isatty() and sys.stdout.isatty()
    if pty and not words:
        note(f"job {place.task} on {node or place.head}; exit leaves it, the job goes on")
    code = running_job.run(place, words, node=node, pty=pty, env=os.environ, show=_show)
    if code > 128 and (ended := running_job.ending(place)):
        note(f"job {place.task} {ended}")
    return code


def _show(data: bytes) -> None:
    """The command's own stderr, as it is."""
    sys.stderr.flush()
    while data:
        data = data[os.write(sys.stderr.fileno(), data) :]
