"""The layers of configuration, merged, and where every value came from.

From the strongest to the weakest: flags, SLAUNCH_* variables, the project file, the spec embedded in a script
(`render --from`), the site's layers (site_layers.py), the built-in values. docs/configuration.md has the rules.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch.config import files as config_files
from slurm_launch.config import layers
from slurm_launch.config.files import PROJECT_FILE
from slurm_launch.config.layers import (
    Given,
    Item,
    Layer,
    field_of_key,
    is_list,
)
from slurm_launch.config.site_files import (
    CLUSTER_SPEC,
    Findings,
    Looked,
    SiteReader,
    elsewhere,
    forbidden_keys,
    is_none,
)
from slurm_launch.errors import InvalidSpec, UsageError, show
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import NEEDS, flag_name

if TYPE_CHECKING:
    from pydantic import ValidationError

    from slurm_launch.config.profile import Site
    from slurm_launch.spec.script_header import EmbeddedSpec

PREFIX = "SLAUNCH_"
# Variables of ours that are no options: read by the command itself, or set in jobs by the script.
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
    """All layers merged. Nothing in it is checked yet beyond its form; `spec()` does that."""

    values: dict[str, Any]  # field -> value as written; built-in ones are not in it
    sources: dict[str, tuple[str, ...]]  # field -> where it came from, for every field
    own: dict[str, Any]  # what the user asked for, by YAML key, plain enough for JSON ...
    site: dict[str, Any]  # ... and what the site contributed
    item_sources: dict[str, tuple[str, ...]] = field(default_factory=dict)  # for each item of a list
    facts: Site | None = None  # what profiles say of the cluster itself
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[UsageError, ...] = ()
    files: tuple[Looked, ...] = ()  # the strongest first
    hosts: tuple[str, list[str]] | None = None  # the profile in use, and the machines that it is for

    @property
    def elsewhere(self) -> str:
        """Why this machine is none of the profile's cluster, if it is none. It may take a question to the network."""
        return elsewhere(*self.hosts) if self.hosts else ""

    @property
    def site_facts(self) -> Site:
        """What profiles say of the cluster itself; empty where they say nothing."""
        from slurm_launch.config.profile import Site

        return self.facts or Site()

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
        from slurm_launch.config.messages import problem_of

        return [problem_of(detail, self.sources, self.item_sources) for detail in error.errors(include_url=False)]


def resolve(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    cwd: Path,
    embedded: EmbeddedSpec | None = None,
    only: Collection[str] | None = None,
) -> Resolution:
    """Read and merge all layers. Bad input is collected in `problems` and raised by `spec()`.

    `only` are the options that mean something to the job; variables and files may well hold others, for other jobs."""
    return _Reader(env, cwd, embedded, only).resolve(flags)


class _Reader:
    """One resolution at work: the layers as they are read, and what was noticed on the way."""

    def __init__(
        self, env: Mapping[str, str], cwd: Path, embedded: EmbeddedSpec | None, only: Collection[str] | None
    ) -> None:
        self.env, self.cwd, self.embedded = env, cwd, embedded
        self.only = LaunchSpec.model_fields if only is None else only
        self.findings = Findings()
        self.templates: list[str] = []  # that the script names: they run code here, and it may be somebody else's

    def resolve(self, flags: Mapping[str, Any]) -> Resolution:
        from_flags = self._plain_layer(flags, lambda name: f"flag {flag_name(name)}")
        from_env = self._fitting(self._env_layer())
        project = self._fitting(self._project_layer(from_flags, from_env))
        site_layers, facts = self._site(_first("profile", (from_flags, from_env, project)))
        for layer in (*site_layers, *(part.defaults for part in ((facts and facts.partitions) or {}).values())):
            for name in [name for name in layer if name not in self.only]:
                del layer[name]  # without a word: a site speaks to all jobs
        site = self._merge(site_layers)
        # The strongest last.
        inherited = self._embedded_layer("own")
        own = self._merge([inherited, project, from_env, from_flags])
        here = {**project, **from_env, **from_flags}
        if "template" not in here:
            self._warn_of_templates()
        merged, unused = self._job(site, own, facts, [name for name in inherited if name not in here])
        return Resolution(
            values={name: value for name in merged if (value := layers.value_of(name, merged[name])) is not None},
            sources={name: _sources(name, merged, unused) for name in LaunchSpec.model_fields},
            own=layers.plain(own),
            # All of it, with what this job does not use: the script may be rendered anew with other options.
            site={**layers.plain(site), **(facts.plain(sortable=True) if facts else {})},
            item_sources={
                name: tuple(item.at for item in given.value if item.text)
                for name, given in merged.items()
                if isinstance(given.value, tuple)
            },
            facts=facts,
            warnings=tuple(self.findings.warnings),
            notes=tuple(self.findings.notes),
            problems=tuple(self.findings.problems),
            files=tuple(self.findings.files),
            hosts=self.findings.hosts,
        )

    def _job(self, site: Layer, own: Layer, facts: Site | None, inherited: list[str]) -> tuple[Layer, Layer]:
        """The site's values and the user's as one, and those that this job does not use."""
        if not site and not facts and not inherited:
            merged, unused = dict(own), {}
        else:
            from slurm_launch.config import profile_rules

            job = profile_rules.apply(site, own, facts, inherited)
            merged, unused = job.merged, job.unused
            self.findings.warnings += job.warnings
            self.findings.notes += job.notes
        if "profile" in merged and is_none(merged["profile"]):
            merged["profile"] = Given(None, merged["profile"].at)
        return merged, unused

    def _fitting(self, layer: Layer) -> Layer:
        """What of a user's layer means something to this job; the rest is told."""
        for name in [name for name in layer if name not in self.only]:
            self.findings.notes.append(f"{flag_name(name)} means nothing here and is left out: {layer.pop(name).at}")
        return layer

    def _merge(self, parts: list[Layer]) -> Layer:
        merged, problems = layers.merge(parts)
        self.findings.problems += problems
        return merged

    # --- reading -----------------------------------------------------------------------------------------------------

    def _plain_layer(self, values: Mapping[str, Any], at: Any) -> Layer:
        layer, problems = layers.plain_layer(values, at)
        self.findings.problems += problems
        return layer

    def _env_layer(self) -> Layer:
        layer: Layer = {}
        for variable in sorted(self.env):
            if (
                not variable.startswith(PREFIX)
                or variable in RESERVED
                or variable in slurm_environment.of_outer_job(self.env)
            ):
                continue
            name, text, at = variable[len(PREFIX) :].lower(), self.env[variable], f"env {variable}"
            if name not in LaunchSpec.model_fields or variable != variable.upper():
                self.findings.warnings.append(_unknown_variable(variable))
            elif is_list(name):
                try:
                    words = [text] if layers.holds_code(name) or not text else shlex.split(text)
                except ValueError as error:
                    message, hint = f"{flag_name(name)} cannot be split: {error}", "quote its words as in a shell"
                    self.findings.problems.append(UsageError(message, at=at, hint=hint))
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
                self.findings.problems.append(UsageError(message, at=chosen.at, hint="check the path"))
                self.findings.files.append(Looked("project", str(path), "absent"))
                return {}
            return self._file_layer("project", path)
        if self.embedded is not None:  # the script is the project
            return {}
        found, warnings = config_files.find_project(self.cwd)
        self.findings.warnings += warnings
        if found is None:
            self.findings.files.append(Looked("project", f"{self.cwd / PROJECT_FILE} and upward", "absent"))
            return {}
        return self._file_layer("project", found)

    def _file_layer(self, role: str, path: Path) -> Layer:
        content = config_files.read_file(path, lambda line, _="": f"{path}:{line}", forbidden_keys(role), self.cwd)
        self.findings.problems += content.problems
        self.findings.files.append(Looked(role, str(path), "read"))
        return content.layer

    def _site(self, profile: Given | None) -> tuple[list[Layer], Site | None]:
        """The site's layers and facts; or, unless a profile was chosen, what the script has of them."""
        if self.embedded is None or profile is not None:
            return SiteReader(self.env, self.cwd, self.findings).read(profile)
        if self.env.get(CLUSTER_SPEC):
            self.findings.notes.append(f"{CLUSTER_SPEC} is not read: without --profile the script's own site stays")
        return [self._embedded_layer("site")], self._embedded_facts(self.embedded)

    def _embedded_layer(self, part: str) -> Layer:
        if self.embedded is None:
            return {}
        at = f"{self.embedded.script} ({_PARTS[part]})"
        from slurm_launch.config.profile import FACTS

        values = {}
        for key, value in getattr(self.embedded, part).items():
            try:
                field = field_of_key(str(key), at, FACTS if part == "site" else ())
                if field == "template" and value is not None:
                    self.templates.append(str(value))
                elif field not in FACTS:
                    values[field] = value
            except UsageError as problem:
                problem.hint = f"a newer slurm-launch may have made the script; {problem.hint}"
                self.findings.problems.append(problem)
        return self._plain_layer(values, lambda name: at)

    def _embedded_facts(self, embedded: EmbeddedSpec) -> Site:
        from slurm_launch.config.profile import FACTS, FACTS_OF_FILES, read_site

        def at(*way: str) -> str:
            place = f", partition {way[1]}" if way[0] == "partitions" and len(way) > 1 else ""
            return f"{embedded.script} ({_PARTS['site']}{place})"

        facts = {name: value for key, value in embedded.site.items() if (name := str(key).replace("-", "_")) in FACTS}
        for name in FACTS_OF_FILES:
            facts.pop(name, None)  # they would choose files, and none is read
        site, problems = read_site(facts, at)
        for partition in (site.partitions or {}).values():
            if (template := partition.defaults.pop("template", None)) is not None:
                self.templates.append(str(template.value))
        self.findings.problems += problems
        return site

    def _warn_of_templates(self) -> None:
        for name in self.templates:
            text = f"the template {show(name)}, which the script's header names, is not used: it can run code here"
            self.findings.warnings.append(f"{text}; give --template if you trust it")


_PARTS = {"own": "its spec", "site": "its site"}  # of a script's header, as people read it


def _first(name: str, layers: Iterable[Layer]) -> Given | None:
    return next((layer[name] for layer in layers if name in layer), None)


def _sources(name: str, merged: Layer, unused: Layer) -> tuple[str, ...]:
    if name in merged:
        return layers.sources_of(merged[name])
    if name in unused:
        return (f"{BUILT_IN} ({unused[name].at} is for jobs with {flag_name(NEEDS[name][0])})",)
    return (BUILT_IN,)


def _unknown_variable(variable: str) -> str:
    known = [PREFIX + name.upper() for name in LaunchSpec.model_fields]
    close = get_close_matches(variable.upper(), known, n=1, cutoff=0.8)
    return f"unknown variable {variable} is ignored" + (f"; did you mean {close[0]}?" if close else "")
