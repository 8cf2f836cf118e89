"""Splits a sweep with more points than one job array of the cluster may have into several runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.launch.script import SweepTasks, sweep_tasks
from slurm_launch.process import TIMEOUT, Runner
from slurm_launch.slurm import array_ids, site
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.sweep_points import Points


@dataclass(frozen=True)
class ArrayLimits:
    """A cluster's limits for job arrays; None if unknown, and then sbatch decides."""

    max_array_size: int | None = None  # MaxArraySize: task numbers are below it
    max_array_tasks: int | None = None  # max_array_tasks: the number of tasks


@dataclass(frozen=True)
class SweepPart:
    """One run of a sweep, with its share of the points."""

    spec: LaunchSpec
    sweep: SweepTasks

    @property
    def points(self) -> Points:
        assert self.sweep.points is not None
        return self.sweep.points


def parts_of(
    spec: LaunchSpec,
    points: Points | None = None,
    *,
    env: Mapping[str, str] | None = None,
    runner: Runner = process.run,
    timeout: float = TIMEOUT,
) -> list[SweepPart]:
    """Return the runs that a sweep needs on this cluster: one, or more if it is too large for one array."""
    sweep = sweep_tasks(spec, points)
    return split(spec, sweep, query_limits(spec, os.environ if env is None else env, runner, timeout))


def query_limits(spec: LaunchSpec, env: Mapping[str, str], runner: Runner, timeout: float) -> ArrayLimits:
    """Return the limits of the cluster that gets the job, from `scontrol show config`."""
    cluster = spec.sbatch.get("clusters") or spec.sbatch.get("cluster") or env.get("SLURM_CLUSTERS")
    if cluster and not re.fullmatch(r"[\w.-]+", cluster):
        return ArrayLimits()  # several clusters: sbatch chooses one of them
    program, *words = site.CONFIG_ARGV
    argv = [program, *(["-M", cluster] if cluster else []), *words]
    try:
        result = runner(argv, env=slurm_environment.query_env(env), timeout=timeout)
    except (process.NotFound, process.TimedOut):
        return ArrayLimits()
    if result.returncode:
        return ArrayLimits()
    config = site.parse_config(result.stdout)
    tasks = re.search(r"\bmax_array_tasks=(\d{1,9})", config.get("SchedulerParameters", ""))
    # A MaxArraySize of 0 disables arrays: sbatch reports that.
    return ArrayLimits(site.number(config.get("MaxArraySize", "")) or None, int(tasks[1]) if tasks else None)


def split(spec: LaunchSpec, sweep: SweepTasks, limits: ArrayLimits) -> list[SweepPart]:
    """Return the parts of a sweep; if there is more than one, the points of each are numbered from 0."""
    assert sweep.points is not None
    assert sweep.tasks is not None
    numbers = array_ids.array_numbers(sweep.tasks)
    fits = limits.max_array_size is None or numbers[-1] < limits.max_array_size
    if fits and (limits.max_array_tasks is None or len(numbers) <= limits.max_array_tasks):
        return [SweepPart(spec, sweep)]
    size = min(size for size in (limits.max_array_size, limits.max_array_tasks) if size)
    part_spec = spec.model_copy(update={"points": None})
    rows = [sweep.points.rows[number] for number in numbers]
    shares = [Points(sweep.points.keys, rows[at : at + size]) for at in range(0, len(rows), size)]
    return [SweepPart(part_spec, sweep_tasks(part_spec, share)) for share in shares]
