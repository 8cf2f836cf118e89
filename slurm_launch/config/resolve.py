"""All layers of configuration merged, with the source of each value.

Highest precedence first: flags, SLAUNCH_* variables, the project file, the spec embedded in a script
(`render --from`), the layers of the site (profile_files.py), the built-in values. docs/configuration.md has the rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from slurm_launch.config import files as config_files
from slurm_launch.config import layers, profile_files
from slurm_launch.config.files import PROJECT_FILE
from slurm_launch.config.layers import Item, Layer, Setting, field_of_key, is_list
from slurm_launch.config.messages import MissingOption, usage_error
from slurm_launch.config.profile_files import (
    CLUSTER_SPEC,
    Diagnostics,
    SearchedFile,
    SiteReader,
    forbidden_keys,
    means_no_profile,
)
from slurm_launch.config.profile_keys import FACTS, FACTS_OF_FILES
from slurm_launch.errors import InvalidSpec, UsageError, show
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import NEEDS, flag_name

if TYPE_CHECKING:
    from slurm_launch.config.profile import SiteFacts
    from slurm_launch.spec.script_header import EmbeddedSpec

PREFIX = "SLAUNCH_"
# Variables that are not options: read by the command itself, or set in jobs by the script.
RESERVED = (
    "SLAUNCH_ATTACHED",
    "SLAUNCH_DEBUG",
    "SLAUNCH_LINK",
    "SLAUNCH_NODE_DIR",
    "SLAUNCH_NODE_IP",
    "SLAUNCH_RESTART",
)
BUILT_IN = "built-in"


@dataclass(frozen=True)
class Resolution:
    """All layers merged. The values are not validated yet; `spec()` does that."""

    values: dict[str, Any]  # field -> value as written, without built-in ones
    sources: dict[str, tuple[str, ...]]  # field -> sources, for every field
    own: dict[str, Any]  # the values of the user, by YAML key, for JSON ...
    site: dict[str, Any]  # ... and those of the site
    item_sources: dict[str, tuple[str, ...]] = field(default_factory=dict)  # for each item of a list
    facts: SiteFacts | None = None  # about the cluster, from profiles
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[UsageError, ...] = ()
    files: tuple[SearchedFile, ...] = ()  # highest precedence first
    hosts: tuple[str, list[str]] | None = None  # the selected profile and its `hosts`

    @property
    def host_mismatch(self) -> str:
        """Why this machine is not one of the profile's hosts, or an empty text. May take a DNS query."""
        return profile_files.host_mismatch(*self.hosts) if self.hosts else ""

    @property
    def site_facts(self) -> SiteFacts:
        """The facts about the cluster; empty without any."""
        from slurm_launch.config.profile import SiteFacts  # lazy: saves 2 ms per start without site files

        return self.facts or SiteFacts()

    def spec(self) -> LaunchSpec:
        """The validated spec. Raises one InvalidSpec with all errors."""
        spec, problems = self._validated()
        if spec is None or problems:
            raise InvalidSpec(problems)
        return spec

    def check(self) -> list[UsageError]:
        """All errors but missing values."""
        return _without_missing(self._validated()[1])

    def _validated(self) -> tuple[LaunchSpec | None, list[UsageError]]:
        problems = list(self.problems)
        try:
            return LaunchSpec.model_validate(self.values), problems
        except ValidationError as error:
            details = error.errors(include_url=False)
        found = [usage_error(detail, self.sources, self.item_sources) for detail in details]
        # With a broken file, a missing value may well be in that file.
        return None, problems + (_without_missing(found) if problems else found)


def _without_missing(problems: list[UsageError]) -> list[UsageError]:
    return [problem for problem in problems if not isinstance(problem, MissingOption)]


def resolve(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    cwd: Path,
    embedded: EmbeddedSpec | None = None,
    only: Collection[str] | None = None,
) -> Resolution:
    """Read and merge all layers. Errors are collected in `problems` and raised by `spec()`.

    `only` are the options that apply to this job; variables and files can hold others, for other jobs."""
    return _Resolver(env, cwd, embedded, only).resolve(flags)


class _Resolver:
    """One resolution in progress: the layers and what was collected while reading them."""

    def __init__(
        self, env: Mapping[str, str], cwd: Path, embedded: EmbeddedSpec | None, only: Collection[str] | None
    ) -> None:
        self.env, self.cwd, self.embedded = env, cwd, embedded
        self.only = LaunchSpec.model_fields if only is None else only
        self.diagnostics = Diagnostics()
        self.templates: list[str] = []  # named by the script: they can run code here and may not be the user's

    def resolve(self, flags: Mapping[str, Any]) -> Resolution:
        from_flags = self._layer_from_values(flags, lambda name: f"flag {flag_name(name)}")
        from_env = self._applicable(self._env_layer())
        project = self._applicable(self._project_layer(from_flags, from_env))
        site_layers, facts = self._site(_first("profile", (from_flags, from_env, project)))
        self._drop_inapplicable(site_layers, facts)
        site = self._merge(site_layers)
        # Highest precedence last.
        inherited = self._embedded_layer("own")
        own = self._merge([inherited, project, from_env, from_flags])
        current = {**project, **from_env, **from_flags}
        if "template" not in current:
            self._warn_of_templates()
        only_inherited = [name for name in inherited if name not in current]
        merged, unused = self._apply_facts(site, own, facts, only_inherited)
        return Resolution(
            values={name: value for name in merged if (value := layers.value_of(name, merged[name])) is not None},
            sources={name: _sources(name, merged, unused) for name in LaunchSpec.model_fields},
            own=layers.as_json(own),
            # With the values that this job does not use: the script may be rendered again with other options.
            site={**layers.as_json(site), **(facts.as_json(sortable=True) if facts else {})},
            item_sources=_item_sources(merged),
            facts=facts,
            warnings=tuple(self.diagnostics.warnings),
            notes=tuple(self.diagnostics.notes),
            problems=tuple(self.diagnostics.problems),
            files=tuple(self.diagnostics.files),
            hosts=self.diagnostics.hosts,
        )

    def _apply_facts(
        self, site: Layer, own: Layer, facts: SiteFacts | None, inherited: list[str]
    ) -> tuple[Layer, Layer]:
        """The values of the site and the user merged, and those that this job does not use."""
        if not site and not facts and not inherited:
            merged, unused = dict(own), {}
        else:
            from slurm_launch.config import profile_rules  # lazy: saves 3 ms per start without site files

            job = profile_rules.apply_facts(site, own, facts, inherited)
            merged, unused = job.merged, job.unused
            self.diagnostics.warnings += job.warnings
            self.diagnostics.notes += job.notes
        if "profile" in merged and means_no_profile(merged["profile"]):
            merged["profile"] = Setting(None, merged["profile"].at)
        return merged, unused

    def _applicable(self, layer: Layer) -> Layer:
        """A layer of the user without the options that do not apply to this job, with a note for each."""
        for name in [name for name in layer if name not in self.only]:
            self.diagnostics.notes.append(f"{flag_name(name)} does not apply and is ignored: {layer.pop(name).at}")
        return layer

    def _drop_inapplicable(self, site_layers: list[Layer], facts: SiteFacts | None) -> None:
        """Drop the site's options that do not apply to this job, without a note: a site is for all jobs."""
        partitions = (facts.partitions if facts else None) or {}
        for layer in (*site_layers, *(rules.defaults for rules in partitions.values())):
            for name in [name for name in layer if name not in self.only]:
                del layer[name]

    def _merge(self, parts: list[Layer]) -> Layer:
        merged, problems = layers.merge(parts)
        self.diagnostics.problems += problems
        return merged

    # --- reading -----------------------------------------------------------------------------------------------------

    def _layer_from_values(self, values: Mapping[str, Any], at: Callable[[str], str]) -> Layer:
        layer, problems = layers.layer_from_values(values, at)
        self.diagnostics.problems += problems
        return layer

    def _env_layer(self) -> Layer:
        layer: Layer = {}
        ignored = (*RESERVED, *slurm_environment.outer_job_variables(self.env))
        for variable in sorted(self.env):
            if not variable.startswith(PREFIX) or variable in ignored:
                continue
            name = variable[len(PREFIX) :].lower()
            if name not in LaunchSpec.model_fields or variable != variable.upper():
                self.diagnostics.warnings.append(_unknown_variable(variable))
                continue
            try:
                setting = _setting_of_variable(name, self.env[variable], f"env {variable}")
            except UsageError as problem:
                self.diagnostics.problems.append(problem)
                continue
            if setting is not None:
                layer[name] = setting
        return layer

    def _project_layer(self, from_flags: Layer, from_env: Layer) -> Layer:
        chosen = _first("config", (from_flags, from_env))
        if chosen is not None and chosen.value:
            path = self.cwd / str(chosen.value)
            if not path.exists():
                message = f"--config names a file that does not exist: {show(str(chosen.value))}"
                self.diagnostics.problems.append(UsageError(message, at=chosen.at, hint="check the path"))
                self.diagnostics.files.append(SearchedFile("project", str(path), "absent"))
                return {}
            return self._file_layer("project", path)
        if self.embedded is not None:  # the script takes the place of the project file
            return {}
        found, warnings = config_files.find_project(self.cwd)
        self.diagnostics.warnings += warnings
        if found is None:
            places = f"{self.cwd / PROJECT_FILE} and parent directories"
            self.diagnostics.files.append(SearchedFile("project", places, "absent"))
            return {}
        return self._file_layer("project", found)

    def _file_layer(self, role: str, path: Path) -> Layer:
        content = config_files.read_file(path, lambda line, _="": f"{path}:{line}", forbidden_keys(role), self.cwd)
        self.diagnostics.problems += content.problems
        self.diagnostics.files.append(SearchedFile(role, str(path), "read"))
        return content.layer

    def _site(self, profile: Setting | None) -> tuple[list[Layer], SiteFacts | None]:
        """The layers and facts of the site; without a chosen profile, those in the script if there is one."""
        if self.embedded is None or profile is not None:
            return SiteReader(self.env, self.cwd, self.diagnostics).read(profile)
        if self.env.get(CLUSTER_SPEC):
            note = f"{CLUSTER_SPEC} is not read: without --profile, the site's values in the script are kept"
            self.diagnostics.notes.append(note)
        return [self._embedded_layer("site")], self._embedded_facts(self.embedded)

    def _embedded_layer(self, part: str) -> Layer:
        if self.embedded is None:
            return {}
        at = f"{self.embedded.script} ({_PARTS[part]})"
        values = {}
        for key, value in getattr(self.embedded, part).items():
            try:
                field = field_of_key(str(key), at, FACTS if part == "site" else ())
                if field == "template" and value is not None:
                    self.templates.append(str(value))
                elif field not in FACTS:
                    values[field] = value
            except UsageError as problem:
                problem.hint = f"the script may be from a newer slurm-launch; {problem.hint}"
                self.diagnostics.problems.append(problem)
        return self._layer_from_values(values, lambda name: at)

    def _embedded_facts(self, embedded: EmbeddedSpec) -> SiteFacts:
        from slurm_launch.config.profile import read_facts  # lazy: saves 2 ms per start without --from

        def at(*keys: str) -> str:
            detail = f", partition {keys[1]}" if keys[0] == "partitions" and len(keys) > 1 else ""
            return f"{embedded.script} ({_PARTS['site']}{detail})"

        facts = {name: value for key, value in embedded.site.items() if (name := str(key).replace("-", "_")) in FACTS}
        for name in FACTS_OF_FILES:
            facts.pop(name, None)  # no profile is read
        found, problems = read_facts(facts, at)
        for rules in (found.partitions or {}).values():
            if (template := rules.defaults.pop("template", None)) is not None:
                self.templates.append(str(template.value))
        self.diagnostics.problems += problems
        return found

    def _warn_of_templates(self) -> None:
        for name in self.templates:
            text = f"the template {show(name)} in the script's header is not used: it can run code here"
            self.diagnostics.warnings.append(f"{text}; add --template if you trust it")


_PARTS = {"own": "its spec", "site": "its site"}  # of a script's header, as shown to the user


def _setting_of_variable(name: str, text: str, at: str) -> Setting | None:
    """The setting in a variable; None for an empty one, unless the option is a list."""
    if not is_list(name):
        return Setting(text, at) if text else None
    try:
        words = [text] if layers.holds_code(name) or not text else shlex.split(text)
    except ValueError as error:
        message = f"{flag_name(name)} cannot be split into words: {error}"
        raise UsageError(message, at=at, hint="quote its words as in a shell") from None
    return Setting(tuple(Item(word, at) for word in words), at)


def _first(name: str, layers: Iterable[Layer]) -> Setting | None:
    return next((layer[name] for layer in layers if name in layer), None)


def _sources(name: str, merged: Layer, unused: Layer) -> tuple[str, ...]:
    if name in merged:
        return layers.sources_of(merged[name])
    if name in unused:
        return (f"{BUILT_IN} ({unused[name].at} is for jobs with {NEEDS[name].what})",)
    return (BUILT_IN,)


def _item_sources(merged: Layer) -> dict[str, tuple[str, ...]]:
    return {
        name: tuple(item.at for item in setting.value if item.text)
        for name, setting in merged.items()
        if isinstance(setting.value, tuple)
    }


def _unknown_variable(variable: str) -> str:
    known = [PREFIX + name.upper() for name in LaunchSpec.model_fields]
    close = get_close_matches(variable.upper(), known, n=1, cutoff=0.8)
    return f"unknown variable {variable} is ignored" + (f"; did you mean {close[0]}?" if close else "")
