"""The faults that a rehearsal can inject: parsed from --fault, then read by srun and node_daemon."""

from __future__ import annotations

from typing import NamedTuple

from slurm_launch.rehearsal.job import RehearsalFolder

MISSING_AFTER = 5.0  # seconds until srun gives up on a node that does not respond
SLOW_BY = 20.0  # seconds by which a slow node is late
DIES_AFTER = 2.0  # seconds from the command's start until a node dies

KINDS = {
    "head-dies": "the head's Ray is killed while the command runs",
    "worker-dies": "a worker's Ray is killed while the command runs",
    "worker-missing": "a worker's node cannot be reached",
    "slow-node": f"a node starts {SLOW_BY:g} s late",
}


class Fault(NamedTuple):
    kind: str
    node: int  # 0 is the head

    def describe(self, node: str) -> str:
        return f"{KINDS[self.kind]}: {node}"


class BadFault(ValueError):
    """The requested fault does not exist."""


def parse(text: str, nodes: int) -> Fault:
    """Parse KIND or KIND:NODE for a job with that many nodes; node 0 is the head, the workers are 1, 2, ..."""
    kind, colon, number = text.partition(":")
    if kind not in KINDS:
        raise BadFault(f"unknown fault {kind!r}; choose from {', '.join(KINDS)}")
    if kind == "head-dies":
        if colon:
            raise BadFault("head-dies takes no node number: it is always the head")
        return Fault(kind, 0)
    first = 0 if kind == "slow-node" else 1
    if not colon:
        number = "1"
    if not number.isdecimal() or not first <= int(number) < nodes:
        valid = f"use {first} to {nodes - 1}" if nodes > first else "the job has only the head"
        raise BadFault(f"{kind}:{number} is not a node of this job: {valid}")
    return Fault(kind, int(number))


def write(folder: RehearsalFolder, fault: Fault | None) -> None:
    folder.write("fault.json", {} if fault is None else fault._asdict())


def read(folder: RehearsalFolder) -> Fault | None:
    found = folder.read("fault.json")
    return Fault(**found) if found else None
