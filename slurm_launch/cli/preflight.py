"""Warnings about a job before it is submitted. None of them prevents the submission."""

from __future__ import annotations

import os
import re
from pathlib import Path

from slurm_launch.cli.output import warn
from slurm_launch.config import resolve
from slurm_launch.config.profile import SiteFacts
from slurm_launch.config.profile_rules import refusals
from slurm_launch.errors import UsageError
from slurm_launch.launch.spec_diff import lost_container, lost_keys
from slurm_launch.spec.conflicts import gpu_requests, has_gpus, hatches
from slurm_launch.spec.container_runtimes import is_image_file
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec


def checked_spec(resolution: resolve.Resolution, old: LaunchSpec | None = None) -> LaunchSpec:
    """The spec, with warnings about what the site does not offer: the profile may be outdated."""
    spec = resolution.spec()
    if resolution.facts:
        for text in refusals(spec, resolution.facts):
            warn(text)
    for text in unused_gpus(spec, resolution.site_facts):
        warn(text)
    warn_lost_container(old, spec)
    return spec


def warn_lost_container(old: LaunchSpec | None, new: LaunchSpec) -> None:
    if old is not None and (text := lost_container(old, new)):
        warn(text)


def warn_lost_points(embedded: EmbeddedSpec | None, new: LaunchSpec) -> None:
    if embedded is None or embedded.points is None or new.is_sweep:
        return
    if keys := lost_keys(embedded.points.keys, new):
        text = f"the job is no longer a sweep: its command has no value for {', '.join(keys)}"
        warn(f"{text}; use another --command")


def old_spec(embedded: EmbeddedSpec | None) -> LaunchSpec | None:
    """The spec that a script was generated from, without the configuration of this machine; None if it is invalid."""
    if embedded is None:
        return None
    try:
        return resolve.resolve({}, {}, Path.cwd(), embedded).spec()
    except UsageError:
        return None


def unused_gpus(spec: LaunchSpec, site: SiteFacts) -> list[str]:
    """Messages about GPUs that the job has, but that Ray does not get."""
    known = site.partitions or {}
    limits = [known[name].limits.get("max_gpus") for name in (spec.partition or "").split(",") if name in known]
    most = max((int(str(limit.value)) for limit in limits if limit), default=0)
    exclusive = "exclusive" not in spec.no_sbatch and (spec.exclusive or "exclusive" in spec.sbatch)
    found = []
    if exclusive and most and not has_gpus(spec) and not gpu_requests(spec):
        found.append(
            f"the nodes of partition {spec.partition} have GPUs, but Ray gets none: --exclusive does not give them to"
            f" the steps of the script; add --num-gpus {most}"
        )
    shards = [
        f"--sbatch {key}={text}"
        for key, text in hatches(spec).items()
        if key.startswith(("gres", "gpus", "tres")) and re.search(r"\bshard\b", text or "")
    ]
    if shards and not any("num-gpus" in word for word in (*spec.ray_arg, *spec.ray_head_arg, *spec.ray_worker_arg)):
        found.append(f"{shards[0]} requests shards of a GPU, which Ray does not count; add --ray-arg=--num-gpus=1")
    return found


def missing_images(spec: LaunchSpec) -> list[str]:
    """Messages about image files that do not exist here. The nodes may still have them."""
    images = dict.fromkeys(image for image in (spec.image, spec.workers_image) if image and is_image_file(image))
    user = os.environ.get("USER", "%u")
    return [
        f"{image} does not exist on this machine; the nodes must have it"
        for image in images
        if not os.path.exists(Path(spec.chdir or "", image.replace("%u", user)))
    ]
