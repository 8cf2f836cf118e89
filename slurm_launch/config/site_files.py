"""The site's layers: the profile and what it extends, ReaL's cluster spec, and the machine's defaults.

Here is decided which of these files are read. A profile is chosen by name; when nobody chooses one, by the name of
this machine.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch.config import files as config_files
from slurm_launch.config.files import PROJECT_FILE
from slurm_launch.config.layers import Given, Layer, plain_layer
from slurm_launch.errors import InvalidSpec, UsageError, show
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.model import options

if TYPE_CHECKING:  # imported where there is a file: most machines have none
    from slurm_launch.config.profile import Site

    Part = tuple[Layer, Site]  # one file's contribution

CLUSTER_SPEC = "CLUSTER_SPEC_PATH"  # ReaL's own variable


@dataclass(frozen=True)
class Looked:
    """A file that was looked for, and what became of it."""

    role: str
    path: str
    state: str  # read, absent, not read
    why: str = ""  # it is read, when nobody named it


class Findings:
    """What was noticed on the way."""

    def __init__(self) -> None:
        self.problems: list[UsageError] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.files: list[Looked] = []
        self.hosts: tuple[str, list[str]] | None = None  # the profile in use, and the machines that it is for


def is_none(chosen: Given) -> bool:
    """Whether someone chose that there be no profile."""
    return chosen.value is None or (isinstance(chosen.value, str) and chosen.value.strip() in config_files.NO_PROFILE)


def forbidden_keys(role: str) -> dict[str, str]:
    """What cannot stand in a file of this role, and what to do instead."""
    forbidden = {name: "use the flag or the variable" for name, option in options().items() if not option.layered}
    if role == "project":
        from slurm_launch.config.profile import FACTS

        why = "it is about a cluster, not about the experiment: put it into a profile"
        return {**forbidden, **dict.fromkeys(FACTS, why)}
    forbidden["profile"] = "choose the profile in the project file, by a flag or by SLAUNCH_PROFILE"
    if role == "machine":
        why = "this file holds for everybody here as it is; put it into a profile"
        forbidden |= {"extends": why, "hosts": why}
    return forbidden


def host_names(full: bool) -> list[str]:
    """This machine's short name, and its full one if that is asked for: it may be a question to the network."""
    name = os.uname().nodename
    return [name.partition(".")[0], *([name] if "." in name else [_full_name(name)] if full else [])]


@lru_cache
def _full_name(name: str) -> str:
    import socket

    return socket.getfqdn(name)


def _this_host(patterns: list[str]) -> str | None:
    """The name of this machine that one of the patterns fits."""
    from fnmatch import fnmatchcase

    low = [pattern.lower() for pattern in patterns]
    names = host_names(full=any("." in pattern for pattern in low)) if low else []
    return next((name for name in names for pattern in low if fnmatchcase(name.lower(), pattern)), None)


def elsewhere(profile: str, patterns: list[str]) -> str:
    """Why this machine is none of a profile's cluster; nothing if it is, or if nobody can tell."""
    if not patterns or _this_host(patterns) is not None:
        return ""
    return f"profile {profile} is for {', '.join(patterns)}, this is {host_names(full=False)[0]}"


class SiteReader:
    """One reading of the site's files."""

    def __init__(self, env: Mapping[str, str], cwd: Path, findings: Findings) -> None:
        self.env, self.cwd, self.findings = env, cwd, findings

    def read(self, chosen: Given | None) -> tuple[list[Layer], Site | None]:
        """The layers, the weakest first, and the facts. What somebody named is stronger than what was found."""
        named = self._named(chosen) if chosen is not None and not is_none(chosen) else []
        spec = self._cluster_spec()
        found = self._by_host() if chosen is None else []
        every = [*self._machine(), *found, *spec, *named]
        facts = None
        for _, site in every:
            facts = site.over(facts) if facts is not None else site
        return [layer for layer, _ in every], facts

    # --- profiles ----------------------------------------------------------------------------------------------------

    def _named(self, chosen: Given) -> list[Part]:
        name = str(chosen.value)
        if not _is_name(name):
            hint = "give the name alone; --config takes a file"
            self._wrong(f"--profile is not the name of a profile: {show(name)}", chosen.at, hint)
            return []
        return self._chain(name, f"--profile names a profile that does not exist: {show(name)}", chosen.at)

    def _chain(self, name: str, missing: str, at: str, why: str = "") -> list[Part]:
        """A profile and all that it extends, the weakest first."""
        chain: list[Part] = []
        seen: list[tuple[str, Path | None]] = []
        while True:
            hides = seen[-1][1] if seen and seen[-1][0] == name else None
            path = self._find(name, hides, why)
            if path is None and hides is None:
                self._wrong(missing, at, self._suggested(name))
                return chain
            if path is None or path in [before for _, before in seen]:
                circle = " -> ".join([one for one, _ in seen] + [name])
                self._wrong(f"the profiles extend one another in a circle: {circle}", at, "take one `extends` away")
                return chain
            seen.append((name, path))
            part, extends, at = self._profile_file(name, path, named=len(seen) == 1)
            chain.insert(0, part)
            if extends is None:
                return chain
            name, why = extends, ""
            missing = f"extends names a profile that does not exist: {show(name)}"

    def _find(self, name: str, hides: Path | None, why: str) -> Path | None:
        """Where a profile is, the user's own place first. One that extends its own name means the one that it hides."""
        places = config_files.profile_files(name, self.env)
        if hides is not None:
            places = places[places.index(hides) + 1 :]
        found: Path | None = None
        for path in places:
            state = "absent" if not os.path.isfile(path) else "not read" if found else "read"
            if state == "read":
                found = path
            self.findings.files.append(Looked(f"profile {name}", str(path), state, why if state == "read" else ""))
        return found

    def _profile_file(self, name: str, path: Path, named: bool) -> tuple[Part, str | None, str]:
        """What a profile says, which one it extends, and where it says so."""
        from slurm_launch.config.profile import texts

        content = self._content(f"profile {name}", path)
        facts = dict(content.facts)
        extends, hosts = facts.pop("extends", None), facts.pop("hosts", None)
        try:
            patterns = texts(hosts)
            if named:  # `hosts` is not inherited
                self.findings.hosts = name, patterns
        except BadValue as error:
            self._wrong(f"hosts {error}", content.at("hosts"), error.hint)
        at = content.at("extends")
        if extends is not None and not (isinstance(extends, str) and _is_name(extends)):
            self._wrong(f"extends is not the name of a profile: {show(extends)}", at, "write the name of one")
            extends = None
        return self._with_facts(content.layer, facts, content.at), extends, at

    def _by_host(self) -> list[Part]:
        """The profile whose `hosts` has this machine, in the first place that has one."""
        hidden: set[str] = set()
        for folder in config_files.profile_folders(self.env):
            paths = [path for path in _profiles_in(folder) if path.stem not in hidden]
            hidden |= {path.stem for path in paths}
            matching = {path.stem: host for path in paths if (host := self._host_in(path)) is not None}
            if len(matching) == 1:
                (name, host), *_ = matching.items()
                found = Given(name, f"host name {host}")
                chain = self._chain(name, "", found.at, f"chosen by the {found.at}")
                return [({"profile": found, **layer}, site) for layer, site in chain]
            if matching:
                # Not a warning: without either the job would be another one than it was yesterday.
                host = next(iter(matching.values()))
                message = f"several profiles are for the host {host}: {', '.join(sorted(matching))}"
                self._wrong(message, f"hosts in {folder}", "choose one: --profile NAME, or --profile none")
                return []
        return []

    def _host_in(self, path: Path) -> str | None:
        """The name of this machine that a profile's `hosts` matches. What is wrong in it concerns other launches."""
        try:
            if not re.search(r"^[^#\n]*\bhosts\b", config_files.read_text(path), re.MULTILINE):
                return None  # and YAML need not be imported
            from slurm_launch.config.profile import texts

            return _this_host(texts(config_files.top_level(path, "hosts")))
        except (UsageError, BadValue) as error:
            what = error.message if isinstance(error, UsageError) else f"hosts {error}"
            at = (error.at if isinstance(error, UsageError) else None) or path
            self.findings.warnings.append(f"profile {path.stem} is not considered for this host: {what} ({at})")
            return None

    def _suggested(self, name: str) -> str:
        names = config_files.profile_names(self.env)
        if not names:
            places = " or ".join(str(folder) for folder in config_files.profile_folders(self.env))
            return f"there is none in {places}; `slurm-launch config init --profile {shlex.quote(name)}` makes it"
        close = get_close_matches(name, names, n=1)
        return (f"did you mean {close[0]!r}? " if close else "") + f"there are: {', '.join(names)}"

    # --- the others --------------------------------------------------------------------------------------------------

    def _cluster_spec(self) -> list[Part]:
        if not self.env.get(CLUSTER_SPEC):
            return []
        from slurm_launch.config import realhf_import

        path = self.cwd / self.env[CLUSTER_SPEC]
        try:
            spec = realhf_import.read(path)
        except InvalidSpec as error:
            for problem in error.problems:
                problem.at = f"{problem.at}, env {CLUSTER_SPEC}"
            self.findings.problems += error.problems
            self.findings.files.append(Looked("cluster spec", str(path), "read" if path.exists() else "absent"))
            return []
        self.findings.files.append(Looked("cluster spec", str(path), "read", f"{CLUSTER_SPEC}: {spec.name}"))
        self.findings.warnings += spec.warnings
        self.findings.notes += spec.notes
        layer, _ = plain_layer(spec.options, spec.at)
        return [self._with_facts(layer, spec.facts, spec.at)]

    def _machine(self) -> list[Part]:
        found: list[Part] = []
        for folder in config_files.site_folders(self.env):
            path = folder / PROJECT_FILE
            state = "absent" if not os.path.isfile(path) else "not read" if found else "read"
            self.findings.files.append(Looked("machine", str(path), state))
            if state == "read":
                content = self._content("machine", path)
                found = [self._with_facts(content.layer, content.facts, content.at)]
        return found

    def _content(self, role: str, path: Path) -> config_files.Content:
        def describe(line: int, place: str = "") -> str:
            return f"{role} ({path}:{line}{place})" if role.startswith("profile") else f"{path}:{line}{place}"

        content = config_files.read_file(path, describe, forbidden_keys(role), self.cwd)
        self.findings.problems += content.problems
        return content

    def _with_facts(self, layer: Layer, facts: Mapping[str, Any], at: Any) -> Part:
        from slurm_launch.config.profile import read_site

        site, problems = read_site(facts, at)
        self.findings.problems += problems
        return layer, site

    def _wrong(self, message: str, at: str, hint: str | None) -> None:
        self.findings.problems.append(UsageError(message, at=at, hint=hint))


def _is_name(name: str) -> bool:
    return bool(name.strip()) and "/" not in name and not name.startswith(".") and name.isprintable()


def _profiles_in(folder: Path) -> list[Path]:
    try:
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(".yaml") and not name.startswith(".")]
    except OSError:
        return []
    return [folder / name for name in names if os.path.isfile(folder / name)]
