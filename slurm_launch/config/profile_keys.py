"""The keys of a profile that are not options: facts about the cluster, and the limits of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from slurm_launch.errors import show
from slurm_launch.spec import checks
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.launch_spec import LaunchSpec

RUNTIMES = tuple(name for name in get_args(LaunchSpec.model_fields["container_runtime"].annotation) if name != "none")


@dataclass(frozen=True)
class Fact:
    """The description of a key, for the help, the starter file and the schema."""

    help: str
    example: Any
    schema: dict[str, Any]


_TEXT = {"type": ["string", "null"]}
_TEXTS = {"anyOf": [{"type": "array", "items": {"type": "string"}}, _TEXT]}
_BY_REGEX = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number"]}}

FACTS: dict[str, Fact] = {
    "extends": Fact("Another profile, below this one.", "base", _TEXT),
    "hosts": Fact(
        "Machines on which this profile is selected automatically: patterns for the host name.",
        ["login*.example.org"],
        _TEXTS,
    ),
    "partitions": Fact(
        "Partitions: options for jobs in them, and the limits max-time, max-nodes and max-gpus (per node).",
        {"gpu": {"time": "1:00:00", "max-time": "1-00:00:00", "max-nodes": 8, "max-gpus": 4}, "cpu": {}},
        {"type": ["object", "null"]},  # starter_file.py adds the rest
    ),
    "gpu_types": Fact(
        "Type of a node's GPUs, by a regular expression for the node's name.", {"gpu0.*": "a100"}, _BY_REGEX
    ),
    "node_types": Fact("Type of a node, by a regular expression for its name.", {"gpu.*": "fat"}, _BY_REGEX),
    "node_prefix": Fact("Prefix that NODE[01-02] and [01-02] in --node stand for.", "com-", _TEXT),
    "cpu_image": Fact("Container image for jobs without GPUs.", "/images/cpu.sqsh", _TEXT),
    "gpu_image": Fact("Container image for jobs with GPUs.", "/images/gpu.sqsh", _TEXT),
    "container_runtimes": Fact(
        "The available container runtimes.",
        ["pyxis"],
        {"anyOf": [{"type": "array", "items": {"enum": list(RUNTIMES)}}, {"enum": [*RUNTIMES, None]}]},
    ),
}
LIMITS: dict[str, dict[str, Any]] = {
    "max_time": {"type": ["string", "number"], "description": "Maximum --time."},
    "max_nodes": {"type": "integer", "minimum": 1, "description": "Maximum number of nodes per job."},
    "max_gpus": {"type": "integer", "minimum": 0, "description": "Maximum number of GPUs per node."},
}
FACTS_OF_FILES = ("extends", "hosts")  # about the profile itself, not about the cluster
# A partition cannot set them: they are used before its options are looked up.
NOT_BY_PARTITION = ("partition", "profile", "config")


def text_list(value: Any) -> list[str]:
    """A list of texts; a single text is a list of one."""
    if isinstance(value, Mapping):
        raise BadValue("takes a list, not a mapping", "write [ONE, TWO]")
    if value is None:
        return []
    return [text_value(text) for text in (value if isinstance(value, (list, tuple)) else [value])]


def text_value(value: Any) -> str:
    value = checks.scalar_text(value)
    if not isinstance(value, str):
        raise BadValue(f"has a value that is not text: {show(value)}", "write one text")
    return checks.nonempty_line(value)
