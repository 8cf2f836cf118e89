"""The configuration files: where they are searched, and the values in one, as written, with their lines.

The YAML is composed, not loaded: YAML 1.1 would turn `time: 1:30:00` into 5400, `account: 0123` into 83 and
`partition: no` into False. The text of each scalar is kept instead, and the spec converts it, as it does for
flags and variables.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_launch.config.layers import Item, Layer, Setting, field_of_key, is_list, is_mapping
from slurm_launch.config.profile_keys import FACTS, LIMITS
from slurm_launch.errors import UsageError, show
from slurm_launch.spec.sweep_points import join_values
from slurm_launch.spec.worker_groups import quoted

NO_PROFILE = ("", "none")  # --profile none: not even the one that matches the host name
PROJECT_FILE = "slurm-launch.yaml"
FOLDER = "slurm-launch"  # below $XDG_CONFIG_HOME and /etc/xdg
MAX_BYTES = 1 << 20  # for settings, generous; makes --config /dev/zero fail
_RIGHT_FILE = "check that it is the right file"
Describe = Callable[..., str]  # a line number, and optionally a detail -> the source as shown to the user


@dataclass(frozen=True)
class Content:
    """The values in one file."""

    layer: Layer
    facts: dict[str, Any]  # the keys that are not options, by field, as texts, lists and mappings
    at: Callable[..., str]  # the source of a fact: at("partitions", "gpu", "time")
    problems: list[UsageError]


# --- where the files are ---------------------------------------------------------------------------------------------


def user_folder(env: Mapping[str, str]) -> Path | None:
    """The user's configuration directory; None without a home directory."""
    base = env.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(base):  # the XDG specification says to ignore relative paths
        return Path(base) / FOLDER
    return Path(env["HOME"]) / ".config" / FOLDER if env.get("HOME") else None


def site_folders(env: Mapping[str, str]) -> list[Path]:
    """The machine's configuration directories, highest precedence first."""
    bases = [base for base in env.get("XDG_CONFIG_DIRS", "").split(":") if os.path.isabs(base)]
    return [Path(base) / FOLDER for base in bases or ["/etc/xdg"]]


def profile_files(name: str, env: Mapping[str, str]) -> list[Path]:
    """The paths at which a profile is searched, the user's own first."""
    return [folder / f"{name}.yaml" for folder in profile_folders(env)]


def profile_folders(env: Mapping[str, str]) -> list[Path]:
    own = user_folder(env)
    return [folder / "profiles" for folder in ([own] if own else []) + site_folders(env)]


def profile_names(env: Mapping[str, str]) -> list[str]:
    """The names of all profiles."""
    names: set[str] = set()
    for folder in profile_folders(env):
        try:
            names.update(file[: -len(".yaml")] for file in os.listdir(folder) if file.endswith(".yaml"))
        except OSError:
            continue
    return sorted(name for name in names if name)


def profile_target(name: str, source: str, env: Mapping[str, str], hint: str = "") -> Path:
    """The path for a new profile of the user. Raises UsageError if it cannot be created there."""
    folder = user_folder(env)
    at = f"flag {source}" if source.startswith("--") else None
    if folder is None:
        raise UsageError("there is no directory for profiles", at=at, hint="set HOME or XDG_CONFIG_HOME")
    if name.strip() in NO_PROFILE or "/" in name or name.startswith((".", "-")) or not name.isprintable():
        hint = hint or f"use letters and digits for {source}, for example the cluster's name"
        raise UsageError(f"{source} is not a valid profile name: {name!r}", at=at, hint=hint)
    target = folder / "profiles" / f"{name}.yaml"
    if os.path.lexists(target):
        raise _exists(target)
    return target


def create(target: Path, text: str) -> None:
    """Write a new file. An existing one is not overwritten."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        hint = "use a writable directory; for a profile, set XDG_CONFIG_HOME"
        raise UsageError(f"cannot write: {error.strerror or error}", at=str(target), hint=hint) from None


def _exists(target: Path) -> UsageError:
    return UsageError("the file already exists", at=str(target), hint="edit it, or move it first")


def find_project(cwd: Path) -> tuple[Path | None, list[str]]:
    """The project file in `cwd` or its nearest parent, and warnings about files that cannot be trusted.

    A file can hold shell code. One that another user put into a directory that everyone can write to, such as
    /tmp, is skipped: it would run code in other people's jobs.
    """
    warnings = []
    for folder in (cwd, *cwd.parents):
        path = folder / PROJECT_FILE
        if not os.path.isfile(path):
            continue
        if _is_untrusted(path):
            why = "it belongs to another user and its location is writable by everyone"
            warnings.append(f"{path} is not read: {why}; use --config to read it")
            continue
        return path, warnings
    return None, warnings


def _is_untrusted(path: Path) -> bool:
    try:
        owner, modes = path.stat().st_uid, (path.stat().st_mode | path.parent.stat().st_mode)
    except OSError:
        return False
    return owner not in (0, os.getuid()) and bool(modes & stat.S_IWOTH)


# --- reading a file --------------------------------------------------------------------------------------------------


def read_file(path: Path, describe: Describe, forbidden: Mapping[str, str], cwd: Path) -> Content:
    """The values in a file and all errors. `forbidden` has the keys that are not allowed in it, each with a hint."""
    reader = _FileReader(path, describe, forbidden, cwd)
    try:
        node = compose(path)
    except UsageError as problem:
        reader.problems.append(problem)
    else:
        for key, value in _pairs(node, path, reader.problems):
            reader.read_pair(key, value)
    return Content(reader.layer, reader.facts, reader.source, reader.problems)


class _FileReader:
    """Collects the values of one file, key by key."""

    def __init__(self, path: Path, describe: Describe, forbidden: Mapping[str, str], cwd: Path) -> None:
        self.path, self.describe, self.forbidden, self.cwd = path, describe, forbidden, cwd
        self.layer: Layer = {}
        self.facts: dict[str, Any] = {}
        self.lines: dict[tuple[str, ...], int] = {}  # the keys that lead to a fact -> its line
        self.problems: list[UsageError] = []

    def source(self, *keys: str) -> str:
        """The source of a fact."""
        detail = f", partition {keys[1]}" if keys[0] == "partitions" and len(keys) > 1 else ""
        return self.describe(self.lines.get(keys, 1), detail)

    def read_pair(self, key: Any, value: Any) -> None:
        line = key.start_mark.line + 1
        at = self.describe(line)
        try:
            field = self._allowed_field(key.value, at)
            if field in FACTS:
                self.lines[field,] = line
                self.facts[field] = _plain_value(value, (field,), self.lines, self.describe)
                return
            self.layer[field] = _setting(field, value, at, self.describe)
            if field in ("template", "sweep_file"):
                self.layer[field] = _relative_to_file(self.layer[field], self.path, self.cwd)
        except UsageError as problem:
            problem.at = problem.at or self.describe(value.start_mark.line + 1 if value.start_mark else line)
            self.problems.append(problem)

    def _allowed_field(self, key: str, at: str) -> str:
        """The field that a key names, if it is allowed here and not set yet."""
        field = key.replace("-", "_")
        facts = [fact for fact in FACTS if fact not in self.forbidden]
        if field in LIMITS:
            hint = f"it belongs under partitions: NAME:{'' if facts else ' in a profile'}"
            raise UsageError(f"{key} is a limit of a partition", at=at, hint=hint)
        if field in self.forbidden:
            raise UsageError(f"{key} is not allowed in this file", at=at, hint=self.forbidden[field])
        field = field_of_key(key, at, facts)
        if field in self.layer or field in self.facts:
            first = self.layer[field].at if field in self.layer else self.source(field)
            raise UsageError(f"{key} is set twice", at=f"{first} and {at}", hint="keep one")
        return field


_DEPTH = 5  # partitions, a partition, its option, an item of the option, the item's value


def _plain_value(node: Any, keys: tuple[str, ...], lines: dict[tuple[str, ...], int], describe: Describe) -> Any:
    """A fact as texts, lists and mappings, as written. Adds the line of each value to `lines`."""
    key, at = keys[0].replace("_", "-"), describe(node.start_mark.line + 1)
    if len(keys) > _DEPTH:  # an anchor may even contain itself
        raise UsageError(f"{key} is nested too deeply", at=at, hint="docs/profiles.md has examples")
    if node.id == "scalar":
        return None if _is_null(node) else _text(node, key, at)
    if node.id == "sequence":
        return [_plain_value(item, (*keys, str(place)), lines, describe) for place, item in enumerate(node.value)]
    found: dict[str, Any] = {}
    for name, value in node.value:
        at = describe(name.start_mark.line + 1)
        if name.id != "scalar" or not name.value:
            raise UsageError(f"{key} has a key that is not a plain name", at=at, hint="write KEY: VALUE")
        if name.value in found:
            raise UsageError(f"{key} has {show(name.value)} twice", at=at, hint="keep one")
        lines[(*keys, name.value)] = name.start_mark.line + 1
        found[name.value] = _plain_value(value, (*keys, name.value), lines, describe)
    return found


def read_key(path: Path, wanted: str) -> Any:
    """One fact of a file; None if the file does not have it."""
    problems: list[UsageError] = []
    for key, value in _pairs(compose(path), path, problems):
        if key.value == wanted:
            return _plain_value(value, (wanted,), {}, lambda line, _="": f"{path}:{line}")
    if problems:
        raise problems[0]
    return None


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = "check the path and its permissions"
        raise UsageError(f"cannot read the file: {reason}", at=str(path), hint=hint) from None
    if len(data) > limit:
        raise UsageError(f"the file is larger than {limit >> 20} MB", at=str(path), hint=_RIGHT_FILE)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError("the file is not UTF-8 text", at=f"{path}:{line}", hint="save it as UTF-8") from None


def compose(path: Path) -> Any:
    """The YAML of a file as nodes, which have line numbers."""
    text = read_text(path)
    import yaml  # lazy: saves 20 ms per start without files

    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise yaml_problem(error, text, path) from None


def yaml_problem(error: Exception, text: str, path: Path) -> UsageError:
    """The error for a file that is not valid YAML."""
    import yaml  # loaded already

    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "indent with spaces, not tabs" if "\\t" in what else "quote texts that contain : # { or ["
        return UsageError(f"not valid YAML: {what}", at=where, hint=hint)
    if isinstance(error, yaml.reader.ReaderError):
        where = f"{path}:{text.count(chr(10), 0, error.position) + 1}"
        message = f"not valid YAML: the character {chr(error.character)!a} is not allowed"
        return UsageError(message, at=where, hint="remove it")
    return UsageError("not valid YAML: nested too deeply", at=str(path), hint=_RIGHT_FILE)


def _pairs(node: Any, path: Path, problems: list[UsageError]) -> Iterator[tuple[Any, Any]]:
    """The top-level keys and values of a file."""
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


def _setting(field: str, node: Any, at: str, describe: Describe) -> Setting:
    key = field.replace("_", "-")
    if not is_list(field):
        if node.id != "scalar":
            kind = "list" if node.id == "sequence" else "mapping"
            raise UsageError(f"{key} takes one value, not a {kind}", at=at, hint=f"write `{key}: VALUE`")
        return Setting(None if _is_null(node) else _text(node, key, at), at)
    if _is_null(node) or (not node.value and node.id != "scalar"):
        return Setting((Item("", at),), at)
    if node.id == "scalar":
        return Setting((Item(_text(node, key, at), at),), at)
    if node.id == "mapping" and not is_mapping(field):
        if field == "worker_group":  # a single group
            return Setting((Item(",".join(item.text for item in _items(node, key, describe)), at),), at)
        raise UsageError(f"{key} takes a list, not a mapping", at=at, hint=f"write `{key}: [ONE, TWO]`")
    return Setting(tuple(_items(node, key, describe)), at)


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
            value = _joined_values(value, key, describe)
        if value.id != "scalar" or (name is not None and name.id != "scalar"):
            raise UsageError(f"{key} has an item that is not plain text", at=at, hint=_NESTED)
        if name is None:
            if _is_null(value):
                raise UsageError(f"{key} has an empty item", at=at, hint='remove it; "" clears the items before it')
            yield Item(_text(value, key, at), at)
            continue
        label = _text(name, key, at)
        if "=" in label or not label:
            raise UsageError(f"{key} has an invalid key: {show(label)}", at=at, hint="write KEY: VALUE")
        if label in seen:
            raise UsageError(f"{key} has {label} twice", at=f"{seen[label]} and {at}", hint="keep one")
        seen[label] = at
        text = _text(value, key, at)
        text = quoted(text) if key == "worker-group" else text
        yield Item(label if _is_null(value) else f"{label}={text}", at)


def _joined_values(node: Any, key: str, describe: Describe) -> Any:
    """The list of values of a sweep's key as one scalar."""
    import yaml  # loaded already

    at = describe(node.start_mark.line + 1)
    if any(item.id != "scalar" for item in node.value):
        raise UsageError(f"{key} has an item that is not plain text", at=at, hint=_NESTED)
    if any(_is_null(item) for item in node.value):
        raise UsageError(f"{key} has an empty item", at=at, hint='write "" for an empty value, or quote it')
    try:
        text = join_values([_text(item, key, at) for item in node.value])
    except ValueError as problem:
        raise UsageError(f"{key} {problem}", at=at, hint=getattr(problem, "hint", None)) from None
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, node.start_mark, node.end_mark)


_NESTED = "do not nest lists or mappings"
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "value")}


def _text(node: Any, key: str, at: str) -> str:
    if node.tag not in _PLAIN_TAGS and node.tag != "tag:yaml.org,2002:merge":
        raise UsageError(f"{key} has the YAML tag {show(node.tag)}", at=at, hint="write the plain value")
    return str(node.value)


def _is_null(node: Any) -> bool:
    return bool(node.id == "scalar" and node.tag == "tag:yaml.org,2002:null")


def _relative_to_file(setting: Setting, path: Path, cwd: Path) -> Setting:
    """Resolve a template or sweep file against the directory of the configuration file that names it."""
    if not isinstance(setting.value, str) or not setting.value or os.path.isabs(setting.value):
        return setting
    if setting.value.startswith("~"):
        return Setting(os.path.expanduser(setting.value), setting.at)
    # relative to `cwd`, to keep paths of this machine out of the script
    return Setting(os.path.relpath(path.parent / setting.value, cwd), setting.at)
