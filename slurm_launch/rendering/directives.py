"""The `#SBATCH` lines of a LaunchSpec. Only this module spells and quotes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_launch.errors import UsageError, show
from slurm_launch.spec.hetjob import WHOLE_JOB_DIRECTIVES, components
from slurm_launch.spec.model import options
from slurm_launch.spec.option import DEPENDENCIES

if TYPE_CHECKING:
    from slurm_launch.spec.launch_spec import LaunchSpec


def directive_lines(spec: LaunchSpec, log: str, tasks: str | None = None) -> list[str]:
    """Return the lines in a fixed order; --sbatch directives come last, or replace a line of the same name.

    `tasks` are those of a sweep's array; the tasks of --array are in the spec.
    """
    lines: list[str] = []
    for number, component in enumerate(components(spec) or [spec]):
        wanted = _wanted(component, log, spec.tasks(tasks))
        if number:
            lines.append("#SBATCH hetjob")
        lines += [_line(key, value) for key, value in wanted.items() if not (number and key in WHOLE_JOB_DIRECTIVES)]
    return lines


def _wanted(spec: LaunchSpec, log: str, tasks: str | None) -> dict[str, str | None]:
    """Return the directives of a job, or of one component of a heterogeneous job."""
    wanted: dict[str, str | None] = {
        "job-name": spec.exp_name,
        "output": _log_pattern(log, array=tasks is not None),
        "open-mode": "append",  # a restart must not erase the log of the previous attempt
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
        wanted["signal"] = f"B:USR1@{spec.signal_before}"  # B: only to the script, because in a step it would end Ray
    # Always explicit: by default, most sites run the command a second time after a node failure.
    wanted["requeue" if spec.requeue else "no-requeue"] = None
    if spec.nodes > 1 and spec.min_nodes is None:
        wanted["wait-all-nodes"] = "1"  # with power saving, the script would start when the first node has booted
    if spec.on_node_loss == "continue":
        wanted["no-kill"] = None  # otherwise Slurm ends the job when a node fails
    wanted.update(spec.sbatch)
    return {key: value for key, value in wanted.items() if key not in spec.no_sbatch}


def _dependency(spec: LaunchSpec) -> str | None:
    """Return the value of --dependency, for a spec whose runs are job IDs; None without dependencies."""
    parts = [spec.dependency] if spec.dependency else []
    for name, kind in DEPENDENCIES.items():
        if runs := getattr(spec, name):
            parts.append(":".join([kind, *runs]))
    return ",".join([*parts, *(["singleton"] if spec.singleton else [])]) or None


def _log_pattern(log: str, array: bool) -> str:
    """Return the log's path as Slurm reads it: % escaped, and for an array with the pattern of the task number."""
    if "\\" in log:
        # A backslash turns the patterns off. Slurm 22.05 and 24.11 remove it once, 26.05 twice.
        raise UsageError(
            f"the path of the log has a backslash, which Slurm's versions read differently: {show(log, 200)}",
            at="--run-dir",
            hint="choose another --run-dir",
        )
    pattern = log.replace("%", "%%")
    return f"{pattern.removesuffix('.log')}_%a.log" if array else pattern  # each task of an array has its own log


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
    """Return a value quoted for a `#SBATCH` line, which is not shell code.

    sbatch splits the line at white space, supports '...' and "...", and reads a backslash as an escape inside and
    outside of both; a `#` starts a comment. Nothing is expanded.
    """
    if re.fullmatch(r"[A-Za-z0-9_.,:/@%+=\[\]-]+", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
