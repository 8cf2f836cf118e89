"""One kind of worker, as a user writes it: n=2,gpus=8,cpus=16,mem=64G,partition=big,labels=fast."""

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
MOST_NODES = 100_000
_QUOTED = r'"(?:[^"]|"")*"'  # as in the values of a sweep


@dataclass(frozen=True)
class WorkerGroup:
    """None: as the plain option says."""

    n: int
    gpus: int | None = None
    gpu_type: str | None = None
    cpus: int | None = None
    mem: str | None = None
    partition: str | None = None
    constraint: str | None = None
    node: str | None = None
    labels: dict[str, str] = field(default_factory=dict)  # that Ray gets for each of its nodes
    resources: dict[str, int] = field(default_factory=dict)  # custom ones, for each of its nodes


def as_text(item: Any) -> Any:
    """A mapping, as YAML and Python have it, as the same text that a flag takes."""
    if not isinstance(item, Mapping):
        return item
    return ",".join(_pair(str(key), value) for key, value in item.items())


def _pair(key: str, value: object) -> str:
    _field(key)  # n=1,gpus is none
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadValue(f"has a value of the wrong type: {key}: {show(value)}", f"write it as text: {EXAMPLE}")
    return f"{key}={quoted(str(value))}"


def quoted(value: str) -> str:
    """A value such that it stays one among others: partition="big,short"."""
    bare = re.sub(r'\[[^\[\]"]*\]', "", value)  # within brackets a comma does no harm
    return '"' + value.replace('"', '""') + '"' if re.search(r'[",\[\]]', bare) else value


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    if not re.fullmatch(_QUOTED, value):
        raise BadValue(f"has a quote without its end: {show(value)}", 'write "big,short"; a quote within is ""')
    return value[1:-1].replace('""', '"')


def _field(key: str) -> str:
    name = key.replace("-", "_")
    if name not in _READERS:
        close = get_close_matches(key, _KEYS, n=1, cutoff=0.5)
        hint = (f"did you mean {close[0]!r}? " if close else "") + f"there are {', '.join(_KEYS)}"
        raise BadValue(f"has an unknown key: {show(key)}", hint)
    return name


def checked(text: str) -> str:
    """The text itself; it stays what the user wrote."""
    parse(text)
    return text


def parse(text: str) -> WorkerGroup:
    found: dict[str, Any] = {}
    for part in _parts(text):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value:
            hint = f'write KEY=VALUE, for example {EXAMPLE}; a value with commas goes in "..."'
            raise BadValue(f"has a part without a value: {show(part)}", hint)
        name = _field(key)
        if name in found:
            raise BadValue(f"says {key} twice: {show(text)}", "keep one; repeat --worker-group for another group")
        value = _unquoted(value)
        try:
            found[name] = _READERS[name](value)
        except BadValue as error:
            raise BadValue(f"{key}= {error}", error.hint) from None
    if "n" not in found and "node" in found:
        found["n"] = len(hostlist.expand(found["node"]))
    if "n" not in found:
        raise BadValue(f"does not say how many nodes: {show(text)}", f"add n=, for example {EXAMPLE}")
    group = WorkerGroup(**found)
    if group.node is not None and len(hostlist.expand(group.node)) != group.n:
        raise BadValue(f"has n={group.n}, but its node= names {len(hostlist.expand(group.node))}", "make them agree")
    # A word that is a label is a resource too: by that work finds its group with any version of Ray.
    words = {word: 1 for word, value in group.labels.items() if value == "true"}
    return WorkerGroup(**{**found, "resources": {**words, **group.resources}})


def _parts(text: str) -> list[str]:
    """What stands between the commas outside of quotes and brackets: node=n[1,3] is one part."""
    found, begin = [], 0
    for mark in re.finditer(rf"{_QUOTED}|\[[^\[\]]*\]|,", text):
        if mark[0] == ",":
            found.append(text[begin : mark.start()])
            begin = mark.end()
    return [*found, text[begin:]]


# --- its values ------------------------------------------------------------------------------------------------------


def _number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= MOST_NODES:
            raise BadValue(f"is not a number from {least} on: {show(text)}", f"write it like {EXAMPLE}")
        return int(text)

    return read


def _partition(text: str) -> str:
    if re.search(r"[\[\]]", text):
        raise BadValue(f"is no name of a partition: {show(text)}", 'of several write partition="big,short"')
    return checks.filled(text)


# What Ray takes for both parts of a label.
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LABELS_HINT = "write labels=fast, or labels=tier:fast+zone:a"


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split("+"):
        key, colon, value = item.partition(":")
        if not _LABEL.fullmatch(key) or (colon and not _LABEL.fullmatch(value)):
            raise BadValue(f"is no label: {show(item)}", f"{_LABELS_HINT}; letters, digits and . _ - make a label")
        if key in found:
            raise BadValue(f"is there twice: {show(key)}", "keep one")
        if not colon:
            _resource_name(key)
        found[key] = value if colon else "true"
    return found


def _resources(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in text.split("+"):
        name, _, amount = item.rpartition(":")
        if not re.fullmatch(r"\d{1,9}", amount, re.ASCII) or not int(amount):  # Ray takes whole numbers only
            raise BadValue(f"is no amount of a resource: {show(item)}", "write resources=fast:4, or fast:4+disk:2")
        if _resource_name(name) in found:
            raise BadValue(f"is there twice: {show(name)}", "keep one")
        found[name] = int(amount)
    return found


def _resource_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", name, re.ASCII):
        raise BadValue(f"is no name of a resource: {show(name)}", "letters, digits and . _ - make a name")
    if name.lower() in ("cpu", "gpu", "memory", "object_store_memory"):
        raise BadValue(f"is a resource of Ray's own: {show(name)}", "say cpus=, gpus= or mem=, or choose another name")
    return name


_READERS: dict[str, Callable[[str], Any]] = {
    "n": _number(1),
    "gpus": _number(0),
    "gpu_type": checks.filled,
    "cpus": _number(1),
    "mem": checks.memory,
    "partition": _partition,
    "constraint": checks.filled,
    "node": checks.nodelist,
    "labels": _labels,
    "resources": _resources,
}
_KEYS = [name.replace("_", "-") for name in _READERS]
