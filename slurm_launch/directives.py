"""LaunchSpec -> the `#SBATCH` lines. The only place that knows how they are spelled and quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurm_launch.spec import options

if TYPE_CHECKING:
    from slurm_launch.spec import LaunchSpec


def directive_lines(spec: LaunchSpec, log: str) -> list[str]:
    """The lines in their fixed order; the user's additions last, or in place of ours of the same name."""
    wanted: dict[str, str | None] = {
        "job-name": spec.exp_name,
        # Slurm fills in %-patterns here; an array's tasks get a log each.
        "output": log.replace("%", "%%") if not spec.array else f"{log[: -len('.log')].replace('%', '%%')}_%a.log",
        "open-mode": "append",  # a requeued job must not erase what the first one wrote
        "nodes": str(spec.nodes),
        "ntasks-per-node": "1",
    }
    wanted.update(_gpus(spec))
    for name, option in options().items():
        value = getattr(spec, name)
        if option.sbatch and value is not None:
            wanted[option.sbatch] = str(value)
    if spec.exclusive:
        wanted["exclusive"] = None
    if spec.requeue is not None:
        wanted["requeue" if spec.requeue else "no-requeue"] = None
    if spec.on_node_loss == "continue":
        wanted["no-kill"] = None  # else Slurm itself ends the job when a node fails
    wanted.update(spec.sbatch)
    return [_line(key, value) for key, value in wanted.items() if key not in spec.no_sbatch]


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
