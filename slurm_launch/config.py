"""The layers of configuration, merged, and where every value came from.

From the strongest to the weakest: flags, SLAUNCH_* variables, the project file, the spec embedded in a script
(`render --from`), the profile, the machine's defaults, the built-in values. docs/configuration.md has the rules.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from slurm_launch import config_files
from slurm_launch.config_files import PROJECT_FILE, Given, Item, Layer, is_list, is_mapping
from slurm_launch.errors import InvalidSpec, UsageError
from slurm_launch.spec import ALTERNATIVES, LaunchSpec, flag_name, options
from slurm_launch.values import code, show

if TYPE_CHECKING:
    from pydantic import ValidationError

    from slurm_launch.script import Embedded

PREFIX = "SLAUNCH_"
# Variables of ours that are no options: read by the command itself, or set in jobs by the script. The script cannot
# set one that is an option, such as SLAUNCH_RUN_DIR: a launch from within the job would take it for the user's wish.
RESERVED = ("SLAUNCH_DEBUG", "SLAUNCH_NODE_DIR", "SLAUNCH_NODE_IP", "SLAUNCH_RESTART")
# Lists in which a second item like the first says nothing new. Arguments and code may well repeat.
_ONCE = ("modules", "no_sbatch")
BUILT_IN = "built-in"


@dataclass(frozen=True)
class Looked:
    """A file that was looked for, and what became of it."""

    role: str
    path: str
    state: str  # read, absent, not read


@dataclass(frozen=True)
class Resolution:
    """All layers merged. Nothing in it is checked yet beyond its form; `spec()` does that."""

    values: dict[str, Any]  # field -> value as written; built-in ones are not in it
    sources: dict[str, tuple[str, ...]]  # field -> where it came from, for every field
    own: dict[str, Any]  # what the user asked for, by YAML key, plain enough for JSON ...
    site: dict[str, Any]  # ... and what the site contributed
    item_sources: dict[str, tuple[str, ...]] = field(default_factory=dict)  # for each item of a list
    warnings: tuple[str, ...] = ()
    problems: tuple[UsageError, ...] = ()
    files: tuple[Looked, ...] = ()

    def spec(self) -> LaunchSpec:
        """The checked spec, or one InvalidSpec with all that is wrong."""
        spec, problems = self._validated()
        if spec is None or problems:
            raise InvalidSpec(problems)
        return spec

    def check(self) -> list[UsageError]:
        """All that is wrong, other than values that are still missing."""
        return [problem for problem in self._validated()[1] if not problem.message.endswith(" is missing")]

    def _validated(self) -> tuple[LaunchSpec | None, list[UsageError]]:
        from pydantic import ValidationError

        problems = list(self.problems)
        try:
            return LaunchSpec.model_validate(self.values), problems
        except ValidationError as error:
            found = self._problems_of(error)
            if problems:  # a value that a broken file holds is not missing
                found = [problem for problem in found if not problem.message.endswith(" is missing")]
            return None, problems + found

    def _problems_of(self, error: ValidationError) -> list[UsageError]:
        from slurm_launch.wording import problem_of

        return [problem_of(detail, self.sources, self.item_sources) for detail in error.errors(include_url=False)]


def resolve(
    flags: Mapping[str, Any], env: Mapping[str, str], cwd: Path, embedded: Embedded | None = None
) -> Resolution:
    """Read and merge all layers. Bad input is collected in `problems` and raised by `spec()`."""
    return _Reader(env, cwd, embedded).resolve(flags)


class _Reader:
    """One resolution at work: the layers as they are read, and what was noticed on the way."""

    def __init__(self, env: Mapping[str, str], cwd: Path, embedded: Embedded | None) -> None:
        self.env, self.cwd, self.embedded = env, cwd, embedded
        self.problems: list[UsageError] = []
        self.warnings: list[str] = []
        self.files: list[Looked] = []

    def resolve(self, flags: Mapping[str, Any]) -> Resolution:
        from_flags = self._plain_layer(flags, lambda name: f"flag {flag_name(name)}")
        from_env = self._env_layer()
        project = self._project_layer(from_flags, from_env)
        # The strongest last. A default profile or a chain of profiles would be more layers in `site`.
        own = [self._embedded_layer("own"), project, from_env, from_flags]
        site = self._site_layers(_first("profile", (from_flags, from_env, project)))
        merged_own, merged_site = self._merge(own), self._merge(site)
        merged = self._merge([merged_site, merged_own])
        sources = {name: _sources(merged[name]) if name in merged else (BUILT_IN,) for name in LaunchSpec.model_fields}
        return Resolution(
            values={name: value for name in merged if (value := _value(name, merged[name])) is not None},
            sources=sources,
            own=_plain(merged_own),
            site=_plain(merged_site),
            item_sources={
                name: tuple(item.at for item in given.value if item.text)
                for name, given in merged.items()
                if isinstance(given.value, tuple)
            },
            warnings=tuple(self.warnings),
            problems=tuple(self.problems),
            files=tuple(self.files),
        )

    # --- reading -----------------------------------------------------------------------------------------------------

    def _plain_layer(self, values: Mapping[str, Any], describe: Any) -> Layer:
        """A layer from Python or JSON values by field."""
        layer: Layer = {}
        for name, value in values.items():
            at = describe(name)
            if is_list(name):
                layer[name] = Given(tuple(Item(text, at) for text in _texts(value)), at)
            elif isinstance(value, (list, tuple, dict)):
                self.problems.append(UsageError(f"{flag_name(name)} takes one value, not {show(value)}", at=at))
            else:
                layer[name] = Given(value if value is None or isinstance(value, bool) else str(value), at)
        return layer

    def _env_layer(self) -> Layer:
        layer: Layer = {}
        for variable in sorted(self.env):
            if not variable.startswith(PREFIX) or variable in RESERVED:
                continue
            name, text, at = variable[len(PREFIX) :].lower(), self.env[variable], f"env {variable}"
            if name not in LaunchSpec.model_fields or variable != variable.upper():
                self.warnings.append(_unknown_variable(variable))
            elif is_list(name):
                try:
                    words = [text] if _holds_code(name) or not text else shlex.split(text)
                except ValueError as error:
                    hint = "quote its words as in a shell"
                    self.problems.append(UsageError(f"{flag_name(name)} cannot be split: {error}", at=at, hint=hint))
                    continue
                layer[name] = Given(tuple(Item(word, at) for word in words), at)
            elif text:  # an empty variable is as good as none
                layer[name] = Given(text, at)
        return layer

    def _project_layer(self, from_flags: Layer, from_env: Layer) -> Layer:
        chosen = _first("config", (from_flags, from_env))
        if chosen is not None and chosen.value:
            path = self.cwd / str(chosen.value)
            if not path.exists():
                message = f"--config names a file that does not exist: {show(str(chosen.value))}"
                self.problems.append(UsageError(message, at=chosen.at, hint="check the path"))
                self.files.append(Looked("project", str(path), "absent"))
                return {}
            return self._file_layer("project", path)
        if self.embedded is not None:  # the script is the project
            return {}
        found, warnings = config_files.find_project(self.cwd)
        self.warnings += warnings
        if found is None:
            self.files.append(Looked("project", f"{self.cwd / PROJECT_FILE} and upward", "absent"))
            return {}
        return self._file_layer("project", found)

    def _site_layers(self, profile: Given | None) -> list[Layer]:
        """The machine's defaults and the profile; or, unless a profile was chosen, what the script has of them."""
        if self.embedded is not None and profile is None:
            return [self._embedded_layer("site")]
        return [self._machine_layer(), self._profile_layer(profile)]

    def _profile_layer(self, chosen: Given | None) -> Layer:
        if chosen is None or not isinstance(chosen.value, str) or not chosen.value.strip():
            return {}
        name = chosen.value
        if "/" in name or name.startswith(".") or not name.isprintable():
            hint = "give the name alone; --config takes a file"
            self.problems.append(
                UsageError(f"--profile is not the name of a profile: {show(name)}", at=chosen.at, hint=hint)
            )
            return {}
        layer: Layer | None = None
        for path in config_files.profile_files(name, self.env):
            if layer is not None or not os.path.isfile(path):
                self.files.append(Looked(f"profile {name}", str(path), "absent" if layer is None else "not read"))
            else:
                layer = self._file_layer(f"profile {name}", path)
        if layer is None:
            message = f"--profile names a profile that does not exist: {show(name)}"
            self.problems.append(UsageError(message, at=chosen.at, hint=self._profile_hint(name)))
        return layer or {}

    def _profile_hint(self, name: str) -> str:
        names = config_files.profile_names(self.env)
        if not names:
            places = " or ".join(str(folder) for folder in config_files.profile_folders(self.env))
            return f"there is none in {places}; `slurm-launch config init --profile {shlex.quote(name)}` makes it"
        close = get_close_matches(name, names, n=1)
        return (f"did you mean {close[0]!r}? " if close else "") + f"there are: {', '.join(names)}"

    def _machine_layer(self) -> Layer:
        layer: Layer | None = None
        for folder in config_files.site_folders(self.env):
            path = folder / PROJECT_FILE
            if layer is not None or not os.path.isfile(path):
                self.files.append(Looked("machine", str(path), "absent" if layer is None else "not read"))
            else:
                layer = self._file_layer("machine", path)
        return layer or {}

    def _file_layer(self, role: str, path: Path) -> Layer:
        def describe(line: int) -> str:
            return f"{role} ({path}:{line})" if role.startswith("profile") else f"{path}:{line}"

        forbidden = {name: "use the flag or the variable" for name, option in options().items() if not option.layered}
        if role != "project":
            forbidden["profile"] = "choose the profile in the project file, by a flag or by SLAUNCH_PROFILE"
        layer, problems = config_files.read_layer(path, describe, forbidden, self.cwd)
        self.problems += problems
        self.files.append(Looked(role, str(path), "read"))
        return layer

    def _embedded_layer(self, part: str) -> Layer:
        if self.embedded is None:
            return {}
        at = f"embedded spec ({part})"
        values = {}
        for key, value in getattr(self.embedded, part).items():
            try:
                values[config_files.field_of_key(str(key), at)] = value
            except UsageError as problem:
                problem.hint = f"a newer slurm-launch may have made the script; {problem.hint}"
                self.problems.append(problem)
        return self._plain_layer(values, lambda name: at)

    # --- merging -----------------------------------------------------------------------------------------------------

    def _merge(self, layers: Sequence[Layer]) -> Layer:
        """The layers as one, the weakest first. It may be merged again with others to the same effect."""
        merged: Layer = {}
        for layer in layers:
            for names in ALTERNATIVES:
                chosen = [name for name in names if name in layer and layer[name].value is not None]
                if len(chosen) > 1:
                    flags = " and ".join(flag_name(name) for name in chosen)
                    at = ", ".join(layer[name].at for name in chosen)
                    self.problems.append(UsageError(f"{flags} exclude one another", at=at, hint="give one of them"))
                    layer = {name: given for name, given in layer.items() if name not in chosen[1:]}
                if chosen:
                    merged = {name: given for name, given in merged.items() if name not in names}
            for name, given in layer.items():
                merged[name] = _added(name, merged.get(name), given) if is_list(name) else given
        return merged


def _first(name: str, layers: Iterable[Layer]) -> Given | None:
    return next((layer[name] for layer in layers if name in layer), None)


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


def _key(name: str, text: str) -> str:
    key = text.partition("=")[0].strip()
    return key.lstrip("-") if name == "sbatch" else key


def _texts(value: Any) -> list[str]:
    """The items of a list option from Python or JSON; mappings as key=value, nothing at all as the mark to drop."""
    if value is None or value == [] or value == {} or value == ():
        return [""]
    if isinstance(value, Mapping):
        return [str(key) if text is None else f"{key}={text}" for key, text in value.items()]
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]


def _value(name: str, given: Given) -> Any:
    """What the spec reads; None for a value that a layer took back."""
    if not isinstance(given.value, tuple):
        return _typed(name, given.value)
    texts = [item.text for item in given.value if item.text]
    return _mapping(name, texts) if is_mapping(name) else texts


def _mapping(name: str, texts: Iterable[str]) -> dict[str, str | None]:
    return {_key(name, text): text.partition("=")[2] if "=" in text else None for text in texts}


def _sources(given: Given) -> tuple[str, ...]:
    if not isinstance(given.value, tuple) or not given.value:
        return (given.at,)
    return tuple(dict.fromkeys(item.at for item in given.value))


def _plain(layer: Layer) -> dict[str, Any]:
    """A merged layer for JSON, by YAML key, such that reading it back gives the same layer."""
    plain: dict[str, Any] = {}
    for name, given in layer.items():
        if not options()[name].layered:
            continue
        value = given.value
        if isinstance(value, tuple):
            texts = [item.text for item in value]
            plain[name.replace("_", "-")] = _mapping(name, texts) if is_mapping(name) and "" not in texts else texts
        else:
            plain[name.replace("_", "-")] = _typed(name, value)
    return plain


def _typed(name: str, value: str | bool | None) -> str | int | bool | None:
    """Numbers as numbers, truth values as such: the script's header is for people too."""
    if bool in _types(name) and isinstance(value, str):
        return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(
            value.lower(), value
        )
    if int in _types(name) and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    return value


def _types(name: str) -> list[Any]:
    """What an option's annotation is made of, at every depth."""
    found, parts = [], [LaunchSpec.model_fields[name].annotation]
    while parts:
        part = parts.pop()
        found.append(part)
        parts += get_args(part)
    return found


def _holds_code(name: str) -> bool:
    """Whether a list's items are shell code, which is not to be split into words."""
    return any(getattr(part, "func", None) is code for part in _types(name))


def _unknown_variable(variable: str) -> str:
    known = [PREFIX + name.upper() for name in LaunchSpec.model_fields]
    close = get_close_matches(variable.upper(), known, n=1, cutoff=0.8)
    return f"unknown variable {variable} is ignored" + (f"; did you mean {close[0]}?" if close else "")
