"""Values in plain words, and pydantic's findings: the flag first, what is wrong, where it came from, what to write."""

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
    "command": "say what to run: --command 'python train.py', or last on the line: -- python train.py;"
    " or --idle: a cluster that waits for you",
}


def shown(value: Any) -> str:
    """A value on one line."""
    if value is None or value in ([], (), {}):
        return "-"
    if isinstance(value, dict):
        value = [key if text is None else f"{key}={text}" for key, text in value.items()]
    if isinstance(value, (list, tuple)):
        return shown(shlex.join(str(item) for item in value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if str(value).isprintable() else json.dumps(value)


def problem_of(
    detail: ErrorDetails, sources: Mapping[str, tuple[str, ...]], item_sources: Mapping[str, tuple[str, ...]]
) -> UsageError:
    """One finding as an error for the user."""
    if not detail["loc"]:
        return _across_options(detail, sources)
    name = str(detail["loc"][0]).replace("-", "_")
    flag = flag_name(name)
    if detail["type"] == "missing":
        return UsageError(f"{flag} is missing", hint=_MISSING.get(name, f"give {flag}"))
    message, hint = _words(name, detail)
    # "--mem is not ..." reads on from the flag; "--sbatch: --output cannot ..." begins anew
    joint = " " if message[:1].islower() and not message.startswith("the ") else ": "
    at = ", ".join(sources.get(name, ()))
    items = item_sources.get(name, ())
    if len(detail["loc"]) > 1 and isinstance(detail["loc"][1], int) and detail["loc"][1] < len(items):
        at = items[detail["loc"][1]]
    return UsageError(flag + joint + message, at=at or None, hint=hint or None)


def _words(name: str, detail: ErrorDetails) -> tuple[str, str]:
    """What is wrong with one value, and what to write instead."""
    value, limits = show(detail["input"]), detail.get("ctx", {})
    kind = detail["type"]
    if kind == "value_error":
        cause = limits["error"]
        return str(cause), getattr(cause, "hint", "")
    if kind.startswith("int"):
        return f"is not a whole number: {value}", f"write one, for example {_example(name)}"
    if kind == "greater_than_equal":
        return f"must be at least {limits['ge']}, not {value}", f"write a number from {limits['ge']} on"
    if kind == "literal_error":
        return _unknown_choice(name, detail["input"])
    if kind.startswith("bool"):
        return f"is neither true nor false: {value}", "write true or false"
    if kind in ("string_type", "tuple_type", "dict_type"):
        return f"has a value of the wrong type: {value}", f"write it like {_example(name)}"
    return f"is not right: {value}: {detail['msg']}", f"write it like {_example(name)}"


def _unknown_choice(name: str, value: Any) -> tuple[str, str]:
    choices = [str(choice) for choice in get_args(LaunchSpec.model_fields[name].annotation)]
    close = get_close_matches(str(value).lower(), choices, n=1)
    hint = f"choose from {', '.join(choices)}"
    return f"has no choice {show(value)}", f"did you mean {close[0]!r}? {hint}" if close else hint


def _example(name: str) -> str:
    examples = options()[name].examples
    default = LaunchSpec.model_fields[name].default
    return str(examples[0] if examples else default if isinstance(default, int) and default else 1)


def _across_options(detail: ErrorDetails, sources: Mapping[str, tuple[str, ...]]) -> UsageError:
    """Options that do not fit together: the message names them, so their sources can be told."""
    cause = detail.get("ctx", {}).get("error")
    message = str(cause) if cause else detail["msg"]
    named = [flag[2:].replace("-", "_") for flag in re.findall(r"--[a-z-]+", message)]
    at = [source for name in named for source in sources.get(name, ()) if source != "built-in"]
    return UsageError(message, at=", ".join(dict.fromkeys(at)) or None, hint=getattr(cause, "hint", "") or None)
