"""The values that the templates use, made from a spec. docs/template.md lists them for people who write their own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurm_launch import __version__
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.rendering.templates import Raw
from slurm_launch.spec import hetjob, script_header
from slurm_launch.spec.container_runtimes import HEADS, WORKERS, Code, Word, gpu_kind, runtime_of
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import MAX_RESTARTS
from slurm_launch.spec.script_header import POINTS_MARK, EmbeddedSpec, JoinTarget
from slurm_launch.spec.sweep_points import Points


def template_values(
    spec: LaunchSpec,
    *,
    name: str,
    when: datetime,
    run_dir: str,
    embedded: EmbeddedSpec,
    tasks: str | None,
    points: Points | None,
    joins: JoinTarget | None,
) -> dict[str, Any]:
    """The variables of a template. `tasks` are those of a sweep's array, one for each of its `points`."""
    run = name if run_dir == "." else f"{run_dir.rstrip('/')}/{name}"
    port_first, _, port_last = (spec.port_range or "").partition("-")
    values = {
        "spec": spec,
        "name": Raw(name),
        "run": run,
        "run_path": _in_the_job(run),
        "checkpoint_path": _in_the_job(spec.checkpoint_dir or run + ".run"),
        "version": Raw(__version__),
        "made_at": Raw(when.isoformat(timespec="seconds")),
        "heading": Raw(_heading(spec, joins)),
        "embedded": Raw(script_header.header_text(embedded)),
        "directives": Raw("\n".join(directive_lines(spec, run + ".log", tasks))),
        "tasks": spec.tasks(tasks),
        "points": None if points is None else PointsBlock(Raw("\n".join(points.lines())), Raw(POINTS_MARK)),
        "env": [f"{key}={value}" for key, value in spec.env.items()],
        "groups": _groups(spec),
        "ray_head_args": _ray_head_args(spec),
        "end_mark": Raw(_end_mark(spec.command)),
        "ports_part": "parts/ports-range.sh" if spec.port_range else "parts/ports.sh",
        "port_first": Raw(port_first),
        "port_last": Raw(port_last),
        "container": _container(spec),
        "checkpoint_signal": spec.checkpoint_signal or ("TERM" if spec.signal_before is None else "USR1"),
        "max_restarts": MAX_RESTARTS if spec.max_restarts is None else spec.max_restarts,
    }
    return values if joins is None else {**values, "joins": joins}


@dataclass(frozen=True)
class PointsBlock:
    """What the template writes of a sweep's points."""

    text: Raw
    mark: Raw


def _heading(spec: LaunchSpec, joins: JoinTarget | None) -> str:
    nodes = f"{spec.nodes} node{'s' * (spec.nodes > 1)}"
    if joins is not None:
        return f"{spec.exp_name}: {nodes} for the Ray cluster of job {joins.job}."
    return f"{spec.exp_name}: a Ray cluster of {nodes}, and a command on it."


def _ray_head_args(spec: LaunchSpec) -> list[str]:
    """Of two that say the same Ray takes the last: the user's own come after ours."""
    own = [] if spec.dashboard else ["--include-dashboard=false"]
    if spec.head_num_cpus is not None or spec.dedicated_head:
        own.append(f"--num-cpus={spec.head_num_cpus or 0}")
    if spec.dedicated_head or (spec.own_head and spec.num_gpus and spec.gpu_directive == "none"):
        own.append("--num-gpus=0")
    return [*own, *spec.ray_head_arg]


@dataclass(frozen=True)
class Groups:
    """What the template writes of a heterogeneous job: for each of its groups, the head's first."""

    labels: list[str]
    resources: list[str]


def _groups(spec: LaunchSpec) -> Groups | None:
    found = hetjob.groups(spec)
    if not found:
        return None
    return Groups(labels=["", *map(hetjob.ray_labels, found)], resources=["", *map(hetjob.ray_resources, found)])


@dataclass(frozen=True)
class Container:
    """What the template writes of a job's container."""

    runtime: Raw
    image: str
    worker_image: str
    program: str  # that the nodes must have, or nothing
    mounts_ours: bool
    part: str | None
    step: Raw  # words for bash arrays
    worker_step: Raw
    enter: Raw
    worker_enter: Raw
    enter_for_command: Raw
    join_head: Raw
    env: str  # names of the variables in which the image does not have the last word
    unset: Raw  # of the job's variables those that would lead the image's programs astray
    setup_mark: Raw
    visible_gpus: bool


def _container(spec: LaunchSpec) -> Container | None:
    runtime = runtime_of(spec)
    if runtime is None:
        return None
    image, worker_image = runtime.image(spec.image or ""), runtime.image(spec.workers_image or "")
    differ = worker_image != image
    setup: list[Word] = ["bash", "-c", Code('"$container_setup"'), "bash"] if spec.container_setup else []
    astray = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "TMPDIR")
    return Container(
        runtime=Raw(runtime.name),
        image=image,
        worker_image=worker_image,
        program=runtime.program or "",
        mounts_ours=runtime.mounts_ours,
        part=runtime.part,
        step=_array(runtime.step(spec, HEADS)),
        worker_step=_array(runtime.step(spec, WORKERS)) if differ else Raw('"${head_step[@]}"'),
        enter=_array([*runtime.enter(spec, HEADS), *setup]),
        worker_enter=_array([*runtime.enter(spec, WORKERS), *setup]) if differ else Raw('"${head_enter[@]}"'),
        enter_for_command=_array(runtime.enter_for_command()),
        join_head=_array(runtime.join_head()),
        env=",".join(["RAY_AUTH_MODE", *spec.env]),
        unset=Raw(" ".join(name for name in astray if name not in spec.env)),
        setup_mark=Raw(_end_mark("\n".join(spec.container_setup), "END_OF_SETUP")),
        visible_gpus=gpu_kind(spec) == "nvidia",
    )


def _in_the_job(path: str) -> Raw:
    """A path as the job finds it: it begins in the directory from which it was submitted."""
    return Raw(("" if path.startswith("/") else '"$PWD"/') + shlex.quote(path))


def _array(words: Iterable[Word]) -> Raw:
    return Raw(" ".join(word if isinstance(word, Code) else shlex.quote(word) for word in words))


def _end_mark(text: str, mark: str = "END_OF_COMMAND") -> str:
    """A line that ends a here-document and does not occur in it."""
    while re.search(rf"^{mark}$", text, re.MULTILINE):
        mark += "_"
    return mark
