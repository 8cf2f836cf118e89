"""The job that grows another job's Ray cluster: the options that it inherits, and its submission."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from slurm_launch.config.messages import usage_error
from slurm_launch.errors import InvalidSpec, LaunchError, Notify, UsageError
from slurm_launch.launch.job import submit_job
from slurm_launch.process import Runner
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.spec.checks import MAX_NAME
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import CONTAINER, ENVIRONMENT, NETWORK
from slurm_launch.spec.script_header import JoinTarget

# Options of the main job that the new nodes inherit, unless the user sets them.
_INHERITED = """exclude num_gpus gpu_type gpu_directive cpus_per_task mem mem_per_cpu mem_per_gpu exclusive constraint
licenses partition account qos time reservation chdir start_timeout node_timeout auth object_store_memory temp_dir
keep_ray_logs sbatch no_sbatch srun_arg ray_arg ray_worker_arg run_dir"""
# Further options that make sense for new nodes.
_OWN = """exp_name num_nodes node dependency after after_ok after_any after_notok singleton begin deadline nice comment
mail_user mail_type signal switches profile config"""
_INHERITED_GROUPS = (ENVIRONMENT, CONTAINER, NETWORK)
INHERITED = frozenset(_INHERITED.split()) | {
    name for name, option in options().items() if option.group in _INHERITED_GROUPS
}
ALLOWED = INHERITED | frozenset(_OWN.split())
TIME_WARNING = "B:USR1@60"  # a minute before the time limit, the script leaves the cluster
NO_COMMAND = ":"  # satisfies the spec; no script contains it
NAME_SUFFIX = "-grow"


@dataclass(frozen=True)
class MainJob:
    """The job whose cluster grows."""

    run: Run
    joins: JoinTarget
    started: bool  # otherwise the new job waits for it


def values_for(given: Mapping[str, Any], exp_name: str) -> dict[str, Any]:
    """Return the values of a job that grows the cluster of a run with these values."""
    inherited = {key: value for key, value in given.items() if key.replace("-", "_") in INHERITED}
    name = exp_name[: MAX_NAME - len(NAME_SUFFIX)] + NAME_SUFFIX
    return {**inherited, "exp-name": name, "command": NO_COMMAND, "signal": TIME_WARNING}


def second_spec(spec: LaunchSpec) -> LaunchSpec | None:
    """Return the spec of the second job of a launch with --grow; None without. Raises UsageError if impossible."""
    if spec.grow is None:
        return None
    own = values_for(spec.given(), spec.exp_name)
    if not spec.num_gpus:
        own.pop("gpu-type", None)  # only the GPUs of a --worker-group have it
    try:
        return LaunchSpec.model_validate({**own, "num-nodes": spec.grow})
    except ValidationError as error:
        where = dict.fromkeys(LaunchSpec.model_fields, ("the second job of --grow",))
        details = error.errors(include_url=False)
        raise InvalidSpec([usage_error(detail, where, {}) for detail in details]) from None


def submit_grow_job(
    main: MainJob,
    spec: LaunchSpec,
    *,
    hold: bool = False,
    env: Mapping[str, str] | None = None,
    notify: Notify,
    **how: Any,
) -> Run:
    """Submit the job; it waits for a main job that has not started yet."""
    return submit_job(
        with_dependency(main, spec),
        joins=main.joins,
        cwd=directory_of(main.run),
        hold=hold,
        env=env,
        notify=notify,
        **how,
    )


def with_dependency(main: MainJob, spec: LaunchSpec) -> LaunchSpec:
    """Return the spec of the new job; it waits for a main job that has not started yet."""
    return spec if main.started else spec.model_copy(update={"after": (*spec.after, main.joins.job)})


def directory_of(run: Run) -> str:
    """Return the submit directory of the main job: mounts and relative paths refer to it."""
    if not os.path.isdir(run.submit_dir):
        hint = "create it again: the new nodes use it"
        raise UsageError("the submit directory of the run no longer exists", at=run.submit_dir, hint=hint)
    return run.submit_dir


def submit_second_job(
    run: Run,
    spec: LaunchSpec,
    *,
    heterogeneous: bool,
    env: Mapping[str, str],
    runner: Runner,
    timeout: float,
    notify: Notify,
) -> Run:
    """Submit the second job of a launch with --grow; return the first run, which then names it.

    If the submission fails, the first job keeps running, and `notify` gets the error.
    """
    assert run.job_id is not None
    try:
        main = MainJob(run, JoinTarget(run.job_id, run.log, heterogeneous), started=False)
        second = submit_grow_job(main, spec, env=env, runner=runner, timeout=timeout, notify=notify)
    except LaunchError as error:
        notify(f"job {run.job_id} is submitted, but not the job that grows its cluster: {error}")
        return run
    nodes = f"{spec.nodes} node{'s' * (spec.nodes > 1)}"
    notify(f"job {second.job_id} will grow its cluster by {nodes}: {second.script}")
    with suppress(UsageError):  # both jobs exist; `submit_job` has already reported a record that cannot be written
        records.change(run.record, lambda first: replace(first, grow=second.job_id))
    return replace(run, grow=second.job_id)
