"""Options for pytest."""

from __future__ import annotations

import signal

import pytest

# A shell without job control starts background processes with SIGINT ignored, and the programs that tests start would
# inherit that: no Ctrl-C would end them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden with what is rendered now")
