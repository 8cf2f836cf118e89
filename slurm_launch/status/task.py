"""What is known about one job or array task, and its state in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from slurm_launch.runs.log_phases import Attempt, MemoryKills
from slurm_launch.runs.record import Run
from slurm_launch.slurm.jobs import is_final, is_pending
from slurm_launch.slurm.plain_words import describe_end, describe_pending_reason, describe_state

UNKNOWN = "UNKNOWN"
NOT_NEEDED = "ChainOver"  # the reason of a link that its chain did not need; Slurm has no such reason
NOT_NEEDED_WORD = "not needed"
NOT_NEEDED_SENTENCE = "was not needed: the chain ended before it"
# The times of a run, in chronological order.
TIMES = ("submitted", "started", "head-ready", "all-nodes", "command-start", "command-end", "ended")
# What a job that grows another job's cluster does in each phase.
_GROWING = {
    "waiting": "waiting for the cluster of",
    "bring-up": "its nodes are joining the cluster of",
    "command": "its nodes are part of the cluster of",
}
_RUNNING = {
    "environment": "running: loading the environment",
    "bring-up": "running: starting Ray",
    "command": "running your command",
    "stopping": "running: stopping Ray",
}
# Phases in a log that have another name as phases of a run.
_PHASES = {
    "": "environment",
    "starting": "bring-up",
    "ready": "command",
    "missing": "stopping",
    "end": "stopping",
}


def is_running(state: str) -> bool:
    """Whether a job in this state has been started and has not ended, the steps before and after included."""
    return state != UNKNOWN and not is_final(state) and not is_pending(state)


def log_path(run: Run, task_id: str) -> str:
    """The log of a job, or of one task of an array; of several tasks the pattern."""
    _, _, task = task_id.partition("_")
    if task.startswith("["):
        task = "*"
    return run.log if not task else f"{run.log.removesuffix('.log')}_{task}.log"


@dataclass(frozen=True)
class Task:
    """What is known about one job or array task."""

    id: str  # 12, or 12_3, or 12_[4-9] for pending tasks in one entry
    state: str  # Slurm's state, or UNKNOWN
    source: str  # squeue, sacct, scontrol, log, record or none
    log: str
    reason: str | None = None  # Slurm's reason
    code: int | None = None  # of the script, if it ended by itself
    signal: int = 0
    nodes: str | None = None  # n[1-3]
    num_nodes: int | None = None
    partition: str | None = None
    parts: tuple[str, ...] = ()  # the nodes of each component of a heterogeneous job, while Slurm lists it
    expected: datetime | None = None  # estimated start, while pending
    limit: datetime | None = None  # when the time limit is reached, while running
    restarts: int = 0
    times: Mapping[str, datetime] = field(default_factory=dict)  # those of TIMES that are known
    memory_kills: tuple[MemoryKills, ...] = ()  # from the log or the record, the last one last
    attempt: Attempt | None = None  # from the log; None if it was not read, cannot be read or does not exist yet
    asked: bool = True  # whether slurmctld could be reached

    @property
    def ended(self) -> bool:
        return is_final(self.state)

    @property
    def waiting(self) -> bool:
        return is_pending(self.state)

    @property
    def running(self) -> bool:
        return is_running(self.state)

    @property
    def phase(self) -> str:
        """One of queued, environment, bring-up, command, stopping, ended; running if there is no log, or unknown."""
        if self.waiting:
            return "queued"
        if self.ended:
            return "ended"
        if self.state == UNKNOWN:
            return "unknown"
        if self.attempt is None:
            return "running"
        return _PHASES.get(self.attempt.phase, self.attempt.phase)

    @property
    def in_words(self) -> str:
        """The state in plain words."""
        if self.waiting:
            words = describe_pending_reason(self.reason)
            shown = f" ({self.reason})" if self.reason else ""
            return f"pending: {words}{shown}" if words else f"pending{shown}"
        if self.state == UNKNOWN and not self.asked:
            return "cannot reach slurmctld"
        if not self.id:
            return "sbatch was interrupted: `squeue --me` shows whether there is a job"
        if self.reason == NOT_NEEDED:
            return NOT_NEEDED_SENTENCE
        if self.ended or self.state == UNKNOWN:
            end = self.attempt.end if self.attempt else None
            words = describe_end(self.state, self.code, self.signal)
            return f"{words}: {end.cause}" if end and end.cause else words
        return describe_state(self.state) or self._running_in_words()

    def _running_in_words(self) -> str:
        if self.attempt is not None and self.attempt.main is not None and self.phase in _GROWING:
            return f"running: {_GROWING[self.phase]} job {self.attempt.main}"
        if self.attempt is not None and self.attempt.saving and self.phase == "command":
            return "running: the time limit is near, and the command was asked to save its work"
        return _RUNNING.get(self.phase, "running")

    @property
    def predicate(self) -> str:
        """The state in plain words, as it follows `job 12`."""
        if self.waiting or self.running:
            return f"is {self.in_words}"
        if self.state == UNKNOWN and not self.asked:
            return f"has an unknown state: {self.in_words}"
        return self.in_words
