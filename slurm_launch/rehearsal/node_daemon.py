"""The node daemon of a rehearsal: runs the job's script, then ends all processes that the job left."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slurm_launch.rehearsal import faults
from slurm_launch.rehearsal.faults import Fault
from slurm_launch.rehearsal.job import (
    CANCELLED,
    COMPLETED,
    FAILED,
    KILL,
    RUNNING,
    TIMEOUT,
    RehearsalAttempt,
    RehearsalFolder,
    RehearsedJob,
    RehearsedState,
    batch_environment,
)

KILL_WAIT = 30.0  # seconds between the first signal and the last, as Slurm's default
LEFT_WAIT = 3.0  # the same for processes that the script left when it ended by itself
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def run(folder: RehearsalFolder, ready: int) -> None:
    """Run the job, then wait for the end of the rehearsal, which still reads the folder; remove the folder if needed.

    A byte is written to `ready` when the rehearsal can find this process.
    """
    try:
        folder.write("slurmd.json", {"pid": os.getpid()})
        with suppress(OSError):
            os.write(ready, b"1")
        os.close(ready)
        job = folder.job()
        assert job is not None
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # adopt orphans, so that no process gets lost
        supervisor = _JobSupervisor(folder, job)
        if supervisor.read_orders() is None:
            supervisor.run()
        else:  # Ctrl-C while sbatch was running
            folder.set_state(RehearsedState(CANCELLED, over=True))
        os.set_blocking(supervisor.control_pipe, True)
        while os.read(supervisor.control_pipe, 16):
            pass
    finally:
        if _is_orphaned(folder):
            shutil.rmtree(folder.path, ignore_errors=True)


def _is_orphaned(folder: RehearsalFolder) -> bool:
    """Whether the rehearsal has ended; it may have removed the pipe."""
    try:
        return not os.read(os.open(folder.control_pipe, os.O_RDONLY | os.O_NONBLOCK), 16)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True


class _JobSupervisor:
    """Runs the script, and ends it on Ctrl-C, at the time limit and for a requeue."""

    def __init__(self, folder: RehearsalFolder, job: RehearsedJob) -> None:
        self.folder, self.job = folder, job
        self.fault = faults.read(folder)
        self.control_pipe = os.open(folder.control_pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.end: RehearsedState | None = None  # set when the job is terminated externally
        self.attempt = RehearsalAttempt()

    def run(self) -> None:
        """Run all attempts of the job; Slurm would wait two minutes between them."""
        while True:
            end = self._run_attempt()
            if self.end is not None or self.folder.restarts() == self.attempt.restarts:
                break
            self.attempt = RehearsalAttempt(self.attempt.restarts + 1)
        self.folder.set_state(replace(end, over=True))

    def _run_attempt(self) -> RehearsedState:
        """Run one attempt to its end."""
        self.started = time.monotonic()
        self.kill_at = self.command_seen = float("inf")
        self.warn_at = float("inf")
        if self.job.time_limit is not None:
            self.attempt = replace(self.attempt, end_at=time.time() + self.job.time_limit)
            if self.job.warning is not None:
                self.warn_at = self.started + self.job.time_limit - self.job.warning
        self.folder.set_attempt(self.attempt)
        batch = self._start()
        self.folder.set_state(RehearsedState(RUNNING))
        status = None
        while status is None:
            time.sleep(0.05)
            self._check_orders(batch)
            self._check_requeue(batch)
            self._check_clock(batch)
            self._inject_fault()
            status = _reap().get(batch)  # last: until it is reaped, its PID is not reused
        _end_descendants(LEFT_WAIT)
        remove_leftovers(self.folder, self.job)
        code, number = os.waitstatus_to_exitcode(status), 0
        if code < 0:
            code, number = 0, -code
        return self.end or RehearsedState(COMPLETED if status == 0 else FAILED, "None", code, number)

    def _start(self) -> int:
        job = self.job
        first_line = self.folder.spooled.open(encoding="utf-8", errors="surrogateescape").readline()
        interpreter = shlex.split(first_line[2:]) or ["/bin/sh"]
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if job.append else os.O_TRUNC)
        log = os.open(job.output, flags, 0o666)
        self.read_to = os.fstat(log).st_size  # its size before this attempt
        directory = job.directory
        if not os.path.isdir(directory):
            os.write(log, f"slurmstepd: error: couldn't chdir to `{directory}': going to /tmp instead\n".encode())
            directory = "/tmp"
        self.batch = subprocess.Popen(  # kept: without a reference Python would reap the process
            [*interpreter, str(self.folder.spooled), *job.arguments],
            env={**os.environ, **batch_environment(job, self.attempt.restarts)},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_before_exec,
        )
        os.close(log)
        return self.batch.pid

    def read_orders(self) -> bytes | None:
        """CANCEL or KILL from the control pipe; empty if the rehearsal itself has ended; None without an order."""
        try:
            return os.read(self.control_pipe, 16)
        except BlockingIOError:
            return None

    def _check_orders(self, batch: int) -> None:
        orders = self.read_orders()
        if orders is None:
            return
        if KILL in orders:
            self.kill_at = 0
        if self.end is None:
            self._terminate(batch, RehearsedState(CANCELLED))

    def _check_requeue(self, batch: int) -> None:
        if self.end is None and self.kill_at == float("inf") and self.folder.restarts() > self.attempt.restarts:
            self._send_term(batch)

    def _check_clock(self, batch: int) -> None:
        now = time.monotonic()
        if now > self.warn_at:
            self.warn_at = float("inf")
            kill(signal.SIGUSR1, [batch])
        over = self.job.time_limit is not None and now > self.started + self.job.time_limit
        if over and self.end is None and self.kill_at == float("inf"):
            self._terminate(batch, RehearsedState(TIMEOUT, "TimeLimit"))
        if now > self.kill_at:
            kill(signal.SIGKILL, [batch, *descendants()])

    def _terminate(self, batch: int, state: RehearsedState) -> None:
        """End the job as slurmd does: SIGTERM for the script and the tasks of all steps at the same moment."""
        self.end = state
        self.folder.set_state(state)
        self._send_term(batch)

    def _send_term(self, batch: int) -> None:
        self.kill_at = min(self.kill_at, time.monotonic() + KILL_WAIT)
        ours = set(descendants())  # the PID of an ended task may be reused
        kill(signal.SIGTERM, [batch, *descendants(ours.intersection(self.folder.tasks()))])

    def _inject_fault(self) -> None:
        if self.fault is None or not self.fault.kind.endswith("-dies"):
            return
        if self.command_seen == float("inf"):
            with suppress(OSError), open(self.job.output, "rb") as log:
                log.seek(self.read_to)
                if re.search(rb"^\[slurm-launch\] \S+ command ", log.read(), re.MULTILINE):
                    self.command_seen = time.monotonic()
        elif time.monotonic() > self.command_seen + faults.DIES_AFTER:
            if found := _ray_processes(self.job, self.fault):
                kill(signal.SIGKILL, found)
                faults.write(self.folder, None)  # it is done
            self.fault = None


def _ray_processes(job: RehearsedJob, fault: Fault) -> list[int]:
    """The process without which Ray on a node is dead: the GCS of the head, the raylet of a worker."""
    program = "gcs_server" if fault.node == 0 else "raylet"
    variable = f"SLURMD_NODENAME={job.nodes[fault.node]}".encode()
    found = []
    for pid in descendants():
        with suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if name.endswith(f"/{program}".encode()) and variable in environment:
                found.append(pid)
    return found


def descendants(roots: Iterable[int] | None = None) -> list[int]:
    """These processes and their descendants; by default all descendants of this process, without itself."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parent = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    waiting = children.get(os.getpid(), []) if roots is None else list(roots)
    found = []
    while waiting:
        found.append(pid := waiting.pop())
        waiting += children.get(pid, [])
    return found


def processes_of_job(job_id: int) -> list[int]:
    """The processes with the job's ID in their environment; for use without the daemon."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"SLURM_JOB_ID={job_id}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _end_descendants(wait: float) -> None:
    """End what is left of the job: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + wait
        while left := descendants():
            kill(number, left)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
            _reap()


def _reap() -> dict[int, int]:
    """Reap ended children; returns their wait status by PID."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def remove_leftovers(folder: RehearsalFolder, job: RehearsedJob) -> None:
    """Remove the temporary directories that a killed script left; their names contain the job ID."""
    temp_dir = (folder.read("setup.json") or {}).get("temp_dir", "/tmp")
    base = Path(temp_dir.replace("%j", str(job.id)))
    for path in base.glob(f"r{job.id}-*"):
        shutil.rmtree(path, ignore_errors=True)
    if "%j" in temp_dir:
        with suppress(OSError):  # not created, or not empty
            base.rmdir()


def kill(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _before_exec() -> None:
    """Runs in the script's process: its own process group, and SIGTERM when the daemon dies."""
    os.setpgrp()
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
