"""A worker group as text: n=2,gpus=8,cpus=16,mem=64G,partition=big,labels=fast."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from slurm_launch.errors import show
from slurm_launch.slurm import hostlist
from slurm_launch.spec import checks
from slurm_launch.spec.checks import BadValue

EXAMPLE = "n=2,gpus=8,partition=big,labels=fast"
MAX_NUMBER = 100_000
_QUOTED = r'"(?:[^"]|"")*"'  # as in the values of a sweep


@dataclass(frozen=True)
class WorkerGroup:
    """The values of a group; None: the value of the plain option."""

    n: int
    gpus: int | None = None
    gpu_type: str | None = None
    cpus: int | None = None
    mem: str | None = None
    partition: str | None = None
    constraint: str | None = None
    node: str | None = None
    labels: dict[str, str] = field(default_factory=dict)  # of each of its nodes, for Ray
    resources: dict[str, int] = field(default_factory=dict)  # custom ones of each of its nodes, for Ray


def as_text(item: Any) -> Any:
    """The text of a group that was given as a mapping, as in YAML or Python."""
    if not isinstance(item, Mapping):
        return item
    return ",".join(_pair(str(key), value) for key, value in item.items())


def _pair(key: str, value: object) -> str:
    _field_name(key)  # refuses a key such as `n=1,gpus`
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadValue(f"has a value of the wrong type: {key}: {show(value)}", f"write it as text: {EXAMPLE}")
    return f"{key}={quoted(str(value))}"


def quoted(value: str) -> str:
    """A value, in quotes if it contains a separator: partition="big,short"."""
    bare = re.sub(r'\[[^\[\]"]*\]', "", value)  # a comma in brackets is not a separator
    return '"' + value.replace('"', '""') + '"' if re.search(r'[",\[\]]', bare) else value


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    if not re.fullmatch(_QUOTED, value):
        raise BadValue(f"has an unterminated quote: {show(value)}", 'write "big,short"; a quote inside is ""')
    return value[1:-1].replace('""', '"')


def _field_name(key: str) -> str:
    name = key.replace("-", "_")
    if name not in _PARSERS:
        close = get_close_matches(key, _KEYS, n=1, cutoff=0.5)
        hint = (f"did you mean {close[0]!r}? " if close else "") + f"valid keys: {', '.join(_KEYS)}"
        raise BadValue(f"has an unknown key: {show(key)}", hint)
    return name


def check(text: str) -> str:
    """Return the text as the user wrote it, if it is valid."""
    parse(text)
    return text


def parse(text: str) -> WorkerGroup:
    """The group that a text describes; BadValue if it is not valid."""
    values = _values(text)
    if "node" in values:
        hosts = len(hostlist.expand(values["node"]))
        if values.setdefault("n", hosts) != hosts:
            raise BadValue(f"has n={values['n']}, but its node= names {hosts}", "make them agree")
    if "n" not in values:
        raise BadValue(f"does not specify the number of nodes: {show(text)}", f"add n=, for example {EXAMPLE}")
    # A label without a value is also a resource: with it a task finds its group in every version of Ray.
    labels = {name: 1 for name, value in values.get("labels", {}).items() if value == "true"}
    return WorkerGroup(**{**values, "resources": {**labels, **values.get("resources", {})}})


def _values(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in _parts(text):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            hint = f'write KEY=VALUE, for example {EXAMPLE}; quote a value with commas: "..."'
            raise BadValue(f"has a part without a value: {show(part)}", hint)
        name = _field_name(key)
        if name in values:
            raise BadValue(f"sets {key} twice: {show(text)}", "keep one; repeat --worker-group for another group")
        try:
            values[name] = _PARSERS[name](_unquoted(value))
        except BadValue as error:
            raise BadValue(f"{key}= {error}", error.hint) from None
    return values


def _parts(text: str) -> list[str]:
    """The parts between commas outside of quotes and brackets: node=n[1,3] is one part."""
    parts = []
    start = 0
    for match in re.finditer(rf"{_QUOTED}|\[[^\[\]]*\]|,", text):
        if match[0] == ",":
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


# --- the values ------------------------------------------------------------------------------------------------------


def _number(least: int) -> Callable[[str], int]:
    def parse_number(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= MAX_NUMBER:
            raise BadValue(f"is not a number of {least} or more: {show(text)}", f"write, for example, {EXAMPLE}")
        return int(text)

    return parse_number


def _partition(text: str) -> str:
    if re.search(r"[\[\]]", text):
        raise BadValue(f"is not the name of a partition: {show(text)}", 'for several, write partition="big,short"')
    return checks.nonempty_line(text)


# What Ray accepts for both parts of a label.
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABELS_HINT = "write labels=fast, or labels=tier:fast+zone:a"


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for item in text.split("+"):
        key, colon, value = item.partition(":")
        if not _LABEL.fullmatch(key) or (colon and not _LABEL.fullmatch(value)):
            raise BadValue(f"is not a label: {show(item)}", f"{_LABELS_HINT}; use letters, digits and . _ -")
        if key in labels:
            raise BadValue(f"is duplicated: {show(key)}", "keep one")
        if not colon:
            _resource_name(key)
        labels[key] = value if colon else "true"
    return labels


def _resources(text: str) -> dict[str, int]:
    resources: dict[str, int] = {}
    for item in text.split("+"):
        name, _, amount = item.rpartition(":")
        if not re.fullmatch(r"\d{1,9}", amount, re.ASCII) or not int(amount):  # Ray accepts whole numbers only
            raise BadValue(f"is not an amount of a resource: {show(item)}", "write resources=fast:4, or fast:4+disk:2")
        if _resource_name(name) in resources:
            raise BadValue(f"is duplicated: {show(name)}", "keep one")
        resources[name] = int(amount)
    return resources


def _resource_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name, re.ASCII):
        raise BadValue(f"is not the name of a resource: {show(name)}", "use letters, digits and . _ -")
    if name.lower() in ("cpu", "gpu", "memory", "object_store_memory"):
        raise BadValue(f"is a built-in resource of Ray: {show(name)}", "use cpus=, gpus= or mem=, or another name")
    return name


_PARSERS: dict[str, Callable[[str], Any]] = {
    "n": _number(1),
    "gpus": _number(0),
    "gpu_type": checks.nonempty_line,
    "cpus": _number(1),
    "mem": checks.memory,
    "partition": _partition,
    "constraint": checks.nonempty_line,
    "node": checks.nodelist,
    "labels": _labels,
    "resources": _resources,
}
_KEYS = [name.replace("_", "-") for name in _PARSERS]
