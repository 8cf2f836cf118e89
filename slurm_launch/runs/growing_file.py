"""A file that is being written: read once, as it grows, whatever becomes of it meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

MOST = 1 << 20  # bytes that are read at once
_BLOCK = 1 << 16
_LONGEST = 1 << 14  # as much of a line as is looked at


class LogFile:
    """What is new in a file since the last look.

    It may not be there yet, grow, be cut off, be removed, or be replaced by another one: then the rest of the old one
    comes first, and the new one from its beginning.
    """

    def __init__(self, path: str | os.PathLike[str], *, last: int | None = None, position: int = 0) -> None:
        """Reading begins at `position`; or with `last` so many bytes before the end, with the first whole line."""
        self.path = os.fspath(path)
        self.position = position  # of the next byte
        self.left_out = 0  # bytes before the first that was read
        self.restarts = 0  # how often it began anew
        self._last = last
        self._file = -1
        self._known: tuple[int, int] | None = None  # which file it was at the last look

    def read(self, most: int = MOST) -> bytes:
        """What is new; nothing when there is nothing, and never more than `most`."""
        # Opened anew each time: only that makes NFS look at the server.
        fresh = _open(self.path)
        if self._known is None:
            if fresh < 0:
                return b""
            self._file, self._known = fresh, _which(fresh)
            return self._begin(most)
        if fresh >= 0 and _which(fresh) != self._known:
            if rest := self._new(most):
                os.close(fresh)
                return rest
            self.position = 0
            self.restarts += 1
        if fresh >= 0:
            self.close()
            self._file, self._known = fresh, _which(fresh)
        if (size := _size(self._file)) is not None and size < self.position:
            self.position = 0
            self.restarts += 1
        return self._new(most)

    def close(self) -> None:
        """Give the descriptor back; `read` goes on where it was. The rest of a file that is replaced is lost then."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, most: int) -> bytes:
        size = _size(self._file) or 0
        if self._last is None or size <= self._last:
            self.position = min(self.position, size)
            self.left_out = self.position
            return self._new(most)
        self.position = size - self._last
        data = self._new(most)
        _, newline, whole = data.partition(b"\n")
        self.left_out = self.position - len(whole if newline else data)
        return whole if newline else data

    def _new(self, most: int) -> bytes:
        try:
            data = os.pread(self._file, most, self.position)
        except OSError:  # removed on the server, above all
            return b""
        self.position += len(data)
        return data


def _open(path: str) -> int:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return -1


def _which(file: int) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.fstat(file)
        return found.st_dev, found.st_ino
    return None


def _size(file: int) -> int | None:
    with suppress(OSError):
        return os.fstat(file).st_size
    return None


def last_lines(path: str | os.PathLike[str], count: int, counts: Callable[[bytes], bool] | None = None) -> int:
    """Where the last `count` lines begin; of them only those count for whose end `counts` says yes. Raises OSError."""
    with open(path, "rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        if count <= 0:
            return size
        for newline in _newlines(file, size):
            if newline == size - 1:  # it ends the last line
                end = newline
                continue
            begin = newline + 1
            file.seek(max(begin, end - _LONGEST))
            count -= counts is None or counts(file.read(min(end - begin, _LONGEST)))
            if not count:
                return begin
            end = newline
    return 0


def _newlines(file: BinaryIO, position: int) -> Iterator[int]:
    """The places of the newlines before a position, from the last to the first."""
    while position:
        start = max(0, position - _BLOCK)
        file.seek(start)
        block = file.read(position - start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            yield start + at
        position = start
