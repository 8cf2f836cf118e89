"""Submitted jobs: the commands that query, cancel and enter them, and the parsers of their output. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from slurm_launch.errors import SlurmUnavailable
from slurm_launch.process import Result
from slurm_launch.slurm import hostlist

# Commands


def show_job_argv(job_id: str, cluster: str | None = None) -> list[str]:
    return ["scontrol", *_on(cluster), "show", "job", "-o", job_id]


# The fields of the output. Free text comes last: it may contain the separator.
_SQUEUE = (
    "JobArrayID,State,exit_code,Reason,RestartCnt,NumNodes,NodeList,Partition,UserName,SubmitTime,StartTime,EndTime"
)
_SACCT = "JobID,State,ExitCode,AllocNodes,NodeList,Partition,User,Submit,Start,End,JobName,SubmitLine"


def squeue_argv(job_ids: str, cluster: str | None = None, *, each_task: bool = False) -> list[str]:
    """Jobs or all tasks of arrays by ID, separated by commas; ended ones too, as long as slurmctld keeps them.

    With `each_task`, each pending task of an array has its own line.
    """
    each = ["-r"] if each_task else []
    return ["squeue", *_on(cluster), "-h", "-t", "all", *each, "-j", job_ids, "-O", _squeue_format()]


def squeue_user_argv(user: str, clusters: Collection[str] = ()) -> list[str]:
    """All jobs of a user."""
    return ["squeue", *_on(",".join(clusters)), "-h", "-t", "all", "-u", user, "-O", _squeue_format()]


def squeue_pending_argv(partition: str, cluster: str | None = None) -> list[str]:
    """All pending jobs of a partition; a site may hide those of other users."""
    return ["squeue", *_on(cluster), "-h", "-t", "PENDING", "-p", partition, "-o", "%i|%Q|%u|%r"]


def _squeue_format() -> str:
    return ",".join(f"{name}:|" for name in [*_SQUEUE.split(","), "Command", "Name"])  # no width: nothing is truncated


def sacct_argv(job_ids: str, cluster: str | None = None) -> list[str]:
    """Jobs by ID, separated by commas: allocations only (-X), one line for each array task."""
    return ["sacct", *_on(cluster), "-n", "-X", "-P", "-j", job_ids, f"--format={_SACCT}"]


def scancel_argv(job_ids: Collection[str], cluster: str | None = None, *, state: str | None = None) -> list[str]:
    """Cancel jobs, all or those in one state: SIGTERM to their scripts and their steps at the same time."""
    return ["scancel", *_on(cluster), *([f"--state={state}"] if state else []), *job_ids]


def terminate_argv(job_ids: Collection[str], cluster: str | None = None) -> list[str]:
    """Send SIGTERM to the scripts only, which then end their jobs."""
    return ["scancel", *_on(cluster), "--batch", "--signal=TERM", *job_ids]


# The variables that a step gets: those of the terminal, and PATH for bash.
_STEP_ENV = "PATH,TERM,COLORTERM,NO_COLOR"


def step_argv(
    job_id: str,
    node: str,
    cluster: str | None = None,
    *,
    parts: Sequence[str] = (),
    pty: bool = False,
    unbuffered: bool = False,
) -> list[str]:
    """srun for one more program in a running job, without resources of its own.

    `parts` are the nodes of each component of a heterogeneous job. All options are explicit: what a step inherits
    depends on the version of Slurm. With `unbuffered`, output is forwarded at once; otherwise by line.
    """
    words = ["srun", *_on(cluster), f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    words += [f"--het-group={component_of(node, parts)}"] if parts else []
    words += ["--cpu-bind=none", "--mpi=none", "--disable-status", "--chdir=/", f"--export={_STEP_ENV}"]
    return [*words, *(["--pty"] if pty else []), *(["--unbuffered"] if unbuffered else [])]


def component_of(node: str, parts: Sequence[str]) -> int:
    """The number of the component that a node belongs to; component 0 has the head node."""
    return next((place for place, nodes in enumerate(parts) if nodes and node in hostlist.expand(nodes)), 0)


def _on(cluster: str | None) -> list[str]:
    return ["-M", cluster] if cluster else []


# The state of a job

FINAL_STATES = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    ]
)
PENDING_STATES = frozenset(
    ["PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED", "EXPEDITING"]
)


def is_final(state: str) -> bool:
    """Whether a job in this state has ended."""
    return state in FINAL_STATES


def is_pending(state: str) -> bool:
    """Whether a job in this state is waiting to be started, for the first time or again."""
    return state in PENDING_STATES


@dataclass(frozen=True)
class JobState:
    """One job, or one task of an array."""

    id: str  # 12; 12_3 for a task; 12_[4-9] for pending tasks; of a heterogeneous job the ID of its first component
    state: str
    exit_code: int = 0
    signal: int = 0
    reason: str | None = None
    restarts: int | None = None
    num_nodes: int | None = None
    nodes: str | None = None  # n[1-3]
    partition: str | None = None
    user: str | None = None
    name: str | None = None
    script: str | None = None  # its path, or the command line of its submission
    submitted: datetime | None = None
    started: datetime | None = None  # of a pending job: the expected start
    end: datetime | None = None  # of a running job: when its time limit is reached
    parts: tuple[str, ...] = ()  # the nodes of each component of a heterogeneous job

    @property
    def ended(self) -> bool:
        return is_final(self.state)

    @property
    def code(self) -> int | None:
        """The exit code of the job's script, if it was not killed."""
        if self.state == "COMPLETED":
            return 0
        if self.state == "FAILED" and self.exit_code and not self.signal and self.reason != "JobLaunchFailure":
            return self.exit_code
        return None


def unreachable(result: Result) -> SlurmUnavailable:
    """The error of a query that failed, with Slurm's own message."""
    message = (result.stderr or result.stdout).strip() or f"{result.argv[0]} exited with code {result.returncode}"
    hint = "check slurmctld with `scontrol ping`; try again later"
    return SlurmUnavailable(f"cannot reach slurmctld: {message}", hint=hint)


def is_gone(stderr: str) -> bool:
    """Whether scontrol or squeue failed because slurmctld does not know the job, or no longer."""
    return "Invalid job id" in stderr


def parse_show_job(stdout: str) -> list[JobState]:
    """`scontrol show job -o`: one entry, or one for each task of an array."""
    return _merge_components([state for line in stdout.splitlines() if (state := _parse_job_line(line)) is not None])


def _merge_components(states: Iterable[JobState]) -> list[JobState]:
    """Merge the components of heterogeneous jobs, 12+0 and 12+1: the state of the first, and the nodes of all.

    The first component runs the script, and the job ends with it. Slurm lists components in any order.
    """
    found: list[JobState] = []
    components: dict[str, list[JobState]] = {}
    for state in states:
        job, plus, _ = state.id.partition("+")
        if not plus:
            found.append(state)
        else:
            components.setdefault(job, []).append(state)
    for job, parts in components.items():
        parts.sort(key=lambda part: _number(part.id.partition("+")[2]) or 0)
        whole = replace(
            parts[0],
            id=job,
            nodes=",".join(part.nodes for part in parts if part.nodes) or None,
            num_nodes=sum(part.num_nodes or 0 for part in parts) or None,
            reason=next((part.reason for part in parts if part.reason), None),  # any component may keep the job pending
            parts=tuple(part.nodes or "" for part in parts),
        )
        found.append(whole)
    return found


def _parse_job_line(line: str) -> JobState | None:
    number = re.match(r"JobId=(\d+)(?: ArrayJobId=(\d+)(?: ArrayTaskId=(\S+))?)?", line)
    part = re.match(r"JobId=\d+ HetJobId=(\d+) HetJobOffset=(\d+)", line)
    state = re.search(r" JobState=([A-Z_]+)\S* Reason=(.*?) Dependency=.*? ExitCode=(\d+):(\d+)", line)
    if number is None or state is None:
        return None
    job, array, task = number.groups()
    reason = None if state[2] in ("None", "") else state[2]

    def field(key: str) -> str:
        found = re.search(rf" {key}=(.*?)(?: [A-Z]\w*=|$)", line)
        return found[1] if found and found[1] != "(null)" else ""

    return JobState(
        f"{part[1]}+{part[2]}" if part else _task_id(job, array, task),
        state[1],
        int(state[3]),
        int(state[4]),
        reason,
        restarts=_number(field("Restarts")),
        num_nodes=_number(field("NumNodes").partition("-")[0]),
        nodes=field("NodeList") or None,
        partition=field("Partition") or None,
        user=field("UserId").partition("(")[0] or None,
        name=field("JobName") or None,
        script=field("Command") or None,
        submitted=parse_time(field("SubmitTime")),
        started=parse_time(field("StartTime")),
        end=parse_time(field("EndTime")),
    )


def _task_id(job: str, array: str | None, task: str | None) -> str:
    if array is None or task is None:
        return job
    return f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]"


def parse_squeue(stdout: str) -> list[JobState]:
    """The output of `squeue_argv` and `squeue_user_argv`."""
    found = []
    keys = _SQUEUE.split(",")
    for line in stdout.splitlines():
        *values, rest = line.split("|", len(keys))
        if len(values) != len(keys):
            continue  # a banner of the site, or the name of a cluster
        field = dict(zip(keys, values, strict=True))
        script, _, name = rest.removesuffix("|").rpartition("|")
        code, signal = _exit_code(field["exit_code"])
        found.append(
            JobState(
                field["JobArrayID"],
                field["State"],
                code,
                signal,
                reason=None if field["Reason"] in ("None", "") else field["Reason"],
                restarts=_number(field["RestartCnt"]),
                num_nodes=_number(field["NumNodes"]),
                nodes=field["NodeList"] or None,
                partition=field["Partition"] or None,
                user=field["UserName"] or None,
                name=name,
                script=script if script.startswith("/") else None,
                submitted=parse_time(field["SubmitTime"]),
                started=parse_time(field["StartTime"]),
                end=parse_time(field["EndTime"]),
            )
        )
    return _merge_components(found)


@dataclass(frozen=True)
class QueuePosition:
    """The position of a job among the pending jobs of its partition."""

    place: int  # 1 is next
    of: int
    others: bool  # whether jobs of other users are included: a site may hide them


# Reasons of jobs that are not eligible to run, so they are not counted.
_NOT_ELIGIBLE = re.compile(r"JobHeld.*|Dependency.*|BeginTime|.*held.*", re.IGNORECASE)


def parse_queue_position(stdout: str, job_id: str) -> QueuePosition | None:
    """The position of a job in the output of `squeue_pending_argv`; None if it is not eligible or not pending."""
    pending = []
    for line in stdout.splitlines():
        job, priority, user, reason = (*line.split("|", 3), "", "", "")[:4]
        job, _, component = job.partition("+")
        if _number(priority) is not None and not _NOT_ELIGIBLE.fullmatch(reason) and component in ("", "0"):
            pending.append((-int(priority), _number(re.split(r"\D", job)[0]) or 0, job, user))
    pending.sort()  # by priority, then by age
    for place, (_, _, job, user) in enumerate(pending, 1):
        if job == job_id:
            return QueuePosition(place, len(pending), any(other != user for *_, other in pending))
    return None


def parse_sacct(stdout: str) -> list[JobState]:
    """The output of `sacct_argv`."""
    found = []
    keys = _SACCT.split(",")
    for line in stdout.splitlines():
        values = line.split("|", len(keys) - 1)
        state = re.match(r"[A-Z_]+", values[1]) if len(values) == len(keys) else None
        if state is None:
            continue
        field = dict(zip(keys, values, strict=True))
        code, signal = _exit_code(field["ExitCode"])
        found.append(
            JobState(
                field["JobID"],
                state[0],  # more may follow: CANCELLED by 1000
                code,
                signal,
                num_nodes=_number(field["AllocNodes"]) or None,
                nodes=None if field["NodeList"] in ("None assigned", "") else field["NodeList"],
                partition=field["Partition"] or None,
                user=field["User"] or None,
                name=field["JobName"],
                script=field["SubmitLine"] or None,
                submitted=parse_time(field["Submit"]),
                started=parse_time(field["Start"]),
                end=parse_time(field["End"]),
            )
        )
    return _merge_components(found)


def parse_time(text: str) -> datetime | None:
    """A time in Slurm's output, which is UTC with `query_env`; None for `Unknown`, `None` and `N/A`."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc) if len(text) == 19 else None
    except ValueError:
        return None


def _exit_code(text: str) -> tuple[int, int]:
    """Exit code and signal of `3:0` or, for squeue before 23.11, of a status as in wait(2)."""
    if ":" in text:
        code, _, signal = text.partition(":")
        return _number(code) or 0, _number(signal) or 0
    status = _number(text) or 0
    return status >> 8 & 255, status & 127


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
