"""Grow a running cluster: which job can be grown, and with which options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_launch.control import running_job
from slurm_launch.errors import UsageError, WrongMoment
from slurm_launch.launch import grow_job
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.spec.option import flag_name
from slurm_launch.spec.script_header import EmbeddedSpec, JoinTarget
from slurm_launch.status import lookup


def find_main_job(run: Run, argument: str | None, client: SlurmClient) -> grow_job.MainJob:
    """Return the job to grow. Raises WrongMoment if it cannot be grown now."""
    if run.user != records.user_name():
        hint = f"only {run.user} can grow it"
        raise UsageError(f"job {run.job_id} belongs to {run.user} according to its record", at=run.record, hint=hint)
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` shows whether there is a job"
        raise WrongMoment("the run has no job ID", at=run.record, hint=hint)
    task = running_job.choose_task(run, argument, lookup.look_up(run, client))
    if task.ended or task.phase in ("stopping", "unknown") or (task.waiting and "_" in task.id):
        raise running_job.not_reachable(run, task)
    attempt = task.attempt
    if attempt is not None and attempt.main is not None:
        hint = f"grow that one: slurm-launch grow {attempt.main}"
        raise UsageError(
            f"job {task.id} has no cluster of its own: its nodes join that of job {attempt.main}", at="RUN", hint=hint
        )
    job = attempt.job if attempt is not None and attempt.job else task.id
    if not job.isdigit():
        raise running_job.not_reachable(run, task)
    return grow_job.MainJob(run, JoinTarget(job, task.log, heterogeneous=bool(task.parts)), started=not task.waiting)


def check_flags(flags: Mapping[str, Any]) -> None:
    """Refuse options that have no effect on nodes that join another job's cluster."""
    if "command" in flags or "idle" in flags:
        hint = "`slurm-launch attach` runs a command in the main job"
        raise UsageError("a job that grows a cluster runs no command", at="flag --command", hint=hint)
    for name in flags:
        if name not in grow_job.ALLOWED:
            flag, hint = flag_name(name), "leave it out: the nodes join an existing cluster"
            raise UsageError(f"{flag} has no effect on nodes that join a cluster", at=f"flag {flag}", hint=hint)


def inherited_spec(run: Run) -> EmbeddedSpec:
    """The values that the new job inherits: those of the main run that apply to nodes."""
    return EmbeddedSpec(own=grow_job.values_for(run.spec, run.exp_name), script=run.script)
