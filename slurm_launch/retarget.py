"""What becomes of a job on another cluster: the differences between two specs, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slurm_launch.directives import directive_lines
from slurm_launch.spec import LaunchSpec


def changes(old: LaunchSpec, new: LaunchSpec, sources: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A line for each option that is another one now, with its source, and for each directive that came or went."""
    found = []
    for name in LaunchSpec.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            key = name.replace("_", "-")
            found.append(f"{key}: {_shown(before)} -> {_shown(after)} ({', '.join(sources[name])})")
    had, has = _directives(old), _directives(new)
    found += [f"directive dropped: {had[key]}" for key in had if key not in has]
    found += [f"directive added: {has[key]}" for key in has if key not in had]
    return found


def _directives(spec: LaunchSpec) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH ") for line in directive_lines(spec, log="x.log")]
    return {line.partition("=")[0]: line for line in lines}


def _shown(value: Any) -> str:
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, dict):
        value = [key if text is None else f"{key}={text}" for key, text in value.items()]
    if isinstance(value, (list, tuple)):
        return " ".join(_shown(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if str(value).isprintable() else json.dumps(value)
