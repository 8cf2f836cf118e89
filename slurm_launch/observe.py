"""What is known of runs: from Slurm's queue, its accounting, the logs, and what the records remember.

A question to Slurm is dear: one squeue and at most one sacct, however many runs are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from slurm_launch import joblog, process, runs, slurm
from slurm_launch.errors import LaunchError, SlurmUnavailable
from slurm_launch.joblog import Life
from slurm_launch.launch import TIMEOUT
from slurm_launch.process import Result, Runner
from slurm_launch.runs import Run
from slurm_launch.slurm import JobState
from slurm_launch.slurm_words import how_it_ended, why_it_waits

UNKNOWN = "UNKNOWN"
# The times of a run, in their order.
TIMES = ("submitted", "started", "head-ready", "all-nodes", "command-start", "command-end", "ended")
# What the outcome in a log's last line is to Slurm, where that has forgotten the job.
_STATES = {"ok": "COMPLETED", "time-limit": "TIMEOUT", "ended-from-outside": "CANCELLED"}
_SKEW = timedelta(minutes=5)  # between the clocks of two machines; munge allows no more


@dataclass(frozen=True)
class Asking:
    """How Slurm is asked."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = TIMEOUT

    def __call__(self, argv: list[str]) -> Result:
        return self.runner(argv, env=slurm.query_env(self.env), timeout=self.timeout)


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
    expected: datetime | None = None  # its start, while it waits
    limit: datetime | None = None  # when its time is over, while it runs
    restarts: int = 0
    times: Mapping[str, datetime] = field(default_factory=dict)  # those of TIMES that are known
    life: Life | None = None  # what the log tells of it

    @property
    def ended(self) -> bool:
        return JobState(self.id, self.state).ended

    @property
    def waiting(self) -> bool:
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED")

    @property
    def running(self) -> bool:
        return not self.ended and not self.waiting and self.state != UNKNOWN

    @property
    def phase(self) -> str:
        """How far it is: queued, environment, bring-up, command, stopping or ended."""
        if self.waiting or self.ended or self.state == UNKNOWN:
            return "queued" if self.waiting else "ended"
        names = {"starting": "bring-up", "ready": "command", "missing": "stopping", "end": "stopping"}
        last = self.life.phase if self.life else ""
        return names.get(last, last) or "environment"

    @property
    def in_words(self) -> str:
        """Its state in plain words."""
        if self.waiting:
            words = why_it_waits(self.reason)
            shown = f" ({self.reason})" if self.reason else ""
            return f"waits: {words}{shown}" if words else f"waits{shown}"
        if self.ended or self.state == UNKNOWN:
            end = self.life.end if self.life else None
            words = how_it_ended(self.state, self.code, self.signal)
            return f"{words}: {end.cause}" if end and end.cause else words
        return {
            "environment": "runs: the environment is being loaded",
            "bring-up": "runs: Ray is being started",
            "command": "runs: the command is at work",
            "stopping": "runs: Ray is being ended",
        }[self.phase]


def look(run: Run, ask: Asking) -> list[Task]:
    """All that is known of a run, a Task for each job or task of an array, with what their logs tell.

    Raises SlurmUnavailable when Slurm does not answer, unless the record remembers the end.
    """
    if run.job_id is None:
        return [_unseen(run, "")]
    ours, problem = _squeue(slurm.squeue_argv(run.job_id, run.cluster), ask)
    states = [(state, "squeue") for state in ours if is_of(run, state)]
    remembered = remembered_tasks(run)
    if problem and not remembered:
        raise problem
    if not remembered:
        gone = not states or any(known.ended for known, _ in states)  # Slurm forgets one task after the other
        if gone:
            seen = {state.id for state, _ in states}
            past = [state for state in _sacct([run], ask) if state.id not in seen and is_of(run, state)]
            states += [(state, "sacct") for state in past if state.ended]
        if not states:
            states = [(state, "scontrol") for state in _scontrol(run, run.job_id, ask) if is_of(run, state)]
    if not states and remembered:
        return remembered
    tasks = [_with_log(_task(run, state, source), run) for state, source in states]
    return sorted(tasks, key=_order) or [_by_log(_unseen(run, run.job_id), run)]


def look_at_all(all_runs: Sequence[Run], ask: Asking, user: str) -> tuple[dict[str, list[Task]], LaunchError | None]:
    """The tasks of each run, by its record; and what kept Slurm from answering. One squeue, at most one sacct."""
    clusters = sorted({run.cluster for run in all_runs if run.cluster})
    queue, problem = _squeue(slurm.squeue_user_argv(user, clusters), ask)
    found = _sorted_out(all_runs, queue, "squeue")
    remembered = {run.record: remembered_tasks(run) for run in all_runs}
    forgotten = [run for run in all_runs if run.job_id and not found[run.record] and not remembered[run.record]]
    if forgotten and not problem:
        past = [state for state in _sacct(forgotten, ask) if state.ended]
        found |= _sorted_out(forgotten, past, "sacct")
    for run in all_runs:
        if not found[run.record]:
            found[run.record] = remembered[run.record] or [_by_log(_unseen(run, run.job_id or ""), run, brief=True)]
    return found, problem


def is_of(run: Run, state: JobState) -> bool:
    """Whether a job is the one of this run: a job id begins anew after a reset, and a record can be copied."""
    if state.script is not None:  # a path from squeue, the whole line from sacct
        return state.script == run.script or state.script.endswith(f" {run.script}")
    early = state.submitted is not None and state.submitted < datetime.fromisoformat(run.created) - _SKEW
    return not early and state.name in (None, run.exp_name) and state.user in (None, run.user)


def remembered_tasks(run: Run) -> list[Task]:
    """How the record remembers the run's end; nothing when it does not."""
    found = []
    for task_id, data in run.tasks.items():
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # what is damaged is not remembered
            times = {name: datetime.fromisoformat(text) for name, text in data["times"].items() if name in TIMES}
            task = Task(task_id, str(data["state"]), "record", log_of(run, task_id), times=times)
            known = {name: data[name] for name in ("reason", "code", "signal", "nodes", "num_nodes", "partition")}
            found.append(replace(task, **known, restarts=int(data["restarts"])))
    with_logs = [_with_log(task, run) for task in found]
    return with_logs if all(task.ended for task in found) else []


def remember(run: Run, tasks: Sequence[Task]) -> Run:
    """Put the end of a run into its record, for when Slurm has forgotten it. Where that cannot be, nothing is lost."""
    worth = [task for task in tasks if task.ended and task.source in ("squeue", "sacct", "scontrol", "log")]
    if not worth or len(worth) != len(tasks):
        return run
    keys = ("state", "reason", "code", "signal", "nodes", "num_nodes", "partition", "restarts")
    data = {
        task.id: {key: getattr(task, key) for key in keys}
        | {"times": {name: time.isoformat(timespec="seconds") for name, time in task.times.items()}}
        for task in worth
    }
    if data == run.tasks:
        return run
    run = replace(run, tasks=data)
    with suppress(LaunchError):  # somebody else's directory, a full disk
        runs.update(run)
    return run


def log_of(run: Run, task_id: str) -> str:
    """The log of a job, or of one task of an array."""
    _, _, task = task_id.partition("_")
    return run.log if not task else f"{run.log.removesuffix('.log')}_{task}.log"


# Asking


def _squeue(argv: list[str], ask: Asking) -> tuple[list[JobState], LaunchError | None]:
    try:
        result = ask(argv)
    except (process.NotFound, process.TimedOut) as error:
        return [], error
    if result.returncode and not slurm.is_gone(result.stderr):
        said = (result.stderr or result.stdout).strip() or f"squeue ended with code {result.returncode}"
        hint = "`scontrol ping` tells whether it is up; try again later"
        return [], SlurmUnavailable(f"Slurm does not answer:\n{said}", hint=hint)
    return slurm.parse_squeue(result.stdout), None


def _sacct(of: Iterable[Run], ask: Asking) -> list[JobState]:
    """What the accounting knows, where there is one."""
    job_ids = ",".join(sorted({run.job_id for run in of if run.job_id}, key=int))
    clusters = ",".join(sorted({run.cluster for run in of if run.cluster}))
    try:
        result = ask(slurm.sacct_argv(job_ids, clusters or None))
    except (process.NotFound, process.TimedOut):
        return []
    return slurm.parse_sacct(result.stdout) if result.returncode == 0 else []


def _scontrol(run: Run, job_id: str, ask: Asking) -> list[JobState]:
    try:
        result = ask(slurm.show_job_argv(job_id, run.cluster))
    except (process.NotFound, process.TimedOut):
        return []
    return slurm.parse_show_job(result.stdout) if result.returncode == 0 else []


def _sorted_out(of: Sequence[Run], states: Iterable[JobState], source: str) -> dict[str, list[Task]]:
    by_job: dict[str, list[JobState]] = {}
    for state in states:
        by_job.setdefault(state.id.partition("_")[0], []).append(state)
    return {
        run.record: sorted(
            (_task(run, state, source) for state in by_job.get(run.job_id or "", ()) if is_of(run, state)), key=_order
        )
        for run in of
    }


def _order(task: Task) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", task.id)]


# Putting it together


def _unseen(run: Run, job_id: str) -> Task:
    times = {"submitted": datetime.fromisoformat(run.submitted)} if run.submitted else {}
    return Task(job_id, UNKNOWN, "none", run.log, times=times)


def _task(run: Run, state: JobState, source: str) -> Task:
    waiting = Task(state.id, state.state, source, "").waiting
    known = {
        "submitted": datetime.fromisoformat(run.submitted) if run.submitted else state.submitted,
        "started": None if waiting else state.started,
        "ended": state.end if state.ended else None,
    }
    cancelled = run.cancelled and state.state == "FAILED" and state.code in (75, None)
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
        expected=state.started if waiting else None,
        limit=None if waiting or state.ended else state.end,
        restarts=state.restarts or 0,
        times={name: time for name, time in known.items() if time},
    )


def _with_log(task: Task, run: Run) -> Task:
    """The task with what its log tells."""
    try:
        life = joblog.read(task.log).last
    except OSError:
        return task
    started = task.times.get("started")
    former = task.waiting or (task.restarts and started and life.began and life.began < started - timedelta(seconds=9))
    if former or not life.times:  # it has been requeued, and this life has not said anything yet
        return task
    told = {
        "head-ready": life.head_ready,
        "all-nodes": life.times.get("ready"),
        "command-start": life.times.get("command"),
        "command-end": life.times.get("stopping") if "command" in life.times else None,
        "ended": life.times.get("end"),
    }
    times = {name: time for name, time in told.items() if time} | dict(task.times)
    return replace(task, life=life, times={name: times[name] for name in TIMES if name in times})


def _by_log(task: Task, run: Run, brief: bool = False) -> Task:
    """A task of which Slurm knows nothing: the log's last line is the last witness."""
    if run.spec.get("array"):
        return task
    end = joblog.read_end(task.log)
    if end is None:
        return task if brief else _with_log(task, run)
    if end.code is not None:
        state = _STATES.get(end.outcome, "FAILED")
        code = end.code if state in ("COMPLETED", "FAILED") else None
        task = replace(task, state=state, source="log", code=code)
    return task if brief else _with_log(task, run)
