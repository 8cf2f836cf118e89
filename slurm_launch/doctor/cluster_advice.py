"""What a Ray job will encounter on the cluster that Slurm describes. Pure: ClusterFacts in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurm_launch.doctor.cluster_facts import ClusterFacts
from slurm_launch.doctor.findings import CheckResult, note, ok, problem
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm.site import Partition

OLDEST_SLURM = (22, 5)
SHORT_KILL_WAIT = 15  # seconds: the command gets ten of them, and the nodes need some to stop Ray
DEFAULT_MEMORY = {"DefMemPerCPU": "CPU", "DefMemPerNode": "node", "DefMemPerGPU": "GPU"}


def check_cluster(cluster: ClusterFacts) -> list[CheckResult]:
    """All findings that follow from Slurm's configuration."""
    if not cluster.installed:
        hint = "on a cluster, run this on a login node or load the site's Slurm module; `slurm-launch rehearse` works"
        return [note("slurm", "not installed here: sinfo is not in PATH", hint)]
    findings = [*_version(cluster), *cluster.failures]
    if cluster.reachable:
        findings += [
            ok("slurmctld", f"reachable; cluster {cluster.config.get('ClusterName', '(unnamed)')}"),
            *_partitions(cluster),
            *_accounting(cluster),
            *_memory(cluster),
            *_processes(cluster),
            *_requeue(cluster),
            *_temp_dir(cluster),
            *_peculiarities(cluster),
        ]
    return findings


def _version(cluster: ClusterFacts) -> Iterator[CheckResult]:
    version = slurm_site.parse_version(cluster.version)
    running = cluster.config.get("SLURM_VERSION", "")
    if version is None:
        if not cluster.failures:
            yield note("slurm", f"cannot parse the version: {cluster.version!r}")
    elif version < OLDEST_SLURM:
        yield problem("slurm", f"{cluster.version} is too old", "the scripts need Slurm 22.05 or newer")
    elif running and slurm_site.parse_version(running) != version:
        text = f"the commands on this host are {cluster.version}, slurmctld is {running}"
        yield note("slurm", text, "both are supported")
    else:
        yield ok("slurm", cluster.version)


def _partitions(cluster: ClusterFacts) -> Iterator[CheckResult]:
    for partition in cluster.partitions:
        text = f"{partition.name}: {describe(cluster, partition)}"
        closed = partition.why_closed(cluster.accounts, cluster.groups)
        if closed:
            yield note("partition", text, f"not available to you: {closed}")
        elif (nodes := cluster.nodes_of(partition)) and not any(node.available for node in nodes):
            yield note("partition", text, "jobs stay pending until a node is available")
        else:
            yield ok("partition", text)
    if not cluster.partitions:
        yield problem("partition", "scontrol shows none", "ask the site which ones you can use")
    elif not cluster.open_partitions:
        yield problem("partition", "none is available to you", "ask the site which account or group you need")
    elif not any(partition.default for partition in cluster.open_partitions):
        yield note("partition", "no default partition available to you", "use --partition, or write a profile")
    if cluster.config.get("EnforcePartLimits") == "NO":
        text = "sbatch accepts jobs beyond a partition's limits; they stay pending forever"
        yield note("partition", text, "a profile (--write) checks the limits before submission")


def describe(cluster: ClusterFacts, partition: Partition) -> str:
    """A partition's nodes and limits."""
    nodes = cluster.nodes_of(partition)
    lost = sum(not node.available for node in nodes)
    gpus = max((node.gpu_count for node in nodes), default=0)
    types = sorted({kind for node in nodes for kind in node.gpus if kind})
    parts = [
        "default" if partition.default else "",
        f"{partition.nodes} node{'s' * (partition.nodes != 1)}" + (f" ({lost} not available)" if lost else ""),
        f"at most {partition.max_nodes} per job" if partition.max_nodes is not None else "",
        f"time limit {partition.max_time}" if partition.max_time else "no time limit",
        f"default time {partition.default_time}" if partition.default_time else "",
        f"up to {gpus} GPUs per node{': ' + ', '.join(types) if types else ''}" if gpus else "",
    ]
    return ", ".join(part for part in parts if part)


def _accounting(cluster: ClusterFacts) -> Iterator[CheckResult]:
    kind = cluster.config.get("AccountingStorageType", "")
    if not kind.endswith("slurmdbd"):
        age = cluster.config.get("MinJobAge", "some minutes")
        hint = f"Slurm removes a job {age} after its end (MinJobAge); its log and record remain"
        yield note("accounting", "off: sacct has no data", hint)
        return
    yield ok("accounting", "on" + ("; every job needs an account" if cluster.enforces_accounts else ""))
    if cluster.account:
        yield ok("account", cluster.account + (" (your default)" if cluster.default_account else " (your only one)"))
    elif cluster.accounts:
        yield note("account", f"{', '.join(cluster.accounts)}; none is the default", "choose one with --account")
    elif cluster.enforces_accounts and not any(failure.about == "account" for failure in cluster.failures):
        text = f"{cluster.user} has none, so sbatch will refuse every job"
        yield problem("account", text, "ask the site for one")


def _memory(cluster: ClusterFacts) -> Iterator[CheckResult]:
    if not _memory_is_allocated(cluster):
        hint = "use --exclusive, or limit Ray's object store with --object-store-memory"
        yield note("memory", "not allocated by Slurm: jobs on a node can use up each other's memory", hint)
        return
    hints = []
    if default := _default_memory(cluster):
        text = f"allocated by Slurm; a job that requests none gets {default}"
    elif takes_all_memory(cluster):
        text = "allocated by Slurm, without a default: a job that requests none gets all"
        hints.append("use --mem")
    else:
        text = "allocated by Slurm; each partition has a default"
    enforced = _memory_enforcement(cluster)
    if not enforced:
        hints.append("if others use more than they requested, the node's own OOM killer may kill your job")
    text += f"; {enforced or 'not enforced by a cgroup'}"
    yield note("memory", text, "; ".join(hints)) if hints else ok("memory", text)


def takes_all_memory(cluster: ClusterFacts) -> bool:
    """Whether a job that requests no memory gets all of its nodes', so that no other job fits on them."""
    if not _memory_is_allocated(cluster) or _default_memory(cluster):
        return False
    return not all(partition.default_memory for partition in cluster.open_partitions)


def _memory_is_allocated(cluster: ClusterFacts) -> bool:
    return "MEMORY" in cluster.config.get("SelectTypeParameters", "").upper()


def _default_memory(cluster: ClusterFacts) -> str:
    """What a job that requests no memory gets: `512 MB per CPU`. Slurm lists the default per GPU among others."""
    listed = (pair.partition("=") for pair in cluster.config.get("JobDefaults", "").split(","))
    values = {**cluster.config, **{key: value for key, _, value in listed}}
    defaults = [(values.get(key, "0"), unit) for key, unit in DEFAULT_MEMORY.items()]
    return " or ".join(f"{size} MB per {unit}" for size, unit in defaults if size not in ("UNLIMITED", "0"))


def _memory_enforcement(cluster: ClusterFacts) -> str:
    """How Slurm keeps a job within its memory; empty if it does not."""
    if "OverMemoryKill" in cluster.config.get("JobAcctGatherParams", ""):
        return "enforced: Slurm ends a job that uses more"
    constrained = cluster.config.get("ConstrainRAMSpace", "").lower()  # not all versions show cgroup.conf
    if "cgroup" not in cluster.config.get("TaskPlugin", "") or constrained == "no":
        return ""
    return "enforced by a cgroup" + ("" if constrained else " if cgroup.conf has ConstrainRAMSpace=yes")


def check_containers(cluster: ClusterFacts, runtimes: Sequence[str], *, on_nodes: bool = False) -> CheckResult:
    """What can run an image: Pyxis, as srun reports it, and the programs in PATH here, or on the nodes."""
    where = "on the nodes" if on_nodes else "in PATH here (the nodes may differ)"
    found = f"{', '.join(runtimes)} {where}" if runtimes else ""
    if cluster.pyxis:
        scope = cluster.pyxis_scope or "unknown (cannot read it from plugstack.conf)"
        return ok("containers", f"Pyxis, container_scope {scope}" + (f"; {found}" if found else ""))
    if cluster.installed and cluster.pyxis is None:
        return note("containers", "unknown whether Pyxis is installed: srun failed" + (f"; {found}" if found else ""))
    if found:
        return ok("containers", f"no Pyxis; {found}")
    text = f"neither Pyxis nor another runtime found {'on the nodes' if on_nodes else 'here'}"
    return note("containers", text, "--container-image needs one on the nodes")


def _processes(cluster: ClusterFacts) -> Iterator[CheckResult]:
    """How Slurm ends the processes of a job."""
    tracker = cluster.config.get("ProctrackType", "").rpartition("/")[2]
    if tracker == "cgroup":
        yield ok("processes", "tracked by a cgroup")
    else:
        text = f"tracked by {tracker or 'nothing'}: Slurm may miss daemons"
        yield note("processes", text, "the script ends its own")
    found = re.match(r"\d{1,9}", cluster.config.get("KillWait", ""))
    if found and int(found[0]) < SHORT_KILL_WAIT:
        hint = "the command's SIGTERM handler must be quick"
        yield note("kill-wait", f"{found[0]} s between SIGTERM and SIGKILL at scancel and time limit", hint)
    elif found:
        yield ok("kill-wait", f"{found[0]} s between SIGTERM and SIGKILL")


def _requeue(cluster: ClusterFacts) -> Iterator[CheckResult]:
    """Whether Slurm restarts or preempts jobs."""
    default = "requeues" if cluster.config.get("JobRequeue") == "1" else "does not requeue"
    text = f"the site {default} jobs by default; generated scripts are requeued only with --requeue"
    yield ok("requeue", text)
    preempt = cluster.config.get("PreemptType", "preempt/none").rpartition("/")[2]
    if preempt != "none":
        mode = cluster.config.get("PreemptMode", "").lower()
        text = f"by {preempt} ({mode}): a job can be ended in favor of another"
        yield note("preemption", text, "write checkpoints; --requeue restarts the job")


def _temp_dir(cluster: ClusterFacts) -> Iterator[CheckResult]:
    plugin = cluster.config.get("JobContainerType", cluster.config.get("NamespaceType", ""))
    if plugin.endswith("/tmpfs"):
        yield ok("temp-dir", f"each job has its own /tmp ({plugin}), which `slurm-launch attach` shows too")


def _peculiarities(cluster: ClusterFacts) -> Iterator[CheckResult]:
    """What few sites have."""
    if cluster.config.get("SwitchType") == "switch/hpe_slingshot":
        text = "HPE Slingshot: the steps of the script use --network=job_vni,single_node_vni"
        yield note("switch", text, "add it to your own srun calls: without it, NCCL cannot connect the nodes")
    if "SuspendProgram" in cluster.config:
        text = "idle nodes are powered off, so that a job may wait minutes for them"
        yield note("power-saving", text, "with #SBATCH --wait-all-nodes=1 the script starts when all are up")
    if "jobs" in cluster.config.get("PrivateData", "").split(","):
        yield note("queue", "Slurm hides the jobs of others: `watch` shows the place among your own jobs only")
