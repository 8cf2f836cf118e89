"""The Python API for launches, which the command line calls too: render, plan, submit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from slurm_launch import process
from slurm_launch.errors import LaunchError, Notify, UsageError, warn
from slurm_launch.launch import grow_job
from slurm_launch.launch.job import Plan, plan_job, submit_job
from slurm_launch.launch.script import render
from slurm_launch.launch.sweep_split import SweepPart, parts_of
from slurm_launch.process import TIMEOUT, PathText, Runner
from slurm_launch.runs.record import Run
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec
from slurm_launch.spec.sweep_points import Points

__all__ = ["Plan", "plan", "render", "submit", "submit_all", "submit_parts"]


def plan(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    embedded: EmbeddedSpec | None = None,
    points: Points | None = None,
) -> Plan:
    """What `submit` with the same arguments would do; nothing is written and Slurm is not queried."""
    grow_job.second_spec(spec)  # raises UsageError for an impossible --grow
    return plan_job(spec, env=env, cwd=cwd, when=when, hold=hold, embedded=embedded, points=points)


def submit(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: EmbeddedSpec | None = None,
    points: Points | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> Run:
    """Submit a job as `submit_job` does, and with --grow the second job that grows its cluster.

    A sweep becomes one job array. One that is too large for the cluster is refused by sbatch: `submit_all` splits it.
    """
    env = os.environ if env is None else env
    second = grow_job.second_spec(spec)
    run = submit_job(
        spec, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded, points=points,
        timeout=timeout, notify=notify,
    )  # fmt: skip
    if second is None:
        return run
    return grow_job.submit_beside(
        run, second, parts=spec.own_head, env=env, runner=runner, timeout=timeout, notify=notify
    )


def submit_all(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: EmbeddedSpec | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> list[Run]:
    """As `submit`; a sweep with more points than an array of the cluster can have becomes several runs."""
    if not spec.is_sweep:
        return [
            submit(
                spec, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded,
                timeout=timeout, notify=notify,
            )
        ]  # fmt: skip
    parts = parts_of(spec, env=env, runner=runner, timeout=timeout)
    return submit_parts(
        parts, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded, timeout=timeout, notify=notify
    )


def submit_parts(
    parts: Sequence[SweepPart],
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: EmbeddedSpec | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> list[Run]:
    """Submit the parts, as `submit` does each. With --max-parallel each waits for the one before it.

    When sbatch refuses one, those before it are told, and the error goes on."""
    when = when or datetime.now()  # one for all: so their names differ by -2, -3 only
    if len(parts) > 1:
        _tell_of_parts(parts, notify)
    if embedded is not None and parts[0].spec.points is None:
        embedded = _without_points(embedded)
    found: list[Run] = []
    for number, part in enumerate(parts, 1):
        spec = part.spec
        if found and spec.max_parallel is not None:
            spec = _after(spec, found[-1])
        try:
            run = submit(
                spec, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded, points=part.points,
                timeout=timeout, notify=notify,
            )  # fmt: skip
        except (LaunchError, KeyboardInterrupt):
            if found:
                jobs = ", ".join(str(run.job_id) for run in found)
                notify(f"parts 1 to {number - 1} of {len(parts)} are submitted and go on: {jobs}; the others are not")
            raise
        found.append(run)
    return found


def _tell_of_parts(parts: Sequence[SweepPart], notify: Notify) -> None:
    total = sum(len(part.points) for part in parts)
    spec, size = parts[0].spec, len(parts[0].points)
    notify(f"the sweep has {total} points, an array of this cluster at most {size}: it becomes {len(parts)} runs")
    if spec.max_parallel is not None:
        taken = "dependency" in spec.sbatch or "dependency" in spec.no_sbatch or "?" in (spec.dependency or "")
        if taken:
            hint = "leave one of them out: the parts of a sweep with --max-parallel wait for one another"
            raise UsageError("--max-parallel of a sweep in parts and this --dependency cannot both be", hint=hint)
        notify(f"each waits for the one before it, so that never more than {spec.max_parallel} tasks run")


def _after(spec: LaunchSpec, before: Run) -> LaunchSpec:
    waits = ",".join([*([spec.dependency] if spec.dependency else []), f"afterany:{before.job_id}"])
    return spec.model_copy(update={"dependency": waits})


def _without_points(embedded: EmbeddedSpec) -> EmbeddedSpec:
    """The origin of a part: --points has chosen already, and by other numbers."""
    return replace(embedded, own={key: value for key, value in embedded.own.items() if key != "points"})
