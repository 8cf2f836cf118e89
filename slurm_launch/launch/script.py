"""The script of a launch: the runs to wait for and the points of a sweep are looked up, then it is rendered."""

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


def render(
    spec: LaunchSpec,
    *,
    name: str | None = None,
    when: datetime | None = None,
    run_dir: str | None = None,
    embedded: EmbeddedSpec | None = None,
    points: Points | None = None,
) -> str:
    """The script for a spec, as text.

    The same arguments give the same bytes. `name` is the run's name, by default `<exp_name>_<date>-<time>` of
    `when`, which is by default now. `run_dir` is the directory of the log as the job sees it, by default the
    spec's. `embedded` is the origin of the spec that the header tells, by default the values given. `points` are
    those of a sweep, by default the ones that the spec asks for. Runs to wait for are looked up among yours.
    """
    wanted = dependencies.resolved(spec, os.environ)
    header, sweep = embedded or header_of(spec), sweep_tasks(spec, points)
    return render_job(wanted, name=name, when=when, run_dir=run_dir, embedded=header, sweep=sweep)


def header_of(spec: LaunchSpec) -> EmbeddedSpec:
    """What the script's header says: the values requested, not the job IDs that they were resolved to."""
    return EmbeddedSpec(own=spec.given())


@dataclass(frozen=True)
class SweepTasks:
    """The points of a sweep and the tasks of its array; both None for other jobs."""

    points: Points | None = None
    tasks: str | None = None


def sweep_tasks(spec: LaunchSpec, points: Points | None) -> SweepTasks:
    """Read once for a launch: the file may change meanwhile."""
    if not spec.is_sweep:
        return SweepTasks()
    points = points or sweep_file.points_of(spec)
    assert points is not None
    return SweepTasks(points, sweep_file.task_numbers(spec, points))


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
    """A time in the local zone, as people read it in file names."""
    return (datetime.now() if when is None else when).astimezone()
