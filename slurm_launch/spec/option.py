"""What is known about options without the model: their description, groups, and which belong together. No pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The groups, in the order in which help and `config init` show them.
EXPERIMENT = "Experiment"
SWEEP = "Sweep"
RESOURCES = "Resources"
HEAD = "Head and kinds of workers"
JOB = "Slurm job"
ENVIRONMENT = "Environment"
CONTAINER = "Container"
CLUSTER = "Ray cluster"
NETWORK = "Network"
HATCHES = "Escape hatches"
FILES = "Files and configuration"
GROUPS = (EXPERIMENT, SWEEP, RESOURCES, HEAD, JOB, ENVIRONMENT, CONTAINER, CLUSTER, NETWORK, HATCHES, FILES)


@dataclass(frozen=True)
class Option:
    """What the outside needs to know of a field beside its type and default."""

    group: str
    help: str
    flags: tuple[str, ...] = ()  # besides --name-of-the-field: a short form, an alias
    sbatch: str | None = None  # the directive that carries the value as it is
    metavar: str | None = None
    examples: tuple[Any, ...] = ()
    layered: bool = True  # False: it chooses the files that are read, so it cannot stand in them

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add to the field's JSON schema what a form or an editor shows (pydantic calls this)."""
        schema["group"] = self.group
        if self.examples:
            schema["examples"] = list(self.examples)


def flag_name(field: str) -> str:
    return "--" + field.replace("_", "-")


# Options of which a job can have one: a higher layer's choice replaces a lower layer's.
MEMORY = ("mem", "mem_per_cpu", "mem_per_gpu")
_SIGNALS = ("signal", "signal_before")
_TASKS = ("array", "sweep", "sweep_file", "chain")
ALTERNATIVES: tuple[tuple[str, ...], ...] = (MEMORY, ("command", "idle"), _SIGNALS, _TASKS)
# Options that mean something only beside another: a user who gives one alone is told, a profile may well hold it.
IMAGES = ("container_image", "head_image", "worker_image")
NEEDS: dict[str, tuple[str, ...]] = {
    "gpu_type": ("num_gpus",),
    "checkpoint_signal": ("signal_before", "requeue"),
    "max_restarts": ("requeue",),
    "checkpoint_dir": ("requeue", "signal_before", "chain"),
    "max_parallel": ("sweep", "sweep_file", "array"),
    "points": ("sweep", "sweep_file"),
    "chain_while": ("chain",),
    **{
        f"container_{name}": IMAGES
        for name in ("mounts", "workdir", "home", "writable", "cleanenv", "gpus", "setup", "arg")
    },
}
# The options that name runs to wait for, and the dependency type of sbatch for each.
DEPENDENCIES = {"after": "after", "after_ok": "afterok", "after_any": "afterany", "after_notok": "afternotok"}


def dependency_flags(given: Mapping[str, Any]) -> list[str]:
    """The dependencies among the values of a spec, by their YAML keys: a text for each option, as the user wrote it."""
    found = []
    for name in ("dependency", *DEPENDENCIES, "singleton"):
        value = given.get(name.replace("_", "-"))
        if value:
            shown = " ".join(map(str, value)) if isinstance(value, list) else "" if value is True else str(value)
            found.append(f"{flag_name(name)} {shown}".rstrip())
    return found
