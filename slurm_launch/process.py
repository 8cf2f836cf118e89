"""The only module that starts processes."""

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
TIMEOUT = 60.0  # seconds for a Slurm command to answer
GRACE = 1.0  # seconds between SIGTERM and SIGKILL


def working_directory(given: PathText | None) -> str:
    """A directory as an absolute path; by default the current one."""
    try:
        return os.path.abspath(os.getcwd() if given is None else given)
    except FileNotFoundError:
        raise UsageError("the current directory no longer exists", hint="cd to a directory that exists") from None


@dataclass(frozen=True)
class Result:
    """The outcome of a program."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Runner(Protocol):
    """The signature of `run`, so that tests can pass their own."""

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
    """The program was not started, so nothing has happened."""


class TimedOut(LaunchError):
    """The program was terminated at its timeout; what it did before is unknown."""


class SlurmNotFound(SlurmUnavailable, NotFound):
    """NotFound for a Slurm command."""


class SlurmTimedOut(SlurmUnavailable, TimedOut):
    """TimedOut for a Slurm command."""


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float,
    stdin: str | None = None,
) -> Result:
    """Run a program to its end and return its output and exit code; a non-zero code does not raise.

    It runs in its own session: at a timeout or Ctrl-C the program and its children are terminated together.
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
    except BaseException:  # mostly Ctrl-C
        _end(process)
        raise
    return Result(tuple(argv), process.returncode, _text(out), _text(err))


def interact(argv: Sequence[str], *, env: Mapping[str, str], on_stderr: Callable[[bytes], object]) -> int:
    """Run a program with this process's terminal and files, and return its exit code; `on_stderr` gets its stderr.

    It stays in the same process group, so it receives Ctrl-C itself. Other signals are forwarded to it.
    """
    with _terminal_restored(), _signals_forwarded() as children:
        try:
            process = subprocess.Popen(list(argv), env=env, stderr=subprocess.PIPE)
        except OSError as error:
            raise _not_started(argv, None, error) from None
        children.append(process)
        assert process.stderr is not None
        with process.stderr:
            while data := os.read(process.stderr.fileno(), 1 << 16):
                on_stderr(data)
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _signals_forwarded() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward signals to the processes in the list; those of the terminal have already reached them."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        if number not in (signal.SIGINT, signal.SIGQUIT):
            for child in children:
                child.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    # An ignored signal stays ignored, such as SIGHUP under nohup. SIG_IGN as handler would be inherited by the child.
    previous = {number: was for number in numbers if (was := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in previous:
        signal.signal(number, forward)
    try:
        yield children
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _terminal_restored() -> Iterator[None]:
    """Restore the terminal settings: a program that is killed may leave the terminal without echo."""
    try:
        settings = termios.tcgetattr(sys.stdin)
    except (termios.error, ValueError, OSError):  # not a terminal
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, settings)


@contextmanager
def piped(argv: Sequence[str], *, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its three streams as pipes, in its own session; terminated at the end of the block."""
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
    """Terminate the process group. Its leader has not been reaped, so its ID cannot have been reused."""
    try:
        if _signal_group(process, signal.SIGTERM):
            deadline = time.monotonic() + GRACE
            while time.monotonic() < deadline and not _has_exited(process.pid):
                time.sleep(0.02)
    finally:  # also after a second Ctrl-C
        _signal_group(process, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):  # closing flushes stdin, which may fail
                    pipe.close()
        with suppress(subprocess.TimeoutExpired):  # a process may hang in the kernel
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
        return UsageError(f"no such directory: {cwd}", hint="create it, or start from an existing one")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        where = "does not exist" if "/" in program else "is not in PATH"
        if os.path.basename(program) in SLURM_PROGRAMS:
            hint = "run this where Slurm is installed, such as a login node, or load the site's Slurm module"
            return SlurmNotFound(f"{program} {where}", hint=hint)
        return NotFound(f"{program} {where}", hint=f"install {program}, or add its directory to PATH")
    message = f"cannot start {program}: {error.strerror or error}"
    if os.path.basename(program) in SLURM_PROGRAMS:
        return SlurmNotFound(message, hint=f"`type -a {program}` shows which one is found")
    return NotFound(message, hint=f"`type -a {program}` shows which one is found")


def _timed_out(argv: Sequence[str], timeout: float) -> LaunchError:
    message = f"{argv[0]} did not answer within {timeout:g} s"
    if os.path.basename(argv[0]) in SLURM_PROGRAMS:
        hint = "slurmctld may be down or overloaded: check with `scontrol ping`, try again later"
        return SlurmTimedOut(message, hint=hint)
    return TimedOut(message, hint=f"run it by hand: {shlex.join(argv)}")
