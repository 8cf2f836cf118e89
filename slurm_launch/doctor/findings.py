"""The lines of the doctor's report: one for each check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "problem"]
WIDTH = 13  # of the column `about`; the longest is memory-limit


@dataclass(frozen=True)
class CheckResult:
    """What was checked, the result, and what to do about it."""

    status: Status  # note: works, but worth knowing; problem: jobs will fail, or the check got no response
    about: str
    text: str
    hint: str | None = None

    def line(self) -> str:
        whole = f"{self.text}; {self.hint}" if self.hint else self.text
        return row(self.status, self.about, " ".join(whole.split()))


def row(status: str, about: str, text: str) -> str:
    return f"{status:<8} {about:<{WIDTH}} {text}"


def ok(about: str, text: str) -> CheckResult:
    return CheckResult("ok", about, text)


def note(about: str, text: str, hint: str | None = None) -> CheckResult:
    return CheckResult("note", about, text, hint)


def problem(about: str, text: str, hint: str | None = None) -> CheckResult:
    return CheckResult("problem", about, text, hint)


def has_problem(findings: list[CheckResult]) -> bool:
    return any(finding.status == "problem" for finding in findings)
