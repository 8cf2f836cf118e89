"""What a layer of configuration is: values as they were written, each with its source; and how layers are merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, get_args

from slurm_launch.errors import UsageError, show
from slurm_launch.spec.checks import code, is_yes
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import ALTERNATIVES, flag_name
from slurm_launch.spec.sweep_points import written

# Lists in which a second item like the first says nothing new. Arguments and code may well repeat.
_ONCE = ("modules", "no_sbatch")
# Mappings whose order means something: in JSON they are lists, which nobody sorts. A key stands but once in a layer.
_ORDERED = ("sweep",)


@dataclass(frozen=True)
class Item:
    """One item of a list or mapping (then `key=value`), and where it stands. An empty text: forget what came before."""

    text: str
    at: str


@dataclass(frozen=True)
class Given:
    """What one layer says of one option: one value (None: back to the built-in one), or the items of a list."""

    value: str | bool | tuple[Item, ...] | None
    at: str


Layer = dict[str, Given]


# --- the names in it -------------------------------------------------------------------------------------------------


def is_list(field: str) -> bool:
    """Whether an option takes several items: a list, or a mapping."""
    origin = getattr(LaunchSpec.model_fields[field].annotation, "__origin__", None)
    return origin in (tuple, dict)


def is_mapping(field: str) -> bool:
    return getattr(LaunchSpec.model_fields[field].annotation, "__origin__", None) is dict


def field_of_key(key: str, at: str, others: Iterable[str] = ()) -> str:
    """The option that a YAML key names, or one of the `others`; underscores do as well as hyphens."""
    field = key.replace("-", "_")
    if field in LaunchSpec.model_fields or field in others:
        return field
    raise UsageError(f"unknown key {show(key)}", at=at, hint=suggest_option(key, others))


def suggest_option(key: str, others: Iterable[str] = ()) -> str:
    """What was probably meant by an unknown key."""
    names: dict[str, str] = {}  # what people may write -> our key
    for field, option in options().items():
        ours = field.replace("_", "-")
        names[ours] = ours
        names.update({flag.lstrip("-"): ours for flag in option.flags if flag.startswith("--")})
        names.setdefault(option.sbatch or ours, ours)
    names.update({(ours := field.replace("_", "-")): ours for field in others})
    plain = key.strip().lower().replace("_", "-").lstrip("-")
    close = get_close_matches(plain, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {names[close[0]]!r}?"
    return "`slurm-launch config schema` lists the keys; any other directive of sbatch goes below `sbatch:`"


# --- making and merging them -----------------------------------------------------------------------------------------


def plain_layer(values: Mapping[str, Any], at: Callable[[str], str]) -> tuple[Layer, list[UsageError]]:
    """A layer from Python or JSON values by field, and what cannot stand in one."""
    layer: Layer = {}
    problems = []
    for name, value in values.items():
        if is_list(name):
            if isinstance(value, Mapping) and not is_mapping(name):
                problems.append(UsageError(f"{flag_name(name)} takes a list, not {show(value)}", at=at(name)))
            else:
                layer[name] = Given(tuple(Item(text, at(name)) for text in _texts(value)), at(name))
        elif isinstance(value, (list, tuple, dict)):
            problems.append(UsageError(f"{flag_name(name)} takes one value, not {show(value)}", at=at(name)))
        else:
            layer[name] = Given(value if value is None or isinstance(value, bool) else str(value), at(name))
    return layer, problems


def merge(layers: Sequence[Layer]) -> tuple[Layer, list[UsageError]]:
    """The layers as one, the weakest first. It may be merged again with others to the same effect."""
    merged: Layer = {}
    problems = []
    for layer in layers:
        for names in ALTERNATIVES:
            chosen = [name for name in names if name in layer and _says_something(name, layer[name])]
            if len(chosen) > 1:
                flags = " and ".join(flag_name(name) for name in chosen)
                at = ", ".join(layer[name].at for name in chosen)
                problems.append(UsageError(f"{flags} exclude one another", at=at, hint="give one of them"))
                layer = {name: given for name, given in layer.items() if name not in chosen[1:]}
            if chosen:
                out = [name for name in names if name not in chosen or not is_list(name)]  # a list is added to, below
                merged = {name: given for name, given in merged.items() if name not in out}
        problems += [problem for name in _ORDERED if name in layer for problem in _repeated(name, layer[name])]
        for name, given in layer.items():
            merged[name] = _added(name, merged.get(name), given) if is_list(name) else given
    return merged, problems


def _added(name: str, lower: Given | None, higher: Given) -> Given:
    """A list with a higher layer's items after its own, or without its own where the higher layer says so."""
    items = tuple(item for given in (lower, higher) if given and isinstance(given.value, tuple) for item in given.value)
    resets = [position for position, item in enumerate(items) if not item.text]
    dropped = items[resets[-1] :][:1] if resets else ()  # kept as a mark for lower layers to come
    items = items[resets[-1] + 1 :] if resets else items
    if is_mapping(name):
        items = tuple({_key(name, item.text): item for item in items}.values())
    elif name in _ONCE:
        first: dict[str, Item] = {}
        for item in items:
            first.setdefault(item.text, item)
        items = tuple(first.values())
    return Given(dropped + items, higher.at)


def _repeated(name: str, given: Given) -> list[UsageError]:
    """What is wrong with a layer that has a key twice: the second would hide the first."""
    first: dict[str, Item] = {}
    for item in given.value if isinstance(given.value, tuple) else ():
        key = _key(name, item.text)
        if key in first:
            at = ", ".join(dict.fromkeys((first[key].at, item.at)))
            hint = "give each key once, with all of its values: lr=1e-3,1e-4"
            return [UsageError(f"{flag_name(name)} has {show(key)} twice", at=at, hint=hint)]
        first[key] = item
    return []


def _key(name: str, text: str) -> str:
    key = text.partition("=")[0].strip()
    return key.lstrip("-") if name == "sbatch" else key


def _texts(value: Any) -> list[str]:
    """The items of a list option from Python or JSON; mappings as key=value, nothing at all as the mark to drop."""
    if value is None or value == [] or value == {} or value == ():
        return [""]
    if isinstance(value, Mapping):
        return [str(key) if text is None else f"{key}={written(text)}" for key, text in value.items()]
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]


# --- reading from them -----------------------------------------------------------------------------------------------


def value_of(name: str, given: Given) -> Any:
    """What the spec reads; None for a value that a layer took back."""
    if not isinstance(given.value, tuple):
        return _typed(name, given.value)
    texts = [item.text for item in given.value if item.text]
    return _mapping(name, texts) if is_mapping(name) else texts


def sources_of(given: Given) -> tuple[str, ...]:
    if not isinstance(given.value, tuple) or not given.value:
        return (given.at,)
    return tuple(dict.fromkeys(item.at for item in given.value))


def plain(layer: Layer) -> dict[str, Any]:
    """A merged layer for JSON, by YAML key, such that reading it back gives the same layer."""
    found: dict[str, Any] = {}
    for name, given in layer.items():
        if not options()[name].layered:
            continue
        value = given.value
        if isinstance(value, tuple):
            texts = [item.text for item in value]
            by_key = is_mapping(name) and "" not in texts and name not in _ORDERED
            found[name.replace("_", "-")] = _mapping(name, texts) if by_key else texts
        else:
            found[name.replace("_", "-")] = _typed(name, value)
    return found


def _mapping(name: str, texts: Iterable[str]) -> dict[str, str | None]:
    return {_key(name, text): text.partition("=")[2] if "=" in text else None for text in texts}


def _says_something(name: str, given: Given) -> bool:
    """A switch that is off chooses nothing."""
    return is_yes(given.value) if bool in types_of(name) else given.value is not None


def _typed(name: str, value: str | bool | None) -> str | int | bool | None:
    """Numbers as numbers, truth values as such: the script's header is for people too."""
    if bool in types_of(name) and isinstance(value, str):
        return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(
            value.lower(), value
        )
    if int in types_of(name) and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value


def types_of(name: str) -> list[Any]:
    """What an option's annotation is made of, at every depth."""
    found, parts = [], [LaunchSpec.model_fields[name].annotation]
    while parts:
        part = parts.pop()
        found.append(part)
        parts += get_args(part)
    return found


def holds_code(name: str) -> bool:
    """Whether a list's items are shell code, which is not to be split into words."""
    return any(getattr(part, "func", None) is code for part in types_of(name))
