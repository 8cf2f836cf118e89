"""End jobs: gently, by their own teardown, or at once; never one that is not the user's own by record and by Slurm."""

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
from slurm_launch.errors import (
    LaunchError,
    Notify,
    SlurmUnavailable,
    UsageError,
    WrongMoment,
)
from slurm_launch.runs import log_phases, search
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids, sbatch
from slurm_launch.slurm import jobs as slurm_jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import JobState
from slurm_launch.status import lookup

GRACE = 60.0  # seconds that a job has to end: its command gets ten of them, and Ray on the nodes twenty
# Its script runs and can be asked. One that is suspended would not hear it.
_LISTENING = ("RUNNING", "RESIZING", "SIGNALING", "STAGE_OUT")
_ENDING = ("COMPLETING",)


@dataclass(frozen=True)
class Target:
    """A job, or a task of an array, that is to be ended."""

    run: Run
    id: str  # 12, or 12_3
    state: str
    log: str
    whole: bool  # all of the run was asked for, not this task alone

    @property
    def listening(self) -> bool:
        return self.state in _LISTENING


@dataclass(frozen=True)
class Survey:
    """What was found of the runs that the user named."""

    targets: list[Target]
    over: list[str]  # the rest, in words


def survey(wanted: Sequence[tuple[Run, str]], client: SlurmClient, user: str | None = None) -> Survey:
    """What there is to end, by one question to Slurm. Raises UsageError if any of it is not the user's own.

    `wanted` are runs, each with the argument that named it."""
    names = {_me(), records.user_name()} if user is None else {user}
    user = _me() if user is None else user
    for run, _ in wanted:
        if run.job_id is None:
            hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job; scancel ends it"
            raise UsageError("the run has no job id, so nobody knows its job", at=run.record, hint=hint)
        if run.user not in names:
            hint = f"nothing was cancelled; {run.user} can do it"
            raise UsageError(
                f"job {run.job_id} is {run.user}'s by its record, and you are {user}", at=run.record, hint=hint
            )
    states = _states({run.record: run for run, _ in wanted}.values(), client)
    targets: dict[tuple[str | None, str], Target] = {}
    over: dict[str, None] = {}
    for run, argument in wanted:
        there = [one for one in states[run.cluster] if one.id.partition("_")[0] == run.job_id]
        tasks = search.task_ids_in(run, argument)
        if tasks is not None:
            _check_tasks(run, tasks, there)
            named = set(tasks)
            there = [one for one in there if one.id in named]
        alive = [one for one in there if not one.ended]
        for one in alive:
            _check_identity(run, one, user)
            known = targets.get((run.cluster, one.id))
            targets[run.cluster, one.id] = (
                known
                if known and known.whole
                else Target(run, one.id, one.state, lookup.log_of(run, one.id), tasks is None)
            )
        if not alive:
            over[_how(run, array_ids.together(tasks) if tasks else None, there)] = None
    return Survey(list(targets.values()), list(over))


def _me() -> str:
    """Who we are to Slurm, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _states(of: Iterable[Run], client: SlurmClient) -> dict[str | None, list[JobState]]:
    """The jobs of these ids in the queue of each cluster."""
    by_cluster: dict[str | None, list[str]] = {}
    for run in of:
        by_cluster.setdefault(run.cluster, []).append(str(run.job_id))
    found = {}
    for cluster, ids in by_cluster.items():
        result = client(slurm_jobs.squeue_argv(",".join(sorted(set(ids), key=int)), cluster, each_task=True))
        if result.returncode and not slurm_jobs.is_gone(result.stderr):
            raise slurm_jobs.no_answer(result)
        found[cluster] = slurm_jobs.parse_squeue(result.stdout)
    return found


def _check_identity(run: Run, job: JobState, user: str) -> None:
    """Job ids begin anew after a reset of the cluster, and a record may be a copy."""
    if job.user == user and lookup.is_of(run, job):
        return
    what = f"{job.user or 'nobody knows whose'}, {job.name!r}, {job.script or 'without a script that Slurm tells of'}"
    hint = "nothing was cancelled; if it is yours after all: scancel"
    raise UsageError(f"job {job.id} is not the one of {run.name}, but another one: {what}", at=run.record, hint=hint)


def _check_tasks(run: Run, tasks: Sequence[str], there: Sequence[JobState]) -> None:
    """A task that the array never had is a slip of the pen, not one that has ended."""
    array = run.array_indexes
    known = (
        {f"{run.job_id}_{number}" for number in array_ids.array_numbers(array)} if array else {one.id for one in there}
    )
    strange = [task for task in tasks if task not in known]
    if strange:
        what = f"its tasks are {run.job_id}_[{array}]" if array else f"{run.name} is no array"
        hint = f"nothing was cancelled; {what}"
        raise UsageError(f"job {run.job_id} has no task {array_ids.together(strange)}", at="RUN", hint=hint)


def _how(run: Run, task: str | None, there: Sequence[JobState]) -> str:
    """What is known of a job that has ended; nothing is asked for it."""
    ours = [one for one in there if lookup.is_of(run, one)]
    how = ", ".join(sorted({one.state for one in ours}))
    if not how and (end := log_phases.read_end(lookup.log_of(run, task or str(run.job_id)), task or run.job_id)):
        how = end.outcome
    return f"job {task or run.job_id} ({run.name}) has ended already{f': {how}' if how else ''}"


def send(targets: Sequence[Target], client: SlurmClient, *, now: bool = False) -> None:
    """Ask the scripts of the jobs that run to end them; take the others out of the queue. `now`: end all at once."""
    for cluster in sorted({target.run.cluster for target in targets}, key=str):
        here = [target for target in targets if target.run.cluster == cluster and target.state not in _ENDING]
        gently = [] if now else [target for target in here if target.listening]
        plain, waiting = _at_once([target for target in here if target not in gently], gently)
        # what waits first, so that no task starts in the place of one that ends
        if waiting:
            _scancel(slurm_jobs.scancel_argv(waiting, cluster, state="PENDING"), client)
        if plain:
            _scancel(slurm_jobs.scancel_argv(plain, cluster), client)
        if gently:
            _scancel(slurm_jobs.terminate_argv([target.id for target in gently], cluster), client)


def _at_once(targets: Sequence[Target], gently: Sequence[Target]) -> tuple[list[str], list[str]]:
    """Ids for scancel, and those of which it is to end what waits: an array by its own id, be it of thousands."""
    plain: list[str] = []
    waiting: list[str] = []
    for run in {target.run.record: target.run for target in targets}.values():
        ours = [target for target in targets if target.run == run]
        whole = all(target.whole for target in ours)
        if whole and not any(target.run == run for target in gently):
            plain.append(str(run.job_id))
        elif whole and all(target.state == "PENDING" for target in ours):
            waiting.append(str(run.job_id))
        else:
            plain += [target.id for target in ours]
    return plain, waiting


def _scancel(argv: list[str], client: SlurmClient) -> None:
    result = client(argv)
    if result.returncode == 0:
        return
    if sbatch.is_unreachable(result.stderr):
        raise slurm_jobs.no_answer(result)
    said = [line for line in result.stderr.splitlines() if not re.search("already|Invalid job id|completing", line)]
    if said:  # a job that ended by itself meanwhile is no failure
        text = "\n".join(said)
        raise SlurmUnavailable(f"scancel failed:\n{text}", hint="`squeue --me` shows what is left")


@dataclass(frozen=True)
class _Note:
    """That we end these tasks, in their run's record."""

    record: str
    ids: str
    when: str

    def write(self) -> None:
        """Who asked first stays."""
        records.change(self.record, lambda run: replace(run, cancelled={self.ids: self.when} | run.cancelled))

    def take_back(self) -> None:
        def without(run: Run) -> Run:
            others = {ids: when for ids, when in run.cancelled.items() if (ids, when) != (self.ids, self.when)}
            return replace(run, cancelled=others)

        with suppress(UsageError):
            records.change(self.record, without)


def end(targets: Sequence[Target], client: SlurmClient, notify: Notify, *, now: bool = False) -> None:
    """Note in the records that it was us, then send it: to Slurm a job that its own script ends is one that failed."""
    for cluster in sorted({target.run.cluster for target in targets}, key=str):
        here = [target for target in targets if target.run.cluster == cluster]
        notes = _notes(here, notify)
        try:
            send(here, client, now=now)
        except LaunchError as error:
            if not isinstance(error, process.TimedOut) and not sbatch.is_lost(error.message):  # it may have arrived
                for note in notes:
                    note.take_back()
            raise


def _notes(targets: Iterable[Target], notify: Notify) -> list[_Note]:
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    by_record: dict[str, list[str]] = {}
    for target in targets:
        by_record.setdefault(target.run.record, []).append(target.id)
    notes = [_Note(record, array_ids.together(ids), when) for record, ids in by_record.items()]
    for note in notes:
        try:
            note.write()
        except UsageError as error:
            notify(f"the record cannot be changed, so `status` will not know that you cancelled it: {error.message}")
    return notes


def wait(
    targets: Sequence[Target],
    client: SlurmClient,
    *,
    now: bool = False,
    grace: float = GRACE,
    gone: Callable[[Target], object],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[Target]:
    """Until the jobs have gone; `gone` hears of each. Returns those that still run after `grace` seconds.

    The logs are looked at twice a second; Slurm is asked when one of them tells of the end, and else now and then. What
    began after it was surveyed is asked to end here, and then has all of its time, unless `now` has ended it."""
    left = list(targets)
    asked_to = {(target.run.cluster, target.id) for target in targets if target.listening}
    began = asked = clock()
    pause = 1.0
    while left:
        sleep(0.5)
        told = [target for target in left if log_phases.read_end(target.log, target.id) is not None]
        late = clock() - began >= grace
        # without a log to tell it, as of a job that waited, only Slurm knows
        if late or clock() - asked >= (1.0 if told else pause):
            if not told:
                pause = min(10.0, pause * 2)
            asked = clock()
            alive = _alive(left, client)
            if alive is None:
                alive = {(target.run.cluster, target.id): "" for target in left}
            for target in [target for target in left if (target.run.cluster, target.id) not in alive]:
                gone(target)
                left.remove(target)
            begun = [] if now else _begun(left, alive, asked_to)
            if begun:
                with suppress(LaunchError):
                    send(begun, client)
                    asked_to |= {(target.run.cluster, target.id) for target in begun}
                    began, late = clock(), grace <= 0
            if late:
                break
    return left


_Key = tuple[str | None, str]  # a cluster, and an id


def _alive(targets: Sequence[Target], client: SlurmClient) -> dict[_Key, str] | None:
    """The states of those that Slurm has not ended and is not cleaning up after; None when it does not answer."""
    with suppress(SlurmUnavailable):
        states = _states([target.run for target in targets], client)
        return {
            (cluster, one.id): one.state
            for cluster, jobs in states.items()
            for one in jobs
            if not one.ended and one.state not in _ENDING
        }
    return None


def _begun(left: Sequence[Target], alive: Mapping[_Key, str], asked_to: Collection[_Key]) -> list[Target]:
    """Those that listen now, and have not been asked to end."""
    now = [replace(target, state=alive[target.run.cluster, target.id]) for target in left]
    return [target for target in now if target.listening and (target.run.cluster, target.id) not in asked_to]


def still_there(left: Sequence[Target], now: bool, grace: float = GRACE) -> WrongMoment:
    ids = " ".join(target.id for target in left)
    hint = (
        "`squeue --me` tells what Slurm waits for"
        if now
        else f"it may still end; `slurm-launch cancel --now {ids}` does not wait for it"
    )
    return WrongMoment(f"not ended after {grace:g} s: job {ids}", at=left[0].log, hint=hint)
