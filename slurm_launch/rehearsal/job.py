"""A rehearsed job: what was requested from sbatch, the folder that the fake commands share, and the job's variables."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slurm_launch.slurm.sbatch import REHEARSAL_CLUSTER

# Real job IDs are lower, so that no command of a real Slurm takes a rehearsed job for one of its own.
FIRST_ID = 67_043_329
PENDING, RUNNING = "PENDING", "RUNNING"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"
CANCEL, KILL = b"c", b"k"  # orders on the control pipe: as scancel does, or at once


@dataclass(frozen=True)
class NodeGroup:
    """Identical nodes: all of a job, or those of one component of a heterogeneous job."""

    nodes: list[str]
    nodelist: str  # the same, as a Slurm hostlist
    cpus: int  # on each node
    memory: dict[str, int]  # its variable -> megabytes; at most one
    gpus: int  # on each node
    extra: dict[str, str]  # variables that Slurm sets only if the job requests the resource
    partition: str


@dataclass(frozen=True)
class RehearsedJob:
    """What was requested from sbatch."""

    id: int
    name: str
    arguments: list[str]
    directory: str  # the working directory
    output: str
    append: bool
    groups: list[NodeGroup]  # the components of a heterogeneous job, or one; the script runs on the first node
    time_limit: int | None  # seconds
    warning: int | None  # seconds before the time limit at which the script gets SIGUSR1
    requeue: bool  # whether it can be requeued
    array_task: int | None
    array: list[int]  # all tasks of the array; only array_task runs

    @property
    def nodes(self) -> list[str]:
        return [node for group in self.groups for node in group.nodes]

    def group_of(self, node: str) -> NodeGroup:
        return next(group for group in self.groups if node in group.nodes)


@dataclass(frozen=True)
class RehearsedState:
    """The state of the job, as Slurm reports it."""

    state: str = PENDING
    reason: str = "None"
    code: int = 0
    signal: int = 0
    over: bool = False  # ended, and all of its processes too


@dataclass(frozen=True)
class RehearsalAttempt:
    """One attempt of a job; a requeued job has several."""

    restarts: int = 0  # the number of earlier attempts
    end_at: float | None = None  # the time of the time limit, in seconds since the epoch


@dataclass(frozen=True)
class RehearsalFolder:
    """The folder of one rehearsal. Only the user can read it; it is removed at the end."""

    path: Path

    @property
    def control_pipe(self) -> Path:
        """A pipe that the rehearsal holds open for writing: when it is closed, the job is ended."""
        return self.path / "control"

    @property
    def spooled(self) -> Path:
        return self.path / "slurm_script"

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(data))
        temporary.replace(self.path / name)

    def read(self, name: str) -> Any:
        """The content of a file; None if it does not exist."""
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None

    def job(self) -> RehearsedJob | None:
        found = self.read("job.json")
        if found is None:
            return None
        return RehearsedJob(**{**found, "groups": [NodeGroup(**group) for group in found["groups"]]})

    def set_job(self, job: RehearsedJob) -> None:
        self.write("job.json", asdict(job))

    def state(self) -> RehearsedState:
        return RehearsedState(**(self.read("state.json") or {}))

    def set_state(self, state: RehearsedState) -> None:
        self.write("state.json", asdict(state))

    def attempt(self) -> RehearsalAttempt:
        return RehearsalAttempt(**(self.read("attempt.json") or {}))

    def set_attempt(self, attempt: RehearsalAttempt) -> None:
        self.write("attempt.json", asdict(attempt))

    def restarts(self) -> int:
        """The number of restarts, including a requested one."""
        requested = self.read("requeue.json") or {"restarts": 0}
        return max(self.attempt().restarts, int(requested["restarts"]))

    def request_restart(self) -> None:
        self.write("requeue.json", {"restarts": self.attempt().restarts + 1})

    def new_step(self) -> int:
        """Create a step and return its number."""
        steps = self.path / "steps"
        for number in range(1 << 20):
            try:
                (steps / str(number)).mkdir(parents=True)
                return number
            except FileExistsError:
                continue
        raise AssertionError("too many steps")

    def add_task(self, step: int, pid: int) -> None:
        (self.path / "steps" / str(step) / str(pid)).touch()

    def tasks(self) -> list[int]:
        """The process IDs of all tasks of all steps, including ended ones."""
        return [int(path.name) for path in self.path.glob("steps/*/*")]


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def node_address(index: int) -> str:
    """The loopback address of a node; they start at 127.0.0.2 because Ray takes 127.0.0.1 for the machine's own."""
    return f"127.0.{(index + 2) // 256}.{(index + 2) % 256}"


def batch_environment(job: RehearsedJob, restarts: int) -> dict[str, str]:
    """The variables that slurmd adds to the environment of the job's script."""
    first = job.groups[0]
    count = len(first.nodes)
    now = int(time.time())
    variables = {
        "ENVIRONMENT": "BATCH",
        "SLURM_CLUSTER_NAME": REHEARSAL_CLUSTER,
        "SLURM_JOB_CPUS_PER_NODE": _per_node(first.cpus, count),
        "SLURM_JOB_END_TIME": str(now + (job.time_limit or 365 * 86400)),
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_NODELIST": first.nodelist,
        "SLURM_JOB_NUM_NODES": str(count),
        "SLURM_JOB_PARTITION": first.partition,
        "SLURM_JOB_START_TIME": str(now),
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_USER": os.environ.get("USER", str(os.getuid())),
        "SLURM_JOBID": str(job.id),
        "SLURM_NNODES": str(count),
        "SLURM_NODELIST": first.nodelist,
        "SLURM_NTASKS": str(count),
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_PRIO_PROCESS": "0",
        "SLURM_SUBMIT_DIR": os.getcwd(),
        "SLURM_SUBMIT_HOST": socket.gethostname(),
        "SLURM_TASKS_PER_NODE": _per_node(1, count),
        **({} if len(job.groups) > 1 else first.extra),
        **{name: str(megabytes) for name, megabytes in first.memory.items()},
        **_component_variables(job),
    }
    if restarts:
        variables["SLURM_RESTART_COUNT"] = str(restarts)
    if job.array_task is not None:
        variables |= {
            "SLURM_ARRAY_JOB_ID": str(job.id),
            "SLURM_ARRAY_TASK_ID": str(job.array_task),
            "SLURM_ARRAY_TASK_COUNT": str(len(job.array)),
            "SLURM_ARRAY_TASK_MIN": str(min(job.array)),
            "SLURM_ARRAY_TASK_MAX": str(max(job.array)),
        }
    return variables | node_environment(job, job.nodes[0]) | {"SLURM_NODEID": "0", "SLURM_GTIDS": "0"}


def _component_variables(job: RehearsedJob) -> dict[str, str]:
    """The variables for each component of a heterogeneous job."""
    if len(job.groups) == 1:
        return {}
    variables = {"SLURM_HET_SIZE": str(len(job.groups))}
    for number, group in enumerate(job.groups):
        count = len(group.nodes)
        own = {
            "SLURM_JOB_ID": str(job.id + number),
            "SLURM_JOB_NODELIST": group.nodelist,
            "SLURM_JOB_NUM_NODES": str(count),
            "SLURM_JOB_CPUS_PER_NODE": _per_node(group.cpus, count),
            "SLURM_JOB_PARTITION": group.partition,
            "SLURM_TASKS_PER_NODE": _per_node(1, count),
            **group.extra,
            **{name: str(megabytes) for name, megabytes in group.memory.items()},
        }
        variables |= {f"{name}_HET_GROUP_{number}": value for name, value in own.items()}
    return variables


def node_environment(job: RehearsedJob, node: str) -> dict[str, str]:
    """The variables that differ between nodes, for the script and for every task."""
    group = job.group_of(node)
    variables = {
        "SLURMD_NODENAME": node,
        "SLURM_CPUS_ON_NODE": str(group.cpus),
        "SLURM_LOCALID": "0",
        "SLURM_PROCID": "0",
        # As a site's TaskProlog can set it: on one machine no interface distinguishes the nodes.
        "SLAUNCH_NODE_IP": node_address(job.nodes.index(node)),
    }
    if group.gpus:
        devices = ",".join(map(str, range(group.gpus)))
        variables |= {"SLURM_GPUS_ON_NODE": str(group.gpus), "SLURM_JOB_GPUS": devices, "CUDA_VISIBLE_DEVICES": devices}
    return variables


def fill(pattern: str, values: Mapping[str, object]) -> str:
    """A file name with Slurm's % patterns replaced."""
    known = {"%": "%", "u": os.environ.get("USER", str(os.getuid())), **values}
    return re.sub(r"%(\d*)(.)", lambda at: str(known.get(at[2], at[0])).zfill(int(at[1] or 0)), pattern)


def _per_node(value: int, count: int) -> str:
    return str(value) if count == 1 else f"{value}(x{count})"
