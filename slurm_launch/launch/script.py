"""The script of a launch: looks up dependencies and the points of a sweep, then renders."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime

from slurm_launch.config import sweep_file
from slurm_launch.launch import dependencies
from slurm_launch.rendering.render import render_script
from slurm_launch.runs import files as run_files
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec, JoinTarget
from slurm_launch.spec.sweep_points import Points


@dataclass(frozen=True)
class SweepTasks:
    """The points of a sweep and the tasks of its array; both are None for other jobs."""

    points: Points | None = None
    tasks: str | None = None  # as --array writes them


def sweep_tasks(spec: LaunchSpec, points: Points | None = None) -> SweepTasks:
    """Return the points and tasks of a sweep; `points` are by default those that the spec names.

    A launch calls this once: the file of --sweep-file may change meanwhile. Raises UsageError for --points that the
    sweep does not have.
    """
    if not spec.is_sweep:
        return SweepTasks()
    if points is None:
        points = sweep_file.points_of(spec)
    assert points is not None
    return SweepTasks(points, sweep_file.task_numbers(spec, points))


def render(
    spec: LaunchSpec,
    *,
    name: str | None = None,
    when: datetime | None = None,
    run_dir: str | None = None,
    embedded: EmbeddedSpec | None = None,
    sweep: SweepTasks | None = None,
) -> str:
    """Return the text of the script for a spec; the same arguments give the same bytes.

    `name` is the run's name, by default `<exp_name>_<date>-<time>` of `when`, which is by default now. `run_dir` is
    the directory of the log as the job sees it, by default the spec's. `embedded` is the spec in the script's header,
    by default the values given. `sweep` are the points and tasks of a sweep, by default those that the spec names.
    Runs that the job depends on are looked up among yours.
    """
    return render_job(
        dependencies.with_job_ids(spec, dependencies.job_ids(spec, os.environ)),
        name=name,
        when=when,
        run_dir=run_dir,
        embedded=embedded or header_of(spec),
        sweep=sweep or sweep_tasks(spec),
    )


def header_of(spec: LaunchSpec) -> EmbeddedSpec:
    """Return the spec for the script's header: the values as given, not the job IDs that they were resolved to."""
    return EmbeddedSpec(own=spec.given())


def render_job(
    spec: LaunchSpec,
    *,
    name: str | None,
    when: datetime | None,
    run_dir: str | None,
    embedded: EmbeddedSpec,
    sweep: SweepTasks,
    joins: JoinTarget | None = None,
) -> str:
    """Return the text of the script for a spec whose dependencies are job IDs and whose points are known."""
    when = local_time(when)
    return render_script(
        spec,
        name=run_files.run_name(spec.exp_name, when) if name is None else name,
        when=when,
        run_dir=spec.run_dir if run_dir is None else run_dir,
        embedded=embedded,
        points=sweep.points,
        tasks=sweep.tasks,
        joins=joins,
    )


def local_time(when: datetime | None) -> datetime:
    """Return a time, by default now, in the local zone, which file names use."""
    return (datetime.now() if when is None else when).astimezone()
