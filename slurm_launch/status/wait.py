"""Wait for the end of a job, and return its command's exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from slurm_launch import process
from slurm_launch.errors import LaunchError, NoCommandCode, Notify, SlurmUnavailable, warn
from slurm_launch.process import TIMEOUT, Runner
from slurm_launch.runs import log_phases
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.slurm.jobs import JobState
from slurm_launch.slurm.plain_words import describe_end
from slurm_launch.status import chains, lookup, saved_outcomes
from slurm_launch.status.task import UNKNOWN, Task, log_path

TRIES = 5  # queries that do not find a job, after which it is given up: accounting may lag behind


def backoff(first: float = 0.5, longest: float = 5.0) -> Iterator[float]:
    """The pauses between two queries, in seconds: short at first, then longer to limit the load on Slurm."""
    pause = first
    while True:
        yield pause
        pause = min(longest, pause * 1.5)


def wait(
    run: Run,
    *,
    env: Mapping[str, str] | None = None,
    runner: Runner = process.run,
    poll: Callable[[], Iterable[float]] = backoff,
    sleep: Callable[[float], object] = time.sleep,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> int:
    """Wait for the end of a job and return its command's exit code; of an array the highest one, of a chain the last.

    Raises NoCommandCode if the job ended without one: canceled, time limit, a lost node, or the command never
    started. If slurmctld cannot be reached, notifies and retries. Ctrl-C leaves the job running and notifies.
    """
    poller = JobPoller(run, SlurmClient(os.environ if env is None else env, runner, timeout), notify)
    try:
        for pause in poll():
            poller.update(poller.query())
            if poller.over:
                break
            sleep(pause)
    except KeyboardInterrupt:
        notify(keeps_running(run.job_id))
        raise
    saved_outcomes.save(run, [lookup.with_short_log(task) for task in poller.tasks.values()])
    return poller.exit_code()


def keeps_running(job_id: str | None) -> str:
    """The message for a user who stops watching a job."""
    us = "slurm-launch"
    return f"job {job_id} keeps running; `{us} watch {job_id}` resumes watching, `{us} cancel {job_id}` cancels it"


QueryResult = Sequence[Task] | SlurmUnavailable


class JobPoller:
    """The tasks of a run as of the last query. Keeps how they ended: Slurm removes ended jobs within minutes.

    `query` may be called anywhere, such as in a thread; `update` then applies its result.
    """

    def __init__(
        self, run: Run, client: SlurmClient, notify: Notify = warn, only: Callable[[str], bool] | None = None
    ) -> None:
        """With `only`, restricted to the array tasks whose IDs it accepts."""
        if run.job_id is None:
            hint = f"`squeue --me --name={run.exp_name}` shows whether there is a job"
            raise LaunchError("the run has no job ID", at=run.record, hint=hint)
        self.run, self.client, self.notify = run, client, notify
        self.job_id = run.job_id
        self.tasks: dict[str, Task] = {}
        self.problem: str | None = None  # why slurmctld could not be reached by the last query
        self._only = only
        self._missed = 0
        self._traceless: dict[str, int] = {}  # for each task that no source knows: for how many queries

    def query(self) -> QueryResult:
        """Query Slurm once. If it cannot be reached, return the error; raise NotFound if Slurm is not installed."""
        try:
            given_up = {task_id for task_id, times in self._traceless.items() if times >= TRIES}
            return lookup.look_up(self._run_with_outcomes(), self.client, logs=False, given_up=given_up)
        except process.NotFound:
            raise
        except SlurmUnavailable as error:
            return error

    def _run_with_outcomes(self) -> Run:
        """The run with the outcomes known so far, so that Slurm is not queried for them again."""
        ended = {task.id: saved_outcomes.to_record(task) for task in self.tasks.values() if task.ended}
        cancelled = self.run.cancelled
        with suppress(LaunchError):
            cancelled = records.read(self.run.record).cancelled  # it may have been canceled in the meantime
        return replace(self.run, tasks={**self.run.tasks, **ended}, cancelled=cancelled)

    def update(self, result: QueryResult) -> None:
        """Apply the result of a query."""
        if isinstance(result, SlurmUnavailable):
            self._note_problem(result)
            return
        if self.problem is not None:
            self.notify("slurmctld is reachable again")
        self.problem = None
        known = {task.id: task for task in result if task.source != "none"}
        traceless = [one for task in result if task.id not in known for one in array_ids.task_ids(task.id)]
        self._traceless = {task_id: self._traceless.get(task_id, 0) + 1 for task_id in traceless}
        if self._only is not None:
            known = {task_id: task for task_id, task in known.items() if self._only(task_id)}
        self._update_tasks(known)

    def _note_problem(self, error: SlurmUnavailable) -> None:
        problem = error.message.removeprefix("cannot reach slurmctld:").strip()
        if self.problem is None:
            self.notify(f"cannot reach slurmctld (job {self.job_id}), retrying: {problem}")
        self.problem = problem

    def _update_tasks(self, known: Mapping[str, Task]) -> None:
        if known:
            # 12_[3-9] is one entry while pending, and is replaced by the tasks themselves
            self.tasks = {task_id: task for task_id, task in self.tasks.items() if not task_id.endswith("]")}
        active = [task for task in self.tasks.values() if not task.ended and task.state != UNKNOWN]
        missing = [task for task in active if task.id not in known]
        # A task that has ended comes back from the record: keep what its first source reported.
        ended = {task_id for task_id, task in self.tasks.items() if task.ended}
        self.tasks |= {task.id: task for task in known.values() if task.source != "record" or task.id not in ended}
        self._missed = self._missed + 1 if missing or not known else 0
        if self._missed >= TRIES:
            lost = missing if self.tasks else [Task(self.job_id, UNKNOWN, "none", self.run.log)]
            self.tasks |= {task.id: replace(task, state=UNKNOWN, source="none") for task in lost}

    @property
    def over(self) -> bool:
        """Whether all tasks have ended or were given up."""
        return bool(self.tasks) and all(task.ended or task.state == UNKNOWN for task in self.tasks.values())

    def exit_code(self) -> int:
        """The command's exit code; of an array the highest one, of a chain the last. Raises NoCommandCode."""
        return max(command_code(self.run, task) for task in chains.deciding_tasks(self.run, [*self.tasks.values()]))


def command_code(run: Run, job: Task | JobState) -> int:
    """The exit code of the command itself. Raises NoCommandCode if there is none."""
    log = log_path(run, job.id)
    end = log_phases.read_end(log, job.id)
    code = job.code
    # If a process of the command is killed for memory, Slurm replaces the exit code of the script.
    if job.state in (UNKNOWN, "OUT_OF_MEMORY") and end is not None:
        code = end.code
    if code == 0 or (code is not None and (end is None or end.command_ended)):
        return code
    if code is not None and end is not None:
        raise NoCommandCode(
            f"job {job.id} ended before its command did: {end.cause or end.outcome} (exit code {code})",
            at=log,
            hint=end.hint,
        )
    how = describe_end(job.state, signal=job.signal)
    why = f" ({job.reason})" if job.reason else ""
    raise NoCommandCode(f"job {job.id} {how}{why}, without an exit code of its command", at=log)
