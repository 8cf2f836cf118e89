"""The settings of a cluster, and the configuration files for its scripts and for Slurm."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import rootfs

HERE = Path(__file__).parent
LOGIN = "login"  # the host of slurmctld, where users run sbatch
USERS = {"alice": 7001, "bob": 7002}
MAX_FLAT = 24  # the network of a larger cluster is routed, see init.sh


@dataclass(frozen=True)
class NodeOptions:
    """How one node differs from the others; None: as for the whole cluster."""

    tmp_size: str | None = None  # of /tmp, in the format of tmpfs: 1m, 2g
    hosts_extra: Sequence[str] = ()  # the first lines of this node's /etc/hosts
    docker0: bool = False  # an interface docker0 with 172.17.0.1/16, the same address on every node
    eth1: bool = False  # a second network, 10.88.0.x and fd88::x
    features: str | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    gpus: int | None = None


@dataclass(frozen=True)
class Settings:
    """The arguments of Cluster."""

    options: Mapping[str, NodeOptions]  # of each node
    families: str
    cpus: int
    memory_mb: int
    gpus: int
    tmp_size: str
    accounting: bool
    pyxis: bool
    binds: Sequence[str]
    slurmd_timeout: int
    slurm_conf_extra: Sequence[str]

    @property
    def nodes(self) -> list[str]:
        return list(self.options)

    def node_gpus(self, node: str) -> int:
        own = self.options[node].gpus
        return self.gpus if own is None else own


def address(host: str, family: int | str, network: str = "77") -> str:
    """The address of a host: 10.77.0.11 or fd77::11 for n1; it ends in 1 for the login node."""
    number = 1 if host == LOGIN else int(host[1:]) + 10
    return f"10.{network}.{number // 256}.{number % 256}" if str(family) == "4" else f"fd{network}::{number}"


def write_files(settings: Settings, root: Path, state: Path) -> None:
    """Write all files that init.sh, the nodes and Slurm read to the state folder of a cluster on that root folder."""
    for folder in ("mem", "log", "ended", "pids", "nodes", "hosts"):
        (state / folder).mkdir()
    for script in ("init.sh", "node.sh", "lib.sh", "link.sh", "enroot.sh", "enter"):
        shutil.copy(HERE / script, state / script)
    variables = {
        "LOWER": str(root),
        "FAMILIES": settings.families,
        "ROUTED": str(int(len(settings.nodes) > MAX_FLAT)),
        "ACCOUNTING": str(int(settings.accounting)),
        "PYXIS": str(int(settings.pyxis)),
        "MAX_GPUS": str(max(settings.node_gpus(node) for node in settings.nodes)),
        "LOGIN_TMP_SIZE": settings.tmp_size,
    }
    lists = {"NODES": settings.nodes, "BINDS": settings.binds, "USERS": [f"{u}:{uid}" for u, uid in USERS.items()]}
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
    text += "".join(f"{name}=({shlex.join(values)})\n" for name, values in lists.items())
    (state / "cluster.env").write_text(text)
    hosts = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    hosts += [f"{address(host, family)} {host}" for host in [LOGIN, *settings.nodes] for family in settings.families]
    (state / "hosts" / LOGIN).write_text("\n".join(hosts) + "\n")
    for node, option in settings.options.items():
        (state / "hosts" / node).write_text("\n".join([*option.hosts_extra, *hosts]) + "\n")
        (state / "nodes" / node).write_text(
            f"ADDRESS4={address(node, 4)} ADDRESS6={address(node, 6)}\n"
            f"SECOND4={address(node, 4, '88')} SECOND6={address(node, 6, '88')}\n"
            f"TMP_SIZE={option.tmp_size or settings.tmp_size} DOCKER0={option.docker0:d} ETH1={option.eth1:d}\n"
        )
    # Slurm before 23.02 needs a cgroup plugin, but does not use cgroups with the plugins of this slurm.conf.
    plugin = "disabled" if rootfs.slurm_version(root) >= (23, 2) else "cgroup/v1"
    (state / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\nConstrainCores=no\n")
    (state / "gres.conf").write_text("AutoDetect=off\n" + "\n".join(_gres_conf(settings)) + "\n")
    (state / "slurm.conf").write_text("\n".join(_slurm_conf(settings)) + "\n")
    if settings.accounting:
        lines = ["DbdHost=login", "SlurmUser=root", "StorageType=accounting_storage/mysql", "StorageUser=root"]
        lines += ["LogFile=/testbed/log/slurmdbd.log", "PidFile=/run/slurmdbd.pid"]
        (state / "slurmdbd.conf").write_text("\n".join(lines) + "\n")


def _gres_conf(settings: Settings) -> Iterator[str]:
    for node in settings.nodes:
        if gpus := settings.node_gpus(node):
            yield f"NodeName={node} Name=gpu File=/etc/slurm/gpu[0-{gpus - 1}]"


def _slurm_conf(settings: Settings) -> list[str]:
    lines = [
        "ClusterName=testbed",
        f"SlurmctldHost={LOGIN}",
        "SlurmUser=root",
        "AuthType=auth/munge",
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd/%n",
        "SlurmctldPidFile=/run/slurmctld.pid",
        "SlurmdPidFile=/run/slurmd.%n.pid",
        "SlurmctldLogFile=/testbed/log/slurmctld.log",
        "SlurmdLogFile=/testbed/log/slurmd.%n.log",
        "MailProg=/bin/true",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SlurmdParameters=config_overrides",  # a node can have more than the machine
        "GresTypes=gpu",
        # With the default intervals some jobs stay pending for 30 s.
        "SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=1,batch_sched_delay=0",
        "KillWait=5",
        f"SlurmdTimeout={settings.slurmd_timeout}",
        "InactiveLimit=0",
        "OverTimeLimit=0",
        "ReturnToService=2",
        "JobRequeue=1",
        # Without it a job that requests no memory gets all of it, and no other job fits on its nodes.
        f"DefMemPerCPU={settings.memory_mb // settings.cpus}",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
        "PartitionName=short Nodes=ALL MaxTime=1 State=UP",
    ]
    if "4" not in settings.families:
        lines.append("CommunicationParameters=EnableIPv6,DisableIPv4")
    if settings.accounting:
        lines += ["AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={LOGIN}"]
        lines.append("AccountingStorageEnforce=associations")  # an unknown account is refused
    if settings.pyxis:
        lines.append("PlugStackConfig=/testbed/plugstack.conf")
    lines += _node_lines(settings)
    replaced = {_conf_key(line) for line in settings.slurm_conf_extra}
    return [line for line in lines if _conf_key(line) not in replaced] + list(settings.slurm_conf_extra)


def _node_lines(settings: Settings) -> Iterator[str]:
    for node, option in settings.options.items():
        cpus = option.cpus or settings.cpus
        gpus = settings.node_gpus(node)
        features = ("fast" if node == "n1" else "") if option.features is None else option.features
        yield (
            f"NodeName={node} CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 State=UNKNOWN"
            f" RealMemory={option.memory_mb or settings.memory_mb}"
            + (f" Gres=gpu:{gpus}" if gpus else "")
            + (f" Feature={features}" if features else "")
        )


def _conf_key(line: str) -> str:
    """The key of a line of slurm.conf; for nodes and partitions it includes the name."""
    key = line.partition("=")[0].strip().lower()
    return line.split()[0].lower() if key in ("nodename", "partitionname") else key
