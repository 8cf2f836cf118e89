"""The node daemon of a rehearsal: runs the job's script and, when it is over, ends whatever is left of the job."""

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
    RUNNING,
    TIMEOUT,
    Attempt,
    Folder,
    Job,
    State,
    batch_environment,
)

KILL_WAIT = 30.0  # seconds between the first signal and the last, as Slurm's default
LEFT_WAIT = 3.0  # the same for what the script has left behind when it ended by itself
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def run(folder: Folder, ready: int) -> None:
    """Run the job, then wait for the rehearsal's end: it still looks into the folder, which is removed here.

    A byte is written to `ready` when the rehearsal can find us.
    """
    try:
        folder.write("slurmd.json", {"pid": os.getpid()})
        with suppress(OSError):
            os.write(ready, b"1")
        os.close(ready)
        job = folder.job()
        assert job is not None
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # whatever loses its parent becomes ours, so nothing gets lost
        watch = _Watch(folder, job)
        if watch.heard() is None:
            watch.run()
        else:  # Ctrl-C while sbatch was at work
            folder.set_state(State(CANCELLED, over=True))
        os.set_blocking(watch.lifeline, True)
        while os.read(watch.lifeline, 16):
            pass
    finally:
        if _alone(folder):
            shutil.rmtree(folder.path, ignore_errors=True)


def _alone(folder: Folder) -> bool:
    """Whether the rehearsal is gone; it may have taken the lifeline with it."""
    try:
        return not os.read(os.open(folder.lifeline, os.O_RDONLY | os.O_NONBLOCK), 16)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True


class _Watch:
    def __init__(self, folder: Folder, job: Job) -> None:
        self.folder, self.job = folder, job
        self.fault = faults.read(folder)
        self.lifeline = os.open(folder.lifeline, os.O_RDONLY | os.O_NONBLOCK)
        self.end: State | None = None  # set when the job is ended from outside
        self.attempt = Attempt()

    def run(self) -> None:
        """All lives of the job; Slurm would wait for two minutes between them."""
        while True:
            end = self._live()
            if self.end is not None or self.folder.restarts() == self.attempt.restarts:
                break
            self.attempt = Attempt(self.attempt.restarts + 1)
        self.folder.set_state(replace(end, over=True))

    def _live(self) -> State:
        """One life, to its end."""
        self.began = time.monotonic()
        self.kill_at = self.command_seen = float("inf")
        self.warn_at = float("inf")
        if self.job.time_limit is not None:
            self.attempt = replace(self.attempt, end_at=time.time() + self.job.time_limit)
            if self.job.warning is not None:
                self.warn_at = self.began + self.job.time_limit - self.job.warning
        self.folder.set_life(self.attempt)
        batch = self._start()
        self.folder.set_state(State(RUNNING))
        status = None
        while status is None:
            time.sleep(0.05)
            self._look_at_lifeline(batch)
            self._look_for_requeue(batch)
            self._look_at_clock(batch)
            self._play_fault()
            status = _reap().get(batch)  # last: until here its number is still its own
        _end_all(LEFT_WAIT)
        remove_left(self.folder, self.job)
        code, number = (os.waitstatus_to_exitcode(status), 0)
        if code < 0:
            code, number = 0, -code
        return self.end or State(COMPLETED if status == 0 else FAILED, "None", code, number)

    def _start(self) -> int:
        job = self.job
        first_line = self.folder.spooled.open(encoding="utf-8", errors="surrogateescape").readline()
        interpreter = shlex.split(first_line[2:]) or ["/bin/sh"]
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if job.append else os.O_TRUNC)
        log = os.open(job.output, flags, 0o666)
        self.read_to = os.fstat(log).st_size  # how much of it was there before
        directory = job.directory
        if not os.path.isdir(directory):
            os.write(log, f"slurmstepd: error: couldn't chdir to `{directory}': going to /tmp instead\n".encode())
            directory = "/tmp"
        self.batch = subprocess.Popen(  # kept: when it is forgotten, Python itself would reap the process
            [*interpreter, str(self.folder.spooled), *job.arguments],
            env={**os.environ, **batch_environment(job, self.attempt.restarts)},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_begin,
        )
        os.close(log)
        return self.batch.pid

    def heard(self) -> bytes | None:
        """From the lifeline. `c`: Ctrl-C, as scancel. `k`: at once. The end: the rehearsal itself is gone."""
        try:
            return os.read(self.lifeline, 16)
        except BlockingIOError:
            return None

    def _look_at_lifeline(self, batch: int) -> None:
        said = self.heard()
        if said is None:
            return
        if b"k" in said:
            self.kill_at = 0
        if self.end is None:
            self._ask_to_end(batch, State(CANCELLED))

    def _look_for_requeue(self, batch: int) -> None:
        if self.end is None and self.kill_at == float("inf") and self.folder.restarts() > self.attempt.restarts:
            self._send_term(batch)

    def _look_at_clock(self, batch: int) -> None:
        now = time.monotonic()
        if now > self.warn_at:
            self.warn_at = float("inf")
            kill(signal.SIGUSR1, [batch])
        over = self.job.time_limit is not None and now > self.began + self.job.time_limit
        if over and self.end is None and self.kill_at == float("inf"):
            self._ask_to_end(batch, State(TIMEOUT, "TimeLimit"))
        if now > self.kill_at:
            kill(signal.SIGKILL, [batch, *descendants()])

    def _ask_to_end(self, batch: int, state: State) -> None:
        """As slurmd does it: the script and the tasks of all steps are told at the same moment."""
        self.end = state
        self.folder.set_state(state)
        self._send_term(batch)

    def _send_term(self, batch: int) -> None:
        self.kill_at = min(self.kill_at, time.monotonic() + KILL_WAIT)
        ours = set(descendants())  # the number of a task that has ended may be another's by now
        kill(signal.SIGTERM, [batch, *descendants(ours.intersection(self.folder.tasks()))])

    def _play_fault(self) -> None:
        if self.fault is None or not self.fault.kind.endswith("-dies"):
            return
        if self.command_seen == float("inf"):
            with suppress(OSError), open(self.job.output, "rb") as log:
                log.seek(self.read_to)
                if re.search(rb"^\[slurm-launch\] \S+ command ", log.read(), re.MULTILINE):
                    self.command_seen = time.monotonic()
        elif time.monotonic() > self.command_seen + faults.DIES_AFTER:
            if found := _ray_of(self.job, self.fault):
                kill(signal.SIGKILL, found)
                faults.write(self.folder, None)  # it is played
            self.fault = None


def _ray_of(job: Job, fault: Fault) -> list[int]:
    """The process without which Ray on a node is dead: the head's GCS, a worker's raylet."""
    program = "gcs_server" if fault.node == 0 else "raylet"
    mark = f"SLURMD_NODENAME={job.nodes[fault.node]}".encode()
    found = []
    for pid in descendants():
        with suppress(OSError):
            name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            if name.endswith(f"/{program}".encode()) and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def descendants(roots: Iterable[int] | None = None) -> list[int]:
    """The processes below these, themselves included; by default all below us, ourselves excluded."""
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


def marked(job_id: int) -> list[int]:
    """The processes that have the job's id in their environment, for when the daemon cannot tell any more."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"SLURM_JOB_ID={job_id}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _end_all(wait: float) -> None:
    """End what is left of the job: ask, then make."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + wait
        while left := descendants():
            kill(number, left)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
            _reap()


def _reap() -> dict[int, int]:
    """The children that have ended, with their wait status."""
    ended = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def remove_left(folder: Folder, job: Job) -> None:
    """What a script that was killed had no time to remove; its name has the id that only this job has."""
    temp_dir = (folder.read("setup.json") or {}).get("temp_dir", "/tmp")
    base = Path(temp_dir.replace("%j", str(job.id)))
    for path in base.glob(f"r{job.id}-*"):
        shutil.rmtree(path, ignore_errors=True)
    if "%j" in temp_dir:
        with suppress(OSError):  # not made, or not empty
            base.rmdir()


def kill(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _begin() -> None:
    """Run in the script's process: a group of its own, and when the daemon dies, the script is told to end."""
    os.setpgrp()
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
