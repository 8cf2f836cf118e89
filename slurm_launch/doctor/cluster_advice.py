"""What a Ray job minds of the cluster that Slurm describes. Pure: a Site in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurm_launch.doctor.cluster_facts import Site
from slurm_launch.doctor.findings import (
    Finding,
    note,
    ok,
    problem,
)
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm.site import Partition

OLDEST = (22, 5)
SHORT_KILL_WAIT = 15  # seconds: the command gets ten at the end, and the nodes need some to end their Ray


def advise(site: Site) -> list[Finding]:
    """Everything but what has to be tried out."""
    if not site.here:
        hint = (
            "on a cluster run this on a login node, or load the site's Slurm module; `slurm-launch rehearse` works here"
        )
        return [note("slurm", "there is no Slurm here: sinfo is not in PATH", hint)]
    findings = [*_version(site), *site.failures]
    if site.answers:
        findings += [*_controller(site), *_partitions(site), *_accounting(site), *_memory(site), *_job_ends(site)]
    return findings


def _version(site: Site) -> Iterator[Finding]:
    version = slurm_site.parse_version(site.version)
    running = site.config.get("SLURM_VERSION", "")
    if version is None:
        if not site.failures:
            yield note("slurm", f"its version cannot be read: {site.version!r}")
    elif version < OLDEST:
        yield problem("slurm", f"{site.version} is too old", "the scripts are for Slurm 22.05 or newer")
    elif running and slurm_site.parse_version(running) != version:
        yield note("slurm", f"the commands here are {site.version}, slurmctld is {running}", "both are new enough")
    else:
        yield ok("slurm", site.version)


def _controller(site: Site) -> Iterator[Finding]:
    yield ok("slurmctld", f"answers; cluster {site.config.get('ClusterName', 'without a name')}")


def _partitions(site: Site) -> Iterator[Finding]:
    for partition in site.partitions:
        text = f"{partition.name}: {describe(site, partition)}"
        closed = partition.why_closed(site.accounts, site.groups)
        if closed:
            yield note("partition", text, f"not for you: {closed}")
        elif (nodes := site.nodes_of(partition)) and not any(node.available for node in nodes):
            yield note("partition", text, "jobs wait there until nodes come back")
        else:
            yield ok("partition", text)
    if not site.partitions:
        yield problem("partition", "scontrol shows none", "ask the site which ones you may use")
    elif not site.open_partitions:
        yield problem("partition", "none is open to you", "ask the site which account or group you need")
    elif not any(partition.default for partition in site.open_partitions):
        yield note("partition", "no default that you may use", "say --partition each time, or write a profile")
    if site.config.get("EnforcePartLimits") == "NO":
        text = "sbatch takes jobs beyond a partition's limits, and they wait for ever"
        yield note("partition", text, "a profile (--write) knows the limits before")


def describe(site: Site, partition: Partition) -> str:
    """A partition's nodes and limits."""
    nodes = site.nodes_of(partition)
    lost = sum(not node.available for node in nodes)
    gpus = max((node.gpu_count for node in nodes), default=0)
    kinds = sorted({kind for node in nodes for kind in node.gpus if kind})
    parts = [
        *(["default"] if partition.default else []),
        f"{partition.nodes} node{'s' * (partition.nodes != 1)}" + (f" ({lost} not available)" if lost else ""),
        f"at most {partition.max_nodes} for a job" if partition.max_nodes is not None else "",
        f"time limit {partition.max_time}" if partition.max_time else "no time limit",
        f"{partition.default_time} unless asked" if partition.default_time else "",
        f"up to {gpus} GPUs on a node{': ' + ', '.join(kinds) if kinds else ''}" if gpus else "",
    ]
    return ", ".join(part for part in parts if part)


def _accounting(site: Site) -> Iterator[Finding]:
    kind = site.config.get("AccountingStorageType", "")
    if not kind.endswith("slurmdbd"):
        age = site.config.get("MinJobAge", "some minutes")
        yield note(
            "accounting", "off: sacct knows nothing", f"Slurm forgets a job {age} after its end, the log does not"
        )
        return
    yield ok("accounting", "on" + ("; every job needs an account" if site.enforces_accounts else ""))
    if site.account:
        yield ok("account", f"{site.account}" + (" (your default)" if site.default_account else " (your only one)"))
    elif site.accounts:
        yield note("account", f"yours are {', '.join(site.accounts)}, none is the default", "say which by --account")
    elif site.enforces_accounts and not any(failure.about == "account" for failure in site.failures):
        yield problem("account", f"{site.user} has none, so sbatch will refuse every job", "ask the site for one")


def _memory(site: Site) -> Iterator[Finding]:
    if "MEMORY" not in site.config.get("SelectTypeParameters", "").upper():
        hint = "use --exclusive, or tell Ray's object store its size with --object-store-memory"
        yield note("memory", "Slurm does not count it: jobs on a node may use up each other's", hint)
        return
    default = _default_memory(site)
    enforced = "limits are enforced by a control group" if _enforced(site) else "no control group enforces it"
    if default:
        each = {"DefMemPerCPU": "CPU", "DefMemPerNode": "node", "DefMemPerGPU": "GPU"}[default]
        yield ok("memory", f"counted; {site.config[default]} MB for each {each} unless asked; {enforced}")
    elif takes_all_memory(site):
        yield note("memory", f"counted, without a default: a job that asks for none gets all; {enforced}", "say --mem")
    else:
        yield ok("memory", f"counted; each partition has a default; {enforced}")


def takes_all_memory(site: Site) -> bool:
    """Whether a job that asks for no memory gets all of its nodes', so that no other job fits on them."""
    if "MEMORY" not in site.config.get("SelectTypeParameters", "").upper() or _default_memory(site):
        return False
    return not all(partition.default_memory for partition in site.open_partitions)


def _default_memory(site: Site) -> str | None:
    """The setting that gives a job memory it has not asked for."""
    keys = ("DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU")
    return next((key for key in keys if site.config.get(key, "UNLIMITED") not in ("UNLIMITED", "0")), None)


def containers(site: Site, runtimes: Sequence[str], *, on_nodes: bool = False) -> Finding:
    """What can run an image: Pyxis, which Slurm tells of, and the programs that are in PATH here, or on the nodes."""
    where = "on the nodes" if on_nodes else "in PATH here (the nodes may differ)"
    here = f"{', '.join(runtimes)} {where}" if runtimes else ""
    if site.pyxis:
        scope = site.pyxis_scope or "not to be known: plugstack.conf cannot be read"
        return ok("containers", f"Pyxis, its container_scope {scope}" + (f"; {here}" if here else ""))
    if site.here and site.pyxis is None:
        return note("containers", "srun does not tell whether there is Pyxis" + (f"; {here}" if here else ""))
    if here:
        return ok("containers", f"no Pyxis; {here}")
    text = f"neither Pyxis nor another runtime found {'on the nodes' if on_nodes else 'here'}"
    return note("containers", text, "--container-image needs one on the nodes")


def _enforced(site: Site) -> bool:
    constrained = site.config.get("ConstrainRAMSpace", "").lower()  # newer versions print cgroup.conf too
    by_group = "cgroup" in site.config.get("TaskPlugin", "") and constrained != "no"
    return by_group or "OverMemoryKill" in site.config.get("JobAcctGatherParams", "")


def _job_ends(site: Site) -> Iterator[Finding]:
    """How Slurm ends jobs, and begins them again."""
    tracker = site.config.get("ProctrackType", "").rpartition("/")[2]
    if tracker == "cgroup":
        yield ok("processes", "a job's processes are held together by a control group")
    else:
        yield note(
            "processes", f"tracked by {tracker or 'nothing'}: Slurm may miss a daemon", "the script ends its own"
        )
    found = re.match(r"\d{1,9}", site.config.get("KillWait", ""))
    if found and int(found[0]) < SHORT_KILL_WAIT:
        hint = "keep what the command does at SIGTERM short"
        yield note("kill-wait", f"{found[0]} s between SIGTERM and SIGKILL at scancel and time limit", hint)
    elif found:
        yield ok("kill-wait", f"{found[0]} s between SIGTERM and SIGKILL")
    again = "again" if site.config.get("JobRequeue") == "1" else "not again"
    yield ok("requeue", f"a lost job runs {again} by the site's default; ours only with --requeue")
    preempt = site.config.get("PreemptType", "preempt/none").rpartition("/")[2]
    if preempt != "none":
        mode = site.config.get("PreemptMode", "").lower()
        hint = "write checkpoints; --requeue lets the job start again"
        yield note("preemption", f"by {preempt} ({mode}): a job may be ended for another", hint)
    if site.config.get("JobContainerType", "").endswith("tmpfs"):
        yield ok("temp-dir", "each job gets a /tmp of its own (job_container/tmpfs)")
