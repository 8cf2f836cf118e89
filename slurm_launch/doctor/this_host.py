"""What can be checked on this host without Slurm: file systems, networks, limits, Ray."""

from __future__ import annotations

import glob
import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slurm_launch.doctor.findings import CheckResult, note, ok, problem
from slurm_launch.slurm.client import Probe, ProbeFailed

# Shared file systems, as `stat -f -c %T` names them; fhgfs is BeeGFS.
SHARED = re.compile(
    r"acfs|afs|beegfs|ceph|cifs|fhgfs|gfs2?|gpfs|lustre|nfs[d4]?|ocfs2|panfs|pvfs2|orangefs|smb2?|snfs|wekafs"
)
# Program in PATH -> its name for --container-runtime, in order of preference.
RUNTIMES = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "podman-hpc": "podman-hpc",
    "shifter": "shifter",
    "ch-run": "charliecloud",
    "podman": "podman",
}
# Interfaces by name. A test compares them with templates/parts/nodes.sh and templates/doctor.sh.j2.
VIRTUAL_INTERFACES = re.compile(r"docker|br-|virbr|veth|cni|cali|podman|lxc")  # of containers and virtual machines
FAST_INTERFACES = re.compile(r"ib|hsn|opa|roce")  # InfiniBand, Slingshot, Omni-Path, RoCE
FEW_FILES = 8192  # Ray opens several thousand files on a large node
FEW_PROCESSES = 4096
LOWEST_EPHEMERAL_PORT = 16384  # as in templates/parts/ports.sh
OLDEST_RAY = (2, 40)
FIRST_RAY_WITH_TOKENS = (2, 52)


@dataclass(frozen=True)
class InterfaceAddress:
    device: str
    ip: str


def parse_addresses(text: str) -> list[InterfaceAddress]:
    """Parse `ip -o addr show up`: the addresses that a job could use."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\d+:\s+([^\s@]+)\S*\s+inet6?\s+([^/\s]+)\S*(.*)", line)
        if match is None or VIRTUAL_INTERFACES.match(match[1]) or re.search(r" (tentative|deprecated)", match[3]):
            continue
        if " scope global" in match[3]:
            found.append(InterfaceAddress(match[1], match[2]))
    return found


def by_device(addresses: list[InterfaceAddress]) -> dict[str, list[str]]:
    devices: dict[str, list[str]] = {}
    for address in addresses:
        devices.setdefault(address.device, []).append(address.ip)
    return devices


def check_host(probe: Probe, directories: Mapping[str, str], *, with_job: bool = False) -> list[CheckResult]:
    """Check this host. `directories` (name -> path) must be visible on the nodes; with `with_job` a job checks that."""
    return [
        *_file_systems(probe, directories, with_job),
        *_network(probe, with_job),
        *_ports(),
        *check_limits(resource.getrlimit(resource.RLIMIT_NOFILE)[1], resource.getrlimit(resource.RLIMIT_NPROC)[1]),
        *_ray(probe),
        ok("python", platform.python_version()),
    ]


def installed_runtimes(env: Mapping[str, str]) -> list[str]:
    """The container runtimes in PATH, by their names for --container-runtime."""
    return [name for program, name in RUNTIMES.items() if shutil.which(program, path=env.get("PATH"))]


def _file_systems(probe: Probe, directories: Mapping[str, str], with_job: bool) -> Iterator[CheckResult]:
    seen: set[str] = set()
    for about, path in directories.items():
        if path in seen:
            continue
        seen.add(path)
        try:
            kind = probe(["stat", "-f", "-c", "%T", _existing_parent(path)]).strip()
        except ProbeFailed as failure:
            yield (note if failure.missing else problem)(about, f"{path}: {failure.text}", failure.hint)
            continue
        if SHARED.fullmatch(kind):
            yield ok(about, f"{path} is on {kind}, a shared file system")
        else:
            hint = "the nodes must see it at the same path"
            hint += "" if with_job else "; `doctor --job` checks it"
            yield note(about, f"{path} is on {kind}, possibly local to this host", hint)


def _existing_parent(path: str) -> str:
    """The path itself, or its nearest parent that exists: a launch creates the rest."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _network(probe: Probe, with_job: bool) -> Iterator[CheckResult]:
    try:
        devices = by_device(parse_addresses(probe(["ip", "-o", "addr", "show", "up"])))
    except ProbeFailed as failure:
        yield note("network", f"not checked: {failure.text}", "the nodes of a job need `ip` (package iproute2)")
        return
    shown = "; ".join(f"{device} {', '.join(ips)}" for device, ips in devices.items())
    if not devices:
        yield note("network", "this host has only loopback addresses", "the nodes of a job need another one")
    elif len(devices) == 1:
        yield ok("network", shown)
    else:
        hint = "a job uses the one that its node's name resolves to; --interface chooses another"
        hint += "" if with_job else "; `doctor --job` checks the nodes"
        yield note("network", f"{len(devices)} networks here: {shown}", hint)


def _ports() -> Iterator[CheckResult]:
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        yield note("ports", "cannot read the ephemeral port range")
        return
    yield check_ports(low, high)


def check_ports(low: int, high: int) -> CheckResult:
    if low > LOWEST_EPHEMERAL_PORT:
        return ok("ports", f"ephemeral ports {low}-{high}; the head's port is below them")
    hint = "if the head's port is taken, another one is tried; --port-range sets the ports to use"
    return note("ports", f"ephemeral ports {low}-{high}, which leaves few below them", hint)


def check_limits(files: int, processes: int) -> Iterator[CheckResult]:
    few = []
    if 0 <= files < FEW_FILES:
        few.append(f"{files} open files (ulimit -Hn)")
    if 0 <= processes < FEW_PROCESSES:
        few.append(f"{processes} processes (ulimit -Hu)")
    if few:
        hint = "Slurm passes these limits on to jobs; ask the site to raise them"
        yield note("limits", f"at most {' and '.join(few)}", hint)
    else:
        yield ok("limits", f"{_show_limit(files)} open files, {_show_limit(processes)} processes")


def _show_limit(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _ray(probe: Probe) -> Iterator[CheckResult]:
    program = shutil.which("ray", path=probe.env.get("PATH"))
    if program is None:
        hint = "fine if the job's environment has it: --venv, --conda-env, --modules, --load-env or a container"
        yield note("ray", "not in PATH here", hint)
        return
    version = installed_ray(program)
    if version is None:
        try:
            version = probe([program, "--version"])
        except ProbeFailed as failure:
            yield problem("ray", failure.text, failure.hint)
            return
    yield check_ray_version(version)


def installed_ray(program: str) -> str | None:
    """The version of the `ray` at that path, from the name of its metadata directory: `ray --version` takes seconds."""
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    found = glob.glob(os.path.join(glob.escape(prefix), "lib*", "python3*", "site-packages", "ray-*.dist-info"))
    versions = {os.path.basename(path)[len("ray-") : -len(".dist-info")] for path in found}
    return versions.pop() if len(versions) == 1 else None


def check_ray_version(text: str) -> CheckResult:
    found = re.search(r"(\d{1,9})\.(\d{1,9})(\.\w+)*", text)
    if found is None:
        return note("ray", f"cannot parse the version: {text.strip()[:80]!r}")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST_RAY:
        return problem("ray", f"{found[0]} is too old", "use Ray 2.40 or newer")
    if version < FIRST_RAY_WITH_TOKENS:
        hint = "anyone on the network can use its cluster; Ray 2.52 and newer have token authentication"
        return note("ray", f"{found[0]}, without token authentication", hint)
    return ok("ray", f"{found[0]}, with token authentication")
