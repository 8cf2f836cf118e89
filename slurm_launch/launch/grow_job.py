"""The job that grows the cluster of another: which values it takes over, and how it is submitted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from slurm_launch.config.messages import problem_of
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
    joins: JoinTarget
    begun: bool  # whether it runs; else the new job has to wait for it


def values_for(given: Mapping[str, Any], exp_name: str) -> dict[str, Any]:
    """The values of a job that grows the cluster of a run with these values."""
    same = {key: value for key, value in given.items() if key.replace("-", "_") in SAME}
    return {**same, "exp-name": f"{exp_name[: MAX_NAME - 5]}-grow", "command": NO_COMMAND, "signal": WARNING}


def second_spec(spec: LaunchSpec) -> LaunchSpec | None:
    """The spec of the second job of a launch with --grow; None without. Raises UsageError when it is impossible."""
    if spec.grow is None:
        return None
    own = values_for(spec.given(), spec.exp_name)
    if not spec.num_gpus:
        own.pop("gpu-type", None)  # it was for the --worker-groups that have GPUs
    try:
        return LaunchSpec.model_validate({**own, "num-nodes": spec.grow})
    except ValidationError as error:
        where = dict.fromkeys(LaunchSpec.model_fields, ("the second job, of --grow",))
        details = error.errors(include_url=False)
        raise InvalidSpec([problem_of(detail, where, {}) for detail in details]) from None


def submit_grow_job(
    main: Main,
    spec: LaunchSpec,
    *,
    hold: bool = False,
    env: Mapping[str, str] | None = None,
    notify: Notify,
    **how: Any,
) -> Run:
    """Submit the job; one whose main job has not begun waits for it."""
    return submit_job(
        with_dependency(main, spec),
        joins=main.joins,
        cwd=directory_of(main.run),
        hold=hold,
        env=env,
        notify=notify,
        **how,
    )


def with_dependency(main: Main, spec: LaunchSpec) -> LaunchSpec:
    """The spec of the grow job; it waits for a main job that has not started yet."""
    return spec if main.begun else spec.model_copy(update={"after": (*spec.after, main.joins.job)})


def directory_of(run: Run) -> str:
    """The directory of the main job, which may be mounted or looked at by its relative paths."""
    if not os.path.isdir(run.submit_dir):
        hint = "the nodes work there: make it again"
        raise UsageError("the directory of the launch does not exist any more", at=run.submit_dir, hint=hint)
    return run.submit_dir


def submit_beside(
    run: Run,
    own: LaunchSpec,
    *,
    parts: bool,
    env: Mapping[str, str],
    runner: Runner,
    timeout: float,
    notify: Notify,
) -> Run:
    """Submit the second job of a launch with --grow; returns the first, which knows of it now.

    When it cannot be had, the first one is there all the same."""
    assert run.job_id is not None
    try:
        main = Main(run, JoinTarget(run.job_id, run.log, parts), begun=False)
        grown = submit_grow_job(main, own, env=env, runner=runner, timeout=timeout, notify=notify)
    except LaunchError as error:
        notify(f"job {run.job_id} is submitted, but not the job that was to grow it: {error}")
        return run
    notify(f"job {grown.job_id} will grow it by {own.nodes} node{'s' * (own.nodes > 1)}: {grown.script}")
    with suppress(UsageError):  # both jobs are there; of a record that cannot be written the first has told
        records.change(run.record, lambda first: replace(first, grow=grown.job_id))
    return replace(run, grow=grown.job_id)
