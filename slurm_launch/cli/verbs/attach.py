"""`slurm-launch attach`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from slurm_launch.cli.output import markup, note
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.control import running_job
from slurm_launch.errors import UsageError

_WORDS = "slurm_launch.words"  # key in the context for the command after --


class CommandAfterDashes(TyperCommand):
    """A command line that may end in `-- COMMAND...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_WORDS] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = (
    "It has the environment, the Ray cluster and the container of the job's own command.\n\n"
    "slurm-launch attach 12 -- ray status"
)


@app.command(cls=CommandAfterDashes, help=help_text("attach", DETAILS))
def attach(
    ctx: typer.Context,
    run: RunArgument = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Node of the job. Default: Ray's head node.")] = None,
) -> int:
    words: list[str] = ctx.meta.get(_WORDS, [])
    if len(words) == 1 and any(char.isspace() for char in words[0]):
        hint = f"remove the quotes, or use a shell: -- bash -c {words[0]!r}"
        raise UsageError(
            "the command after -- is one quoted word, which would be the name of a program", at="--", hint=hint
        )
    if _WORDS in ctx.meta and not words:
        raise UsageError("there is no command after --", at="--", hint="leave out the -- for a shell")
    job = running_job.find_running(find_run(run), run, slurm_client())
    pty = sys.stdin.isatty() and sys.stdout.isatty()
    if pty and not words:
        note(f"job {job.task} on {node or job.head}; `exit` leaves the shell, the job keeps running")
    code = running_job.run_command(job, words, node=node, pty=pty, env=os.environ, show=_show)
    if code > 128 and (ended := running_job.describe_end(job)):
        note(f"job {job.task} {ended}")
    return code


def _show(data: bytes) -> None:
    """Write the command's stderr unchanged."""
    sys.stderr.flush()
    while data:
        data = data[os.write(sys.stderr.fileno(), data) :]
