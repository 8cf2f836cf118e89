"""What sbatch would accept: tried with --test-only and the directives that a launch writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_launch.doctor.cluster_facts import ClusterFacts
from slurm_launch.doctor.findings import CheckResult, note, ok, problem
from slurm_launch.launch import hints
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm import times
from slurm_launch.slurm.client import Probe, ProbeFailed
from slurm_launch.slurm.site import Partition
from slurm_launch.spec.launch_spec import LaunchSpec

TRIAL_TIME = "01:00:00"  # for sites that require a time limit
GPU_DIRECTIVES = ("gpus-per-node", "gres")


@dataclass
class SbatchTrials:
    """The results of the trials."""

    findings: list[CheckResult] = field(default_factory=list)
    time: str | None = None  # set if the site requires a time limit: one that it accepts
    gpu_directive: str | None = None  # the spelling that works; None: no GPUs, or neither spelling works


def try_sbatch(probe: Probe, cluster: ClusterFacts, spec: LaunchSpec) -> SbatchTrials:
    """Try a plain job, and GPUs in both spellings, in the partition and with the account of `spec`."""
    trials = SbatchTrials()
    if not cluster.reachable:
        return trials
    spec = spec.model_copy(update={"num_nodes": 1, "node": None})
    refusal = _refusal(probe, spec)
    if refusal and spec.time is None and not (refusal.missing or refusal.unreachable):
        timed = spec.model_copy(update={"time": cap_time(TRIAL_TIME, cluster.partition(spec.partition))})
        if _refusal(probe, timed) is None:
            spec, refusal, trials.time = timed, None, timed.time
            hint = "use --time, or write a profile"
            trials.findings.append(note("sbatch", "refuses jobs without a time limit", hint))
    elif refusal is None and spec.time and _refusal(probe, spec.model_copy(update={"time": None})):
        trials.time = spec.time  # the user's: a launch needs one too
    if refusal:
        text = _refusal_text(refusal)
        trials.findings.append(problem("sbatch", text, refusal.hint or hints.hint_for(text)))
        return trials  # GPUs would be refused for the same reason
    if not trials.findings:
        where = f" in {spec.partition}" if spec.partition else ""
        trials.findings.append(ok("sbatch", f"would accept a plain job{where}"))
    _try_gpus(probe, cluster, spec, trials)
    return trials


def _try_gpus(probe: Probe, cluster: ClusterFacts, spec: LaunchSpec, trials: SbatchTrials) -> None:
    partition = _gpu_partition(cluster, spec.partition)
    if partition is None:
        text = "none known to Slurm"
        if "gpu" in cluster.config.get("GresTypes", ""):
            text = "none in a partition that is available to you"
        trials.findings.append(ok("gpus", text))
        return
    types = sorted({kind for node in cluster.nodes_of(partition) for kind in node.gpus if kind})
    accepted: list[str] = []
    refused = ""
    spec = spec.model_copy(update={"partition": partition.name, "num_gpus": 1})
    for directive in GPU_DIRECTIVES:
        refusal = _gpu_refusal(probe, spec, directive, types)
        if refusal is None:
            accepted.append(directive)
        else:
            refused = _refusal_text(refusal)
    if accepted:
        trials.gpu_directive = accepted[0]
        trials.findings.append(_gpu_finding(cluster, accepted, types))
    else:
        text = f"neither --gpus-per-node nor --gres works in {partition.name}: {refused}"
        hint = "ask the site how to request GPUs; see --gpu-directive"
        trials.findings.append(problem("gpus", text, hint))


def _gpu_refusal(probe: Probe, spec: LaunchSpec, directive: str, types: Sequence[str]) -> ProbeFailed | None:
    """Why sbatch refuses GPUs in this spelling; None if it accepts it, without or with a type (some sites need one)."""
    for gpu_type in (None, *types):
        refusal = _refusal(probe, spec.model_copy(update={"gpu_directive": directive, "gpu_type": gpu_type}))
        if refusal is None or refusal.unreachable:
            break
    return refusal


def _gpu_finding(cluster: ClusterFacts, accepted: Sequence[str], types: Sequence[str]) -> CheckResult:
    named = f"; types: {', '.join(types)} (--gpu-type)" if types else "; no types"
    if len(accepted) == 2:
        return ok("gpus", f"both --gpus-per-node and --gres work{named}")
    if accepted[0] == "gpus-per-node":
        return ok("gpus", f"--gpus-per-node works, --gres does not{named}")
    select_type = cluster.config.get("SelectType", "")
    why = f" ({select_type} supports no other)" if select_type and not select_type.endswith("cons_tres") else ""
    return note("gpus", f"only --gres works{why}{named}", "use --gpu-directive gres, or write a profile")


def cap_time(time: str, partition: Partition | None) -> str:
    """This time, or the partition's limit if that is shorter."""
    limit = partition.time_limit if partition else None
    return limit if limit and times.seconds(limit) < times.seconds(time) else time


def _gpu_partition(cluster: ClusterFacts, wanted: str | None) -> Partition | None:
    """The partition in which to try GPUs: the wanted one, or else any other that has some."""
    first = cluster.partition(wanted)
    for partition in ([first] if first else []) + cluster.open_partitions:
        if any(node.gpu_count for node in cluster.nodes_of(partition)):
            return partition
    return None


def _refusal(probe: Probe, spec: LaunchSpec) -> ProbeFailed | None:
    """Why sbatch would refuse this job; None if it would accept it."""
    script = "\n".join(["#!/bin/bash", *directive_lines(spec, log="/dev/null"), "true", ""])
    try:
        probe(slurm_site.TEST_ARGV, stdin=script)
    except ProbeFailed as failure:
        return failure
    return None


def _refusal_text(refusal: ProbeFailed) -> str:
    """sbatch's own message."""
    return refusal.text.removeprefix("sbatch --test-only: ")
