"""What the nodes of `doctor --job` told in the job's log, and what a Ray job minds of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm_launch.doctor import this_host
from slurm_launch.doctor.findings import (
    Finding,
    note,
    ok,
    problem,
)
from slurm_launch.slurm.site import number

FAST = re.compile(r"ib|hsn|opa|roce")  # the names of networks that are made for this
ROOM = 2000  # MB in the temporary directory, below which it is worth a word
LITTLE_ROOM = 200
APART = 10.0  # seconds between the nodes' clocks; they do not look at the same moment
OLDEST_BASH = (4, 4)

NodeFacts = dict[str, list[list[str]]]  # key -> the words of each line


@dataclass(frozen=True)
class Advice:
    """What the nodes have to say to a profile."""

    nodes: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()  # those that all nodes have
    interface: str | None = None
    interface_why: str = ""
    temp_dir: str | None = None
    temp_dir_why: str = ""
    findings: list[Finding] = field(default_factory=list)
    silent: bool = False  # Slurm did not take the job, nor refuse it


def parse(log: str) -> dict[str, NodeFacts]:
    """The lines `doctor NODE KEY WORDS` of a log, by node and key."""
    nodes: dict[str, NodeFacts] = {}
    for line in log.splitlines():
        found = re.match(r"doctor (\S+) ([a-z-]+)(?: (.*))?$", line)
        if found:
            nodes.setdefault(found[1], {}).setdefault(found[2], []).append((found[3] or "").split())
    return nodes


def complete(log: str) -> bool:
    """Whether the job came to its end."""
    return re.search(r"^doctor \S+ end\b", log, re.MULTILINE) is not None


def judge(log: str, expected: int, *, in_container: bool = False) -> Advice:
    nodes = {name: facts for name, facts in sorted(parse(log).items()) if "host" in facts}
    findings: list[Finding] = []
    if len(nodes) < expected:
        said = [line for line in log.splitlines() if "error" in line.lower()][:1]
        text = f"{len(nodes)} of {expected} answered" + (f": {said[0]}" if said else "")
        findings.append(problem("nodes", text, "the job's log is kept"))
    if not nodes:
        return Advice(findings=findings)
    if len(nodes) == expected:
        findings.append(ok("nodes", f"{', '.join(nodes)} answered"))
    directory, directory_why, directory_findings = _temp_dir(nodes)
    interface, interface_why, network_findings = _network(nodes)
    findings += [
        *_environment(parse(log)),
        *_run_dir(nodes),
        *directory_findings,
        *_shared_memory(nodes),
        *network_findings,
        *([] if in_container else _ray(nodes)),
        *_alike(nodes),
    ]
    has = [{word for words in facts.get("runtimes", []) for word in words} for facts in nodes.values()]
    runtimes = tuple(name for program, name in this_host.RUNTIMES.items() if all(program in one for one in has))
    return Advice(tuple(nodes), runtimes, interface, interface_why, directory, directory_why, findings)


def _first(facts: NodeFacts, key: str) -> list[str]:
    return facts.get(key, [[]])[0]


def _number(facts: NodeFacts, key: str) -> int | None:
    return number(" ".join(_first(facts, key)))


def _environment(nodes: dict[str, NodeFacts]) -> Iterator[Finding]:
    for facts in nodes.values():
        for words in facts.get("environment", []):
            yield problem("environment", " ".join(words), "mend --modules, --conda-env, --venv or --load-env")


def _run_dir(nodes: dict[str, NodeFacts]) -> Iterator[Finding]:
    blind = [name for name, facts in nodes.items() if _first(facts, "run-dir")[:1] != ["seen"]]
    closed = [name for name, facts in nodes.items() if "writable" not in _first(facts, "run-dir")]
    if blind:
        hint = "choose one that all nodes share with --run-dir"
        yield problem("run-dir", f"not seen by {', '.join(blind)}", hint)
    elif closed:
        yield problem(
            "run-dir", f"seen by all nodes, but not writable on {', '.join(closed)}", "choose another --run-dir"
        )
    else:
        yield ok("run-dir", "the same on all nodes, and writable")


@dataclass(frozen=True)
class _Directory:
    kind: str
    total: int
    free: int
    writable: bool
    shared: bool


def _directories(facts: NodeFacts) -> dict[str, _Directory]:
    """`directory PATH TYPE TOTAL FREE writable|closed shared|own`; a line of another form does not count."""
    found = {}
    for words in facts.get("directory", []):
        if len(words) != 6:
            continue
        path, kind, writable, shared = words[0], words[1], words[4] == "writable", words[5] == "shared"
        total, free = number(words[2]), number(words[3])
        if total is not None and free is not None:
            found[path] = _Directory(kind, total, free, writable, shared)
    return found


def _temp_dir(nodes: dict[str, NodeFacts]) -> tuple[str | None, str, list[Finding]]:
    """Whether the temporary directory will do; if not, the better one that all nodes have, and why."""
    seen = {name: _directories(facts) for name, facts in nodes.items()}
    used = next((path for facts in nodes.values() for path in _first(facts, "temp-dir")), "/tmp")
    here = {name: found[used] for name, found in seen.items() if used in found}
    others = [
        (min(found[path].free for found in seen.values()), path)
        for path in next(iter(seen.values()))
        if path != used and len(path) <= 20 and all(_usable(found.get(path)) for found in seen.values())
    ]
    free, better = max(others, default=(0, None))
    hint = (
        f"--temp-dir {better} is node-local, with {free} MB free"
        if better
        else "choose a node-local one with --temp-dir"
    )
    if len(here) < len(nodes) or not all(one.writable for one in here.values()):
        bad = [name for name in nodes if name not in here or not here[name].writable]
        return (
            better,
            f"{used} cannot be used.",
            [problem("temp-dir", f"{used} cannot be used on {', '.join(bad)}", hint)],
        )
    if any(one.shared for one in here.values()):
        text = f"{used} is shared by the nodes: Ray's sockets and logs want a local one"
        return better, f"{used} is shared by the nodes; this one is not.", [problem("temp-dir", text, hint)]
    name, least = min(here.items(), key=lambda pair: pair[1].free)
    text = f"{used} is {least.kind}, each node's own, {least.free} of {least.total} MB free on {name}"
    if least.free >= ROOM:
        return None, "", [ok("temp-dir", text)]
    if free <= least.free:
        better, hint = None, "Ray's logs and spilled objects go there"
    finding = problem("temp-dir", text, hint) if least.free < LITTLE_ROOM else note("temp-dir", text, hint)
    return better, f"{used} has only {least.free} MB free; here are {free}.", [finding]


def _usable(directory: _Directory | None) -> bool:
    return (
        directory is not None
        and directory.writable
        and not directory.shared
        and not this_host.SHARED.fullmatch(directory.kind)
    )


def _shared_memory(nodes: dict[str, NodeFacts]) -> Iterator[Finding]:
    sizes = {name: size for name, facts in nodes.items() if (size := _number(facts, "shm")) is not None}
    if not sizes:
        yield problem("shm", "/dev/shm cannot be seen", "Ray's object store lives there")
        return
    name, least = min(sizes.items(), key=lambda pair: pair[1])
    if least < ROOM:
        yield note("shm", f"/dev/shm has only {least} MB on {name}", "larger objects go to the disk, which is slow")
    else:
        yield ok("shm", f"/dev/shm has {least} MB or more")


def _network(nodes: dict[str, NodeFacts]) -> tuple[str | None, str, list[Finding]]:
    """Whether the nodes reach each other by what a job would use; a clearly better interface, and why."""
    chosen = {name: _first(facts, "chosen") for name, facts in nodes.items()}
    if lost := [name for name, words in chosen.items() if len(words) < 2]:
        hint = "the node needs `ip` and an address that is not loopback; see --interface and --ip-family"
        return None, "", [problem("network", f"no usable address on {', '.join(lost)}", hint)]
    device = next(iter(chosen.values()))[0]
    addresses = {words[1] for words in chosen.values()}
    shown = ", ".join(f"{name} {words[1]}" for name, words in chosen.items())
    tried = [(name, *words) for name, facts in nodes.items() for words in facts.get("reach", []) if len(words) == 4]
    deaf = [name for name, facts in nodes.items() if "listener" in facts]
    if len(nodes) == 1:
        return None, "", [ok("network", f"{shown} ({device}); one node alone reaches no other")]
    if deaf or not tried:
        why = " ".join(_first(nodes[deaf[0]], "listener")) + f" on {deaf[0]}" if deaf else "no node answered"
        return None, "", [note("network", f"{shown} ({device}); not checked whether they reach each other: {why}")]
    silent = [
        f"{source} to {target} ({ip}: {how})"
        for source, target, _, ip, how in tried
        if ip in addresses and how != "yes"
    ]
    if silent:
        hint = "a firewall? --port-range names the ports that are open, --interface another network"
        return None, "", [problem("network", f"nodes do not reach each other by {device}: {'; '.join(silent)}", hint)]
    findings = [ok("network", f"the nodes reach each other by {device}: {shown}")]
    others: dict[str, list[str]] = {}
    for _, _, other, ip, how in tried:
        if other != device and ip not in addresses:
            others.setdefault(other, []).append(how)
    everywhere = {name for name in others if all(name in _devices(facts) for facts in nodes.values())}
    good = sorted(name for name in everywhere if set(others[name]) == {"yes"})
    fast = [name for name in good if FAST.match(name)]
    if others:
        bad = "not reached, or not on all nodes"
        seen = ", ".join(f"{name} ({'reached' if name in good else bad})" for name in others)
        how_to = f"--interface {(fast or good)[0]} would use it" if good else None
        findings.append(note("network", f"also there: {seen}", how_to))
    if len(fast) == 1 and not FAST.match(device):
        return (
            fast[0],
            f"All nodes have {fast[0]} and reach each other by it; by themselves they would use {device}.",
            findings,
        )
    return None, "", findings


def _devices(facts: NodeFacts) -> set[str]:
    return {words[0] for words in facts.get("address", []) if words}


def _ray(nodes: dict[str, NodeFacts]) -> Iterator[Finding]:
    versions = {name: " ".join(_first(facts, "ray")) for name, facts in nodes.items()}
    if len(set(versions.values())) > 1:
        shown = ", ".join(f"{name} {version or 'none'}" for name, version in versions.items())
        yield problem("ray", f"differs between the nodes: {shown}", "use one environment that all nodes see")
    elif version := next(iter(versions.values())):
        found = this_host.ray_version(version)
        yield Finding(found.status, "ray", f"{found.text}, on all nodes", found.hint)
    else:
        yield note("ray", "not in PATH on the nodes", "say --venv, --conda-env, --modules or --load-env, and ask again")


def _alike(nodes: dict[str, NodeFacts]) -> Iterator[Finding]:
    """What should be the same everywhere, or large enough."""
    shells = {name: " ".join(_first(facts, "bash")) for name, facts in nodes.items()}
    old = [name for name, text in shells.items() if _version(text) < OLDEST_BASH]
    shown = ", ".join(sorted(set(shells.values())))
    yield problem("bash", f"{shown} on {', '.join(old)}", "the script needs 4.4") if old else ok("bash", shown)
    yield from this_host.limits(_least(nodes, "files"), _least(nodes, "processes"))
    ranges = {tuple(_first(facts, "ports")) for facts in nodes.values()}
    if len(ranges) > 1:
        yield note("ports", f"the kernel's own range differs: {'; '.join('-'.join(one) for one in sorted(ranges))}")
    elif len(one := [number(word) for word in next(iter(ranges))]) == 2 and one[0] is not None and one[1] is not None:
        yield this_host.ports(one[0], one[1])
    limits = sorted({words[0] for facts in nodes.values() if (words := _first(facts, "memory-limit"))})
    text = f"a control group holds the job to {' or '.join(limits)} MB" if limits else "no control group limits the job"
    yield ok("memory-limit", text)
    # The beginning will do: a `date` without %N prints 1700000000.N.
    told = [re.match(r"\d{1,18}(\.\d+)?", " ".join(_first(facts, "clock"))) for facts in nodes.values()]
    clocks = [float(found[0]) for found in told if found]
    apart = max(clocks) - min(clocks) if clocks else 0.0
    if apart > APART:
        yield note("clock", f"the nodes' clocks are {apart:.0f} s apart", "times in the logs will not fit together")
    else:
        yield ok("clock", f"the nodes' clocks agree within {APART:.0f} s")


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"(\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _least(nodes: dict[str, NodeFacts], key: str) -> int:
    """The smallest of the nodes' limits; -1 is none."""
    return min((found for facts in nodes.values() if (found := _number(facts, key)) is not None), default=-1)
