"""Reading a file while it grows, even if it is truncated, removed or replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO

MAX_READ = 1 << 20  # bytes of one read
_BLOCK = 1 << 16
_MAX_LINE = 1 << 14  # bytes at the end of a line that are examined


class LogFile:
    """Returns what was appended to a file since the last read.

    The file may not exist yet, and may be truncated, removed or replaced. The rest of a replaced file is returned
    before the content of the new one.
    """

    def __init__(self, path: str | os.PathLike[str], *, last: int | None = None, position: int = 0) -> None:
        """Start at `position`, or with `last` at the first whole line of the last `last` bytes."""
        self.path = os.fspath(path)
        self.position = position  # of the next byte
        self.skipped = 0  # bytes before the first that was read
        self.restarts = 0  # how often the file was truncated or replaced
        self._last = last
        self._file = -1
        self._known: tuple[int, int] | None = None  # device and inode at the last read

    def read(self, most: int = MAX_READ) -> bytes:
        """The new bytes, at most `most`; empty if there are none."""
        # Opened each time: NFS revalidates its cache only then.
        fresh = _open(self.path)
        if self._known is None:
            if fresh < 0:
                return b""
            self._file, self._known = fresh, _identity(fresh)
            return self._begin(most)
        if fresh >= 0 and _identity(fresh) != self._known:
            if rest := self._new(most):
                os.close(fresh)
                return rest
            self.position = 0
            self.restarts += 1
        if fresh >= 0:
            self.close()
            self._file, self._known = fresh, _identity(fresh)
        if (size := _size(self._file)) is not None and size < self.position:
            self.position = 0
            self.restarts += 1
        return self._new(most)

    def close(self) -> None:
        """Close the descriptor; `read` continues where it was, but loses the rest of a file that is replaced."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, most: int) -> bytes:
        size = _size(self._file) or 0
        if self._last is None or size <= self._last:
            self.position = min(self.position, size)
            self.skipped = self.position
            return self._new(most)
        self.position = size - self._last
        data = self._new(most)
        _, newline, whole = data.partition(b"\n")
        self.skipped = self.position - len(whole if newline else data)
        return whole if newline else data

    def _new(self, most: int) -> bytes:
        try:
            data = os.pread(self._file, most, self.position)
        except OSError:  # such as a file removed on the NFS server
            return b""
        self.position += len(data)
        return data


def _open(path: str) -> int:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would block
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return -1


def _identity(file: int) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.fstat(file)
        return found.st_dev, found.st_ino
    return None


def _size(file: int) -> int | None:
    with suppress(OSError):
        return os.fstat(file).st_size
    return None


def last_lines(path: str | os.PathLike[str], count: int, counts: Callable[[bytes], bool] | None = None) -> int:
    """The position of the last `count` lines, counting only those whose end satisfies `counts`. Raises OSError."""
    with open(path, "rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        if count <= 0:
            return size
        for newline in _newlines(file, size):
            if newline == size - 1:  # ends the last line
                end = newline
                continue
            begin = newline + 1
            file.seek(max(begin, end - _MAX_LINE))
            count -= counts is None or counts(file.read(min(end - begin, _MAX_LINE)))
            if not count:
                return begin
            end = newline
    return 0


def _newlines(file: BinaryIO, position: int) -> Iterator[int]:
    """The positions of the newlines before a position, from the last to the first."""
    while position:
        start = max(0, position - _BLOCK)
        file.seek(start)
        block = file.read(position - start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            yield start + at
        position = start
