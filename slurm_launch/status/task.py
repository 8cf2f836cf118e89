"""One job, or one task of an array, as far as it is known; and that in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from slurm_launch.runs.log_phases import Attempt
from slurm_launch.slurm.jobs import JobState
from slurm_launch.slurm.plain_words import how_it_ended, how_it_goes, why_it_waits

UNKNOWN = "UNKNOWN"
NOT_NEEDED = "ChainOver"  # the reason of such a link; Slurm has no word for it
NOT_NEEDED_WORD = "not needed"
NOT_NEEDED_SENTENCE = "was not needed: the chain was over before it"
# The times of a run, in their order.
TIMES = ("submitted", "started", "head-ready", "all-nodes", "command-start", "command-end", "ended")
# What a job that grows another one's cluster does in its phases.
_GROWING = {
    "waiting": "it waits for the cluster of",
    "bring-up": "its nodes join the cluster of",
    "command": "its nodes are part of the cluster of",
}
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED", "EXPEDITING")


@dataclass(frozen=True)
class Task:
    """One job, or one task of an array, as far as it is known."""

    id: str  # 12, or 12_3, or 12_[4-9] for tasks that still wait together
    state: str  # Slurm's word, or UNKNOWN
    source: str  # squeue, sacct, scontrol, log, record or none
    log: str
    reason: str | None = None  # Slurm's word
    code: int | None = None  # of the script, if that ended by itself
    signal: int = 0
    nodes: str | None = None  # n[1-3]
    num_nodes: int | None = None
    partition: str | None = None
    parts: tuple[str, ...] = ()  # the nodes of each component of a heterogeneous job, while Slurm tells
    expected: datetime | None = None  # its start, while it waits
    limit: datetime | None = None  # when its time is over, while it runs
    restarts: int = 0
    times: Mapping[str, datetime] = field(default_factory=dict)  # those of TIMES that are known
    attempt: Attempt | None = None  # what the log tells of it; None: it was not read, cannot be, or there is none yet
    asked: bool = True  # whether Slurm has answered

    @property
    def ended(self) -> bool:
        return JobState(self.id, self.state).ended

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    @property
    def running(self) -> bool:
        return not self.ended and not self.waiting and self.state != UNKNOWN

    @property
    def phase(self) -> str:
        """How far it is: queued, environment, bring-up, command, stopping or ended; else running, or unknown."""
        if self.waiting or self.ended or self.state == UNKNOWN:
            return "queued" if self.waiting else "ended" if self.ended else "unknown"
        if self.attempt is None:
            return "running"
        names = {
            "": "environment",
            "starting": "bring-up",
            "ready": "command",
            "missing": "stopping",
            "end": "stopping",
        }
        return names.get(self.attempt.phase, self.attempt.phase)

    @property
    def in_words(self) -> str:
        """Its state in plain words."""
        if self.waiting:
            words = why_it_waits(self.reason)
            shown = f" ({self.reason})" if self.reason else ""
            return f"waits: {words}{shown}" if words else f"waits{shown}"
        if self.state == UNKNOWN and not self.asked:
            return "Slurm does not answer"
        if not self.id:
            return "sbatch was interrupted: `squeue --me` tells whether there is a job"
        if self.reason == NOT_NEEDED:
            return NOT_NEEDED_SENTENCE
        if self.ended or self.state == UNKNOWN:
            end = self.attempt.end if self.attempt else None
            words = how_it_ended(self.state, self.code, self.signal)
            return f"{words}: {end.cause}" if end and end.cause else words
        if self.attempt is not None and self.attempt.main is not None and self.phase in _GROWING:
            return how_it_goes(self.state) or f"runs: {_GROWING[self.phase]} job {self.attempt.main}"
        return how_it_goes(self.state) or {
            "running": "runs",
            "environment": "runs: the environment is being loaded",
            "bring-up": "runs: Ray is being started",
            "command": "runs: its time is short, and the command is to save its work"
            if self.attempt and self.attempt.saving
            else "runs: the command is at work",
            "stopping": "runs: Ray is being ended",
        }.get(self.phase, "runs")
