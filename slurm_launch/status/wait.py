"""Follow a job to its end, and learn its command's exit code."""

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
from slurm_launch.slurm.plain_words import how_it_ended
from slurm_launch.status import chains, lookup
from slurm_launch.status.task import UNKNOWN, Task

TRIES = 5  # questions after which a job of which nothing is known any more is given up: the accounting may lag behind


def backoff(first: float = 0.5, longest: float = 5.0) -> Iterator[float]:
    """The pauses between two questions to Slurm: short at first, never a burden."""
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
    """Follow a job to its end and return its command's exit code; of an array the highest one, of a chain the last.

    Raises NoCommandCode when the job ended without one: cancelled, time limit, a node lost, or the command
    never started. Slurm not answering is told and waited out. Ctrl-C leaves the job running and says so.
    """
    follower = Follower(run, SlurmClient(os.environ if env is None else env, runner, timeout), notify)
    try:
        for pause in poll():
            follower.take(follower.ask())
            if follower.over:
                break
            sleep(pause)
    except KeyboardInterrupt:
        notify(keeps_running(run.job_id))
        raise
    lookup.remember(run, [lookup.completed(task) for task in follower.tasks.values()])
    return follower.code()


def keeps_running(job_id: str | None) -> str:
    """What is said to somebody who stops looking at a job."""
    us = "slurm-launch"
    return f"job {job_id} goes on; `{us} watch {job_id}` comes back to it, `{us} cancel {job_id}` ends it"


Answer = Sequence[Task] | SlurmUnavailable


class Follower:
    """The tasks of a run, as Slurm told of them last. How they ended is remembered: Slurm forgets it within minutes.

    `ask` may be called anywhere, such as in a thread; `take` then tells what came of it.
    """

    def __init__(
        self, run: Run, client: SlurmClient, notify: Notify = warn, only: Callable[[str], bool] | None = None
    ) -> None:
        """With `only`, of the tasks of an array those alone to whose ids it says yes."""
        if run.job_id is None:
            hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
            raise LaunchError("the run has no job id to follow", at=run.record, hint=hint)
        self.run, self.client, self.notify = run, client, notify
        self.job_id = run.job_id
        self.tasks: dict[str, Task] = {}
        self.problem: str | None = None  # why Slurm has not answered the last question
        self._only = only
        self._missed = 0
        self._traceless: dict[str, int] = {}  # for how many questions nobody has known anything of a task

    def ask(self) -> Answer:
        """One look; a Slurm that does not answer is an answer too. Raises NotFound where there is no Slurm."""
        try:
            given_up = {task_id for task_id, times in self._traceless.items() if times >= TRIES}
            return lookup.look(self._known(), self.client, logs=False, given_up=given_up)
        except process.NotFound:
            raise
        except SlurmUnavailable as error:
            return error

    def _known(self) -> Run:
        """The run, with those of its tasks that have ended: Slurm is not asked for them again and again."""
        ended = {task.id: lookup.memory(task) for task in self.tasks.values() if task.ended}
        cancelled = self.run.cancelled
        with suppress(LaunchError):
            cancelled = records.read(self.run.record).cancelled  # perhaps a moment ago
        return replace(self.run, tasks={**self.run.tasks, **ended}, cancelled=cancelled)

    def take(self, answer: Answer) -> None:
        if isinstance(answer, SlurmUnavailable):
            said = answer.message.removeprefix("Slurm does not answer:").strip()
            if self.problem is None:
                self.notify(f"Slurm does not answer about job {self.job_id}, asking again: {said}")
            self.problem = said
            return
        if self.problem is not None:
            self.notify("Slurm answers again")
        self.problem = None
        known = {task.id: task for task in answer if task.source != "none"}
        traceless = [one for task in answer if task.id not in known for one in array_ids.task_ids(task.id)]
        self._traceless = {task_id: self._traceless.get(task_id, 0) + 1 for task_id in traceless}
        if self._only is not None:
            known = {task_id: task for task_id, task in known.items() if self._only(task_id)}
        if known:
            # 12_[3-9] wait together, and become tasks of their own
            self.tasks = {task_id: task for task_id, task in self.tasks.items() if not task_id.endswith("]")}
        going_on = [task for task in self.tasks.values() if not task.ended and task.state != UNKNOWN]
        missing = [task for task in going_on if task.id not in known]
        # What has ended comes back as the record's: who said so first, and what, stays.
        ended = {task_id for task_id, task in self.tasks.items() if task.ended}
        self.tasks |= {task.id: task for task in known.values() if task.source != "record" or task.id not in ended}
        self._missed = self._missed + 1 if missing or not known else 0
        if self._missed >= TRIES:
            lost = missing if self.tasks else [Task(self.job_id, UNKNOWN, "none", self.run.log)]
            self.tasks |= {task.id: replace(task, state=UNKNOWN, source="none") for task in lost}

    @property
    def over(self) -> bool:
        """Whether all of it has ended, or nobody knows any more."""
        return bool(self.tasks) and all(task.ended or task.state == UNKNOWN for task in self.tasks.values())

    def code(self) -> int:
        """The exit code of the command, of an array the highest one, of a chain the last one; or NoCommandCode."""
        return max(command_code(self.run, task) for task in chains.that_count(self.run, [*self.tasks.values()]))


def command_code(run: Run, job: Task | JobState) -> int:
    """The exit code of the command itself, or NoCommandCode."""
    log = lookup.log_of(run, job.id)
    end = log_phases.read_end(log, job.id)
    code = job.code
    if job.state == UNKNOWN and end is not None:
        code = end.code
    if code == 0 or (code is not None and (end is None or end.command_ended)):
        return code
    if code is not None and end is not None:
        raise NoCommandCode(
            f"job {job.id} ended before its command did: {end.cause or end.outcome} (exit code {code})",
            at=log,
            hint=end.hint,
        )
    how = how_it_ended(job.state, signal=job.signal)
    why = f" ({job.reason})" if job.reason else ""
    raise NoCommandCode(f"job {job.id} {how}{why}, without an exit code of its command", at=log)
