"""A program on a terminal of its own, as a person at a keyboard has it."""

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
    """Starts a program in a pseudo-terminal; for a `with` block, at the end of which it is killed.

    `setsid --ctty --wait` as its first words makes the terminal the controlling one, so that Ctrl-C is a signal."""

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
        """Until the screen shows it, behind what was waited for before; returns what it is."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern, self.screen)) is None:
            if not self._read(deadline):
                raise AssertionError(f"{pattern!r} did not come:\n{self.screen}")
        self.screen = self.screen[found.end() :]
        return found[0]

    def end(self, seconds: float = 60) -> int:
        """The exit code, when the program has ended; `screen` is all that was not waited for."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self.process.wait(max(1.0, deadline - time.monotonic()))

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self._fd, 1 << 16) if ready else b""
        except OSError:  # nobody has the terminal any more
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)
