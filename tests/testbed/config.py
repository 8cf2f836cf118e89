"""The settings of a cluster, and the configuration files for its scripts and for Slurm."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
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
    etc_slurm: Mapping[str, str]
    cgroups: bool
    threads: int
    real_cpus: bool
    private_tmp: bool

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


def write_files(settings: Settings, root: Path, state: Path, cgroups: Mapping[str, Path]) -> None:
    """Write all files that init.sh, the nodes and Slurm read to the state folder of a cluster on that root folder."""
    for folder in ("mem", "log", "ended", "pids", "nodes", "hosts", "etc_slurm"):
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
    lists = {
        "NODES": settings.nodes,
        "BINDS": settings.binds,
        "USERS": [f"{user}:{uid}" for user, uid in USERS.items()],
        "CGROUPS": [f"{controller}={folder}" for controller, folder in cgroups.items()],
        "PRIVATE_TMP_CPUS": [str(cpu) for cpu in sorted(os.sched_getaffinity(0)) if settings.private_tmp],
    }
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
    files = {
        "cgroup.conf": "\n".join(_cgroup_conf(settings, root)) + "\n",
        "gres.conf": "AutoDetect=off\n" + "\n".join(_gres_conf(settings)) + "\n",
        "slurm.conf": "\n".join(_slurm_conf(settings)) + "\n",
    }
    if settings.private_tmp:
        files["job_container.conf"] = "AutoBasePath=true\nBasePath=/var/tmp/private\n"
    for name, text in {**files, **settings.etc_slurm}.items():
        path = state / "etc_slurm" / name
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    if settings.accounting:
        lines = ["DbdHost=login", "SlurmUser=root", "StorageType=accounting_storage/mysql", "StorageUser=root"]
        lines += ["LogFile=/testbed/log/slurmdbd.log", "PidFile=/run/slurmdbd.pid"]
        (state / "slurmdbd.conf").write_text("\n".join(lines) + "\n")


def _cgroup_conf(settings: Settings, root: Path) -> list[str]:
    if not settings.cgroups:
        # Slurm before 23.02 needs a cgroup plugin, but does not use cgroups with the plugins of this slurm.conf.
        return ["CgroupPlugin=disabled" if rootfs.slurm_version(root) >= (23, 2) else "CgroupPlugin=cgroup/v1"]
    return [
        "CgroupPlugin=cgroup/v1",
        "ConstrainRAMSpace=yes",
        "ConstrainSwapSpace=no",
        "ConstrainDevices=yes",
        # By default the nodes have more CPUs than the machine: there is nothing to bind to.
        f"ConstrainCores={'yes' if settings.real_cpus else 'no'}",
    ]


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
        f"ProctrackType=proctrack/{'cgroup' if settings.cgroups else 'linuxproc'}",
        f"TaskPlugin={_task_plugin(settings)}",
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
    if settings.private_tmp:
        lines += ["JobContainerType=job_container/tmpfs", "PrologFlags=Contain"]
    lines += _node_lines(settings)
    replaced = {_conf_key(line) for line in settings.slurm_conf_extra}
    return [line for line in lines if _conf_key(line) not in replaced] + list(settings.slurm_conf_extra)


def _task_plugin(settings: Settings) -> str:
    if not settings.cgroups:
        return "task/none"
    # task/affinity binds to CPUs of the machine. On nodes that have more of them, it refuses larger steps: "Unable to
    # layout tasks on given cpus".
    return "task/affinity,task/cgroup" if settings.real_cpus else "task/cgroup"


def _node_lines(settings: Settings) -> Iterator[str]:
    real = _real_cpus() if settings.real_cpus else None
    for node, option in settings.options.items():
        cpus = option.cpus or settings.cpus
        cores = f"CPUs={cpus} Sockets=1 CoresPerSocket={cpus // settings.threads} ThreadsPerCore={settings.threads}"
        gpus = settings.node_gpus(node)
        features = ("fast" if node == "n1" else "") if option.features is None else option.features
        yield (
            f"NodeName={node} {real or cores} State=UNKNOWN"
            f" RealMemory={option.memory_mb or settings.memory_mb}"
            + (f" Gres=gpu:{gpus}" if gpus else "")
            + (f" Feature={features}" if features else "")
        )


def _real_cpus() -> str:
    """The CPUs of this machine, in the words of slurm.conf: binding needs the real sockets, cores and threads."""
    argv = ["slurmd", "-C"]  # prints: NodeName=vm CPUs=2 Boards=1 ... ThreadsPerCore=1 RealMemory=24105
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    words = subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout.split()
    wanted = ("CPUs=", "Boards=", "SocketsPerBoard=", "CoresPerSocket=", "ThreadsPerCore=")
    return " ".join(word for word in words if word.startswith(wanted))


def _conf_key(line: str) -> str:
    """The key of a line of slurm.conf; for nodes and partitions it includes the name."""
    key = line.partition("=")[0].strip().lower()
    return line.split()[0].lower() if key in ("nodename", "partitionname") else key
