"""The runs that `list` shows: selected by state, time and name, with the tasks of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_launch.errors import LaunchError, Notify, UsageError
from slurm_launch.runs import index
from slurm_launch.runs.record import Run, user_name
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import lookup
from slurm_launch.status.task import Task

STATES = (
    "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "UNKNOWN", "ACTIVE",
)  # fmt: skip
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class RunFilter:
    """Which runs to list."""

    states: frozenset[str] = frozenset()  # any of them; empty: all
    earliest: datetime | None = None
    exp_name: str | None = None

    def accepts(self, run: Run) -> bool:
        """Whether name and time match."""
        recent = self.earliest is None or datetime.fromisoformat(run.created) >= self.earliest
        return recent and self.exp_name in (None, run.exp_name)

    def accepts_state(self, tasks: Iterable[Task]) -> bool:
        if not self.states:
            return True
        active = "ACTIVE" in self.states
        return any(task.state in self.states or (active and (task.waiting or task.running)) for task in tasks)


@dataclass(frozen=True)
class RunList:
    """The selected runs, the newest first."""

    runs: list[Run]
    tasks: Mapping[str, list[Task]]  # by the path of the record
    older: int  # number of further runs that were selected
    problem: LaunchError | None  # why Slurm could not be queried


def parse_states(texts: Sequence[str]) -> frozenset[str]:
    """The states in the values of --state."""
    states = {word.strip().upper().replace("-", "_") for text in texts for word in text.split(",")}
    unknown = sorted(states - set(STATES))
    if unknown:
        hint = "one of: " + ", ".join(name.lower() for name in STATES)
        raise UsageError(f"unknown state {unknown[0].lower()!r}", at="--state", hint=hint)
    return frozenset(states)


def parse_since(text: str, now: datetime) -> datetime:
    """The time in the value of --since."""
    midnight = now.astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    if span := re.fullmatch(r"(\d{1,6})\s*(s|m|min|h|d|w)", text):
        return now - min(timedelta(seconds=int(span[1]) * _SECONDS[span[2]]), timedelta(days=36500))
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        hint = "write 30m, 2h, 3d or 1w; today or yesterday; or a time such as 2026-11-16 or 2026-11-16T09:30"
        raise UsageError(f"{text!r} is not a time", at="--since", hint=hint) from None


def read_runs(entries: Iterable[index.Entry], notify: Notify) -> list[Run]:
    """The runs of these entries whose record can be read."""
    runs, damaged = [], 0
    for entry in entries:
        try:
            runs.append(entry.read())
        except UsageError:
            damaged += 1
    if damaged:
        notify(f"cannot read {damaged} record{'s' * (damaged > 1)}; `slurm-launch status PATH` shows why")
    return runs


def collect(
    candidates: Iterable[Run],
    wanted: RunFilter,
    last: int | None,
    client: SlurmClient,
    env: Mapping[str, str],
    *,
    adopt_queued: bool,
    notify: Notify,
) -> RunList:
    """Select runs, the newest first, and look up their tasks with few queries.

    With `adopt_queued`, jobs in the queue that the index does not list are added: it was lost, or is another host's."""
    runs = [run for run in candidates if wanted.accepts(run)]

    def adopt(scripts: list[str]) -> list[Run]:
        new = [run for run in read_runs(index.adopt(scripts, env), notify) if wanted.accepts(run)]
        runs[:] = sorted([*new, *runs], key=lambda run: run.created, reverse=True)
        return new

    older = 0
    if not wanted.states:  # older runs need no query
        older = len(runs) - len(runs[:last])
        del runs[len(runs) - older :]
    launched_any = bool(runs)
    tasks, problem = lookup.look_up_all(tuple(runs), client, user_name(), adopt if adopt_queued else None)
    shown = [_with_job_id(run, tasks[run.record], env) for run in runs]
    shown = [run for run in shown if wanted.accepts_state(tasks[run.record])]
    older += len(shown) - len(shown[:last])  # queued jobs may have been added
    return RunList(shown[:last], tasks, older, problem if launched_any else None)  # without runs, Slurm is not needed


def _with_job_id(run: Run, tasks: Sequence[Task], env: Mapping[str, str]) -> Run:
    """The run with the job ID that its tasks revealed, which is added to the index."""
    found = lookup.with_found_job_id(run, tasks)
    if found != run:
        index.add(found, env)
    return found
