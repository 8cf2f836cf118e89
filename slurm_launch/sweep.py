"""The points of a sweep: what was written, read into values. Pure; files are read by sweep_file.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Points:
    """The points of a sweep, by their number from 0: of each the values, in the order of the keys."""

    keys: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def point(self, number: int) -> dict[str, str]:
        return dict(zip(self.keys, self.rows[number], strict=True))
