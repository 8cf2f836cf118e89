"""The root command: a table of verbs, each imported when it is called; a bare call is `submit`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from slurm_launch.cli.output import markup
from slurm_launch.cli.signals import Interrupted, ReaderGone

# Each verb with its line in `slurm-launch --help`; its module is slurm_launch.cli.verbs.<verb>.
VERBS = {
    "submit": "Write the script and submit it; a bare call does this too.",
    "resubmit": "Run a run again, or what of it failed, as a new run.",
    "render": "Print the script; needs no Slurm.",
    "rehearse": "Run the script on this machine, with real Ray and without Slurm.",
    "check": "Try the script without queueing it: bash -n, shellcheck, sbatch --test-only.",
    "list": "List the runs, the newest first.",
    "status": "Tell how a run is doing.",
    "watch": "Watch a run to its end; exit with the command's code.",
    "logs": "Show the log of a run, or those of its nodes.",
    "explain": "Tell why a run failed, and what to do.",
    "cancel": "End runs: the command gets its time to save, and its Ray as long as that.",
    "attach": "A shell or a command inside a running job, beside its Ray.",
    "dashboard": "The way to the dashboard of a running job; --open opens it.",
    "grow": "Add nodes to a running cluster, by a job of their own.",
    "doctor": "Look at the cluster: what works here, what is missing; write its profile.",
    "config": "Show, locate and begin the configuration.",
}
DEFAULT_VERB = "submit"
ROOT_OPTIONS = ("--version", "--help", "-h", "--install-completion", "--show-completion")


class LazyGroup(TyperGroup):
    """A group that knows its verbs by name and help, and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=help) for name, help in VERBS.items()}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # resilient: shell completion
            args = ["--help"]
        if args and _is_submit(args[0]):
            args = [DEFAULT_VERB, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and _load(str(name)), rest

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Verbs and our own options; and, for a bare call, the options of submit."""
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            submit = _load(DEFAULT_VERB)
            with submit.make_context(DEFAULT_VERB, [], parent=ctx, resilient_parsing=True) as inner:
                known = {item.value for item in found}
                found += [item for item in submit.shell_complete(inner, incomplete) if item.value not in known]
        return found

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except BrokenPipeError:
            raise ReaderGone from None


def _is_submit(first: str) -> bool:
    return first.startswith("-") and first.partition("=")[0] not in ROOT_OPTIONS


def _load(name: str) -> Any:
    with _without_pydantic_plugins():
        return get_command(import_module(f"slurm_launch.cli.verbs.{name}").app)


@contextmanager
def _without_pydantic_plugins() -> Iterator[None]:
    """Keep pydantic from searching all installed packages for plugins: 15 ms, and far more in a large environment."""
    if "PYDANTIC_DISABLE_PLUGINS" in os.environ:
        yield
        return
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"
    try:
        yield
    finally:  # the job inherits our environment and may want its own plugins
        del os.environ["PYDANTIC_DISABLE_PLUGINS"]


def build() -> Any:
    """The root command, ready to run."""
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(cls=LazyGroup, rich_markup_mode=markup(), context_settings=settings)
    app.callback()(_root)
    return get_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from slurm_launch import __version__

        print(f"slurm-launch {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Start Ray on Slurm: one command, one portable sbatch script.

    slurm-launch --exp-name test --command 'python train.py' --num-nodes 3
    """
