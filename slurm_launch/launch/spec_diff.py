"""The differences between two specs, for people: what changes when a job moves to another cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from slurm_launch.config.messages import format_value
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.spec.launch_spec import LaunchSpec


def changes(old: LaunchSpec, new: LaunchSpec, sources: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a line for each option that differs, with its source, and for each directive added or removed."""
    lines = []
    for name in LaunchSpec.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            key = name.replace("_", "-")
            lines.append(f"{key}: {format_value(before)} -> {format_value(after)} ({', '.join(sources[name])})")
    had, has = _directives(old), _directives(new)
    lines += [f"directive removed: {had[key]}" for key in had if key not in has]
    lines += [f"directive added: {has[key]}" for key in has if key not in had]
    return lines


def lost_container(old: LaunchSpec, new: LaunchSpec) -> str | None:
    """Return a warning if the job loses its container, which only the old cluster had configured."""
    if old.image is None or new.image is not None:
        return None
    return f"the job now runs without a container; before, it used the image {old.image}"


def lost_keys(keys: Iterable[str], new: LaunchSpec) -> list[str]:
    """Return how the command uses the keys of a sweep that the new spec no longer has."""
    uses = (re.search(rf"\{{{key}\}}|\${key}\b", new.command) for key in keys if key not in new.env)
    return [use[0] for use in uses if use]


def _directives(spec: LaunchSpec) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH ") for line in directive_lines(spec, log="x.log")]
    return {line.partition("=")[0]: line for line in lines}
