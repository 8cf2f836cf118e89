"""The profile of `doctor --write NAME`: what was found out, each value with its reason."""

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
from slurm_launch.config.files import profile_files, profile_names, top_level
from slurm_launch.config.profile import texts
from slurm_launch.doctor import this_host
from slurm_launch.doctor.cluster_advice import describe, takes_all_memory
from slurm_launch.doctor.cluster_facts import Site
from slurm_launch.doctor.node_advice import Advice
from slurm_launch.doctor.sbatch_trials import Trials, shorter
from slurm_launch.errors import UsageError
from slurm_launch.spec.checks import BadValue

# What is about the site, and not about an experiment: goes into the profile when the user said it.
SITE_KEYS = (
    "partition", "account", "qos", "reservation", "constraint", "gpu-directive", "modules", "conda-env", "venv",
    "load-env", "env", "container-runtime", "container-image", "head-image", "worker-image", "container-mounts",
    "container-workdir", "container-home", "container-writable", "container-cleanenv", "container-gpus",
    "container-setup", "container-arg", "interface", "ip-family", "port-range", "temp-dir", "start-timeout", "auth",
    "sbatch", "no-sbatch", "srun-arg", "run-dir",
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """All that a profile is made of."""

    name: str
    when: date
    hosts: tuple[str, ...]  # what this host is called
    site: Site
    trials: Trials
    chosen: Mapping[str, Any] = field(default_factory=dict)  # by the user, by YAML key
    others: tuple[str, ...] = ()  # profiles that are for this host already
    runtimes: tuple[str, ...] = ()
    nodes: Advice = field(default_factory=Advice)  # what `doctor --job` found


def chosen_values(own: Mapping[str, Any]) -> dict[str, Any]:
    """What the user said about the site by flags, variables and the project file, fit to stand in a profile."""
    found: dict[str, Any] = {}
    for key in SITE_KEYS:
        value = own.get(key)
        if isinstance(value, list):  # without the mark that drops what came before
            value = [item for item in value if item]
        if key in ("venv", "conda-env", "run-dir") and isinstance(value, str):
            value = os.path.expanduser(value)
            if key == "run-dir" and not os.path.isabs(value):
                continue  # beside each experiment
            if key == "venv" or "/" in value:  # a launch may come from anywhere
                value = os.path.abspath(value)
        if value not in (None, "", [], {}):
            found[key] = value
    return found


def taken_by(names: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The profiles that are for a host of these names already, or for one that ours would be for."""
    ours = host_patterns(names)
    found = []
    for profile in profile_names(env):
        path = next((path for path in profile_files(profile, env) if path.is_file()), None)
        try:
            patterns = [text.lower() for text in texts(top_level(path, "hosts"))] if path else []
        except (UsageError, BadValue):  # no launch considers it either
            continue
        pairs = [(name, pattern) for name in (*names, *_short(names)) for pattern in patterns]
        pairs += [(pattern, mine) for pattern in patterns for mine in ours]
        if any(fnmatchcase(name.lower(), pattern.lower()) for name, pattern in pairs):
            found.append(profile)
    return found


def _short(names: Sequence[str]) -> list[str]:
    return [name.partition(".")[0] for name in names]


def text_of(facts: Facts) -> str:
    """The whole file."""
    blocks = [_head(facts), *_blocks(facts)]
    text = "\n\n".join("\n".join(block) for block in blocks) + "\n"
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)  # in comments; YAML takes none


def _head(facts: Facts) -> list[str]:
    version = facts.site.config.get("SLURM_VERSION", "of unknown version")
    cluster = facts.site.config.get("ClusterName", "(without a name)")
    name = shlex.quote(facts.name)
    return [
        f"# Profile {facts.name}: the cluster {cluster}, Slurm {version}.",
        f"# Written by `slurm-launch doctor --write {name}` (version {__version__}) on {facts.when.isoformat()}.",
        "# It is yours: change what you know better. Flags, SLAUNCH_* variables and project files win over it.",
        f"# `slurm-launch config show --profile {name}` tells every value and where it comes from.",
    ]


def _blocks(facts: Facts) -> Iterator[list[str]]:
    site, trials, chosen = facts.site, facts.trials, dict(facts.chosen)
    known = {partition.name for partition in site.partitions}
    if not set(str(chosen.get("partition", "")).split(",")) <= known:
        chosen.pop("partition", None)  # there is none of that name, so every launch would be refused
    runtimes = list(facts.runtimes)
    if runtimes and (runtime := chosen.get("container-runtime", "none")) not in ("none", *runtimes):
        runtimes.insert(0, runtime)  # a module may bring it
    if patterns := host_patterns(facts.hosts):
        yield _hosts(patterns, facts.others)
    found = {
        "partition": _partition(site),
        "account": (site.account if site.enforces_accounts else None, "Every job needs one here, and this is yours."),
        "time": (trials.time, "sbatch takes no job here that does not say how long."),
        "gpu-directive": (
            trials.gpu_directive,
            f"How GPUs are asked for: sbatch --test-only took --{trials.gpu_directive}.",
        ),
        "gpu-types": (gpu_types(site), "The nodes' names tell the type of their GPUs."),
        "container-runtimes": (runtimes, _why_runtimes(facts)),
        "container-runtime": (next(iter(facts.runtimes), None), "The first of them."),
        "interface": (facts.nodes.interface, facts.nodes.interface_why),
        "temp-dir": (facts.nodes.temp_dir, facts.nodes.temp_dir_why),
    }
    for key, (value, why) in found.items():
        if key in chosen:
            value, why = chosen.pop(key), CHOSEN
        if value:
            yield [f"# {why}", f"{key}: {_value(value)}"]
    for key, value in chosen.items():
        yield [f"# {CHOSEN}", f"{key}: {_value(value)}"]
    if takes_all_memory(site):
        yield ["# A job that asks for no memory gets all of a node's. For less, on shared nodes:", "#mem-per-cpu: 4G"]
    if site.partitions:
        yield ["# The partitions, their limits and, below each, options for jobs in it."
               " No limit stands where Slurm sets none.", "partitions:", *_partitions(facts)]  # fmt: skip


def _hosts(patterns: list[str], others: Sequence[str]) -> list[str]:
    if others:  # two for one host, and a launch could not tell which is meant
        return [f"# Commented out: this host's name means {', '.join(others)} already. Say --profile for this one.",
                f"#hosts: {_value(patterns)}"]  # fmt: skip
    return ["# On these hosts the profile is meant: this one, and those that differ from it in the last number only.",
            f"hosts: {_value(patterns)}"]  # fmt: skip


def _partition(site: Site) -> tuple[str | None, str]:
    partition = site.partition(None)
    if partition is None:
        return None, ""
    if partition.default:
        return partition.name, "The cluster's default."
    return partition.name, "The first that is open to you: the cluster has no default."


def _why_runtimes(facts: Facts) -> str:
    seen = "the nodes have them" if facts.nodes.nodes else "seen on the login node; the nodes may differ"
    order = ", ".join(this_host.RUNTIMES.values())
    return f"What runs containers ({seen}). Pyxis stands first, as Slurm's own way; then {order}."


def _partitions(facts: Facts) -> Iterator[str]:
    site = facts.site
    for partition in site.partitions:
        closed = partition.why_closed(site.accounts, site.groups)
        yield f"  # {describe(site, partition)}" + (f"; not for you: {closed}" if closed else "")
        rows: dict[str, Any] = {}
        if partition.time_limit:
            rows["max-time"] = partition.time_limit
            if facts.trials.time and (less := shorter(facts.trials.time, partition)) != facts.trials.time:
                rows["time"] = less  # the one above would be too long here
        if partition.most_nodes:
            rows["max-nodes"] = partition.most_nodes
        nodes = site.nodes_of(partition)
        if nodes:
            rows["max-gpus"] = max(node.gpu_count for node in nodes)
        kinds = {kind for node in nodes for kind in node.gpus}
        if len(kinds) == 1 and "" not in kinds:
            rows["gpu-type"] = kinds.pop()
        yield f"  {_value(partition.name)}:" + ("" if rows else " {}")
        for key, value in rows.items():
            why = "  # it has no more" if key == "max-nodes" and value != partition.max_nodes else ""
            yield f"    {key}: {_value(value)}{why}"


def host_patterns(names: Sequence[str]) -> list[str]:
    """Patterns for the host of these names; where one has a domain, the bare ones would fit other sites' hosts too."""
    full = [name for name in names if "." in name]
    return list(dict.fromkeys(host_pattern(name) for name in full or names if name))


def host_pattern(name: str) -> str:
    """login1.site.example -> login[0-9]*.site.example: the number at the end of the host's own name may differ."""
    own, dot, domain = name.partition(".")
    if own.isdigit() or re.fullmatch(r"[0-9.]+|.*[*?\[].*", name):
        return name
    return re.sub(r"[0-9]+$", "[0-9]*", own) + dot + domain


def gpu_types(site: Site) -> dict[str, str]:
    """Regular expressions for the names of nodes, each with the type of their GPUs; none where names do not tell."""
    beginnings: dict[str, set[str]] = {}  # a node's name without its number -> the types below it
    for node in site.nodes:
        beginnings.setdefault(_beginning(node.name), set()).update(node.gpus or {"none"})
    types = {kind for kinds in beginnings.values() for kind in kinds} - {"none"}
    if len(types) < 2 or "" in types:  # one type is said by the partitions, or not at all
        return {}
    told = {name: next(iter(kinds)) for name, kinds in beginnings.items() if len(kinds) == 1}
    if set(told.values()) - {"none"} != types or len(told) < len(beginnings):
        return {}
    return {f"^{re.escape(name)}[0-9]*$": kind for name, kind in sorted(told.items()) if kind != "none"}


def _beginning(name: str) -> str:
    return re.sub(r"\d+$", "", name)


CHOSEN = "You chose it."
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def _value(value: Any) -> str:
    """A value in YAML, quoted wherever YAML might see something else in it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value(key)}: {_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value
    if isinstance(value, str):
        plain = json.dumps(value, ensure_ascii=False)
        return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in plain)
    return json.dumps(value)
