"""What goes to the terminal: results on stdout, talk on stderr, colour only where someone sees it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal, TextIO

from slurm_launch.errors import InvalidSpec, LaunchError

SCHEMA = 1  # of every --json answer


def markup() -> Literal["rich", None]:
    """Panels and colours for help on a terminal, plain text for a pipe."""
    return "rich" if sys.stdout.isatty() else None


def print_json(**answer: Any) -> None:
    print(json.dumps({"schema": SCHEMA, **answer}, indent=2))


def note(text: str) -> None:
    """Something worth knowing beside the result."""
    print(_coloured("note:", "33", sys.stderr), printable(text, sys.stderr), file=sys.stderr)


def warn(text: str) -> None:
    print(_coloured("warning:", "33", sys.stderr), printable(text, sys.stderr), file=sys.stderr)


def print_error(error: LaunchError) -> None:
    """What is wrong, where, and what to do; every problem of an invalid spec."""
    for problem in error.problems if isinstance(error, InvalidSpec) else [error]:
        print(_coloured("error:", "31", sys.stderr), printable(str(problem), sys.stderr), file=sys.stderr)


def printable(text: str, stream: TextIO) -> str:
    """Text that a terminal cannot take for commands, and that every encoding can carry."""
    shown = "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    encoding = stream.encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def _coloured(text: str, colour: str, stream: TextIO) -> str:
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{colour};1m{text}\033[0m"


def print_table(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    for line in table_lines(rows):
        print(indent + line)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row; nothing in a cell begins another one."""
    table = [[printable(text, sys.stdout).replace("\n", " ").replace("\t", " ") for text in row] for row in rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
