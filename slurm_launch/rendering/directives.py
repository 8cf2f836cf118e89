"""LaunchSpec -> the `#SBATCH` lines. The only place that knows how they are spelled and quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_launch.errors import UsageError, show
from slurm_launch.spec.hetjob import ONCE, components
from slurm_launch.spec.model import options
from slurm_launch.spec.option import DEPENDENCIES

if TYPE_CHECKING:
    from slurm_launch.spec.launch_spec import LaunchSpec


def directive_lines(spec: LaunchSpec, log: str, tasks: str | None = None) -> list[str]:
    """The lines in their fixed order; the user's additions last, or in place of ours of the same name.

    `tasks` are those of a sweep; an array's stand in the spec."""
    found: list[str] = []
    for place, component in enumerate(components(spec) or [spec]):
        wanted = _wanted(component, log, spec.tasks(tasks))
        found += ["#SBATCH hetjob"] if place else []
        found += [_line(key, value) for key, value in wanted.items() if not (place and key in ONCE)]
    return found


def _wanted(spec: LaunchSpec, log: str, tasks: str | None) -> dict[str, str | None]:
    """The directives of a job, or of one component of it."""
    wanted: dict[str, str | None] = {
        "job-name": spec.exp_name,
        "output": _log_pattern(log, array=tasks is not None),
        "open-mode": "append",  # a requeued job must not erase what the first one wrote
        "nodes": str(spec.nodes),
        "ntasks-per-node": "1",
    }
    wanted.update(_gpus(spec))
    for name, option in options().items():
        value = tasks if name == "array" else getattr(spec, name)
        if option.sbatch and value is not None:
            wanted[option.sbatch] = str(value)
    if dependency := _dependency(spec):
        wanted["dependency"] = dependency
    if spec.exclusive:
        wanted["exclusive"] = None
    if spec.signal_before is not None:
        wanted["signal"] = f"B:USR1@{spec.signal_before}"  # for the script alone: a step's would end Ray
    # Always said: most sites would run the command a second time after a node failure, unasked.
    wanted["requeue" if spec.requeue else "no-requeue"] = None
    if spec.on_node_loss == "continue":
        wanted["no-kill"] = None  # else Slurm itself ends the job when a node fails
    wanted.update(spec.sbatch)
    return {key: value for key, value in wanted.items() if key not in spec.no_sbatch}


def _dependency(spec: LaunchSpec) -> str | None:
    """The value of --dependency, for a spec whose runs are job IDs already; None when there is nothing to wait for."""
    parts = [spec.dependency] if spec.dependency else []
    for name, kind in DEPENDENCIES.items():
        if runs := getattr(spec, name):
            parts.append(":".join([kind, *runs]))
    return ",".join([*parts, *(["singleton"] if spec.singleton else [])]) or None


def _log_pattern(log: str, array: bool) -> str:
    """The log's path as Slurm reads it: with %-patterns, of which we want one, and for arrays alone."""
    if "\\" in log:
        # Here a backslash is an escape that turns the patterns off. Slurm 22.05 and 24.11 undo it once, 26.05 twice.
        raise UsageError(
            f"no spelling of a log with a backslash in its path works in all versions of Slurm: {show(log, 200)}",
            at="--run-dir",
            hint="choose another --run-dir",
        )
    pattern = log.replace("%", "%%")
    return f"{pattern.removesuffix('.log')}_%a.log" if array else pattern  # an array's tasks get a log each


def _gpus(spec: LaunchSpec) -> dict[str, str | None]:
    if not spec.num_gpus or spec.gpu_directive == "none":
        return {}
    kind = f"{spec.gpu_type}:" if spec.gpu_type else ""
    if spec.gpu_directive == "gres":
        return {"gres": f"gpu:{kind}{spec.num_gpus}"}
    return {spec.gpu_directive: f"{kind}{spec.num_gpus}"}


def _line(key: str, value: str | None) -> str:
    return f"#SBATCH --{key}" if value is None else f"#SBATCH --{key}={quote(value)}"


def quote(value: str) -> str:
    """A value for a `#SBATCH` line, which is not shell.

    sbatch splits the line at white space, knows '...' and "..." and takes a backslash as an escape in and outside
    of both; a `#` begins a comment. Nothing is ever expanded.
    """
    if re.fullmatch(r"[A-Za-z0-9_.,:/@%+=\[\]-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
