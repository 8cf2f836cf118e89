"""Output: results on stdout, messages on stderr, color only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal, TextIO

from slurm_launch.errors import InvalidSpec, LaunchError

SCHEMA = 1  # version of the JSON output


def markup() -> Literal["rich", None]:
    """Panels and colors for help on a terminal, plain text elsewhere."""
    return "rich" if sys.stdout.isatty() else None


def print_json(**result: Any) -> None:
    print(json.dumps({"schema": SCHEMA, **result}, indent=2))


def note(text: str) -> None:
    """Print a note in addition to the result."""
    print(_colored("note:", "33", sys.stderr), printable(text, sys.stderr), file=sys.stderr)


def warn(text: str) -> None:
    print(_colored("warning:", "33", sys.stderr), printable(text, sys.stderr), file=sys.stderr)


def print_error(error: LaunchError) -> None:
    """Print what is wrong, where, and what to do; every problem of an invalid spec."""
    for problem in error.problems if isinstance(error, InvalidSpec) else [error]:
        print(_colored("error:", "31", sys.stderr), printable(str(problem), sys.stderr), file=sys.stderr)


def printable(text: str, stream: TextIO) -> str:
    """Text without terminal control sequences, which the encoding of the stream can represent."""
    shown = "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
    encoding = stream.encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def _colored(text: str, color: str, stream: TextIO) -> str:
    plain = not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{color};1m{text}\033[0m"


def print_table(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    for line in table_lines(rows):
        print(indent + line)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, whatever newlines its cells contain."""
    table = [[printable(text, sys.stdout).replace("\n", " ").replace("\t", " ") for text in row] for row in rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
