"""A tunnel to a port of a job's head node, with srun as the pipe: it needs no ssh to the nodes."""

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
from slurm_launch.control.running_job import Ear, Place
from slurm_launch.errors import LaunchError, UsageError, WrongMoment
from slurm_launch.slurm import environment as slurm_environment

USUAL_PORT = 8265  # of Ray's dashboard
START = 60.0  # seconds that Slurm has to start the step
# Ray's own Python: it is there, and new enough. Modules in the job's directory are not looked at.
_FAR = 'p=$(command -v ray) && p=${p%/*}/python3 && [[ -x $p ]] || p=python3; exec "$p" -c "$0" "$@"'
_NOT_HERE = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"


def listen(port: int | None) -> socket.socket:
    """A listener on this machine's loopback: on that port or, without one, on Ray's usual or any free one."""
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
    hint = "choose another one, or leave --port out: a free one is found"
    raise UsageError(f"port {port} of this machine cannot be used: {why.strerror}", at="flag --port", hint=hint)


def open_tunnel(
    place: Place, port: int, listener: socket.socket, *, env: Mapping[str, str], ready: Callable[[], object]
) -> LaunchError:
    """Carry the listener's connections to that port of the head node, until Ctrl-C or the far end's end.

    `ready` is called when the far end is there. Returns why it ended."""
    text = _NOT_HERE + Path(mux.__file__).read_text(encoding="utf-8")
    argv = running_job.argv(place, ["bash", "-c", _FAR, text, str(port)], unbuffered=True)
    with process.piped(argv, env=slurm_environment.query_env(env)) as srun:
        words = asyncio.run(_near_end(srun, listener, ready))
    ended = running_job.ending(place)
    if ended:
        return WrongMoment(f"the tunnel has ended with its job: job {place.task} {ended}", at=place.log)
    return running_job.srun_failed(words, place)


async def _near_end(srun: Popen[bytes], listener: socket.socket, ready: Callable[[], object]) -> str:
    """Returns srun's last words."""
    assert srun.stdin is not None
    assert srun.stdout is not None
    assert srun.stderr is not None
    ours = await mux.link(srun.stdout, srun.stdin)
    words: deque[bytes] = deque(maxlen=100)
    errors = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(errors), srun.stderr)
    hearing = asyncio.ensure_future(_hear(errors, words))
    try:
        await asyncio.wait_for(ours.reader.readuntil(mux.HELLO), START)
    except asyncio.TimeoutError:
        return f"the step did not start within {START:g} s\n" + await _said(hearing, words)
    except asyncio.IncompleteReadError as error:
        words.append(error.partial[-1000:])
        return await _said(hearing, words)
    except asyncio.LimitOverrunError:
        return "the environment of the job prints too much"

    numbers = count(1)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def carry(number: int, channel: mux.Channel) -> None:
            await ours.send(number, mux.OPEN)
            await ours.carry(number, channel, reader, writer)

        ours.add(next(numbers), carry)

    async def opened(number: int, channel: mux.Channel) -> None:
        """The far end opens none."""

    server = await asyncio.start_server(accept, sock=listener)
    ready()
    await ours.serve(opened)
    server.close()
    return await _said(hearing, words)


async def _hear(errors: asyncio.StreamReader, words: deque[bytes]) -> None:
    ear = Ear(words.append)
    while data := await errors.read(1 << 16):
        ear.hear(data)
    ear.close()
    words.append(ear.said.encode())


async def _said(hearing: asyncio.Future[None], words: deque[bytes]) -> str:
    """What was said until now; srun has a moment to say it."""
    await asyncio.wait([hearing], timeout=2)
    return b"".join(words).decode(errors="replace")
