"""Texts about the configuration that follow from the spec: the file to begin with, and the JSON schema."""

from __future__ import annotations

import json
from typing import Any

from slurm_launch.config.files import PROJECT_FILE
from slurm_launch.config.layers import is_list, is_mapping
from slurm_launch.config.profile import FACTS, LIMITS, NOT_BY_PARTITION
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import EXPERIMENT, GROUPS

SITE = "The cluster itself (docs/profiles.md)"
_PROJECT_HEAD = f"""\
# {PROJECT_FILE}: settings for all launches from this directory and below.
# Take the # away from what you need. Flags and SLAUNCH_* variables win over this file; it wins over a profile.
# `slurm-launch config show` tells every value and where it comes from.
"""
_PROFILE_HEAD = """\
# Profile {name}: what one cluster wants. Use it with --profile {name}, or with `profile: {name}` in a project file.
# Take the # away from what you need. Flags, SLAUNCH_* variables and the project file win over it.
# `slurm-launch config show --profile {name}` tells every value and where it comes from.
"""


def starter_file(profile: str | None = None) -> str:
    """A configuration file with every option in it, explained and commented out."""
    lines = [_PROJECT_HEAD if profile is None else _PROFILE_HEAD.format(name=profile)]
    if profile is not None:
        lines.append(f"# {f'--- {SITE} ':-<100}\n")
        for key, fact in FACTS.items():
            lines += [f"# {fact.help}", *(f"#{text}" for text in _block(key.replace("_", "-"), fact.example)), ""]
    for group in GROUPS:
        if profile is not None and group == EXPERIMENT:
            continue
        lines.append(f"# {f'--- {group} ':-<100}\n")
        for name, option in options().items():
            if option.group != group or not option.layered or (profile is not None and name == "profile"):
                continue
            lines += [f"# {option.help}{_default(name, option.help)}", f"#{name.replace('_', '-')}: {_example(name)}\n"]
    return "\n".join(lines)


def _block(key: str, value: Any) -> list[str]:
    """A value below its key, each on a line of its own."""
    if isinstance(value, dict) and value:
        inner = [text for name, below in value.items() for text in _block(name, below)]
    elif isinstance(value, list):
        inner = [f"- {_plain(item)}" for item in value]
    else:
        return [f"{key}:" if value == {} else f"{key}: {_plain(value)}"]
    return [f"{key}:", *(f"  {text}" for text in inner)]


def _default(name: str, help: str) -> str:
    default = LaunchSpec.model_fields[name].get_default()
    if "Default:" in help or default in (None, (), {}) or LaunchSpec.model_fields[name].is_required():
        return ""
    return f" Default: {json.dumps(default)}"


def _example(name: str) -> str:
    """A value as it would stand in the file; a form of YAML that is JSON too."""
    examples, default = options()[name].examples, LaunchSpec.model_fields[name].get_default()
    value = examples[0] if examples else default
    if is_mapping(name):
        key, _, text = str(value).partition("=")
        return f"{{{key}: {json.dumps(text)}}}"
    if is_list(name):
        return json.dumps([value])
    return _plain(value)


def _plain(value: Any) -> str:
    """A single value, in quotes where others would wonder what it means."""
    if isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum() and not value[0].isdigit():
        return value
    return json.dumps(value)


def file_schema() -> dict[str, Any]:
    """The JSON schema of a configuration file: for editors, and for whoever draws a form."""
    schema = LaunchSpec.model_json_schema(by_alias=True)
    schema.pop("required", None)  # a file may hold as little as it likes
    properties = schema["properties"]
    for name, option in options().items():
        key = name.replace("_", "-")
        if option.layered:
            properties[key] = _property(name, properties[key])
        else:
            del properties[key]
    in_partition = {
        key: {"$ref": f"#/properties/{key}"} for key in properties if key.replace("-", "_") not in NOT_BY_PARTITION
    }
    in_partition |= {key.replace("_", "-"): about for key, about in LIMITS.items()}
    for name, fact in FACTS.items():
        key = name.replace("_", "-")
        about = {"title": key.replace("-", " ").capitalize(), "description": f"{fact.help} In profiles only."}
        properties[key] = {**about, "group": SITE, "examples": [fact.example], **fact.schema}
    partition = {"type": ["object", "null"], "properties": in_partition, "additionalProperties": False}
    properties["partitions"]["additionalProperties"] = partition
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


_SCALAR = {"type": ["string", "number", "boolean"]}  # YAML reads text that looks like a number as one; we do not
_ITEMS = {"type": "array", "items": _SCALAR}


def _property(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """One option, as the file takes it: numbers for text, one item for a list, null to take a value back."""
    kept: dict[str, Any] = {key: found[key] for key in ("description", "group", "examples", "default") if key in found}
    kept = {"title": name.replace("_", " ").capitalize(), **{key: kept[key] for key in kept if kept[key] is not None}}
    if is_mapping(name):
        pairs = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
        return {**kept, "anyOf": [pairs, _ITEMS, {"type": ["string", "null"]}]}
    if is_list(name):
        return {**kept, "anyOf": [_ITEMS, {"type": ["string", "number", "null"]}]}
    kinds = found.get("anyOf") or [{key: value for key, value in found.items() if key not in (*kept, "default")}]
    kinds = [_SCALAR if kind == {"type": "string"} else kind for kind in kinds if kind != {"type": "null"}]
    if name == "object_store_memory":  # the spec holds bytes; people write 8G
        kinds = [{"type": ["string", "integer"]}]
    return {**kept, "anyOf": [*kinds, {"type": "null"}]}
