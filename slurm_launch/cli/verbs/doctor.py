"""`slurm-launch doctor`: check the cluster for Ray jobs, and write its profile."""

from __future__ import annotations

import grp
import os
import shlex
import socket
from dataclasses import asdict
from datetime import date
from typing import Annotated, Any

import typer

from slurm_launch.cli.output import note, print_json
from slurm_launch.cli.spec_flags import resolve, verb_app
from slurm_launch.config import resolve as config_resolve
from slurm_launch.config.files import create, profile_target
from slurm_launch.doctor import cluster_advice, cluster_facts, probe_job, profile_writer, sbatch_trials, this_host
from slurm_launch.doctor.cluster_facts import ClusterFacts
from slurm_launch.doctor.findings import CheckResult, has_problem, row
from slurm_launch.doctor.findings import note as note_finding
from slurm_launch.doctor.node_advice import NodeReport
from slurm_launch.doctor.sbatch_trials import SbatchTrials
from slurm_launch.errors import ProblemsFound, SlurmUnavailable, UsageError, show
from slurm_launch.runs.record import user_name
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm.client import Probe
from slurm_launch.slurm.site import number
from slurm_launch.spec.launch_spec import LaunchSpec

# The resources that an experiment requests say nothing about the cluster: they count only as flags of the doctor.
EXPERIMENT = (
    "num_nodes", "node", "num_gpus", "gpu_type", "cpus_per_task", "mem", "mem_per_cpu", "mem_per_gpu", "exclusive",
    "switches", "licenses", "time", "dependency", "begin", "deadline", "mail_user", "mail_type", "signal", "array",
    "min_nodes",
)  # fmt: skip
PROBE_NODES = 2  # of the job, by default
PROBE_TIME = "00:05:00"


def doctor(
    flags: dict[str, Any],
    write: Annotated[
        str | None, typer.Option("--write", metavar="NAME", help="Write the findings as the profile NAME.")
    ] = None,
    with_job: Annotated[bool, typer.Option("--job", help="Run a short job that checks two nodes (--nodes N).")] = False,
    job_timeout: Annotated[
        str, typer.Option("--job-timeout", metavar="S", help="How long to wait for that job.", show_default=True)
    ] = "600",
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    timeout = _timeout(job_timeout)
    resolution = resolve({"exp_name": "doctor", "command": "true", **flags})
    spec = site_spec(resolution, flags)
    target = None if write is None else profile_target(write, "--write", os.environ)
    probe = _probe(spec)
    cluster = cluster_facts.query_cluster(probe, user_name(), _groups())
    spec = with_partition_and_account(spec, cluster)
    job_spec = probe_spec(spec, flags, cluster) if with_job and cluster.reachable else None
    trials = sbatch_trials.try_sbatch(probe, cluster, spec)
    directories = {"run-dir": os.path.abspath(os.path.expanduser(spec.run_dir)), "cwd": os.getcwd()}
    on_host = this_host.check_host(probe, directories, with_job=with_job)
    nodes = NodeReport()
    if job_spec is not None:
        nodes = probe_job.probe_nodes(job_spec, env=os.environ, timeout=timeout, notify=note)
    runtimes = list(nodes.runtimes) if nodes.nodes else this_host.installed_runtimes(os.environ)
    findings = [
        *cluster_advice.check_cluster(cluster),
        *trials.findings,
        cluster_advice.check_containers(cluster, runtimes, on_nodes=bool(nodes.nodes)),
        *_not_superseded(on_host, nodes),
        *nodes.findings,
    ]
    written = None
    if write is not None and target is not None and cluster.partitions:
        text, notes = _profile(write, resolution, cluster, trials, nodes, runtimes)
        findings += notes
        create(target, text)
        written = str(target)
    _print(findings, written, as_json)
    missing = ["no profile is written"] if write is not None and written is None else []
    missing += ["no job is run"] if with_job and (job_spec is None or nodes.unreachable) else []
    if missing:
        hint = "run this where Slurm is installed and reachable, such as a login node"
        raise SlurmUnavailable(f"cannot reach slurmctld: {' and '.join(missing)}", hint=hint)
    return ProblemsFound.exit_code if has_problem(findings) else 0


def _probe(spec: LaunchSpec) -> Probe:
    env = slurm_environment.query_env(os.environ)
    if spec.venv:  # the jobs use its Ray
        env["PATH"] = f"{spec.venv}/bin:{env.get('PATH', os.defpath)}"
    return Probe(env)


def _not_superseded(on_host: list[CheckResult], nodes: NodeReport) -> list[CheckResult]:
    """The findings about this host, without those that the nodes reported on too; problems stay."""
    reported = {finding.about for finding in nodes.findings}
    return [finding for finding in on_host if finding.status == "problem" or finding.about not in reported]


def _profile(
    name: str,
    resolution: config_resolve.Resolution,
    cluster: ClusterFacts,
    trials: SbatchTrials,
    nodes: NodeReport,
    runtimes: list[str],
) -> tuple[str, list[CheckResult]]:
    """The text of the profile, and what to report about it."""
    hosts = tuple(dict.fromkeys((socket.gethostname(), _full_name())))
    others = profile_writer.matching_profiles(hosts, os.environ)
    notes = []
    if others:
        text = f"{name} is not selected by hostname: {', '.join(others)} matches this host already"
        notes.append(note_finding("profile", text, f"use --profile {shlex.quote(name)}, or edit `hosts`"))
    facts = profile_writer.ProfileFacts(
        name=name,
        when=date.today(),
        hosts=hosts,
        cluster=cluster,
        trials=trials,
        chosen=profile_writer.chosen_values(resolution.own),
        others=tuple(others),
        runtimes=(*(["pyxis"] if cluster.pyxis else []), *runtimes),
        nodes=nodes,
    )
    return profile_writer.profile_text(facts), notes


def site_spec(resolution: config_resolve.Resolution, flags: dict[str, Any]) -> LaunchSpec:
    """The spec of a plain job on this site: partition, account and environment, without an experiment's resources."""
    spec = resolution.spec()
    plain = {
        name: LaunchSpec.model_fields[name].get_default()
        for name in EXPERIMENT
        if name not in flags and name.replace("_", "-") in resolution.own
    }
    return spec.model_copy(update=plain)


def with_partition_and_account(spec: LaunchSpec, cluster: ClusterFacts) -> LaunchSpec:
    """The spec with the partition and the account that a profile for this cluster would set."""
    partition = cluster.partition(spec.partition)
    update: dict[str, Any] = {}
    if spec.partition is None and partition is not None and not partition.default:
        update["partition"] = partition.name
    if spec.account is None and cluster.enforces_accounts:
        update["account"] = cluster.account
    return spec.model_copy(update=update)


def probe_spec(spec: LaunchSpec, flags: dict[str, Any], cluster: ClusterFacts) -> LaunchSpec:
    """The spec of the job that checks the nodes: two nodes for a few minutes, unless flags request others."""
    update: dict[str, Any] = {"array": None, "requeue": False}
    partition = cluster.partition(spec.partition)
    most = partition.most_nodes if partition else None
    if not {"num_nodes", "node"} & set(flags):
        update["num_nodes"] = min(PROBE_NODES, most or PROBE_NODES)
        update["node"] = None
    elif partition and most and spec.nodes > most:
        text = f"{most} node{'s' * (most != 1)}"
        why = f"allows at most {text} per job" if most == partition.max_nodes else f"has {text}"
        message = f"--nodes {spec.nodes} is too many: the partition {partition.name} {why}"
        at = "flag --nodes" if "num_nodes" in flags else "flag --node"
        raise UsageError(message, at=at, hint="request fewer")
    if spec.time is None:
        update["time"] = sbatch_trials.cap_time(PROBE_TIME, partition)
    return spec.model_copy(update=update)


def _print(findings: list[CheckResult], written: str | None, as_json: bool) -> None:
    if as_json:
        print_json(ok=not has_problem(findings), findings=[asdict(finding) for finding in findings], profile=written)
        return
    for finding in findings:
        print(finding.line())
    if written:
        print(row("written", "profile", written))


def _timeout(text: str) -> int:
    seconds = number(text)
    if not seconds:
        problem = f"is not a whole number: {show(text)}" if seconds is None else f"must be at least 1, not {show(text)}"
        raise UsageError(f"--job-timeout {problem}", at="flag --job-timeout", hint="use seconds, for example 600")
    return seconds


def _groups() -> tuple[str, ...]:
    names = []
    for group in {os.getgid(), *os.getgroups()}:
        try:
            names.append(grp.getgrgid(group).gr_name)
        except KeyError:  # unknown on this host
            continue
    return tuple(names)


def _full_name() -> str:
    """The hostname with its domain, if the resolver knows one."""
    name, full = socket.gethostname(), socket.getfqdn()
    return full if full.startswith(f"{name}.") else name


app = verb_app(doctor, "doctor")
