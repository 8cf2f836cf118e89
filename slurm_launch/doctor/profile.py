"""The profile of `doctor --write NAME`: what was found out, each value with its reason. Pure but for `write`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from slurm_launch import __version__
from slurm_launch.config_files import user_folder
from slurm_launch.doctor.advice import describe, takes_all_memory
from slurm_launch.doctor.cluster import Site
from slurm_launch.doctor.nodes import Advice
from slurm_launch.doctor.trials import Trials, shorter
from slurm_launch.errors import UsageError
from slurm_launch.slurm_site import Partition


@dataclass(frozen=True)
class Facts:
    """All that a profile is made of."""

    name: str
    when: date
    hosts: tuple[str, ...]  # what this host is called
    site: Site
    trials: Trials
    partition: str | None = None  # the user's choice, else the cluster's default
    account: str | None = None
    runtimes: tuple[str, ...] = ()
    nodes: Advice = field(default_factory=Advice)  # what `doctor --job` found


def target(name: str, env: Mapping[str, str]) -> Path:
    """Where the profile goes; told before any work is done when it cannot."""
    folder = user_folder(env)
    if folder is None:
        raise UsageError("there is no home for a profile", at="flag --write", hint="set HOME or XDG_CONFIG_HOME")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=@-]*", name):
        hint = "use letters and digits, for example the cluster's name"
        raise UsageError(f"--write needs a name for a profile, not {name!r}", at="flag --write", hint=hint)
    path = folder / "profiles" / f"{name}.yaml"
    if os.path.lexists(path):
        hint = "give another name, or move it away first"
        raise UsageError("there is such a profile already, and nothing is overwritten", at=str(path), hint=hint)
    return path


def write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError("there is such a profile already", at=str(path), hint="give another name") from None
    except OSError as error:
        hint = "make room, or set XDG_CONFIG_HOME to a directory that you may write to"
        raise UsageError(f"cannot write: {error.strerror or error}", at=str(path), hint=hint) from None


def text_of(facts: Facts) -> str:
    """The whole file."""
    blocks = [_head(facts), *_blocks(facts)]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _head(facts: Facts) -> list[str]:
    version = facts.site.config.get("SLURM_VERSION", "of unknown version")
    cluster = facts.site.config.get("ClusterName", "(without a name)")
    return [
        f"# Profile {facts.name}: the cluster {cluster}, Slurm {version}.",
        f"# Written by `slurm-launch doctor --write {facts.name}` (version {__version__}) on {facts.when.isoformat()}.",
        "# It is yours: change what you know better. Flags, SLAUNCH_* variables and project files win over it.",
        f"# `slurm-launch config show --profile {facts.name}` tells every value and where it comes from.",
    ]


def _blocks(facts: Facts) -> Iterator[list[str]]:
    site, trials = facts.site, facts.trials
    patterns = list(dict.fromkeys(host_pattern(name) for name in facts.hosts if name))
    if patterns:
        yield ["# On these hosts the profile is meant: this one, and those that differ from it in a number only.",
               f"hosts: {_value(patterns)}"]  # fmt: skip
    if chosen := site.partition(facts.partition):
        why = "You chose it." if facts.partition else _why_chosen(site, chosen)
        yield [f"# {why}", f"partition: {_value(chosen.name)}"]
    account = facts.account or (site.account if site.enforces_accounts else None)
    if account:
        why = "You chose it." if facts.account else "Every job needs an account here, and this one is yours."
        yield [f"# {why}", f"account: {_value(account)}"]
    if trials.time:
        yield ["# sbatch takes no job here that does not say how long.", f"time: {_value(trials.time)}"]
    if trials.gpu_directive:
        yield [f"# How GPUs are asked for: sbatch --test-only took --{trials.gpu_directive}.",
               f"gpu-directive: {trials.gpu_directive}"]  # fmt: skip
    if types := gpu_types(site):
        yield ["# The nodes' names tell the type of their GPUs.", f"gpu-types: {_value(types)}"]
    if facts.runtimes:
        seen = "the nodes have them" if facts.nodes.nodes else "seen on the login node; the nodes may differ"
        yield [f"# What runs containers ({seen}).", f"container-runtime: {facts.runtimes[0]}",
               f"container-runtimes: {_value(list(facts.runtimes))}"]  # fmt: skip
    if facts.nodes.interface:
        yield [f"# {facts.nodes.interface_why}", f"interface: {_value(facts.nodes.interface)}"]
    if facts.nodes.temp_dir:
        yield [f"# {facts.nodes.temp_dir_why}", f"temp-dir: {_value(facts.nodes.temp_dir)}"]
    if takes_all_memory(site):
        yield ["# A job that asks for no memory gets all of a node's. For less, on shared nodes:", "#mem-per-cpu: 4G"]
    if site.partitions:
        yield ["# The partitions, their limits and, below each, options for jobs in it."
               " Limits that Slurm does not set are left out.", "partitions:", *_partitions(facts)]  # fmt: skip


def _why_chosen(site: Site, partition: Partition) -> str:
    if partition.default:
        return "The cluster's default."
    return "The first that is open to you: the cluster has no default."


def _partitions(facts: Facts) -> Iterator[str]:
    site = facts.site
    for partition in site.partitions:
        closed = partition.why_closed(site.accounts, site.groups)
        yield f"  # {describe(site, partition)}" + (f"; not for you: {closed}" if closed else "")
        rows: dict[str, Any] = {}
        if partition.max_time:
            rows["max-time"] = partition.max_time
            if facts.trials.time and (less := shorter(facts.trials.time, partition)) != facts.trials.time:
                rows["time"] = less  # the one above would be too long here
        if partition.max_nodes:
            rows["max-nodes"] = partition.max_nodes
        nodes = site.nodes_of(partition)
        if nodes:
            rows["max-gpus"] = max(node.gpu_count for node in nodes)
        kinds = {kind for node in nodes for kind in node.gpus}
        if len(kinds) == 1 and "" not in kinds:
            rows["gpu-type"] = kinds.pop()
        yield f"  {_value(partition.name)}:" + ("" if rows else " {}")
        yield from (f"    {key}: {_value(value)}" for key, value in rows.items())


def host_pattern(name: str) -> str:
    """login1.site.example -> login*.site.example: the last number of the host's own name may differ."""
    own, dot, domain = name.partition(".")
    if own.isdigit() or re.fullmatch(r"[0-9.]+|.*[*?\[].*", name):
        return name
    return re.sub(r"\d+(?=\D*$)", "*", own) + dot + domain


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


_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")


def _value(value: Any) -> str:
    """A value in YAML, quoted wherever YAML might see something else in it."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value(key)}: {_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
