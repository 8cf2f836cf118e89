"""Slurm's states and reasons in plain words: why a job is pending, what it does, how it ended."""

from __future__ import annotations

import re

# Why a job is pending; the first match counts. Other reasons are shown as they are.
_PENDING_REASONS = {
    r"Priority": "jobs with a higher priority are ahead of it",
    r"Resources": "next to start, as soon as nodes are free",
    r"None": "not yet considered by the scheduler",
    r"Dependency": "waiting for a job that it depends on (--after..., --singleton or --dependency)",
    r"DependencyNeverSatisfied": "its dependency can never be satisfied: it will never start; cancel it",
    r"JobHeldUser": "held by the user; `scontrol release` releases it",
    r"JobHeldAdmin": "held by an administrator: ask the site",
    r"BeginTime": "its earliest start time has not been reached (--begin, or the delay after a requeue)",
    r"JobArrayTaskLimit": "the maximum number of its tasks is running (--max-parallel, the % of --array, or --chain)",
    r"ReqNodeNotAvail.*": "nodes that it needs are down, drained or reserved (maintenance?): see `sinfo -R`",
    r"Node.*Down.*|.*not available.*": "nodes that it needs are down: see `sinfo -R`",
    r"ReservationDeleted|ReservationInvalid": "its reservation no longer exists: it will not start; cancel it",
    r"Reservation.*": "waiting for its reservation",
    r"PartitionDown|PartitionInactive": "its partition does not start jobs at the moment",
    r"PartitionTimeLimit": "its time limit exceeds that of its partition: it will never start; cancel it",
    r"PartitionNodeLimit|PartitionM..Nodes": "its number of nodes is outside the limits of its partition, or too few of"
    " the nodes are up",
    r"PartitionConfig": "its partition does not allow what it requests",
    r"BadConstraints": "no node satisfies its constraints: it will never start; cancel it",
    r"Licenses": "waiting for licenses",
    r"InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed": "its account or QOS is not valid here; cancel it",
    r"launch failed requeued held|JobLaunchFailure": "its launch failed on a node: `scontrol release` tries again",
    r"Prolog": "the prolog is running on its nodes",
    r"NonZeroExitCode": "its script ended with a non-zero exit code",
    r"Cleaning": "its previous attempt is being cleaned up",
    r"WaitingForScheduling": "not yet considered by the scheduler",
    r"FrontEndDown|SystemFailure": "a failure of the Slurm system: ask the site",
    r"FedJobLock": "the clusters of the federation are deciding which of them runs it",
    r"JobHoldMaxRequeue": "held after too many requeues: ask the site",
    r"BurstBuffer.*": "waiting for the burst buffer",
    r"MaxPoweredUpNodes": "the maximum number of nodes is powered up: other jobs must end first",
    r"DeadLine": "its deadline has passed",
    r"QOSUsageThreshold": "the usage threshold of its QOS is exceeded",
    r"(QOS|Assoc)Max.*Per(Job|Node)(Limit)?|QOSMin.*|MaxMemPerLimit|(Assoc|Association|QOS)TimeLimit": "its request is"
    " outside the limits that your account or QOS sets for a job: it will not start; cancel it",
    r"(QOS|Assoc)Grp(?!.*Run)\w*Minutes(Limit)?": "the compute time of your account or QOS is used up",
    r"(QOS|Assoc|Max|Grp).*|AccountingPolicy": "a limit of your account or QOS is reached: other jobs must end first",
}
# States between pending and an end, except RUNNING.
_TRANSITIONS = {
    "CONFIGURING": "starting: its nodes are being configured",
    "POWER_UP_NODE": "starting: its nodes are being powered up",
    "COMPLETING": "completing: Slurm is cleaning up",
    "STAGE_OUT": "completing: Slurm is staging out its data",
    "SUSPENDED": "suspended: Slurm will resume it",
    "STOPPED": "stopped by a signal",
}
_ENDS = {
    "COMPLETED": "completed",
    "CANCELLED": "was canceled",
    "TIMEOUT": "timed out",
    "DEADLINE": "missed its deadline",
    "NODE_FAIL": "failed because a node failed",
    "BOOT_FAIL": "failed because a node did not boot",
    "PREEMPTED": "was preempted",
    "OUT_OF_MEMORY": "ran out of memory",
    "UNKNOWN": "left the queue; its final state is unknown",
}


def describe_pending_reason(reason: str | None) -> str | None:
    """Why a job is pending; None if Slurm's reason is not known here."""
    for pattern, words in _PENDING_REASONS.items():
        if re.fullmatch(pattern, reason or "None", re.IGNORECASE):
            return words
    return None


def describe_state(state: str) -> str | None:
    """What a job in a state between pending and an end does; None for other states and for RUNNING."""
    return _TRANSITIONS.get(state)


def describe_end(state: str, code: int | None = None, signal: int = 0) -> str:
    """How a job ended, as the predicate of a sentence: `job 12` timed out."""
    if state == "FAILED" and code is not None:
        return f"failed with exit code {code}"
    if state == "FAILED":
        return f"was killed by signal {signal}" if 0 < signal < 32 else "failed to start"
    return _ENDS.get(state, f"ended in state {state}")
