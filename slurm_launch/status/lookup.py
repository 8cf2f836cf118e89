"""What is known of runs: from Slurm's queue, its accounting, the logs, and what the records remember.

A question to Slurm is dear: one squeue and at most one sacct, however many runs are looked at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.runs import log_phases
from slurm_launch.runs import record as records
from slurm_launch.runs.log_phases import Attempt
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids, jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import JobState
from slurm_launch.status import chains
from slurm_launch.status.task import (
    TIMES,
    UNKNOWN,
    WAITING,
    Task,
)

# What the outcome in a log's last line is to Slurm, where that has forgotten the job.
_STATES = {"ok": "COMPLETED", "time-limit": "TIMEOUT", "ended-from-outside": "CANCELLED"}
SKEW = timedelta(minutes=5)  # between the clocks of two machines; munge allows no more
LONG_LOG = 64 << 20  # bytes; reading them takes a second


def look(run: Run, client: SlurmClient, *, logs: bool = True, given_up: Set[str] = frozenset()) -> list[Task]:
    """All that is known of a run, a Task for each job or task of an array, with what their logs tell.

    Of what squeue does not know, sacct is asked, then scontrol, then the logs. Without `logs` these are left alone,
    unless one is the last witness: for those who look often. For tasks in `given_up` only squeue is asked. Raises
    SlurmUnavailable when Slurm does not answer, unless the record remembers the end.
    """
    if run.job_id is None:
        return [_unseen(run, "")]
    known = _Known(run)
    queue, problem = client.squeue(jobs.squeue_argv(run.job_id, run.cluster))
    known.take(queue, "squeue")
    known.enter(remembered_tasks(run))
    if problem and known.missing:
        raise problem
    if known.missing.keys() - given_up:
        known.take(client.sacct([run.job_id], _clusters([run])), "sacct")
    if known.missing.keys() - given_up:
        known.take(client.show_job(run.job_id, run.cluster), "scontrol")
    known.enter(_by_log(run, known.missing))
    return [_with_log(task) if logs else task for task in known.in_order()]


def look_at_files(run: Run) -> list[Task]:
    """What the record and the logs tell, where Slurm does not answer."""
    if run.job_id is None:
        return [_unseen(run, "")]
    known = _Known(run)
    known.enter(remembered_tasks(run))
    known.enter(_by_log(run, known.missing, asked=False))
    return [_with_log(task) for task in known.in_order()]


def look_at_all(
    all_runs: Sequence[Run], client: SlurmClient, user: str, adopt: Callable[[list[str]], Sequence[Run]] | None = None
) -> tuple[dict[str, list[Task]], LaunchError | None]:
    """The tasks of each run, by its record; and what kept Slurm from answering. Only the ends of logs are read.

    One squeue, at most one sacct; twice that when some runs are on other clusters than the one that is near. `adopt`
    gets the scripts of the user's jobs that are of none of these runs, and returns the runs that they are of. A run
    without a job id gets the one of the job in the queue that has its script.
    """
    without = [run for run in all_runs if not run.job_id]
    all_known = [_Known(run) for run in all_runs if run.job_id]
    near = [known for known in all_known if not known.run.cluster]
    far = [known for known in all_known if known.run.cluster]
    problem: LaunchError | None = None
    for group in (near, far):
        if not group and (group is far or adopt is None):
            continue
        clusters = _clusters(known.run for known in group)
        users = dict.fromkeys([user, *(known.run.user for known in group)])
        queue, failed = client.squeue(jobs.squeue_user_argv(",".join(users), clusters))
        if adopt is not None:
            scripts = {known.run.script for known in group}
            strange = [state.script for state in queue if state.user == user and state.script]
            new = list(adopt([script for script in dict.fromkeys(strange) if script not in scripts]))
            without += [run for run in new if not run.job_id]
            found_now = [_Known(run) for run in new if run.job_id]
            group += found_now
            all_known += found_now
        if group is near:  # of jobs on several clusters nobody tells which is where
            found_now = [_Known(run) for lost in without if (run := _healed(lost, queue)).job_id]
            group += found_now
            all_known += found_now
        _hand_out(queue, "squeue", group)
        for known in group:
            known.enter(remembered_tasks(known.run))
        forgotten = [known for known in group if known.missing]
        if forgotten and not failed:
            lost = [known.run for known in forgotten]
            states = client.sacct([run.job_id for run in lost if run.job_id], _clusters(lost))
            _hand_out(states, "sacct", forgotten)
        for known in forgotten:
            known.enter(_by_log(known.run, known.missing, asked=not failed))
        problem = problem or failed
    found = {run.record: [_unseen(run, "")] for run in (*all_runs, *without)}
    return found | {known.run.record: known.in_order() for known in all_known}, problem


def _clusters(runs: Iterable[Run]) -> list[str]:
    return sorted({run.cluster for run in runs if run.cluster})


def _healed(run: Run, queue: Iterable[JobState]) -> Run:
    """A run whose sbatch was interrupted, with its job: the one in the queue that has its script, if it is but one."""
    ours = [state for state in queue if state.script == run.script and state.user in (None, run.user)]
    if len({array_ids.job_of(state.id) for state in ours}) != 1:
        return run
    submitted = min((state.submitted for state in ours if state.submitted), default=None)
    when = submitted.isoformat(timespec="seconds") if submitted else run.created

    def heal(run: Run) -> Run:
        return (
            run if run.job_id else run.with_job(array_ids.job_of(ours[0].id), None, when)
        )  # sbatch may be at work still

    with suppress(LaunchError):
        return records.change(run.record, heal)
    return heal(run)


def with_job(run: Run, tasks: Sequence[Task]) -> Run:
    """A run with the job id that was found for it while it was looked at."""
    if run.job_id or not tasks[0].id:
        return run
    submitted = tasks[0].times.get("submitted")
    return run.with_job(
        array_ids.job_of(tasks[0].id), None, submitted.isoformat(timespec="seconds") if submitted else run.created
    )


class _Known:
    """What is known of a run so far: of every job or task what the first one says who knows it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tasks: list[Task] = []
        job, array = run.job_id or "", run.array_indexes
        self.is_array = array is not None  # found out once: the array may have thousands of tasks
        self.missing = (
            dict.fromkeys(f"{job}_{number}" for number in array_ids.array_numbers(array)) if array else {job: None}
        )

    def take(self, states: Iterable[JobState], source: str) -> None:
        """What Slurm says. Only its queue knows what goes on: that a job has not ended nobody else can tell."""
        ours = [state for state in states if array_ids.job_of(state.id) == self.run.job_id and is_of(self.run, state)]
        self.enter(_task(self.run, state, source) for state in ours if state.ended or source != "sacct")

    def enter(self, tasks: Iterable[Task]) -> None:
        open_ones = set(self.missing)
        for task in tasks:
            ids = {task.id if self.is_array else array_ids.job_of(task.id)}
            ids = {one for text in ids for one in array_ids.task_ids(text)}
            if ids & open_ones:
                self.tasks.append(task)
                for one in ids:
                    self.missing.pop(one, None)

    def in_order(self) -> list[Task]:
        tasks = sorted(self.tasks, key=lambda task: [int(number) for number in re.findall(r"\d+", task.id)])
        return chains.with_reasons(self.run, tasks)


def _hand_out(states: Iterable[JobState], source: str, to: Iterable[_Known]) -> None:
    by_job: dict[str, list[JobState]] = {}
    for state in states:
        by_job.setdefault(array_ids.job_of(state.id), []).append(state)
    for known in to:
        known.take(by_job.get(known.run.job_id or "", ()), source)


def these(run: Run, tasks: Sequence[Task], ids: Sequence[str] | None) -> list[Task]:
    """Of a run's tasks those with these ids, or all; of tasks that wait together only these."""
    if ids is None:
        return list(tasks)
    wanted, found = dict.fromkeys(ids), []
    for task in tasks:
        within = array_ids.task_ids(task.id)
        ours = [one for one in within if one in wanted]
        if ours and len(ours) == len(within):
            found.append(task)
        elif ours:
            found.append(replace(task, id=array_ids.together(ours), log=log_of(run, array_ids.together(ours))))
        for one in ours:
            del wanted[one]
    if wanted:
        shown = ", ".join(f"{task.id} {task.state}" for task in tasks[:10])
        hint = f"there are: {shown}{' ...' if len(tasks) > 10 else ''}"
        raise UsageError(f"there is no task {array_ids.together(list(wanted))}", at="RUN", hint=hint)
    return found


def is_of(run: Run, state: JobState) -> bool:
    """Whether a job is the one of this run: a job id begins anew after a reset, and a record can be copied."""
    if state.script is not None:  # a path from squeue, the whole line from sacct
        return state.script == run.script or state.script.endswith(f" {run.script}")
    early = state.submitted is not None and state.submitted < datetime.fromisoformat(run.created) - SKEW
    return not early and state.name in (None, run.exp_name) and state.user in (None, run.user)


def remembered_tasks(run: Run) -> list[Task]:
    """How the record remembers that the run, or tasks of its array, ended."""
    found = []
    for task_id, data in run.tasks.items():
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):  # it is damaged
            times = {name: datetime.fromisoformat(data["times"][name]) for name in TIMES if name in data["times"]}
            if any(time.tzinfo is None for time in times.values()):
                continue
            known: dict[str, Any] = {name: data[name] and str(data[name]) for name in ("reason", "nodes", "partition")}
            known |= {name: None if data[name] is None else int(data[name]) for name in ("code", "num_nodes")}
            known |= {name: int(data[name]) for name in ("signal", "restarts")}
            task = Task(task_id, str(data["state"]), "record", log_of(run, task_id), times=times)
            found.append(replace(task, **known))
    return [task for task in found if task.ended and array_ids.job_of(task.id) == run.job_id]


def remember(run: Run, tasks: Sequence[Task]) -> Run:
    """Put what has ended into the record, for when Slurm has forgotten it. Where that cannot be, nothing is lost."""
    before = {task.id: task for task in remembered_tasks(run)}
    known = [_with_times(task, before.get(task.id)) for task in tasks if task.state != UNKNOWN]
    news = [task for task in known if task.source != "record" or memory(task) != run.tasks.get(task.id)]
    again = {one for task in news for one in array_ids.task_ids(task.id)}  # among them what has been requeued
    ended = {task.id: memory(task) for task in news if task.ended}

    def learn(run: Run) -> Run:
        kept = {
            task_id: old for task_id, old in run.tasks.items() if not again.intersection(array_ids.task_ids(task_id))
        }
        return replace(run, tasks=kept | ended)

    if learn(run) == run:
        return run
    with suppress(LaunchError):  # somebody else's directory, a full disk, or the record is gone
        records.change(run.record, learn)
    return learn(run)


def _with_times(task: Task, before: Task | None) -> Task:
    """The task, with those times that are remembered but were not looked for this time."""
    if before is None or (task.state, task.restarts) != (before.state, before.restarts):
        return task
    return replace(task, times={**before.times, **task.times})


def memory(task: Task) -> dict[str, Any]:
    """What a record remembers of a task."""
    keys = ("state", "reason", "code", "signal", "nodes", "num_nodes", "partition", "restarts")
    times = {name: task.times[name].isoformat(timespec="seconds") for name in TIMES if name in task.times}
    return {key: getattr(task, key) for key in keys} | {"times": times}


def log_of(run: Run, task_id: str) -> str:
    """The log of a job, or of one task of an array."""
    _, _, task = task_id.partition("_")
    if task.startswith("["):
        task = "*"  # those of several tasks
    return run.log if not task else f"{run.log.removesuffix('.log')}_{task}.log"


# Putting it together


def _unseen(run: Run, job_id: str, asked: bool = True) -> Task:
    times = {"submitted": datetime.fromisoformat(run.submitted)} if run.submitted else {}
    return Task(job_id, UNKNOWN, "none", log_of(run, job_id), times=times, asked=asked)


def _task(run: Run, state: JobState, source: str) -> Task:
    waiting = state.state in WAITING
    known = {
        "submitted": datetime.fromisoformat(run.submitted) if run.submitted else state.submitted,
        # Of a job that was cancelled while it waited, Slurm calls this moment its start.
        "started": state.started if state.nodes and not waiting else None,
        "ended": state.end if state.ended else None,
    }
    cancelled = state.state == "FAILED" and state.code in (75, None) and run.cancelled_at(state.id) is not None
    return Task(
        state.id,
        "CANCELLED" if cancelled else state.state,  # by the script's own teardown, which Slurm takes for a failure
        source,
        log_of(run, state.id),
        reason=state.reason,
        code=None if cancelled else state.code,
        signal=state.signal,
        nodes=state.nodes,
        num_nodes=state.num_nodes,
        partition=state.partition,
        parts=state.parts,
        expected=state.started if waiting else None,
        limit=None if waiting or state.ended else state.end,
        restarts=state.restarts or 0,
        times={name: time for name, time in known.items() if time},
    )


def completed(task: Task) -> Task:
    """The task with all its times, for those who looked without logs; a long log is left to who wants to know."""
    with suppress(OSError):
        if os.path.getsize(task.log) <= LONG_LOG:
            return _with_log(task)
    return task


def _with_log(task: Task) -> Task:
    """The task with what its log tells; nothing when that cannot be read."""
    try:
        return with_attempt(task, log_phases.read(task.log).last)
    except OSError:
        return task


def with_attempt(task: Task, attempt: Attempt) -> Task:
    """The task with what the last life in its log tells."""
    if task.waiting:
        return task
    if _is_former(attempt, task):
        attempt = Attempt()  # it has been requeued, and has not said anything yet
    told = {
        "head-ready": attempt.head_ready,
        "all-nodes": attempt.times.get("ready"),
        "command-start": attempt.times.get("command"),
        "command-end": attempt.times.get("stopping") if "command" in attempt.times else None,
        "ended": attempt.times.get("end") if task.ended or task.state == UNKNOWN else None,
    }
    times = {name: time for name, time in told.items() if time} | dict(task.times)
    return replace(task, attempt=attempt, times={name: times[name] for name in TIMES if name in times})


def _is_former(attempt: Attempt, task: Task) -> bool:
    """Whether a life in the log came before the one that Slurm speaks of; the nodes' clocks may differ a little."""
    started = task.times.get("started")
    if task.state == "CANCELLED" and not task.nodes and task.source in ("squeue", "sacct", "scontrol"):
        return True  # this one still waited for its nodes
    slack = timedelta(seconds=9) if task.restarts else SKEW
    return started is not None and attempt.began is not None and attempt.began < started - slack


def _by_log(run: Run, task_ids: Iterable[str], asked: bool = True) -> list[Task]:
    """Tasks of which Slurm knows nothing: the log's last line is the last witness."""
    found, traceless = [], []
    for task_id in task_ids:
        end = log_phases.read_end(log_of(run, task_id), task_id)
        if end is None or end.code is None:
            traceless.append(task_id)
            continue
        state = _STATES.get(end.outcome, "FAILED")
        code = end.code if state in ("COMPLETED", "FAILED") else None
        task = replace(_unseen(run, task_id), state=state, source="log", code=code)
        found.append(replace(task, times={**task.times, "started": end.began}) if end.began else task)
    # One that we cancelled while it waited leaves no trace at all: Slurm forgets such tasks of an array at once.
    ours = [task_id for task_id in traceless if asked and run.cancelled_at(task_id)]
    found += [replace(_unseen(run, one), state="CANCELLED", source="record") for one in _together(run, ours)]
    known_end = set(ours)
    rest = [task_id for task_id in traceless if task_id not in known_end]
    return found + [_unseen(run, task_id, asked) for task_id in _together(run, rest)]


def _together(run: Run, task_ids: Sequence[str]) -> list[str]:
    """Tasks of which there is nothing at all in one."""
    without = [task_id for task_id in task_ids if not os.path.exists(log_of(run, task_id))]
    if len(without) < 2:
        return list(task_ids)
    none = set(without)
    return [*(task_id for task_id in task_ids if task_id not in none), array_ids.together(without)]
