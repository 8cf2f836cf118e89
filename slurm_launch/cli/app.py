"""The root command: each verb is imported when it is called; without a verb, `submit` is called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from slurm_launch import __version__
from slurm_launch.cli.output import markup
from slurm_launch.cli.signals import Interrupted, ReaderGone
from slurm_launch.cli.summaries import SUMMARIES

DEFAULT_VERB = "submit"
ROOT_OPTIONS = ("--version", "--help", "-h", "--install-completion", "--show-completion")


class LazyGroup(TyperGroup):
    """A group of verbs that imports only the one that is called, from slurm_launch.cli.verbs.<verb>.

    Importing all of them takes 330 ms of CPU time; `--version` takes 70 ms without."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=help) for name, help in SUMMARIES.items()}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # resilient: shell completion
            args = ["--help"]
        if args and _is_submit(args[0]):
            args = [DEFAULT_VERB, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder and _load(str(name)), rest

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete verbs and root options, and the options of submit, the default verb."""
        items = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            submit = _load(DEFAULT_VERB)
            with submit.make_context(DEFAULT_VERB, [], parent=ctx, resilient_parsing=True) as inner:
                known = {item.value for item in items}
                items += [item for item in submit.shell_complete(inner, incomplete) if item.value not in known]
        return items

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


class _LazyCoercion:
    """Coerces the value of a parameter only if it does not have its type already.

    Typer imports pydantic for every parameter, even to turn text into text: 100 ms of CPU time, half of `status`."""

    def __init__(self, build: Any, parameter: Any) -> None:
        self._build, self._parameter = build, parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        annotation = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if isinstance(annotation, type) and isinstance(value, annotation):
            return value
        if annotation == list[str] and not isinstance(value, str):
            return list(value)
        return self._build(self._parameter).coerce(value, param=param, ctx=ctx)


def _coerce_lazily() -> None:
    """Install _LazyCoercion where this version of Typer has what it needs; without it, all works the same."""
    parameter = getattr(typer.core, "_TyperParameter", None)
    build = getattr(parameter, "get_runtime_param", None)
    if build is not None and not hasattr(build, "is_lazy"):

        def get_runtime_param(self: Any) -> _LazyCoercion:
            return _LazyCoercion(build, self)

        setattr(get_runtime_param, "is_lazy", True)  # noqa: B010
        setattr(parameter, "get_runtime_param", get_runtime_param)  # noqa: B010


@contextmanager
def _without_pydantic_plugins() -> Iterator[None]:
    """Keep pydantic from searching all installed packages for plugins.

    It takes 5 ms of CPU time for 100 packages, and opens a file for each, which is slow on a network file system."""
    if "PYDANTIC_DISABLE_PLUGINS" in os.environ:
        yield
        return
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"
    try:
        yield
    finally:  # the job inherits this environment and may need its own plugins
        del os.environ["PYDANTIC_DISABLE_PLUGINS"]


def build() -> Any:
    """Build the root command."""
    _coerce_lazily()
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(cls=LazyGroup, rich_markup_mode=markup(), context_settings=settings)
    app.callback()(_root)
    return get_command(app)


def _print_version(wanted: bool) -> None:
    if wanted:
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
