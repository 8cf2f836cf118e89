"""Run a program in a pseudo-terminal, as an interactive user would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence


class Terminal:
    """Start a program in a pseudo-terminal; use in a `with` block, at the end of which the program is killed.

    With `setsid --ctty --wait` in front of the command, the terminal is the controlling one and Ctrl-C is a signal."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        rows: int = 24,
        columns: int = 80,
    ) -> None:
        self.screen = ""
        self._fd, other = pty.openpty()
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            list(argv),
            stdin=other,
            stdout=other,
            stderr=other,
            env=env,
            cwd=cwd,
        )
        os.close(other)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, pattern: str, seconds: float = 60) -> str:
        """Wait until the pattern appears after the previous match; returns the match."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.screen)) is None:
            if not self._read(deadline):
                raise AssertionError(f"{pattern!r} did not appear:\n{self.screen}")
        self.screen = self.screen[found.end() :]
        return found[0]

    def end(self, seconds: float = 60) -> int:
        """Wait for the end of the program and return its exit code; `screen` has the remaining output."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(1.0, deadline - time.monotonic()))

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self._fd, 1 << 16) if ready else b""
        except OSError:  # no process has the terminal open any more
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)
