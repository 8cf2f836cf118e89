"""Jobs that are there: how Slurm is asked about them and told to end them, and what its answers mean.

Argv builders and parsers, without input or output; slurm.py has what a submission needs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from slurm_launch.errors import SlurmUnavailable
from slurm_launch.process import Result
from slurm_launch.slurm import hostlist

# Asking


def show_job_argv(job_id: str, cluster: str | None = None) -> list[str]:
    return ["scontrol", *_on(cluster), "show", "job", "-o", job_id]


# What is asked of each. Free text comes last: it may hold the mark between two fields.
_SQUEUE = (
    "JobArrayID,State,exit_code,Reason,RestartCnt,NumNodes,NodeList,Partition,UserName,SubmitTime,StartTime,EndTime"
)
_SACCT = "JobID,State,ExitCode,AllocNodes,NodeList,Partition,User,Submit,Start,End,JobName,SubmitLine"


def squeue_argv(job_ids: str, cluster: str | None = None, *, each_task: bool = False) -> list[str]:
    """Jobs, or all tasks of arrays, ended ones too as long as Slurm keeps them in mind.

    Several ids are separated by commas. With `each_task` those that wait together have lines of their own too."""
    each = ["-r"] if each_task else []
    return ["squeue", *_on(cluster), "-h", "-t", "all", *each, "-j", job_ids, "-O", _squeue_format()]


def squeue_user_argv(user: str, clusters: Collection[str] = ()) -> list[str]:
    """All jobs of a user."""
    return ["squeue", *_on(",".join(clusters)), "-h", "-t", "all", "-u", user, "-O", _squeue_format()]


def squeue_waiting_argv(partition: str, cluster: str | None = None) -> list[str]:
    """All jobs that wait in a partition, as far as Slurm shows those of other people."""
    return ["squeue", *_on(cluster), "-h", "-t", "PENDING", "-p", partition, "-o", "%i|%Q|%u|%r"]


def _squeue_format() -> str:
    return ",".join(f"{name}:|" for name in [*_SQUEUE.split(","), "Command", "Name"])  # no width: nothing is cut


def sacct_argv(job_ids: str, cluster: str | None = None) -> list[str]:
    """Allocations only (-X), one line for each task of an array; several ids are separated by commas."""
    return ["sacct", *_on(cluster), "-n", "-X", "-P", "-j", job_ids, f"--format={_SACCT}"]


def scancel_argv(job_ids: Collection[str], cluster: str | None = None, *, state: str | None = None) -> list[str]:
    """End jobs, those in that state or all: SIGTERM for their scripts and their steps at the same moment."""
    return ["scancel", *_on(cluster), *([f"--state={state}"] if state else []), *job_ids]


def terminate_argv(job_ids: Collection[str], cluster: str | None = None) -> list[str]:
    """Ask scripts to end their jobs by themselves; the steps do not feel it."""
    return ["scancel", *_on(cluster), "--batch", "--signal=TERM", *job_ids]


# What of our environment a step gets to see: the terminal, and where its bash is.
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
    """srun for one more program in a running job, without a claim to resources of its own.

    `parts` are the nodes of each component, if it has several. It says everything itself: what a step inherits differs
    by version. Unbuffered, its output is that of a terminal and comes at once, byte by byte; else Slurm waits for the
    end of a line."""
    words = ["srun", *_on(cluster), f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    words += [f"--het-group={component_of(node, parts)}"] if parts else []
    words += ["--cpu-bind=none", "--mpi=none", "--disable-status", "--chdir=/", f"--export={_STEP_ENV}"]
    return [*words, *(["--pty"] if pty else []), *(["--unbuffered"] if unbuffered else [])]


def component_of(node: str, parts: Sequence[str]) -> int:
    """The place of the component that has this node; the first has the head."""
    return next((place for place, nodes in enumerate(parts) if nodes and node in hostlist.expand(nodes)), 0)


def _on(cluster: str | None) -> list[str]:
    return ["-M", cluster] if cluster else []


# The state of a job

_ENDED = re.compile(
    "BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|LAUNCH_FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT"
)


@dataclass(frozen=True)
class JobState:
    """One job, or one task of an array."""

    id: str  # 12, or 12_3 for a task, or 12_[4-9] for tasks that still wait together; of several components the first's
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
    script: str | None = None  # its path, or the line with which it was submitted
    submitted: datetime | None = None
    started: datetime | None = None  # while it waits: when Slurm expects it to
    end: datetime | None = None  # while it runs: when its time is over
    parts: tuple[str, ...] = ()  # the nodes of each component of a heterogeneous job

    @property
    def ended(self) -> bool:
        return _ENDED.fullmatch(self.state) is not None

    @property
    def code(self) -> int | None:
        """The exit code of the job's script, if the script ended by itself."""
        if self.state == "COMPLETED":
            return 0
        if self.state == "FAILED" and self.exit_code and not self.signal and self.reason != "JobLaunchFailure":
            return self.exit_code
        return None


def no_answer(result: Result) -> SlurmUnavailable:
    """The error that a failed question is."""
    said = (result.stderr or result.stdout).strip() or f"{result.argv[0]} ended with code {result.returncode}"
    hint = "`scontrol ping` tells whether it is up; try again later"
    return SlurmUnavailable(f"Slurm does not answer:\n{said}", hint=hint)


def is_gone(stderr: str) -> bool:
    """Whether scontrol or squeue says that it does not know the job (any more)."""
    return "Invalid job id" in stderr


def parse_show_job(stdout: str) -> list[JobState]:
    """`scontrol show job -o`: one entry, or one for each task of an array."""
    return _whole([state for line in stdout.splitlines() if (state := _shown_job(line)) is not None])


def _whole(states: Iterable[JobState]) -> list[JobState]:
    """The components of heterogeneous jobs, 12+0 and 12+1, as one job: the first's state, and the nodes of all.

    The first has the script, and with it ends the job. Slurm tells of them in any order."""
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
            reason=next((part.reason for part in parts if part.reason), None),  # one may be all that it waits for
            parts=tuple(part.nodes or "" for part in parts),
        )
        found.append(whole)
    return found


def _shown_job(line: str) -> JobState | None:
    number = re.match(r"JobId=(\d+)(?: ArrayJobId=(\d+)(?: ArrayTaskId=(\S+))?)?", line)
    part = re.match(r"JobId=\d+ HetJobId=(\d+) HetJobOffset=(\d+)", line)
    state = re.search(r" JobState=([A-Z_]+)\S* Reason=(.*?) Dependency=.*? ExitCode=(\d+):(\d+)", line)
    if number is None or state is None:
        return None
    job, array, task = number.groups()
    reason = None if state[2] in ("None", "") else state[2]

    def told(key: str) -> str:
        found = re.search(rf" {key}=(.*?)(?: [A-Z]\w*=|$)", line)
        return found[1] if found and found[1] != "(null)" else ""

    return JobState(
        f"{part[1]}+{part[2]}" if part else _task_id(job, array, task),
        state[1],
        int(state[3]),
        int(state[4]),
        reason,
        restarts=_number(told("Restarts")),
        num_nodes=_number(told("NumNodes").partition("-")[0]),
        nodes=told("NodeList") or None,
        partition=told("Partition") or None,
        user=told("UserId").partition("(")[0] or None,
        name=told("JobName") or None,
        script=told("Command") or None,
        submitted=parse_time(told("SubmitTime")),
        started=parse_time(told("StartTime")),
        end=parse_time(told("EndTime")),
    )


def _task_id(job: str, array: str | None, task: str | None) -> str:
    if array is None or task is None:
        return job
    return f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]"


def parse_squeue(stdout: str) -> list[JobState]:
    """The answer to `squeue_argv`."""
    found = []
    keys = _SQUEUE.split(",")
    for line in stdout.splitlines():
        *values, rest = line.split("|", len(keys))
        if len(values) != len(keys):
            continue  # a banner of the site's, or the name of a cluster
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
    return _whole(found)


@dataclass(frozen=True)
class QueuePlace:
    """Where a job stands among those that wait."""

    place: int  # 1 is the next one
    of: int
    others: bool  # whether jobs of other people are among them: a site may hide these


# Jobs that wait for something else than their turn.
_NOT_YET = re.compile(r"JobHeld.*|Dependency.*|BeginTime|.*held.*", re.IGNORECASE)


def parse_place(stdout: str, job_id: str) -> QueuePlace | None:
    """The place of a job in the answer to `squeue_waiting_argv`; None when it has none."""
    waiting = []
    for line in stdout.splitlines():
        job, priority, user, reason = (*line.split("|", 3), "", "", "")[:4]
        job, _, component = job.partition("+")
        if _number(priority) is not None and not _NOT_YET.fullmatch(reason) and component in ("", "0"):
            waiting.append((-int(priority), _number(re.split(r"\D", job)[0]) or 0, job, user))
    waiting.sort()  # of the same priority, the older one comes first
    for place, (_, _, job, user) in enumerate(waiting, 1):
        if job == job_id:
            return QueuePlace(place, len(waiting), any(other != user for *_, other in waiting))
    return None


def parse_sacct(stdout: str) -> list[JobState]:
    """The answer to `sacct_argv`."""
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
                state[0],  # it may go on: CANCELLED by 1000
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
    return _whole(found)


def parse_time(text: str) -> datetime | None:
    """A time of Slurm's, which `query_env` makes UTC; None for `Unknown`, `None` and `N/A`."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=timezone.utc) if len(text) == 19 else None
    except ValueError:
        return None


def _exit_code(text: str) -> tuple[int, int]:
    """Code and signal, of `3:0` or, from squeue before 23.11, of a status as wait(2) gives it."""
    if ":" in text:
        code, _, signal = text.partition(":")
        return _number(code) or 0, _number(signal) or 0
    status = _number(text) or 0
    return status >> 8 & 255, status & 127


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
