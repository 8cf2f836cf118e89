"""What Slurm says about its cluster: asked here, judged in advice.py."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from slurm_launch.doctor.findings import Finding, problem
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm.client import NoAnswer, Probe
from slurm_launch.slurm.site import Node, Partition


@dataclass
class Site:
    """What is known of the cluster; empty where Slurm did not answer."""

    version: str = ""  # of the commands here
    config: dict[str, str] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    user: str = ""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()  # of the user
    default_account: str | None = None
    pyxis: bool | None = None  # None: srun did not tell
    pyxis_scope: str | None = None  # None: cannot be known
    failures: list[Finding] = field(default_factory=list)  # what did not answer

    @property
    def here(self) -> bool:
        return bool(self.version)

    @property
    def answers(self) -> bool:
        return bool(self.config)

    @property
    def enforces_accounts(self) -> bool:
        return bool(
            set(self.config.get("AccountingStorageEnforce", "").split(",")) & {"associations", "limits", "qos", "safe"}
        )

    @property
    def open_partitions(self) -> list[Partition]:
        """Those that the user may use, as far as can be seen."""
        return [part for part in self.partitions if part.why_closed(self.accounts, self.groups) is None]

    def partition(self, name: str | None) -> Partition | None:
        """The one of that name; without a name the cluster's default, or else the first that is open."""
        if name is not None:
            return next((part for part in self.partitions if part.name == name), None)
        opened = self.open_partitions
        return next((part for part in opened if part.default), opened[0] if opened else None)

    @property
    def account(self) -> str | None:
        """The one to charge, if there is no doubt which."""
        return self.default_account or (self.accounts[0] if len(self.accounts) == 1 else None)

    def nodes_of(self, partition: Partition) -> list[Node]:
        return [node for node in self.nodes if partition.name in node.partitions]


def examine(ask: Probe, user: str, groups: tuple[str, ...]) -> Site:
    """Probe Slurm for all that matters. What fails is kept in `failures`; the rest goes on."""
    site = Site(user=user, groups=groups)
    try:
        site.version = ask(slurm_site.VERSION_ARGV).strip()
    except NoAnswer as failure:
        if failure.missing:
            return site  # a machine without Slurm
        site.failures.append(problem("slurm", failure.text, failure.hint))
        site.version = "unknown"
        if failure.unconfigured:
            return site
    _ask_controller(ask, site)
    _ask_pyxis(ask, site)
    if site.config.get("AccountingStorageType", "").endswith("slurmdbd"):
        _ask_accounts(ask, site)
    return site


def _ask_controller(ask: Probe, site: Site) -> None:
    try:
        site.config = slurm_site.parse_config(ask(slurm_site.CONFIG_ARGV))
    except NoAnswer as failure:
        if failure.silent:  # the others would wait for it as long again
            about = "slurm" if failure.unconfigured else "slurmctld"
            site.failures = [problem(about, failure.text, failure.hint)]  # sinfo's has the same cause
            return
        site.failures.append(problem("slurmctld", failure.text, failure.hint))
    try:
        site.partitions = slurm_site.parse_partitions(ask(slurm_site.PARTITIONS_ARGV))
        site.nodes = slurm_site.parse_nodes(ask(slurm_site.NODES_ARGV))
    except NoAnswer as failure:
        if not any(known.text == failure.text for known in site.failures):  # scontrol is missing: said once
            site.failures.append(problem("slurmctld", failure.text, failure.hint))


def _ask_accounts(ask: Probe, site: Site) -> None:
    try:
        site.accounts = slurm_site.parse_names(ask(slurm_site.accounts_argv(site.user)))
        default = slurm_site.parse_names(ask(slurm_site.default_account_argv(site.user)))
        site.default_account = default[0] if default else None
    except NoAnswer as failure:
        site.failures.append(problem("account", failure.text, failure.hint))


def _ask_pyxis(ask: Probe, site: Site) -> None:
    try:
        site.pyxis = slurm_site.has_pyxis(ask(slurm_site.HELP_ARGV))
    except NoAnswer as failure:
        if site.answers or not failure.silent:  # else it was said before
            site.failures.append(problem("containers", failure.text, failure.hint))
    if site.pyxis:
        beside = os.path.dirname(site.config.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
        site.pyxis_scope = read_scope(site.config.get("PlugStackConfig", os.path.join(beside, "plugstack.conf")))


def read_scope(path: str) -> str | None:
    """Pyxis' scope from plugstack.conf and what it includes; None when that cannot be read or does not say."""
    text = _read(path)
    for pattern in slurm_site.plugstack_includes(text):
        for included in sorted(glob.glob(os.path.join(os.path.dirname(path), pattern))):
            text += "\n" + _read(included)
    scope = slurm_site.container_scope(text)
    if scope is None and re.search(r"^[^#\n]*pyxis", text, re.MULTILINE):
        return "the default, which is global, but job with Pyxis 0.16 and 0.17"
    return scope


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
