"""The facts of a site applied to one job: the values that follow from them, and what the cluster cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from slurm_launch.config.layers import Layer, Setting, merge, value_of
from slurm_launch.config.profile import PartitionRules, SiteFacts
from slurm_launch.errors import show
from slurm_launch.slurm import hostlist
from slurm_launch.slurm.times import seconds
from slurm_launch.spec import checks
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.hetjob import components
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import IMAGES, NEEDS, flag_name
from slurm_launch.spec.worker_groups import parse


@dataclass
class JobValues:
    """The values of a job as the facts change them, and what to report about it."""

    merged: Layer
    unused: Layer = field(default_factory=dict)  # values of the site that this job does not use
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def value(self, name: str) -> object:
        return value_of(name, self.merged[name]) if name in self.merged else None


def apply_facts(site_layer: Layer, own: Layer, facts: SiteFacts | None, inherited: Iterable[str] = ()) -> JobValues:
    """The site's layer and the user's merged, with the values that follow from the facts.

    `inherited` are those of the user's options that come from an older script: they were set for another job.
    """
    site = facts or SiteFacts()
    job = JobValues(merge([site_layer, own])[0])
    partition = _partition_of(job, site)
    if partition is not None:
        job.merged = merge([merge([site_layer, partition.defaults])[0], own])[0]
    if site.node_prefix is not None and site.node_prefix.value:
        for name in ("node", "exclude"):
            _expand_node_prefix(job, name, site.node_prefix)
    if site.gpu_types or site.node_types:
        _apply_node_types(job, site)
    _choose_image(job, own, site)
    _drop_unused(job, own, set(inherited))
    return job


def _partition_of(job: JobValues, site: SiteFacts) -> PartitionRules | None:
    name = job.value("partition")
    return site.partitions.get(name) if site.partitions and isinstance(name, str) else None


def _expand_node_prefix(job: JobValues, name: str, prefix: Setting) -> None:
    """Complete ReaL's notation for nodes: NODE[01-02], or only [01-02]."""
    text = job.value(name)
    if not isinstance(text, str):
        return
    parts = re.split(r",(?![^\[]*\])", text)  # at the commas outside of brackets
    completed = ",".join(re.sub(r"^(NODE(?=[\[0-9])|(?=\[))", lambda _: str(prefix.value), part) for part in parts)
    if completed != text:
        job.merged[name] = Setting(completed, job.merged[name].at)
        job.notes.append(f"{flag_name(name)} {text} means {completed} here: node-prefix, {prefix.at}")


def _apply_node_types(job: JobValues, site: SiteFacts) -> None:
    """Set the GPU type of the job's nodes, and warn if the nodes differ."""
    text = job.value("node")
    if not isinstance(text, str):
        return
    try:
        hosts = hostlist.expand(text)
    except Exception:  # reported by the spec's own check
        return
    kinds = _by_type(hosts, site.node_types or {})
    if len([kind for kind in kinds if kind]) > 1:
        job.warnings.append(f"--node has nodes of different types: {_list_types(kinds)}")
    if not site.gpu_types or not _has_gpus(job) or "gpu_type" in job.merged:
        return
    kinds = _by_type(hosts, site.gpu_types)
    if len(kinds) > 1:
        job.warnings.append(f"--node has different GPUs, so no type is requested: {_list_types(kinds)}")
    elif list(kinds) != [None]:
        job.merged["gpu_type"] = next(
            setting for regex, setting in site.gpu_types.items() if re.fullmatch(regex, hosts[0])
        )


def _by_type(hosts: list[str], types: dict[str, Setting]) -> dict[str | None, list[str]]:
    """The hosts of each type: that of the first expression that matches the whole name."""
    patterns = [(re.compile(regex), str(setting.value)) for regex, setting in types.items()]
    found: dict[str | None, list[str]] = {}
    for host in hosts:
        kind = next((kind for pattern, kind in patterns if pattern.fullmatch(host)), None)
        found.setdefault(kind, []).append(host)
    return found


def _list_types(kinds: dict[str | None, list[str]]) -> str:
    def some(hosts: list[str]) -> str:
        return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")

    return "; ".join(f"{kind or 'unknown'} ({some(hosts)})" for kind, hosts in kinds.items())


def _has_gpus(job: JobValues) -> bool:
    count = job.value("num_gpus")
    groups = job.value("worker_group")
    try:
        in_groups = any(parse(text).gpus for text in groups) if isinstance(groups, list) else False
    except BadValue:  # reported by the spec's own check
        in_groups = False
    return in_groups or (isinstance(count, int) and count > 0)


def _uses(job: JobValues, name: str) -> bool:
    """Whether the job uses an option that others depend on."""
    if name == "num_gpus":
        return _has_gpus(job)
    if name in IMAGES and job.value("container_runtime") == "none":
        return False
    value = job.value(name)
    return checks.is_true(value) if name == "requeue" else bool(value)


def _choose_image(job: JobValues, own: Layer, site: SiteFacts) -> None:
    """Use the site's image for such a job, unless an image is set or the user has reset it."""
    # --worker-image alone does not set the image of the head
    named = any(name in own or job.value(name) is not None for name in ("container_image", "head_image"))
    if named or job.value("container_runtime") == "none":
        return
    images = (site.gpu_image, site.cpu_image) if _has_gpus(job) else (site.cpu_image, site.gpu_image)
    image = next((image for image in images if image is not None and image.value), None)
    if image is not None:
        job.merged["container_image"] = image


def _drop_unused(job: JobValues, own: Layer, inherited: set[str]) -> None:
    """Remove the profile's options for GPUs, containers and the like that this job does not have.

    The user's own stay: the spec's checks refuse them."""
    for name, need in NEEDS.items():
        if name not in job.merged or any(_uses(job, other) for other in need.options):
            continue
        if name not in own or name in inherited:
            setting = job.unused[name] = job.merged.pop(name)
            if name in inherited and value_of(name, setting):
                job.notes.append(f"{flag_name(name)} is dropped, the job no longer has {need.what}: {setting.at}")


# --- what the cluster cannot do --------------------------------------------------------------------------------------


def refusals(spec: LaunchSpec, site: SiteFacts) -> list[str]:
    """What the cluster cannot do for this job according to the facts, each with the alternatives."""
    found: list[str] = []
    for place, part in enumerate(components(spec) or [spec]):  # each component can have its own partition
        if site.partitions and part.partition:
            own = "--worker-group partition" if place else "--head-partition"
            flag = "--partition" if part.partition == spec.partition else own
            found += [text for text in _partition_refusals(part, site.partitions, flag) if text not in found]
    runtimes = site.container_runtimes
    if runtimes is not None and isinstance(runtimes.value, tuple) and (spec.image or spec.workers_image):
        available = [item.text for item in runtimes.value]
        if spec.container_runtime not in available:
            choice = f"available: {', '.join(available) or 'none'}"
            found.append(f"--container-runtime {spec.container_runtime} is not available; {choice} ({runtimes.at})")
    return found


def _partition_refusals(spec: LaunchSpec, partitions: dict[str, PartitionRules], flag: str) -> list[str]:
    names = [name for name in str(spec.partition).split(",") if name]  # of several, Slurm uses the first that can start
    unknown = [name for name in names if name not in partitions]
    if unknown:
        close = get_close_matches(unknown[0], partitions, n=1, cutoff=0.5)
        hint = (f"did you mean {close[0]!r}? " if close else "") + f"available: {', '.join(partitions)}"
        return [f"{flag} {show(unknown[0])} is not in the profile; {hint}"]
    violations = [_limit_violations(spec, name, partitions[name].limits) for name in names]
    return [text for texts in violations for text in texts] if all(violations) else []


def _limit_violations(spec: LaunchSpec, name: str, limits: dict[str, Setting]) -> list[str]:
    requested = {
        "max_time": ("--time", spec.time, seconds(spec.time) if spec.time else 0),
        "max_nodes": ("--num-nodes", spec.nodes, spec.nodes),
        "max_gpus": ("--num-gpus", spec.num_gpus, spec.num_gpus),
    }
    found = []
    for key, setting in limits.items():
        flag, text, amount = requested[key]
        limit = seconds(str(setting.value)) if key == "max_time" else int(str(setting.value))
        bound = f"the {key.replace('_', '-')} {setting.value} of partition {name} ({setting.at})"
        if amount > limit:
            found.append(f"{flag} {text} is more than {bound}")
        elif key == "max_time" and (spec.signal_before or 0) >= limit:
            found.append(f"--signal-before {spec.signal_before} is not below {bound}")
    return found
