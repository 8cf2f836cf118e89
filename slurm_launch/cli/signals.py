"""Signals that end us, for verbs that have something to put in order first."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Interrupted(Exception):
    """Ctrl-C, under a name that Typer does not swallow."""


class ReaderGone(Exception):
    """Nobody reads our output any more; as above."""


@contextmanager
def ended_in_order() -> Iterator[None]:
    """A signal that would end us at once runs what stands in `finally` first, as Ctrl-C does."""
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]  # nohup ignores one
    for number in numbers:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _leave(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
