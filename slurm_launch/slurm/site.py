"""The configuration, partitions, nodes and accounts of a cluster: the commands that query them, and parsers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf

from slurm_launch.slurm import times

# Commands

VERSION_ARGV = ["sinfo", "--version"]
CONFIG_ARGV = ["scontrol", "show", "config"]
PARTITIONS_ARGV = ["scontrol", "show", "partition", "-o"]
NODES_ARGV = ["scontrol", "show", "node", "-o"]
HELP_ARGV = ["srun", "--help"]
TEST_ARGV = ["sbatch", "--test-only"]  # the script is passed on standard input


def accounts_argv(user: str) -> list[str]:
    return ["sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=account"]


def default_account_argv(user: str) -> list[str]:
    return ["sacctmgr", "-n", "-P", "show", "user", user, "format=defaultaccount"]


# Parsers

_NOTHING = ("", "(null)", "N/A", "NONE", "None")


def parse_version(text: str) -> tuple[int, int] | None:
    """The version in `sinfo --version` (slurm 23.11.4, slurm-wlm 22.05.8) or SLURM_VERSION."""
    found = re.search(r"(\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else None


def parse_config(text: str) -> dict[str, str]:
    """`scontrol show config` with the sections at its end; settings without a value are left out."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip() not in _NOTHING}


def parse_records(text: str) -> list[dict[str, str]]:
    """`scontrol show ... -o`: one record a line. Values may contain spaces, so each ends at the next ` Name=`."""
    records = []
    for line in text.splitlines():
        parts = re.split(r"(?:^|\s)([A-Z][A-Za-z_/:]*)=", line)
        if len(parts) > 1:
            records.append(dict(zip(parts[1::2], (value.strip() for value in parts[2::2]), strict=True)))
    return records


@dataclass(frozen=True)
class Partition:
    name: str
    default: bool = False
    state: str = "UP"
    nodes: int = 0
    max_time: str | None = None  # None: no limit
    default_time: str | None = None
    max_nodes: int | None = None  # for a job; None: no limit
    root_only: bool = False
    needs_reservation: bool = False
    accounts: tuple[str, ...] | None = None  # None: all
    denied_accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    default_memory: bool = False  # whether it has a default of its own

    @property
    def most_nodes(self) -> int | None:
        """The maximum number of nodes of a job; None if unknown."""
        return min((count for count in (self.max_nodes, self.nodes) if count), default=None)

    @property
    def time_limit(self) -> str | None:
        """The time limit if it is finite and valid, otherwise None."""
        return self.max_time if self.max_time and times.seconds(self.max_time) < inf else None

    def why_closed(self, accounts: tuple[str, ...], groups: tuple[str, ...]) -> str | None:
        """Why a user with these accounts and groups cannot submit here; None if nothing prevents it."""
        if self.state != "UP":
            return f"it is {self.state.lower()}"
        if self.root_only:
            return "it is restricted to root"
        if self.needs_reservation:
            return "it needs a reservation"
        if self.groups is not None and not set(self.groups) & set(groups):
            return f"it is restricted to the groups {', '.join(self.groups)}"
        if accounts and self.accounts is not None and not set(self.accounts) & set(accounts):
            return f"it is restricted to the accounts {', '.join(self.accounts)}"
        if accounts and set(accounts) <= set(self.denied_accounts):
            return f"it denies the accounts {', '.join(self.denied_accounts)}"
        return None


def parse_partitions(text: str) -> list[Partition]:
    return [_partition(fields) for fields in parse_records(text) if _is_name(fields.get("PartitionName", ""))]


def _partition(fields: dict[str, str]) -> Partition:
    def limit(key: str) -> str | None:
        value = fields.get(key, "")
        return None if value in (*_NOTHING, "UNLIMITED", "INFINITE") else value

    def listed(key: str) -> tuple[str, ...] | None:
        value = fields.get(key, "ALL")
        return None if value in (*_NOTHING, "ALL") else tuple(value.split(","))

    return Partition(
        name=fields["PartitionName"],
        default=fields.get("Default") == "YES",
        state=fields.get("State", "UP"),
        nodes=number(fields.get("TotalNodes", "")) or 0,
        max_time=limit("MaxTime"),
        default_time=limit("DefaultTime"),
        max_nodes=number(limit("MaxNodes") or ""),
        root_only=fields.get("RootOnly") == "YES",
        needs_reservation=fields.get("ReqResv") == "YES",
        accounts=listed("AllowAccounts"),
        denied_accounts=listed("DenyAccounts") or (),
        groups=listed("AllowGroups"),
        default_memory=any(limit(key) for key in ("DefMemPerCPU", "DefMemPerNode"))
        or "DefMemPerGPU=" in fields.get("JobDefaults", ""),
    )


def number(text: str) -> int | None:
    """A number of up to 18 digits; None for anything else."""
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None


@dataclass(frozen=True)
class Node:
    name: str
    partitions: tuple[str, ...] = ()
    gpus: dict[str, int] = field(default_factory=dict)  # number by type; "" for GPUs without a type
    state: str = "IDLE"

    @property
    def available(self) -> bool:
        """Whether jobs can run on it, now or after other jobs have ended."""
        return re.search(r"DOWN|DRAIN|FAIL|MAINT|NOT_RESPONDING|UNKNOWN|FUTURE|\*", self.state) is None

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())


def parse_nodes(text: str) -> list[Node]:
    return [
        Node(
            name=fields["NodeName"],
            partitions=tuple(part for part in fields.get("Partitions", "").split(",") if part),
            gpus=parse_gpus(fields.get("Gres", "")),
            state=fields.get("State", "IDLE"),
        )
        for fields in parse_records(text)
        if _is_name(fields.get("NodeName", ""))
    ]


def parse_gpus(gres: str) -> dict[str, int]:
    """The GPUs in a node's Gres: gpu:2, gpu:a100:4(S:0-1),shard:8."""
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *parts = item.strip().split(":")
        if name != "gpu":
            continue
        count = number(parts.pop()) if parts and parts[-1].isdigit() else 1
        kind = parts[0] if parts and parts[0] != "no_consume" else ""
        found[kind] = found.get(kind, 0) + (count or 0)
    return {kind: count for kind, count in found.items() if count and (kind == "" or _is_name(kind))}


def parse_names(text: str) -> tuple[str, ...]:
    """One name a line (sacctmgr -n -P), without duplicates, in order."""
    names = (line.strip().rstrip("|") for line in text.splitlines())
    return tuple(dict.fromkeys(name for name in names if _is_name(name)))


def _is_name(text: str) -> bool:
    """Whether the text can be a name in a job or a profile."""
    return 0 < len(text) < 256 and text.isprintable()


def has_pyxis(srun_help: str) -> bool:
    """Whether srun has the option of the Pyxis plugin; --container is Slurm's own."""
    return "--container-image" in srun_help


def container_scope(plugstack: str) -> str | None:
    """Pyxis' container_scope in plugstack.conf; None if it is not set."""
    for line in plugstack.splitlines():
        code = line.partition("#")[0]
        found = re.search(r"\bcontainer_scope=(\w+)", code)
        if found and "pyxis" in code:
            return found[1]
    return None


def plugstack_includes(plugstack: str) -> list[str]:
    return re.findall(r"^\s*include\s+(\S+)", plugstack, re.MULTILINE)
