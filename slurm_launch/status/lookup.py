"""What is known about runs: from Slurm's queue and accounting, the logs, and the outcomes saved in the records.

Queries to Slurm are expensive: one squeue and at most one sacct, regardless of the number of runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.runs import log_phases
from slurm_launch.runs import record as records
from slurm_launch.runs.log_phases import Attempt, End
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids, jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import JobState, is_pending
from slurm_launch.status import chains, saved_outcomes
from slurm_launch.status.task import TIMES, UNKNOWN, Task, log_path

# Slurm's state for an outcome in the last line of a log, if Slurm no longer lists the job.
_STATE_OF_OUTCOME = {"ok": "COMPLETED", "time-limit": "TIMEOUT", "ended-from-outside": "CANCELLED"}
SKEW = timedelta(minutes=5)  # between the clocks of two machines; munge allows no more
LONG_LOG = 64 << 20  # bytes; reading them takes a second


def look_up(run: Run, client: SlurmClient, *, logs: bool = True, given_up: Set[str] = frozenset()) -> list[Task]:
    """Return a Task for each job or array task of a run, with what their logs contain.

    Sources, in this order: squeue, the record, sacct, scontrol, the logs. Without `logs`, for callers that poll, a log
    is read only if no other source knows the task, and only its end. For tasks in `given_up` only squeue is queried.
    Raises SlurmUnavailable if slurmctld cannot be reached, unless the record contains the outcome.
    """
    if run.job_id is None:
        return [_unknown_task(run, "")]
    collector = _TaskCollector(run)
    queue, problem = client.squeue(jobs.squeue_argv(run.job_id, run.cluster))
    collector.add_states(queue, "squeue")
    collector.add(saved_outcomes.load(run))
    if problem and collector.missing:
        raise problem
    if collector.missing.keys() - given_up:
        collector.add_states(client.sacct([run.job_id], _cluster_names([run])), "sacct")
    if collector.missing.keys() - given_up:
        collector.add_states(client.show_job(run.job_id, run.cluster), "scontrol")
    collector.add(_tasks_from_logs(run, collector.missing, whole=logs))
    return [_with_log(task) if logs else task for task in collector.in_order()]


def look_up_files(run: Run, *, logs: bool = True) -> list[Task]:
    """What the record and the logs contain, if slurmctld cannot be reached. `logs` as for `look_up`."""
    if run.job_id is None:
        return [_unknown_task(run, "")]
    collector = _TaskCollector(run)
    collector.add(saved_outcomes.load(run))
    collector.add(_tasks_from_logs(run, collector.missing, asked=False, whole=logs))
    return [_with_log(task) if logs else task for task in collector.in_order()]


Adopt = Callable[[list[str]], Sequence[Run]]


def look_up_all(
    all_runs: Sequence[Run], client: SlurmClient, user: str, adopt: Adopt | None = None
) -> tuple[dict[str, list[Task]], LaunchError | None]:
    """The tasks of each run, by its record, and the error if slurmctld cannot be reached. Reads only the ends of logs.

    One squeue and at most one sacct; twice that if some runs are on other clusters than the local one. `adopt` gets
    the scripts of the user's queued jobs that belong to none of these runs, and returns their runs. A run without a
    job ID gets that of the queued job that has its script.
    """
    without_job = [run for run in all_runs if not run.job_id]
    collectors = [_TaskCollector(run) for run in all_runs if run.job_id]
    local = [collector for collector in collectors if not collector.run.cluster]
    remote = [collector for collector in collectors if collector.run.cluster]
    problem: LaunchError | None = None
    for group in (local, remote):
        if not group and (group is remote or adopt is None):
            continue
        queue, failed = _query_queue(group, client, user)
        new: list[Run] = []
        if adopt is not None:
            adopted = _adopt(group, queue, user, adopt)
            without_job += [run for run in adopted if not run.job_id]
            new += [run for run in adopted if run.job_id]
        if group is local:  # squeue does not show which of several clusters a job is on
            new += [run for lost in without_job if (run := _with_recovered_job_id(lost, queue)).job_id]
        added = [_TaskCollector(run) for run in new]
        group += added
        collectors += added
        _complete(group, queue, client, reachable=failed is None)
        problem = problem or failed
    found = {run.record: [_unknown_task(run, "")] for run in (*all_runs, *without_job)}
    return found | {collector.run.record: collector.in_order() for collector in collectors}, problem


def _query_queue(
    group: Sequence[_TaskCollector], client: SlurmClient, user: str
) -> tuple[list[JobState], LaunchError | None]:
    clusters = _cluster_names(collector.run for collector in group)
    users = dict.fromkeys([user, *(collector.run.user for collector in group)])
    return client.squeue(jobs.squeue_user_argv(",".join(users), clusters))


def _adopt(group: Sequence[_TaskCollector], queue: Sequence[JobState], user: str, adopt: Adopt) -> list[Run]:
    """The runs of the user's queued jobs that are not in the group."""
    known = {collector.run.script for collector in group}
    scripts = dict.fromkeys(state.script for state in queue if state.user == user and state.script)
    return list(adopt([script for script in scripts if script not in known]))


def _complete(
    group: Sequence[_TaskCollector], queue: Sequence[JobState], client: SlurmClient, *, reachable: bool
) -> None:
    """Collect the tasks of all runs in the group, with one sacct for those that have left the queue."""
    _distribute(queue, "squeue", group)
    for collector in group:
        collector.add(saved_outcomes.load(collector.run))
    incomplete = [collector for collector in group if collector.missing]
    if incomplete and reachable:
        runs = [collector.run for collector in incomplete]
        states = client.sacct([run.job_id for run in runs if run.job_id], _cluster_names(runs))
        _distribute(states, "sacct", incomplete)
    for collector in incomplete:
        collector.add(_tasks_from_logs(collector.run, collector.missing, asked=reachable))


def _cluster_names(runs: Iterable[Run]) -> list[str]:
    return sorted({run.cluster for run in runs if run.cluster})


def _with_recovered_job_id(run: Run, queue: Iterable[JobState]) -> Run:
    """A run whose sbatch was interrupted, with the ID of the queued job that has its script, if there is only one."""
    states = [state for state in queue if state.script == run.script and state.user in (None, run.user)]
    if len({array_ids.job_of(state.id) for state in states}) != 1:
        return run
    submitted = min((state.submitted for state in states if state.submitted), default=None)
    when = submitted.isoformat(timespec="seconds") if submitted else run.created

    def with_job_id(run: Run) -> Run:
        # sbatch may still be running, and may have written the ID in the meantime.
        return run if run.job_id else run.with_job(array_ids.job_of(states[0].id), None, when)

    with suppress(LaunchError):
        return records.change(run.record, with_job_id)
    return with_job_id(run)


def with_found_job_id(run: Run, tasks: Sequence[Task]) -> Run:
    """A run with the job ID that `look_up_all` found for it."""
    if run.job_id or not tasks[0].id:
        return run
    submitted = tasks[0].times.get("submitted")
    return run.with_job(
        array_ids.job_of(tasks[0].id), None, submitted.isoformat(timespec="seconds") if submitted else run.created
    )


class _TaskCollector:
    """The tasks of a run found so far. For each task the first source that knows it counts."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tasks: list[Task] = []
        job, array = run.job_id or "", run.array_indexes
        self.is_array = array is not None  # computed once: an array may have thousands of tasks
        self.missing = (
            dict.fromkeys(f"{job}_{number}" for number in array_ids.array_numbers(array)) if array else {job: None}
        )

    def add_states(self, states: Iterable[JobState], source: str) -> None:
        """Add what Slurm reports. For a job that has not ended, only squeue is reliable: accounting lags behind."""
        own = [
            state for state in states if array_ids.job_of(state.id) == self.run.job_id and is_job_of(self.run, state)
        ]
        self.add(_task_from_state(self.run, state, source) for state in own if state.ended or source != "sacct")

    def add(self, tasks: Iterable[Task]) -> None:
        """Add those of the tasks that are still missing."""
        missing_before = set(self.missing)
        for task in tasks:
            ids = set(array_ids.task_ids(task.id if self.is_array else array_ids.job_of(task.id)))
            if ids & missing_before:
                self.tasks.append(task)
                for one in ids:
                    self.missing.pop(one, None)

    def in_order(self) -> list[Task]:
        """The tasks in numerical order."""
        tasks = sorted(self.tasks, key=lambda task: [int(number) for number in re.findall(r"\d+", task.id)])
        return chains.with_reasons(self.run, tasks)


def _distribute(states: Iterable[JobState], source: str, collectors: Iterable[_TaskCollector]) -> None:
    """Add each state to the run that it belongs to."""
    by_job: dict[str, list[JobState]] = {}
    for state in states:
        by_job.setdefault(array_ids.job_of(state.id), []).append(state)
    for collector in collectors:
        collector.add_states(by_job.get(collector.run.job_id or "", ()), source)


def select_tasks(run: Run, tasks: Sequence[Task], ids: Sequence[str] | None) -> list[Task]:
    """The tasks with these IDs, or all. Of several pending tasks in one entry only those that are meant."""
    if ids is None:
        return list(tasks)
    wanted, selected = dict.fromkeys(ids), []
    for task in tasks:
        in_entry = array_ids.task_ids(task.id)
        chosen = [one for one in in_entry if one in wanted]
        if chosen and len(chosen) == len(in_entry):
            selected.append(task)
        elif chosen:
            merged = array_ids.join_task_ids(chosen)
            selected.append(replace(task, id=merged, log=log_path(run, merged)))
        for one in chosen:
            del wanted[one]
    if wanted:
        shown = ", ".join(f"{task.id} {task.state}" for task in tasks[:10])
        hint = f"existing tasks: {shown}{' ...' if len(tasks) > 10 else ''}"
        raise UsageError(f"there is no task {array_ids.join_task_ids(list(wanted))}", at="RUN", hint=hint)
    return selected


def is_job_of(run: Run, state: JobState) -> bool:
    """Whether a job with the run's ID is the run's: IDs start again after a reset, and records can be copied."""
    if state.script is not None:  # a path from squeue, the whole command line from sacct
        return state.script == run.script or state.script.endswith(f" {run.script}")
    early = state.submitted is not None and state.submitted < datetime.fromisoformat(run.created) - SKEW
    return not early and state.name in (None, run.exp_name) and state.user in (None, run.user)


# Tasks from what the sources report


def _unknown_task(run: Run, job_id: str, asked: bool = True) -> Task:
    times = {"submitted": datetime.fromisoformat(run.submitted)} if run.submitted else {}
    return Task(job_id, UNKNOWN, "none", log_path(run, job_id), times=times, asked=asked)


def _task_from_state(run: Run, state: JobState, source: str) -> Task:
    pending = is_pending(state.state)
    times = {
        "submitted": datetime.fromisoformat(run.submitted) if run.submitted else state.submitted,
        # For a job that was canceled while pending, Slurm reports this moment as its start.
        "started": state.started if state.nodes and not pending else None,
        "ended": state.end if state.ended else None,
    }
    # After `slurm-launch cancel` the script itself ends the job, which Slurm takes for a failure.
    canceled = state.state == "FAILED" and state.code in (75, None) and run.cancelled_at(state.id) is not None
    return Task(
        state.id,
        "CANCELLED" if canceled else state.state,
        source,
        log_path(run, state.id),
        reason=state.reason,
        code=None if canceled else state.code,
        signal=state.signal,
        nodes=state.nodes,
        num_nodes=state.num_nodes,
        partition=state.partition,
        parts=state.parts,
        expected=state.started if pending else None,
        limit=None if pending or state.ended else state.end,
        restarts=state.restarts or 0,
        times={name: time for name, time in times.items() if time},
    )


def with_short_log(task: Task) -> Task:
    """The task with what its log contains, unless the log is long: for a task that was looked up without logs."""
    with suppress(OSError):
        if os.path.getsize(task.log) <= LONG_LOG:
            return _with_log(task)
    return task


def _with_log(task: Task) -> Task:
    """The task with what its log contains, if that can be read and was not read already."""
    if task.attempt is not None:
        return task
    try:
        return with_attempt(task, log_phases.read(task.log).last)
    except OSError:
        return task


def with_attempt(task: Task, attempt: Attempt) -> Task:
    """The task with what the last attempt in its log contains."""
    if task.waiting:
        return task
    if _is_previous(attempt, task):
        attempt = Attempt()  # the job was requeued and has not written anything yet
    from_log = {
        "head-ready": attempt.head_ready,
        "all-nodes": attempt.times.get("ready"),
        "command-start": attempt.times.get("command"),
        "command-end": attempt.times.get("stopping") if "command" in attempt.times else None,
        "ended": attempt.times.get("end") if task.ended or task.state == UNKNOWN else None,
    }
    times = {name: time for name, time in from_log.items() if time} | dict(task.times)
    return replace(
        task,
        attempt=attempt,
        times={name: times[name] for name in TIMES if name in times},
        memory_kills=tuple(attempt.memory_kills.values()) or task.memory_kills,
    )


def _is_previous(attempt: Attempt, task: Task) -> bool:
    """Whether an attempt in the log is older than the one that Slurm reports. The nodes' clocks may differ a little."""
    started = task.times.get("started")
    if task.state == "CANCELLED" and not task.nodes and task.source in ("squeue", "sacct", "scontrol"):
        return True  # canceled while pending
    slack = timedelta(seconds=9) if task.restarts else SKEW
    return started is not None and attempt.began is not None and attempt.began < started - slack


def _tasks_from_logs(run: Run, task_ids: Iterable[str], *, asked: bool = True, whole: bool = False) -> list[Task]:
    """Tasks that Slurm does not know, by the last lines of their logs. With `whole`, with all that the logs contain."""
    found, unknown = [], []
    attempts: dict[str, Attempt] = {}
    for task_id in task_ids:
        end, attempt = _end_in_log(run, task_id, whole)
        if attempt is not None:
            attempts[task_id] = attempt
        if end is None or end.code is None:
            unknown.append(task_id)
        else:
            found.append(_task_from_end(run, task_id, end))
    # A pending task that `slurm-launch cancel` ended leaves no trace: in an array, Slurm drops it at once.
    canceled = [task_id for task_id in unknown if asked and run.cancelled_at(task_id)]
    found += [replace(_unknown_task(run, one), state="CANCELLED", source="record") for one in _merged(run, canceled)]
    rest = set(unknown).difference(canceled)
    found += [_unknown_task(run, one, asked) for one in _merged(run, [one for one in unknown if one in rest])]
    return [with_attempt(task, attempts[task.id]) if task.id in attempts else task for task in found]


def _end_in_log(run: Run, task_id: str, whole: bool) -> tuple[End | None, Attempt | None]:
    """The end that the log shows, and, if the whole log is to be read, its last attempt."""
    path = log_path(run, task_id)
    if not whole:
        return log_phases.read_end(path, task_id), None
    try:
        attempts = log_phases.read(path, task_id)
    except OSError:
        return None, None
    return attempts.final_end, attempts.last


def _task_from_end(run: Run, task_id: str, end: End) -> Task:
    state = _STATE_OF_OUTCOME.get(end.outcome, "FAILED")
    code = end.code if state in ("COMPLETED", "FAILED") else None
    task = replace(_unknown_task(run, task_id), state=state, source="log", code=code)
    return replace(task, times={**task.times, "started": end.began}) if end.began else task


def _merged(run: Run, task_ids: Sequence[str]) -> list[str]:
    """The IDs, with all tasks that have no log in one entry."""
    without_log = [task_id for task_id in task_ids if not os.path.exists(log_path(run, task_id))]
    if len(without_log) < 2:
        return list(task_ids)
    merged = set(without_log)
    return [*(task_id for task_id in task_ids if task_id not in merged), array_ids.join_task_ids(without_log)]
