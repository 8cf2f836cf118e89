"""Slurm's words in plain ones: why a job waits, and how it ended."""

from __future__ import annotations

import re

# Why a job waits; the first that fits counts. What is not here is shown as Slurm says it.
_REASONS = {
    r"Priority": "jobs with a higher priority come first",
    r"Resources": "it is the next one, and waits for nodes to become free",
    r"None": "Slurm has not looked at it yet",
    r"Dependency": "it waits for another job (--dependency)",
    r"DependencyNeverSatisfied": "the job that it depends on has ended otherwise: it will never start; cancel it",
    r"JobHeldUser": "it is held; `scontrol release` lets it go",
    r"JobHeldAdmin": "an administrator holds it: ask the site",
    r"BeginTime": "its time has not come (--begin, or a pause after a requeue)",
    r"JobArrayTaskLimit": "as many tasks of the array run as may run at the same time (the % of --array)",
    r"ReqNodeNotAvail.*": "nodes that it needs are down, drained or reserved (a maintenance?): `sinfo -R` tells",
    r"Node.*Down|.*not available.*": "nodes that it needs are down: `sinfo -R` tells",
    r"Reservation.*": "it waits for its reservation",
    r"PartitionDown|PartitionInactive": "its partition takes no jobs at the moment",
    r"PartitionTimeLimit": "it asks for more time than its partition allows: it will never start; cancel it",
    r"PartitionNodeLimit": "it asks for more nodes than its partition allows: it will never start; cancel it",
    r"PartitionConfig": "its partition does not allow what it asks for",
    r"BadConstraints": "no node offers what it asks for: it will never start; cancel it",
    r"Licenses": "it waits for licences",
    r"InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed": "its account or QOS is not allowed here; cancel it",
    r"launch failed requeued held|JobLaunchFailure": "its launch failed on a node: `scontrol release` tries again",
    r"Prolog": "the nodes are being prepared",
    r"NonZeroExitCode": "its script ended with an exit code other than 0",
    r"Cleaning": "its former life is being cleaned up",
    r"(QOS|Assoc|Max|Grp).*": "a limit of your account or QOS is reached; it waits for other jobs to end",
}
_ENDINGS = {
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "DEADLINE": "could not end before its deadline",
    "NODE_FAIL": "lost a node",
    "BOOT_FAIL": "failed because a node did not boot",
    "PREEMPTED": "was preempted",
    "OUT_OF_MEMORY": "ran out of memory",
    "UNKNOWN": "has left the queue without a trace",
}


def why_it_waits(reason: str | None) -> str | None:
    """A reason of Slurm's in plain words; None where there is nothing to add to it."""
    for pattern, words in _REASONS.items():
        if re.fullmatch(pattern, reason or "None", re.IGNORECASE):
            return words
    return None


def how_it_ended(state: str, code: int | None = None, signal: int = 0) -> str:
    """The words that follow `job 12`."""
    if state == "COMPLETED":
        return "ended well"
    if state == "FAILED" and code is not None:
        return f"failed with exit code {code}"
    if state == "FAILED":
        return f"was killed by signal {signal}" if 0 < signal < 32 else "could not start"
    return _ENDINGS.get(state, f"ended as {state}")
