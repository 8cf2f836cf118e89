"""The user's side of a rehearsal: submit with the stand-ins first in PATH, show the log, clean up."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch.errors import LaunchError, NoCommandCode, Notify, UsageError, warn
from slurm_launch.launch import dependencies
from slurm_launch.launch.job import submit_job
from slurm_launch.process import PathText
from slurm_launch.rehearsal import faults, node_daemon
from slurm_launch.rehearsal.faults import Fault
from slurm_launch.rehearsal.job import (
    Folder,
    Job,
    attempts,
    node_address,
)
from slurm_launch.runs.growing_file import LogFile
from slurm_launch.runs.log_phases import TAIL
from slurm_launch.runs.record import Run
from slurm_launch.slurm.jobs import JobState
from slurm_launch.spec.hetjob import components
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import dependency_flags
from slurm_launch.status import lookup, wait

if TYPE_CHECKING:
    from slurm_launch.spec.script_header import EmbeddedSpec

PROGRAMS = ("sbatch", "srun", "scontrol", "squeue", "scancel")
OWN_DIRECTORIES = (2, 56)  # the Ray from which on each node has its own; 2.53 has not, those between were not tried
POLL = 0.1  # seconds between two looks at the log


class DaemonDied(LaunchError):
    """Something has ended slurmd.py; its job is being ended too."""


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal that went to its end."""

    run: Run
    code: int  # the command's own
    log: str  # of an array, that of the task that was rehearsed


class Audience:
    """Who sees the log. Here nobody does; the command line has one that prints."""

    def text(self, data: bytes) -> None:
        """More of the log, which may end within a character."""

    def tick(self) -> None:
        """A moment in which there may be nothing new."""


def rehearse(
    spec: LaunchSpec,
    *,
    fault: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    embedded: EmbeddedSpec | None = None,
    notify: Notify = warn,
    audience: Audience | None = None,
) -> Rehearsal:
    """Run the script that `submit` would submit, on this machine, to its end; of an array, its first task.

    Raises NoCommandCode when the command did not get to its end, as `follow.wait` does, and UsageError when this
    machine cannot rehearse. Nothing of it stays but the run's files, whatever happens.
    """
    spec = without_waiting(spec, env, cwd, notify)

    def submit(env: Mapping[str, str]) -> Run:
        alone = spec.model_copy(update={"grow": None})  # a rehearsal has one job
        return submit_job(alone, env=env, cwd=cwd, when=when, embedded=embedded, notify=notify)

    return perform(spec, submit, fault=fault, env=env, notify=notify, audience=audience).result()


@dataclass(frozen=True)
class Performance:
    """A job that was played to its end."""

    run: Run
    log: str
    code: int | None  # the command's own
    error: NoCommandCode | None = None  # why there is no code

    def result(self) -> Rehearsal:
        if self.error is not None:
            raise self.error
        assert self.code is not None
        return Rehearsal(self.run, self.code, self.log)


def perform(
    spec: LaunchSpec,
    submit: Callable[[Mapping[str, str]], Run],
    *,
    fault: str | None,
    env: Mapping[str, str] | None,
    notify: Notify,
    audience: Audience | None,
    task: int | None = None,
    job_id: str | None = None,
) -> Performance:
    """Play the job that `submit` gives to the sbatch in the environment that it gets: that task of an array, or the
    first; with that job id, or a new one."""
    env = dict(os.environ if env is None else env)
    wanted = _parse_fault(fault, spec.nodes)
    _check_machine(spec, env, notify)
    with stage() as (folder, lifeline):
        with _disk():
            temp_dir = spec.temp_dir.replace("%u", env.get("USER", ""))
            folder.write("setup.json", {"temp_dir": temp_dir, "task": task, "job_id": job_id})
            faults.write(folder, wanted)
            programs = stand_ins(folder)
        env["PATH"] = f"{programs}{os.pathsep}{env.get('PATH', os.defpath)}"
        _check_found(programs, env["PATH"])
        if job_id is None:
            for note in _notes(spec, wanted, task):
                notify(note)
        run = submit(env)
        job = folder.job()
        assert job is not None
        log = _Log(folder, job)
        try:
            log.show(audience or Audience())
        except BaseException as error:
            _end(log, lifeline, audience or Audience(), notify, error)
            raise
        unplayed = faults.read(folder)
        if unplayed is not None and unplayed.kind.endswith("-dies"):
            notify(f"the job ended before the fault ({fault}) could be played")
        return _judge(log, run, notify)


def without_waiting(
    spec: LaunchSpec, env: Mapping[str, str] | None, cwd: PathText | None, notify: Notify
) -> LaunchSpec:
    """The spec, without runs that only the cluster may know; what is known here stands in the script, as there."""
    try:
        dependencies.resolved(spec, os.environ if env is None else env, cwd)
        return spec
    except UsageError as error:
        notify(f"not in the rehearsed script: {error.at}: {error.message}")
        return dependencies.without(spec)


def _judge(log: _Log, run: Run, notify: Notify) -> Performance:
    """What the end of the job tells."""
    folder, job = log.folder, log.job
    end = folder.state()
    number = str(job.id) if job.array_task is None else f"{job.id}_{job.array_task}"
    reason = None if end.reason == "None" else end.reason
    state = JobState(number, end.state, end.code, end.signal, reason)
    path = lookup.log_of(run, number)
    try:
        return Performance(run, path, wait.command_code(run, state))
    except NoCommandCode as error:
        # After `starting` the script calls srun.
        tried = re.search(rb"\[slurm-launch\] \S+ starting .* phase=bring-up", log.tail(), re.DOTALL)
        if tried and not (folder.path / "steps").exists():
            notify("the job's environment replaced PATH, so the script did not find the rehearsal's srun")
        return Performance(run, path, None, error)


def _parse_fault(text: str | None, nodes: int) -> Fault | None:
    if text is None:
        return None
    try:
        return faults.parse(text, nodes)
    except faults.BadFault as error:
        hint = "the workers are 1, 2, ... and node 0 is the head: --fault worker-dies:1"
        raise UsageError(str(error), at="--fault", hint=hint) from None


def _check_machine(spec: LaunchSpec, env: dict[str, str], notify: Notify) -> None:
    if not sys.platform.startswith("linux"):
        raise UsageError("a rehearsal needs Linux", hint="use a login node, a container or a virtual machine")
    if "PATH" in spec.env:
        raise UsageError(
            "a rehearsal with its own PATH would not find the stand-ins for Slurm's programs",
            at="--env PATH",
            hint="add to the one that is there: --load-env 'export PATH=/dir:$PATH'",
        )
    if spec.image and spec.container_runtime != "pyxis":
        return  # Ray is in the image
    if spec.modules or spec.conda_env or spec.venv or spec.load_env:
        return  # whether Ray is there, the script itself tells
    _find_ray(env, notify)
    if spec.nodes > 1 and (version := _ray_version(env)) and version < OWN_DIRECTORIES:
        notify(
            f"Ray {version[0]}.{version[1]} has one directory for all nodes of a machine, and they may not start"
            f" together: rehearse with one node, or with Ray {OWN_DIRECTORIES[0]}.{OWN_DIRECTORIES[1]}"
        )


def _find_ray(env: dict[str, str], notify: Notify) -> None:
    """The `ray` in PATH; if there is none, that of our own environment."""
    if shutil.which("ray", path=env.get("PATH", os.defpath)):
        return
    beside = os.path.dirname(sys.executable)
    if not shutil.which("ray", path=beside):
        raise UsageError(
            "Ray is not installed here, and a rehearsal runs the real one",
            hint='pip install "slurm-launch[ray]", or name an environment that has it: --venv, --conda-env, --load-env',
        )
    env["PATH"] = f"{beside}{os.pathsep}{env.get('PATH', os.defpath)}"
    notify(f"ray is not in PATH: using the one in {beside}")


def _ray_version(env: Mapping[str, str]) -> tuple[int, int] | None:
    """Of the `ray` in PATH, from the name of its metadata: to ask it would take a second."""
    program = shutil.which("ray", path=env.get("PATH", os.defpath))
    if program is None:
        return None
    for path in Path(program).parent.parent.glob("lib/python*/site-packages/ray-*.dist-info"):
        match = re.match(r"ray-(\d+)\.(\d+)", path.name)
        if match:
            return int(match[1]), int(match[2])
    return None


def _notes(spec: LaunchSpec, fault: Fault | None, task: int | None) -> Iterator[str]:
    nodes = f"{spec.nodes} node{'s' * (spec.nodes > 1)}"
    each = [part.cpus_per_task or 1 for part in components(spec) or [spec]]  # in a heterogeneous job, the head's first
    cpus = (
        f"{each[0]} CPU{'s' * (each[0] > 1)} each" if len(set(each)) == 1 else f"{', '.join(map(str, each))} CPUs each"
    )
    yield f"rehearsing {nodes} on this machine, with {cpus} for Ray"
    yield f"not shown: the queue, limits of memory and GPUs, a network; all nodes share {os.cpu_count()} cores"
    if (spec.array is not None or spec.is_sweep) and task is None:
        yield "of a job array the first task is rehearsed; --tasks chooses others"
    if spec.chain is not None and task is None:
        yield "of a chain the first link is rehearsed; --tasks chooses others"
    if spec.grow is not None:
        yield "the job that is to grow it is not rehearsed"
    if waits := dependency_flags(spec.given()):
        yield f"there is nothing to wait for in a rehearsal, it begins at once: {', '.join(waits)}"
    if spec.requeue:
        yield "a requeued job begins again at once; Slurm would wait for two minutes, and for free nodes"
    if spec.image and spec.container_runtime == "pyxis":
        yield "no container: Pyxis belongs to a cluster, so Ray and the command run in this machine's environment"
        yield "the script still looks for the image and the mounts; --container-runtime none leaves that out"
    if fault is not None:
        yield f"fault: {fault.describe(_node_name(spec, fault.node))}"


def _node_name(spec: LaunchSpec, index: int) -> str:
    from slurm_launch.slurm import hostlist

    return (
        hostlist.expand(spec.node)[index] if spec.node and not spec.own_head else f"node{index} ({node_address(index)})"
    )


@contextmanager
def stage() -> Iterator[tuple[Folder, int]]:
    """The rehearsal's folder with its lifeline, which ends the job when this process does."""
    with _disk():
        folder = Folder(Path(tempfile.mkdtemp(prefix="slurm-launch-rehearsal-")))
    lifeline = -1
    try:
        with _disk():
            os.mkfifo(folder.lifeline, 0o600)
            lifeline = os.open(folder.lifeline, os.O_RDWR | os.O_CLOEXEC)
        yield folder, lifeline
    finally:
        if lifeline >= 0:
            os.close(lifeline)
        started = folder.read("slurmd.json")
        while started is not None and attempts(started["pid"]):
            time.sleep(POLL / 2)  # Ctrl-C is harmless here: it ends the job by itself, and removes the folder
        shutil.rmtree(folder.path, ignore_errors=True)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "set TMPDIR to another directory"
        raise UsageError(f"the rehearsal's own files cannot be written: {error}", hint=hint) from None


def stand_ins(folder: Folder) -> Path:
    """A directory with the stand-ins; they know their folder and their Python, whatever the job's environment is."""
    programs = folder.path / "bin"
    programs.mkdir()
    package = str(Path(__file__).parents[2])
    paths = [path for path in sys.path if os.path.isabs(path)]  # -I leaves out some of them
    for program in PROGRAMS:
        code = (
            f"import sys; sys.path.insert(0, {package!r}); "
            f"sys.path += [path for path in {paths!r} if path not in sys.path]; "
            f"from slurm_launch.rehearsal.fake_program import main; main({program!r}, {str(folder.path)!r})"
        )
        path = programs / program
        # bash, since others drop its exported functions; -p, lest it reads BASH_ENV.
        path.write_text(f'#!/bin/bash -p\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n')
        path.chmod(0o700)
    return programs


def _check_found(programs: Path, path: str) -> None:
    """A real sbatch must never get the script."""
    if shutil.which("sbatch", path=path) != str(programs / "sbatch"):
        raise UsageError(
            f"programs in {programs} cannot be run (noexec, or a colon in its name)",
            hint="set TMPDIR to another directory",
        )


class _Log:
    """The log of the job, shown as it grows; who is interrupted goes on where he was."""

    def __init__(self, folder: Folder, job: Job) -> None:
        self.folder, self.job = folder, job
        self.file = LogFile(job.output)

    def show(self, audience: Audience) -> None:
        """Until the job has ended."""
        while True:
            state = self.folder.state()  # first this, then the log: so nothing of the log is missed
            if data := self.file.read():
                audience.text(data)
            audience.tick()
            if state.over and not data:
                return
            if not state.over:
                self._check_daemon()
            if not data:
                time.sleep(POLL)

    def tail(self) -> bytes:
        return LogFile(self.job.output, last=TAIL).read(TAIL)

    def _check_daemon(self) -> None:
        started = self.folder.read("slurmd.json")
        if (started is None or not attempts(started["pid"])) and not self.folder.state().over:
            said = ""
            with suppress(OSError):
                said = (self.folder.path / "slurmd.err").read_text(errors="replace").strip()
            raise DaemonDied(f"the rehearsal's daemon has died: {said or 'it was killed'}")


def _end(log: _Log, lifeline: int, audience: Audience, notify: Notify, error: BaseException) -> None:
    """End a job that has not ended: as scancel does it, and at a second Ctrl-C at once."""
    if not isinstance(error, (KeyboardInterrupt, SystemExit, DaemonDied)):
        audience = Audience()  # who knows whether it can still listen
    order = b"c"
    try:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            notify("ending the job; Ctrl-C again to kill it")
    except KeyboardInterrupt:
        order = b"k"
    except Exception:
        audience = Audience()
    while True:
        try:
            os.write(lifeline, order)
            log.show(audience)
            return
        except KeyboardInterrupt:
            order = b"k"
        except DaemonDied:
            break
        except Exception:
            if type(audience) is Audience:
                raise  # not the audience's: stage() does what can be done
            audience = Audience()
    deadline = time.monotonic() + node_daemon.KILL_WAIT  # its death was a signal to the script
    while True:
        try:
            left = node_daemon.marked(log.job.id)
            if not left:
                break
            if time.monotonic() > deadline:
                node_daemon.kill(signal.SIGKILL, left)
            time.sleep(POLL)
        except KeyboardInterrupt:
            deadline = 0
    node_daemon.remove_left(log.folder, log.job)
