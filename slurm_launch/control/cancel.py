"""Cancel jobs, gracefully or at once. Only jobs that belong to the user, according to both the record and Slurm."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from slurm_launch import process
from slurm_launch.errors import LaunchError, Notify, SlurmUnavailable, UsageError, WrongMoment
from slurm_launch.runs import log_phases, search
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids, sbatch
from slurm_launch.slurm import jobs as slurm_jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import JobState
from slurm_launch.status import lookup
from slurm_launch.status.task import log_path

GRACE = 60.0  # seconds for a job to end: up to 10 for its command and 20 for Ray on the nodes
# The script runs and can handle a signal; that of a suspended job cannot.
_SCRIPT_RUNNING = ("RUNNING", "RESIZING", "SIGNALING", "STAGE_OUT")
_ENDING = ("COMPLETING",)


_Key = tuple[str | None, str]  # the cluster and the ID of a job or task


@dataclass(frozen=True)
class CancelTarget:
    """A job or an array task to cancel."""

    run: Run
    id: str  # 12, or 12_3
    state: str
    log: str
    whole_run: bool  # the user named the run, not only this task

    @property
    def script_running(self) -> bool:
        return self.state in _SCRIPT_RUNNING


@dataclass(frozen=True)
class CancelPlan:
    """What to cancel of the runs that the user named."""

    targets: list[CancelTarget]
    already_ended: list[str]  # a line for each run or task that has already ended


def plan_cancel(wanted: Sequence[tuple[Run, str]], client: SlurmClient, user: str | None = None) -> CancelPlan:
    """Return the jobs to cancel, with one query per cluster. Raises UsageError if any of them is not the user's.

    `wanted` are runs, each with the argument that named it."""
    names = {_unix_user(), records.user_name()} if user is None else {user}
    user = _unix_user() if user is None else user
    for run, _ in wanted:
        _check_owner(run, names, user)
    states = _states({run.record: run for run, _ in wanted}.values(), client)
    targets: dict[_Key, CancelTarget] = {}
    already_ended: dict[str, None] = {}
    for run, argument in wanted:
        jobs = [job for job in states[run.cluster] if job.id.partition("_")[0] == run.job_id]
        tasks = search.task_ids_in(run, argument)
        if tasks is not None:
            _check_tasks(run, tasks, jobs)
            named = set(tasks)
            jobs = [job for job in jobs if job.id in named]
        live = [job for job in jobs if not job.ended]
        for job in live:
            _check_identity(run, job, user)
            known = targets.get((run.cluster, job.id))
            if known is None or not known.whole_run:
                log = log_path(run, job.id)
                targets[run.cluster, job.id] = CancelTarget(run, job.id, job.state, log, whole_run=tasks is None)
        if not live:
            already_ended[_describe_ended(run, array_ids.join_task_ids(tasks) if tasks else None, jobs)] = None
    return CancelPlan(list(targets.values()), list(already_ended))


def _check_owner(run: Run, names: Collection[str], user: str) -> None:
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` shows whether there is a job; scancel ends it"
        raise UsageError("the run has no job ID, so its job is unknown", at=run.record, hint=hint)
    if run.user not in names:
        hint = f"nothing was canceled; {run.user} can do it"
        message = f"job {run.job_id} belongs to {run.user} according to its record; you are {user}"
        raise UsageError(message, at=run.record, hint=hint)


def _unix_user() -> str:
    """The user name as Slurm knows it, regardless of the environment."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _states(runs: Iterable[Run], client: SlurmClient) -> dict[str | None, list[JobState]]:
    """The jobs of these runs in the queue of each cluster."""
    by_cluster: dict[str | None, list[str]] = {}
    for run in runs:
        by_cluster.setdefault(run.cluster, []).append(str(run.job_id))
    states = {}
    for cluster, ids in by_cluster.items():
        result = client(slurm_jobs.squeue_argv(",".join(sorted(set(ids), key=int)), cluster, each_task=True))
        if result.returncode and not slurm_jobs.is_gone(result.stderr):
            raise slurm_jobs.unreachable(result)
        states[cluster] = slurm_jobs.parse_squeue(result.stdout)
    return states


def _check_identity(run: Run, job: JobState, user: str) -> None:
    """Refuse another job with the same ID: IDs restart after a cluster reset, and a record may be a copy."""
    if job.user == user and lookup.is_job_of(run, job):
        return
    what = f"user {job.user or 'unknown'}, name {job.name!r}, script {job.script or 'unknown'}"
    hint = f"nothing was canceled; if it is yours: scancel {job.id}"
    raise UsageError(f"job {job.id} does not belong to {run.name}; it is another job: {what}", at=run.record, hint=hint)


def _check_tasks(run: Run, tasks: Sequence[str], jobs: Sequence[JobState]) -> None:
    """Refuse a task that the array never had: it is a typo, not a task that has ended."""
    array = run.array_indexes
    known = (
        {f"{run.job_id}_{number}" for number in array_ids.array_numbers(array)} if array else {job.id for job in jobs}
    )
    unknown = [task for task in tasks if task not in known]
    if unknown:
        what = f"its tasks are {run.job_id}_[{array}]" if array else f"{run.name} is not an array"
        hint = f"nothing was canceled; {what}"
        raise UsageError(f"job {run.job_id} has no task {array_ids.join_task_ids(unknown)}", at="RUN", hint=hint)


def _describe_ended(run: Run, task: str | None, jobs: Sequence[JobState]) -> str:
    """How a job ended, from the queue and the log alone."""
    own = [job for job in jobs if lookup.is_job_of(run, job)]
    how = ", ".join(sorted({job.state for job in own}))
    if not how and (end := log_phases.read_end(log_path(run, task or str(run.job_id)), task or run.job_id)):
        how = end.outcome
    return f"job {task or run.job_id} ({run.name}) has already ended{f': {how}' if how else ''}"


def send(targets: Sequence[CancelTarget], client: SlurmClient, *, now: bool = False) -> None:
    """Signal the scripts of running jobs to shut down; remove other jobs from the queue. `now`: kill all at once."""
    for cluster in sorted({target.run.cluster for target in targets}, key=str):
        here = [target for target in targets if target.run.cluster == cluster and target.state not in _ENDING]
        graceful = [] if now else [target for target in here if target.script_running]
        plain, pending = _ids_to_scancel([target for target in here if target not in graceful], graceful)
        # Pending tasks first, so that none starts in the place of one that ends.
        if pending:
            _scancel(slurm_jobs.scancel_argv(pending, cluster, state="PENDING"), client)
        if plain:
            _scancel(slurm_jobs.scancel_argv(plain, cluster), client)
        if graceful:
            _scancel(slurm_jobs.terminate_argv([target.id for target in graceful], cluster), client)


def _ids_to_scancel(targets: Sequence[CancelTarget], graceful: Sequence[CancelTarget]) -> tuple[list[str], list[str]]:
    """IDs for scancel, and IDs of which only pending tasks are canceled. A whole array is one ID, however large."""
    plain: list[str] = []
    pending: list[str] = []
    for run in {target.run.record: target.run for target in targets}.values():
        of_run = [target for target in targets if target.run == run]
        whole = all(target.whole_run for target in of_run)
        if whole and not any(target.run == run for target in graceful):
            plain.append(str(run.job_id))
        elif whole and all(target.state == "PENDING" for target in of_run):
            pending.append(str(run.job_id))
        else:
            plain += [target.id for target in of_run]
    return plain, pending


def _scancel(argv: list[str], client: SlurmClient) -> None:
    result = client(argv)
    if result.returncode == 0:
        return
    if sbatch.is_unreachable(result.stderr):
        raise slurm_jobs.unreachable(result)
    errors = [line for line in result.stderr.splitlines() if not re.search("already|Invalid job id|completing", line)]
    if errors:  # a job that ended in the meantime is not a failure
        text = "\n".join(errors)
        raise SlurmUnavailable(f"scancel failed:\n{text}", hint="`squeue --me` shows what is left")


@dataclass(frozen=True)
class _CancelNote:
    """The entry in a run's record that the user canceled these tasks."""

    record: str
    ids: str
    when: str

    def write(self) -> None:
        """Add it to the record. The first request of several is kept."""
        records.change(self.record, lambda run: replace(run, cancelled={self.ids: self.when} | run.cancelled))

    def remove(self) -> None:
        def without(run: Run) -> Run:
            others = {ids: when for ids, when in run.cancelled.items() if (ids, when) != (self.ids, self.when)}
            return replace(run, cancelled=others)

        with suppress(UsageError):
            records.change(self.record, without)


def cancel(targets: Sequence[CancelTarget], client: SlurmClient, notify: Notify, *, now: bool = False) -> None:
    """Note the cancellation in the records, then send it.

    For Slurm, a job that its own script ends after a signal has failed; with the note, `status` shows why."""
    for cluster in sorted({target.run.cluster for target in targets}, key=str):
        here = [target for target in targets if target.run.cluster == cluster]
        notes = _write_notes(here, notify)
        try:
            send(here, client, now=now)
        except LaunchError as error:
            may_have_arrived = isinstance(error, process.TimedOut) or sbatch.is_answer_lost(error.message)
            if not may_have_arrived:
                for note in notes:
                    note.remove()
            raise


def _write_notes(targets: Iterable[CancelTarget], notify: Notify) -> list[_CancelNote]:
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    by_record: dict[str, list[str]] = {}
    for target in targets:
        by_record.setdefault(target.run.record, []).append(target.id)
    notes = [_CancelNote(record, array_ids.join_task_ids(ids), when) for record, ids in by_record.items()]
    for note in notes:
        try:
            note.write()
        except UsageError as error:
            notify(f"cannot update the record, so `status` will not show that you canceled the job: {error.message}")
    return notes


def wait(
    targets: Sequence[CancelTarget],
    client: SlurmClient,
    *,
    now: bool = False,
    grace: float = GRACE,
    on_end: Callable[[CancelTarget], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[CancelTarget]:
    """Wait until the jobs have ended and call `on_end` for each. Returns those still running after `grace` seconds.

    Reads the logs twice a second; queries Slurm when a log shows an end, and otherwise at growing intervals. A job that
    has started since it was planned is signaled here and gets the full grace period, unless `now` has killed it."""
    left = list(targets)
    signaled = {(target.run.cluster, target.id) for target in targets if target.script_running}
    began = asked = clock()
    pause = 1.0
    while left:
        sleep(0.5)
        logged_end = any(log_phases.read_end(target.log, target.id) is not None for target in left)
        late = clock() - began >= grace
        # Without a log, as of a job that was pending, only Slurm knows.
        if late or clock() - asked >= (1.0 if logged_end else pause):
            if not logged_end:
                pause = min(10.0, pause * 2)
            asked = clock()
            alive = _live_states(left, client)
            if alive is None:
                alive = {(target.run.cluster, target.id): "" for target in left}
            for target in [target for target in left if (target.run.cluster, target.id) not in alive]:
                on_end(target)
                left.remove(target)
            started = [] if now else _newly_started(left, alive, signaled)
            if started:
                with suppress(LaunchError):
                    send(started, client)
                    signaled |= {(target.run.cluster, target.id) for target in started}
                    began, late = clock(), grace <= 0
            if late:
                break
    return left


def _live_states(targets: Sequence[CancelTarget], client: SlurmClient) -> dict[_Key, str] | None:
    """The states of the targets that are neither ended nor completing; None when Slurm cannot be reached."""
    with suppress(SlurmUnavailable):
        states = _states([target.run for target in targets], client)
        return {
            (cluster, one.id): one.state
            for cluster, jobs in states.items()
            for one in jobs
            if not one.ended and one.state not in _ENDING
        }
    return None


def _newly_started(
    left: Sequence[CancelTarget], alive: Mapping[_Key, str], signaled: Collection[_Key]
) -> list[CancelTarget]:
    """The targets whose script runs now and has not been signaled."""
    current = [replace(target, state=alive[target.run.cluster, target.id]) for target in left]
    return [target for target in current if target.script_running and (target.run.cluster, target.id) not in signaled]


def not_ended_error(left: Sequence[CancelTarget], now: bool, grace: float = GRACE) -> WrongMoment:
    ids = " ".join(target.id for target in left)
    hint = (
        "`squeue --me` shows what Slurm is waiting for"
        if now
        else f"it may still end; `slurm-launch cancel --now {ids}` kills it"
    )
    return WrongMoment(f"still running after {grace:g} s: job {ids}", at=left[0].log, hint=hint)
