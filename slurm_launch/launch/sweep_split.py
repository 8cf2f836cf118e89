"""A sweep with more points than an array of the cluster can have: several runs, each with its share of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.config import sweep_file
from slurm_launch.process import TIMEOUT, Runner
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import site
from slurm_launch.spec import sweep_points
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.sweep_points import Points


@dataclass(frozen=True)
class Limit:
    """Of the arrays of a cluster; None: nobody knows, sbatch will say."""

    numbers: int | None = None  # those of the tasks are below it: MaxArraySize
    tasks: int | None = None  # and so many there are at most: max_array_tasks


@dataclass(frozen=True)
class SweepPart:
    """One run of a sweep, and the points that it has."""

    spec: LaunchSpec
    points: Points


def parts_of(
    spec: LaunchSpec,
    points: Points | None = None,
    *,
    env: Mapping[str, str] | None = None,
    runner: Runner = process.run,
    timeout: float = TIMEOUT,
) -> list[SweepPart]:
    """The sweep as the cluster can take it: one part, or as many as are needed. Slurm is asked once."""
    points = points or sweep_file.points_of(spec)
    assert points is not None
    sweep_file.task_numbers(spec, points)  # first what is wrong with --points
    return split(spec, points, ask_limit(spec, os.environ if env is None else env, runner, timeout))


def ask_limit(spec: LaunchSpec, env: Mapping[str, str], runner: Runner, timeout: float) -> Limit:
    cluster = spec.sbatch.get("clusters") or spec.sbatch.get("cluster") or env.get("SLURM_CLUSTERS")
    if cluster and not re.fullmatch(r"[\w.-]+", cluster):
        return Limit()  # one of several
    program, *words = site.CONFIG_ARGV
    argv = [program, *(["-M", cluster] if cluster else []), *words]
    try:
        result = runner(argv, env=slurm_environment.query_env(env), timeout=timeout)
    except (process.NotFound, process.TimedOut):
        return Limit()
    if result.returncode:
        return Limit()
    config = site.parse_config(result.stdout)
    most = re.search(r"\bmax_array_tasks=(\d{1,9})", config.get("SchedulerParameters", ""))
    # Where it is 0 there are no arrays at all: sbatch says so.
    return Limit(site.number(config.get("MaxArraySize", "")) or None, int(most[1]) if most else None)


def split(spec: LaunchSpec, points: Points, limit: Limit) -> list[SweepPart]:
    """The parts: in each the points have numbers of their own, from 0."""
    numbers = sweep_points.chosen(spec.points, len(points))
    fits = limit.numbers is None or numbers[-1] < limit.numbers
    if fits and (limit.tasks is None or len(numbers) <= limit.tasks):
        return [SweepPart(spec, points)]
    size = min(size for size in (limit.numbers, limit.tasks) if size)
    whole = spec.model_copy(update={"points": None})
    rows = [points.rows[number] for number in numbers]
    return [SweepPart(whole, Points(points.keys, rows[at : at + size])) for at in range(0, len(rows), size)]
