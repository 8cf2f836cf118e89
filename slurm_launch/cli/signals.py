"""Signals that end the process, for verbs that must clean up first."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Interrupted(Exception):
    """Ctrl-C, as an exception that Typer does not swallow."""


class ReaderGone(Exception):
    """The reader of stdout has closed it; as above."""


@contextmanager
def cleanup_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP run `finally` blocks before the process ends, as Ctrl-C does."""
    # Only those that would end the process: nohup ignores SIGHUP.
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
