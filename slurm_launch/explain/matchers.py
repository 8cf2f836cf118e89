"""How the rules recognize a cause: functions that return a Match if the evidence shows it, or None."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from slurm_launch.explain.evidence import Evidence, last_distinct, matching
from slurm_launch.explain.job_files import Line
from slurm_launch.slurm.jobs import is_pending
from slurm_launch.slurm.plain_words import describe_pending_reason
from slurm_launch.status.task import NOT_NEEDED, is_running


@dataclass(frozen=True)
class Match:
    """A rule applies."""

    evidence: tuple[Line, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)  # for the sentence and the advice
    sure: bool = True
    node: str | None = None


Matcher = Callable[[Evidence], Match | None]
Lines = Callable[[Evidence], Iterable[Line]]


# Building blocks


def by_state(*states: str, sure: bool = True) -> Matcher:
    """Match one of Slurm's states."""
    return lambda evidence: Match(evidence.last_lines, sure=sure) if evidence.facts.state in states else None


def by_outcome(*outcomes: str) -> Matcher:
    """Match one of the outcomes in the script's last line."""
    return lambda evidence: Match(evidence.last_lines) if evidence.outcome in outcomes else None


def by_line(lines: Lines, pattern: str, *outcomes: str, sure: bool = True) -> Matcher:
    """Match a line, if the outcome is one of these or none is given. The groups of the pattern become values."""
    compiled = re.compile(pattern)

    def matcher(evidence: Evidence) -> Match | None:
        found = matching(lines(evidence), compiled) if not outcomes or evidence.outcome in outcomes else []
        if not found:
            return None
        values = {key: value for _, match in found for key, value in _groups(match).items()}
        return Match(last_distinct([line for line, _ in found]), values, sure, values.get("node"))

    return matcher


def by_exception(pattern: str, *, sure: bool = True) -> Matcher:
    """Match `Name: message` of the exception that ended the command."""
    compiled = re.compile(pattern)

    def matcher(evidence: Evidence) -> Match | None:
        error = evidence.exception if evidence.outcome == "command-failed" else None
        match = compiled.search(f"{error.name}: {error.message}") if error else None
        if error is None or match is None:
            return None
        values = {
            "error": f"{error.name}: {error.message}" if error.message else error.name,
            "place": f" ({error.place})" if error.place else "",
            "file": error.file if error.file and not error.file.startswith("<") else "the command",  # <string>: -c
        }
        return Match(error.evidence, {**values, **_groups(match)}, sure)

    return matcher


def with_code(code: int, matcher: Matcher) -> Matcher:
    """Match only if the command's exit code is this."""
    return lambda evidence: matcher(evidence) if evidence.end and evidence.end.code == code else None


def first_of(*matchers: Matcher) -> Matcher:
    return lambda evidence: next((match for matcher in matchers if (match := matcher(evidence)) is not None), None)


def unsure(*outcomes: str) -> Matcher:
    """Match one of the outcomes, or any; the cause is uncertain."""
    return lambda evidence: (
        Match(evidence.last_lines, sure=False) if not outcomes or evidence.outcome in outcomes else None
    )


def _groups(match: re.Match[str]) -> dict[str, str]:
    return {key: value for key, value in match.groupdict().items() if value}


# Where `by_line` searches


def reported(evidence: Evidence) -> list[Line]:
    return evidence.reported


def error_output(evidence: Evidence) -> list[Line]:
    return evidence.error_output


def command_output(evidence: Evidence) -> list[Line]:
    return evidence.output


def whole_log(evidence: Evidence) -> list[Line]:
    return evidence.lines


def before_command(evidence: Evidence) -> list[Line]:
    return evidence.before_command


def address_lines(evidence: Evidence) -> list[Line]:
    return [*evidence.before_command[-2:], *evidence.reported]


def _ray_lines(evidence: Evidence) -> Iterable[Line]:
    return evidence.ray_lines()


BRING_UP = ("head-failed", "node-failed", "nodes-missing")
# Exceptions in a driver if a process of its cluster has died; they do not contain the cause.
DIED = r"(ActorDied|ActorUnavailable|WorkerCrashed|RayActor|NodeDied)Error"


# Causes that need more than a line


def not_failed(evidence: Evidence) -> Match | None:
    # If a process of the batch step is killed for memory, the state is OUT_OF_MEMORY, whatever the command's code is.
    state = evidence.facts.state
    if state != "COMPLETED" and (state not in ("UNKNOWN", "OUT_OF_MEMORY") or evidence.outcome != "ok"):
        return None
    lines, values = _survived_kills(evidence)
    if state == "OUT_OF_MEMORY":
        values["kills"] += f"; Slurm's state is {state}"
    return Match((*lines, *evidence.last_lines[-1:]), values)


def pending(evidence: Evidence) -> Match | None:
    if not is_pending(evidence.facts.state):
        return None
    reason = evidence.facts.reason
    return Match(values={"why": describe_pending_reason(reason) or f"Slurm's reason is {reason}"})


def running(evidence: Evidence) -> Match | None:
    # A job that is completing may have ended already by its log, which shows how.
    ending = evidence.facts.state == "COMPLETING" and evidence.end is not None
    if not is_running(evidence.facts.state) or ending:
        return None
    lines, values = _survived_kills(evidence)
    return Match((*lines, *evidence.last_lines), values)


def not_requeued(evidence: Evidence) -> Match | None:
    """The script adds it to the cause of the end."""
    words = r"(?:^|, and )(?P<why>it has been requeued \d+ times? .*|Slurm did not requeue it: .*)$"
    match = re.search(words, (evidence.end.cause if evidence.end else None) or "")
    return Match(evidence.last_lines[-1:], _groups(match)) if match else None


def never_satisfied(evidence: Evidence) -> Match | None:
    return Match() if evidence.facts.reason == "DependencyNeverSatisfied" else None


def not_needed(evidence: Evidence) -> Match | None:
    return Match() if evidence.facts.reason == NOT_NEEDED else None


# Slurm ends the whole job or step.
_KILLED_BY_SLURM = first_of(
    by_line(whole_log, r"slurmstepd(?:-(?P<node>\S+))?: error: .*(xceeded (job |step )?memory limit|Out Of Memory)"),
    by_state("OUT_OF_MEMORY"),
)
# The kernel kills one process; Slurm reports it at the end of the step: `oom-kill event(s)`, later `oom_kill event`.
_KILLED_BY_KERNEL = re.compile(
    r"slurmstepd(?:-(?P<node>\S+))?: error: .*[Oo][Oo][Mm][-_ ][Kk]ill"
    r"|srun: error: (?P<of_srun>\S+): task.*Out Of Memory"
)
_REPORTED_KILL = re.compile(r"out of memory on (?P<node>\S+): (?P<what>the kernel killed .*)")
# A job that ended like this had survived what was killed before: outcomes and, without a last line, states.
_SURVIVED = ("ok", "time-limit", "ended-from-outside", "TIMEOUT", "CANCELLED", "PREEMPTED", "DEADLINE", "NODE_FAIL")
# Exceptions in a process that has lost another one, or its memory.
_FROM_A_KILL = re.compile(
    rf"({DIED}|MemoryError|OwnerDiedError|ObjectLostError|BrokenProcessPool|ProcessExitedException)\b"
    r"|OutOfMemoryError: (?!CUDA|HIP)|.*(SIGKILL|signal: Killed|exit code:? -9)"
)


def _reported_by_slurm(evidence: Evidence) -> list[tuple[Line, re.Match[str]]]:
    return matching([*evidence.lines, *evidence.ray_lines(file="srun")], _KILLED_BY_KERNEL)


def _survived_kills(evidence: Evidence) -> tuple[tuple[Line, ...], dict[str, str]]:
    """The lines about processes that the kernel killed while the job went on, and the words for them."""
    kills = evidence.memory_kills
    lines = last_distinct([*evidence.kill_lines, *(line for line, _ in _reported_by_slurm(evidence))])
    if not lines:
        return (), {"kills": "", "more": ""}
    what = f"it ran {kills.in_words}" if kills else "the kernel killed a process for memory"
    return lines, {"kills": f"; but {what}", "more": "; request more with --mem to avoid the kills"}


def _kernel_kill(evidence: Evidence) -> Match | None:
    """A process that the kernel killed, as the script or Slurm reports it."""
    end, kills = evidence.end, evidence.memory_kills
    if (end.outcome if end else evidence.facts.state) in _SURVIVED:
        return None
    reported = _REPORTED_KILL.match((end.cause if end else None) or "")
    others = _reported_by_slurm(evidence)
    lines = last_distinct([*evidence.kill_lines, *(line for line, _ in others)])
    if kills and (reported is None or reported["node"] == kills.node):
        limit = f" at Slurm's limit of {kills.limit_mb} MB" if kills.limit_mb else ""
        times = f", {kills.kills} times" if kills.kills > 1 else ""
        killed = f": the kernel killed {kills.killed or 'a process'}{limit}{times}"
        return Match(lines, {"killed": killed}, node=kills.node)
    if reported:
        return Match(lines, {"killed": f": {reported['what']}"}, node=reported["node"])
    if others or evidence.outcome == "out-of-memory":
        nodes = [match["node"] or match["of_srun"] for _, match in others]
        return Match(lines, {"killed": ": the kernel killed a process"}, node=nodes[-1] if nodes else None)
    return None


def slurm_out_of_memory(evidence: Evidence) -> Match | None:
    match = _kernel_kill(evidence) or _KILLED_BY_SLURM(evidence)
    if match is None:
        return None
    error = evidence.exception if evidence.outcome == "command-failed" else None
    # After another exception: Ray may have survived the loss of the killed process.
    sure = error is None or _FROM_A_KILL.match(f"{error.name}: {error.message}") is not None
    lines = (*match.evidence, *(error.evidence if error else ()), *([evidence.end_line] if evidence.end_line else []))
    return Match(lines, {"killed": ", and Slurm killed it", **match.values}, sure, match.node)


def ray_out_of_memory(evidence: Evidence) -> Match | None:
    """Ray's memory monitor. Ray's logs alone are not sufficient: Ray retries the tasks that it kills."""
    killed = r"killed due to the node running low on memory|OOM kill reason|[Kk]illing \d+ worker\(s\), kill details"
    message = r"OutOfMemoryError: .*(?P<what>running low on memory)|" + killed
    match = by_line(error_output, message, "command-failed")(evidence)
    if match is not None and evidence.exception is not None:
        return Match((*evidence.exception.evidence, *match.evidence[-1:]), match.values)
    if match is not None:
        return match
    died = evidence.exception is not None and re.match(DIED, evidence.exception.name)
    if died or evidence.outcome == "node-lost":
        in_logs = by_line(_ray_lines, killed, sure=False)(evidence)
        return in_logs and Match((*evidence.last_lines[-1:], *in_logs.evidence), in_logs.values, sure=False)
    return None


def never_enough(evidence: Evidence) -> Match | None:
    """Ray prints this while nodes are still joining, too: another exception means that the request was fulfilled."""
    if evidence.exception is not None and evidence.exception.name != "GetTimeoutError":
        return None
    request = r"No available node types can fulfill resource requests? (?P<request>\{.*?\})"
    return by_line(command_output, request)(evidence)


def environment(evidence: Evidence) -> Match | None:
    if evidence.end is None or evidence.outcome != "environment-failed":
        return None
    return Match(evidence.last_lines, {"failed": (evidence.end.cause or "its commands").removeprefix("failed: ")})


def version_mismatch(evidence: Evidence) -> Match | None:
    """Ray reports it; an old Ray fails in another way, and then the script has printed its version."""
    return _version_of_node(evidence) or _reported_mismatch(evidence) or _older_command(evidence)


def _head_version(evidence: Evidence) -> str | None:
    pattern = re.compile(r"ray_version=(?P<one>\d+\.\d+[\w.]*)|Ray version: (?P<other>\d+\.\d+[\w.]*)")
    in_logs = (match["one"] or match["other"] for _, match in matching(evidence.ray_lines(), pattern))
    return evidence.version or next(in_logs, None)


def _version_of_node(evidence: Evidence) -> Match | None:
    match = by_line(reported, r"^ray, version (?P<version>[\d.\w]+)", *BRING_UP)(evidence)
    head = _head_version(evidence)
    if match is None or match.values["version"] == head:
        return None
    node = evidence.end.node if evidence.end else ""
    versions = f": {node} has Ray {match.values['version']}" + (f", the head {head}" if head else "")
    return Match((*match.evidence, *evidence.last_lines[-1:]), {"versions": versions})


def _reported_mismatch(evidence: Evidence) -> Match | None:
    match = first_of(
        by_line(error_output, r"Version mismatch: ", "command-failed"),
        by_line(reported, r"[Vv]ersion mismatch", *BRING_UP),
    )(evidence)
    if match is None:
        return None
    in_command = evidence.outcome == "command-failed"
    node = evidence.end.node if evidence.end else None
    lines = evidence.error_output if in_command else list(evidence.ray_lines(node))
    listed = [line for line, _ in matching(lines, re.compile(r"^\s+(Ray|Python): [\d.]+|was started with"))]
    numbers = [line.text.split(": ", 1)[1] for line in listed if re.match(r"\s+(Ray|Python): ", line.text)]
    versions = ""
    if len(numbers) > 3:
        versions = f": Ray {numbers[2]} and Python {numbers[3]} against {numbers[0]} and {numbers[1]}"
    return Match((*match.evidence[:1], *listed[:6]), {"versions": versions})


def _older_command(evidence: Evidence) -> Match | None:
    """A Ray without tokens knows neither the name of this error nor where newer versions keep their files."""
    pattern = r"RpcError: .*InvalidAuthToken|(?P<unsure>Could not read 'temp_dir' from GCS)"
    match = by_line(error_output, pattern, "command-failed")(evidence)
    if match is None:
        return None
    head = _head_version(evidence)
    versions = f": the command's Ray is older{f' than {head}' if head else ''}"
    return Match(match.evidence, {"versions": versions}, sure="unsure" not in match.values)


def head_not_reached(evidence: Evidence) -> Match | None:
    """A worker could not connect to the head's port, while the head was up."""
    if evidence.outcome != "nodes-missing":
        return None
    pattern = re.compile(r"^(?P<node>\S+) never reached (?P<address>\S+): ?(?P<why>.*)")
    found = matching(evidence.ray_lines(file="ray-start.log"), pattern)
    head_is_up = any(" joined node=" in line.text for line in evidence.lines)
    if not found or not head_is_up:
        return None
    lines = (*(line for line, _ in found[:3]), *evidence.last_lines[-1:])
    return Match(lines, _groups(found[0][1]), node=found[0][1]["node"])


def temp_dir_on_network(evidence: Evidence) -> Match | None:
    """The script's warning alone is not sufficient: the file system must have refused something."""
    refused = r"(Operation not (supported|permitted)|Errno (95|37|116)\b|No locks available|Stale file handle)"
    fifo = r"mkfifo: cannot create fifo '(?P<dir>[^']*)/r\d+-[^']*'.*"
    pipe = by_line(before_command, fifo + refused, "temp-dir")(evidence)
    if pipe is not None:
        return Match(pipe.evidence, {**pipe.values, "what": "does not support pipes, as on a network file system"})
    warned = matching(evidence.warnings, re.compile(r"warning (?P<dir>\S+)/r\d+-\S+ is on a network file system"))
    if not warned or evidence.outcome not in (*BRING_UP, "node-lost"):
        return None
    proof = [line for line, _ in matching([*evidence.reported, *evidence.ray_lines()], re.compile(refused))]
    lines = (warned[-1][0], *last_distinct(proof, 2), *evidence.last_lines[-1:])
    return Match(lines, {**_groups(warned[-1][1]), "what": "is on a network file system"}, bool(proof))


def command_killed(evidence: Evidence) -> Match | None:
    """A shell reports a signal as 128 plus its number."""
    code = evidence.end.code if evidence.outcome == "command-failed" and evidence.end else None
    if code is None or not 128 < code < 160:
        return None
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return None
    if name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"):
        fix = "the lines before it in the log may show where"
        return Match(evidence.last_lines, {"how": f"crashed with {name}", "fix": fix})
    fix = (
        "SIGKILL often means out of memory: request more with --mem"
        if name == "SIGKILL"
        else "another process, or the command itself, sent the signal"
    )
    return Match(evidence.last_lines, {"how": f"was killed by {name}; the sender is unknown", "fix": fix}, sure=False)


def ray_died(evidence: Evidence) -> Match | None:
    if evidence.outcome not in ("head-failed", "node-failed", "node-lost") or evidence.end is None:
        return None
    logs = evidence.ray_lines(evidence.end.node, "ray-start.log")
    pattern = r"exited unexpectedly|\[exit code=|exit code\(s\)=|Fatal Python error|Check failed"
    subprocess = matching(logs, re.compile(pattern))
    more = "; exit code -9 often means out of memory" if any("=-9" in line.text for line, _ in subprocess) else ""
    lines = (*last_distinct([line for line, _ in subprocess], 3), *last_distinct(evidence.reported, 3))
    return Match(lines, {"more": more})


def script_killed(evidence: Evidence) -> Match | None:
    facts = evidence.facts
    if facts.state != "FAILED" or evidence.end is not None or not 0 < facts.signal < 32:
        return None
    return Match(evidence.last_lines, {"signal": signal.Signals(facts.signal).name}, sure=False)


def not_launched(evidence: Evidence) -> Match | None:
    facts = evidence.facts
    if facts.state != "FAILED" or evidence.lines or facts.code is not None:
        return None
    return Match() if facts.signal == 53 or facts.reason == "JobLaunchFailure" else None
