"""A tunnel to a port of a job's head node through srun: no SSH to the nodes is needed."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from subprocess import Popen

from slurm_launch import process
from slurm_launch.control import mux, running_job
from slurm_launch.control.dashboard import USUAL_PORT
from slurm_launch.control.running_job import RunningJob, SrunStderr
from slurm_launch.errors import LaunchError, UsageError, WrongMoment
from slurm_launch.slurm import environment as slurm_environment

STEP_TIMEOUT = 60.0  # seconds for Slurm to start the step
# Ray's own Python exists and is recent enough. The second line keeps it from importing modules of the job's directory.
_REMOTE_SHELL = 'p=$(command -v ray) && p=${p%/*}/python3 && [[ -x $p ]] || p=python3; exec "$p" -c "$0" "$@"'
_NO_LOCAL_MODULES = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"


def open_listener(port: int | None) -> socket.socket:
    """Listen on the loopback address: on `port` or, if None, on Ray's usual port or any free one."""
    for number in (port,) if port is not None else (USUAL_PORT, 0):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", number))
            listener.listen(100)
            return listener
        except OSError as error:
            listener.close()
            why = error
    hint = "choose another port, or leave --port out to use a free one"
    raise UsageError(f"cannot listen on port {port} of this machine: {why.strerror}", at="flag --port", hint=hint)


def run_tunnel(
    job: RunningJob, port: int, listener: socket.socket, *, env: Mapping[str, str], ready: Callable[[], object]
) -> LaunchError:
    """Forward the listener's connections to a port of the head node, until Ctrl-C or the end of the step.

    Calls `ready` once the remote end is up. Returns why the tunnel ended."""
    code = _NO_LOCAL_MODULES + Path(mux.__file__).read_text(encoding="utf-8")
    argv = running_job.srun_argv(job, ["bash", "-c", _REMOTE_SHELL, code, str(port)], unbuffered=True)
    with process.piped(argv, env=slurm_environment.query_env(env)) as srun:
        message = asyncio.run(_forward(srun, listener, ready))
    ended = running_job.describe_end(job)
    if ended:
        return WrongMoment(f"the tunnel has closed: job {job.task} {ended}", at=job.log)
    return running_job.srun_error(message, job)


async def _forward(srun: Popen[bytes], listener: socket.socket, ready: Callable[[], object]) -> str:
    """Forward connections while srun runs; returns srun's last messages."""
    assert srun.stdin is not None
    assert srun.stdout is not None
    assert srun.stderr is not None
    link = await mux.open_link(srun.stdout, srun.stdin)
    messages: deque[bytes] = deque(maxlen=100)
    errors = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(errors), srun.stderr)
    reading = asyncio.ensure_future(_collect_stderr(errors, messages))
    try:
        await asyncio.wait_for(link.reader.readuntil(mux.HELLO), STEP_TIMEOUT)
    except asyncio.TimeoutError:
        return f"the step did not start within {STEP_TIMEOUT:g} s\n" + await _collected(reading, messages)
    except asyncio.IncompleteReadError as error:
        messages.append(error.partial[-1000:])
        return await _collected(reading, messages)
    except asyncio.LimitOverrunError:
        return "the environment of the job prints too much output"

    numbers = count(1)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def carry(number: int, channel: mux.Channel) -> None:
            await link.send(number, mux.OPEN)
            await link.carry(number, channel, reader, writer)

        link.add(next(numbers), carry)

    async def on_open(number: int, channel: mux.Channel) -> None:
        """The remote end opens no connections."""

    server = await asyncio.start_server(accept, sock=listener)
    ready()
    await link.serve(on_open)
    server.close()
    return await _collected(reading, messages)


async def _collect_stderr(stream: asyncio.StreamReader, messages: deque[bytes]) -> None:
    stderr = SrunStderr(messages.append)
    while data := await stream.read(1 << 16):
        stderr.feed(data)
    stderr.close()
    messages.append(stderr.errors.encode())


async def _collected(reading: asyncio.Future[None], messages: deque[bytes]) -> str:
    """The messages so far, after two seconds at most for srun to print its last ones."""
    await asyncio.wait([reading], timeout=2)
    return b"".join(messages).decode(errors="replace")
