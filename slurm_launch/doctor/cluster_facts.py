"""What Slurm reports about its cluster: queried here, assessed in cluster_advice."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from slurm_launch.doctor.findings import CheckResult, problem
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm.client import Probe, ProbeFailed
from slurm_launch.slurm.site import Node, Partition

ENFORCED = {"associations", "limits", "qos", "safe"}  # each of them makes an account mandatory


@dataclass
class ClusterFacts:
    """What is known about the cluster; empty where Slurm did not respond."""

    version: str = ""  # of the commands on this host
    config: dict[str, str] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    user: str = ""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()  # of the user
    default_account: str | None = None
    pyxis: bool | None = None  # None: srun did not respond
    pyxis_scope: str | None = None  # None: unknown
    failures: list[CheckResult] = field(default_factory=list)  # the queries that failed

    @property
    def installed(self) -> bool:
        return bool(self.version)

    @property
    def reachable(self) -> bool:
        return bool(self.config)

    @property
    def enforces_accounts(self) -> bool:
        return bool(ENFORCED & set(self.config.get("AccountingStorageEnforce", "").split(",")))

    @property
    def open_partitions(self) -> list[Partition]:
        """The partitions that the user can use, as far as Slurm's configuration shows."""
        return [part for part in self.partitions if part.why_closed(self.accounts, self.groups) is None]

    def partition(self, name: str | None) -> Partition | None:
        """The partition of that name; without a name the cluster's default, or else the first open one."""
        if name is not None:
            return next((part for part in self.partitions if part.name == name), None)
        opened = self.open_partitions
        return next((part for part in opened if part.default), opened[0] if opened else None)

    @property
    def account(self) -> str | None:
        """The account to charge: the user's default, or the only one."""
        return self.default_account or (self.accounts[0] if len(self.accounts) == 1 else None)

    def nodes_of(self, partition: Partition) -> list[Node]:
        return [node for node in self.nodes if partition.name in node.partitions]


def query_cluster(probe: Probe, user: str, groups: tuple[str, ...]) -> ClusterFacts:
    """Query Slurm for everything that matters to a job. A query that fails is recorded in `failures`."""
    cluster = ClusterFacts(user=user, groups=groups)
    try:
        cluster.version = probe(slurm_site.VERSION_ARGV).strip()
    except ProbeFailed as failure:
        if failure.missing:
            return cluster  # a machine without Slurm
        cluster.failures.append(problem("slurm", failure.text, failure.hint))
        cluster.version = "unknown"
        if failure.unconfigured:
            return cluster
    _query_controller(probe, cluster)
    _query_pyxis(probe, cluster)
    if cluster.config.get("AccountingStorageType", "").endswith("slurmdbd"):
        _query_accounts(probe, cluster)
    return cluster


def _query_controller(probe: Probe, cluster: ClusterFacts) -> None:
    try:
        cluster.config = slurm_site.parse_config(probe(slurm_site.CONFIG_ARGV))
    except ProbeFailed as failure:
        if failure.unreachable:  # the other queries would time out too
            about = "slurm" if failure.unconfigured else "slurmctld"
            cluster.failures = [problem(about, failure.text, failure.hint)]  # a failure of sinfo has the same cause
            return
        cluster.failures.append(problem("slurmctld", failure.text, failure.hint))
    try:
        cluster.partitions = slurm_site.parse_partitions(probe(slurm_site.PARTITIONS_ARGV))
        cluster.nodes = slurm_site.parse_nodes(probe(slurm_site.NODES_ARGV))
    except ProbeFailed as failure:
        if not any(known.text == failure.text for known in cluster.failures):  # report a missing scontrol once
            cluster.failures.append(problem("slurmctld", failure.text, failure.hint))


def _query_accounts(probe: Probe, cluster: ClusterFacts) -> None:
    try:
        cluster.accounts = slurm_site.parse_names(probe(slurm_site.accounts_argv(cluster.user)))
        default = slurm_site.parse_names(probe(slurm_site.default_account_argv(cluster.user)))
        cluster.default_account = default[0] if default else None
    except ProbeFailed as failure:
        cluster.failures.append(problem("account", failure.text, failure.hint))


def _query_pyxis(probe: Probe, cluster: ClusterFacts) -> None:
    try:
        cluster.pyxis = slurm_site.has_pyxis(probe(slurm_site.HELP_ARGV))
    except ProbeFailed as failure:
        if cluster.reachable or not failure.unreachable:  # otherwise it is reported already
            cluster.failures.append(problem("containers", failure.text, failure.hint))
    if cluster.pyxis:
        directory = os.path.dirname(cluster.config.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
        default = os.path.join(directory, "plugstack.conf")
        cluster.pyxis_scope = read_pyxis_scope(cluster.config.get("PlugStackConfig", default))


def read_pyxis_scope(path: str) -> str | None:
    """Pyxis' container_scope from plugstack.conf and its includes; None if they cannot be read or do not load it."""
    text = _read(path)
    for pattern in slurm_site.plugstack_includes(text):
        for included in sorted(glob.glob(os.path.join(os.path.dirname(path), pattern))):
            text += "\n" + _read(included)
    scope = slurm_site.container_scope(text)
    if scope is None and re.search(r"^[^#\n]*pyxis", text, re.MULTILINE):
        return "the default (global; job in Pyxis 0.16 and 0.17)"
    return scope


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
