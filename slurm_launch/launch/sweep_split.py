"""A sweep with more points than an array of the cluster can have: several runs, each with its share of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from slurm_launch import process
from slurm_launch.config import sweep_file
from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.launch import submit as submission
from slurm_launch.launch.submit import (
    TIMEOUT,
    PathText,
    Tell,
    warn,
)
from slurm_launch.process import Runner
from slurm_launch.runs.record import Run
from slurm_launch.slurm import sbatch, site
from slurm_launch.spec import sweep_points
from slurm_launch.spec.sweep_points import Points

if TYPE_CHECKING:
    from slurm_launch.rendering.render import Embedded
    from slurm_launch.spec.model import LaunchSpec


@dataclass(frozen=True)
class Limit:
    """Of the arrays of a cluster; None: nobody knows, sbatch will say."""

    numbers: int | None = None  # those of the tasks are below it: MaxArraySize
    tasks: int | None = None  # and so many there are at most: max_array_tasks


@dataclass(frozen=True)
class Part:
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
) -> list[Part]:
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
        result = runner(argv, env=sbatch.query_env(env), timeout=timeout)
    except (process.NotFound, process.TimedOut):
        return Limit()
    if result.returncode:
        return Limit()
    config = site.parse_config(result.stdout)
    most = re.search(r"\bmax_array_tasks=(\d{1,9})", config.get("SchedulerParameters", ""))
    # Where it is 0 there are no arrays at all: sbatch says so.
    return Limit(site.number(config.get("MaxArraySize", "")) or None, int(most[1]) if most else None)


def split(spec: LaunchSpec, points: Points, limit: Limit) -> list[Part]:
    """The parts: in each the points have numbers of their own, from 0."""
    numbers = sweep_points.chosen(spec.points, len(points))
    fits = limit.numbers is None or numbers[-1] < limit.numbers
    if fits and (limit.tasks is None or len(numbers) <= limit.tasks):
        return [Part(spec, points)]
    size = min(size for size in (limit.numbers, limit.tasks) if size)
    whole = spec.model_copy(update={"points": None})
    rows = [points.rows[number] for number in numbers]
    return [Part(whole, Points(points.keys, rows[at : at + size])) for at in range(0, len(rows), size)]


def submit(
    parts: Sequence[Part],
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: Embedded | None = None,
    timeout: float = TIMEOUT,
    tell: Tell = warn,
) -> list[Run]:
    """Submit the parts, as `launch.submit` does each. With --max-parallel each waits for the one before it.

    When sbatch refuses one, those before it are told, and the error goes on."""
    when = when or datetime.now()  # one for all: so their names differ by -2, -3 only
    if len(parts) > 1:
        _tell_of_parts(parts, tell)
    if embedded is not None and parts[0].spec.points is None:
        embedded = _without_points(embedded)
    found: list[Run] = []
    for number, part in enumerate(parts, 1):
        spec = part.spec
        if found and spec.max_parallel is not None:
            spec = _after(spec, found[-1])
        try:
            run = submission.submit(
                spec, env=env, cwd=cwd, when=when, hold=hold, runner=runner, embedded=embedded, points=part.points,
                timeout=timeout, tell=tell,
            )  # fmt: skip
        except (LaunchError, KeyboardInterrupt):
            if found:
                jobs = ", ".join(str(run.job_id) for run in found)
                tell(f"parts 1 to {number - 1} of {len(parts)} are submitted and go on: {jobs}; the others are not")
            raise
        found.append(run)
    return found


def _tell_of_parts(parts: Sequence[Part], tell: Tell) -> None:
    total = sum(len(part.points) for part in parts)
    spec, size = parts[0].spec, len(parts[0].points)
    tell(f"the sweep has {total} points, an array of this cluster at most {size}: it becomes {len(parts)} runs")
    if spec.max_parallel is not None:
        taken = "dependency" in spec.sbatch or "dependency" in spec.no_sbatch or "?" in (spec.dependency or "")
        if taken:
            hint = "leave one of them out: the parts of a sweep with --max-parallel wait for one another"
            raise UsageError("--max-parallel of a sweep in parts and this --dependency cannot both be", hint=hint)
        tell(f"each waits for the one before it, so that never more than {spec.max_parallel} tasks run")


def _after(spec: LaunchSpec, before: Run) -> LaunchSpec:
    waits = ",".join([*([spec.dependency] if spec.dependency else []), f"afterany:{before.job_id}"])
    return spec.model_copy(update={"dependency": waits})


def _without_points(embedded: Embedded) -> Embedded:
    """The origin of a part: --points has chosen already, and by other numbers."""
    return replace(embedded, own={key: value for key, value in embedded.own.items() if key != "points"})
