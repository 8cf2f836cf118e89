"""Texts generated from the spec: the starter file and the JSON schema of configuration files."""

from __future__ import annotations

import json
from typing import Any

from slurm_launch.config.files import PROJECT_FILE
from slurm_launch.config.layers import is_list, is_mapping
from slurm_launch.config.profile_keys import FACTS, LIMITS, NOT_BY_PARTITION
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import EXPERIMENT, GROUPS

SITE = "Facts about the cluster (docs/profiles.md)"
_PROJECT_HEAD = f"""\
# {PROJECT_FILE}: settings for all launches from this directory and below.
# Uncomment what you need. Flags and SLAUNCH_* variables override this file; it overrides a profile.
# `slurm-launch config show` prints every value and its source.
"""
_PROFILE_HEAD = """\
# Profile {name}: settings for one cluster. Use it with --profile {name}, or with `profile: {name}` in a project file.
# Uncomment what you need. Flags, SLAUNCH_* variables and the project file override it.
# `slurm-launch config show --profile {name}` prints every value and its source.
"""


def starter_file(profile: str | None = None) -> str:
    """A configuration file with every option, explained and commented out."""
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
    """The lines of a key and its value."""
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
    """An example value as YAML that is also JSON."""
    examples, default = options()[name].examples, LaunchSpec.model_fields[name].get_default()
    value = examples[0] if examples else default
    if is_mapping(name):
        key, _, text = str(value).partition("=")
        return f"{{{key}: {json.dumps(text)}}}"
    if is_list(name):
        return json.dumps([value])
    return _plain(value)


def _plain(value: Any) -> str:
    """A single value, quoted unless it is a plain word."""
    if isinstance(value, str) and value.replace("-", "").replace("_", "").isalnum() and not value[0].isdigit():
        return value
    return json.dumps(value)


def file_schema() -> dict[str, Any]:
    """The JSON schema of a configuration file, for editors and forms."""
    schema = LaunchSpec.model_json_schema(by_alias=True)
    schema.pop("required", None)  # every key in a file is optional
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
        about = {"title": key.replace("-", " ").capitalize(), "description": f"{fact.help} Only in profiles."}
        properties[key] = {**about, "group": SITE, "examples": [fact.example], **fact.schema}
    partition = {"type": ["object", "null"], "properties": in_partition, "additionalProperties": False}
    properties["partitions"]["additionalProperties"] = partition
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


_SCALAR = {"type": ["string", "number", "boolean"]}  # an unquoted YAML number may be meant as text
_ITEMS = {"type": "array", "items": _SCALAR}


def _property(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """One option as a file accepts it: numbers as text, one item as a list, null to reset it."""
    kept: dict[str, Any] = {key: found[key] for key in ("description", "group", "examples", "default") if key in found}
    kept = {"title": name.replace("_", " ").capitalize(), **{key: kept[key] for key in kept if kept[key] is not None}}
    if is_mapping(name):
        pairs = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
        return {**kept, "anyOf": [pairs, _ITEMS, {"type": ["string", "null"]}]}
    if is_list(name):
        return {**kept, "anyOf": [_ITEMS, {"type": ["string", "number", "null"]}]}
    kinds = found.get("anyOf") or [{key: value for key, value in found.items() if key not in (*kept, "default")}]
    kinds = [_SCALAR if kind == {"type": "string"} else kind for kind in kinds if kind != {"type": "null"}]
    if name == "object_store_memory":  # bytes in the spec, but written as 8G
        kinds = [{"type": ["string", "integer"]}]
    return {**kept, "anyOf": [*kinds, {"type": "null"}]}
