"""The profile that `doctor --write NAME` creates: what was detected, each value with its reason."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from slurm_launch import __version__
from slurm_launch.config.files import profile_files, profile_names, read_key
from slurm_launch.config.profile_keys import text_list
from slurm_launch.doctor import this_host
from slurm_launch.doctor.cluster_advice import describe, takes_all_memory
from slurm_launch.doctor.cluster_facts import ClusterFacts
from slurm_launch.doctor.node_advice import NodeReport
from slurm_launch.doctor.sbatch_trials import SbatchTrials, cap_time
from slurm_launch.errors import UsageError
from slurm_launch.slurm.site import Partition
from slurm_launch.spec.checks import BadValue

# Options about the site, not about an experiment: written to the profile if the user set them.
SITE_KEYS = (
    "partition", "account", "qos", "reservation", "constraint", "gpu-directive", "modules", "conda-env", "venv",
    "load-env", "env", "container-runtime", "container-image", "head-image", "worker-image", "container-mounts",
    "container-workdir", "container-home", "container-writable", "container-cleanenv", "container-gpus",
    "container-setup", "container-arg", "interface", "ip-family", "port-range", "temp-dir", "start-timeout", "auth",
    "sbatch", "no-sbatch", "srun-arg", "run-dir",
)  # fmt: skip


CHOSEN = "Set by you."


@dataclass(frozen=True)
class ProfileFacts:
    """Everything that a profile is made of."""

    name: str
    when: date
    hosts: tuple[str, ...]  # the names of this host
    cluster: ClusterFacts
    trials: SbatchTrials
    chosen: Mapping[str, Any] = field(default_factory=dict)  # by the user, by YAML key
    others: tuple[str, ...] = ()  # profiles that match this host already
    runtimes: tuple[str, ...] = ()
    nodes: NodeReport = field(default_factory=NodeReport)  # what `doctor --job` found


def chosen_values(own: Mapping[str, Any]) -> dict[str, Any]:
    """The options about the site that the user set by flag, variable or project file, in the form of a profile."""
    found: dict[str, Any] = {}
    for key in SITE_KEYS:
        value = own.get(key)
        if isinstance(value, list):  # without the empty item that resets a list
            value = [item for item in value if item]
        if key in ("venv", "conda-env", "run-dir") and isinstance(value, str):
            value = os.path.expanduser(value)
            if key == "run-dir" and not os.path.isabs(value):
                continue  # relative to each experiment
            if key == "venv" or "/" in value:  # launches come from other directories too
                value = os.path.abspath(value)
        if value not in (None, "", [], {}):
            found[key] = value
    return found


def matching_profiles(names: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The existing profiles that match a host of these names, or a host that the new profile would match."""
    own = host_patterns(names)
    short = [name.partition(".")[0] for name in names]
    found = []
    for profile in profile_names(env):
        path = next((path for path in profile_files(profile, env) if path.is_file()), None)
        try:
            patterns = [text.lower() for text in text_list(read_key(path, "hosts"))] if path else []
        except (UsageError, BadValue):  # a launch ignores it too
            continue
        pairs = [(name, pattern) for name in (*names, *short) for pattern in patterns]
        pairs += [(pattern, mine) for pattern in patterns for mine in own]
        if any(fnmatchcase(name.lower(), pattern.lower()) for name, pattern in pairs):
            found.append(profile)
    return found


def profile_text(facts: ProfileFacts) -> str:
    """The whole file."""
    blocks = [_header(facts), *_blocks(facts)]
    text = "\n\n".join("\n".join(block) for block in blocks) + "\n"
    # YAML allows no control characters, not even in comments.
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def _header(facts: ProfileFacts) -> list[str]:
    version = facts.cluster.config.get("SLURM_VERSION", "(unknown version)")
    cluster = facts.cluster.config.get("ClusterName", "(unnamed)")
    name = shlex.quote(facts.name)
    return [
        f"# Profile {facts.name}: cluster {cluster}, Slurm {version}.",
        f"# Written by `slurm-launch doctor --write {name}` (version {__version__}) on {facts.when.isoformat()}.",
        "# Edit it as you like. Flags, SLAUNCH_* variables and project files take precedence over it.",
        f"# `slurm-launch config show --profile {name}` shows every value and its source.",
    ]


def _blocks(facts: ProfileFacts) -> Iterator[list[str]]:
    cluster, chosen = facts.cluster, dict(facts.chosen)
    known = {partition.name for partition in cluster.partitions}
    if not set(str(chosen.get("partition", "")).split(",")) <= known:
        chosen.pop("partition", None)  # it does not exist, so every launch would be refused
    if patterns := host_patterns(facts.hosts):
        yield _hosts(patterns, facts.others)
    for key, (value, why) in _detected(facts).items():
        if key in chosen:
            value, why = chosen.pop(key), CHOSEN
        if value:
            yield [f"# {why}", f"{key}: {_yaml(value)}"]
    for key, value in chosen.items():
        yield [f"# {CHOSEN}", f"{key}: {_yaml(value)}"]
    if takes_all_memory(cluster):
        yield ["# A job that requests no memory gets all of a node's. For less, on shared nodes:", "#mem-per-cpu: 4G"]
    if cluster.partitions:
        title = "# The partitions: limits, where Slurm has some, and options for jobs in each."
        yield [title, "partitions:", *_partitions(facts)]


def _detected(facts: ProfileFacts) -> dict[str, tuple[Any, str]]:
    """The detected values, each with its reason."""
    cluster, trials = facts.cluster, facts.trials
    return {
        "partition": _partition(cluster),
        "account": (cluster.account if cluster.enforces_accounts else None, "Every job needs one; this is yours."),
        "time": (trials.time, "sbatch refuses jobs without a time limit."),
        "gpu-directive": (
            trials.gpu_directive,
            f"How to request GPUs: sbatch --test-only accepted --{trials.gpu_directive}.",
        ),
        "gpu-types": (gpu_types(cluster), "The type of a node's GPUs, by its name."),
        "container-runtimes": (_runtimes(facts), _runtimes_reason(facts)),
        "container-runtime": (next(iter(facts.runtimes), None), "The first of them."),
        "interface": (facts.nodes.interface, facts.nodes.interface_reason),
        "temp-dir": (facts.nodes.temp_dir, facts.nodes.temp_dir_reason),
    }


def _runtimes(facts: ProfileFacts) -> list[str]:
    """The detected container runtimes; the user's own comes first if it is not among them: a module may provide it."""
    runtimes = list(facts.runtimes)
    chosen = facts.chosen.get("container-runtime", "none")
    if runtimes and chosen not in ("none", *runtimes):
        runtimes.insert(0, chosen)
    return runtimes


def _hosts(patterns: list[str], others: Sequence[str]) -> list[str]:
    if others:  # with two profiles for one host, a launch could not choose
        comment = f"# Commented out: {', '.join(others)} matches this host already. Select this profile with --profile."
        return [comment, f"#hosts: {_yaml(patterns)}"]
    comment = "# The profile applies on these hosts: this one, and those whose names differ only in the last number."
    return [comment, f"hosts: {_yaml(patterns)}"]


def _partition(cluster: ClusterFacts) -> tuple[str | None, str]:
    partition = cluster.partition(None)
    if partition is None:
        return None, ""
    if partition.default:
        return partition.name, "The cluster's default."
    return partition.name, "The first one available to you; the cluster has no default."


def _runtimes_reason(facts: ProfileFacts) -> str:
    where = "detected on the nodes" if facts.nodes.nodes else "detected on this host; the nodes may differ"
    order = ", ".join(this_host.RUNTIMES.values())
    return f"Container runtimes ({where}). In order of preference: Pyxis, {order}."


def _partitions(facts: ProfileFacts) -> Iterator[str]:
    cluster = facts.cluster
    for partition in cluster.partitions:
        closed = partition.why_closed(cluster.accounts, cluster.groups)
        yield f"  # {describe(cluster, partition)}" + (f"; not available to you: {closed}" if closed else "")
        limits = _limits(facts, partition)
        yield f"  {_yaml(partition.name)}:" + ("" if limits else " {}")
        for key, value in limits.items():
            why = "  # all of its nodes" if key == "max-nodes" and value != partition.max_nodes else ""
            yield f"    {key}: {_yaml(value)}{why}"


def _limits(facts: ProfileFacts, partition: Partition) -> dict[str, Any]:
    """The limits of a partition, and options for jobs in it."""
    limits: dict[str, Any] = {}
    if partition.time_limit:
        limits["max-time"] = partition.time_limit
        if facts.trials.time and (capped := cap_time(facts.trials.time, partition)) != facts.trials.time:
            limits["time"] = capped  # the general one exceeds the limit
    if partition.most_nodes:
        limits["max-nodes"] = partition.most_nodes
    nodes = facts.cluster.nodes_of(partition)
    if nodes:
        limits["max-gpus"] = max(node.gpu_count for node in nodes)
    types = {kind for node in nodes for kind in node.gpus}
    if len(types) == 1 and "" not in types:
        limits["gpu-type"] = types.pop()
    return limits


def host_patterns(names: Sequence[str]) -> list[str]:
    """Patterns for the host of these names. With a domain, short names are left out: they match other sites too."""
    full = [name for name in names if "." in name]
    return list(dict.fromkeys(host_pattern(name) for name in full or names if name))


def host_pattern(name: str) -> str:
    """login1.site.example -> login[0-9]*.site.example: the number at the end of the host's short name may differ."""
    own, dot, domain = name.partition(".")
    if own.isdigit() or re.fullmatch(r"[0-9.]+|.*[*?\[].*", name):
        return name
    return re.sub(r"[0-9]+$", "[0-9]*", own) + dot + domain


def gpu_types(cluster: ClusterFacts) -> dict[str, str]:
    """Regular expressions for node names, each with the GPU type of those nodes; empty if names do not imply it."""
    by_prefix: dict[str, set[str]] = {}  # a node's name without its number -> the types of its nodes
    for node in cluster.nodes:
        prefix = re.sub(r"\d+$", "", node.name)
        by_prefix.setdefault(prefix, set()).update(node.gpus or {"none"})
    types = {kind for kinds in by_prefix.values() for kind in kinds} - {"none"}
    if len(types) < 2 or "" in types:  # a single type is given by the partitions
        return {}
    unique = {prefix: next(iter(kinds)) for prefix, kinds in by_prefix.items() if len(kinds) == 1}
    if set(unique.values()) - {"none"} != types or len(unique) < len(by_prefix):
        return {}
    return {f"^{re.escape(prefix)}[0-9]*$": kind for prefix, kind in sorted(unique.items()) if kind != "none"}


_YAML_KEYWORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def _yaml(value: Any) -> str:
    """A value in YAML, quoted wherever YAML might read it as something else."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_yaml(key)}: {_yaml(item)}' for key, item in value.items())}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    if re.fullmatch(r"[A-Za-z][\w./-]*", value, re.ASCII) and value.lower() not in _YAML_KEYWORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)
