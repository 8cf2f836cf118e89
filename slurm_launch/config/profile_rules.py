"""What the facts of a site mean for one job: values that follow from them, and what cannot work there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from slurm_launch.config.layers import (
    Given,
    Layer,
    merge,
    value_of,
)
from slurm_launch.config.profile import Partition, Site
from slurm_launch.errors import show
from slurm_launch.slurm import hostlist
from slurm_launch.slurm.times import seconds
from slurm_launch.spec import checks
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.hetjob import components
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import NEEDS, flag_name
from slurm_launch.spec.worker_groups import parse

_IMAGES = ("container_image", "head_image", "worker_image")


@dataclass
class Job:
    """The job's values as the rules change them, and what the user is to know of it."""

    merged: Layer
    unused: Layer = field(default_factory=dict)  # what the site says of something that this job does not use
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def value(self, name: str) -> object:
        return value_of(name, self.merged[name]) if name in self.merged else None


def apply(site_layer: Layer, own: Layer, facts: Site | None, inherited: Iterable[str] = ()) -> Job:
    """The site's layer and the user's as one, with all that follows from the facts.

    `inherited` are the options among the user's that an older script brought along: they were right for another job.
    """
    site = facts or Site()
    job = Job(merge([site_layer, own])[0])
    partition = _partition_of(job, site)
    if partition is not None:
        job.merged = merge([merge([site_layer, partition.defaults])[0], own])[0]
    if site.node_prefix is not None and site.node_prefix.value:
        for name in ("node", "exclude"):
            _complete_hosts(job, name, site.node_prefix)
    if site.gpu_types or site.node_types:
        _look_at_hosts(job, site)
    _choose_image(job, own, site)
    _drop_unused(job, own, set(inherited))
    return job


def _partition_of(job: Job, site: Site) -> Partition | None:
    name = job.value("partition")
    return site.partitions.get(name) if site.partitions and isinstance(name, str) else None


def _complete_hosts(job: Job, name: str, prefix: Given) -> None:
    """ReaL's way to name nodes: NODE[01-02], or [01-02] alone."""
    text = job.value(name)
    if not isinstance(text, str):
        return
    parts = re.split(r",(?![^\[]*\])", text)  # the commas outside of brackets
    completed = ",".join(re.sub(r"^(NODE(?=[\[0-9])|(?=\[))", lambda _: str(prefix.value), part) for part in parts)
    if completed != text:
        job.merged[name] = Given(completed, job.merged[name].at)
        job.notes.append(f"{flag_name(name)} {text} means {completed} here: node-prefix, {prefix.at}")


def _look_at_hosts(job: Job, site: Site) -> None:
    text = job.value("node")
    if not isinstance(text, str):
        return
    try:
        hosts = hostlist.expand(text)
    except Exception:  # the spec's own check will say what is wrong with it
        return
    kinds = _by_type(hosts, site.node_types or {})
    if len([kind for kind in kinds if kind]) > 1:
        job.warnings.append(f"--node has nodes of different types: {_told(kinds)}")
    if _has_gpus(job) and "gpu_type" not in job.merged and site.gpu_types:
        kinds = _by_type(hosts, site.gpu_types)
        if list(kinds) == [None]:
            return
        if len(kinds) > 1:
            job.warnings.append(f"--node has different GPUs, so no type is asked for: {_told(kinds)}")
            return
        given = next(given for regex, given in site.gpu_types.items() if re.fullmatch(regex, hosts[0]))
        job.merged["gpu_type"] = given


def _by_type(hosts: list[str], types: dict[str, Given]) -> dict[str | None, list[str]]:
    """The hosts of each type; the first expression that matches a whole name decides."""
    patterns = [(re.compile(regex), str(given.value)) for regex, given in types.items()]
    found: dict[str | None, list[str]] = {}
    for host in hosts:
        kind = next((kind for pattern, kind in patterns if pattern.fullmatch(host)), None)
        found.setdefault(kind, []).append(host)
    return found


def _told(kinds: dict[str | None, list[str]]) -> str:
    def some(hosts: list[str]) -> str:
        return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")

    return "; ".join(f"{kind or 'unknown'} ({some(hosts)})" for kind, hosts in kinds.items())


def _has_gpus(job: Job) -> bool:
    count = job.value("num_gpus")
    groups = job.value("worker_group")
    try:
        in_groups = any(parse(text).gpus for text in groups) if isinstance(groups, list) else False
    except BadValue:  # the spec's own check will say what is wrong with it
        in_groups = False
    return in_groups or (isinstance(count, int) and count > 0)


def _wanted(job: Job, name: str) -> bool:
    """Whether an option is given that others mean something beside."""
    value = job.value(name)
    return checks.is_yes(value) if name == "requeue" else bool(value)


def _choose_image(job: Job, own: Layer, site: Site) -> None:
    """The site's image for such a job, unless somebody named one, or took the site's back."""
    # a --worker-image alone says nothing of the head
    named = any(name in own or job.value(name) is not None for name in ("container_image", "head_image"))
    if named or job.value("container_runtime") == "none":
        return
    images = (site.gpu_image, site.cpu_image) if _has_gpus(job) else (site.cpu_image, site.gpu_image)
    image = next((image for image in images if image is not None and image.value), None)
    if image is not None:
        job.merged["container_image"] = image


def _drop_unused(job: Job, own: Layer, inherited: set[str]) -> None:
    """A profile may well speak of GPUs and containers that a job does not have. A user who does is told."""
    container = job.value("container_runtime") != "none" and any(job.value(name) for name in _IMAGES)
    for name, needed in NEEDS.items():
        if needed == ("num_gpus",):
            used, lacking = _has_gpus(job), "GPUs"
        elif needed == _IMAGES:
            used, lacking = container, "a container"
        else:
            used = any(_wanted(job, other) for other in needed)
            lacking = "an array" if "array" in needed else "a sweep" if "sweep" in needed else flag_name(needed[0])
        if name in job.merged and not used and (name not in own or name in inherited):
            given = job.unused[name] = job.merged.pop(name)
            if name in inherited and value_of(name, given):
                job.notes.append(f"{flag_name(name)} is left out, the job is without {lacking} now: {given.at}")


# --- what cannot work ------------------------------------------------------------------------------------------------


def refusals(spec: LaunchSpec, site: Site) -> list[str]:
    """What the cluster cannot do for this job, as far as the facts tell: what, and what there is instead."""
    found: list[str] = []
    for place, part in enumerate(components(spec) or [spec]):  # each component may have a partition of its own
        if site.partitions and part.partition:
            own = "--worker-group partition" if place else "--head-partition"
            flag = "--partition" if part.partition == spec.partition else own
            found += [text for text in _partition_refusals(part, site.partitions, flag) if text not in found]
    runtimes = site.container_runtimes
    if runtimes is not None and isinstance(runtimes.value, tuple) and (spec.image or spec.workers_image):
        there = [item.text for item in runtimes.value]
        if spec.container_runtime not in there:
            choice = f"there is {', '.join(there)}" if there else "there is none"
            found.append(f"--container-runtime {spec.container_runtime} is not there: {choice} ({runtimes.at})")
    return found


def _partition_refusals(spec: LaunchSpec, partitions: dict[str, Partition], flag: str) -> list[str]:
    names = [name for name in str(spec.partition).split(",") if name]  # Slurm takes the first of several that can start
    unknown = [name for name in names if name not in partitions]
    if unknown:
        close = get_close_matches(unknown[0], partitions, n=1, cutoff=0.5)
        hint = (f"did you mean {close[0]!r}? " if close else "") + f"there are: {', '.join(partitions)}"
        return [f"{flag} {show(unknown[0])} is not one of the profile's; {hint}"]
    beyond = {name: _beyond(spec, name, partitions[name].limits) for name in names}
    return [] if any(not told for told in beyond.values()) else [text for told in beyond.values() for text in told]


def _beyond(spec: LaunchSpec, name: str, limits: dict[str, Given]) -> list[str]:
    asked = {
        "max_time": ("--time", spec.time, seconds(spec.time) if spec.time else 0),
        "max_nodes": ("--num-nodes", spec.nodes, spec.nodes),
        "max_gpus": ("--num-gpus", spec.num_gpus, spec.num_gpus),
    }
    found = []
    for key, given in limits.items():
        flag, text, amount = asked[key]
        limit = seconds(str(given.value)) if key == "max_time" else int(str(given.value))
        if amount > limit:
            kind = key.replace("_", "-")
            found.append(f"{flag} {text} is more than the {kind} {given.value} of partition {name} ({given.at})")
        elif key == "max_time" and (spec.signal_before or 0) >= limit:
            told = f"--signal-before {spec.signal_before} is not below the max-time {given.value} of partition {name}"
            found.append(f"{told} ({given.at})")
    return found
