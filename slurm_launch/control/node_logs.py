"""The logs of a job's nodes: what was kept of them, or, while the job runs, what lies on the node itself."""

from __future__ import annotations

import fnmatch
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_launch import process
from slurm_launch.control import running_job
from slurm_launch.errors import SlurmUnavailable, UsageError, WrongMoment
from slurm_launch.runs import log_phases
from slurm_launch.runs.log_phases import Attempt
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import hostlist, jobs
from slurm_launch.status.task import Task

START_LOG = "ray-start.log"
# Ray's logs, the most telling first. What is not here comes after them.
TELLING = (
    "gcs_server.err",
    "raylet.err",
    "worker-*.err",
    "gcs_server.out",
    "raylet.out",
    "dashboard.err",
    "dashboard.log",
    "monitor.err",
    "monitor.log",
    "runtime_env*",
    "python-core-driver-*",
    "worker-*.out",
    "python-core-worker-*",
    "*.err",
    "*.log",
    "*.out",
)
MOST_FILES = 30
NOT_THERE = 66  # the exit code of the code below when the node has no such file
Interact = Callable[..., int]


@dataclass(frozen=True)
class Kept:
    """A file of a node that was kept."""

    node: str
    path: Path
    name: str  # from the node's own folder on


def folder_of(log: str) -> Path:
    """Where the script keeps the nodes' logs."""
    return Path(f"{log.removesuffix('.log')}.ray")


def kept_nodes(log: str) -> list[str]:
    try:
        return sorted(path.name for path in folder_of(log).iterdir() if path.is_dir())
    except OSError:
        return []


def kept_files(log: str, node: str) -> list[Kept]:
    """The files of a node that are not empty, the most telling first."""
    top = folder_of(log) / node
    found = []
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and path.stat().st_size:
                found.append(Kept(node, path, str(path.relative_to(top))))
    return sorted(found, key=lambda kept: (_rank(kept.path.name), kept.name))


def _rank(name: str) -> int:
    if name == START_LOG:
        return -1
    return next((rank for rank, pattern in enumerate(TELLING) if fnmatch.fnmatchcase(name, pattern)), len(TELLING))


def life_of(log: str) -> Attempt | None:
    """The last life that the log tells of."""
    try:
        return log_phases.read(log).last
    except OSError:
        return None


def head_of(log: str) -> str:
    attempt = life_of(log)
    if attempt is None or attempt.head is None:
        hint = "it is known once Ray is being started; --node NAME says which one you mean"
        raise WrongMoment("the log does not tell which node is the head", at=log, hint=hint)
    return attempt.head


def nodes_of(log: str, task: Task | None = None) -> list[str]:
    """The job's nodes as far as they are known, the head first."""
    attempt = life_of(log)
    known = [attempt.head] if attempt and attempt.head else []
    known += hostlist.expand(task.nodes) if task and task.nodes else []
    known += list(attempt.joined) if attempt else []
    return list(dict.fromkeys([*known, *kept_nodes(log)]))


def check_node(node: str, log: str, task: Task) -> None:
    known = nodes_of(log, task)
    if known and node not in known:
        hint = f"its nodes are {', '.join(known[:40])}{' ...' if len(known) > 40 else ''}"
        raise UsageError(f"job {task.id} has no node {node!r}", at="--node", hint=hint)


def not_there(node: str, log: str, task: Task) -> WrongMoment:
    """Why there is nothing to show."""
    if task.waiting:
        return WrongMoment(f"job {task.id} {task.in_words}", at=log, hint="its nodes have no logs before it begins")
    hint = "they are kept when a job fails, or with --keep-ray-logs"
    where = f"no logs of {node} were kept"
    if task.running:
        return WrongMoment(f"{where}, and Ray is not up there: job {task.id} {task.in_words}", at=log, hint=hint)
    return WrongMoment(f"{where}: job {task.id} {task.in_words}", at=log, hint=hint)


# On the node itself. By $1.$2 a node has its own directory even where nodes share /tmp; mostly there is but one.
_FIND = """
shopt -s nullglob; dirs=("$1".*/ray-start.log); ((${#dirs[@]} == 1)) || dirs=("$1.$2"/ray-start.log)
dir=${dirs[0]%/*}; [[ $dir && -e $dir ]] || { exit 66; }
"""
_START = _FIND + 'exec tail -n "$3" -- "$dir/ray-start.log"'
# It ends with the file, which goes when the job ends.
_FOLLOW = (
    _FIND + 'tail -n "$3" -f -- "$dir/ray-start.log" & while [[ -e $dir/ray-start.log ]]; do sleep 0.2; done; kill $!'
)
_RAY = (
    _FIND
    + """
cd "$dir"/t/session_latest/logs 2>/dev/null || exit 66; most=$4 seen=' '
for pattern in "${@:5}"; do for file in $pattern; do
  [[ -f $file && -s $file && $seen != *" $file "* ]] || continue
  ((most-- > 0)) || exit 0
  seen+="$file " && tail -v -n "$3" -- "$file" && echo
done; done
"""
)


def show_from_node(
    task: Task,
    node: str,
    *,
    cluster: str | None,
    ray: bool,
    tail: int | None,
    follow: bool,
    env: Mapping[str, str],
    hear: Callable[[bytes], object],
    interact: Interact = process.interact,
) -> int:
    """Show the logs on a node of a running job, on our own stdout; returns tail's exit code."""
    attempt = task.attempt
    if attempt is None or attempt.directory is None:
        raise not_there(node, task.log, task)
    job = attempt.job or task.id
    known = nodes_of(task.log, task)
    index = known.index(node) if node in known else 0
    lines = "+1" if tail is None else str(tail)
    code = _RAY if ray else _FOLLOW if follow else _START
    words = ["bash", "-c", code, "logs", attempt.directory, str(index), lines]
    words += [str(MOST_FILES), *TELLING] if ray else []
    # The job's end is the step's, which slurmstepd tells aloud.
    ear = running_job.Ear(
        lambda data: None if follow and b"slurmstepd" in data and b"*** STEP " in data else hear(data)
    )
    argv = [*jobs.step_argv(job, node, cluster, parts=task.parts), "--input=none", *words]
    result = interact(argv, env=slurm_environment.query_env(env), hear=ear.hear)
    ear.close()
    if result == NOT_THERE:
        raise not_there(node, task.log, task)
    if result and not ear.task_ended and result < 128:
        ended = life_of(task.log)
        if follow and ended is not None and ended.phase in ("stopping", "end"):
            return 0  # Slurm has ended the step with the job
        hint = "`squeue --me` tells whether the job still runs, `scontrol ping` whether Slurm is up"
        raise SlurmUnavailable(f"srun could not get to {node}:\n{ear.said.strip() or '(without a word)'}", hint=hint)
    interrupted = result in (128 + signal.SIGINT, 128 + signal.SIGPIPE)
    return 0 if follow and not interrupted else result


def in_order(log: str, nodes: Sequence[str]) -> list[str]:
    """The nodes whose logs were kept: the one that failed first, then the head."""
    attempt = life_of(log)
    first = [attempt.end.node if attempt and attempt.end else None, attempt.head if attempt else None]
    return [*dict.fromkeys(node for node in first if node in nodes and node), *(n for n in nodes if n not in first)]
