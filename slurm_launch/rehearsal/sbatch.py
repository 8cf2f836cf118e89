"""The fake sbatch: parses the script's directives, prints the job ID, and starts the node daemon."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from slurm_launch.rehearsal import directive_parser, node_daemon
from slurm_launch.rehearsal.job import FIRST_ID, NodeGroup, RehearsalFolder, RehearsedJob, fill
from slurm_launch.rehearsal.option_parser import CommandOptions
from slurm_launch.slurm.array_ids import array_numbers
from slurm_launch.slurm.sbatch import REHEARSAL_CLUSTER

_SIMULATED = """array chdir cpus-per-task gpus-per-node gpus-per-task gres job-name mem mem-per-cpu mem-per-gpu nodelist
nodes ntasks-per-node open-mode output partition signal time"""
# A rehearsal has no queue and sends no mail.
_WITHOUT_EFFECT = """account acctg-freq begin burst-buffer clusters comment constraint container core-spec
cores-per-socket cpu-freq cpus-per-gpu deadline delay-boot dependency distribution error exclude export-file extra gid
gpu-bind gpu-freq gres-flags hint licenses mail-type mail-user mcs-label mem-bind mincpus network nice ntasks-per-core
ntasks-per-socket prefer priority profile qos reservation sockets-per-node switches thread-spec
threads-per-core time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey"""
_WITHOUT_VALUE = """contiguous exclusive get-user-env hold ignore-pbs kill-on-invalid-dep no-kill no-requeue
oversubscribe overcommit parsable propagate quiet reboot requeue spread-job use-min-nodes verbose wait"""
SHORT = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir",
    "d": "dependency", "e": "error", "H": "hold", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "N": "nodes", "o": "output", "p": "partition", "Q": "quiet", "q": "qos", "s": "oversubscribe", "t": "time",
    "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
MAX_NODES = 1000
OPTIONS = CommandOptions("sbatch", f"{_SIMULATED} {_WITHOUT_EFFECT}".split(), _WITHOUT_VALUE.split(), SHORT)


def main(folder: RehearsalFolder, argv: list[str]) -> int:
    given, words = OPTIONS.parse(argv)
    if not words:
        OPTIONS.fail("no script given")
    if folder.job() is not None:
        OPTIONS.fail("a rehearsal has only one job, and it is submitted already")
    script = Path(words[0])
    try:
        text = script.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        OPTIONS.fail(f"Unable to open file {script}: {error.strerror}")
    if not text.startswith("#!"):
        OPTIONS.fail("This does not look like a batch script: its first line must begin with #!")
    components = _components(_directives(text))
    components[0] |= given
    options = components[0]
    if "hold" in options:
        OPTIONS.fail("--hold is not supported in a rehearsal: nothing would release the job")
    if "array" in options and len(components) > 1:
        OPTIONS.fail("Batch job submission failed: Invalid job array specification")
    job = _job(components, script, words[1:], folder.read("setup.json") or {})
    folder.spooled.write_text(text, encoding="utf-8", errors="surrogateescape")  # a copy: later edits have no effect
    folder.set_job(job)
    _start_daemon(folder)
    if "parsable" in options:
        answer = f"{job.id};{REHEARSAL_CLUSTER}"
    else:
        answer = f"Submitted batch job {job.id} on cluster {REHEARSAL_CLUSTER}"
    print(answer, flush=True)
    return 0


def _start_daemon(folder: RehearsalFolder) -> None:
    """Fork the node daemon, and return when it is running."""
    started, ready = os.pipe()
    if os.fork():
        os.close(ready)
        if not os.read(started, 1):
            with suppress(OSError):
                print((folder.path / "slurmd.err").read_text(errors="replace"), end="", file=sys.stderr)
            OPTIONS.fail("the rehearsal's daemon did not start")
        return
    code = 1
    try:
        os.setsid()
        if not os.fork():
            _run_daemon(folder, ready)
        code = 0
    finally:
        os._exit(code)


def _run_daemon(folder: RehearsalFolder, ready: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(folder.path / "slurmd.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for old, new in enumerate((nothing, nothing, errors)):
        os.dup2(new, old)
    try:
        node_daemon.run(folder, ready)
    except Exception as error:  # rehearse shows it
        what = error if isinstance(error, OSError) else repr(error)
        print(what, file=sys.stderr, flush=True)
        raise


# What sbatch passes on from a component of a heterogeneous job to the later ones, of the simulated options.
_INHERITED = ("mem", "exclude")


def _components(parts: list[dict[str, str]]) -> list[dict[str, str]]:
    for before, part in pairwise(parts):
        kinds = [name for name in part if name.startswith("mem-per-")]
        if "mem" in before and kinds:
            OPTIONS.fail("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
        part |= {name: before[name] for name in _INHERITED if name in before and name not in part}
    return parts


def _directives(text: str) -> list[dict[str, str]]:
    """The #SBATCH options before the script's first command, for each component."""
    found: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            try:
                words = directive_parser.words(line)
            except directive_parser.Unreadable as error:
                OPTIONS.fail(str(error))
            if words == ["hetjob"]:
                found.append({})
                continue
            options, rest = OPTIONS.parse(words)
            if rest:
                OPTIONS.fail(f"Invalid directive found in batch script: {rest[0]}")
            found[-1] |= options
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def _job(
    components: list[dict[str, str]], script: Path, arguments: list[str], setup: Mapping[str, Any]
) -> RehearsedJob:
    groups: list[NodeGroup] = []
    for part in components:
        groups.append(_group(part, sum(len(group.nodes) for group in groups)))
    names = [node for group in groups for node in group.nodes]
    if len(names) > MAX_NODES:
        OPTIONS.fail(f"a rehearsal has at most {MAX_NODES} nodes")
    if len(set(names)) < len(names):
        OPTIONS.fail("two components of a heterogeneous job cannot be on the same node")
    options = components[0]
    number = int(setup.get("job_id") or FIRST_ID + random.SystemRandom().randrange(900_000))
    task = setup["task"] if setup.get("task") is not None else next(iter(_array(options.get("array"))), None)
    directory = os.path.abspath(options.get("chdir", "."))
    name = options.get("job-name", script.name)
    return RehearsedJob(
        id=number,
        name=name,
        arguments=arguments,
        directory=directory,
        output=_output(options.get("output"), directory, number, task, name, names[0]),
        append=options.get("open-mode", "truncate").startswith("a"),
        groups=groups,
        time_limit=_seconds(options.get("time")),
        warning=_warning(options.get("signal")),
        requeue="no-requeue" not in options,
        array_task=task,
        array=_array(options.get("array")),
    )


def _group(options: Mapping[str, str], first: int) -> NodeGroup:
    """The nodes of a job or of one component, numbered from `first` on."""
    count = OPTIONS.number(options, "nodes", 1)
    if count > MAX_NODES:
        OPTIONS.fail(f"a rehearsal has at most {MAX_NODES} nodes")
    nodelist = options.get("nodelist")
    if nodelist is None:
        nodes = [f"node{index}" for index in range(first, first + count)]
        nodelist = nodes[0] if count == 1 else f"node[{first}-{first + count - 1}]"
    else:
        from slurm_launch.slurm import hostlist  # slow to import, and rarely needed

        nodes = hostlist.expand(nodelist)
        if len(nodes) != count and "nodes" in options:
            OPTIONS.fail(f"--nodelist names {len(nodes)} nodes, but --nodes is {count}")
    if OPTIONS.number(options, "ntasks-per-node", 1) != 1:
        OPTIONS.fail("a rehearsal runs one task on each node: --ntasks-per-node must be 1")
    cpus = OPTIONS.number(options, "cpus-per-task", 1)
    gpus, extra = _gpus(options)
    if "cpus-per-task" in options:
        extra["SLURM_CPUS_PER_TASK"] = str(cpus)
    if "account" in options:
        extra["SLURM_JOB_ACCOUNT"] = options["account"]
    return NodeGroup(nodes, nodelist, cpus, _memory(options), gpus, extra, options.get("partition", REHEARSAL_CLUSTER))


def _gpus(options: Mapping[str, str]) -> tuple[int, dict[str, str]]:
    """The GPUs on each node, and the variable of the option that requested them."""
    for name in ("gpus-per-node", "gpus-per-task"):
        if name in options:
            number = options[name].rpartition(":")[2]
            if not number.isdecimal():
                OPTIONS.fail(f"invalid value for --{name}: '{options[name]}'")
            return int(number), {f"SLURM_{name.replace('-', '_').upper()}": options[name]}
    for part in options.get("gres", "").split(","):
        match = re.fullmatch(r"gpu(?::[^:]+)?:(\d+)", part)
        if match:
            return int(match[1]), {}
        if part == "gpu":
            return 1, {}
    return 0, {}


def _memory(options: Mapping[str, str]) -> dict[str, int]:
    for option, variable in (("mem", "NODE"), ("mem-per-cpu", "CPU"), ("mem-per-gpu", "GPU")):
        match = re.fullmatch(r"(\d+)([KMGT]?)B?", options.get(option, ""), re.IGNORECASE)
        if match and int(match[1]):
            kilobytes = int(match[1]) << {"K": 0, "": 10, "M": 10, "G": 20, "T": 30}[match[2].upper()]
            return {f"SLURM_MEM_PER_{variable}": -(-kilobytes // 1024)}
    return {}


def _seconds(text: str | None) -> int | None:
    """Parse M, M:S, H:M:S, D-H, D-H:M or D-H:M:S to seconds; None is no limit."""
    if text is None or text.lower() in ("infinite", "unlimited", "-1", "0"):
        return None
    days, dash, clock = text.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        if dash:
            hours, minutes, seconds = (*parts, 0, 0)[:3]
        else:
            hours, minutes, seconds = {1: (0, *parts, 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
        return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    except (KeyError, ValueError):
        OPTIONS.fail(f"Invalid --time specification: {text}")


def _warning(signal: str | None) -> int | None:
    """The seconds of --signal=B:USR1@120; other signals are not simulated."""
    match = re.fullmatch(r"B:(?:SIG)?USR1(?:@(\d+))?", signal or "")
    return None if match is None else int(match[1] or 60)


def _array(text: str | None) -> list[int]:
    """The tasks of the array."""
    found = array_numbers(text or "")
    if text is not None and not found:
        OPTIONS.fail(f"Invalid job array specification: {text}")
    return found


def _output(pattern: str | None, directory: str, number: int, task: int | None, name: str, node: str) -> str:
    """The path of the job's output file."""
    pattern = pattern or ("slurm-%j.out" if task is None else "slurm-%A_%a.out")
    values = {"j": number, "A": number, "a": 4294967294 if task is None else task, "x": name, "N": node, "n": 0, "t": 0}
    return os.path.join(directory, fill(pattern.replace("\\", ""), {**values, "s": "batch"}))
