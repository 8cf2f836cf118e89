"""Slurm's words in plain ones: why a job waits, and how it ended."""

from __future__ import annotations

import re

# Why a job waits; the first that fits counts. What is not here is shown as Slurm says it.
_REASONS = {
    r"Priority": "jobs with a higher priority come first",
    r"Resources": "it is the next one, and waits for nodes to become free",
    r"None": "Slurm has not looked at it yet",
    r"Dependency": "it waits for another job (--after..., --singleton or --dependency)",
    r"DependencyNeverSatisfied": "the job that it depends on has ended otherwise: it will never start; cancel it",
    r"JobHeldUser": "it is held; `scontrol release` lets it go",
    r"JobHeldAdmin": "an administrator holds it: ask the site",
    r"BeginTime": "its time has not come (--begin, or a pause after a requeue)",
    r"JobArrayTaskLimit": "as many run as --max-parallel, the % of --array or --chain allow",
    r"ReqNodeNotAvail.*": "nodes that it needs are down, drained or reserved (a maintenance?): `sinfo -R` tells",
    r"Node.*Down.*|.*not available.*": "nodes that it needs are down: `sinfo -R` tells",
    r"ReservationDeleted|ReservationInvalid": "its reservation is gone: it will not start; cancel it",
    r"Reservation.*": "it waits for its reservation",
    r"PartitionDown|PartitionInactive": "its partition takes no jobs at the moment",
    r"PartitionTimeLimit": "it asks for more time than its partition allows: it will never start; cancel it",
    r"PartitionNodeLimit|PartitionM..Nodes": "it asks for more nodes, or fewer, than its partition allows or has up",
    r"PartitionConfig": "its partition does not allow what it asks for",
    r"BadConstraints": "no node offers what it asks for: it will never start; cancel it",
    r"Licenses": "it waits for licences",
    r"InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed": "its account or QOS is not allowed here; cancel it",
    r"launch failed requeued held|JobLaunchFailure": "its launch failed on a node: `scontrol release` tries again",
    r"Prolog": "the nodes are being prepared",
    r"NonZeroExitCode": "its script ended with an exit code other than 0",
    r"Cleaning": "its former life is being cleaned up",
    r"WaitingForScheduling": "Slurm has not looked at it yet",
    r"FrontEndDown|SystemFailure": "Slurm has a problem of its own: ask the site",
    r"FedJobLock": "the clusters of the federation settle which of them runs it",
    r"JobHoldMaxRequeue": "it has been requeued too often, and is held: ask the site",
    r"BurstBuffer.*": "it waits for the burst buffer",
    r"MaxPoweredUpNodes": "as many nodes are powered up as may be; it waits for other jobs to end",
    r"DeadLine": "its deadline has passed",
    r"QOSUsageThreshold": "your QOS has used too much already",
    r"(QOS|Assoc)Max.*Per(Job|Node)(Limit)?|QOSMin.*|MaxMemPerLimit|(Assoc|Association|QOS)TimeLimit": "it asks for"
    " more, or for less, than your account or QOS allows a job: it will not start like this; cancel it",
    r"(QOS|Assoc)Grp(?!.*Run)\w*Minutes(Limit)?": "the time that your account or QOS may use is used up",
    r"(QOS|Assoc|Max|Grp).*|AccountingPolicy": "a limit of your account or QOS is reached: other jobs must end first",
}
# States that are neither an end nor plain running.
_GOING = {
    "CONFIGURING": "starts: Slurm prepares its nodes",
    "POWER_UP_NODE": "starts: its nodes are powered up",
    "COMPLETING": "ends: Slurm cleans up after it",
    "STAGE_OUT": "ends: Slurm copies its data out",
    "SUSPENDED": "is suspended: Slurm lets it go on later",
    "STOPPED": "is stopped by a signal",
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


def how_it_goes(state: str) -> str | None:
    """A state in which a job neither waits nor runs as usual, in plain words."""
    return _GOING.get(state)


def how_it_ended(state: str, code: int | None = None, signal: int = 0) -> str:
    """The words that follow `job 12`."""
    if state == "COMPLETED":
        return "ended well"
    if state == "FAILED" and code is not None:
        return f"failed with exit code {code}"
    if state == "FAILED":
        return f"was killed by signal {signal}" if 0 < signal < 32 else "could not start"
    return _ENDINGS.get(state, f"ended as {state}")
