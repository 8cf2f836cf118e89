"""The command line of a verb that takes a whole spec, derived from the spec's own declarations."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic_core import PydanticUndefined
from typer.core import TyperCommand

from slurm_launch.cli.output import markup, note, warn
from slurm_launch.cli.summaries import help_text
from slurm_launch.config import resolve as config_resolve
from slurm_launch.config.files import profile_names
from slurm_launch.config.layers import is_list
from slurm_launch.errors import UsageError
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import DEPENDENCIES, Option, flag_name
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded
from slurm_launch.spec.sweep_points import Points

WORDS = "words"  # the parameter that holds the command after --
FromScript = Annotated[
    str | None, typer.Option("--from", metavar="SCRIPT", help="Start from the spec in a generated script.")
]


def verb_app(function: Callable[..., Any], name: str, details: str = "") -> typer.Typer:
    """The Typer app of a verb `function(flags, ...)`: its own options, and those of the spec as `flags`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=markup())
    app.command(cls=SpecCommand, help=help_text(name, details))(with_spec_options(function))
    return app


def with_spec_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the spec to a function that takes `flags`, which gets those that the user set."""
    own = [param for name, param in inspect.signature(function, eval_str=True).parameters.items() if name != "flags"]

    def verb(**given: Any) -> Any:
        words = given.pop(WORDS)
        flags = {name: given.pop(name) for name in LaunchSpec.model_fields}
        flags = {name: value for name, value in flags.items() if value is not None}
        return function(with_command_words(flags, words or []), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    params = [param.replace(kind=keyword) for param in own]
    params += [
        inspect.Parameter(name, keyword, default=_typer_option(name, option), annotation=_annotation(name))
        for name, option in options().items()
    ]
    words_help = "The command to run, instead of --command."
    words = typer.Argument(None, metavar="-- COMMAND", help=words_help, show_default=False)
    params.append(inspect.Parameter(WORDS, keyword, default=words, annotation=list[str] | None))
    verb.__name__, verb.__doc__, verb.__annotations__ = function.__name__, function.__doc__, {}
    verb.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
    return verb


def with_command_words(flags: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The flags, with the words after -- as --command."""
    if not words:
        return flags
    if "command" in flags:
        hint = "use one of them"
        raise UsageError("--command and a command after -- are mutually exclusive", at="flag --command, --", hint=hint)
    if len(words) == 1 and any(char.isspace() for char in words[0]):
        hint = f"remove the quotes: -- {words[0]}, or use --command {shlex.quote(words[0])}"
        message = "the command after -- is one quoted word, which would be the name of a program"
        raise UsageError(message, at="--", hint=hint)
    return {**flags, "command": shlex.join(words)}


# An empty flag clears other lists. For these it would silently drop a dependency or a worker group.
_NEVER_EMPTY = (*DEPENDENCIES, "worker_group")


def resolve(
    flags: dict[str, Any], embedded: EmbeddedSpec | None = None, only: Collection[str] | None = None
) -> config_resolve.Resolution:
    """Merge all layers of configuration, and print the warnings."""
    for name in _NEVER_EMPTY:
        if "" in (flags.get(name) or ()):
            hint = "check whether a shell variable is unset"
            raise UsageError(f"{flag_name(name)} is empty", at=f"flag {flag_name(name)}", hint=hint)
    try:
        cwd = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory no longer exists", hint="cd to an existing directory") from None
    resolution = config_resolve.resolve(flags, os.environ, cwd, embedded, only)
    for text in resolution.warnings:
        warn(text)
    for text in resolution.notes:
        note(text)
    return resolution


def read_script(path: str | None) -> EmbeddedSpec | None:
    """Read the spec in the header of the script that --from names."""
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"cannot read the script of --from: {why}", at=path, hint="use a generated script") from None
    return read_embedded(text, path)


def embedded_points(embedded: EmbeddedSpec | None, resolution: config_resolve.Resolution) -> Points | None:
    """The sweep points in the script of --from; None if there are none, or if the sweep was changed."""
    if embedded is None or not any(resolution.values.get(name) for name in ("sweep", "sweep_file")):
        return None
    names = [name for name in ("sweep", "sweep_file") if name in resolution.values]
    sources = {source for name in names for source in resolution.sources[name]}
    return embedded.points if all(source.startswith(f"{embedded.script} (") for source in sources) else None


def header_spec(resolution: config_resolve.Resolution) -> EmbeddedSpec:
    """The spec for the header of the script, with the site's values apart."""
    return EmbeddedSpec(own=resolution.own, site=resolution.site)


# Every value is passed as text to the checks of the spec, so that messages are the same for flags, variables and files.


def _annotation(name: str) -> Any:
    if is_list(name):
        return list[str] | None
    return bool | None if _is_switch(name) else str | None


def _typer_option(name: str, option: Option) -> Any:
    flag = flag_name(name)
    choices = choices_of(name)
    return typer.Option(
        None,
        f"{flag}/--no-{flag[2:]}" if _is_switch(name) else flag,
        *option.flags,
        help=_help(name, option),
        metavar="CHOICE" if choices else option.metavar,
        rich_help_panel=option.group,
        show_default=False,
        autocompletion=_completion(name, choices),
    )


def _help(name: str, option: Option) -> str:
    text, default = option.help, LaunchSpec.model_fields[name].default
    if choices := choices_of(name):
        text += f" One of: {', '.join(choices)}."
    if default is PydanticUndefined or default is None or default in ((), {}) or "Default:" in text:
        return text
    shown = {True: "yes", False: "no"}[default] if isinstance(default, bool) else default
    return f"{text} Default: {shown}"


def _completion(name: str, choices: list[str]) -> Callable[[str], list[str]] | None:
    if name == "profile":
        return _complete_profile
    if not choices:
        return None

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    complete.__annotations__ = {"incomplete": str}  # Typer needs the type itself, not its name
    return complete


def _complete_profile(incomplete: str) -> list[str]:
    return [name for name in profile_names(os.environ) if name.startswith(incomplete)]


def choices_of(name: str) -> list[str]:
    annotation = LaunchSpec.model_fields[name].annotation
    return [str(choice) for choice in get_args(annotation)] if get_origin(annotation) is Literal else []


def _is_switch(name: str) -> bool:
    return LaunchSpec.model_fields[name].annotation in (bool, bool | None)


class SpecCommand(TyperCommand):
    """A command with many options: grouped in plain help too, and strict about words before the `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = list(ctx.params.get(WORDS) or ())
        after_dashes = [given[index + 1 :] for index, arg in enumerate(given) if arg == "--"]
        if words and words not in after_dashes and not ctx.resilient_parsing:
            hint = "quote the value it belongs to, or put -- before the command: slurm-launch ... -- python train.py"
            raise UsageError(f"unexpected argument {words[0]!r}", hint=hint)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the plain help, by groups."""
        groups: dict[str, list[Any]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = "Arguments" if param.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(param, "rich_help_panel", None) or panel, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
