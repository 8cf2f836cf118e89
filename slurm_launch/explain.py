"""Why a run failed: one rule for each cause, in one table; the first that fits counts.

A rule looks at the facts of a run (evidence.py) and says the cause in one sentence, shows the lines in which it stands,
and tells what to do. What the script itself has found out is said in the script's own words.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from slurm_launch.evidence import Facts, Line, Scene, gather, matching, some
from slurm_launch.observe import Task
from slurm_launch.run_report import clock
from slurm_launch.runs import Run
from slurm_launch.slurm_words import how_it_ended, why_it_waits

__all__ = ["RULES", "Explanation", "Facts", "Rule", "explain", "explain_task"]


@dataclass(frozen=True)
class Explanation:
    """What became of a run, and why."""

    cause: str  # a short name that programs can rely on
    sentence: str
    evidence: tuple[str, ...]  # lines, each behind the place where it stands
    advice: str
    sure: bool = True
    node: str | None = None


@dataclass(frozen=True)
class Finding:
    """A rule fits."""

    evidence: tuple[Line, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)  # for the sentence and the advice
    sure: bool = True
    node: str | None = None


Find = Callable[[Scene], Finding | None]


@dataclass(frozen=True)
class Rule:
    """A cause, and how it is known. In the texts {hint} is the script's own, {at} is ` on NODE`."""

    cause: str
    sentence: str
    advice: str
    find: Find
    words: tuple[str, ...] = ()  # parts of the script's texts by which it is known, or which it repeats


# How to find


def _state(*states: str, sure: bool = True) -> Find:
    """Slurm's word is enough."""
    return lambda scene: Finding(_last(scene), sure=sure) if scene.facts.state in states else None


def _outcome(*outcomes: str) -> Find:
    """The script's word is enough."""
    return lambda scene: Finding(_last(scene)) if scene.outcome in outcomes else None


def _line(where: Callable[[Scene], Iterable[Line]], pattern: str, *outcomes: str, sure: bool = True) -> Find:
    """A line tells; where outcomes are named, only after one of these. The groups of the pattern are values."""
    compiled = re.compile(pattern)

    def find(scene: Scene) -> Finding | None:
        found = matching(where(scene), compiled) if not outcomes or scene.outcome in outcomes else []
        if not found:
            return None
        values = {key: value for _, match in found for key, value in match.groupdict().items() if value}
        return Finding(some([line for line, _ in found]), values, sure, values.get("node"))

    return find


def _raised(pattern: str, *, sure: bool = True) -> Find:
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


def _either(*finds: Find) -> Find:
    return lambda scene: next((found for find in finds if (found := find(scene)) is not None), None)


def _last(scene: Scene) -> tuple[Line, ...]:
    """The last lines, of which the script's own is one."""
    last = [line for line in (scene.output or scene.before)[-3:] if line != scene.end_line]
    return (*last, *([scene.end_line] if scene.end_line else []))


def _told(scene: Scene) -> list[Line]:
    return scene.told


def _error(scene: Scene) -> list[Line]:
    return scene.error


def _log(scene: Scene) -> list[Line]:
    return scene.lines


def _before(scene: Scene) -> list[Line]:
    return scene.before


def _ray(scene: Scene) -> Iterable[Line]:
    return scene.ray()


BRING_UP = ("head-failed", "node-failed", "nodes-missing")


# The rules that need more than a line


def _not_failed(scene: Scene) -> Finding | None:
    fine = scene.facts.state == "COMPLETED" or (scene.facts.state == "UNKNOWN" and scene.outcome == "ok")
    return Finding(_last(scene)[-1:]) if fine else None


def _waits(scene: Scene) -> Finding | None:
    if not _task(scene).waiting:
        return None
    reason = scene.facts.reason
    return Finding(values={"why": why_it_waits(reason) or f"Slurm says {reason}"})


def _task(scene: Scene) -> Task:
    """What a state means, `status` knows."""
    return Task("", scene.facts.state, "none", "")


def _never(scene: Scene) -> Finding | None:
    return Finding() if scene.facts.reason == "DependencyNeverSatisfied" else None


# Exceptions by which a driver learns that a process of its is gone; why, others must tell.
_DIED = r"(ActorDied|ActorUnavailable|WorkerCrashed|RayActor|NodeDied)Error"


def _slurm_oom(scene: Scene) -> Finding | None:
    kill = r"([Oo][Oo][Mm][-_ ][Kk]ill|xceeded (job |step )?memory limit|OOM Killed|Out Of Memory)"
    found = _either(
        _line(_log, r"srun: error: (?P<node>\S+): task.*Out Of Memory"),
        _line(_log, rf"slurmstepd(?:-(?P<node>\S+))?: error: .*{kill}"),
        _state("OUT_OF_MEMORY"),
    )(scene)
    another = scene.raised and not re.match(rf"{_DIED}|MemoryError|OutOfMemoryError", scene.raised.name)
    if found is not None and scene.raised is not None and another:  # Ray may have done without the process
        return Finding((*found.evidence, *scene.raised.evidence), sure=False, node=found.node)
    return found


def _never_enough(scene: Scene) -> Finding | None:
    """Ray says so while nodes are still to come, too: what failed later for another reason has got over it."""
    if scene.raised is not None and scene.raised.name != "GetTimeoutError":
        return None
    request = r"No available node types can fulfill resource requests? (?P<request>\{.*?\})"
    return _line(lambda scene: scene.output, request)(scene)


def _runs(scene: Scene) -> Finding | None:
    ends = scene.facts.state == "COMPLETING" and scene.end is not None  # how, its log tells already
    return Finding(_last(scene)) if _task(scene).running and not ends else None


def _ray_oom(scene: Scene) -> Finding | None:
    """Ray's memory monitor. Its logs alone prove nothing: Ray starts such tasks again."""
    killed = r"killed due to the node running low on memory|OOM kill reason|[Kk]illing \d+ worker\(s\), kill details"
    found = _line(_error, r"OutOfMemoryError: .*(?P<what>running low on memory)|" + killed, "command-failed")(scene)
    if found is not None and scene.raised is not None:
        return Finding((*scene.raised.evidence, *found.evidence[-1:]), found.values)
    if found is not None:
        return found
    died = scene.raised is not None and re.match(_DIED, scene.raised.name)
    if died or scene.outcome == "node-lost":
        in_logs = _line(_ray, killed, sure=False)(scene)
        return in_logs and Finding((*_last(scene)[-1:], *in_logs.evidence), in_logs.values, sure=False)
    return None


def _environment(scene: Scene) -> Finding | None:
    if scene.end is None or scene.outcome != "environment-failed":
        return None
    return Finding(_last(scene), {"failed": (scene.end.cause or "its commands").removeprefix("failed: ")})


def _version(scene: Scene) -> Finding | None:
    """Ray says it itself; or an old Ray fails in another way, and the script has asked it for its version."""
    theirs = _line(_told, r"^ray, version (?P<theirs>[\d.\w]+)", *BRING_UP)(scene)
    ours = re.compile(r"ray_version=(?P<ours>\d+\.\d+[\w.]*)|Ray version: (?P<also>\d+\.\d+[\w.]*)")
    head = scene.version or next((match["ours"] or match["also"] for _, match in matching(scene.ray(), ours)), None)
    if theirs is not None and theirs.values["theirs"] != head:
        values = f": {scene.end.node if scene.end else ''} has Ray {theirs.values['theirs']}"
        return Finding(
            (*theirs.evidence, *_last(scene)[-1:]), {"versions": values + (f", the head {head}" if head else "")}
        )
    mismatch = _either(
        _line(_error, r"Version mismatch: ", "command-failed"), _line(_told, r"[Vv]ersion mismatch", *BRING_UP)
    )
    found = mismatch(scene)
    if (
        found is None
    ):  # a Ray from before tokens does not know this error by its name, nor where the newer ones keep things
        older = {"versions": f": the command's Ray is older{f' than {head}' if head else ''}"}
        old = _line(
            _error, r"RpcError: .*InvalidAuthToken|(?P<unsure>Could not read 'temp_dir' from GCS)", "command-failed"
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


def _unreached(scene: Scene) -> Finding | None:
    """A worker that waited in vain for the head's port, while the head was up."""
    if scene.outcome != "nodes-missing":
        return None
    found = matching(
        scene.ray(file="ray-start.log"), re.compile(r"^(?P<node>\S+) never reached (?P<address>\S+): ?(?P<why>.*)")
    )
    head_is_up = any(" joined node=" in line.text for line in scene.lines)
    if not found or not head_is_up:
        return None
    return Finding(
        (*(line for line, _ in found[:3]), *_last(scene)[-1:]), _given(found[0][1]), node=found[0][1]["node"]
    )


def _network_folder(scene: Scene) -> Finding | None:
    """The script's warning is no proof, unless the file system refused something."""
    refused = r"(Operation not (supported|permitted)|Errno (95|37|116)\b|No locks available|Stale file handle)"
    pipe = _line(_before, r"mkfifo: cannot create fifo '(?P<dir>[^']*)/r\d+-[^']*'.*" + refused, "temp-dir")(scene)
    if pipe is not None:
        return Finding(pipe.evidence, {**pipe.values, "what": "cannot hold pipes, as on a network file system"})
    warned = matching(scene.warnings, re.compile(r"warning (?P<dir>\S+)/r\d+-\S+ is on a network file system"))
    if not warned or scene.outcome not in (*BRING_UP, "node-lost"):
        return None
    proof = [line for line, _ in matching([*scene.told, *scene.ray()], re.compile(refused))]
    return Finding(
        (warned[-1][0], *some(proof, 2), *_last(scene)[-1:]),
        {**_given(warned[-1][1]), "what": "is on a network file system"},
        bool(proof),
    )


def _killed(scene: Scene) -> Finding | None:
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
            _last(scene), {"how": f"crashed with {name}", "mend": "the lines above it in the log may tell where"}
        )
    mend = (
        "SIGKILL is often memory: ask for more with --mem"
        if name == "SIGKILL"
        else "somebody, or the command itself, sent it"
    )
    return Finding(_last(scene), {"how": f"was killed by {name}; nobody told by whom", "mend": mend}, sure=False)


def _died_ray(scene: Scene) -> Finding | None:
    if scene.outcome not in ("head-failed", "node-failed", "node-lost") or scene.end is None:
        return None
    logs = scene.ray(scene.end.node, "ray-start.log")
    subprocess = matching(
        logs, re.compile(r"exited unexpectedly|\[exit code=|exit code\(s\)=|Fatal Python error|Check failed")
    )
    more = "; exit code -9 is often memory" if any("=-9" in line.text for line, _ in subprocess) else ""
    return Finding((*some([line for line, _ in subprocess], 3), *some(scene.told, 3)), {"more": more})


def _script_killed(scene: Scene) -> Finding | None:
    facts = scene.facts
    if facts.state != "FAILED" or scene.end is not None or not 0 < facts.signal < 32:
        return None
    return Finding(_last(scene), {"signal": signal.Signals(facts.signal).name}, sure=False)


def _no_launch(scene: Scene) -> Finding | None:
    facts = scene.facts
    if facts.state != "FAILED" or scene.lines or facts.code is not None:
        return None
    return Finding() if facts.signal == 53 or facts.reason == "JobLaunchFailure" else None


CAUSE = "{cause}"
# In this order: what has not failed, then the special causes before the general outcomes.
RULES: tuple[Rule, ...] = (
    Rule("not-failed", "it has not failed: the command ended with code 0", "nothing", _not_failed),
    Rule(
        "dependency",
        "the job that it depends on has ended otherwise: it will never start",
        "cancel it; submit it again when the other job has run, or without --dependency",
        _never,
    ),
    Rule("waiting", "it has not failed: it waits: {why}", "`squeue --start` may tell how long", _waits),
    Rule(
        "running",
        "it has not failed: it runs",
        "`slurm-launch status` tells how far it is",
        _runs,
    ),
    # Memory
    Rule(
        "out-of-memory",
        "the job ran out of memory{at}, and Slurm killed it",
        "ask for more with --mem{asked}; or let Ray hold less: --object-store-memory, fewer tasks at a time",
        _slurm_oom,
    ),
    Rule(
        "ray-out-of-memory",
        "a node ran low on memory, and Ray killed a task",
        "ask for more with --mem{asked}; or run fewer tasks at a time, by num_cpus or memory of each",
        _ray_oom,
    ),
    Rule(
        "gpu-out-of-memory",
        "the command ran out of the GPU's memory{place}",
        "smaller batches, fewer processes on each GPU, or a --gpu-type with more memory",
        _line(
            _error, r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|RESOURCE_EXHAUSTED: Out of memory"
        ),
    ),
    Rule(
        "object-store-full",
        "Ray's object store is full, and so is the disk to which it spills",
        "choose a --temp-dir with more room, give more to --object-store-memory, or keep fewer objects",
        _raised(r"^(OutOfDiskError|ObjectStoreFullError): "),
    ),
    # What the nodes have
    Rule(
        "no-space",
        "there is no space left{at}",
        "make room, or choose another --temp-dir; `df -h` on the node, and `quota`, tell where",
        _either(
            _line(_told, r"No space left on device|Disk quota exceeded"),
            _line(_before, r"No space left on device|Disk quota exceeded", "temp-dir", "environment-failed"),
            _line(_error, r"No space left on device|Disk quota exceeded", "command-failed"),
        ),
        ("no space on ", "choose another --temp-dir"),
    ),
    Rule(
        "no-gpu",
        "the command found no GPU{place}",
        "ask for GPUs with --num-gpus; in a task, ask Ray for them with num_gpus",
        _line(
            _error,
            r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|not compiled with CUDA"
            r"|NVIDIA-SMI has failed|No HIP GPUs are available",
            "command-failed",
        ),
    ),
    Rule(
        "never-enough",
        "the command waits for what no node has: {request}",
        "ask Slurm for more, with --num-gpus, --cpus-per-task or --mem; or ask Ray for less",
        _never_enough,
    ),
    Rule(
        "version-mismatch",
        "the nodes have different versions of Ray or Python{versions}",
        "load the same environment on all nodes and in the command",
        _version,
        ("the nodes have different versions of Ray or Python", "ersion mismatch", "ray, version"),
    ),
    Rule(
        "token-mismatch",
        "another token than the job's was used{at}",
        "do not set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or RAY_AUTH_MODE: the script does it",
        _either(
            _line(_told, r"InvalidAuthToken|AuthenticationError", *BRING_UP),
            _line(_error, r"(AuthenticationError: .*)(InvalidAuthToken|RAY_AUTH)", "command-failed"),
        ),
        ("has another token", "AuthToken"),
    ),
    Rule(
        "port-in-use",
        "a port is in use already{at}",
        "in the command let the system choose (port 0); for Ray do not fix one, or widen --port-range",
        _either(
            _line(_told, r"no free block of ports in (?P<range>\S+)", "head-failed"),
            _line(_told, r"[Aa]ddress already in use|ort \d+ is already in use", *BRING_UP),
            _line(_error, r"Address already in use|EADDRINUSE", "command-failed"),
        ),
        ("no free block of ports in", "give a wider --port-range", "Address already in use"),
    ),
    # The temporary directory
    Rule(
        "temp-dir-too-long",
        "the path of the temporary directory is too long for Ray's sockets{at}",
        "choose a shorter --temp-dir",
        _either(
            _line(_told, r"cannot use .*: the path is too long", "temp-dir"),
            _line(_told, r"AF_UNIX path length cannot exceed|File name too long", *BRING_UP),
        ),
        ("cannot use ", ": the path is too long"),
    ),
    Rule(
        "temp-dir-on-network",
        "the temporary directory {dir} {what}",
        "choose a node-local --temp-dir, such as /tmp: Ray needs pipes, sockets and locks there",
        _network_folder,
        ("is on a network file system", "choose a node-local --temp-dir"),
    ),
    Rule("temp-dir", CAUSE, "{hint}", _outcome("temp-dir"), ("cannot use ",)),
    # Before Ray starts
    Rule(
        "ray-missing",
        "there is no Ray{at}",
        "install Ray on every node, or load an environment that all nodes can see: --venv, --conda-env, --modules",
        _either(
            _line(_told, r'cause="failed: ray is not in PATH"', "environment-failed"),
            _line(_told, r"\bray: .*(No such file|not found)|\"ray\": .*not found", *BRING_UP),
        ),
        ("ray is not in PATH", "install Ray on "),
    ),
    Rule(
        "environment",
        "the environment could not be loaded: {failed}",
        "{hint}",
        _environment,
        ("failed: ", "mend the environment options, or this script"),
    ),
    Rule("script-ended", CAUSE, "{hint}", _outcome("script-failed"), ("the script itself ended",)),
    Rule(
        "container",
        CAUSE,
        "{hint}",
        _line(_log, r"\] \S+ missing |outcome=container-failed", "container-failed"),
        ("there is no image", "to mount", "is not in PATH"),
    ),
    Rule(
        "no-address",
        CAUSE,
        "{hint}",
        _line(lambda scene: [*scene.before[-2:], *scene.told], r"does not exist|has no usable address", "no-address"),
        ("has no usable address",),
    ),
    # While the cluster comes up
    Rule(
        "option-refused",
        "an option is not known: {option}",
        "correct --ray-arg, --ray-head-arg, --ray-worker-arg, --srun-arg or --container-arg",
        _line(_told, r"(unrecognized|[Nn]o such|invalid) option:? (-- )?['\"]?(?P<option>[^'\"\s]+)['\"]?", *BRING_UP),
    ),
    Rule(
        "head-not-reached",
        "{node} cannot reach the head at {address}: {why}",
        "choose with --interface a network that all nodes have, or leave the node out with --exclude",
        _unreached,
        (" never reached ", "cannot be reached: leave it out with --exclude, or choose --interface"),
    ),
    Rule(
        "too-slow",
        "Ray gave up because the node was too slow{at}",
        "ask for more --cpus-per-task, or leave the node out with --exclude; is its file system slow?",
        _line(_told, r"timed out during startup|No node info found for head node", *BRING_UP),
        ("was too slow for Ray", "during startup"),
    ),
    Rule(
        "start-timeout",
        CAUSE,
        "give a longer --start-timeout, or --min-nodes; {hint}",
        _outcome("nodes-missing"),
        ("missing after ", "nodes joined"),
    ),
    # Nodes
    Rule(
        "node-failure",
        "{lost}",
        "sinfo -R may tell why; submit again",
        _either(
            _line(_log, r"DUE TO (?P<due>NODE FAILURE)|cause=\"(?P<lost>Slurm has lost a node of the job)\""),
            _state("NODE_FAIL", "BOOT_FAIL"),
        ),
        ("Slurm has lost a node of the job", "sinfo -R may tell why; submit again"),
    ),
    Rule(
        "node-unreachable",
        CAUSE,
        "leave {node} out with --exclude; `sinfo -R` may tell more",
        _line(_told, r"nothing was heard of it|[Cc]onnection failure|[Cc]onnection timed out", "node-lost", *BRING_UP),
        ("nothing was heard of it for ", "onnection failure"),
    ),
    Rule(
        "ray-died",
        CAUSE,
        "{hint}{more}",
        _died_ray,
        ("its Ray has ended", "did not start", "was lost while the command ran", "failed: "),
    ),
    # The end from outside
    Rule(
        "time-limit",
        "the time limit was reached",
        "ask for more with --time{time}",
        _either(_outcome("time-limit"), _state("TIMEOUT"), _line(_log, r"CANCELLED AT \S+ DUE TO TIME LIMIT")),
        ("the time limit was reached", "ask for more with --time"),
    ),
    Rule(
        "preempted",
        "the job was preempted: another one took its nodes",
        "submit it again, or with --requeue let Slurm do that; another --qos or --partition may be spared",
        _either(_state("PREEMPTED"), _line(_log, r"CANCELLED AT \S+ DUE TO PREEMPTION")),
    ),
    Rule(
        "deadline",
        "the job could not end before its deadline",
        "give a later --deadline, or a shorter --time",
        _state("DEADLINE"),
    ),
    Rule(
        "prolog-failed",
        "the site's prolog failed{at}: the job did not begin",
        "submit again; if it stays so, leave the node out with --exclude and tell the administrators",
        _line(_log, r"Error running slurm prolog"),
    ),
    Rule(
        "cancelled",
        "{ended}",
        "`sacct -j JOB -X --format=State%30` may tell who did it; submit again",
        _either(_outcome("ended-from-outside"), _state("CANCELLED", "REVOKED")),
        ("the job was ended from outside (",),
    ),
    Rule(
        "not-launched",
        "Slurm could not start the script: it could not make the log, or go to the directory",
        "both must exist on the nodes, and be yours: see --run-dir and --chdir",
        _no_launch,
    ),
    Rule(
        "script-killed",
        "the script itself was killed by {signal}; nobody told by whom",
        "often it is memory: ask for more with --mem{asked}; else ask the administrators",
        _script_killed,
    ),
    # The command
    Rule(
        "module-missing",
        "the command needs a Python module that is not there: {module}{place}",
        "install it in the environment that the job loads, where all nodes can see it",
        _raised(r"^(ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)'?"),
    ),
    Rule(
        "file-missing",
        "the command needs a file that is not there: {path}",
        "check the path: it is that of the node, and the command runs where you submitted, or in --chdir",
        _either(
            _raised(r"^FileNotFoundError: \[Errno 2\] No such file or directory: (?P<path>.+)"),
            _line(_error, r"can't open file (?P<path>'[^']+'): \[Errno 2\]", "command-failed"),
        ),
    ),
    Rule(
        "worker-died",
        "one of Ray's workers died{place}: {said}",
        "its last words are in Ray's logs (worker-*.err); a crash of native code, an exit, or memory",
        _raised(rf"^{_DIED}: ", sure=False),
    ),
    Rule("python-error", "the command failed with {said}{place}", "mend {file}", _raised(r"")),
    Rule(
        "command-not-found",
        "there is no program {program}",
        "check its name and the environment: --venv, --conda-env, --modules or --load-env",
        lambda scene: (
            _line(
                _error, r"line \d+: (?P<program>.+?): (command not found|No such file or directory)", "command-failed"
            )(scene)
            if scene.end and scene.end.code == 127
            else None
        ),
    ),
    Rule(
        "not-executable",
        "the program {program} may not be run",
        "`chmod +x` it, or begin the command with its interpreter",
        lambda scene: (
            _line(
                _error,
                r"line \d+: (?P<program>.+?): (Permission denied|Is a directory|cannot execute.*)",
                "command-failed",
            )(scene)
            if scene.end and scene.end.code == 126
            else None
        ),
    ),
    Rule(
        "shell-syntax",
        "bash does not understand the command: {message}",
        "`bash -n` with the command in a file shows where",
        _line(_error, r"bash: -c: line \d+: (?P<message>syntax error.*|unexpected EOF.*)", "command-failed"),
    ),
    Rule(
        "command-killed",
        "the command {how}",
        "{mend}",
        _killed,
    ),
    Rule(
        "command-failed",
        "the command ended with code {code}; why, its own last lines must tell",
        "look at the command's output in the log",
        lambda scene: Finding(_last(scene), sure=False) if scene.outcome == "command-failed" else None,
    ),
    Rule(
        "unknown",
        "nobody can tell why: the job {ended}",
        "look at the log and at `sacct -j JOB`; Ray's own logs are kept with --keep-ray-logs",
        lambda scene: Finding(_last(scene), sure=False),
    ),
)


def explain(facts: Facts) -> Explanation:
    """The first rule that fits; the last one always does."""
    scene = Scene(facts)
    for rule in RULES:
        found = rule.find(scene)
        if found is not None:
            return _explanation(_with_what_we_know(rule, facts), found, scene)
    raise AssertionError("the last rule fits everything")


def _with_what_we_know(rule: Rule, facts: Facts) -> Rule:
    """Other words where it was us who ended the job, or nobody has told whether it has ended."""
    if rule.cause == "cancelled" and facts.cancelled:
        when = clock(datetime.fromisoformat(facts.cancelled), datetime.now(timezone.utc))
        sentence = f"the job was cancelled by `slurm-launch cancel`, at {when}"
        return replace(rule, sentence=sentence, advice="nothing, if that was meant; else submit again")
    if rule.cause == "unknown" and not facts.asked:
        sentence = "Slurm does not answer, and the files tell of no end: the job may still wait, or run"
        return replace(rule, sentence=sentence, advice="try again later; `scontrol ping` tells whether Slurm is up")
    return rule


def _explanation(rule: Rule, found: Finding, scene: Scene) -> Explanation:
    facts, end = scene.facts, scene.end
    node = found.node or (end.node if end else None)
    asked = next((facts.spec[key] for key in ("mem", "mem-per-cpu", "mem-per-gpu") if facts.spec.get(key)), None)
    state = how_it_ended(facts.state, facts.code, facts.signal)
    values: dict[str, str] = {
        "node": node or "the node",
        "at": f" on {node}" if node else "",
        "cause": (end.cause if end else None) or f"the job {state}",
        "hint": (end.hint if end else None) or "look at the log",
        "code": str(end.code if end else facts.code),
        "asked": f" (it was {asked})" if asked else "",
        "time": f" (it was {facts.spec['time']})" if facts.spec.get("time") else "",
        "ended": (end.cause if end else None) or state,
        "place": f" ({scene.raised.place})" if scene.raised and scene.raised.place else "",
        "lost": "a node of the job did not boot" if facts.state == "BOOT_FAIL" else "Slurm has lost a node of the job",
        **found.values,
    }
    if rule.cause == "cancelled" and not (end and end.cause):
        values["ended"] = f"the job {state}"
    return Explanation(
        rule.cause,
        rule.sentence.format_map(values),
        tuple(dict.fromkeys(str(line) for line in found.evidence)),
        rule.advice.format_map(values),
        found.sure,
        node,
    )


def explain_task(run: Run, task: Task) -> Explanation:
    """Of a run that was looked up: why this job, or task of an array, failed."""
    known = gather(task.log, f"{task.log.removesuffix('.log')}.ray")
    known |= {"spec": run.spec, "asked": task.asked, "cancelled": run.cancelled_at(task.id)}
    why = explain(Facts(task.state, task.reason, task.code, task.signal, **known))
    return replace(why, advice=why.advice.replace("sacct -j JOB", f"sacct -j {task.id}"))
