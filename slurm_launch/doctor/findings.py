"""What the doctor says: a line for each thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]
WIDTH = 13  # of what a line is about: memory-limit is the longest, and some room


@dataclass(frozen=True)
class Finding:
    """One thing, how it is, and what to do about it."""

    status: Status  # ok; note: works, but know it; problem: a job will fail, or nothing can be said
    about: str
    text: str
    hint: str | None = None

    def line(self) -> str:
        whole = f"{self.text}; {self.hint}" if self.hint else self.text
        return row(self.status, self.about, " ".join(whole.split()))


def row(status: str, about: str, text: str) -> str:
    return f"{status:<8} {about:<{WIDTH}} {text}"


def ok(about: str, text: str) -> Finding:
    return Finding("ok", about, text)


def note(about: str, text: str, hint: str | None = None) -> Finding:
    return Finding("note", about, text, hint)


def problem(about: str, text: str, hint: str | None = None) -> Finding:
    return Finding("problem", about, text, hint)
