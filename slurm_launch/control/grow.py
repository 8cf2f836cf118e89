"""Grow a running cluster: a job of its own, whose nodes join the Ray of another job and leave it in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_launch.control import running_job
from slurm_launch.errors import (
    UsageError,
    WrongMoment,
)
from slurm_launch.launch import grow_job
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.spec.option import flag_name
from slurm_launch.spec.script_header import EmbeddedSpec, JoinTarget
from slurm_launch.status import lookup


def find(run: Run, argument: str | None, client: SlurmClient) -> grow_job.Main:
    """The job that is meant, or WrongMoment with what it does instead."""
    if run.user != records.user_name():
        hint = f"only {run.user} can grow it"
        raise UsageError(f"job {run.job_id} is {run.user}'s by its record", at=run.record, hint=hint)
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
        raise WrongMoment("the run has no job id", at=run.record, hint=hint)
    task = running_job.choose(run, argument, lookup.look(run, client))
    if task.ended or task.phase in ("stopping", "unknown") or (task.waiting and "_" in task.id):
        raise running_job.not_up(run, task)
    attempt = task.attempt
    if attempt is not None and attempt.main is not None:
        hint = f"grow that one: slurm-launch grow {attempt.main}"
        raise UsageError(
            f"job {task.id} has no cluster of its own: its nodes join job {attempt.main}", at="RUN", hint=hint
        )
    job = attempt.job if attempt is not None and attempt.job else task.id
    if not job.isdigit():
        raise running_job.not_up(run, task)
    return grow_job.Main(run, JoinTarget(job, task.log, parts=bool(task.parts)), begun=not task.waiting)


def check_flags(flags: Mapping[str, Any]) -> None:
    """What cannot be said of nodes that join another job's cluster."""
    if "command" in flags or "idle" in flags:
        hint = "`slurm-launch attach` runs one in the main job"
        raise UsageError("a job that grows a cluster has no command of its own", at="flag --command", hint=hint)
    for name in flags:
        if name not in grow_job.ALLOWED:
            flag, hint = flag_name(name), "leave it out: the nodes join a cluster that is there"
            raise UsageError(f"{flag} means nothing to nodes that join a cluster", at=f"flag {flag}", hint=hint)


def origin(run: Run) -> EmbeddedSpec:
    """The values with which the new job begins: those of the main one that concern its nodes."""
    return EmbeddedSpec(own=grow_job.values_for(run.spec, run.exp_name), script=run.script)
