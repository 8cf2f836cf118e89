"""The layers of configuration: values as written, each with its source, and how layers are merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from slurm_launch.errors import UsageError, show
from slurm_launch.spec import worker_groups
from slurm_launch.spec.checks import BadValue, code, is_true
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import ALTERNATIVES, flag_name, mutually_exclusive
from slurm_launch.spec.sweep_points import join_values

# Lists in which a repeated item adds nothing. Arguments and code may repeat.
_UNIQUE_ITEMS = ("modules", "no_sbatch")
# Mappings whose order matters: JSON holds them as lists, which are never sorted. A layer has each key once.
_ORDERED = ("sweep",)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Item:
    """One item of a list or mapping (then `key=value`) and its source. An empty text clears the items before it."""

    text: str
    at: str


@dataclass(frozen=True)
class Setting:
    """One option in one layer: a single value (None: the built-in one) or the items of a list, and the source."""

    value: str | bool | tuple[Item, ...] | None
    at: str


Layer = dict[str, Setting]


# --- option names ----------------------------------------------------------------------------------------------------


def is_list(field: str) -> bool:
    """Whether an option takes several items: a list, or a mapping."""
    origin = getattr(LaunchSpec.model_fields[field].annotation, "__origin__", None)
    return origin in (tuple, dict)


def is_mapping(field: str) -> bool:
    return getattr(LaunchSpec.model_fields[field].annotation, "__origin__", None) is dict


def field_of_key(key: str, at: str, others: Iterable[str] = ()) -> str:
    """The option, or the one of `others`, that a YAML key names. Underscores and hyphens are equivalent."""
    field = key.replace("-", "_")
    if field in LaunchSpec.model_fields or field in others:
        return field
    raise UsageError(f"unknown key {show(key)}", at=at, hint=suggest_option(key, others))


def suggest_option(key: str, others: Iterable[str] = ()) -> str:
    """A hint for an unknown key: the closest known one."""
    names = {field.replace("_", "-"): field.replace("_", "-") for field in others}  # spelling -> YAML key
    for field, option in options().items():
        yaml_key = field.replace("_", "-")
        names[yaml_key] = yaml_key
        names.update({flag.lstrip("-"): yaml_key for flag in option.flags if flag.startswith("--")})
        names.setdefault(option.sbatch or yaml_key, yaml_key)
    normalized = key.strip().lower().replace("_", "-").lstrip("-")
    close = get_close_matches(normalized, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {names[close[0]]!r}?"
    return "`slurm-launch config schema` lists the keys; put other sbatch directives under `sbatch:`"


# --- creating and merging layers -------------------------------------------------------------------------------------


def layer_from_values(values: Mapping[str, Any], at: Callable[[str], str]) -> tuple[Layer, list[UsageError]]:
    """A layer from Python or JSON values by field, and the errors in them."""
    layer: Layer = {}
    problems = []
    for name, value in values.items():
        try:
            layer[name] = _setting(name, value, at(name))
        except BadValue as error:
            problems.append(UsageError(f"{flag_name(name)} {error}", at=at(name), hint=error.hint or None))
    return layer, problems


def _setting(name: str, value: Any, at: str) -> Setting:
    if is_list(name):
        return Setting(tuple(Item(text, at) for text in _item_texts(name, value)), at)
    if isinstance(value, (list, tuple, Mapping)):
        raise BadValue(f"takes one value, not {show(value)}")
    return Setting(value if value is None or isinstance(value, bool) else str(value), at)


def _item_texts(name: str, value: Any) -> list[str]:
    """The items of a list option from Python or JSON. Pairs become key=value; no items, the empty item that clears."""
    if value is None or value == [] or value == {} or value == ():
        return [""]
    items = value if isinstance(value, (list, tuple)) else [value]
    if name == "worker_group":  # a group may be written as a mapping
        return [_plain_text(worker_groups.as_text(group)) for group in items]
    if not isinstance(value, Mapping):
        return [_plain_text(item) for item in items]
    if not is_mapping(name):
        raise BadValue(f"takes a list, not {show(value)}", "write [ONE, TWO]")
    return [str(key) if below is None else f"{key}={_plain_text(join_values(below))}" for key, below in value.items()]


def _plain_text(value: Any) -> str:
    if value is None or isinstance(value, (list, tuple, Mapping)):
        raise BadValue(f"has an item that is not plain text: {show(value)}", "write each item as one text")
    return str(value)


def merge(layers: Sequence[Layer]) -> tuple[Layer, list[UsageError]]:
    """The layers merged, lowest precedence first. Merging the result with others has the same effect."""
    merged: Layer = {}
    problems = []
    for layer in layers:
        for names in ALTERNATIVES:
            chosen = [name for name in names if name in layer and _is_set(name, layer[name])]
            if len(chosen) > 1:
                message, hint = mutually_exclusive(chosen)
                problems.append(UsageError(message, at=", ".join(layer[name].at for name in chosen), hint=hint))
                layer = {name: setting for name, setting in layer.items() if name not in chosen[1:]}
            if chosen:  # a list is kept: the items are added below
                replaced = [name for name in names if name not in chosen or not is_list(name)]
                merged = {name: setting for name, setting in merged.items() if name not in replaced}
        problems += [problem for name in _ORDERED if name in layer for problem in _duplicate_keys(name, layer[name])]
        for name, setting in layer.items():
            merged[name] = _with_items(name, merged.get(name), setting) if is_list(name) else setting
    return merged, problems


def _with_items(name: str, lower: Setting | None, higher: Setting) -> Setting:
    """A list with the items of a higher layer appended; those before the last empty item are cleared."""
    settings = [setting for setting in (lower, higher) if setting is not None]
    items = tuple(item for setting in settings if isinstance(setting.value, tuple) for item in setting.value)
    resets = [position for position, item in enumerate(items) if not item.text]
    marker = items[resets[-1] :][:1] if resets else ()  # kept, to clear lower layers that are merged later
    items = items[resets[-1] + 1 :] if resets else items
    if is_mapping(name):
        items = tuple({_key(name, item.text): item for item in items}.values())
    elif name in _UNIQUE_ITEMS:
        first: dict[str, Item] = {}
        for item in items:
            first.setdefault(item.text, item)
        items = tuple(first.values())
    return Setting(marker + items, higher.at)


def _duplicate_keys(name: str, setting: Setting) -> list[UsageError]:
    """An error if a layer has a key twice: the second would replace the first."""
    first: dict[str, Item] = {}
    for item in setting.value if isinstance(setting.value, tuple) else ():
        key = _key(name, item.text)
        if key in first:
            at = ", ".join(dict.fromkeys((first[key].at, item.at)))
            hint = "specify each key once, with all of its values: lr=1e-3,1e-4"
            return [UsageError(f"{flag_name(name)} has {show(key)} twice", at=at, hint=hint)]
        first[key] = item
    return []


def _key(name: str, text: str) -> str:
    key = text.partition("=")[0].strip()
    return key.lstrip("-") if name == "sbatch" else key


# --- reading layers --------------------------------------------------------------------------------------------------


def value_of(name: str, setting: Setting) -> Any:
    """The value for the spec; None for one that a layer reset."""
    if not isinstance(setting.value, tuple):
        return _typed(name, setting.value)
    texts = [item.text for item in setting.value if item.text]
    return _mapping(name, texts) if is_mapping(name) else texts


def sources_of(setting: Setting) -> tuple[str, ...]:
    if not isinstance(setting.value, tuple) or not setting.value:
        return (setting.at,)
    return tuple(dict.fromkeys(item.at for item in setting.value))


def as_json(layer: Layer) -> dict[str, Any]:
    """A merged layer for JSON, by YAML key. Reading it back gives the same layer."""
    values: dict[str, Any] = {}
    for name, setting in layer.items():
        if not options()[name].layered:
            continue
        value = setting.value
        if isinstance(value, tuple):
            texts = [item.text for item in value]
            by_key = is_mapping(name) and "" not in texts and name not in _ORDERED
            values[name.replace("_", "-")] = _mapping(name, texts) if by_key else texts
        else:
            values[name.replace("_", "-")] = _typed(name, value)
    return values


def _mapping(name: str, texts: Iterable[str]) -> dict[str, str | None]:
    return {_key(name, text): text.partition("=")[2] if "=" in text else None for text in texts}


def _is_set(name: str, setting: Setting) -> bool:
    """Whether a layer chooses this option; a switch that is off does not."""
    return is_true(setting.value) if bool in types_of(name) else setting.value is not None


def _typed(name: str, value: str | bool | None) -> str | int | bool | None:
    """A number or a boolean as such, to keep the script's header readable."""
    if bool in types_of(name) and isinstance(value, str):
        return _BOOLEANS.get(value.lower(), value)
    if int in types_of(name) and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value


def types_of(name: str) -> list[Any]:
    """The types in an option's annotation, at every depth."""
    found, parts = [], [LaunchSpec.model_fields[name].annotation]
    while parts:
        part = parts.pop()
        found.append(part)
        parts += get_args(part)
    return found


def holds_code(name: str) -> bool:
    """Whether a list's items are shell code, which must not be split into words."""
    return any(getattr(part, "func", None) is code for part in types_of(name))
