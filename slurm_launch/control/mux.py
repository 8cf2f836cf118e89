"""Many connections over one pair of pipes.

This file runs at both ends: the far one, inside the job, gets its text by the command line of the job's own Python. So
it needs nothing but the standard library of Python 3.9.

A frame is a header (number of the connection, kind, length) and data. Each side may send WINDOW bytes of a connection
before the other has passed them on: so a slow connection holds up itself, and no other one.
"""

import asyncio
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import IO

HELLO = b"\0slurm-launch tunnel 1\n"  # before the first frame of the far end: what comes before it is not ours
OPEN, DATA, END, CLOSE, CREDIT = range(5)  # END: no more data from this side. CLOSE: something went wrong
WINDOW, CHUNK = 1 << 18, 1 << 15
_HEADER = struct.Struct("!IBI")


class Channel:
    """One connection, as this end sees it."""

    def __init__(self) -> None:
        self.credit = WINDOW
        self.granted = asyncio.Event()
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()  # nothing: the end
        self.carrier: asyncio.Task[None] | None = None


class Link:
    """What lies between the two ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.channels: dict[int, Channel] = {}
        self._turn = asyncio.Lock()

    async def send(self, number: int, kind: int, data: bytes = b"") -> None:
        async with self._turn:
            self.writer.write(_HEADER.pack(number, kind, len(data)) + data)
            await self.writer.drain()

    async def serve(self, opened: Callable[[int, Channel], Awaitable[None]]) -> None:
        """Take what comes, until the other end is gone. `opened` gets the connections that it opens."""
        try:
            await self._serve(opened)
        except (asyncio.IncompleteReadError, OSError):
            carriers = [channel.carrier for channel in self.channels.values() if channel.carrier is not None]
            for carrier in carriers:
                carrier.cancel()
            await asyncio.gather(*carriers, return_exceptions=True)

    async def _serve(self, opened: Callable[[int, Channel], Awaitable[None]]) -> None:
        while True:
            number, kind, size = _HEADER.unpack(await self.reader.readexactly(_HEADER.size))
            data = await self.reader.readexactly(size)
            if kind == OPEN:
                self.add(number, opened)
            channel = self.channels.get(number)
            if channel is None:  # closed here meanwhile
                continue
            if kind in (DATA, END):
                channel.arrived.put_nowait(data)
            elif kind == CREDIT:
                channel.credit += int.from_bytes(data, "big")
                channel.granted.set()
            elif kind == CLOSE and channel.carrier is not None:
                channel.carrier.cancel()

    def add(self, number: int, opened: Callable[[int, Channel], Awaitable[None]]) -> Channel:
        channel = self.channels[number] = Channel()

        async def carry() -> None:
            try:
                with suppress(OSError):  # the link is gone
                    await opened(number, channel)
            finally:
                del self.channels[number]

        channel.carrier = asyncio.ensure_future(carry())
        return channel

    async def carry(
        self, number: int, channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection to its end, both ways at once; each may end before the other."""
        ways = [
            asyncio.ensure_future(self._away(number, channel, reader)),
            asyncio.ensure_future(self._here(number, channel, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
            if any(way.done() and way.exception() for way in ways):
                writer.transport.abort()
                await self.send(number, CLOSE)
        finally:  # also when the other end has closed it
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            writer.close()

    async def _away(self, number: int, channel: Channel, reader: asyncio.StreamReader) -> None:
        while True:
            while channel.credit <= 0:
                channel.granted.clear()
                await channel.granted.wait()
            data = await reader.read(min(CHUNK, channel.credit))
            channel.credit -= len(data)
            await self.send(number, DATA if data else END, data)
            if not data:
                return

    async def _here(self, number: int, channel: Channel, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await channel.arrived.get()
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            await self.send(number, CREDIT, len(data).to_bytes(4, "big"))


async def link(source: IO[bytes], sink: IO[bytes]) -> Link:
    """A link over two pipes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    return Link(reader, asyncio.StreamWriter(transport, protocol, None, loop))


async def far_end(port: int) -> None:
    """Inside the job: connections to a port of this node."""
    ours = await link(sys.stdin.buffer, sys.stdout.buffer)
    ours.writer.write(HELLO)

    async def opened(number: int, channel: Channel) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await ours.send(number, CLOSE)
            return
        await ours.carry(number, channel, reader, writer)

    await ours.serve(opened)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, OSError):
        asyncio.run(far_end(int(sys.argv[1])))
