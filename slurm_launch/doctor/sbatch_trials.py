"""What sbatch would take: tried with --test-only, in the very directives that a launch writes."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm_launch.doctor.cluster_facts import Site
from slurm_launch.doctor.findings import (
    Finding,
    note,
    ok,
    problem,
)
from slurm_launch.launch import hints
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm import times
from slurm_launch.slurm.client import NoAnswer, Probe
from slurm_launch.slurm.site import Partition
from slurm_launch.spec.launch_spec import LaunchSpec

A_WHILE = "01:00:00"  # for sites that want to hear a time


@dataclass
class Trials:
    """What came out."""

    findings: list[Finding] = field(default_factory=list)
    time: str | None = None  # the site wants one to be said, and takes this
    gpu_directive: str | None = None  # the spelling that works; None: no GPUs, or neither does


def try_out(ask: Probe, site: Site, spec: LaunchSpec) -> Trials:
    """A plain job, and GPUs in both spellings. `spec` says where: its partition and account count."""
    trials = Trials()
    if not site.answers:
        return trials
    spec = spec.model_copy(update={"num_nodes": 1, "node": None})
    refusal = _refusal(ask, spec)
    if refusal and spec.time is None and not (refusal.missing or refusal.silent):
        timed = spec.model_copy(update={"time": shorter(A_WHILE, site.partition(spec.partition))})
        if _refusal(ask, timed) is None:
            spec, refusal, trials.time = timed, None, timed.time
            hint = "say --time, or write a profile"
            trials.findings.append(note("sbatch", "takes no job without a time limit", hint))
    elif refusal is None and spec.time and _refusal(ask, spec.model_copy(update={"time": None})):
        trials.time = spec.time  # the user's: a launch will need one too
    if refusal:
        text = _words(refusal)
        trials.findings.append(problem("sbatch", text, refusal.hint or hints.hint_for(text)))
        return trials  # the GPUs would be refused for the same reason
    if not trials.findings:
        trials.findings.append(
            ok("sbatch", "would take a plain job" + (f" in {spec.partition}" if spec.partition else ""))
        )
    _try_gpus(ask, site, spec, trials)
    return trials


def _try_gpus(ask: Probe, site: Site, spec: LaunchSpec, trials: Trials) -> None:
    place = _gpu_partition(site, spec.partition)
    if place is None:
        text = "none that Slurm counts"
        if "gpu" in site.config.get("GresTypes", ""):
            text += " in a partition that is open to you"
        trials.findings.append(ok("gpus", text))
        return
    kinds = sorted({kind for node in site.nodes_of(place) for kind in node.gpus if kind})
    works: list[str] = []
    refused = ""
    for directive in ("gpus-per-node", "gres"):
        for kind in (None, *kinds):  # some sites want the type
            update = {"partition": place.name, "num_gpus": 1, "gpu_directive": directive, "gpu_type": kind}
            refusal = _refusal(ask, spec.model_copy(update=update))
            if refusal is None:
                works.append(directive)
            else:
                refused = _words(refusal)
            if refusal is None or refusal.silent:
                break
    if not works:
        hint = "ask the site how GPUs are asked for; --gpu-directive has the spellings"
        trials.findings.append(
            problem("gpus", f"neither --gpus-per-node nor --gres works in {place.name}: {refused}", hint)
        )
        return
    trials.gpu_directive = works[0]
    named = f"; types: {', '.join(kinds)} (--gpu-type)" if kinds else "; without types"
    if len(works) == 2:
        trials.findings.append(ok("gpus", f"both spellings work, --gpus-per-node and --gres{named}"))
    elif works[0] == "gres":
        selecting = site.config.get("SelectType", "")
        why = f" ({selecting} knows no other)" if selecting and not selecting.endswith("cons_tres") else ""
        trials.findings.append(
            note("gpus", f"only --gres works{why}{named}", "say --gpu-directive gres, or write a profile")
        )
    else:
        trials.findings.append(ok("gpus", f"--gpus-per-node works, --gres does not{named}"))


def shorter(time: str, partition: Partition | None) -> str:
    """This time, or the partition's limit where that is less."""
    limit = partition.time_limit if partition else None
    return limit if limit and times.seconds(limit) < times.seconds(time) else time


def _gpu_partition(site: Site, wanted: str | None) -> Partition | None:
    """Where to try: in the partition that is meant, or in any other that has GPUs."""
    first = site.partition(wanted)
    for partition in ([first] if first else []) + site.open_partitions:
        if any(node.gpu_count for node in site.nodes_of(partition)):
            return partition
    return None


def _refusal(ask: Probe, spec: LaunchSpec) -> NoAnswer | None:
    """sbatch's own words when it would not take this job."""
    script = "\n".join(["#!/bin/bash", *directive_lines(spec, log="/dev/null"), "true", ""])
    try:
        ask(slurm_site.TEST_ARGV, stdin=script)
    except NoAnswer as failure:
        return failure
    return None


def _words(refusal: NoAnswer) -> str:
    """sbatch's own, without ours before them."""
    return refusal.text.removeprefix("sbatch --test-only: ")
