"""Into a running job: which of its tasks is meant, whether it is up, and the srun that gets there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.errors import (
    LaunchError,
    SlurmUnavailable,
    UsageError,
    WrongMoment,
)
from slurm_launch.rendering.templates import TEMPLATES
from slurm_launch.runs import log_phases, search
from slurm_launch.runs.log_phases import Attempt
from slurm_launch.runs.record import Run
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import jobs
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.status import lookup
from slurm_launch.status.task import Task


@dataclass(frozen=True)
class Place:
    """A job whose command runs, and where."""

    run: Run
    task: str  # 12, or 12_3
    job: str  # Slurm's number for it: a task of an array has one of its own
    head: str
    directory: str  # the beginning of the job's directories on the nodes
    attempt: Attempt
    log: str
    parts: tuple[str, ...] = ()  # the nodes of each component of a heterogeneous job


def find(run: Run, argument: str | None, client: SlurmClient) -> Place:
    """Where a run's command is at work, or WrongMoment with what it does instead.

    `argument` is how the user named the run: 12_3 is a task of an array."""
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
        raise WrongMoment("the run has no job id", at=run.record, hint=hint)
    task = choose(run, argument, lookup.look(run, client))
    if task.phase != "command":
        raise not_up(run, task)
    attempt = task.attempt
    if attempt is not None and attempt.main is not None:
        hint = f"slurm-launch attach {attempt.main}"
        raise WrongMoment(
            f"job {task.id} has no command of its own: its nodes are part of job {attempt.main}", hint=hint
        )
    job = attempt.job if attempt and attempt.job else task.id
    if attempt is None or attempt.head is None or attempt.directory is None or not job.isdigit():
        hint = "its script was made by an older slurm-launch, or edited"
        raise WrongMoment(f"the log of job {task.id} does not tell where its Ray is", at=task.log, hint=hint)
    return Place(run, task.id, job, attempt.head, attempt.directory, attempt, task.log, task.parts)


def task_of(run: Run, argument: str | None) -> str | None:
    """The task of an array that an argument names, as 12_3; None when it names a whole run."""
    ids = search.task_ids_in(run, argument)
    if ids is not None and len(ids) > 1:
        raise UsageError(f"{argument} are {len(ids)} tasks", at="RUN", hint=f"name one of them, such as {ids[0]}")
    return ids[0] if ids else None


def choose(run: Run, argument: str | None, tasks: Sequence[Task]) -> Task:
    """The one that is meant; of an array the one that runs, if there is but one."""
    wanted = task_of(run, argument)
    if wanted is not None:
        return lookup.these(run, tasks, [wanted])[0]
    running = [task for task in tasks if task.running]
    if len(tasks) == 1 or len(running) == 1:
        return (running or list(tasks))[0]
    if not running:
        raise WrongMoment(f"no task of job {run.job_id} runs", hint=_tasks(tasks))
    hint = f"say which: {', '.join(task.id for task in running[:20])}{' ...' if len(running) > 20 else ''}"
    raise UsageError(f"job {run.job_id} is an array of which {len(running)} tasks run", at="RUN", hint=hint)


def _tasks(tasks: Sequence[Task]) -> str:
    shown = ", ".join(f"{task.id} {task.state}" for task in tasks[:10])
    return f"there are: {shown}{' ...' if len(tasks) > 10 else ''}"


def not_up(run: Run, task: Task) -> WrongMoment:
    what = f"job {task.id or run.name} {task.in_words}"
    if task.phase in ("ended", "stopping", "unknown"):
        return WrongMoment(what, at=task.log, hint="nothing can be reached in it any more")
    return WrongMoment(what, at=task.log, hint=f"`slurm-launch watch {run.name}` shows when it is up; try again then")


def argv(
    place: Place, words: Sequence[str], *, node: str | None = None, pty: bool = False, unbuffered: bool = False
) -> list[str]:
    """srun for a command, or without words a shell, with the environment of the job's own command."""
    code = (TEMPLATES / "attach.sh").read_text(encoding="utf-8")
    label = re.sub(r"[^\w.-]", "", place.run.name)
    to = (place.job, place.head, place.run.cluster)
    step = jobs.step_argv(*to, parts=place.parts, pty=pty, unbuffered=unbuffered)
    stream = "--pty" if pty else "--unbuffered" if unbuffered else ""  # for a srun within this one
    return [*step, "bash", "-c", code, "attach", place.directory, label, node or "", stream, *words]


def run(
    place: Place,
    words: Sequence[str],
    *,
    node: str | None,
    pty: bool,
    env: Mapping[str, str],
    show: Callable[[bytes], object],
) -> int:
    """Run a command in the job on our own terminal and files; returns its exit code. `show` gets its stderr."""
    ear = Ear(show)
    code = process.interact(argv(place, words, node=node, pty=pty), env=slurm_environment.query_env(env), hear=ear.hear)
    ear.close()
    if code and not ear.task_ended:
        raise srun_failed(ear.said, place)
    if ear.said:
        show(ear.said.encode())
    return code


def srun_failed(said: str, place: Place) -> LaunchError:
    """srun did not get to the command."""
    ended = ending(place)
    if ended:
        return WrongMoment(f"job {place.task} {ended}", at=place.log)
    said = said.strip() or "(without a word)"
    if re.search("denied", said, re.IGNORECASE):
        return UsageError(f"Slurm does not let you into job {place.task}:\n{said}", hint="only its owner gets there")
    hint = "`squeue --me` tells whether the job still runs, `scontrol ping` whether Slurm is up"
    return SlurmUnavailable(f"srun failed for job {place.task}:\n{said}", hint=hint)


def ending(place: Place) -> str | None:
    """What the log tells of the job's end, in words that follow `job 12`; None while it goes on."""
    try:
        attempt = log_phases.read(place.log).last
    except OSError:
        return None
    if attempt.end is not None:
        return f"has ended: {attempt.end.cause or attempt.end.outcome}"
    return "is ending: its command is over" if attempt.phase == "stopping" else None


class Ear:
    """Listens to srun's stderr: its errors are kept, its chatter is dropped, all else is shown at once."""

    _START = b"srun: "
    # srun tells of every exit code but 0, and of a step's end by a signal
    _TASK = re.compile(r"srun: error: \S+: task 0: (.*)")
    _CHATTER = re.compile(
        r"srun: (Force Terminated|cluster configuration lacks support|Job step aborted|error: \S+: task 0: |"
        r"forcing (step|job) termination|Step created|First task exited|sending Ctrl-C)"
    )

    def __init__(self, show: Callable[[bytes], object]) -> None:
        self.show = show
        self.task_ended = False  # the command was started, and has ended
        self.said = ""  # the errors of srun's own
        self._line = b""  # an unfinished line that may be srun's
        self._within = False  # a line that is not srun's is on its way

    def hear(self, data: bytes) -> None:
        for part in data.splitlines(keepends=True):
            if self._within:
                self.show(part)
            else:
                self._line += part
                if not (self._line.startswith(self._START) or self._START.startswith(self._line)):
                    self.show(self._line)
                    self._line = b""
                elif self._line.endswith(b"\n"):
                    self._take()
            self._within = not self._line and not part.endswith((b"\n", b"\r"))

    def _take(self) -> None:
        line, self._line = self._line, b""
        text = line.decode(errors="replace").rstrip("\r\n")
        self.task_ended = self.task_ended or self._TASK.fullmatch(text) is not None
        if text.startswith(("srun: error:", "srun: fatal:")) and not self._CHATTER.match(text):
            self.said += text + "\n"
        elif not self._CHATTER.match(text):
            self.show(line)

    def close(self) -> None:
        if self._line:
            self._take()


def token(place: Place, client: SlurmClient) -> str:
    """The token of the job's Ray, by srun: it never stands on a command line or in a file here."""
    if place.attempt.auth != "token":
        raise WrongMoment(f"job {place.task} was started with --auth off: its Ray asks for no token")
    code = '[[ -O $1.0 && ! -L $1.0 ]] && exec cat -- "$1.0/token"'
    step = jobs.step_argv(place.job, place.head, place.run.cluster, parts=place.parts)
    result = client([*step, "bash", "-c", code, "bash", place.directory])
    found = result.stdout.strip()
    if result.returncode or not found:
        raise srun_failed(result.stderr, place)
    return found
