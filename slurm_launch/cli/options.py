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
from slurm_launch.config import resolve as config_resolve
from slurm_launch.config.files import profile_names
from slurm_launch.config.layers import is_list
from slurm_launch.errors import UsageError
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import Option, flag_name
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded
from slurm_launch.spec.sweep_points import Points

WORDS = "words"  # the parameter that holds the command after --
FromScript = Annotated[
    str | None, typer.Option("--from", metavar="SCRIPT", help="Begin with the spec in a script of ours.")
]


def verb_app(function: Callable[..., Any], *, help: str) -> typer.Typer:
    """The Typer app of a verb `function(flags, ...)`: its own options, and those of the spec as `flags`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=markup())
    app.command(cls=SpecCommand, help=help)(takes_spec(function))
    return app


def takes_spec(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function that takes `flags` the options of the spec; `flags` has those that were given."""
    own = [param for name, param in inspect.signature(function, eval_str=True).parameters.items() if name != "flags"]

    def verb(**given: Any) -> Any:
        words = given.pop(WORDS)
        flags = {name: given.pop(name) for name in LaunchSpec.model_fields}
        flags = {name: value for name, value in flags.items() if value is not None}
        return function(with_words(flags, words or []), **given)

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


def with_words(flags: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The flags, with the words after -- as the command."""
    if not words:
        return flags
    if "command" in flags:
        hint = "keep one of them"
        raise UsageError("--command and a command after -- are both given", at="flag --command, --", hint=hint)
    if len(words) == 1 and any(char.isspace() for char in words[0]):
        hint = f"take the quotes away: -- {words[0]}, or write --command {shlex.quote(words[0])}"
        raise UsageError("the command after -- is one quoted word, so it would name a program", at="--", hint=hint)
    return {**flags, "command": shlex.join(words)}


# Of other lists an empty flag takes back what the files say. Here it would be a job that does not wait, or is alone.
_NEVER_EMPTY = ("after", "after_ok", "after_any", "after_notok", "worker_group")


def resolve(
    flags: dict[str, Any], embedded: EmbeddedSpec | None = None, only: Collection[str] | None = None
) -> config_resolve.Resolution:
    """All layers as this process sees them; warnings are printed."""
    for name in _NEVER_EMPTY:
        if "" in (flags.get(name) or ()):
            raise UsageError(f"{flag_name(name)} is empty", at=f"flag {flag_name(name)}", hint="is a variable not set?")
    try:
        cwd = Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", hint="cd to one that does") from None
    found = config_resolve.resolve(flags, os.environ, cwd, embedded, only)
    for text in found.warnings:
        warn(text)
    for text in found.notes:
        note(text)
    return found


def read_script(path: str | None) -> EmbeddedSpec | None:
    """The spec in the header of the script that --from names."""
    if path is None:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"--from cannot be read: {why}", at=path, hint="give a script of slurm-launch") from None
    return read_embedded(text, path)


def points_from(embedded: EmbeddedSpec | None, found: config_resolve.Resolution) -> Points | None:
    """The points that stand in the script of --from; None when there are others now, or none."""
    if embedded is None or not any(found.values.get(name) for name in ("sweep", "sweep_file")):
        return None
    here = {source for name in ("sweep", "sweep_file") for source in found.sources[name] if name in found.values}
    return embedded.points if all(source.startswith(f"{embedded.script} (") for source in here) else None


def origin(found: config_resolve.Resolution) -> EmbeddedSpec:
    """What the script's header is to say about where its values come from."""
    return EmbeddedSpec(own=found.own, site=found.site)


# Everything is taken as text: the checks are the spec's own, with messages of one kind wherever a value comes from.


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

    complete.__annotations__ = {"incomplete": str}  # Typer reads them as types, not as text
    return complete


def _complete_profile(incomplete: str) -> list[str]:
    return [name for name in profile_names(os.environ) if name.startswith(incomplete)]


def choices_of(name: str) -> list[str]:
    annotation = LaunchSpec.model_fields[name].annotation
    return [str(choice) for choice in get_args(annotation)] if get_origin(annotation) is Literal else []


def _is_switch(name: str) -> bool:
    return LaunchSpec.model_fields[name].annotation in (bool, bool | None)


class SpecCommand(TyperCommand):
    """A command with many options: grouped in plain help too, and strict about words before the --."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        for param in self.params:
            if param.name in LaunchSpec.model_fields:
                # Typer would build a pydantic adapter for each: 8 ms to turn text into text
                setattr(param, "process_value", lambda _, value: value)  # noqa: B010

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = list(ctx.params.get(WORDS) or ())
        after = [given[place + 1 :] for place, arg in enumerate(given) if arg == "--"]
        if words and words not in after and not ctx.resilient_parsing:
            stray = words[0]
            hint = "quote the value it belongs to, or put -- before the command: slurm-launch ... -- python train.py"
            raise UsageError(f"unexpected word {stray!r}", hint=hint)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The plain help, by groups."""
        groups: dict[str, list[Any]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = "Arguments" if param.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(param, "rich_help_panel", None) or panel, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)
