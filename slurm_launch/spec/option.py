"""What is known about options without the model: their description, groups, and rules between them. No pydantic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# The groups, in the order in which help and `config init` show them.
EXPERIMENT = "Experiment"
SWEEP = "Sweep"
RESOURCES = "Resources"
HEAD = "Head node and worker groups"
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
    """The description of a field beyond its type and default."""

    group: str
    help: str
    flags: tuple[str, ...] = ()  # besides --name-of-the-field: a short form, an alias
    sbatch: str | None = None  # the directive that gets the value unchanged
    metavar: str | None = None
    examples: tuple[Any, ...] = ()
    layered: bool = True  # False: it selects configuration files, so it cannot be set in one

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add what a form or an editor shows to the field's JSON schema (called by pydantic)."""
        schema["group"] = self.group
        if self.examples:
            schema["examples"] = list(self.examples)


def flag_name(field: str) -> str:
    return "--" + field.replace("_", "-")


IMAGES = ("container_image", "head_image", "worker_image")
MEMORY = ("mem", "mem_per_cpu", "mem_per_gpu")
# A job can have one option of each group: a choice in a higher layer replaces that of a lower one.
ALTERNATIVES: tuple[tuple[str, ...], ...] = (
    MEMORY,
    ("command", "idle"),
    ("signal", "signal_before"),
    ("array", "sweep", "sweep_file", "chain"),
)


def mutually_exclusive(names: Iterable[str]) -> tuple[str, str]:
    """The message and the hint for alternatives that were given together."""
    flags = " and ".join(flag_name(name) for name in names)
    return f"{flags} are mutually exclusive", "use one of them"


@dataclass(frozen=True)
class Need:
    """What an option has no effect without: any one of `options`."""

    options: tuple[str, ...]
    what: str  # how messages refer to them
    hint: str
    required: bool = True  # False: harmless alone, so it is not an error


IMAGE_NEED = Need(IMAGES, "a container image", "add --container-image")
# Options that have an effect only with another one. Given alone by a user they are an error; in a profile they are
# ignored.
NEEDS: dict[str, Need] = {
    "gpu_type": Need(("num_gpus",), "GPUs", "add --num-gpus N"),
    "checkpoint_signal": Need(("signal_before", "requeue"), "--signal-before or --requeue", "add --signal-before 120"),
    "max_restarts": Need(("requeue",), "--requeue", "add --requeue"),
    "checkpoint_dir": Need(
        ("requeue", "signal_before", "chain"),
        "--requeue, --signal-before or --chain",
        "add one of them",
        required=False,  # a project file may set it for all of its jobs
    ),
    "max_parallel": Need(
        ("sweep", "sweep_file", "array"), "a sweep or an array", "add --sweep, --sweep-file or --array"
    ),
    "points": Need(("sweep", "sweep_file"), "a sweep", "add --sweep or --sweep-file"),
    "chain_while": Need(("chain",), "--chain", "add --chain N"),
    **{
        f"container_{name}": IMAGE_NEED
        for name in ("mounts", "workdir", "home", "writable", "cleanenv", "gpus", "setup", "arg")
    },
}
# The options that name runs to wait for, and the dependency type of sbatch for each.
DEPENDENCIES = {"after": "after", "after_ok": "afterok", "after_any": "afterany", "after_notok": "afternotok"}


def dependency_flags(values: Mapping[str, Any]) -> list[str]:
    """The dependencies in the values of a spec (by YAML key), one text per option, as the user wrote them."""
    flags = []
    for name in ("dependency", *DEPENDENCIES, "singleton"):
        value = values.get(name.replace("_", "-"))
        if not value:
            continue
        if value is True:
            flags.append(flag_name(name))
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            flags.append(f"{flag_name(name)} {text}".rstrip())
    return flags
