"""slurm-launch: start Ray on Slurm with one command and one portable sbatch script.

The Python API::

    from slurm_launch import LaunchSpec, rehearse, render, submit

    spec = LaunchSpec(exp_name="test", command="python train.py", num_nodes=3)
    print(render(spec))
    print(rehearse(spec).code)
    run = submit(spec)
    print(run.job_id, run.log)

`submit_all` submits a sweep of any size and returns its runs. Names are imported on first use, so that
`slurm-launch --version` and shell completion stay fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm_launch.errors import LaunchError
    from slurm_launch.launch.script import render
    from slurm_launch.launch.submit import submit, submit_all
    from slurm_launch.rehearsal.rehearse import Rehearsal, rehearse
    from slurm_launch.runs.record import Run
    from slurm_launch.spec.launch_spec import LaunchSpec

__version__ = "0.2.0"
__all__ = [
    "LaunchError",
    "LaunchSpec",
    "Rehearsal",
    "Run",
    "__version__",
    "rehearse",
    "render",
    "submit",
    "submit_all",
]

_MODULES = {
    "LaunchError": "errors",
    "LaunchSpec": "spec.launch_spec",
    "Rehearsal": "rehearsal.rehearse",
    "Run": "runs.record",
    "rehearse": "rehearsal.rehearse",
    "render": "launch.script",
    "submit": "launch.submit",
    "submit_all": "launch.submit",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
