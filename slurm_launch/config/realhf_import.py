"""ReaL's cluster spec (CLUSTER_SPEC_PATH) as a layer of the site, and as a profile.

https://github.com/openpsi-project/ReaLHF describes the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from slurm_launch.config.files import read_text
from slurm_launch.config.profile import read_site, regex
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
# What ReaL reads on a Slurm cluster only.
SLURM_ONLY = ("default_mount", *MAPPINGS, "cpu_image", "gpu_image")
DEFAULT_PREFIX = "NODE"  # ReaL's own


@dataclass(frozen=True)
class ClusterSpec:
    """What a file says, in our words."""

    path: Path
    name: str
    options: dict[str, Any] = field(default_factory=dict)  # by field
    facts: dict[str, Any] = field(default_factory=dict)
    fates: dict[str, str] = field(default_factory=dict)  # ReaL's key -> what became of it
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def at(self, field: str, *_: str) -> str:
        """Where an option or a fact stands."""
        theirs = next(key for key, ours in {**OPTIONS, **FACTS}.items() if ours == field)
        return f"cluster spec ({self.path}: {theirs})"


def read(path: Path) -> ClusterSpec:
    """The spec in a file. Raises InvalidSpec with all that is wrong; what is merely odd is told in it."""
    try:
        given, warnings = _object(path)
    except UsageError as problem:
        raise InvalidSpec([problem]) from None
    name = given.get("cluster_name")
    spec = ClusterSpec(path, name if isinstance(name, str) and name else path.stem, warnings=warnings)
    problems: list[UsageError] = []
    for key in KEYS:
        if given.get(key) in (None, "", {}):
            continue
        for error in _take(spec, key, given[key]):
            at = f"cluster spec ({path}: {key})"
            problems.append(UsageError(f"{key} {error}", at=at, hint=error.hint or None))
    problems += read_site(spec.facts, spec.at)[1]
    if problems:
        raise InvalidSpec(problems)
    for key in given:
        if key not in KEYS:
            close = get_close_matches(key.lower(), KEYS, n=1)
            mean = f"; did you mean {close[0]!r}?" if close else ""
            spec.warnings.append(f"{path}: {show(key)} is no key of a cluster spec and is ignored{mean}")
            spec.fates[key] = "ignored: no key of a cluster spec"
        elif key not in spec.fates:
            spec.fates[key] = "empty: not used"
    if given.get("cluster_type") == "ray":
        _leave_slurm_out(spec)
    if "node_prefix" not in spec.facts:
        spec.facts["node_prefix"] = DEFAULT_PREFIX
    _contradictions(spec)
    return spec


def _object(path: Path) -> tuple[dict[str, Any], list[str]]:
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice.extend(sorted({name for name in names if names.count(name) > 1}))
        return dict(pairs)

    hint = "docs/profiles.md shows one"
    try:
        found = json.loads(read_text(path), object_pairs_hook=once)
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise UsageError(f"the cluster spec is not JSON: {error.msg}", at=where, hint=hint) from None
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"the cluster spec is not JSON: {error}", at=str(path), hint=hint) from None
    except RecursionError:
        raise UsageError("the cluster spec is nested too deeply", at=str(path), hint=hint) from None
    except UsageError as problem:
        problem.message = f"the cluster spec: {problem.message}"
        raise
    if not isinstance(found, dict):
        raise UsageError(f"the cluster spec is no JSON object: {show(found)}", at=str(path), hint=hint)
    return found, [f"{path}: {show(name)} is given twice; the last one counts" for name in twice]


def _take(spec: ClusterSpec, key: str, value: Any) -> list[BadValue]:
    """Put one key's value where it belongs, checked; all that is wrong with it."""
    try:
        if key in MAPPINGS:
            return _take_mapping(spec, key, value)
        _take_text(spec, key, value)
    except BadValue as error:
        return [error]
    return []


def _take_mapping(spec: ClusterSpec, key: str, value: Any) -> list[BadValue]:
    if not isinstance(value, dict) or not all(isinstance(kind, str) for kind in value.values()):
        raise BadValue(f"takes an object with texts, not {show(value)}", 'write {"com-.*": "a100"}')
    found, wrong = {}, []
    for pattern, kind in value.items():
        try:
            found[_whole(regex(pattern))] = kind
        except BadValue as error:
            wrong.append(error)
    spec.facts[FACTS[key]] = found
    spec.fates[key] = f"{_yaml_key(FACTS[key])}: {', '.join(f'{one} = {kind}' for one, kind in found.items())}"
    return wrong


def _take_text(spec: ClusterSpec, key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadValue(f"takes a text, not {show(value)}", "put it in quotes")
    checks.filled(value)
    if key == "cluster_type":
        if value not in TYPES:
            close = get_close_matches(value.lower(), TYPES, n=1)
            mean = f"did you mean {close[0]!r}? " if close else ""
            raise BadValue(f"has no choice {show(value)}", f"{mean}choose from {', '.join(TYPES)}")
        spec.fates[key] = f"checked: {value}"
    elif key == "cluster_name":
        spec.fates[key] = "the profile's name"
    elif key in FACTS:
        spec.facts[FACTS[key]] = value
        spec.fates[key] = f"{_yaml_key(FACTS[key])}: {value}"
    else:
        if key == "fileroot" and not value.startswith("/"):
            raise BadValue(f"is not an absolute path: {show(value)}", "every node must find it under the same path")
        ours: Any = list(container_checks.mounts((value,))) if key == "default_mount" else f"{value.rstrip('/')}/logs"
        spec.options[OPTIONS[key]] = ours
        spec.fates[key] = f"{_yaml_key(OPTIONS[key])}: {ours if isinstance(ours, str) else ', '.join(ours)}"


def _whole(pattern: str) -> str:
    """ReaL looks at the beginning of a name, we look at all of it."""
    if "|" not in pattern and pattern.endswith("$"):
        return pattern
    flags = re.match(r"(\(\?[aiLmsux]+\))?", pattern)
    start = flags[0] if flags else ""
    rest = pattern[len(start) :]
    return f"{start}(?:{rest}).*" if "|" in rest else f"{start}{rest}.*"


def _leave_slurm_out(spec: ClusterSpec) -> None:
    left = [key for key in SLURM_ONLY if key in spec.fates and not spec.fates[key].startswith("empty")]
    for key in left:
        spec.options.pop(OPTIONS.get(key, ""), None)
        spec.facts.pop(FACTS.get(key, ""), None)
        spec.fates[key] = "ignored: cluster_type is ray"
    if left:
        spec.notes.append(f"{spec.path}: cluster_type is ray, so these are ignored, as in ReaL: {', '.join(left)}")


def _contradictions(spec: ClusterSpec) -> None:
    """What cannot be meant; ReaL would find out in the job."""
    prefix = spec.facts["node_prefix"]
    root = spec.options.get("run_dir", "").removesuffix("/logs")
    mounts = [mount.split(":")[:2] for mount in spec.options.get("container_mounts", ())]
    if root and mounts and not any(to == source and _covers(source, root) for source, to in mounts):
        spec.warnings.append(f"{spec.path}: default_mount does not cover fileroot: {root} is not in the containers")
    for key in MAPPINGS:
        for pattern in spec.facts.get(FACTS[key], ()):
            # To try names would take for ever with some expressions, (a|aa)+$ for one: their beginnings are compared.
            plain = re.match(r"\^?((?:[A-Za-z0-9_-](?![*+?{]))*)", pattern)
            begin = plain[1] if plain else ""
            if not begin.startswith(prefix[: len(begin)]):
                why = f"no host of this cluster can match {pattern}, their names begin with {prefix}"
                spec.warnings.append(f"{spec.path}: {key}: {why} (node_name_prefix)")


def _covers(above: str, path: str) -> bool:
    return path == above or path.startswith(above.rstrip("/") + "/")


def _yaml_key(field: str) -> str:
    return field.replace("_", "-")


def profile_text(spec: ClusterSpec, name: str) -> str:
    """The spec as a profile."""
    lines = [
        f"# Profile {name}: ReaL's cluster spec {show(str(spec.path), 500)}, imported.",
        f"# Use it with --profile {name}, or with `profile: {name}` in a project file; or give it the names of the",
        "# machines on which it is to be used by itself:",
        '#hosts: ["login*.example.org"]',
    ]
    for theirs, ours in {**OPTIONS, **FACTS}.items():
        about = spec.options.get(ours, spec.facts.get(ours))
        if about is None:
            continue
        lines += ["", f"# {theirs}{_REMARKS.get(theirs, '')}"]
        if isinstance(about, dict):
            lines += [f"{_yaml_key(ours)}:", *(f"  {_quoted(key)}: {_quoted(kind)}" for key, kind in about.items())]
        elif isinstance(about, list):
            lines += [f"{_yaml_key(ours)}:", *(f"  - {_quoted(item)}" for item in about)]
        else:
            lines.append(f"{_yaml_key(ours)}: {_quoted(about)}")
    return "\n".join(lines) + "\n"


_REMARKS = {
    "fileroot": ": the script, the log and the record go below it",
    "default_mount": ": where a job has an image",
    "node_type_from_node_name": ": a job whose --node mixes them gets a warning",
    "gpu_type_from_node_name": ": for jobs with --node and --num-gpus",
    "cpu_image": ": for jobs without GPUs",
    "gpu_image": ": for jobs with GPUs, on all their nodes",
    "node_name_prefix": ": --node NODE[01-02] and --node [01-02] begin with it",
}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # which is YAML too
