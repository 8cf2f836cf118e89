"""The facts of a site: the keys of a profile that are no options, checked and merged.

An option says how a job is to be; a fact says how the cluster is. site_rules.py draws the conclusions for a job.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from typing import Any, get_args

from slurm_launch.config.layers import (
    Given,
    Item,
    Layer,
    field_of_key,
    merge,
    plain,
    plain_layer,
    sources_of,
)
from slurm_launch.errors import UsageError, show
from slurm_launch.spec import checks, container_checks
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.launch_spec import LaunchSpec

At = Callable[..., str]  # the way to a value, key by key -> where it stands
RUNTIMES = tuple(name for name in get_args(LaunchSpec.model_fields["container_runtime"].annotation) if name != "none")


@dataclass(frozen=True)
class Fact:
    """What help, the starter file and the schema say of a key."""

    help: str
    example: Any
    schema: dict[str, Any]


_TEXT = {"type": ["string", "null"]}
_TEXTS = {"anyOf": [{"type": "array", "items": {"type": "string"}}, _TEXT]}
_BY_REGEX = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "number"]}}

FACTS: dict[str, Fact] = {
    "extends": Fact("Another profile, below this one.", "base", _TEXT),
    "hosts": Fact(
        "Machines on which this profile is chosen by itself: patterns for the host name.",
        ["login*.example.org"],
        _TEXTS,
    ),
    "partitions": Fact(
        "The partitions: options for jobs in them, and the limits max-time, max-nodes and max-gpus (on each node).",
        {"gpu": {"time": "1:00:00", "max-time": "1-00:00:00", "max-nodes": 8, "max-gpus": 4}, "cpu": {}},
        {"type": ["object", "null"]},  # config_text.py says the rest
    ),
    "gpu_types": Fact("Type of a node's GPUs: a regular expression for its name.", {"gpu0.*": "a100"}, _BY_REGEX),
    "node_types": Fact("Type of a node: a regular expression for its name.", {"gpu.*": "fat"}, _BY_REGEX),
    "node_prefix": Fact("What NODE[01-02] and [01-02] in --node begin with here.", "com-", _TEXT),
    "cpu_image": Fact("Container image for jobs without GPUs.", "/images/cpu.sqsh", _TEXT),
    "gpu_image": Fact("Container image for jobs with GPUs.", "/images/gpu.sqsh", _TEXT),
    "container_runtimes": Fact(
        "The container runtimes that there are.",
        ["pyxis"],
        {"anyOf": [{"type": "array", "items": {"enum": list(RUNTIMES)}}, {"enum": [*RUNTIMES, None]}]},
    ),
}
LIMITS: dict[str, dict[str, Any]] = {
    "max_time": {"type": ["string", "number"], "description": "The longest --time."},
    "max_nodes": {"type": "integer", "minimum": 1, "description": "The most nodes of a job."},
    "max_gpus": {"type": "integer", "minimum": 0, "description": "The most GPUs on each node."},
}
FACTS_OF_FILES = ("extends", "hosts")  # about the profile itself: which others are read, and where it is chosen
# In a partition they would choose what has been chosen already.
NOT_BY_PARTITION = ("partition", "profile", "config")


@dataclass(frozen=True)
class Partition:
    """What holds for jobs in one partition."""

    defaults: Layer
    limits: dict[str, Given]
    at: str = ""  # where it is named


@dataclass(frozen=True)
class Site:
    """The facts; None is what nobody has said anything about, an empty mapping takes back what is said below."""

    partitions: dict[str, Partition] | None = None
    gpu_types: dict[str, Given] | None = None
    node_types: dict[str, Given] | None = None
    node_prefix: Given | None = None
    cpu_image: Given | None = None
    gpu_image: Given | None = None
    container_runtimes: Given | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in fields(self))

    def over(self, low: Site) -> Site:
        """These facts on top of others."""
        partitions = self.partitions
        if low.partitions and partitions:
            names = dict.fromkeys((*low.partitions, *partitions))
            partitions = {name: _joined(low.partitions.get(name), partitions.get(name)) for name in names}
        return Site(
            low.partitions if partitions is None else partitions,
            _first_match(self.gpu_types, low.gpu_types),
            _first_match(self.node_types, low.node_types),
            self.node_prefix or low.node_prefix,
            self.cpu_image or low.cpu_image,
            self.gpu_image or low.gpu_image,
            self.container_runtimes or low.container_runtimes,
        )

    def plain(self, sortable: bool = False) -> dict[str, Any]:
        """The facts for JSON, by YAML key, such that reading them back gives the same; `sortable`: with sorted keys."""
        found: dict[str, Any] = {}
        for field in fields(self):
            about = getattr(self, field.name)
            if field.name == "partitions" and about is not None:
                about = {
                    name: plain(part.defaults)
                    | {key.replace("_", "-"): _number(given.value) for key, given in part.limits.items()}
                    for name, part in about.items()
                }
            elif isinstance(about, dict):
                about = {regex: given.value for regex, given in about.items()}
                if sortable and len(about) > 1:  # which of them comes first matters
                    about = [{regex: kind} for regex, kind in about.items()]
            elif about is not None:
                about = [item.text for item in about.value] if isinstance(about.value, tuple) else about.value
            else:
                continue
            found[field.name.replace("_", "-")] = about
        return found

    def rows(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """Every single fact by the way to it, such as partitions.gpu.max-nodes, with its value and its sources."""
        found: dict[str, tuple[Any, tuple[str, ...]]] = {}
        for key, value in self.plain().items():
            about = getattr(self, key.replace("-", "_"))
            if key == "partitions" and about:
                for name, part in about.items():
                    given = {**part.defaults, **part.limits}
                    for one, text in value[name].items():
                        found[f"{key}.{name}.{one}"] = (text, sources_of(given[one.replace("-", "_")]))
                    if not value[name]:
                        found[f"{key}.{name}"] = (None, (part.at,))
            elif isinstance(about, dict) and about:
                found |= {f"{key}.{pattern}": (given.value, (given.at,)) for pattern, given in about.items()}
            else:
                found[key] = (value, self.sources(key))
        return found

    def sources(self, key: str) -> tuple[str, ...]:
        """Where a fact comes from; a mapping's items may come from several places."""
        about = getattr(self, key.replace("-", "_"))
        if isinstance(about, Given):
            return (about.at,)
        given = [
            one
            for part in (about or {}).values()
            for one in ((*part.limits.values(), *part.defaults.values()) if isinstance(part, Partition) else (part,))
        ]
        return tuple(dict.fromkeys(one.at for one in given))


def _joined(low: Partition | None, high: Partition | None) -> Partition:
    parts = [part for part in (low, high) if part is not None]
    defaults, _ = merge([part.defaults for part in parts])  # what is wrong in one was told when it was read
    return Partition(defaults, {key: given for part in parts for key, given in part.limits.items()}, parts[-1].at)


def _first_match(high: dict[str, Given] | None, low: dict[str, Given] | None) -> dict[str, Given] | None:
    """The first that matches wins, so the stronger ones stand first."""
    if high is None or low is None:
        return low if high is None else high
    return {**high, **{regex: given for regex, given in low.items() if regex not in high}} if high else {}


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


# --- reading ---------------------------------------------------------------------------------------------------------


def read_site(facts: Mapping[str, Any], at: At) -> tuple[Site, list[UsageError]]:
    """Facts from YAML or JSON, by field, and all that is wrong with them."""
    problems: list[UsageError] = []
    found: dict[str, Any] = {}
    for field, value in facts.items():
        try:
            if field == "partitions":
                found[field] = dict(_partitions(value, at, problems))
            elif field in ("gpu_types", "node_types"):
                found[field] = dict(_by_regex(field, value, at, problems))
            elif field == "container_runtimes":
                found[field] = Given(tuple(_runtimes(field, value, at, problems)), at(field))
            else:
                check = _prefix if field == "node_prefix" else container_checks.image
                found[field] = Given(None if value is None else check(line(value)), at(field))
        except BadValue as error:
            problems.append(_problem(field, error, at(field)))
    return Site(**found), problems


def texts(value: Any) -> list[str]:
    """A list of texts; one alone stands for a list of one."""
    if isinstance(value, Mapping):
        raise BadValue("takes a list, not a mapping", "write [ONE, TWO]")
    return [line(text) for text in ([] if value is None else value if isinstance(value, (list, tuple)) else [value])]


def line(value: Any) -> str:
    value = checks.scalar_text(value)
    if not isinstance(value, str):
        raise BadValue(f"has a value that is no text: {show(value)}", "write one text")
    return checks.filled(value)


def regex(text: str) -> str:
    """A regular expression for the names of nodes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # Python is going to read it differently
            re.compile(checks.filled(text))
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        hint = "mend it; gpu[0-9]+ fits gpu1 and gpu02, com-.* all that begins with com-"
        raise BadValue(f"has a regular expression that is not valid: {show(text)}: {error}", hint) from None
    return text


def _problem(field: str, error: BadValue, at: str) -> UsageError:
    return UsageError(f"{field.replace('_', '-')} {error}", at=at, hint=error.hint or None)


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):  # Linux has no longer host names
        raise BadValue(f"is not the beginning of a host name: {show(text)}", "write it as in com-01: com-")
    return text


def _runtimes(field: str, value: Any, at: At, problems: list[UsageError]) -> Iterator[Item]:
    for text in texts(value):
        if text in RUNTIMES:
            yield Item(text, at(field))
            continue
        words = re.split(r"[,\s]+", text.strip())
        close = get_close_matches(text.lower(), RUNTIMES, n=1)
        hint = (f"did you mean {close[0]!r}? " if close else "") + f"choose from {', '.join(RUNTIMES)}"
        if len(words) > 1 and all(word in RUNTIMES for word in words):
            hint = f"write [{', '.join(words)}]"
        problems.append(_problem(field, BadValue(f"has no choice {show(text)}", hint), at(field)))


def _mapping(field: str, value: Any, example: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise BadValue(f"takes a mapping, not {show(value)}", f"write `{example}`")
    return value or {}


def _by_regex(field: str, value: Any, at: At, problems: list[UsageError]) -> Iterator[tuple[str, Given]]:
    """From a mapping, or from a list of mappings: a script's header has its keys sorted, a list keeps its order."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    for place, part in enumerate(parts):
        way = (field, str(place)) if part is not value else (field,)
        try:
            pairs = _mapping(field, part, f"{field.replace('_', '-')}: {{gpu.*: a100}}")
        except BadValue as error:
            problems.append(_problem(field, error, at(field)))
            continue
        for pattern, kind in pairs.items():
            here, before = at(*way, pattern), len(problems)
            for check, text in ((regex, pattern), (line, kind)):
                try:
                    check(text)
                except BadValue as error:
                    problems.append(_problem(field, error, here))
            if len(problems) == before:
                yield pattern, Given(line(kind), here)


def _partitions(value: Any, at: At, problems: list[UsageError]) -> Iterator[tuple[str, Partition]]:
    for name, about in _mapping("partitions", value, "partitions: {gpu: {time: 1:00:00}}").items():
        options: dict[str, Any] = {}
        limits: dict[str, Given] = {}
        try:
            about = _mapping("partitions", about, f"{name}: {{time: 1:00:00}}")
        except BadValue as error:
            problems.append(_problem("partitions", error, at("partitions", name)))
            continue
        for key, text in about.items():
            here = at("partitions", name, key)
            try:
                field = field_of_key(key, here, LIMITS)
                if field in NOT_BY_PARTITION:
                    raise UsageError(f"{key} cannot stand in a partition", at=here, hint="leave it out")
                if field in limits or field in options:
                    raise UsageError(f"{key} is given twice", at=here, hint="keep one")
                if field in LIMITS:
                    limits[field] = Given(_limit(field, line(text)), here)
                else:
                    options[field] = text
            except UsageError as problem:
                problems.append(problem)
            except BadValue as error:
                problems.append(_problem(key, error, here))
        defaults, wrong = plain_layer(options, partial(_at_key, at, name, about))
        problems += wrong + merge([defaults])[1]
        yield name, Partition(defaults, limits, at("partitions", name))


def _at_key(at: At, name: str, about: Mapping[str, Any], field: str) -> str:
    return at("partitions", name, next(key for key in about if key.replace("-", "_") == field))


def _limit(field: str, text: str) -> str:
    if field == "max_time":
        if len(text) > 30:
            raise BadValue(f"is not a time that Slurm knows: {show(text)}", "write one like 1-00:00:00")
        return checks.slurm_time(text)
    if not re.fullmatch("[0-9]{1,9}", text) or (field == "max_nodes" and int(text) < 1):
        raise BadValue(f"is not a number of {field[4:]}: {show(text)}", "write a whole number")
    return text
