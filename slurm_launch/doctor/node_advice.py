"""What the nodes reported in the log of `doctor --job`, and what it means for a Ray job. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm_launch.doctor import this_host
from slurm_launch.doctor.findings import CheckResult, note, ok, problem
from slurm_launch.doctor.this_host import FAST_INTERFACES
from slurm_launch.slurm.site import number

ENOUGH_SPACE = 2000  # MB in the temporary directory or /dev/shm; less is a note
LITTLE_SPACE = 200  # MB; less is a problem
MAX_CLOCK_SKEW = 10.0  # seconds; the nodes do not read their clocks at the same moment
MAX_TEMP_DIR = 20  # characters: Ray's socket paths must be short
OLDEST_BASH = (4, 4)

NodeFacts = dict[str, list[list[str]]]  # key -> the words of each line


@dataclass(frozen=True)
class NodeReport:
    """What the probe job found: the findings, and values for a profile."""

    nodes: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()  # those that all nodes have
    interface: str | None = None
    interface_reason: str = ""
    temp_dir: str | None = None
    temp_dir_reason: str = ""
    findings: list[CheckResult] = field(default_factory=list)
    unreachable: bool = False  # sbatch could not reach slurmctld


@dataclass(frozen=True)
class Suggestion:
    """The findings about one option, and a better value for it if there is one."""

    findings: list[CheckResult]
    value: str | None = None
    reason: str = ""


def parse_log(log: str) -> dict[str, NodeFacts]:
    """The lines `doctor NODE KEY WORDS` of a log, by node and key."""
    nodes: dict[str, NodeFacts] = {}
    for line in log.splitlines():
        found = re.match(r"doctor (\S+) ([a-z-]+)(?: (.*))?$", line)
        if found:
            nodes.setdefault(found[1], {}).setdefault(found[2], []).append((found[3] or "").split())
    return nodes


def is_complete(log: str) -> bool:
    """Whether the job ran to its end."""
    return re.search(r"^doctor \S+ end\b", log, re.MULTILINE) is not None


def assess(log: str, expected: int, *, in_container: bool = False) -> NodeReport:
    """Assess the log of a probe job on `expected` nodes."""
    parsed = parse_log(log)
    nodes = {name: facts for name, facts in sorted(parsed.items()) if "host" in facts}
    findings: list[CheckResult] = []
    if len(nodes) < expected:
        errors = [line for line in log.splitlines() if "error" in line.lower()][:1]
        text = f"{len(nodes)} of {expected} responded" + (f": {errors[0]}" if errors else "")
        findings.append(problem("nodes", text, "the job's log is kept"))
    if not nodes:
        return NodeReport(findings=findings)
    if len(nodes) == expected:
        findings.append(ok("nodes", f"{', '.join(nodes)} responded"))
    directory = _temp_dir(nodes)
    network = _network(nodes)
    findings += [
        *_environment(parsed),
        *_run_dir(nodes),
        *directory.findings,
        *_shared_memory(nodes),
        *network.findings,
        *([] if in_container else _ray(nodes)),
        *_bash(nodes),
        *this_host.check_limits(_least(nodes, "files"), _least(nodes, "processes")),
        *_ports(nodes),
        *_memory_limit(nodes),
        *_clocks(nodes),
    ]
    return NodeReport(
        nodes=tuple(nodes),
        runtimes=_common_runtimes(nodes),
        interface=network.value,
        interface_reason=network.reason,
        temp_dir=directory.value,
        temp_dir_reason=directory.reason,
        findings=findings,
    )


def _common_runtimes(nodes: dict[str, NodeFacts]) -> tuple[str, ...]:
    """The container runtimes that all nodes have."""
    installed = [{word for words in facts.get("runtimes", []) for word in words} for facts in nodes.values()]
    return tuple(
        name for program, name in this_host.RUNTIMES.items() if all(program in programs for programs in installed)
    )


def _first(facts: NodeFacts, key: str) -> list[str]:
    return facts.get(key, [[]])[0]


def _number(facts: NodeFacts, key: str) -> int | None:
    return number(" ".join(_first(facts, key)))


def _environment(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    for facts in nodes.values():
        for words in facts.get("environment", []):
            yield problem("environment", " ".join(words), "fix --modules, --conda-env, --venv or --load-env")


def _run_dir(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    missing = [name for name, facts in nodes.items() if _first(facts, "run-dir")[:1] != ["seen"]]
    closed = [name for name, facts in nodes.items() if "writable" not in _first(facts, "run-dir")]
    if missing:
        hint = "choose a directory that all nodes share with --run-dir"
        yield problem("run-dir", f"not visible on {', '.join(missing)}", hint)
    elif closed:
        text = f"visible on all nodes, but not writable on {', '.join(closed)}"
        yield problem("run-dir", text, "choose another --run-dir")
    else:
        yield ok("run-dir", "shared by all nodes, and writable")


@dataclass(frozen=True)
class _Directory:
    kind: str
    total: int
    free: int
    writable: bool
    shared: bool

    @property
    def suitable(self) -> bool:
        """Whether it can be Ray's temporary directory."""
        return self.writable and not self.shared and not this_host.SHARED.fullmatch(self.kind)


def _directories(facts: NodeFacts) -> dict[str, _Directory]:
    """Parse `directory PATH TYPE TOTAL FREE writable|closed shared|own`; other lines are ignored."""
    found = {}
    for words in facts.get("directory", []):
        if len(words) != 6:
            continue
        path, kind, writable, shared = words[0], words[1], words[4] == "writable", words[5] == "shared"
        total, free = number(words[2]), number(words[3])
        if total is not None and free is not None:
            found[path] = _Directory(kind, total, free, writable, shared)
    return found


def _temp_dir(nodes: dict[str, NodeFacts]) -> Suggestion:
    """Whether the temporary directory is suitable; if not, a better one that all nodes have."""
    by_node = {name: _directories(facts) for name, facts in nodes.items()}
    used = next((path for facts in nodes.values() for path in _first(facts, "temp-dir")), "/tmp")
    current = {name: found[used] for name, found in by_node.items() if used in found}
    free, better = _roomiest(by_node, used)
    hint = "choose a node-local one with --temp-dir"
    if better:
        hint = f"--temp-dir {better} is node-local, with {free} MB free"
    bad = [name for name in nodes if name not in current or not current[name].writable]
    if bad:
        text = f"{used} is missing or not writable on {', '.join(bad)}"
        return Suggestion([problem("temp-dir", text, hint)], better, f"{used} is missing or not writable.")
    if any(directory.shared for directory in current.values()):
        text = f"{used} is shared by the nodes: Ray's sockets and logs need a node-local directory"
        return Suggestion([problem("temp-dir", text, hint)], better, f"{used} is shared by the nodes; this one is not.")
    name, least = min(current.items(), key=lambda pair: pair[1].free)
    text = f"{used} is {least.kind}, node-local, {least.free} of {least.total} MB free on {name}"
    if least.free >= ENOUGH_SPACE:
        return Suggestion([ok("temp-dir", text)])
    if free <= least.free:
        better, hint = None, "Ray's logs and spilled objects are written there"
    finding = problem("temp-dir", text, hint) if least.free < LITTLE_SPACE else note("temp-dir", text, hint)
    return Suggestion([finding], better, f"{used} has only {least.free} MB free; this one has {free}.")


def _roomiest(by_node: dict[str, dict[str, _Directory]], used: str) -> tuple[int, str | None]:
    """The suitable directory, other than the one in use, with the most free space on all nodes, and that space."""
    found = [
        (min(directories[path].free for directories in by_node.values()), path)
        for path in next(iter(by_node.values()))
        if path != used
        and len(path) <= MAX_TEMP_DIR
        and all(path in directories and directories[path].suitable for directories in by_node.values())
    ]
    return max(found, default=(0, None))


def _shared_memory(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    sizes = {name: size for name, facts in nodes.items() if (size := _number(facts, "shm")) is not None}
    if not sizes:
        yield problem("shm", "cannot read the size of /dev/shm", "Ray's object store is there")
        return
    name, least = min(sizes.items(), key=lambda pair: pair[1])
    if least < ENOUGH_SPACE:
        yield note("shm", f"/dev/shm has only {least} MB on {name}", "larger objects spill to disk, which is slow")
    else:
        yield ok("shm", f"/dev/shm has at least {least} MB")


@dataclass(frozen=True)
class _Connection:
    """One attempt of a node to connect to an address of another."""

    source: str
    target: str
    device: str
    ip: str
    result: str  # yes, silent, refused or unreachable


def _connections(nodes: dict[str, NodeFacts]) -> list[_Connection]:
    return [
        _Connection(name, *words)
        for name, facts in nodes.items()
        for words in facts.get("reach", [])
        if len(words) == 4
    ]


def _network(nodes: dict[str, NodeFacts]) -> Suggestion:
    """Whether the nodes reach each other at the addresses a job would use; a clearly better interface."""
    chosen = {name: _first(facts, "chosen") for name, facts in nodes.items()}
    if lost := [name for name, words in chosen.items() if len(words) < 2]:
        hint = "the node needs `ip` and an address that is not loopback; see --interface and --ip-family"
        return Suggestion([problem("network", f"no usable address on {', '.join(lost)}", hint)])
    device = next(iter(chosen.values()))[0]
    addresses = {words[1] for words in chosen.values()}
    shown = ", ".join(f"{name} {words[1]}" for name, words in chosen.items())
    tried = _connections(nodes)
    if len(nodes) == 1:
        return Suggestion([ok("network", f"{shown} ({device}); one node, so no connection was tried")])
    deaf = [name for name, facts in nodes.items() if "listener" in facts]
    if deaf or not tried:
        why = " ".join(_first(nodes[deaf[0]], "listener")) + f" on {deaf[0]}" if deaf else "no node responded"
        return Suggestion([note("network", f"{shown} ({device}); connections between the nodes not checked: {why}")])
    failed = [
        f"{attempt.source} to {attempt.target} ({attempt.ip}: {attempt.result})"
        for attempt in tried
        if attempt.ip in addresses and attempt.result != "yes"
    ]
    if failed:
        text = f"the nodes cannot reach each other on {device}: {'; '.join(failed)}"
        hint = "possibly a firewall: --port-range sets the open ports, --interface another network"
        return Suggestion([problem("network", text, hint)])
    reached = ok("network", f"the nodes reach each other on {device}: {shown}")
    others = [attempt for attempt in tried if attempt.device != device and attempt.ip not in addresses]
    more = _other_networks(nodes, others, device)
    return Suggestion([reached, *more.findings], more.value, more.reason)


def _other_networks(nodes: dict[str, NodeFacts], tried: list[_Connection], device: str) -> Suggestion:
    """The networks that a job would not use by itself; the value is the only fast one that all nodes reach."""
    if not tried:
        return Suggestion([])
    results: dict[str, set[str]] = {}
    for attempt in tried:
        results.setdefault(attempt.device, set()).add(attempt.result)
    everywhere = {name for name in results if all(name in _devices(facts) for facts in nodes.values())}
    good = sorted(name for name in everywhere if results[name] == {"yes"})
    fast = [name for name in good if FAST_INTERFACES.match(name)]
    bad = "not reachable, or not on all nodes"
    shown = ", ".join(f"{name} ({'reachable' if name in good else bad})" for name in results)
    hint = f"--interface {(fast or good)[0]} uses it" if good else None
    findings = [note("network", f"other interfaces: {shown}", hint)]
    if len(fast) == 1 and not FAST_INTERFACES.match(device):
        reason = f"All nodes reach each other on {fast[0]}; by default a job would use {device}."
        return Suggestion(findings, fast[0], reason)
    return Suggestion(findings)


def _devices(facts: NodeFacts) -> set[str]:
    return {words[0] for words in facts.get("address", []) if words}


def _ray(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    versions = {name: " ".join(_first(facts, "ray")) for name, facts in nodes.items()}
    if len(set(versions.values())) > 1:
        shown = ", ".join(f"{name} {version or 'none'}" for name, version in versions.items())
        yield problem("ray", f"differs between the nodes: {shown}", "use one environment that all nodes share")
    elif version := next(iter(versions.values())):
        found = this_host.check_ray_version(version)
        yield CheckResult(found.status, "ray", f"{found.text}, on all nodes", found.hint)
    else:
        hint = "set --venv, --conda-env, --modules or --load-env, and run the doctor again"
        yield note("ray", "not in PATH on the nodes", hint)


def _bash(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    versions = {name: " ".join(_first(facts, "bash")) for name, facts in nodes.items()}
    old = [name for name, text in versions.items() if _parse_version(text) < OLDEST_BASH]
    shown = ", ".join(sorted(set(versions.values())))
    if old:
        yield problem("bash", f"{shown} on {', '.join(old)}", "the script needs 4.4")
    else:
        yield ok("bash", shown)


def _ports(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    ranges = sorted({tuple(_first(facts, "ports")) for facts in nodes.values()})
    if len(ranges) > 1:
        shown = "; ".join("-".join(words) for words in ranges)
        yield note("ports", f"the ephemeral port range differs between the nodes: {shown}")
        return
    bounds = [number(word) for word in ranges[0]]
    if len(bounds) == 2 and bounds[0] is not None and bounds[1] is not None:
        yield this_host.check_ports(bounds[0], bounds[1])


def _memory_limit(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    limits = sorted({words[0] for facts in nodes.values() if (words := _first(facts, "memory-limit"))})
    text = f"a cgroup limits the job to {' or '.join(limits)} MB" if limits else "no cgroup limits the job"
    yield ok("memory-limit", text)


def _clocks(nodes: dict[str, NodeFacts]) -> Iterator[CheckResult]:
    # Only the beginning is parsed: a `date` without %N prints 1700000000.N.
    parsed = [re.match(r"\d{1,18}(\.\d+)?", " ".join(_first(facts, "clock"))) for facts in nodes.values()]
    clocks = [float(found[0]) for found in parsed if found]
    skew = max(clocks) - min(clocks) if clocks else 0.0
    if skew > MAX_CLOCK_SKEW:
        text = f"the nodes' clocks differ by {skew:.0f} s"
        yield note("clock", text, "times in the logs of different nodes are not comparable")
    else:
        yield ok("clock", f"the nodes' clocks agree within {MAX_CLOCK_SKEW:.0f} s")


def _parse_version(text: str) -> tuple[int, int]:
    found = re.match(r"(\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _least(nodes: dict[str, NodeFacts], key: str) -> int:
    """The smallest limit of all nodes; -1 is no limit."""
    return min((found for facts in nodes.values() if (found := _number(facts, key)) is not None), default=-1)
