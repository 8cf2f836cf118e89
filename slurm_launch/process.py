"""Where the package starts processes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from slurm_launch.errors import LaunchError, SlurmUnavailable, UsageError

SLURM_PROGRAMS = frozenset({"sbatch", "squeue", "scontrol", "sacct", "scancel", "srun", "sinfo"})
PathText = str | os.PathLike[str]
TIMEOUT = 60.0  # seconds that Slurm has for an answer
GRACE = 1.0  # seconds between asking a process to end and making it


@dataclass(frozen=True)
class Result:
    """What a program did."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """What `run` looks like, so that tests can pass their own."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float,
        stdin: str | None = None,
    ) -> Result: ...


class NotFound(LaunchError):
    """The program did not run at all, so nothing has happened."""


class TimedOut(LaunchError):
    """The program was ended because it took too long; what it had done by then is unknown."""


class SlurmNotFound(SlurmUnavailable, NotFound):
    """As NotFound, for a program of Slurm."""


class SlurmTimedOut(SlurmUnavailable, TimedOut):
    """As TimedOut, for a program of Slurm."""


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float,
    stdin: str | None = None,
) -> Result:
    """Run a program to its end and return what it said; its exit code is for the caller to judge.

    It runs in a session of its own: at a time-out or Ctrl-C the program and its children are ended together.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_started(argv, cwd, error) from None
    try:
        out, err = process.communicate(None if stdin is None else stdin.encode(errors="surrogateescape"), timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        raise _timed_out(argv, timeout) from None
    except BaseException:  # Ctrl-C above all
        _end(process)
        raise
    return Result(tuple(argv), process.returncode, _text(out), _text(err))


def interact(argv: Sequence[str], *, env: Mapping[str, str], hear: Callable[[bytes], object]) -> int:
    """Run a program on our own terminal and files, to its end, and return its exit code; `hear` gets its stderr.

    It stays in our process group, so Ctrl-C is for the program. Other signals that would end us are passed on to it.
    """
    with _terminal_restored(), _for_the_child() as signals:
        try:
            process = subprocess.Popen(list(argv), env=env, stderr=subprocess.PIPE)
        except OSError as error:
            raise _not_started(argv, None, error) from None
        signals.append(process)
        assert process.stderr is not None
        with process.stderr:
            while data := os.read(process.stderr.fileno(), 1 << 16):
                hear(data)
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _for_the_child() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Signals go to the process in the list; those of the terminal have reached it already."""
    process: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object) -> None:
        if number not in (signal.SIGINT, signal.SIGQUIT):
            for one in process:
                one.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    # Not one that is ignored, as SIGHUP under nohup. A function of ours, for the child would inherit SIG_IGN.
    former = {number: was for number in numbers if (was := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in former:
        signal.signal(number, pass_on)
    try:
        yield process
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextmanager
def _terminal_restored() -> Iterator[None]:
    """A program that is killed may leave the terminal without echo."""
    try:
        settings = termios.tcgetattr(sys.stdin)
    except (termios.error, ValueError, OSError):  # no terminal
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


@contextmanager
def piped(argv: Sequence[str], *, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose three streams are ours, in a session of its own; ended with the block."""
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            list(argv), env=env, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True
        )
    except OSError as error:
        raise _not_started(argv, None, error) from None
    try:
        yield process
    finally:
        _end(process)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group that we started. Its leader is not reaped before, so its number is still its own."""
    try:
        if _signal_group(process, signal.SIGTERM):
            deadline = time.monotonic() + GRACE
            while time.monotonic() < deadline and not _has_exited(process.pid):
                time.sleep(0.02)
    finally:  # a second Ctrl-C must not leave it behind
        _signal_group(process, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):  # what was not yet written to stdin is lost anyway
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel is not waited for
            process.wait(GRACE)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    if process.returncode is not None:
        return False
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
    return True


def _has_exited(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _not_started(argv: Sequence[str], cwd: str | None, error: OSError) -> LaunchError:
    program = argv[0]
    if cwd is not None and not os.path.isdir(cwd):
        return UsageError(f"no such directory: {cwd}", hint="make it, or start from one that exists")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        where = "does not exist" if "/" in program else "is not in PATH"
        if os.path.basename(program) in SLURM_PROGRAMS:
            hint = "run this where Slurm is installed, such as a login node, or load the site's Slurm module"
            return SlurmNotFound(f"{program} {where}", hint=hint)
        return NotFound(f"{program} {where}", hint=f"install {program}, or add its directory to PATH")
    message = f"{program} could not be started: {error.strerror or error}"
    if os.path.basename(program) in SLURM_PROGRAMS:
        return SlurmNotFound(message, hint=f"`type -a {program}` shows which one is found")
    return NotFound(message, hint=f"`type -a {program}` shows which one is found")


def _timed_out(argv: Sequence[str], timeout: float) -> LaunchError:
    message = f"{argv[0]} did not answer within {timeout:g} s"
    if os.path.basename(argv[0]) in SLURM_PROGRAMS:
        return SlurmTimedOut(message, hint="Slurm may be down or overloaded: `scontrol ping` tells; try again later")
    return TimedOut(message, hint=f"try it by hand: {shlex.join(argv)}")
