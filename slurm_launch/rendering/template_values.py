"""The variables of the templates, computed from a spec. docs/template.md lists them for authors of templates."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurm_launch import __version__
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.rendering.templates import Raw, shell_word
from slurm_launch.spec import hetjob, script_header
from slurm_launch.spec.container_runtimes import HEAD_IMAGE, WORKER_IMAGE, Bash, Word, gpu_kind, runtime_of
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import MAX_RESTARTS
from slurm_launch.spec.script_header import POINTS_MARK, EmbeddedSpec, JoinTarget
from slurm_launch.spec.sweep_points import Points

# Variables of the host that would break programs of an image.
HOST_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "TMPDIR")


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
    """Return the variables of a template. `tasks` are those of a sweep's array, one for each of its `points`."""
    run = name if run_dir == "." else f"{run_dir.rstrip('/')}/{name}"
    port_first, _, port_last = (spec.port_range or "").partition("-")
    values: dict[str, Any] = {
        "spec": spec,
        "name": Raw(name),
        "run": run,
        "run_path": _path_in_job(run),
        "checkpoint_path": _path_in_job(spec.checkpoint_dir or run + ".run"),
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
        "environment_mark": Raw(_end_mark(_environment_code(spec), "END_OF_ENVIRONMENT")),
        "port_first": Raw(port_first),
        "port_last": Raw(port_last),
        "container": _container(spec),
        "checkpoint_signal": spec.checkpoint_signal or ("TERM" if spec.signal_before is None else "USR1"),
        "max_restarts": MAX_RESTARTS if spec.max_restarts is None else spec.max_restarts,
        "joins": joins,
    }
    return values


@dataclass(frozen=True)
class PointsBlock:
    """The points of a sweep, for the template."""

    text: Raw
    mark: Raw


def _heading(spec: LaunchSpec, joins: JoinTarget | None) -> str:
    nodes = f"{spec.nodes} node{'s' * (spec.nodes > 1)}"
    if joins is not None:
        return f"{spec.exp_name}: {nodes} for the Ray cluster of job {joins.job}."
    return f"{spec.exp_name}: a Ray cluster of {nodes}, and a command on it."


def _ray_head_args(spec: LaunchSpec) -> list[str]:
    """Return the options of `ray start` for the head. The user's come last, because Ray uses the last of two."""
    own = [] if spec.dashboard else ["--include-dashboard=false"]
    if spec.head_num_cpus is not None or spec.dedicated_head:
        own.append(f"--num-cpus={spec.head_num_cpus or 0}")
    if spec.dedicated_head or (spec.is_heterogeneous and spec.num_gpus and spec.gpu_directive == "none"):
        own.append("--num-gpus=0")
    return [*own, *spec.ray_head_arg]


@dataclass(frozen=True)
class GroupArguments:
    """The arguments for Ray of each group of a heterogeneous job, the head's group first."""

    labels: list[str]
    resources: list[str]


def _groups(spec: LaunchSpec) -> GroupArguments | None:
    groups = hetjob.worker_groups(spec)
    if not groups:
        return None
    return GroupArguments(
        labels=["", *map(hetjob.ray_labels, groups)], resources=["", *map(hetjob.ray_resources, groups)]
    )


@dataclass(frozen=True)
class ContainerValues:
    """The container of a job, for the template."""

    runtime: Raw
    image: str
    worker_image: str
    program: str  # that must be installed on the nodes; may be empty
    mounts_job_dirs: bool
    part: str | None
    set_up: Raw  # a function in that part; may be empty
    step: Raw  # this and the following: elements of bash arrays
    worker_step: Raw
    enter: Raw
    worker_enter: Raw
    enter_for_command: Raw
    join_head: Raw
    env: str  # names of variables in which the job overrides the image
    unset: Raw  # variables of the job that would break programs of the image
    setup_mark: Raw
    visible_gpus: bool


def _container(spec: LaunchSpec) -> ContainerValues | None:
    runtime = runtime_of(spec)
    if runtime is None:
        return None
    image, worker_image = runtime.image(spec.image or ""), runtime.image(spec.workers_image or "")
    differ = worker_image != image
    setup: list[Word] = ["bash", "-c", Bash('"$slaunch_container_setup"'), "bash"] if spec.container_setup else []
    return ContainerValues(
        runtime=Raw(runtime.name),
        image=image,
        worker_image=worker_image,
        program=runtime.program or "",
        mounts_job_dirs=runtime.mounts_job_dirs,
        part=runtime.part,
        set_up=Raw(runtime.set_up),
        step=_array(runtime.step(spec, HEAD_IMAGE)),
        worker_step=_array(runtime.step(spec, WORKER_IMAGE)) if differ else Raw('"${slaunch_head_step[@]}"'),
        enter=_array([*runtime.enter(spec, HEAD_IMAGE), *setup]),
        worker_enter=_array([*runtime.enter(spec, WORKER_IMAGE), *setup])
        if differ
        else Raw('"${slaunch_head_enter[@]}"'),
        enter_for_command=_array(runtime.enter_for_command()),
        join_head=_array(runtime.join_head()),
        env=",".join(["RAY_AUTH_MODE", *spec.env]),
        unset=Raw(" ".join(name for name in HOST_VARIABLES if name not in spec.env)),
        setup_mark=Raw(_end_mark("\n".join(spec.container_setup), "END_OF_SETUP")),
        visible_gpus=gpu_kind(spec) == "nvidia",
    )


def _path_in_job(path: str) -> Raw:
    """Return a path as bash code; a relative one starts at the directory of the submission."""
    return Raw(("" if path.startswith("/") else '"$PWD"/') + shell_word(path))


def _array(words: Iterable[Word]) -> Raw:
    """Return the elements of a bash array in a function, one per line."""
    lines = [f"\n    {word if isinstance(word, Bash) else shell_word(word)}" for word in words]
    return Raw("".join([*lines, "\n  "] if lines else lines))


def _environment_code(spec: LaunchSpec) -> str:
    """Return all text of the environment that may span several lines."""
    return "\n".join([*spec.env.values(), *spec.modules, spec.conda_env or "", spec.venv or "", *spec.load_env])


def _end_mark(text: str, mark: str = "END_OF_COMMAND") -> str:
    """Return a line that ends a here-document and does not occur in it."""
    while re.search(rf"^{mark}$", text, re.MULTILINE):
        mark += "_"
    return mark
