"""Follow a job to its end, and learn its command's exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slurm_launch import joblog, process, slurm
from slurm_launch.errors import LaunchError, NoCommandCode
from slurm_launch.launch import TIMEOUT, Tell, warn
from slurm_launch.process import Result, Runner
from slurm_launch.runs import Run
from slurm_launch.slurm import JobState
from slurm_launch.slurm_words import how_it_ended


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
    tell: Tell = warn,
) -> int:
    """Follow a job to its end and return the exit code of its command; of an array, the highest one.

    Raises NoCommandCode when the job ended without one: cancelled, time limit, a node lost, or the command
    never started. Slurm not answering is told and waited out. Ctrl-C leaves the job running and says so.
    """
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
        raise LaunchError("the run has no job id to wait for", at=run.record, hint=hint)
    asking = _Asking(run, run.job_id, slurm.query_env(os.environ if env is None else env), runner, timeout)
    try:
        states = _follow(asking, poll, sleep, tell)
    except KeyboardInterrupt:
        tell(f"job {run.job_id} goes on; `scancel {run.job_id}` ends it")
        raise
    return max(command_code(run, state) for state in states)


@dataclass(frozen=True)
class _Asking:
    """How to ask Slurm about one run."""

    run: Run
    job_id: str
    env: Mapping[str, str]
    runner: Runner
    timeout: float

    def __call__(self, argv: list[str]) -> Result:
        return self.runner(argv, env=self.env, timeout=self.timeout)


def _follow(
    ask: _Asking, poll: Callable[[], Iterable[float]], sleep: Callable[[float], object], tell: Tell
) -> list[JobState]:
    """Wait until the job, or all tasks of the array, have ended; how each of them did."""
    ended: dict[str, JobState] = {}  # Slurm forgets tasks minutes after their end, we do not
    seen: dict[str, None] = {}
    silent = False
    for pause in poll():
        states, problem = _ask_state(ask)
        if problem and not silent:
            tell(f"Slurm does not answer about job {ask.job_id}, asking again: {problem}")
        elif silent and not problem:
            tell("Slurm answers again")
        silent = bool(problem)
        for state in states:
            seen[state.id] = None
            ended.pop(state.id, None)  # a task that ended may have been requeued
            if state.ended:
                ended[state.id] = state
        if not problem and all(state.ended for state in states):
            break
        sleep(pause)
    tasks = [task for task in seen if not task.endswith("]")]  # 12_[3-9] wait together and become tasks of their own
    if not ended or any(task not in ended for task in tasks):
        ended = {state.id: state for state in _accounted(ask, poll, sleep)} | ended
    unknown = [task for task in tasks if task not in ended]
    if not ended and not unknown:
        unknown = [ask.job_id]
    return [*ended.values(), *(JobState(task, "UNKNOWN") for task in unknown)]


def _ask_state(ask: _Asking) -> tuple[list[JobState], str | None]:
    """What scontrol knows; no states and no problem means that it has forgotten the job."""
    try:
        result = ask(slurm.show_job_argv(ask.job_id, ask.run.cluster))
    except process.TimedOut as error:
        return [], error.message
    states = slurm.parse_show_job(result.stdout) if result.returncode == 0 else []
    if states or slurm.is_gone(result.stderr):
        return states, None
    return [], result.stderr.strip() or "scontrol said nothing"


def _accounted(ask: _Asking, poll: Callable[[], Iterable[float]], sleep: Callable[[float], object]) -> list[JobState]:
    """How the job, or its tasks, ended according to the accounting, which may lag behind, or not exist."""
    states: list[JobState] = []
    for _, pause in zip(range(5), poll(), strict=False):
        try:
            result = ask(slurm.sacct_argv(ask.job_id, ask.run.cluster))
        except (process.TimedOut, process.NotFound):
            break
        states = slurm.parse_sacct(result.stdout)
        if result.returncode or all(state.ended for state in states):
            break
        sleep(pause)
    return [state for state in states if state.ended]


def command_code(run: Run, job: JobState) -> int:
    """The exit code of the command itself, or NoCommandCode."""
    log = log_of(run, job)
    end = joblog.read_end(log)
    code = job.code
    if job.state == "UNKNOWN" and end is not None:
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


def log_of(run: Run, job: JobState) -> str:
    """The log of a job, or of one task of an array."""
    _, _, task = job.id.partition("_")
    return run.log if not task else f"{run.log.removesuffix('.log')}_{task}.log"
