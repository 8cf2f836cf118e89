"""The user's side of a rehearsal: submit with the fake Slurm commands first in PATH, show the log, clean up."""

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
from slurm_launch.rehearsal.job import CANCEL, KILL, RehearsalFolder, RehearsedJob, is_alive, node_address
from slurm_launch.runs.growing_file import LogFile
from slurm_launch.runs.log_phases import TAIL
from slurm_launch.runs.record import Run
from slurm_launch.slurm.jobs import JobState
from slurm_launch.spec.hetjob import components
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import dependency_flags
from slurm_launch.status import wait
from slurm_launch.status.task import log_path

if TYPE_CHECKING:
    from slurm_launch.spec.script_header import EmbeddedSpec

PROGRAMS = ("sbatch", "srun", "scontrol", "squeue", "scancel")
OWN_DIRECTORIES = (2, 56)  # the first Ray with a directory for each node; 2.53 has none, 2.54 and 2.55 are untested
POLL = 0.1  # seconds between two reads of the log


class DaemonDied(LaunchError):
    """The rehearsal's node daemon was killed; its job is being ended too."""


@dataclass(frozen=True)
class Rehearsal:
    """A completed rehearsal."""

    run: Run
    code: int  # the command's exit code
    log: str  # of an array, the log of the rehearsed task


class LogObserver:
    """Receives the log as it grows. This one ignores it; the command line has one that prints it."""

    def on_data(self, data: bytes) -> None:
        """More of the log; it may end in the middle of a character."""

    def on_poll(self) -> None:
        """Called after every read of the log, also if there was nothing new."""


def rehearse(
    spec: LaunchSpec,
    *,
    fault: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    embedded: EmbeddedSpec | None = None,
    notify: Notify = warn,
    observer: LogObserver | None = None,
) -> Rehearsal:
    """Run the script that `submit` would submit on this machine; of an array, its first task.

    Raises NoCommandCode if the job ended without the command's exit code, and UsageError if this machine cannot
    rehearse. Only the run's files are left behind, whatever happens.
    """
    spec = without_unknown_dependencies(spec, env, cwd, notify)

    def submit(env: Mapping[str, str]) -> Run:
        alone = spec.model_copy(update={"grow": None})  # a rehearsal has only one job
        return submit_job(alone, env=env, cwd=cwd, when=when, embedded=embedded, notify=notify)

    return simulate(spec, submit, fault=fault, env=env, notify=notify, observer=observer).completed()


@dataclass(frozen=True)
class RehearsedRun:
    """A job that was rehearsed to its end."""

    run: Run
    log: str
    code: int | None  # the command's exit code
    error: NoCommandCode | None = None  # the reason if there is none

    def completed(self) -> Rehearsal:
        if self.error is not None:
            raise self.error
        assert self.code is not None
        return Rehearsal(self.run, self.code, self.log)


def simulate(
    spec: LaunchSpec,
    submit: Callable[[Mapping[str, str]], Run],
    *,
    fault: str | None,
    env: Mapping[str, str] | None,
    notify: Notify,
    observer: LogObserver | None,
    task: int | None = None,
    job_id: str | None = None,
) -> RehearsedRun:
    """Run the job that `submit` passes to the sbatch of the environment it is called with.

    `task` is the array task to run (default: the first), `job_id` an existing job ID (default: a new one)."""
    env = dict(os.environ if env is None else env)
    wanted = _parse_fault(fault, spec.nodes)
    _check_machine(spec, env, notify)
    with rehearsal_folder() as (folder, control_pipe):
        with _disk_errors():
            temp_dir = spec.temp_dir.replace("%u", env.get("USER", ""))
            folder.write("setup.json", {"temp_dir": temp_dir, "task": task, "job_id": job_id})
            faults.write(folder, wanted)
            programs = install_fake_commands(folder)
        env["PATH"] = f"{programs}{os.pathsep}{env.get('PATH', os.defpath)}"
        _check_executable(programs, env["PATH"])
        if job_id is None:
            for note in _notes(spec, wanted, task):
                notify(note)
        run = submit(env)
        job = folder.job()
        assert job is not None
        log = _LogFollower(folder, job)
        try:
            log.show(observer or LogObserver())
        except BaseException as error:
            _cancel_job(log, control_pipe, observer or LogObserver(), notify, error)
            raise
        remaining = faults.read(folder)
        if remaining is not None and remaining.kind.endswith("-dies"):
            notify(f"the job ended before the fault ({fault}) was injected")
        return _result(log, run, notify)


def without_unknown_dependencies(
    spec: LaunchSpec, env: Mapping[str, str] | None, cwd: PathText | None, notify: Notify
) -> LaunchSpec:
    """The spec; without its dependencies if one of them is not known on this machine."""
    try:
        dependencies.job_ids(spec, os.environ if env is None else env, cwd)
        return spec
    except UsageError as error:
        notify(f"not in the rehearsed script: {error.at}: {error.message}")
        return dependencies.without_dependencies(spec)


def _result(log: _LogFollower, run: Run, notify: Notify) -> RehearsedRun:
    """The result of the job, from its final state."""
    folder, job = log.folder, log.job
    end = folder.state()
    number = str(job.id) if job.array_task is None else f"{job.id}_{job.array_task}"
    reason = None if end.reason == "None" else end.reason
    state = JobState(number, end.state, end.code, end.signal, reason)
    path = log_path(run, number)
    try:
        return RehearsedRun(run, path, wait.command_code(run, state))
    except NoCommandCode as error:
        # The script calls srun after `starting`.
        tried = re.search(rb"\[slurm-launch\] \S+ starting .* phase=bring-up", log.tail(), re.DOTALL)
        if tried and not (folder.path / "steps").exists():
            notify("the job's environment replaces PATH, so the script did not find the rehearsal's srun")
        return RehearsedRun(run, path, None, error)


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
            "a job with its own PATH does not find the rehearsal's fake Slurm commands",
            at="--env PATH",
            hint="extend the existing PATH: --load-env 'export PATH=/dir:$PATH'",
        )
    if spec.image and spec.container_runtime != "pyxis":
        return  # Ray is in the image
    if spec.modules or spec.conda_env or spec.venv or spec.load_env:
        return  # the script itself checks for Ray
    _find_ray(env, notify)
    if spec.nodes > 1 and (version := _ray_version(env)) and version < OWN_DIRECTORIES:
        notify(
            f"Ray {version[0]}.{version[1]} has one directory for all nodes of a machine, so several may fail to start:"
            f" rehearse with one node, or with Ray {OWN_DIRECTORIES[0]}.{OWN_DIRECTORIES[1]}"
        )


def _find_ray(env: dict[str, str], notify: Notify) -> None:
    """Make sure that `ray` is in PATH: if it is missing, add the directory of this Python."""
    if shutil.which("ray", path=env.get("PATH", os.defpath)):
        return
    beside = os.path.dirname(sys.executable)
    if not shutil.which("ray", path=beside):
        raise UsageError(
            "Ray is not installed here, and a rehearsal runs the real one",
            hint='pip install "slurm-launch[ray]", or use an environment that has it: --venv, --conda-env, --load-env',
        )
    env["PATH"] = f"{beside}{os.pathsep}{env.get('PATH', os.defpath)}"
    notify(f"ray is not in PATH: using the one in {beside}")


def _ray_version(env: Mapping[str, str]) -> tuple[int, int] | None:
    """The version of the `ray` in PATH, from the name of its metadata directory: `ray --version` takes a second."""
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
    yield f"not simulated: the queue, memory limits, GPUs, the network; all nodes share {os.cpu_count()} cores"
    if (spec.array is not None or spec.is_sweep) and task is None:
        yield "only the first task of the array is rehearsed; choose others with --tasks"
    if spec.chain is not None and task is None:
        yield "only the first link of the chain is rehearsed; choose others with --tasks"
    if spec.grow is not None:
        yield "--grow: the additional job is not rehearsed"
    if waits := dependency_flags(spec.given()):
        yield f"dependencies have no effect in a rehearsal; it starts at once: {', '.join(waits)}"
    if spec.requeue:
        yield "a requeued job restarts at once; Slurm waits two minutes, and for free nodes"
    if spec.image and spec.container_runtime == "pyxis":
        yield "no container: Pyxis needs Slurm, so Ray and the command run in this machine's environment"
        yield "the script still checks the image and the mounts; --container-runtime none skips that"
    if fault is not None:
        yield f"fault: {fault.describe(_node_name(spec, fault.node))}"


def _node_name(spec: LaunchSpec, index: int) -> str:
    from slurm_launch.slurm import hostlist

    if spec.node and not spec.is_heterogeneous:
        return hostlist.expand(spec.node)[index]
    return f"node{index} ({node_address(index)})"


@contextmanager
def rehearsal_folder() -> Iterator[tuple[RehearsalFolder, int]]:
    """The rehearsal's folder, and the file descriptor of its control pipe: the job is ended when this process ends."""
    with _disk_errors():
        folder = RehearsalFolder(Path(tempfile.mkdtemp(prefix="slurm-launch-rehearsal-")))
    control_pipe = -1
    try:
        with _disk_errors():
            os.mkfifo(folder.control_pipe, 0o600)
            control_pipe = os.open(folder.control_pipe, os.O_RDWR | os.O_CLOEXEC)
        yield folder, control_pipe
    finally:
        if control_pipe >= 0:
            os.close(control_pipe)
        started = folder.read("slurmd.json")
        while started is not None and is_alive(started["pid"]):
            time.sleep(POLL / 2)  # Ctrl-C is harmless here: the daemon ends the job and removes the folder
        shutil.rmtree(folder.path, ignore_errors=True)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Report an OSError as a UsageError."""
    try:
        yield
    except OSError as error:
        hint = "set TMPDIR to another directory"
        raise UsageError(f"cannot write the rehearsal's temporary files: {error}", hint=hint) from None


def install_fake_commands(folder: RehearsalFolder) -> Path:
    """Create a directory with the fake commands; they need nothing of the job's environment."""
    programs = folder.path / "bin"
    programs.mkdir()
    package = str(Path(__file__).parents[2])
    paths = [path for path in sys.path if os.path.isabs(path)]  # -I drops some of them
    for program in PROGRAMS:
        code = (
            f"import sys; sys.path.insert(0, {package!r}); "
            f"sys.path += [path for path in {paths!r} if path not in sys.path]; "
            f"from slurm_launch.rehearsal.fake_program import main; main({program!r}, {str(folder.path)!r})"
        )
        path = programs / program
        # bash, because other shells drop exported functions; -p, so that it ignores BASH_ENV.
        path.write_text(f'#!/bin/bash -p\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n')
        path.chmod(0o700)
    return programs


def _check_executable(programs: Path, path: str) -> None:
    """Make sure that a real sbatch never gets the script."""
    if shutil.which("sbatch", path=path) != str(programs / "sbatch"):
        raise UsageError(
            f"cannot run programs in {programs} (noexec, or a colon in its name)",
            hint="set TMPDIR to another directory",
        )


class _LogFollower:
    """Shows the log of the job as it grows; `show` continues where an earlier call was interrupted."""

    def __init__(self, folder: RehearsalFolder, job: RehearsedJob) -> None:
        self.folder, self.job = folder, job
        self.file = LogFile(job.output)

    def show(self, observer: LogObserver) -> None:
        """Pass the log to the observer until the job has ended."""
        while True:
            state = self.folder.state()  # before the log, so that nothing of it is missed
            if data := self.file.read():
                observer.on_data(data)
            observer.on_poll()
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
        if (started is None or not is_alive(started["pid"])) and not self.folder.state().over:
            errors = ""
            with suppress(OSError):
                errors = (self.folder.path / "slurmd.err").read_text(errors="replace").strip()
            raise DaemonDied(f"the rehearsal's daemon has died: {errors or 'it was killed'}")


def _cancel_job(
    log: _LogFollower, control_pipe: int, observer: LogObserver, notify: Notify, error: BaseException
) -> None:
    """End a job that is still running: as scancel does, and at a second Ctrl-C at once."""
    if not isinstance(error, (KeyboardInterrupt, SystemExit, DaemonDied)):
        observer = LogObserver()  # the error may be the observer's
    order = CANCEL
    try:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            notify("canceling the job; press Ctrl-C again to kill it")
    except KeyboardInterrupt:
        order = KILL
    except Exception:
        observer = LogObserver()
    while True:
        try:
            os.write(control_pipe, order)
            log.show(observer)
            return
        except KeyboardInterrupt:
            order = KILL
        except DaemonDied:
            break
        except Exception:
            if type(observer) is LogObserver:
                raise  # not the observer's: rehearsal_folder() cleans up
            observer = LogObserver()
    _end_without_daemon(log)


def _end_without_daemon(log: _LogFollower) -> None:
    """End the processes of a job whose daemon has died; its death was a SIGTERM for the script."""
    deadline = time.monotonic() + node_daemon.KILL_WAIT
    while True:
        try:
            left = node_daemon.processes_of_job(log.job.id)
            if not left:
                break
            if time.monotonic() > deadline:
                node_daemon.kill(signal.SIGKILL, left)
            time.sleep(POLL)
        except KeyboardInterrupt:
            deadline = 0
    node_daemon.remove_leftovers(log.folder, log.job)
