"""Values and pydantic's errors as messages for the user: the flag, what is wrong, the source, and what to do."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from slurm_launch.errors import UsageError, show
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import flag_name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_MISSING = {
    "exp_name": "name the experiment: slurm-launch --exp-name test --command 'python train.py'",
    "command": "specify what to run: --command 'python train.py', or at the end of the line: -- python train.py;"
    " or use --idle for a cluster without a command",
}


class MissingOption(UsageError):
    """A required option has no value."""


def format_value(value: Any) -> str:
    """A value on one line."""
    if value is None or value in ([], (), {}):
        return "-"
    if isinstance(value, dict):
        value = [key if text is None else f"{key}={text}" for key, text in value.items()]
    if isinstance(value, (list, tuple)):
        return format_value(shlex.join(str(item) for item in value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if str(value).isprintable() else json.dumps(value)


def usage_error(
    detail: ErrorDetails, sources: Mapping[str, tuple[str, ...]], item_sources: Mapping[str, tuple[str, ...]]
) -> UsageError:
    """One of pydantic's errors as an error for the user."""
    if not detail["loc"]:
        return _across_options(detail, sources)
    name = str(detail["loc"][0]).replace("-", "_")
    flag = flag_name(name)
    if detail["type"] == "missing":
        return MissingOption(f"{flag} is missing", hint=_MISSING.get(name, f"add {flag}"))
    message, hint = _describe(name, detail)
    # "--mem is not ..." continues after the flag; "--sbatch: --output cannot ..." is a new clause
    separator = " " if message[:1].islower() and not message.startswith("the ") else ": "
    at = ", ".join(sources.get(name, ()))
    items = item_sources.get(name, ())
    if len(detail["loc"]) > 1 and isinstance(detail["loc"][1], int) and detail["loc"][1] < len(items):
        at = items[detail["loc"][1]]
    return UsageError(flag + separator + message, at=at or None, hint=hint or None)


def _describe(name: str, detail: ErrorDetails) -> tuple[str, str]:
    """What is wrong with a value, and the hint."""
    value, limits = show(detail["input"]), detail.get("ctx", {})
    kind = detail["type"]
    if kind == "value_error":
        cause = limits["error"]
        return str(cause), getattr(cause, "hint", "")
    if kind.startswith("int"):
        return f"is not a whole number: {value}", f"for example, write {_example(name)}"
    if kind == "greater_than_equal":
        return f"must be at least {limits['ge']}, not {value}", f"use {limits['ge']} or more"
    if kind == "literal_error":
        return _unknown_choice(name, detail["input"])
    if kind.startswith("bool"):
        return f"is neither true nor false: {value}", "write true or false"
    if kind in ("string_type", "tuple_type", "dict_type"):
        return f"has a value of the wrong type: {value}", f"write it like {_example(name)}"
    return f"is not valid: {value}: {detail['msg']}", f"write it like {_example(name)}"


def _unknown_choice(name: str, value: Any) -> tuple[str, str]:
    choices = [str(choice) for choice in get_args(LaunchSpec.model_fields[name].annotation)]
    close = get_close_matches(str(value).lower(), choices, n=1)
    hint = f"choose from {', '.join(choices)}"
    return f"has an invalid value: {show(value)}", f"did you mean {close[0]!r}? {hint}" if close else hint


def _example(name: str) -> str:
    examples = options()[name].examples
    default = LaunchSpec.model_fields[name].default
    if examples:
        return str(examples[0])
    return str(default if isinstance(default, int) and default else 1)


def _across_options(detail: ErrorDetails, sources: Mapping[str, tuple[str, ...]]) -> UsageError:
    """The error for options that conflict, with the sources of the options that its message names."""
    cause = detail.get("ctx", {}).get("error")
    message = str(cause) if cause else detail["msg"]
    named = [flag[2:].replace("-", "_") for flag in re.findall(r"--[a-z-]+", message)]
    at = [source for name in named for source in sources.get(name, ()) if source != "built-in"]
    return UsageError(message, at=", ".join(dict.fromkeys(at)) or None, hint=getattr(cause, "hint", "") or None)
