"""slurm-launch: start Ray on Slurm with one command and one script that can be trusted.

The Python API::

    from slurm_launch import LaunchSpec, rehearse, render, submit

    spec = LaunchSpec(exp_name="test", command="python train.py", num_nodes=3)
    print(render(spec))
    print(rehearse(spec).code)
    run = submit(spec)
    print(run.job_id, run.log)

Everything is imported at its first use, so that `slurm-launch --version` and shell completion stay quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm_launch.errors import LaunchError
    from slurm_launch.launch.submit import render, submit
    from slurm_launch.rehearsal.rehearse import Rehearsal, rehearse
    from slurm_launch.runs.record import Run
    from slurm_launch.spec.launch_spec import LaunchSpec

__version__ = "0.1.0"
__all__ = ["LaunchError", "LaunchSpec", "Rehearsal", "Run", "__version__", "rehearse", "render", "submit"]

_HOMES = {
    "LaunchError": "errors",
    "LaunchSpec": "spec.launch_spec",
    "Rehearsal": "rehearsal.rehearse",
    "Run": "runs.record",
    "rehearse": "rehearsal.rehearse",
    "render": "launch.script",
    "submit": "launch.submit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
