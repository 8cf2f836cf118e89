"""What the rules look at: Slurm's state of a job, and the lines of its files sorted by who wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slurm_launch.explain import tracebacks
from slurm_launch.explain.job_files import JobFiles, Line, numbered_lines
from slurm_launch.explain.tracebacks import PythonError
from slurm_launch.runs.log_phases import End, MemoryKills

TAIL = 40  # lines at the end of a command's output that are searched for a cause if there is no traceback
# A line of a node's Ray that the script repeats in the log; `n2 said:` was written before version 0.2.0.
_NODE_OUTPUT = re.compile(r"\[slurm-launch\] \d{4}-\S+ (?:\[(?P<node>[^\]\s]+)\]|(?P<former>\S+) said:) (?P<text>.*)")


@dataclass(frozen=True)
class JobFacts:
    """All that is known about a job that is to be explained."""

    state: str = "UNKNOWN"  # Slurm's
    reason: str | None = None  # Slurm's
    code: int | None = None  # of the job's script, if it ended by itself
    signal: int = 0
    files: JobFiles = field(default_factory=JobFiles)
    spec: Mapping[str, Any] = field(default_factory=dict)  # the options given, by their YAML keys
    asked: bool = True  # whether slurmctld could be reached
    cancelled: str | None = None  # when `slurm-launch cancel` was called for it


class Evidence:
    """The facts, with the lines of the log sorted by who wrote them."""

    def __init__(self, facts: JobFacts) -> None:
        self.facts = facts
        log = facts.files.log
        self.end: End | None = log.end
        self.version = log.attempt.ray  # of the head's Ray, once it was ready
        self.lines = [line for line, _ in log.lines]
        self.node_output: dict[str, list[Line]] = {}  # the last lines of each node's Ray
        self.warnings: list[Line] = []
        self.kill_lines: list[Line] = []  # the script's lines about processes that the kernel killed for memory
        self.before_command: list[Line] = []  # output of the environment, bash and srun
        self.output: list[Line] = []  # of the command
        self.end_line: Line | None = None
        command_started = False
        for line, phase in log.lines:
            if (match := _NODE_OUTPUT.search(line.text)) is not None:
                node = match["node"] or match["former"]
                self.node_output.setdefault(node, []).append(Line(line.where, match["text"], node))
            elif phase is None:
                (self.output if command_started else self.before_command).append(line)
            elif phase.name == "command":
                command_started = True
            elif phase.name == "warning":
                self.warnings.append(line)
            elif phase.name == "out-of-memory":
                self.kill_lines.append(line)
            elif phase.name == "end":
                self.end_line = line

    @property
    def outcome(self) -> str:
        return self.end.outcome if self.end else ""

    @property
    def memory_kills(self) -> MemoryKills | None:
        """The last ones that may have ended the job: if it ended because of a node, those on that node."""
        node = self.end.node if self.end and self.outcome not in ("ok", "command-failed", "out-of-memory") else None
        kills = [kills for kills in self.facts.files.log.attempt.memory_kills.values() if node in (None, kills.node)]
        return kills[-1] if kills else None

    @property
    def reported(self) -> list[Line]:
        """The script's last line, and the output of the node that it names."""
        node = self.end.node if self.end else None
        return [*([self.end_line] if self.end_line else []), *self.node_output.get(node or "", ())]

    @property
    def last_lines(self) -> tuple[Line, ...]:
        """The last lines of the output, and the script's last line if there is one."""
        last = (self.output or self.before_command)[-3:]
        return (*last, *([self.end_line] if self.end_line else []))

    @cached_property
    def _traceback(self) -> tuple[int, int] | None:
        return tracebacks.last_traceback(self.output)

    @property
    def error_output(self) -> list[Line]:
        """The command's output that may contain the cause: the last traceback and all after it, or the last lines."""
        return self.output[self._traceback[0] :] if self._traceback else self.output[-TAIL:]

    @cached_property
    def exception(self) -> PythonError | None:
        """The exception of the last traceback in the command's output."""
        return tracebacks.parse_traceback(self.output[self._traceback[1] :]) if self._traceback else None

    def ray_lines(self, node: str | None = None, file: str = "") -> Iterator[Line]:
        """The lines of Ray's logs, of one node and of files with that name, without Ray's statistics."""
        for name, text in self.facts.files.ray_logs.items():
            if (node is None or name.startswith(f"{node}/")) and file in name:
                yield from (line for line in numbered_lines(name, text) if not line.text.startswith("[state-dump]"))


def matching(lines: Iterable[Line], pattern: re.Pattern[str]) -> list[tuple[Line, re.Match[str]]]:
    return [(line, match) for line in lines if (match := pattern.search(line.text))]


def last_distinct(lines: Sequence[Line], most: int = 4) -> tuple[Line, ...]:
    """The last lines, without repetitions; numbers do not count as a difference."""
    distinct = {re.sub(r"[\d:,.+-]+", "", line.text): line for line in lines}
    return tuple(distinct.values())[-most:]
