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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch import follow, launch
from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.launch import PathText, Tell, warn
from slurm_launch.rehearsal import faults, slurmd
from slurm_launch.rehearsal.faults import Fault
from slurm_launch.rehearsal.job import COMPLETED, Folder, node_address
from slurm_launch.runs import Run
from slurm_launch.spec import LaunchSpec

if TYPE_CHECKING:
    from slurm_launch.script import Embedded

PROGRAMS = ("sbatch", "srun", "scontrol", "squeue")
OWN_DIRECTORIES = (2, 56)  # the Ray from which on each node has its own; 2.53 has not, those between were not tried
POLL = 0.1  # seconds between two looks at the log


class DaemonDied(LaunchError):
    """Something has ended slurmd.py; its job is being ended too."""


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal that went to its end."""

    run: Run
    code: int  # the command's own


class Audience:
    """Who sees the log. Here nobody does; the command line has one that prints."""

    def text(self, text: str) -> None:
        """More of the log."""

    def tick(self) -> None:
        """A moment in which there may be nothing new."""


def rehearse(
    spec: LaunchSpec,
    *,
    fault: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    embedded: Embedded | None = None,
    tell: Tell = warn,
    audience: Audience | None = None,
) -> Rehearsal:
    """Run the script that `submit` would submit, on this machine, to its end.

    Raises NoCommandCode when the command did not get to its end, as `follow.wait` does, and UsageError when this
    machine cannot rehearse. Nothing of it stays but the run's files, whatever happens.
    """
    env = dict(os.environ if env is None else env)
    wanted = _parse_fault(fault, spec.nodes)
    _check_machine(spec, env, tell)
    with stage() as (folder, lifeline):
        folder.write("setup.json", {"temp_dir": spec.temp_dir.replace("%u", env.get("USER", ""))})
        faults.write(folder, wanted)
        env["PATH"] = f"{stand_ins(folder)}{os.pathsep}{env.get('PATH', os.defpath)}"
        for note in _notes(spec, wanted):
            tell(note)
        run = launch.submit(spec, env=env, cwd=cwd, when=when, embedded=embedded, tell=tell)
        try:
            _show(folder, audience or Audience())
        except BaseException as error:
            _end(folder, lifeline, audience or Audience(), tell, error)
            raise
        if wanted is not None and wanted.kind.endswith("-dies") and folder.state().state == COMPLETED:
            tell(f"the command ended before the fault ({fault}) could be played")
        return Rehearsal(run, follow.wait(run, env=env, tell=tell))


def _parse_fault(text: str | None, nodes: int) -> Fault | None:
    if text is None:
        return None
    try:
        return faults.parse(text, nodes)
    except faults.BadFault as error:
        hint = "the workers are 1, 2, ... and node 0 is the head: --fault worker-dies:1"
        raise UsageError(str(error), at="--fault", hint=hint) from None


def _check_machine(spec: LaunchSpec, env: dict[str, str], tell: Tell) -> None:
    if not sys.platform.startswith("linux"):
        raise UsageError("a rehearsal needs Linux", hint="use a login node, a container or a virtual machine")
    if spec.nodes > 1 and (version := _ray_version(env)) and version < OWN_DIRECTORIES:
        tell(
            f"Ray {version[0]}.{version[1]} has one directory for all nodes of a machine, and they may not start"
            f" together: rehearse with one node, or with Ray {OWN_DIRECTORIES[0]}.{OWN_DIRECTORIES[1]}"
        )
    loads = spec.modules or spec.conda_env or spec.venv or spec.load_env or "PATH" in spec.env
    if loads or shutil.which("ray", path=env.get("PATH", os.defpath)):
        return  # or else the script itself tells
    beside = os.path.dirname(sys.executable)
    if not shutil.which("ray", path=beside):
        raise UsageError(
            "Ray is not installed here, and a rehearsal runs the real one",
            hint='pip install "slurm-launch[ray]", or name an environment that has it: --venv, --conda-env, --load-env',
        )
    env["PATH"] = f"{beside}{os.pathsep}{env.get('PATH', os.defpath)}"
    tell(f"ray is not in PATH: using the one in {beside}")


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


def _notes(spec: LaunchSpec, fault: Fault | None) -> Iterator[str]:
    cpus = spec.cpus_per_task or 1
    nodes = f"{spec.nodes} node{'s' * (spec.nodes > 1)}"
    yield f"rehearsing {nodes} on this machine, with {cpus} CPU{'s' * (cpus > 1)} each for Ray"
    yield f"not shown: the queue, limits of memory and GPUs, a network; all nodes share {os.cpu_count()} cores"
    if spec.array is not None:
        yield "of a job array the first task is rehearsed"
    if fault is not None:
        yield f"fault: {fault.describe(_node_name(spec, fault.node))}"


def _node_name(spec: LaunchSpec, index: int) -> str:
    from slurm_launch.values import hosts

    return hosts(spec.node)[index] if spec.node else f"node{index} ({node_address(index)})"


@contextmanager
def stage() -> Iterator[tuple[Folder, int]]:
    """The rehearsal's folder with its lifeline, which ends the job when this process does."""
    folder = Folder(Path(tempfile.mkdtemp(prefix="slurm-launch-rehearsal-")))
    lifeline = -1
    try:
        os.mkfifo(folder.lifeline, 0o600)
        lifeline = os.open(folder.lifeline, os.O_RDWR | os.O_CLOEXEC)
        yield folder, lifeline
    finally:
        if lifeline >= 0:
            os.close(lifeline)
        shutil.rmtree(folder.path, ignore_errors=True)


def stand_ins(folder: Folder) -> Path:
    """A directory with the stand-ins; they know their folder and their Python, whatever the job's environment is."""
    programs = folder.path / "bin"
    programs.mkdir()
    package = Path(__file__).parents[2]
    for program in PROGRAMS:
        code = (
            f"import sys; sys.path.insert(0, {str(package)!r}); "
            f"from slurm_launch.rehearsal.stand_in import main; main({program!r}, {str(folder.path)!r})"
        )
        path = programs / program
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n')
        path.chmod(0o700)
    return programs


def _show(folder: Folder, audience: Audience) -> None:
    """Show the log as it grows, until the job has ended."""
    job = folder.job()
    assert job is not None
    position = 0
    while True:
        state = folder.state()  # first this, then the log: so nothing of the log is missed
        with suppress(FileNotFoundError), open(job.output, encoding="utf-8", errors="replace", newline="") as log:
            log.seek(position)
            text = log.read()
            position = log.tell()
            if text:
                audience.text(text)
        audience.tick()
        if state.over:
            return
        _check_daemon(folder)
        time.sleep(POLL)


def _check_daemon(folder: Folder) -> None:
    started = folder.read("slurmd.json")
    if started is not None and not os.path.exists(f"/proc/{started['pid']}") and not folder.state().over:
        said = (folder.path / "slurmd.err").read_text(errors="replace").strip()
        raise DaemonDied(f"the rehearsal's daemon has died: {said or 'it was killed'}")


def _end(folder: Folder, lifeline: int, audience: Audience, tell: Tell, error: BaseException) -> None:
    """End a job that has not ended: as scancel does it, and at a second Ctrl-C at once."""
    if isinstance(error, KeyboardInterrupt):
        tell("ending the job; Ctrl-C again to kill it")
    elif not isinstance(error, DaemonDied):
        audience = Audience()  # who knows whether it can still listen
    order = b"c"
    while True:
        try:
            os.write(lifeline, order)
            _show(folder, audience)
            return
        except KeyboardInterrupt:
            order = b"k"
        except DaemonDied:
            break
    job = folder.job()
    assert job is not None
    deadline = time.monotonic() + slurmd.KILL_WAIT  # its death was a signal to the script
    while left := slurmd.marked(job.id):
        if time.monotonic() > deadline:
            slurmd.kill(signal.SIGKILL, left)
        time.sleep(POLL)
    slurmd.remove_left(folder, job)
