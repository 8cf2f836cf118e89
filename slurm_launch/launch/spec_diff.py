"""What becomes of a job on another cluster: the differences between two specs, for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from slurm_launch.config.messages import shown
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.spec.launch_spec import LaunchSpec


def changes(old: LaunchSpec, new: LaunchSpec, sources: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A line for each option that is another one now, with its source, and for each directive that came or went."""
    found = []
    for name in LaunchSpec.model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            key = name.replace("_", "-")
            found.append(f"{key}: {shown(before)} -> {shown(after)} ({', '.join(sources[name])})")
    had, has = _directives(old), _directives(new)
    found += [f"directive dropped: {had[key]}" for key in had if key not in has]
    found += [f"directive added: {has[key]}" for key in has if key not in had]
    return found


def lost_container(old: LaunchSpec, new: LaunchSpec) -> str | None:
    """A container that only the old cluster gave to the job."""
    if old.image is None or new.image is not None:
        return None
    return f"the job runs without a container now; it was in the image {old.image}"


def lost_keys(keys: Iterable[str], new: LaunchSpec) -> list[str]:
    """Of the keys of a sweep that is none any more, those that the command still uses, as they stand there."""
    found = (re.search(rf"\{{{key}\}}|\${key}\b", new.command) for key in keys if key not in new.env)
    return [use[0] for use in found if use]


def _directives(spec: LaunchSpec) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH ") for line in directive_lines(spec, log="x.log")]
    return {line.partition("=")[0]: line for line in lines}
