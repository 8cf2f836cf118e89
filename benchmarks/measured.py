"""One measurement with its goal, as all parts of the benchmark return it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Measured:
    """One line of the table. Without a goal it is informational."""

    what: str
    goal: str
    value: str
    ok: bool
    detail: str

    @property
    def verdict(self) -> str:
        return "" if not self.goal else "ok" if self.ok else "MISS"


def at_most(what: str, goal: float, value: float, detail: str, unit: str = "") -> Measured:
    return Measured(what, f"<= {goal:g}{unit}", f"{value:.2f}{unit}", value <= goal, detail)


def at_least(what: str, goal: float, value: float, detail: str, unit: str = "") -> Measured:
    return Measured(what, f">= {goal:g}{unit}", f"{value:.2f}{unit}", value >= goal, detail)


def known(what: str, value: str, detail: str) -> Measured:
    return Measured(what, "", value, True, detail)


def spread(seconds: Sequence[float]) -> str:
    """Return the median with minimum and maximum, for the details of a line."""
    return f"{median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


def printed(lines: Iterator[Measured]) -> Iterator[Measured]:
    """Print each line as it arrives, and pass it on."""
    for line in lines:
        print(f"{line.verdict:4}  {line.value:>9}  {line.goal:>9}  {line.what}", flush=True)
        print(f"{'':28}{line.detail}", flush=True)
        yield line


# A small process in between: a forked child starts with the caller's resident set, which would count.
CHILD = """
import resource, subprocess, sys, time
begin = time.perf_counter()
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
taken = time.perf_counter() - begin
print(taken, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
sys.exit(code)
"""


def seconds_and_megabytes(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[float, float]:
    """Return the duration of a command and its peak resident set."""
    command = [sys.executable, "-S", "-c", CHILD, *argv]
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=True)
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes
