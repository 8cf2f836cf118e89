"""The failures that a rehearsal can play: parsed for the user, then read by srun.py and slurmd.py."""

from __future__ import annotations

from typing import NamedTuple

from slurm_launch.rehearsal.job import Folder

MISSING_AFTER = 5.0  # seconds until srun gives a node up that does not answer
SLOW_BY = 20.0  # seconds that a slow node comes late
DIES_AFTER = 2.0  # seconds from the command's start until a node dies

KINDS = {
    "head-dies": "the head's Ray is killed while the command runs",
    "worker-dies": "a worker's Ray is killed while the command runs",
    "worker-missing": "a worker's node cannot be reached",
    "slow-node": f"a node begins {SLOW_BY:g} s late",
}


class Fault(NamedTuple):
    kind: str
    node: int  # 0 is the head

    def describe(self, node: str) -> str:
        return f"{KINDS[self.kind]}: {node}"


class BadFault(ValueError):
    """What was asked for cannot be played."""


def parse(text: str, nodes: int) -> Fault:
    """KIND, or KIND:NODE for a job with that many nodes; the workers are 1, 2, ... and node 0 is the head."""
    kind, colon, number = text.partition(":")
    if kind not in KINDS:
        raise BadFault(f"there is no fault {kind!r}; there are {', '.join(KINDS)}")
    if kind == "head-dies":
        if colon:
            raise BadFault("head-dies takes no node: it is the head's")
        return Fault(kind, 0)
    first = 0 if kind == "slow-node" else 1
    if not colon:
        number = "1"
    if not number.isdecimal() or not first <= int(number) < nodes:
        which = f"{first} to {nodes - 1}" if nodes > first else "none: it has only the head"
        raise BadFault(f"{kind}:{number} is no such node of this job: {which}")
    return Fault(kind, int(number))


def write(folder: Folder, fault: Fault | None) -> None:
    folder.write("fault.json", {} if fault is None else fault._asdict())


def read(folder: Folder) -> Fault | None:
    found = folder.read("fault.json")
    return Fault(**found) if found else None
