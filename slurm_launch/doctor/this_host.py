"""What can be seen of this host: file systems, networks, limits, Ray. No Slurm is needed for it."""

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

from slurm_launch.doctor.findings import (
    Finding,
    note,
    ok,
    problem,
)
from slurm_launch.slurm.client import NoAnswer, Probe

# As `stat -f -c %T` calls them; fhgfs is BeeGFS.
SHARED = re.compile(
    r"acfs|afs|beegfs|ceph|cifs|fhgfs|gfs2?|gpfs|lustre|nfs[d4]?|ocfs2|panfs|pvfs2|orangefs|smb2?|snfs|wekafs"
)
# Program in PATH -> what --container-runtime calls it, the preferred first.
RUNTIMES = {
    "apptainer": "apptainer",
    "singularity": "singularity",
    "podman-hpc": "podman-hpc",
    "shifter": "shifter",
    "ch-run": "charliecloud",
    "podman": "podman",
}
# Interfaces of containers and virtual machines, as in templates/parts/address.sh.
VIRTUAL = re.compile(r"docker|br-|virbr|veth|cni|cali|podman|lxc")
FEW_FILES = 8192  # Ray opens some thousand files on a large node
FEW_PROCESSES = 4096
OLDEST_RAY = (2, 40)
TOKENS = (2, 52)


@dataclass(frozen=True)
class Address:
    device: str
    ip: str


def parse_addresses(text: str) -> list[Address]:
    """`ip -o addr show up`: the addresses that a job could use."""
    found = []
    for line in text.splitlines():
        match = re.match(r"\d+:\s+([^\s@]+)\S*\s+inet6?\s+([^/\s]+)\S*(.*)", line)
        if match is None or VIRTUAL.match(match[1]) or re.search(r" (tentative|deprecated)", match[3]):
            continue
        if " scope global" in match[3]:
            found.append(Address(match[1], match[2]))
    return found


def by_device(addresses: list[Address]) -> dict[str, list[str]]:
    devices: dict[str, list[str]] = {}
    for address in addresses:
        devices.setdefault(address.device, []).append(address.ip)
    return devices


def examine(ask: Probe, directories: Mapping[str, str], *, with_job: bool = False) -> list[Finding]:
    """`directories` are those that the nodes must see too: what for, and where. `with_job`: a job asks the nodes."""
    return [
        *_file_systems(ask, directories, with_job),
        *_network(ask, with_job),
        *_ports(),
        *limits(resource.getrlimit(resource.RLIMIT_NOFILE)[1], resource.getrlimit(resource.RLIMIT_NPROC)[1]),
        *_ray(ask),
        ok("python", platform.python_version()),
    ]


def runtimes(env: Mapping[str, str]) -> list[str]:
    """The container runtimes in PATH, by the names that --container-runtime knows."""
    return [name for program, name in RUNTIMES.items() if shutil.which(program, path=env.get("PATH"))]


def _file_systems(ask: Probe, directories: Mapping[str, str], with_job: bool) -> Iterator[Finding]:
    seen: set[str] = set()
    for about, path in directories.items():
        there = path
        while not os.path.isdir(there) and there != os.path.dirname(there):
            there = os.path.dirname(there)  # it will be made
        if path in seen:
            continue
        seen.add(path)
        try:
            kind = ask(["stat", "-f", "-c", "%T", there]).strip()
        except NoAnswer as failure:
            yield (note if failure.missing else problem)(about, f"{path}: {failure.text}", failure.hint)
            continue
        if SHARED.fullmatch(kind):
            yield ok(about, f"{path} is on {kind}, a shared file system")
        else:
            hint = "the nodes must see it at the same path"
            hint += "" if with_job else "; `doctor --job` tells whether they do"
            yield note(about, f"{path} is on {kind}, which may be local to this host", hint)


def _network(ask: Probe, with_job: bool) -> Iterator[Finding]:
    try:
        devices = by_device(parse_addresses(ask(["ip", "-o", "addr", "show", "up"])))
    except NoAnswer as failure:
        yield note("network", f"cannot be seen: {failure.text}", "the job needs `ip` on its nodes (package iproute2)")
        return
    shown = "; ".join(f"{device} {', '.join(ips)}" for device, ips in devices.items())
    if not devices:
        yield note("network", "this host has no address beside loopback", "the nodes of a job need one")
    elif len(devices) == 1:
        yield ok("network", shown)
    else:
        hint = "a job takes the one that its node's name means; --interface chooses"
        hint += "" if with_job else "; `doctor --job` looks at the nodes"
        yield note("network", f"{len(devices)} networks here: {shown}", hint)


def _ports() -> Iterator[Finding]:
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        yield note("ports", "the kernel's own range cannot be read")
        return
    yield ports(low, high)


def ports(low: int, high: int) -> Finding:
    if low > 16384:  # as in templates/parts/ports.sh
        return ok("ports", f"the kernel hands out {low}-{high}; the head's port lies below")
    hint = "the head's port may be taken for a moment, then another is tried; --port-range says which ports to use"
    return note("ports", f"the kernel hands out {low}-{high}, which leaves little room below", hint)


def limits(files: int, processes: int) -> Iterator[Finding]:
    few = []
    if 0 <= files < FEW_FILES:
        few.append(f"{files} open files (ulimit -Hn)")
    if 0 <= processes < FEW_PROCESSES:
        few.append(f"{processes} processes (ulimit -Hu)")
    if few:
        yield note("limits", f"at most {' and '.join(few)}", "Slurm hands them on to jobs; ask the site for more")
    else:
        yield ok("limits", f"{_shown(files)} open files, {_shown(processes)} processes")


def _shown(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _ray(ask: Probe) -> Iterator[Finding]:
    program = shutil.which("ray", path=ask.env.get("PATH"))
    if program is None:
        hint = "fine when the job's environment has it: --venv, --conda-env, --modules, --load-env or a container"
        yield note("ray", "not in PATH here", hint)
        return
    version = installed_ray(program)
    if version is None:
        try:
            version = ask([program, "--version"])
        except NoAnswer as failure:
            yield problem("ray", failure.text, failure.hint)
            return
    yield ray_version(version)


def installed_ray(program: str) -> str | None:
    """The version that is installed beside that program, read from a folder's name: `ray --version` takes seconds."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(program)))
    found = glob.glob(os.path.join(glob.escape(home), "lib*", "python3*", "site-packages", "ray-*.dist-info"))
    versions = {os.path.basename(path)[len("ray-") : -len(".dist-info")] for path in found}
    return versions.pop() if len(versions) == 1 else None


def ray_version(text: str) -> Finding:
    found = re.search(r"(\d{1,9})\.(\d{1,9})(\.\w+)*", text)
    if found is None:
        return note("ray", f"its version cannot be read: {text.strip()[:80]!r}")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST_RAY:
        return problem("ray", f"{found[0]} is too old", "use Ray 2.40 or newer")
    if version < TOKENS:
        return note(
            "ray", f"{found[0]} knows no tokens", "whoever is in the network can use its cluster; 2.52 and newer can"
        )
    return ok("ray", f"{found[0]}, with tokens")
