"""The logs of a job's nodes: those that were kept or, while the job runs, those on the node itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_launch import process
from slurm_launch.control import run_log, running_job
from slurm_launch.errors import SlurmUnavailable, UsageError, WrongMoment
from slurm_launch.runs import log_phases, ray_logs
from slurm_launch.runs.log_phases import Attempt
from slurm_launch.runs.record import Run
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import hostlist, jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status.task import Task

MAX_FILES = 30
NO_FILE = 66  # exit code of the shell code below when the node has no such file
Interact = Callable[..., int]


@dataclass(frozen=True)
class KeptFile:
    """A log file that was kept, and its node."""

    node: str
    path: Path
    name: str  # relative to the node's folder


def folder_of(log: str) -> Path:
    """The folder in which the script keeps the nodes' logs."""
    return Path(f"{log.removesuffix('.log')}.ray")


def kept_nodes(log: str) -> list[str]:
    try:
        return sorted(path.name for path in folder_of(log).iterdir() if path.is_dir())
    except OSError:
        return []


def kept_files(log: str, node: str) -> list[KeptFile]:
    """The non-empty log files of a node, the most useful first."""
    top = folder_of(log) / node
    files = []
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and path.stat().st_size:
                files.append(KeptFile(node, path, str(path.relative_to(top))))
    return sorted(files, key=lambda kept: (ray_logs.rank(kept.path.name), kept.name))


def last_attempt(log: str) -> Attempt | None:
    """The last attempt in the log; None if there is no log."""
    try:
        return log_phases.read(log).last
    except OSError:
        return None


def head_of(log: str) -> str:
    attempt = last_attempt(log)
    if attempt is None or attempt.head is None:
        hint = "it is known once Ray is starting; --node NAME selects a node"
        raise WrongMoment("the log does not name the head node", at=log, hint=hint)
    return attempt.head


def nodes_of(log: str, task: Task | None = None) -> list[str]:
    """The known nodes of the job, the head first."""
    attempt = last_attempt(log)
    known = [attempt.head] if attempt and attempt.head else []
    known += hostlist.expand(task.nodes) if task and task.nodes else []
    known += list(attempt.joined) if attempt else []
    return list(dict.fromkeys([*known, *kept_nodes(log)]))


def check_node(node: str, log: str, task: Task) -> None:
    known = nodes_of(log, task)
    if known and node not in known:
        hint = f"its nodes are {', '.join(known[:40])}{' ...' if len(known) > 40 else ''}"
        raise UsageError(f"job {task.id} has no node {node!r}", at="--node", hint=hint)


def no_logs_error(node: str, log: str, task: Task) -> WrongMoment:
    """The error that explains why there are no logs to show."""
    if task.waiting:
        return WrongMoment(f"job {task.id} {task.predicate}", at=log, hint="its nodes have no logs before it starts")
    hint = "logs are kept when a job fails, or with --keep-ray-logs"
    what = f"no logs of {node} were kept"
    if task.running:
        return WrongMoment(f"{what}, and Ray is not running there: job {task.id} {task.predicate}", at=log, hint=hint)
    return WrongMoment(f"{what}: job {task.id} {task.predicate}", at=log, hint=hint)


def task_to_query(run: Run, task_id: str, log: str, client: SlurmClient, *, kept: bool) -> Task | None:
    """The task whose nodes to query for logs; None to show the kept logs instead.

    After a requeue the kept logs are those of a previous attempt: they are shown only if Ray is not running now."""
    attempt = last_attempt(log)
    if kept and (attempt is None or attempt.directory is None or attempt.phase in ("stopping", "end")):
        return None
    try:
        task = run_log.look_up_task(run, task_id, client)
    except SlurmUnavailable:
        if kept:
            return None
        raise
    return None if kept and not (task.running and task.attempt and task.attempt.directory) else task


# Runs on the node. $1.$2 is the node's own directory where nodes share /tmp; usually there is only one.
_FIND = """
shopt -s nullglob; dirs=("$1".*/ray-start.log); ((${#dirs[@]} == 1)) || dirs=("$1.$2"/ray-start.log)
dir=${dirs[0]%/*}; [[ $dir && -e $dir ]] || { exit 66; }
"""
_START = _FIND + 'exec tail -n "$3" -- "$dir/ray-start.log"'
# Ends when the file is removed at the end of the job.
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
    on_stderr: Callable[[bytes], object],
    interact: Interact = process.interact,
) -> int:
    """Print the logs on a node of a running job to stdout; returns the exit code of tail."""
    attempt = task.attempt
    if attempt is None or attempt.directory is None:
        raise no_logs_error(node, task.log, task)
    job = attempt.job or task.id
    known = nodes_of(task.log, task)
    index = known.index(node) if node in known else 0
    lines = "+1" if tail is None else str(tail)
    code = _RAY if ray else _FOLLOW if follow else _START
    words = ["bash", "-c", code, "logs", attempt.directory, str(index), lines]
    words += [str(MAX_FILES), *ray_logs.PRIORITY] if ray else []

    def show_stderr(data: bytes) -> None:
        step_canceled = b"slurmstepd" in data and b"*** STEP " in data  # how the step of an ending job ends
        if not (follow and step_canceled):
            on_stderr(data)

    stderr = running_job.SrunStderr(show_stderr)
    argv = [*jobs.step_argv(job, node, cluster, parts=task.parts), "--input=none", *words]
    result = interact(argv, env=slurm_environment.query_env(env), on_stderr=stderr.feed)
    stderr.close()
    if result == NO_FILE:
        raise no_logs_error(node, task.log, task)
    if result and not stderr.command_exited and result < 128:
        ended = last_attempt(task.log)
        if follow and ended is not None and ended.phase in ("stopping", "end"):
            return 0  # Slurm has ended the step with the job
        message = stderr.errors.strip() or "(no message)"
        raise SlurmUnavailable(f"srun could not reach {node}:\n{message}", hint=running_job.SRUN_HINT)
    interrupted = result in (128 + signal.SIGINT, 128 + signal.SIGPIPE)
    return 0 if follow and not interrupted else result


def failed_node_first(log: str, nodes: Sequence[str]) -> list[str]:
    """The nodes in the order to show them: the one that failed, the head, then the others."""
    attempt = last_attempt(log)
    first = [attempt.end.node if attempt and attempt.end else None, attempt.head if attempt else None]
    return [*dict.fromkeys(node for node in first if node in nodes and node), *(n for n in nodes if n not in first)]
