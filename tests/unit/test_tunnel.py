"""The tunnel: both ends on this machine, with a pipe instead of srun."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from slurm_launch.control import mux, running_job, tunnel
from slurm_launch.errors import UsageError, WrongMoment
from slurm_launch.runs.record import Run
from tests.unit.test_cancel import line
from tests.unit.test_cancel import run as run  # a fixture
from tests.unit.test_running_job import ENDING, UP, slurm_client

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LIMIT = 60.0


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what it gets; and, when that has ended, a word more."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write(b"bye")
    await writer.drain()
    writer.close()


@asynccontextmanager
async def opened(
    handler: Handler, port: int | None = None
) -> AsyncIterator[tuple[int, mux.Link, subprocess.Popen[bytes]]]:
    """A server, a tunnel to it or to another port; the port at its near end."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = port or server.sockets[0].getsockname()[1]
    far = [sys.executable, "-c", tunnel._NO_LOCAL_MODULES + Path(mux.__file__).read_text(), str(port)]
    process = subprocess.Popen(far, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    link = await mux.open_link(process.stdout, process.stdin)
    await link.reader.readuntil(mux.HELLO)
    numbers = count(1)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def carry(number: int, channel: mux.Channel) -> None:
            await link.send(number, mux.OPEN)
            await link.carry(number, channel, reader, writer)

        link.add(next(numbers), carry)

    async def none(number: int, channel: mux.Channel) -> None: ...

    near = await asyncio.start_server(accept, "127.0.0.1", 0)
    serving = asyncio.ensure_future(link.serve(none))
    try:
        yield near.sockets[0].getsockname()[1], link, process
    finally:
        serving.cancel()
        near.close()
        server.close()
        process.kill()
        process.wait()


async def exchange(port: int, data: bytes) -> bytes:
    """Send data, say that it has ended, and read to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    answer = await reader.read(-1)
    await sending
    writer.close()
    return answer


async def empty(link: mux.Link) -> None:
    while link.channels:
        await asyncio.sleep(0.01)


def test_many_connections_at_once() -> None:
    async def play() -> None:
        async with opened(echo) as (port, link, _):
            texts = [os.urandom(size) for size in (0, 1, mux.CHUNK, mux.WINDOW, mux.WINDOW + 1, 3_000_000, *[99] * 50)]
            answers = await asyncio.gather(*(exchange(port, text) for text in texts))
            assert answers == [text + b"bye" for text in texts]
            await empty(link)

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_a_slow_connection_does_not_block_the_others() -> None:
    async def play() -> None:
        async with opened(echo) as (port, link, _):
            _, lazy = await asyncio.open_connection("127.0.0.1", port)
            lazy.write(bytes(20_000_000))  # the response is not read
            text = os.urandom(1_000_000)
            assert await exchange(port, text) == text + b"bye"
            waiting = [channel.arrived.qsize() * mux.CHUNK for channel in link.channels.values()]
            assert all(size <= 2 * mux.WINDOW for size in waiting), "what it does not read is not kept here"
            lazy.transport.abort()  # and when it goes away, it is forgotten
            await empty(link)

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_a_server_that_closes_the_connection() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async def play() -> None:
        async with opened(rude) as (port, link, _):
            with pytest.raises((ConnectionError, AssertionError)):
                assert await exchange(port, b"x" * 1_000_000)
            await empty(link)

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_no_server() -> None:
    async def play() -> None:
        async with opened(echo, port=1) as (port, link, _):
            with pytest.raises((ConnectionError, AssertionError)):
                assert await exchange(port, b"x")
            await empty(link)

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_both_ends_close_with_the_link() -> None:
    """Open connections are closed, so that clients do not wait forever."""

    async def play() -> None:
        async with opened(echo) as (port, link, process):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            link.writer.close()
            assert await asyncio.get_running_loop().run_in_executor(None, process.wait, LIMIT) == 0
            assert await reader.read() == b""
            await empty(link)

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_the_port_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on port {port} of this machine"):
            tunnel.open_listener(port)
    with tunnel.open_listener(None) as first, tunnel.open_listener(None) as second:
        assert first.getsockname()[0] == second.getsockname()[0] == "127.0.0.1"
        assert first.getsockname()[1] != second.getsockname()[1]


@pytest.mark.parametrize(
    ("log", "kind"), [(UP, "srun failed for job 12:\nwhat"), (ENDING, "the tunnel has closed: job 12 is")]
)
def test_a_remote_end_that_does_not_start(run: Run, monkeypatch: pytest.MonkeyPatch, log: str, kind: str) -> None:
    Path(run.log).write_text(UP)
    place = running_job.find_running(run, "12", slurm_client(line("12", "RUNNING")))
    Path(run.log).write_text(log)
    monkeypatch.setattr(running_job, "srun_argv", lambda *_, **__: ["bash", "-c", "echo what >&2; echo noise; exit 1"])
    with tunnel.open_listener(None) as listener:
        error = tunnel.run_tunnel(place, 1, listener, env=os.environ, ready=lambda: pytest.fail("it is not"))
    assert kind in error.message
    assert isinstance(error, WrongMoment) == (log == ENDING)
