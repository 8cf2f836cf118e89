"""Rows on stdout, in columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from slurm_launch.cli.output import printable


def print_table(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    for line in table_lines(rows):
        print(indent + line)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row; nothing in a cell begins another one."""
    table = [[printable(text, sys.stdout).replace("\n", " ").replace("\t", " ") for text in row] for row in rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
