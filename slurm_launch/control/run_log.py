"""The log of a run or of one of its tasks: which file it is, why it is missing, and the command's output in it."""

from __future__ import annotations

import os
import re

from slurm_launch.control import running_job
from slurm_launch.errors import LaunchError, SlurmUnavailable, UsageError, WrongMoment
from slurm_launch.runs.growing_file import last_lines
from slurm_launch.runs.record import Run
from slurm_launch.slurm.array_ids import array_numbers
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import lookup
from slurm_launch.status.task import Task, log_path

MISSING_HINT = "it was moved or removed, or the job never started"
_PREFIX = b"[slurm-launch] "
_PHASE_LINE = re.compile(rb"\[slurm-launch\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d .*\Z")


def select_log(run: Run, argument: str | None) -> tuple[str, str]:
    """The ID of the job or task that `argument` names, and its log. Does not query Slurm."""
    job = run.job_id or ""
    named = running_job.named_task(run, argument)
    if named is not None:
        return named, log_path(run, named)
    array = run.array_indexes
    if array is None:
        return job, run.log
    numbers = array_numbers(array)
    if len(numbers) > 1:
        numbers = [number for number in numbers if os.path.exists(log_path(run, f"{job}_{number}"))]
    if len(numbers) == 1:
        return f"{job}_{numbers[0]}", log_path(run, f"{job}_{numbers[0]}")
    shown = ", ".join(f"{job}_{number}" for number in numbers[:20]) + (" ..." if len(numbers) > 20 else "")
    hint = f"tasks with a log: {shown}" if numbers else f"none has a log yet; its tasks are {job}_N, with N of {array}"
    raise UsageError(f"job {job} is an array: name one of its tasks", at="RUN", hint=hint)


def look_up_task(run: Run, task_id: str, client: SlurmClient) -> Task:
    """The state of a job or task according to Slurm and its log."""
    return lookup.select_tasks(run, lookup.look_up(run, client), [task_id] if "_" in task_id else None)[0]


def missing_log_error(run: Run, task_id: str, log: str, client: SlurmClient) -> LaunchError:
    """The error that explains why there is no log."""
    if os.path.exists(log):
        return UsageError("the log is not a file", at=log)
    try:
        task = look_up_task(run, task_id, client)
    except SlurmUnavailable as error:
        return UsageError("there is no log, and the state of the job is unknown", at=log, hint=error.message)
    if task.waiting or task.running:
        return WrongMoment(f"there is no log yet: job {task.id} {task.predicate}", at=log, hint="-f waits for it")
    hint = f"{MISSING_HINT}; `slurm-launch status` shows what is known"
    return UsageError(f"there is no log: job {task.id} {task.predicate}", at=log, hint=hint)


def start_position(log: str, tail: int | None, command_only: bool = False) -> int:
    """Where the last `tail` lines of a log start; 0 for all lines, or if there is no log yet."""
    if tail is None:
        return 0
    try:
        return last_lines(log, tail, (lambda line: not _PHASE_LINE.match(line)) if command_only else None)
    except OSError:
        return 0


class CommandOutput:
    """Removes the lines of slurm-launch from a log that is read in parts."""

    def __init__(self) -> None:
        self._rest = b""  # the start of a possible line of slurm-launch

    def feed(self, data: bytes) -> bytes:
        """The command's part of the data. The start of a possible line of slurm-launch is held back."""
        *lines, last = (self._rest + data).split(b"\n")
        kept = []
        for line in lines:
            text = _without_phase(line)
            # A line that is only a phase line is removed with its newline.
            kept.append(text + b"\n" if text or not line else b"")
        start = last.rfind(b"[")
        maybe_phase = start >= 0 and (last[start:].startswith(_PREFIX) or _PREFIX.startswith(last[start:]))
        at = last.find(_PREFIX) if _PREFIX in last else start if maybe_phase else len(last)
        self._rest = last[at:]
        return b"".join(kept) + last[:at]

    def close(self) -> bytes:
        """What is left at the end of the log."""
        rest, self._rest = self._rest, b""
        return _without_phase(rest)


def _without_phase(line: bytes) -> bytes:
    """A line without the phase line at its end."""
    match = _PHASE_LINE.search(line)
    return line if match is None else line[: match.start()]
