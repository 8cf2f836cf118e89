"""The facts in profiles: read, checked and merged.

An option describes the job, a fact describes the cluster. profile_rules.py applies the facts to a job.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import partial
from typing import Any

from slurm_launch.config import layers
from slurm_launch.config.layers import Item, Layer, Setting, field_of_key, layer_from_values, merge, sources_of
from slurm_launch.config.profile_keys import LIMITS, NOT_BY_PARTITION, RUNTIMES, text_list, text_value
from slurm_launch.errors import UsageError, show
from slurm_launch.spec import checks, container_checks
from slurm_launch.spec.checks import BadValue

SourceOf = Callable[..., str]  # the keys that lead to a value -> the source of the value


@dataclass(frozen=True)
class PartitionRules:
    """The options and limits for jobs in one partition."""

    defaults: Layer
    limits: dict[str, Setting]
    at: str = ""  # where the partition is named


@dataclass(frozen=True)
class SiteFacts:
    """The facts about a cluster. None: not set; an empty mapping resets what a lower profile sets."""

    partitions: dict[str, PartitionRules] | None = None
    gpu_types: dict[str, Setting] | None = None
    node_types: dict[str, Setting] | None = None
    node_prefix: Setting | None = None
    cpu_image: Setting | None = None
    gpu_image: Setting | None = None
    container_runtimes: Setting | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in fields(self))

    def merged_over(self, low: SiteFacts) -> SiteFacts:
        """These facts with precedence over those of a lower layer."""
        partitions = self.partitions
        if low.partitions and partitions:
            names = dict.fromkeys((*low.partitions, *partitions))
            partitions = {name: _merge_partition(low.partitions.get(name), partitions.get(name)) for name in names}
        return SiteFacts(
            low.partitions if partitions is None else partitions,
            _merge_patterns(self.gpu_types, low.gpu_types),
            _merge_patterns(self.node_types, low.node_types),
            self.node_prefix or low.node_prefix,
            self.cpu_image or low.cpu_image,
            self.gpu_image or low.gpu_image,
            self.container_runtimes or low.container_runtimes,
        )

    def as_json(self, sortable: bool = False) -> dict[str, Any]:
        """The facts for JSON, by YAML key. Reading them back gives the same facts, with `sortable` also if the keys
        have been sorted."""
        values: dict[str, Any] = {}
        for field in fields(self):
            fact = getattr(self, field.name)
            if fact is None:
                continue
            if field.name == "partitions":
                value: Any = {name: _partition_as_json(rules) for name, rules in fact.items()}
            elif isinstance(fact, dict):
                value = {regex: setting.value for regex, setting in fact.items()}
                if sortable and len(value) > 1:  # the order matters: the first match is used
                    value = [{regex: kind} for regex, kind in value.items()]
            else:
                value = [item.text for item in fact.value] if isinstance(fact.value, tuple) else fact.value
            values[field.name.replace("_", "-")] = value
        return values

    def rows(self) -> dict[str, tuple[Any, tuple[str, ...]]]:
        """Each single fact by its key, such as partitions.gpu.max-nodes, with its value and its sources."""
        found: dict[str, tuple[Any, tuple[str, ...]]] = {}
        for key, value in self.as_json().items():
            fact = getattr(self, key.replace("-", "_"))
            if key == "partitions" and fact:
                for name, rules in fact.items():
                    settings = {**rules.defaults, **rules.limits}
                    for option, text in value[name].items():
                        found[f"{key}.{name}.{option}"] = (text, sources_of(settings[option.replace("-", "_")]))
                    if not value[name]:
                        found[f"{key}.{name}"] = (None, (rules.at,))
            elif isinstance(fact, dict) and fact:
                found |= {f"{key}.{pattern}": (setting.value, (setting.at,)) for pattern, setting in fact.items()}
            else:
                found[key] = (value, self.sources(key))
        return found

    def sources(self, key: str) -> tuple[str, ...]:
        """The sources of a fact; the items of a mapping can have several."""
        fact = getattr(self, key.replace("-", "_"))
        if isinstance(fact, Setting):
            return (fact.at,)
        settings: list[Setting] = []
        for item in (fact or {}).values():
            if isinstance(item, PartitionRules):
                settings += [*item.limits.values(), *item.defaults.values()]
            else:
                settings.append(item)
        return tuple(dict.fromkeys(setting.at for setting in settings))


def _partition_as_json(rules: PartitionRules) -> dict[str, Any]:
    limits = {key.replace("_", "-"): _number(setting.value) for key, setting in rules.limits.items()}
    return {**layers.as_json(rules.defaults), **limits}


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _merge_partition(low: PartitionRules | None, high: PartitionRules | None) -> PartitionRules:
    parts = [part for part in (low, high) if part is not None]
    defaults, _ = merge([part.defaults for part in parts])  # errors were reported when each part was read
    limits = {key: setting for part in parts for key, setting in part.limits.items()}
    return PartitionRules(defaults, limits, parts[-1].at)


def _merge_patterns(high: dict[str, Setting] | None, low: dict[str, Setting] | None) -> dict[str, Setting] | None:
    """The first match is used, so those of the higher layer come first."""
    if high is None or low is None:
        return low if high is None else high
    return {**high, **{regex: setting for regex, setting in low.items() if regex not in high}} if high else {}


# --- reading ---------------------------------------------------------------------------------------------------------


def read_facts(facts: Mapping[str, Any], at: SourceOf) -> tuple[SiteFacts, list[UsageError]]:
    """Facts from YAML or JSON, by field, and the errors in them."""
    problems: list[UsageError] = []
    found: dict[str, Any] = {}
    for field, value in facts.items():
        try:
            if field == "partitions":
                found[field] = dict(_read_partitions(value, at, problems))
            elif field in ("gpu_types", "node_types"):
                found[field] = dict(_read_patterns(field, value, at, problems))
            elif field == "container_runtimes":
                found[field] = Setting(tuple(_read_runtimes(field, value, at, problems)), at(field))
            else:
                check = _node_prefix if field == "node_prefix" else container_checks.image
                found[field] = Setting(None if value is None else check(text_value(value)), at(field))
        except BadValue as error:
            problems.append(_problem(field, error, at(field)))
    return SiteFacts(**found), problems


def _problem(field: str, error: BadValue, at: str) -> UsageError:
    return UsageError(f"{field.replace('_', '-')} {error}", at=at, hint=error.hint or None)


def node_regex(text: str) -> str:
    """A valid regular expression for the names of nodes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # a later Python will read it differently
            re.compile(checks.nonempty_line(text))
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        hint = "fix it; for example, gpu[0-9]+ matches gpu1 and gpu02, and com-.* all names that begin with com-"
        raise BadValue(f"has a regular expression that is not valid: {show(text)}: {error}", hint) from None
    return text


def _node_prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text):  # the longest host name on Linux
        raise BadValue(f"is not the beginning of a host name: {show(text)}", "for com-01, write com-")
    return text


def _read_runtimes(field: str, value: Any, at: SourceOf, problems: list[UsageError]) -> Iterator[Item]:
    for text in text_list(value):
        if text in RUNTIMES:
            yield Item(text, at(field))
            continue
        words = re.split(r"[,\s]+", text.strip())
        close = get_close_matches(text.lower(), RUNTIMES, n=1)
        hint = (f"did you mean {close[0]!r}? " if close else "") + f"choose from {', '.join(RUNTIMES)}"
        if len(words) > 1 and all(word in RUNTIMES for word in words):
            hint = f"write [{', '.join(words)}]"
        problems.append(_problem(field, BadValue(f"has an invalid value: {show(text)}", hint), at(field)))


def _mapping(value: Any, example: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise BadValue(f"takes a mapping, not {show(value)}", f"write `{example}`")
    return value or {}


def _read_patterns(field: str, value: Any, at: SourceOf, problems: list[UsageError]) -> Iterator[tuple[str, Setting]]:
    """From a mapping or a list of mappings: the keys in a script's header are sorted, but a list keeps its order."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    for place, part in enumerate(parts):
        keys = (field, str(place)) if part is not value else (field,)
        try:
            pairs = _mapping(part, f"{field.replace('_', '-')}: {{gpu.*: a100}}")
        except BadValue as error:
            problems.append(_problem(field, error, at(field)))
            continue
        for pattern, kind in pairs.items():
            source = at(*keys, pattern)
            errors = [*_errors(node_regex, pattern), *_errors(text_value, kind)]
            problems += [_problem(field, error, source) for error in errors]
            if not errors:
                yield pattern, Setting(text_value(kind), source)


def _errors(check: Callable[[Any], str], value: Any) -> list[BadValue]:
    try:
        check(value)
    except BadValue as error:
        return [error]
    return []


def _read_partitions(value: Any, at: SourceOf, problems: list[UsageError]) -> Iterator[tuple[str, PartitionRules]]:
    for name, below in _mapping(value, "partitions: {gpu: {time: 1:00:00}}").items():
        try:
            content = _mapping(below, f"{name}: {{time: 1:00:00}}")
        except BadValue as error:
            problems.append(_problem("partitions", error, at("partitions", name)))
            continue
        yield name, _read_partition(name, content, at, problems)


def _read_partition(name: str, content: Mapping[str, Any], at: SourceOf, problems: list[UsageError]) -> PartitionRules:
    options: dict[str, Any] = {}
    limits: dict[str, Setting] = {}
    for key, value in content.items():
        source = at("partitions", name, key)
        try:
            field = field_of_key(key, source, LIMITS)
            if field in NOT_BY_PARTITION:
                raise UsageError(f"{key} cannot be set for a partition", at=source, hint="remove it")
            if field in limits or field in options:
                raise UsageError(f"{key} is set twice", at=source, hint="keep one")
            if field in LIMITS:
                limits[field] = Setting(_limit(field, text_value(value)), source)
            else:
                options[field] = value
        except UsageError as problem:
            problems.append(problem)
        except BadValue as error:
            problems.append(_problem(key, error, source))
    defaults, wrong = layer_from_values(options, partial(_source_of_field, at, name, content))
    problems += wrong + merge([defaults])[1]
    return PartitionRules(defaults, limits, at("partitions", name))


def _source_of_field(at: SourceOf, name: str, content: Mapping[str, Any], field: str) -> str:
    return at("partitions", name, next(key for key in content if key.replace("-", "_") == field))


def _limit(field: str, text: str) -> str:
    if field == "max_time":
        if len(text) > 30:
            raise BadValue(f"is not a valid Slurm time: {show(text)}", "write it like 1-00:00:00")
        return checks.slurm_time(text)
    if not re.fullmatch("[0-9]{1,9}", text) or (field == "max_nodes" and int(text) < 1):
        raise BadValue(f"is not a number of {field[4:]}: {show(text)}", "write a whole number")
    return text
