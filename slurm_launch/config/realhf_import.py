"""ReaL's cluster spec (CLUSTER_SPEC_PATH), converted to a layer of the site or to a profile.

https://github.com/openpsi-project/ReaLHF documents the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from slurm_launch.config.files import read_text
from slurm_launch.config.profile import node_regex, read_facts
from slurm_launch.errors import InvalidSpec, UsageError, show
from slurm_launch.spec import checks, container_checks
from slurm_launch.spec.checks import BadValue

OPTIONS = {"fileroot": "run_dir", "default_mount": "container_mounts"}
FACTS = {
    "node_type_from_node_name": "node_types",
    "gpu_type_from_node_name": "gpu_types",
    "cpu_image": "cpu_image",
    "gpu_image": "gpu_image",
    "node_name_prefix": "node_prefix",
}
KEYS = ("cluster_type", "cluster_name", *OPTIONS, *FACTS)
MAPPINGS = ("node_type_from_node_name", "gpu_type_from_node_name")
TYPES = ("slurm", "ray")
# The keys that ReaL uses only on a Slurm cluster.
SLURM_ONLY = ("default_mount", *MAPPINGS, "cpu_image", "gpu_image")
DEFAULT_PREFIX = "NODE"  # ReaL's own


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster spec, converted to options and facts."""

    path: Path
    name: str
    options: dict[str, Any] = field(default_factory=dict)  # by field
    facts: dict[str, Any] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)  # ReaL's key -> what it was converted to
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def at(self, field: str, *_: str) -> str:
        """The source of an option or a fact."""
        real_key = next(key for key, name in {**OPTIONS, **FACTS}.items() if name == field)
        return f"cluster spec ({self.path}: {real_key})"


def read(path: Path) -> ClusterSpec:
    """The spec in a file, with warnings. Raises InvalidSpec with all errors."""
    try:
        content, warnings = _read_object(path)
    except UsageError as problem:
        raise InvalidSpec([problem]) from None
    name = content.get("cluster_name")
    spec = ClusterSpec(path, name if isinstance(name, str) and name else path.stem, warnings=warnings)
    problems: list[UsageError] = []
    for key in KEYS:
        if content.get(key) in (None, "", {}):
            continue
        for error in _convert(spec, key, content[key]):
            at = f"cluster spec ({path}: {key})"
            problems.append(UsageError(f"{key} {error}", at=at, hint=error.hint or None))
    problems += read_facts(spec.facts, spec.at)[1]
    if problems:
        raise InvalidSpec(problems)
    _report_unused_keys(spec, content)
    if content.get("cluster_type") == "ray":
        _ignore_slurm_keys(spec)
    if "node_prefix" not in spec.facts:
        spec.facts["node_prefix"] = DEFAULT_PREFIX
    _warn_of_contradictions(spec)
    return spec


def _report_unused_keys(spec: ClusterSpec, keys: Iterable[str]) -> None:
    for key in keys:
        if key not in KEYS:
            close = get_close_matches(key.lower(), KEYS, n=1)
            suggestion = f"; did you mean {close[0]!r}?" if close else ""
            spec.warnings.append(f"{spec.path}: unknown key {show(key)} is ignored{suggestion}")
            spec.results[key] = "ignored: unknown key"
        elif key not in spec.results:
            spec.results[key] = "empty: not used"


def _read_object(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The JSON object in a file, and a warning for each duplicate key."""
    duplicates: list[str] = []

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        duplicates.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(pairs)

    hint = "docs/profiles.md has an example"
    try:
        found = json.loads(read_text(path), object_pairs_hook=as_dict)
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise UsageError(f"the cluster spec is not JSON: {error.msg}", at=where, hint=hint) from None
    except ValueError as error:  # a number with thousands of digits
        raise UsageError(f"the cluster spec is not JSON: {error}", at=str(path), hint=hint) from None
    except RecursionError:
        raise UsageError("the cluster spec is nested too deeply", at=str(path), hint=hint) from None
    except UsageError as problem:
        problem.message = f"the cluster spec: {problem.message}"
        raise
    if not isinstance(found, dict):
        raise UsageError(f"the cluster spec is not a JSON object: {show(found)}", at=str(path), hint=hint)
    return found, [f"{path}: {show(name)} is set twice; the last one is used" for name in duplicates]


def _convert(spec: ClusterSpec, key: str, value: Any) -> list[BadValue]:
    """Check and convert the value of one key. Returns the errors."""
    try:
        if key in MAPPINGS:
            return _convert_mapping(spec, key, value)
        _convert_text(spec, key, value)
    except BadValue as error:
        return [error]
    return []


def _convert_mapping(spec: ClusterSpec, key: str, value: Any) -> list[BadValue]:
    if not isinstance(value, dict) or not all(isinstance(kind, str) for kind in value.values()):
        raise BadValue(f"takes an object with text values, not {show(value)}", 'write {"com-.*": "a100"}')
    found, wrong = {}, []
    for pattern, kind in value.items():
        try:
            found[_whole_name_pattern(node_regex(pattern))] = kind
        except BadValue as error:
            wrong.append(error)
    spec.facts[FACTS[key]] = found
    spec.results[key] = f"{_yaml_key(FACTS[key])}: {', '.join(f'{one} = {kind}' for one, kind in found.items())}"
    return wrong


def _convert_text(spec: ClusterSpec, key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadValue(f"takes text, not {show(value)}", "quote it")
    checks.nonempty_line(value)
    if key == "cluster_type":
        if value not in TYPES:
            close = get_close_matches(value.lower(), TYPES, n=1)
            suggestion = f"did you mean {close[0]!r}? " if close else ""
            raise BadValue(f"has an invalid value: {show(value)}", f"{suggestion}choose from {', '.join(TYPES)}")
        spec.results[key] = f"checked: {value}"
    elif key == "cluster_name":
        spec.results[key] = "the profile's name"
    elif key in FACTS:
        spec.facts[FACTS[key]] = value
        spec.results[key] = f"{_yaml_key(FACTS[key])}: {value}"
    elif key == "default_mount":
        mounts = list(container_checks.mounts((value,)))
        spec.options[OPTIONS[key]] = mounts
        spec.results[key] = f"{_yaml_key(OPTIONS[key])}: {', '.join(mounts)}"
    elif not value.startswith("/"):  # fileroot
        raise BadValue(f"is not an absolute path: {show(value)}", "use a path that is the same on every node")
    else:
        folder = f"{value.rstrip('/')}/logs"
        spec.options[OPTIONS[key]] = folder
        spec.results[key] = f"{_yaml_key(OPTIONS[key])}: {folder}"


def _whole_name_pattern(pattern: str) -> str:
    """A pattern for whole names; ReaL's patterns match the beginning of a name."""
    if "|" not in pattern and pattern.endswith("$"):
        return pattern
    flags = re.match(r"(\(\?[aiLmsux]+\))?", pattern)
    start = flags[0] if flags else ""
    rest = pattern[len(start) :]
    return f"{start}(?:{rest}).*" if "|" in rest else f"{start}{rest}.*"


def _ignore_slurm_keys(spec: ClusterSpec) -> None:
    ignored = [key for key in SLURM_ONLY if key in spec.results and not spec.results[key].startswith("empty")]
    for key in ignored:
        spec.options.pop(OPTIONS.get(key, ""), None)
        spec.facts.pop(FACTS.get(key, ""), None)
        spec.results[key] = "ignored: cluster_type is ray"
    if ignored:
        keys = ", ".join(ignored)
        spec.notes.append(f"{spec.path}: cluster_type is ray, so these keys are ignored, as in ReaL: {keys}")


def _warn_of_contradictions(spec: ClusterSpec) -> None:
    """Warn of contradictions between keys, which ReaL would notice only in the job."""
    prefix = spec.facts["node_prefix"]
    root = spec.options.get("run_dir", "").removesuffix("/logs")
    mounts = [mount.split(":")[:2] for mount in spec.options.get("container_mounts", ())]
    if root and mounts and not any(to == source and _contains(source, root) for source, to in mounts):
        spec.warnings.append(f"{spec.path}: default_mount does not include fileroot: containers do not see {root}")
    for key in MAPPINGS:
        for pattern in spec.facts.get(FACTS[key], ()):
            # Matching names would take forever with expressions such as (a|aa)+$: only the beginnings are compared.
            literal = re.match(r"\^?((?:[A-Za-z0-9_-](?![*+?{]))*)", pattern)
            begin = literal[1] if literal else ""
            if not begin.startswith(prefix[: len(begin)]):
                why = f"{pattern} matches no host of this cluster: their names begin with {prefix}"
                spec.warnings.append(f"{spec.path}: {key}: {why} (node_name_prefix)")


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _yaml_key(field: str) -> str:
    return field.replace("_", "-")


def profile_text(spec: ClusterSpec, name: str) -> str:
    """The spec as a profile."""
    lines = [
        f"# Profile {name}, imported from ReaL's cluster spec {show(str(spec.path), 500)}.",
        f"# Use it with --profile {name}, or with `profile: {name}` in a project file; or list the machines on which",
        "# it is selected automatically:",
        '#hosts: ["login*.example.org"]',
    ]
    for real_key, option in {**OPTIONS, **FACTS}.items():
        value = spec.options.get(option, spec.facts.get(option))
        if value is None:
            continue
        key = _yaml_key(option)
        lines += ["", f"# {real_key}{_REMARKS.get(real_key, '')}"]
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {_quoted(pattern)}: {_quoted(kind)}" for pattern, kind in value.items())]
        elif isinstance(value, list):
            lines += [f"{key}:", *(f"  - {_quoted(item)}" for item in value)]
        else:
            lines.append(f"{key}: {_quoted(value)}")
    return "\n".join(lines) + "\n"


_REMARKS = {
    "fileroot": ": the parent directory of the script, the log and the record",
    "default_mount": ": for jobs with an image",
    "node_type_from_node_name": ": a job whose --node mixes them gets a warning",
    "gpu_type_from_node_name": ": for jobs with --node and --num-gpus",
    "cpu_image": ": for jobs without GPUs",
    "gpu_image": ": for jobs with GPUs, on all of their nodes",
    "node_name_prefix": ": the prefix in --node NODE[01-02] and --node [01-02]",
}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # also valid YAML
