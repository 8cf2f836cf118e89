"""A rehearsed job: what sbatch was asked for, the folder in which the stand-ins share it, and what its nodes see."""

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

CLUSTER = "rehearsal"
# Slurm's own ids end below this one, so no program of a real Slurm can take a rehearsed job for one of its own.
FIRST_ID = 67_043_329
PENDING, RUNNING = "PENDING", "RUNNING"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"


@dataclass(frozen=True)
class Group:
    """Nodes that are alike: all of a job, or those of one component of a heterogeneous one."""

    nodes: list[str]
    nodelist: str  # the same, as Slurm writes it
    cpus: int  # on each node
    memory: dict[str, int]  # the variable that tells it, and megabytes; at most one
    gpus: int  # on each node
    asked: dict[str, str]  # more variables that Slurm sets only for a job that asked for the thing
    partition: str


@dataclass(frozen=True)
class Job:
    """What sbatch was asked for."""

    id: int
    name: str
    arguments: list[str]
    directory: str  # in which it runs
    output: str
    append: bool
    groups: list[Group]  # one, or a heterogeneous job's components; the script runs on the first one's first node
    time_limit: int | None  # seconds
    warning: int | None  # so many seconds before it the script gets SIGUSR1
    requeue: bool  # whether it may have more lives than one
    array_task: int | None
    array: list[int]  # all tasks of the array, of which this one is played

    @property
    def nodes(self) -> list[str]:
        return [node for group in self.groups for node in group.nodes]

    def group_of(self, node: str) -> Group:
        return next(group for group in self.groups if node in group.nodes)


@dataclass(frozen=True)
class State:
    """How the job fares."""

    state: str = PENDING
    reason: str = "None"
    code: int = 0
    signal: int = 0
    over: bool = False  # and nothing of it is left


@dataclass(frozen=True)
class Attempt:
    """One of a job's lives."""

    restarts: int = 0  # the lives before it
    end_at: float | None = None  # the time limit, as the clock tells it


@dataclass(frozen=True)
class Folder:
    """The folder of one rehearsal. Everything in it is this user's alone, and goes with it."""

    path: Path

    @property
    def lifeline(self) -> Path:
        """A pipe whose writer is the rehearsal itself: when that one is gone, the job is ended."""
        return self.path / "lifeline"

    @property
    def spooled(self) -> Path:
        return self.path / "slurm_script"

    def write(self, name: str, data: Mapping[str, Any]) -> None:
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(data))
        temporary.replace(self.path / name)

    def read(self, name: str) -> Any:
        """None when there is no such file."""
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None

    def job(self) -> Job | None:
        found = self.read("job.json")
        return None if found is None else Job(**{**found, "groups": [Group(**group) for group in found["groups"]]})

    def set_job(self, job: Job) -> None:
        self.write("job.json", asdict(job))

    def state(self) -> State:
        return State(**(self.read("state.json") or {}))

    def set_state(self, state: State) -> None:
        self.write("state.json", asdict(state))

    def attempt(self) -> Attempt:
        return Attempt(**(self.read("life.json") or {}))

    def set_life(self, attempt: Attempt) -> None:
        self.write("life.json", asdict(attempt))

    def restarts(self) -> int:
        """How many there are, with the one that somebody has asked for."""
        asked = self.read("requeue.json") or {"restarts": 0}
        return max(self.attempt().restarts, int(asked["restarts"]))

    def ask_for_restart(self) -> None:
        self.write("requeue.json", {"restarts": self.attempt().restarts + 1})

    def new_step(self) -> int:
        """The number of a step that begins."""
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
        """The process ids of all tasks of all steps, some of them ended."""
        return [int(path.name) for path in self.path.glob("steps/*/*")]


def attempts(pid: int) -> bool:
    """Whether there is such a process; one that has died, but that nobody waits for, is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def node_address(index: int) -> str:
    """Ray takes 127.0.0.1 for the machine's own address, so the nodes begin after it."""
    return f"127.0.{(index + 2) // 256}.{(index + 2) % 256}"


def batch_environment(job: Job, restarts: int) -> dict[str, str]:
    """What slurmd adds to the environment of the job's script."""
    first = job.groups[0]
    count = len(first.nodes)
    now = int(time.time())
    variables = {
        "ENVIRONMENT": "BATCH",
        "SLURM_CLUSTER_NAME": CLUSTER,
        "SLURM_JOB_CPUS_PER_NODE": _each(first.cpus, count),
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
        "SLURM_TASKS_PER_NODE": _each(1, count),
        **({} if len(job.groups) > 1 else first.asked),
        **{name: str(megabytes) for name, megabytes in first.memory.items()},
        **_of_groups(job),
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


def _of_groups(job: Job) -> dict[str, str]:
    """What a heterogeneous job's script is told of each component."""
    if len(job.groups) == 1:
        return {}
    found = {"SLURM_HET_SIZE": str(len(job.groups))}
    for number, group in enumerate(job.groups):
        count = len(group.nodes)
        told = {"SLURM_JOB_ID": str(job.id + number), "SLURM_JOB_NODELIST": group.nodelist}
        told |= {"SLURM_JOB_NUM_NODES": str(count), "SLURM_JOB_CPUS_PER_NODE": _each(group.cpus, count)}
        told |= {"SLURM_JOB_PARTITION": group.partition, "SLURM_TASKS_PER_NODE": _each(1, count), **group.asked}
        told |= {name: str(megabytes) for name, megabytes in group.memory.items()}
        found |= {f"{name}_HET_GROUP_{number}": value for name, value in told.items()}
    return found


def node_environment(job: Job, node: str) -> dict[str, str]:
    """What differs from node to node, for the script as for every task."""
    group = job.group_of(node)
    variables = {
        "SLURMD_NODENAME": node,
        "SLURM_CPUS_ON_NODE": str(group.cpus),
        "SLURM_LOCALID": "0",
        "SLURM_PROCID": "0",
        # As a site's TaskProlog would: on one machine no interface tells the nodes apart.
        "SLAUNCH_NODE_IP": node_address(job.nodes.index(node)),
    }
    if group.gpus:
        devices = ",".join(map(str, range(group.gpus)))
        variables |= {"SLURM_GPUS_ON_NODE": str(group.gpus), "SLURM_JOB_GPUS": devices, "CUDA_VISIBLE_DEVICES": devices}
    return variables


def fill(pattern: str, values: Mapping[str, object]) -> str:
    """A file name with Slurm's % patterns filled in."""
    known = {"%": "%", "u": os.environ.get("USER", str(os.getuid())), **values}
    return re.sub(r"%(\d*)(.)", lambda at: str(known.get(at[2], at[0])).zfill(int(at[1] or 0)), pattern)


def _each(value: int, count: int) -> str:
    return str(value) if count == 1 else f"{value}(x{count})"
