"""For test_doctor*.py: shortened output of Slurm 22.05.8 and of two nodes on the test cluster, and a fake runner."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from slurm_launch import process
from slurm_launch.doctor import cluster_facts
from slurm_launch.doctor.cluster_facts import ClusterFacts
from slurm_launch.doctor.findings import CheckResult
from slurm_launch.slurm.client import Probe

Answer = str | tuple[int, str] | Exception

VERSION = "slurm-wlm 22.05.8\n"

CONFIG = """\
Configuration data as of 2026-11-16T08:07:42
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/none
ClusterName             = testbed
DefMemPerCPU            = 512
EnforcePartLimits       = NO
GresTypes               = gpu
JobAcctGatherType       = jobacct_gather/none
JobAcctGatherParams     = (null)
JobContainerType        = job_container/none
JobRequeue              = 1
KillWait                = 5 sec
MinJobAge               = 300 sec
PlugStackConfig         = (null)
PreemptMode             = OFF
PreemptType             = preempt/none
ProctrackType           = proctrack/linuxproc
PrologFlags             = (null)
SchedulerParameters     = sched_interval=1,sched_min_interval=100000,bf_interval=1,batch_sched_delay=0
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
SlurmctldHost[0]        = login
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
TaskPlugin              = task/none
TaskPluginParam         = (null type)

Slurmctld(primary) at login is UP
"""

PARTITIONS = """\
PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE \
DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO \
MaxCPUsPerNode=UNLIMITED Nodes=n[1-2] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO \
OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=16 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) \
DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=16,mem=8G,node=2,billing=16
PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE \
DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=00:01:00 MinNodes=0 LLN=NO \
MaxCPUsPerNode=UNLIMITED Nodes=n[1-2] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO \
OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=16 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) \
DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=16,mem=8G,node=2,billing=16
"""

NODES = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.60 AvailableFeatures=fast \
ActiveFeatures=fast Gres=gpu:2 NodeAddr=n1 NodeHostName=n1 Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  \
RealMemory=4096 AllocMem=0 FreeMem=20828 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A \
MCS_label=N/A Partitions=main,short  BootTime=2026-11-16T01:14:39 CfgTRES=cpu=8,mem=4G,billing=8 AllocTRES= CapWatts=n/a
NodeName=n2 Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.60 AvailableFeatures=(null) \
ActiveFeatures=(null) Gres=gpu:2 NodeAddr=n2 NodeHostName=n2 Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  \
RealMemory=4096 AllocMem=0 FreeMem=20828 Sockets=1 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A \
MCS_label=N/A Partitions=main,short  BootTime=2026-11-16T01:14:39 CfgTRES=cpu=8,mem=4G,billing=8 AllocTRES= CapWatts=n/a
"""

# 24.11 has no value where 22.05 has .../none.
CONFIG_24_11 = (
    CONFIG.replace("22.05.8", "24.11.5")
    .replace("preempt/none", "(null)")
    .replace("task/none", "(null)")
    .replace("jobacct_gather/none", "(null)")
)

WITH_ACCOUNTS = CONFIG.replace("accounting_storage/none", "accounting_storage/slurmdbd").replace(
    "AccountingStorageEnforce = none", "AccountingStorageEnforce = associations"
)

SRUN_HELP = "      --container             Path to OCI container bundle\n"
PYXIS_HELP = SRUN_HELP + "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n"

ADDRESSES = """\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
1: lo    inet6 ::1/128 scope host \\       valid_lft forever preferred_lft forever
2: br0    inet 10.77.0.1/16 scope global br0\\       valid_lft forever preferred_lft forever
2: br0    inet6 fd77::1/64 scope global nodad \\       valid_lft forever preferred_lft forever
2: br0    inet6 fe80::448c:ebff:fe95:9f30/64 scope link \\       valid_lft forever preferred_lft forever
3: docker0    inet 172.17.0.1/16 scope global docker0\\       valid_lft forever preferred_lft forever
4: n1@if2    inet6 fe80::2492:7ff:fe31:41b9/64 scope link \\       valid_lft forever preferred_lft forever
"""

ACCEPTED = "sbatch: Job 1 to start at 2026-11-16T08:07:42 using 2 processors on nodes n[1-2] in partition main\n"

JOB_LOG = """\
doctor n2 host n2
doctor n2 bash 5.2.15(1)-release
doctor n2 clock 1794817163.513208463
doctor n2 files 20000
doctor n2 processes 96343
doctor n2 ports 32768	60999
doctor n2 shm  12053
doctor n2 memory-limit
doctor n2 run-dir seen writable
doctor n2 temp-dir /tmp
doctor n2 directory /tmp tmpfs      9000  8999 writable own
doctor n2 directory /var/tmp tmpfs     12053 12053 writable own
doctor n2 ray 2.60.0
doctor n2 runtimes  ch-run
doctor n2 address eth1 10.88.0.12
doctor n2 address eth1 fd88::12
doctor n2 address eth0 10.77.0.12
doctor n2 address eth0 fd77::12
doctor n2 chosen eth0 10.77.0.12
doctor n1 host n1
doctor n1 bash 5.2.15(1)-release
doctor n1 clock 1794817163.520117920
doctor n1 files 20000
doctor n1 processes 96343
doctor n1 ports 32768	60999
doctor n1 shm  12053
doctor n1 memory-limit
doctor n1 run-dir seen writable
doctor n1 temp-dir /tmp
doctor n1 directory /tmp tmpfs      9000  8999 writable own
doctor n1 directory /var/tmp tmpfs     12053 12053 writable own
doctor n1 ray 2.60.0
doctor n1 runtimes  ch-run
doctor n1 address eth1 10.88.0.11
doctor n1 address eth1 fd88::11
doctor n1 address eth0 10.77.0.11
doctor n1 address eth0 fd77::11
doctor n1 chosen eth0 10.77.0.11
doctor n1 reach n2 eth1 10.88.0.12 yes
doctor n1 reach n2 eth1 fd88::12 yes
doctor n1 reach n2 eth0 10.77.0.12 yes
doctor n1 reach n2 eth0 fd77::12 yes
doctor n2 reach n1 eth1 10.88.0.11 yes
doctor n2 reach n1 eth1 fd88::11 yes
doctor n2 reach n1 eth0 10.77.0.11 yes
doctor n2 reach n1 eth0 fd77::11 yes
doctor n1 end
"""

GOOD: dict[str, Answer] = {
    "sinfo --version": VERSION,
    "scontrol show config": CONFIG,
    "scontrol show partition": PARTITIONS,
    "scontrol show node": NODES,
    "srun --help": SRUN_HELP,
    "sbatch --test-only": "",
    "sacctmgr -n -P show assoc": "lab||\n",
    "sacctmgr -n -P show user": "lab\n",
}


class FakeRunner:
    """A runner with prepared results: stdout, (code, stderr), or an exception. Other programs are not installed."""

    def __init__(self, changes: Mapping[str, Answer | Callable[[str], Answer]] | None = None) -> None:
        self.known: dict[str, Any] = {**GOOD, **(changes or {})}
        self.calls: list[str] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float,
        stdin: str | None = None,
    ) -> process.Result:
        line = " ".join(argv)
        self.calls.append(line)
        answer = next((self.known[key] for key in self.known if line.startswith(key)), None)
        if callable(answer):
            answer = answer(stdin or line)
        if answer is None:
            raise process.SlurmNotFound(f"{argv[0]} is not in PATH", hint="install it")
        if isinstance(answer, Exception):
            raise answer
        code, out, err = (0, answer, "") if isinstance(answer, str) else (answer[0], "", answer[1])
        return process.Result(tuple(argv), code, out, err)


def query_fake(changes: Mapping[str, Any] | None = None, groups: tuple[str, ...] = ()) -> ClusterFacts:
    return cluster_facts.query_cluster(Probe({}, FakeRunner(changes)), "alice", groups)


def about(findings: Iterable[CheckResult], what: str) -> list[CheckResult]:
    return [finding for finding in findings if finding.about == what]


def one(findings: Iterable[CheckResult], what: str) -> CheckResult:
    (found,) = about(findings, what)
    return found


MALFORMED = (
    "",
    " ",
    "weird",
    "\u00b2",
    "\u0663",
    "-1",
    "9" * 5000,
    "1.N",
    "=",
    ":",
    "(null)",
    "\x1b[1m",
    "\U0001f600",
    "a b",
    "#",
)


def malformed(text: str, random: Random) -> str:
    """The text with some of its words replaced by malformed ones."""
    words = re.split(r"([\s=,:]+)", text)
    for _ in range(random.randint(1, 12)):
        words[random.randrange(len(words))] = random.choice(MALFORMED)
    return "".join(words)


def timed_out(program: str) -> process.SlurmTimedOut:
    return process.SlurmTimedOut(f"{program} did not answer within 20 s", hint="try later")
