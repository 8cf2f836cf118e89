"""Grow a running cluster: a job of its own, whose nodes join the Ray of another job and leave it in time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from slurm_launch.control import running_job
from slurm_launch.errors import (
    InvalidSpec,
    LaunchError,
    UsageError,
    WrongMoment,
)
from slurm_launch.launch import submit as submission
from slurm_launch.launch.submit import Tell
from slurm_launch.process import Runner
from slurm_launch.rendering.render import Embedded, Joins
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import Asking
from slurm_launch.spec.checks import MAX_NAME
from slurm_launch.spec.model import (
    CONTAINER,
    ENVIRONMENT,
    NETWORK,
    LaunchSpec,
    flag_name,
    options,
)
from slurm_launch.status import lookup

# What the main job was launched with and its new nodes are to have too, unless the user says otherwise.
_SAME = """exclude num_gpus gpu_type gpu_directive cpus_per_task mem mem_per_cpu mem_per_gpu exclusive constraint
licenses partition account qos time reservation chdir start_timeout auth object_store_memory temp_dir keep_ray_logs
sbatch no_sbatch srun_arg ray_arg ray_worker_arg run_dir"""
# What makes sense for them beside that.
_MORE = """exp_name num_nodes node dependency after after_ok after_any after_notok singleton begin deadline nice comment
mail_user mail_type signal switches profile config"""
_ALWAYS = {name for name, option in options().items() if option.group in (ENVIRONMENT, CONTAINER, NETWORK)}
SAME = frozenset(_SAME.split()) | _ALWAYS
ALLOWED = SAME | frozenset(_MORE.split())
WARNING = "B:USR1@60"  # a minute before its time is over the script leaves the cluster
NO_COMMAND = ":"  # stands in no script


@dataclass(frozen=True)
class Main:
    """The job whose cluster is to grow."""

    run: Run
    joins: Joins
    begun: bool  # whether it runs; else the new job has to wait for it


def find(run: Run, argument: str | None, ask: Asking) -> Main:
    """The job that is meant, or WrongMoment with what it does instead."""
    if run.user != records.user_name():
        hint = f"only {run.user} can grow it"
        raise UsageError(f"job {run.job_id} is {run.user}'s by its record", at=run.record, hint=hint)
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
        raise WrongMoment("the run has no job id", at=run.record, hint=hint)
    task = running_job.choose(run, argument, lookup.look(run, ask))
    if task.ended or task.phase in ("stopping", "unknown") or (task.waiting and "_" in task.id):
        raise running_job.not_up(run, task)
    life = task.life
    if life is not None and life.main is not None:
        hint = f"grow that one: slurm-launch grow {life.main}"
        raise UsageError(
            f"job {task.id} has no cluster of its own: its nodes join job {life.main}", at="RUN", hint=hint
        )
    job = life.job if life is not None and life.job else task.id
    if not job.isdigit():
        raise running_job.not_up(run, task)
    return Main(run, Joins(job, task.log, parts=bool(task.parts)), begun=not task.waiting)


def check_flags(flags: Mapping[str, Any]) -> None:
    """What cannot be said of nodes that join another job's cluster."""
    if "command" in flags or "idle" in flags:
        hint = "`slurm-launch attach` runs one in the main job"
        raise UsageError("a job that grows a cluster has no command of its own", at="flag --command", hint=hint)
    for name in flags:
        if name not in ALLOWED:
            flag, hint = flag_name(name), "leave it out: the nodes join a cluster that is there"
            raise UsageError(f"{flag} means nothing to nodes that join a cluster", at=f"flag {flag}", hint=hint)


def origin(run: Run) -> Embedded:
    """The values with which the new job begins: those of the main one that concern its nodes."""
    return Embedded(own=_values(run.spec, run.exp_name), script=run.script)


def _values(given: Mapping[str, Any], exp_name: str) -> dict[str, Any]:
    same = {key: value for key, value in given.items() if key.replace("-", "_") in SAME}
    return {**same, "exp-name": f"{exp_name[: MAX_NAME - 5]}-grow", "command": NO_COMMAND, "signal": WARNING}


def second(spec: LaunchSpec) -> LaunchSpec:
    """The spec of the second job of a launch with --grow. Raises UsageError when there can be none."""
    from pydantic import ValidationError

    from slurm_launch.config.messages import problem_of

    own = _values(spec.given(), spec.exp_name)
    if not spec.num_gpus:
        own.pop("gpu-type", None)  # it was for the --worker-groups that have GPUs
    try:
        return LaunchSpec.model_validate({**own, "num-nodes": spec.grow})
    except ValidationError as error:
        where = dict.fromkeys(LaunchSpec.model_fields, ("the second job, of --grow",))
        details = error.errors(include_url=False)
        raise InvalidSpec([problem_of(detail, where, {}) for detail in details]) from None


def submit(
    main: Main, spec: LaunchSpec, *, hold: bool = False, env: Mapping[str, str] | None = None, tell: Tell, **how: Any
) -> Run:
    """Submit the job; one whose main job has not begun waits for it."""
    return submission.submit(
        ready(main, spec), joins=main.joins, cwd=where(main.run), hold=hold, env=env, tell=tell, **how
    )


def ready(main: Main, spec: LaunchSpec) -> LaunchSpec:
    return spec if main.begun else spec.model_copy(update={"after": (*spec.after, main.joins.job)})


def where(run: Run) -> str:
    """The directory of the main job, which may be mounted or looked at by its relative paths."""
    if not os.path.isdir(run.submit_dir):
        hint = "the nodes work there: make it again"
        raise UsageError("the directory of the launch does not exist any more", at=run.submit_dir, hint=hint)
    return run.submit_dir


def beside(
    run: Run,
    own: LaunchSpec,
    *,
    parts: bool,
    env: Mapping[str, str],
    runner: Runner,
    timeout: float,
    tell: Tell,
) -> Run:
    """Submit the second job of a launch with --grow; returns the first, which knows of it now.

    When it cannot be had, the first one is there all the same."""
    assert run.job_id is not None
    try:
        main = Main(run, Joins(run.job_id, run.log, parts), begun=False)
        grown = submit(main, own, env=env, runner=runner, timeout=timeout, tell=tell)
    except LaunchError as error:
        tell(f"job {run.job_id} is submitted, but not the job that was to grow it: {error}")
        return run
    tell(f"job {grown.job_id} will grow it by {own.nodes} node{'s' * (own.nodes > 1)}: {grown.script}")
    with suppress(UsageError):  # both jobs are there; of a record that cannot be written the first has told
        records.change(run.record, lambda first: replace(first, grow=grown.job_id))
    return replace(run, grow=grown.job_id)
