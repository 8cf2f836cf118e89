"""From a spec to a script, to a job, to its end: the Python API, and what the command line calls."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch import __version__, artifacts, process, runs, slurm
from slurm_launch.errors import LaunchError, NoCommandCode, SlurmUnavailable, SubmitRefused, UsageError
from slurm_launch.process import Result, Runner
from slurm_launch.runs import Run
from slurm_launch.slurm import JobState
from slurm_launch.spec import LaunchSpec

if TYPE_CHECKING:
    from slurm_launch.script import Embedded

Tell = Callable[[str], object]  # gets what the user should know beside the result, a line at a time
PathText = str | os.PathLike[str]
_warn: Tell = logging.getLogger("slurm_launch").warning
TIMEOUT = 60.0  # seconds that Slurm has for an answer


def render(
    spec: LaunchSpec,
    *,
    name: str | None = None,
    when: datetime | None = None,
    run_dir: str | None = None,
    embedded: Embedded | None = None,
) -> str:
    """The script for a spec, as text.

    The same arguments give the same bytes. `name` is the run's name, by default `<exp_name>_<date>-<time>` of
    `when`, which is by default now. `run_dir` is the directory of the log as the job sees it, by default the
    spec's. `embedded` is the origin of the spec that the header tells, by default the values given.
    """
    from slurm_launch.script import render_script  # jinja2 costs time

    when = _local(when)
    return render_script(
        spec,
        name=artifacts.run_name(spec.exp_name, when) if name is None else name,
        when=when,
        run_dir=spec.run_dir if run_dir is None else run_dir,
        embedded=embedded,
    )


@dataclass(frozen=True)
class Plan:
    """What a submission would do."""

    name: str
    text: str  # of the script
    script: str
    log: str
    record: str
    run_dir: str
    submit_dir: str
    argv: list[str]
    dropped: slurm.Dropped  # what sbatch would not get to see of the environment


def plan(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    embedded: Embedded | None = None,
) -> Plan:
    """What `submit` with the same arguments would do; nothing is written and Slurm is not asked."""
    env = os.environ if env is None else env
    when = _local(when)
    place = _place(spec, cwd, env)
    files = artifacts.free_files(place.run_dir, spec.exp_name, when)
    _, dropped = slurm.scrub(env, spec.sbatch)
    return Plan(
        name=files.name,
        text=render(spec, name=files.name, when=when, run_dir=place.in_script, embedded=embedded),
        script=str(files.script),
        log=str(files.log),
        record=str(files.record),
        run_dir=str(place.run_dir),
        submit_dir=place.submit_dir,
        argv=slurm.sbatch_argv(str(files.script), hold=hold),
        dropped=dropped,
    )


def submit(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: Embedded | None = None,
    timeout: float = TIMEOUT,
    tell: Tell = _warn,
) -> Run:
    """Write the script, hand it to sbatch, write the record.

    The job runs in `cwd` (by default here) with the environment `env` (by default ours), less what would
    override the script: `tell` hears of it, and of sbatch's own warnings.

    Raises UsageError when a file cannot be written, SubmitRefused when sbatch says no (the script is kept),
    SlurmUnavailable when there is no sbatch or no answer. At Ctrl-C before sbatch was asked nothing is left.
    """
    env = os.environ if env is None else env
    when = _local(when)
    place = _place(spec, cwd, env)
    clean, dropped = slurm.scrub(env, spec.sbatch)
    made: list[Path] = []
    files: artifacts.Files | None = None
    asked = False

    def text_of(name: str) -> str:
        return render(spec, name=name, when=when, run_dir=place.in_script, embedded=embedded)

    try:
        # The log stands in there too: where its directory is missing, Slurm accepts the job and loses it.
        made = artifacts.make_directory(place.run_dir)
        files = artifacts.create_script(place.run_dir, spec.exp_name, when, text_of)
        argv = slurm.sbatch_argv(str(files.script), hold=hold)
        run = _new_run(spec, place, files, when, argv)
        runs.write(run)  # before there is a job: a job without a record would be lost
        for note in dropped.notes():
            tell(note)
        asked = True
        return _ask(run, clean | {"PWD": place.submit_dir}, runner, timeout, tell)
    except BaseException as error:
        if not asked or isinstance(error, process.NotFound):
            if files is not None:
                artifacts.remove(files.script)
                artifacts.remove(files.record)
            artifacts.remove_directories(made)
        raise


def _ask(run: Run, env: Mapping[str, str], runner: Runner, timeout: float, tell: Tell) -> Run:
    """Hand the script to sbatch; returns the run with its job."""
    look = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
    try:
        result = runner(run.argv, env=env, cwd=run.submit_dir, timeout=timeout)
        job_id, cluster = _judge(run, result, look)
    except process.TimedOut as error:
        raise SlurmUnavailable(error.message, at=f"{run.script} (kept)", hint=look) from None
    except KeyboardInterrupt:
        tell(f"interrupted while sbatch was at work: {look}; the script is kept: {run.script}")
        raise
    for line in result.stderr.splitlines():  # a warning of Slurm's or of the site's
        tell(line)
    run = run.with_job(job_id, cluster, _utc(datetime.now(timezone.utc)))
    try:
        runs.update(run)
    except UsageError as error:  # the job is there: to fail now would make people submit it again
        tell(f"job {job_id} is submitted, but its record lacks the job id: {error}")
    except KeyboardInterrupt:
        tell(f"job {job_id} is submitted and goes on; `scancel {job_id}` ends it")
        raise
    return run


def _judge(run: Run, result: Result, look: str) -> tuple[str, str | None]:
    """The job id and cluster of sbatch's answer, or the error that it is."""
    said = "\n".join(text.strip("\n") for text in (result.stderr, result.stdout) if text.strip())
    kept = f"{run.script} (kept)"
    if result.returncode == 0:
        found = slurm.parse_job_id(result.stdout)
        if found is None:
            raise SlurmUnavailable(f"sbatch gave no job id:\n{said or '(nothing)'}", at=kept, hint=look)
        return found
    if result.returncode < 0:
        raise SlurmUnavailable(f"sbatch was killed by signal {-result.returncode}\n{said}".rstrip(), at=kept, hint=look)
    if slurm.is_unreachable(result.stderr):
        if not slurm.is_lost(result.stderr):
            artifacts.remove(Path(run.record))
        hint = look if slurm.is_lost(result.stderr) else f"`scontrol ping` tells; later: sbatch {run.script}"
        raise SlurmUnavailable(f"Slurm does not answer:\n{said}", at=kept, hint=hint)
    artifacts.remove(Path(run.record))  # there is no job
    message = f"sbatch refused the job (exit code {result.returncode}):\n{said or '(without a word)'}"
    hint = slurm.hint_for(said) or f"correct it and submit again, or edit the script and run: sbatch {run.script}"
    raise SubmitRefused(message, at=kept, hint=hint)


@dataclass(frozen=True)
class _Place:
    submit_dir: str
    run_dir: Path
    in_script: str  # the run directory as the job finds it


def _place(spec: LaunchSpec, cwd: PathText | None, env: Mapping[str, str]) -> _Place:
    try:
        submit_dir = os.path.abspath(os.getcwd() if cwd is None else cwd)
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", hint="cd to one that does") from None
    given = spec.run_dir
    if given == "~" or given.startswith("~/"):  # from YAML, where no shell has done it
        given = env.get("HOME", "~") + given[1:]
    run_dir = Path(os.path.normpath(os.path.join(submit_dir, given)))
    # Slurm takes a relative log from the job's directory, which is where sbatch runs unless --chdir says otherwise.
    # It fills in %-patterns after that, so those of the directory would be taken for its own.
    relative = not os.path.isabs(given) and spec.chdir is None and "chdir" not in spec.sbatch and "%" not in submit_dir
    return _Place(submit_dir, run_dir, given if relative else str(run_dir))


def _new_run(spec: LaunchSpec, place: _Place, files: artifacts.Files, when: datetime, argv: list[str]) -> Run:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        user = str(os.getuid())
    return Run(
        name=files.name,
        exp_name=spec.exp_name,
        spec=spec.given(),
        job_id=None,
        cluster=None,
        script=str(files.script),
        log=str(files.log),
        record=str(files.record),
        run_dir=str(files.directory),
        submit_dir=place.submit_dir,
        created=_utc(when),
        submitted=None,
        argv=argv,
        user=user,
        host=socket.gethostname(),
        version=__version__,
    )


def _local(when: datetime | None) -> datetime:
    """A time in the local zone, as people read it in file names."""
    return (datetime.now() if when is None else when).astimezone()


def _utc(when: datetime) -> str:
    return when.astimezone(timezone.utc).isoformat(timespec="seconds")


# To the end of the job


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
    tell: Tell = _warn,
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
    return max(_command_code(run, state) for state in states)


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


_ENDINGS = {
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "DEADLINE": "could not end before its deadline",
    "NODE_FAIL": "lost a node",
    "BOOT_FAIL": "failed because a node did not boot",
    "PREEMPTED": "was preempted",
    "OUT_OF_MEMORY": "ran out of memory",
    "UNKNOWN": "has left the queue without a trace",
}


def _command_code(run: Run, job: JobState) -> int:
    """The exit code of the command itself, or NoCommandCode."""
    log = _log_of(run, job)
    end = runs.read_end(log)
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
    how = _ENDINGS.get(job.state, f"ended as {job.state}")
    if job.state == "FAILED":
        how = f"was killed by signal {job.signal}" if 0 < job.signal < 32 else "could not start"
    why = f" ({job.reason})" if job.reason else ""
    raise NoCommandCode(f"job {job.id} {how}{why}, without an exit code of its command", at=log)


def _log_of(run: Run, job: JobState) -> str:
    """The log of a job, or of one task of an array."""
    _, _, task = job.id.partition("_")
    return run.log if not task else f"{run.log.removesuffix('.log')}_{task}.log"
