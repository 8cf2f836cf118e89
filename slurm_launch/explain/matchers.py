"""How a cause is known: functions that look at the facts of a run (evidence.py) and find it, or do not."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from slurm_launch.explain.evidence import (
    Line,
    Scene,
    matching,
    some,
)
from slurm_launch.slurm.plain_words import why_it_waits
from slurm_launch.status.task import NOT_NEEDED, Task


@dataclass(frozen=True)
class Finding:
    """A rule fits."""

    evidence: tuple[Line, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)  # for the sentence and the advice
    sure: bool = True
    node: str | None = None


Find = Callable[[Scene], Finding | None]


# How to find


def state(*states: str, sure: bool = True) -> Find:
    """Slurm's word is enough."""
    return lambda scene: Finding(last(scene), sure=sure) if scene.facts.state in states else None


def outcome(*outcomes: str) -> Find:
    """The script's word is enough."""
    return lambda scene: Finding(last(scene)) if scene.outcome in outcomes else None


def line(where: Callable[[Scene], Iterable[Line]], pattern: str, *outcomes: str, sure: bool = True) -> Find:
    """A line tells; where outcomes are named, only after one of these. The groups of the pattern are values."""
    compiled = re.compile(pattern)

    def find(scene: Scene) -> Finding | None:
        found = matching(where(scene), compiled) if not outcomes or scene.outcome in outcomes else []
        if not found:
            return None
        values = {key: value for _, match in found for key, value in match.groupdict().items() if value}
        return Finding(some([line for line, _ in found]), values, sure, values.get("node"))

    return find


def raised(pattern: str, *, sure: bool = True) -> Find:
    """The exception that ended the command tells, by its name and message."""
    compiled = re.compile(pattern)

    def find(scene: Scene) -> Finding | None:
        raised = scene.raised if scene.outcome == "command-failed" else None
        match = compiled.search(f"{raised.name}: {raised.message}") if raised else None
        if raised is None or match is None:
            return None
        place = f" ({raised.place})" if raised.place else ""
        file = raised.file if raised.file and not raised.file.startswith("<") else "the command"  # <string>: python -c
        values = {"name": raised.name, "message": raised.message, "place": place, "file": file}
        said = f"{raised.name}: {raised.message}" if raised.message else raised.name
        return Finding(raised.evidence, {**values, "said": said, **_given(match)}, sure)

    return find


def _given(match: re.Match[str]) -> dict[str, str]:
    return {key: value for key, value in match.groupdict().items() if value}


def either(*finds: Find) -> Find:
    return lambda scene: next((found for find in finds if (found := find(scene)) is not None), None)


def last(scene: Scene) -> tuple[Line, ...]:
    """The last lines, of which the script's own is one."""
    last = [line for line in (scene.output or scene.before)[-3:] if line != scene.end_line]
    return (*last, *([scene.end_line] if scene.end_line else []))


def told(scene: Scene) -> list[Line]:
    return scene.told


def error(scene: Scene) -> list[Line]:
    return scene.error


def log(scene: Scene) -> list[Line]:
    return scene.lines


def before(scene: Scene) -> list[Line]:
    return scene.before


def _ray(scene: Scene) -> Iterable[Line]:
    return scene.ray()


BRING_UP = ("head-failed", "node-failed", "nodes-missing")


# The rules that need more than a line


def not_failed(scene: Scene) -> Finding | None:
    fine = scene.facts.state == "COMPLETED" or (scene.facts.state == "UNKNOWN" and scene.outcome == "ok")
    return Finding(last(scene)[-1:]) if fine else None


def waits(scene: Scene) -> Finding | None:
    if not _task(scene).waiting:
        return None
    reason = scene.facts.reason
    return Finding(values={"why": why_it_waits(reason) or f"Slurm says {reason}"})


def _task(scene: Scene) -> Task:
    """What a state means, `status` knows."""
    return Task("", scene.facts.state, "none", "")


def not_requeued(scene: Scene) -> Finding | None:
    """The script says so, behind what ended the job."""
    words = r"(?:^|, and )(?P<why>it has been requeued \d+ times? .*|Slurm did not requeue it: .*)$"
    match = re.search(words, (scene.end.cause if scene.end else None) or "")
    return Finding(last(scene)[-1:], _given(match)) if match else None


def never(scene: Scene) -> Finding | None:
    return Finding() if scene.facts.reason == "DependencyNeverSatisfied" else None


def not_needed(scene: Scene) -> Finding | None:
    return Finding() if scene.facts.reason == NOT_NEEDED else None


# Exceptions by which a driver learns that a process of its is gone; why, others must tell.
DIED = r"(ActorDied|ActorUnavailable|WorkerCrashed|RayActor|NodeDied)Error"


def slurm_oom(scene: Scene) -> Finding | None:
    kill = r"([Oo][Oo][Mm][-_ ][Kk]ill|xceeded (job |step )?memory limit|OOM Killed|Out Of Memory)"
    found = either(
        line(log, r"srun: error: (?P<node>\S+): task.*Out Of Memory"),
        line(log, rf"slurmstepd(?:-(?P<node>\S+))?: error: .*{kill}"),
        state("OUT_OF_MEMORY"),
    )(scene)
    another = scene.raised and not re.match(rf"{DIED}|MemoryError|OutOfMemoryError", scene.raised.name)
    if found is not None and scene.raised is not None and another:  # Ray may have done without the process
        return Finding((*found.evidence, *scene.raised.evidence), sure=False, node=found.node)
    return found


def never_enough(scene: Scene) -> Finding | None:
    """Ray says so while nodes are still to come, too: what failed later for another reason has got over it."""
    if scene.raised is not None and scene.raised.name != "GetTimeoutError":
        return None
    request = r"No available node types can fulfill resource requests? (?P<request>\{.*?\})"
    return line(lambda scene: scene.output, request)(scene)


def runs(scene: Scene) -> Finding | None:
    ends = scene.facts.state == "COMPLETING" and scene.end is not None  # how, its log tells already
    return Finding(last(scene)) if _task(scene).running and not ends else None


def ray_oom(scene: Scene) -> Finding | None:
    """Ray's memory monitor. Its logs alone prove nothing: Ray starts such tasks again."""
    killed = r"killed due to the node running low on memory|OOM kill reason|[Kk]illing \d+ worker\(s\), kill details"
    found = line(error, r"OutOfMemoryError: .*(?P<what>running low on memory)|" + killed, "command-failed")(scene)
    if found is not None and scene.raised is not None:
        return Finding((*scene.raised.evidence, *found.evidence[-1:]), found.values)
    if found is not None:
        return found
    died = scene.raised is not None and re.match(DIED, scene.raised.name)
    if died or scene.outcome == "node-lost":
        in_logs = line(_ray, killed, sure=False)(scene)
        return in_logs and Finding((*last(scene)[-1:], *in_logs.evidence), in_logs.values, sure=False)
    return None


def environment(scene: Scene) -> Finding | None:
    if scene.end is None or scene.outcome != "environment-failed":
        return None
    return Finding(last(scene), {"failed": (scene.end.cause or "its commands").removeprefix("failed: ")})


def version(scene: Scene) -> Finding | None:
    """Ray says it itself; or an old Ray fails in another way, and the script has asked it for its version."""
    theirs = line(told, r"^ray, version (?P<theirs>[\d.\w]+)", *BRING_UP)(scene)
    ours = re.compile(r"ray_version=(?P<ours>\d+\.\d+[\w.]*)|Ray version: (?P<also>\d+\.\d+[\w.]*)")
    head = scene.version or next((match["ours"] or match["also"] for _, match in matching(scene.ray(), ours)), None)
    if theirs is not None and theirs.values["theirs"] != head:
        values = f": {scene.end.node if scene.end else ''} has Ray {theirs.values['theirs']}"
        return Finding(
            (*theirs.evidence, *last(scene)[-1:]), {"versions": values + (f", the head {head}" if head else "")}
        )
    mismatch = either(
        line(error, r"Version mismatch: ", "command-failed"), line(told, r"[Vv]ersion mismatch", *BRING_UP)
    )
    found = mismatch(scene)
    if (
        found is None
    ):  # a Ray from before tokens does not know this error by its name, nor where the newer ones keep things
        older = {"versions": f": the command's Ray is older{f' than {head}' if head else ''}"}
        old = line(
            error, r"RpcError: .*InvalidAuthToken|(?P<unsure>Could not read 'temp_dir' from GCS)", "command-failed"
        )
        return (found := old(scene)) and Finding(found.evidence, older, sure="unsure" not in found.values)
    where = scene.error if scene.outcome == "command-failed" else list(scene.ray(scene.end.node if scene.end else None))
    listed = [line for line, _ in matching(where, re.compile(r"^\s+(Ray|Python): [\d.]+|was started with"))]
    versions = [line.text.split(": ", 1)[1] for line in listed if re.match(r"\s+(Ray|Python): ", line.text)]
    values = (
        f": Ray {versions[2]} and Python {versions[3]} against {versions[0]} and {versions[1]}"
        if len(versions) > 3
        else ""
    )
    return Finding((*found.evidence[:1], *listed[:6]), {"versions": values})


def unreached(scene: Scene) -> Finding | None:
    """A worker that waited in vain for the head's port, while the head was up."""
    if scene.outcome != "nodes-missing":
        return None
    found = matching(
        scene.ray(file="ray-start.log"), re.compile(r"^(?P<node>\S+) never reached (?P<address>\S+): ?(?P<why>.*)")
    )
    head_is_up = any(" joined node=" in line.text for line in scene.lines)
    if not found or not head_is_up:
        return None
    return Finding((*(line for line, _ in found[:3]), *last(scene)[-1:]), _given(found[0][1]), node=found[0][1]["node"])


def network_folder(scene: Scene) -> Finding | None:
    """The script's warning is no proof, unless the file system refused something."""
    refused = r"(Operation not (supported|permitted)|Errno (95|37|116)\b|No locks available|Stale file handle)"
    pipe = line(before, r"mkfifo: cannot create fifo '(?P<dir>[^']*)/r\d+-[^']*'.*" + refused, "temp-dir")(scene)
    if pipe is not None:
        return Finding(pipe.evidence, {**pipe.values, "what": "cannot hold pipes, as on a network file system"})
    warned = matching(scene.warnings, re.compile(r"warning (?P<dir>\S+)/r\d+-\S+ is on a network file system"))
    if not warned or scene.outcome not in (*BRING_UP, "node-lost"):
        return None
    proof = [line for line, _ in matching([*scene.told, *scene.ray()], re.compile(refused))]
    return Finding(
        (warned[-1][0], *some(proof, 2), *last(scene)[-1:]),
        {**_given(warned[-1][1]), "what": "is on a network file system"},
        bool(proof),
    )


def killed(scene: Scene) -> Finding | None:
    """128 and the signal's number is how a shell tells it."""
    code = scene.end.code if scene.outcome == "command-failed" and scene.end else None
    if code is None or not 128 < code < 160:
        return None
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return None
    if name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"):
        return Finding(
            last(scene), {"how": f"crashed with {name}", "mend": "the lines above it in the log may tell where"}
        )
    mend = (
        "SIGKILL is often memory: ask for more with --mem"
        if name == "SIGKILL"
        else "somebody, or the command itself, sent it"
    )
    return Finding(last(scene), {"how": f"was killed by {name}; nobody told by whom", "mend": mend}, sure=False)


def died_ray(scene: Scene) -> Finding | None:
    if scene.outcome not in ("head-failed", "node-failed", "node-lost") or scene.end is None:
        return None
    logs = scene.ray(scene.end.node, "ray-start.log")
    subprocess = matching(
        logs, re.compile(r"exited unexpectedly|\[exit code=|exit code\(s\)=|Fatal Python error|Check failed")
    )
    more = "; exit code -9 is often memory" if any("=-9" in line.text for line, _ in subprocess) else ""
    return Finding((*some([line for line, _ in subprocess], 3), *some(scene.told, 3)), {"more": more})


def script_killed(scene: Scene) -> Finding | None:
    facts = scene.facts
    if facts.state != "FAILED" or scene.end is not None or not 0 < facts.signal < 32:
        return None
    return Finding(last(scene), {"signal": signal.Signals(facts.signal).name}, sure=False)


def no_launch(scene: Scene) -> Finding | None:
    facts = scene.facts
    if facts.state != "FAILED" or scene.lines or facts.code is not None:
        return None
    return Finding() if facts.signal == 53 or facts.reason == "JobLaunchFailure" else None
