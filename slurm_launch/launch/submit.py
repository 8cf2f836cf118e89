"""The Python API for launches, which the command line uses too: render, plan, submit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from slurm_launch import process
from slurm_launch.errors import LaunchError, Notify, UsageError, warn
from slurm_launch.launch import dependencies, grow_job
from slurm_launch.launch.dependencies import JobIds
from slurm_launch.launch.job import SubmissionPlan, plan_job, submit_job
from slurm_launch.launch.script import SweepTasks, render
from slurm_launch.launch.sweep_split import SweepPart, parts_of
from slurm_launch.process import TIMEOUT, PathText, Runner
from slurm_launch.runs.record import Run
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec

__all__ = ["SubmissionPlan", "plan", "render", "submit", "submit_all", "submit_parts"]


def plan(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    embedded: EmbeddedSpec | None = None,
    sweep: SweepTasks | None = None,
) -> SubmissionPlan:
    """Return what `submit` with the same arguments would do; writes nothing and does not query Slurm."""
    grow_job.second_spec(spec)  # raises UsageError for an impossible --grow
    return plan_job(spec, env=env, cwd=cwd, when=when, hold=hold, embedded=embedded, sweep=sweep)


def submit(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: EmbeddedSpec | None = None,
    sweep: SweepTasks | None = None,
    job_ids: JobIds | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> Run:
    """Submit a job as `submit_job` does and, with --grow, the second job that grows its cluster.

    A sweep becomes one job array. sbatch refuses one that is too large for the cluster: `submit_all` splits it.
    """
    env = os.environ if env is None else env
    second = grow_job.second_spec(spec)
    run = submit_job(
        spec, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded, sweep=sweep, job_ids=job_ids,
        timeout=timeout, notify=notify,
    )  # fmt: skip
    if second is None:
        return run
    return grow_job.submit_second_job(
        run, second, heterogeneous=spec.is_heterogeneous, env=env, runner=runner, timeout=timeout, notify=notify
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
    """Submit as `submit` does; a sweep with more points than one array of the cluster may have becomes several runs."""
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
    job_ids: JobIds | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> list[Run]:
    """Submit the parts of a sweep, each as `submit` does. With --max-parallel, each part waits for the previous one.

    If a submission fails, `notify` gets the jobs submitted before it, and the error is raised.
    """
    env = os.environ if env is None else env
    when = when or datetime.now()  # the same for all parts: their names differ only by -2, -3
    if len(parts) > 1:
        _announce_parts(parts, notify)
    if embedded is not None and parts[0].spec.points is None:
        embedded = _without_points(embedded)
    if job_ids is None:
        job_ids = dependencies.job_ids(parts[0].spec, env, cwd)
    runs: list[Run] = []
    for part in parts:
        spec = part.spec
        if runs and spec.max_parallel is not None:
            spec = _after(spec, runs[-1])
        try:
            run = submit(
                spec, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded, sweep=part.sweep,
                job_ids=job_ids, timeout=timeout, notify=notify,
            )  # fmt: skip
        except (LaunchError, KeyboardInterrupt):
            if runs:
                _report_submitted(runs, len(parts), notify)
            raise
        runs.append(run)
    return runs


def _announce_parts(parts: Sequence[SweepPart], notify: Notify) -> None:
    total = sum(len(part.points) for part in parts)
    spec, size = parts[0].spec, len(parts[0].points)
    notify(f"the sweep has {total} points, a job array of this cluster at most {size}: it becomes {len(parts)} runs")
    if spec.max_parallel is not None:
        if "dependency" in spec.sbatch or "dependency" in spec.no_sbatch or "?" in (spec.dependency or ""):
            hint = "remove one of them: with --max-parallel, each part of a sweep waits for the previous one"
            raise UsageError("--max-parallel of a split sweep and this --dependency conflict", hint=hint)
        notify(f"each run waits for the previous one, so that at most {spec.max_parallel} tasks run")


def _report_submitted(runs: Sequence[Run], total: int, notify: Notify) -> None:
    jobs = ", ".join(str(run.job_id) for run in runs)
    notify(f"parts 1 to {len(runs)} of {total} are submitted and keep running: {jobs}; the others are not submitted")


def _after(spec: LaunchSpec, previous: Run) -> LaunchSpec:
    parts = [spec.dependency] if spec.dependency else []
    return spec.model_copy(update={"dependency": ",".join([*parts, f"afterany:{previous.job_id}"])})


def _without_points(embedded: EmbeddedSpec) -> EmbeddedSpec:
    """Return the header of a part: --points has already been applied, and the parts renumber their points."""
    return replace(embedded, own={key: value for key, value in embedded.own.items() if key != "points"})
