"""Multiplex many connections over one pair of pipes.

This file runs at both ends. The job's Python gets its text on the command line for the remote end, so it uses only the
standard library of Python 3.9.

A frame is a header (connection number, kind, length) and data. Each side may send WINDOW bytes of a connection before
the other side has forwarded them, so a slow connection does not block the others.
"""

import asyncio
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import IO

HELLO = b"\0slurm-launch tunnel 1\n"  # precedes the remote end's first frame; skip any output before it
OPEN, DATA, END, CLOSE, CREDIT = range(5)  # END: no more data from this side. CLOSE: an error
WINDOW, CHUNK = 1 << 18, 1 << 15
_HEADER = struct.Struct("!IBI")


class Channel:
    """One connection, at this end."""

    def __init__(self) -> None:
        self.credit = WINDOW
        self.granted = asyncio.Event()
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()  # empty bytes mark the end
        self.carrier: asyncio.Task[None] | None = None


class Link:
    """The pair of pipes between the two ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.channels: dict[int, Channel] = {}
        self._turn = asyncio.Lock()

    async def send(self, number: int, kind: int, data: bytes = b"") -> None:
        async with self._turn:
            self.writer.write(_HEADER.pack(number, kind, len(data)) + data)
            await self.writer.drain()

    async def serve(self, on_open: Callable[[int, Channel], Awaitable[None]]) -> None:
        """Handle incoming frames until the other end closes. `on_open` gets the connections that it opens."""
        try:
            await self._serve(on_open)
        except (asyncio.IncompleteReadError, OSError):
            carriers = [channel.carrier for channel in self.channels.values() if channel.carrier is not None]
            for carrier in carriers:
                carrier.cancel()
            await asyncio.gather(*carriers, return_exceptions=True)

    async def _serve(self, on_open: Callable[[int, Channel], Awaitable[None]]) -> None:
        while True:
            number, kind, size = _HEADER.unpack(await self.reader.readexactly(_HEADER.size))
            data = await self.reader.readexactly(size)
            if kind == OPEN:
                self.add(number, on_open)
            channel = self.channels.get(number)
            if channel is None:  # closed here in the meantime
                continue
            if kind in (DATA, END):
                channel.arrived.put_nowait(data)
            elif kind == CREDIT:
                channel.credit += int.from_bytes(data, "big")
                channel.granted.set()
            elif kind == CLOSE and channel.carrier is not None:
                channel.carrier.cancel()

    def add(self, number: int, on_open: Callable[[int, Channel], Awaitable[None]]) -> Channel:
        channel = self.channels[number] = Channel()

        async def carry() -> None:
            try:
                with suppress(OSError):  # the link is closed
                    await on_open(number, channel)
            finally:
                del self.channels[number]

        channel.carrier = asyncio.ensure_future(carry())
        return channel

    async def carry(
        self, number: int, channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward one connection in both directions until both have ended."""
        directions = [
            asyncio.ensure_future(self._send_data(number, channel, reader)),
            asyncio.ensure_future(self._receive_data(number, channel, writer)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_EXCEPTION)
            if any(one.done() and one.exception() for one in directions):
                writer.transport.abort()
                await self.send(number, CLOSE)
        finally:  # also when the other end has closed it
            for one in directions:
                one.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            writer.close()

    async def _send_data(self, number: int, channel: Channel, reader: asyncio.StreamReader) -> None:
        while True:
            while channel.credit <= 0:
                channel.granted.clear()
                await channel.granted.wait()
            data = await reader.read(min(CHUNK, channel.credit))
            channel.credit -= len(data)
            await self.send(number, DATA if data else END, data)
            if not data:
                return

    async def _receive_data(self, number: int, channel: Channel, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await channel.arrived.get()
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            await self.send(number, CREDIT, len(data).to_bytes(4, "big"))


async def open_link(source: IO[bytes], sink: IO[bytes]) -> Link:
    """Open a link over two pipes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    return Link(reader, asyncio.StreamWriter(transport, protocol, None, loop))


async def serve_remote_end(port: int) -> None:
    """Inside the job: connect each opened connection to a port of this node."""
    link = await open_link(sys.stdin.buffer, sys.stdout.buffer)
    link.writer.write(HELLO)

    async def on_open(number: int, channel: Channel) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await link.send(number, CLOSE)
            return
        await link.carry(number, channel, reader, writer)

    await link.serve(on_open)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, OSError):
        asyncio.run(serve_remote_end(int(sys.argv[1])))
