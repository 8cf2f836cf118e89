"""Where the configuration files are, and what stands in one: every value as written, with its line.

The YAML is composed, not loaded: YAML 1.1 would turn `time: 1:30:00` into 5400, `account: 0123` into 83 and
`partition: no` into False. The scalars' own text goes on instead, and the spec gives it its type, just as it
does for flags and variables.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_launch.config.layers import (
    Given,
    Item,
    Layer,
    field_of_key,
    is_list,
    is_mapping,
)
from slurm_launch.errors import UsageError, show
from slurm_launch.spec.worker_groups import quoted

NO_PROFILE = ("", "none")  # --profile none: not even the one that this machine's name would choose
PROJECT_FILE = "slurm-launch.yaml"
FOLDER = "slurm-launch"  # below $XDG_CONFIG_HOME and /etc/xdg
MAX_BYTES = 1 << 20  # nobody's settings are larger; --config /dev/zero must end
Describe = Callable[..., str]  # a line, and what else is to be said of the place -> the source that people read


@dataclass(frozen=True)
class Content:
    """What stands in one file."""

    layer: Layer
    facts: dict[str, Any]  # the keys that are no options, by field, as plain texts, lists and mappings
    at: Callable[..., str]  # where a fact stands: at("partitions", "gpu", "time")
    problems: list[UsageError]


# --- where the files are ---------------------------------------------------------------------------------------------


def user_folder(env: Mapping[str, str]) -> Path | None:
    """The user's own folder for our files; None without a home."""
    base = env.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # the XDG rules say to ignore relative ones
        return Path(base) / FOLDER
    return Path(env["HOME"]) / ".config" / FOLDER if env.get("HOME") else None


def site_folders(env: Mapping[str, str]) -> list[Path]:
    """The machine's folders for our files, the most important first."""
    bases = [base for base in env.get("XDG_CONFIG_DIRS", "").split(":") if os.path.isabs(base)]
    return [Path(base) / FOLDER for base in bases or ["/etc/xdg"]]


def profile_files(name: str, env: Mapping[str, str]) -> list[Path]:
    """Where a profile may be, the user's own place first."""
    return [folder / f"{name}.yaml" for folder in profile_folders(env)]


def profile_folders(env: Mapping[str, str]) -> list[Path]:
    own = user_folder(env)
    return [folder / "profiles" for folder in ([own] if own else []) + site_folders(env)]


def profile_names(env: Mapping[str, str]) -> list[str]:
    """Every profile that there is, by name."""
    names: set[str] = set()
    for folder in profile_folders(env):
        try:
            names.update(file[: -len(".yaml")] for file in os.listdir(folder) if file.endswith(".yaml"))
        except OSError:
            continue
    return sorted(name for name in names if name)


def profile_target(name: str, source: str, env: Mapping[str, str], hint: str = "") -> Path:
    """Where the user's profile of that name goes; told before any work is done when it cannot."""
    folder = user_folder(env)
    at = f"flag {source}" if source.startswith("--") else None
    if folder is None:
        raise UsageError("there is no home for a profile", at=at, hint="set HOME or XDG_CONFIG_HOME")
    if name.strip() in NO_PROFILE or "/" in name or name.startswith((".", "-")) or not name.isprintable():
        hint = hint or f"give {source} letters and digits, for example the cluster's name"
        raise UsageError(f"{source} is not a name for a profile: {name!r}", at=at, hint=hint)
    target = folder / "profiles" / f"{name}.yaml"
    if os.path.lexists(target):
        raise _exists(target)
    return target


def create(target: Path, text: str) -> None:
    """A new file; nothing is overwritten."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        hint = "go to a directory that you may write to; for a profile, XDG_CONFIG_HOME names one"
        raise UsageError(f"cannot write: {error.strerror or error}", at=str(target), hint=hint) from None


def _exists(target: Path) -> UsageError:
    return UsageError("the file exists already", at=str(target), hint="edit it, or move it away first")


def find_project(cwd: Path) -> tuple[Path | None, list[str]]:
    """The nearest project file upward, and warnings about those that cannot be trusted.

    A file can hold shell code. One that a stranger laid into a place where everyone may write, like /tmp, is
    passed over, or they would run code in other people's jobs.
    """
    warnings = []
    for folder in (cwd, *cwd.parents):
        path = folder / PROJECT_FILE
        if not os.path.isfile(path):
            continue
        if _planted(path):
            why = "it belongs to someone else and lies where everyone may write"
            warnings.append(f"{path} is not read: {why}; give --config to use it")
            continue
        return path, warnings
    return None, warnings


def _planted(path: Path) -> bool:
    try:
        owner, modes = path.stat().st_uid, (path.stat().st_mode | path.parent.stat().st_mode)
    except OSError:
        return False
    return owner not in (0, os.getuid()) and bool(modes & stat.S_IWOTH)


# --- what stands in them ---------------------------------------------------------------------------------------------


def read_file(path: Path, describe: Describe, forbidden: Mapping[str, str], cwd: Path) -> Content:
    """One file's values and all that is wrong with it. `forbidden` has the keys that cannot stand here, and why."""
    layer: Layer = {}
    facts: dict[str, Any] = {}
    lines: dict[tuple[str, ...], int] = {}
    problems: list[UsageError] = []

    def where(*way: str) -> str:
        place = f", partition {way[1]}" if way[0] == "partitions" and len(way) > 1 else ""
        return describe(lines.get(way, 1), place)

    content = Content(layer, facts, where, problems)
    try:
        node = compose(path)
    except UsageError as problem:
        problems.append(problem)
        return content
    from slurm_launch.config.profile import FACTS, LIMITS

    known = [field for field in FACTS if field not in forbidden]
    for key, value in _pairs(node, path, problems):
        line = key.start_mark.line + 1
        key_at = describe(line)
        try:
            if (field := key.value.replace("-", "_")) in LIMITS:
                hint = f"it belongs below partitions: NAME:{'' if known else ' in a profile'}"
                raise UsageError(f"{key.value} is the limit of a partition", at=key_at, hint=hint)
            if field not in forbidden:
                field = field_of_key(key.value, key_at, known)
            if field in forbidden:
                raise UsageError(f"{key.value} cannot stand in this file", at=key_at, hint=forbidden[field])
            if field in layer or field in facts:
                first = layer[field].at if field in layer else where(field)
                raise UsageError(f"{key.value} is given twice", at=f"{first} and {key_at}", hint="keep one")
            if field in FACTS:
                lines[field,] = line
                facts[field] = _fact(value, (field,), lines, describe)
                continue
            layer[field] = _given(field, value, key_at, describe)
            if field in ("template", "sweep_file"):
                layer[field] = _beside_file(layer[field], path, cwd)
        except UsageError as problem:
            problem.at = problem.at or describe(value.start_mark.line + 1 if value.start_mark else line)
            problems.append(problem)
    return content


_DEPTH = 5  # partitions, one of them, its option, an item of it, the item's value


def _fact(node: Any, way: tuple[str, ...], lines: dict[tuple[str, ...], int], describe: Describe) -> Any:
    """A value below a key that is no option: texts, lists and mappings as written. `lines` gets where each stands."""
    key, at = way[0].replace("_", "-"), describe(node.start_mark.line + 1)
    if len(way) > _DEPTH:  # an anchor may even hold itself
        raise UsageError(f"{key} is nested too deeply", at=at, hint="docs/profiles.md shows how it is written")
    if node.id == "scalar":
        return None if _is_null(node) else _text(node, key, at)
    if node.id == "sequence":
        return [_fact(item, (*way, str(place)), lines, describe) for place, item in enumerate(node.value)]
    found: dict[str, Any] = {}
    for name, value in node.value:
        at = describe(name.start_mark.line + 1)
        if name.id != "scalar" or not name.value:
            raise UsageError(f"{key} has a key that is not a plain name", at=at, hint="write KEY: VALUE")
        if name.value in found:
            raise UsageError(f"{key} has {show(name.value)} twice", at=at, hint="keep one")
        lines[(*way, name.value)] = name.start_mark.line + 1
        found[name.value] = _fact(value, (*way, name.value), lines, describe)
    return found


def top_level(path: Path, wanted: str) -> Any:
    """One fact of a file of which nothing else is wanted; None when it has none."""
    problems: list[UsageError] = []
    for key, value in _pairs(compose(path), path, problems):
        if key.value == wanted:
            return _fact(value, (wanted,), {}, lambda line, _="": f"{path}:{line}")
    if problems:
        raise problems[0]
    return None


def read_text(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = "check the path and its permissions"
        raise UsageError(f"cannot read the file: {error.strerror or error}", at=str(path), hint=hint) from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"the file is larger than {MAX_BYTES} bytes", at=str(path), hint="is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError("the file is not UTF-8 text", at=f"{path}:{line}", hint="save it as UTF-8") from None


def compose(path: Path) -> Any:
    """The file's YAML, as nodes that know their lines."""
    text = read_text(path)
    import yaml  # only when there is a file: 25 ms

    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise yaml_problem(error, text, path) from None


def yaml_problem(error: Exception, text: str, path: Path) -> UsageError:
    """What is wrong with a file that is no YAML."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "indent with spaces, not tabs" if "\\t" in what else "put texts that contain : # { or [ in quotes"
        return UsageError(f"not valid YAML: {what}", at=where, hint=hint)
    if isinstance(error, yaml.reader.ReaderError):
        where = f"{path}:{text.count(chr(10), 0, error.position) + 1}"
        message = f"not valid YAML: the character {chr(error.character)!a} is not allowed"
        return UsageError(message, at=where, hint="remove it")
    return UsageError("not valid YAML: nested too deeply", at=str(path), hint="is it the right file?")


def _pairs(node: Any, path: Path, problems: list[UsageError]) -> Iterator[tuple[Any, Any]]:
    """The file's keys and values; nothing for an empty file."""
    if node is None or _is_null(node):
        return
    if node.id != "mapping":
        at = f"{path}:{node.start_mark.line + 1}"
        problems.append(UsageError("the file is not a mapping", at=at, hint="write lines like `partition: main`"))
        return
    for key, value in node.value:
        if key.id == "scalar":
            yield key, value
        else:
            at = f"{path}:{key.start_mark.line + 1}"
            problems.append(UsageError("a key is not a plain name", at=at, hint="write lines like `partition: main`"))


def _given(field: str, node: Any, at: str, describe: Describe) -> Given:
    key = field.replace("_", "-")
    if not is_list(field):
        if node.id != "scalar":
            kind = "list" if node.id == "sequence" else "mapping"
            raise UsageError(f"{key} takes one value, not a {kind}", at=at, hint=f"write `{key}: VALUE`")
        return Given(None if _is_null(node) else _text(node, key, at), at)
    if _is_null(node) or (not node.value and node.id != "scalar"):
        return Given((Item("", at),), at)
    if node.id == "scalar":
        return Given((Item(_text(node, key, at), at),), at)
    if node.id == "mapping" and not is_mapping(field):
        if field == "worker_group":  # one group, written out
            return Given((Item(",".join(item.text for item in _items(node, key, describe)), at),), at)
        raise UsageError(f"{key} takes a list, not a mapping", at=at, hint=f"write `{key}: [ONE, TWO]`")
    return Given(tuple(_items(node, key, describe)), at)


def _items(node: Any, key: str, describe: Describe) -> Iterator[Item]:
    pairs: list[Any] = node.value if node.id == "mapping" else [(None, item) for item in node.value]
    seen: dict[str, str] = {}
    for name, value in pairs:
        first = value if name is None else name
        at = describe(first.start_mark.line + 1)
        if key == "worker-group" and value.id == "mapping":
            yield Item(",".join(item.text for item in _items(value, key, describe)), at)
            continue
        if key == "sweep" and name is not None and value.id == "sequence":
            value = _one_text(value, key, describe)
        if value.id != "scalar" or (name is not None and name.id != "scalar"):
            raise UsageError(f"{key} has an item that is not a plain text", at=at, hint="put no list into a list")
        if name is None:
            if _is_null(value):
                raise UsageError(f"{key} has an item without text", at=at, hint='remove it; "" drops what came before')
            yield Item(_text(value, key, at), at)
            continue
        label = _text(name, key, at)
        if "=" in label or not label:
            raise UsageError(f"{key} has a key that cannot be one: {show(label)}", at=at, hint="write KEY: VALUE")
        if label in seen:
            raise UsageError(f"{key} has {label} twice", at=f"{seen[label]} and {at}", hint="keep one")
        seen[label] = at
        text = _text(value, key, at)
        text = quoted(text) if key == "worker-group" else text
        yield Item(label if _is_null(value) else f"{label}={text}", at)


def _one_text(node: Any, key: str, describe: Describe) -> Any:
    """The list of values that a key of a sweep takes as the text that it stands for."""
    import yaml

    from slurm_launch.spec.sweep_points import written

    at = describe(node.start_mark.line + 1)
    if any(item.id != "scalar" for item in node.value):
        raise UsageError(f"{key} has an item that is not a plain text", at=at, hint="put no list into a list")
    if any(_is_null(item) for item in node.value):
        hint = 'write "" for a value without text, or put it in quotes'
        raise UsageError(f"{key} has an item without a value", at=at, hint=hint)
    try:
        text = written([_text(item, key, at) for item in node.value])
    except ValueError as problem:
        raise UsageError(f"{key} {problem}", at=at, hint=getattr(problem, "hint", None)) from None
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, node.start_mark, node.end_mark)


_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "value")}


def _text(node: Any, key: str, at: str) -> str:
    if node.tag not in _PLAIN_TAGS and node.tag != "tag:yaml.org,2002:merge":
        raise UsageError(f"{key} has the YAML tag {show(node.tag)}", at=at, hint="write the plain value")
    return str(node.value)


def _is_null(node: Any) -> bool:
    return bool(node.id == "scalar" and node.tag == "tag:yaml.org,2002:null")


def _beside_file(given: Given, path: Path, cwd: Path) -> Given:
    """A template, or the points of a sweep, that a file names lies beside that file, wherever the command is called."""
    if not isinstance(given.value, str) or not given.value or os.path.isabs(given.value):
        return given
    if given.value.startswith("~"):
        return Given(os.path.expanduser(given.value), given.at)
    # relative to the caller again, so that no path of this machine gets into the script
    return Given(os.path.relpath(path.parent / given.value, cwd), given.at)
