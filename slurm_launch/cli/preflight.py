"""What may go wrong with a job, as far as it can be told before it is queued. Nothing here keeps it from being made."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_launch.cli.output import warn
from slurm_launch.config import resolve
from slurm_launch.errors import UsageError
from slurm_launch.spec.container_runtimes import is_file
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec


def checked(found: resolve.Resolution, old: LaunchSpec | None = None) -> LaunchSpec:
    """The spec. What the site cannot do is a warning only: the profile may be older than the cluster."""
    spec = found.spec()
    if found.facts:
        from slurm_launch.config.profile_rules import refusals

        for text in refusals(spec, found.facts):
            warn(text)
    warn_of_lost_container(old, spec)
    return spec


def warn_of_lost_container(old: LaunchSpec | None, new: LaunchSpec) -> None:
    if old is not None:
        from slurm_launch.launch.spec_diff import lost_container

        if text := lost_container(old, new):
            warn(text)


def warn_of_lost_points(embedded: EmbeddedSpec | None, new: LaunchSpec) -> None:
    if embedded is not None and embedded.points is not None and not new.is_sweep:
        from slurm_launch.launch.spec_diff import lost_keys

        if keys := lost_keys(embedded.points.keys, new):
            text = f"the job is no sweep any more: there is no value for {', '.join(keys)} in its command"
            warn(f"{text}; give another --command")


def old_spec(embedded: EmbeddedSpec | None) -> LaunchSpec | None:
    """The job that a script was made for, without this machine; None when it cannot be told."""
    if embedded is None:
        return None
    try:
        return resolve.resolve({}, {}, Path.cwd(), embedded).spec()
    except UsageError:
        return None


def absent_images(spec: LaunchSpec) -> list[str]:
    """The images that are files and not to be seen here. The nodes may have them all the same."""
    images = dict.fromkeys(image for image in (spec.image, spec.workers_image) if image and is_file(image))
    user = os.environ.get("USER", "%u")
    return [
        f"{image} is not here: the nodes must see it"
        for image in images
        if not os.path.exists(Path(spec.chdir or "", image.replace("%u", user)))
    ]
