"""The layers of the site: the profile and those it extends, ReaL's cluster spec, and the machine's defaults.

This module decides which of these files are read. A profile is selected by name, or else by the host name.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch.config import files as config_files
from slurm_launch.config.files import PROJECT_FILE
from slurm_launch.config.layers import Layer, Setting, layer_from_values
from slurm_launch.config.profile_keys import FACTS, FACTS_OF_FILES, text_list
from slurm_launch.errors import InvalidSpec, UsageError, show
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.model import options

if TYPE_CHECKING:
    from slurm_launch.config.profile import SiteFacts

    Contribution = tuple[Layer, SiteFacts]  # of one file

CLUSTER_SPEC = "CLUSTER_SPEC_PATH"  # ReaL's own variable


@dataclass(frozen=True)
class SearchedFile:
    """A file that was searched for, and the result."""

    role: str
    path: str
    state: str  # read, absent, not read
    why: str = ""  # it is read although it was not named


class Diagnostics:
    """What was collected while the layers were read."""

    def __init__(self) -> None:
        self.problems: list[UsageError] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.files: list[SearchedFile] = []
        self.hosts: tuple[str, list[str]] | None = None  # the selected profile and its `hosts`


def means_no_profile(chosen: Setting) -> bool:
    """Whether the choice is to use no profile."""
    return chosen.value is None or (isinstance(chosen.value, str) and chosen.value.strip() in config_files.NO_PROFILE)


def forbidden_keys(role: str) -> dict[str, str]:
    """The keys that are not allowed in a file of this role, each with a hint."""
    forbidden = {name: "use the flag or the variable" for name, option in options().items() if not option.layered}
    if role == "project":
        return {**forbidden, **dict.fromkeys(FACTS, "it describes a cluster, not an experiment: put it in a profile")}
    forbidden["profile"] = "choose the profile in the project file, by a flag or by SLAUNCH_PROFILE"
    if role == "machine":
        forbidden |= dict.fromkeys(FACTS_OF_FILES, "this file always applies to everyone here: put it in a profile")
    return forbidden


def host_names(full: bool) -> list[str]:
    """The short name of this machine, and with `full` the full one, which may take a DNS query."""
    name = os.uname().nodename
    return [name.partition(".")[0], *([name] if "." in name else [_full_name(name)] if full else [])]


@lru_cache
def _full_name(name: str) -> str:
    return socket.getfqdn(name)


def _matching_name(patterns: list[str]) -> str | None:
    """The name of this machine that one of the patterns matches."""
    lowered = [pattern.lower() for pattern in patterns]
    names = host_names(full=any("." in pattern for pattern in lowered)) if lowered else []
    return next((name for name in names for pattern in lowered if fnmatchcase(name.lower(), pattern)), None)


def host_mismatch(profile: str, patterns: list[str]) -> str:
    """Why this machine is not one of a profile's hosts; empty if it is, or if the profile has no hosts."""
    if not patterns or _matching_name(patterns) is not None:
        return ""
    return f"profile {profile} is for {', '.join(patterns)}, this is {host_names(full=False)[0]}"


class SiteReader:
    """Reads the files of the site."""

    def __init__(self, env: Mapping[str, str], cwd: Path, diagnostics: Diagnostics) -> None:
        self.env, self.cwd, self.diagnostics = env, cwd, diagnostics

    def read(self, chosen: Setting | None) -> tuple[list[Layer], SiteFacts | None]:
        """The layers, lowest precedence first, and the merged facts. Files named explicitly take precedence."""
        named = self._named_profile(chosen) if chosen is not None and not means_no_profile(chosen) else []
        spec = self._cluster_spec()
        by_host = self._profile_for_host() if chosen is None else []
        contributions = [*self._machine_defaults(), *by_host, *spec, *named]
        facts = None
        for _, higher in contributions:
            facts = higher.merged_over(facts) if facts is not None else higher
        return [layer for layer, _ in contributions], facts

    # --- profiles ----------------------------------------------------------------------------------------------------

    def _named_profile(self, chosen: Setting) -> list[Contribution]:
        name = str(chosen.value)
        if not _is_name(name):
            hint = "use a name without a path; --config takes a file"
            self._add_problem(f"--profile is not a valid profile name: {show(name)}", chosen.at, hint)
            return []
        return self._profile_chain(name, f"--profile names a profile that does not exist: {show(name)}", chosen.at)

    def _profile_chain(self, name: str, missing: str, at: str, why: str = "") -> list[Contribution]:
        """A profile and all that it extends, lowest precedence first."""
        chain: list[Contribution] = []
        read: list[tuple[str, Path | None]] = []
        while True:
            hidden_by = read[-1][1] if read and read[-1][0] == name else None
            path = self._find_profile(name, hidden_by, why)
            if path is None and hidden_by is None:
                self._add_problem(missing, at, self._suggest_profile(name))
                return chain
            if path is None or path in [earlier for _, earlier in read]:
                cycle = " -> ".join([one for one, _ in read] + [name])
                self._add_problem(f"the profiles extend each other in a cycle: {cycle}", at, "remove one `extends`")
                return chain
            read.append((name, path))
            contribution, extends, at = self._read_profile(name, path, first=len(read) == 1)
            chain.insert(0, contribution)
            if extends is None:
                return chain
            name, why = extends, ""
            missing = f"extends names a profile that does not exist: {show(name)}"

    def _find_profile(self, name: str, hidden_by: Path | None, why: str) -> Path | None:
        """The path of a profile, the user's own first. A profile that extends its own name extends the one it hides."""
        places = config_files.profile_files(name, self.env)
        if hidden_by is not None:
            places = places[places.index(hidden_by) + 1 :]
        found: Path | None = None
        for path in places:
            state = _state(path, found is not None)
            self._add_file(f"profile {name}", path, state, why if state == "read" else "")
            if state == "read":
                found = path
        return found

    def _read_profile(self, name: str, path: Path, first: bool) -> tuple[Contribution, str | None, str]:
        """The contribution of a profile, the name that it extends, and the source of that name."""
        content = self._content(f"profile {name}", path)
        facts = dict(content.facts)
        extends, hosts = facts.pop("extends", None), facts.pop("hosts", None)
        try:
            patterns = text_list(hosts)
            if first:  # `hosts` is not inherited
                self.diagnostics.hosts = name, patterns
        except BadValue as error:
            self._add_problem(f"hosts {error}", content.at("hosts"), error.hint)
        at = content.at("extends")
        if extends is not None and not (isinstance(extends, str) and _is_name(extends)):
            hint = "write the name of a profile"
            self._add_problem(f"extends is not a valid profile name: {show(extends)}", at, hint)
            extends = None
        return self._with_facts(content.layer, facts, content.at), extends, at

    def _profile_for_host(self) -> list[Contribution]:
        """The profile whose `hosts` matches this machine, in the first directory that has one."""
        hidden: set[str] = set()
        for folder in config_files.profile_folders(self.env):
            paths = [path for path in _profiles_in(folder) if path.stem not in hidden]
            hidden |= {path.stem for path in paths}
            matching = {path.stem: host for path in paths if (host := self._matching_host(path)) is not None}
            if len(matching) == 1:
                (name, host), *_ = matching.items()
                chosen = Setting(name, f"host name {host}")
                chain = self._profile_chain(name, "", chosen.at, f"chosen by the {chosen.at}")
                return [({"profile": chosen, **layer}, facts) for layer, facts in chain]
            if matching:
                # An error, not a warning: using none of them would silently change the job.
                host = next(iter(matching.values()))
                message = f"several profiles are for the host {host}: {', '.join(sorted(matching))}"
                self._add_problem(message, f"hosts in {folder}", "choose one: --profile NAME, or --profile none")
                return []
        return []

    def _matching_host(self, path: Path) -> str | None:
        """The name of this machine that a profile's `hosts` matches. Errors become warnings: the file is not in use."""
        try:
            if not re.search(r"^[^#\n]*\bhosts\b", config_files.read_text(path), re.MULTILINE):
                return None  # without importing yaml
            return _matching_name(text_list(config_files.read_key(path, "hosts")))
        except (UsageError, BadValue) as error:
            what = error.message if isinstance(error, UsageError) else f"hosts {error}"
            at = (error.at if isinstance(error, UsageError) else None) or path
            self.diagnostics.warnings.append(f"profile {path.stem} is not considered for this host: {what} ({at})")
            return None

    def _suggest_profile(self, name: str) -> str:
        names = config_files.profile_names(self.env)
        if not names:
            places = " or ".join(str(folder) for folder in config_files.profile_folders(self.env))
            command = f"slurm-launch config init --profile {shlex.quote(name)}"
            return f"there are no profiles in {places}; `{command}` creates it"
        close = get_close_matches(name, names, n=1)
        return (f"did you mean {close[0]!r}? " if close else "") + f"available: {', '.join(names)}"

    # --- other files -------------------------------------------------------------------------------------------------

    def _cluster_spec(self) -> list[Contribution]:
        if not self.env.get(CLUSTER_SPEC):
            return []
        from slurm_launch.config import realhf_import  # lazy: saves 3 ms per start without the variable

        path = self.cwd / self.env[CLUSTER_SPEC]
        try:
            spec = realhf_import.read(path)
        except InvalidSpec as error:
            for problem in error.problems:
                problem.at = f"{problem.at}, env {CLUSTER_SPEC}"
            self.diagnostics.problems += error.problems
            self._add_file("cluster spec", path, "read" if path.exists() else "absent")
            return []
        self._add_file("cluster spec", path, "read", f"{CLUSTER_SPEC}: {spec.name}")
        self.diagnostics.warnings += spec.warnings
        self.diagnostics.notes += spec.notes
        layer, _ = layer_from_values(spec.options, spec.at)
        return [self._with_facts(layer, spec.facts, spec.at)]

    def _machine_defaults(self) -> list[Contribution]:
        found: list[Contribution] = []
        for folder in config_files.site_folders(self.env):
            path = folder / PROJECT_FILE
            state = _state(path, bool(found))
            self._add_file("machine", path, state)
            if state == "read":
                content = self._content("machine", path)
                found = [self._with_facts(content.layer, content.facts, content.at)]
        return found

    def _content(self, role: str, path: Path) -> config_files.Content:
        def describe(line: int, detail: str = "") -> str:
            return f"{role} ({path}:{line}{detail})" if role.startswith("profile") else f"{path}:{line}{detail}"

        content = config_files.read_file(path, describe, forbidden_keys(role), self.cwd)
        self.diagnostics.problems += content.problems
        return content

    def _with_facts(self, layer: Layer, facts: Mapping[str, Any], at: Any) -> Contribution:
        from slurm_launch.config.profile import read_facts  # lazy: saves 2 ms per start without site files

        found, problems = read_facts(facts, at)
        self.diagnostics.problems += problems
        return layer, found

    def _add_problem(self, message: str, at: str, hint: str | None) -> None:
        self.diagnostics.problems.append(UsageError(message, at=at, hint=hint))

    def _add_file(self, role: str, path: Path, state: str, why: str = "") -> None:
        self.diagnostics.files.append(SearchedFile(role, str(path), state, why))


def _state(path: Path, hidden: bool) -> str:
    """What becomes of a file of which only the first one found is read."""
    if not os.path.isfile(path):
        return "absent"
    return "not read" if hidden else "read"


def _is_name(name: str) -> bool:
    return bool(name.strip()) and "/" not in name and not name.startswith(".") and name.isprintable()


def _profiles_in(folder: Path) -> list[Path]:
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(".yaml") and not name.startswith(".")]
    except OSError:
        return []
    return [folder / name for name in names if os.path.isfile(folder / name)]
