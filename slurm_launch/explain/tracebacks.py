"""The Python exception that ended a command, from the last traceback in its output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_launch.explain.job_files import Line

_HEADER = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'\s+File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_EXCEPTION = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:\((?P<inner>[\w.]+)\))?(?:: ?(?P<message>.*))?")
_SYNTAX_ERROR = re.compile(r"(Syntax|Indentation|Tab)Error: ")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3|^<frozen|^python/ray/")


@dataclass(frozen=True)
class PythonError:
    """The exception that ended a Python program."""

    name: str  # without its module
    message: str
    file: str | None  # the last place in the user's own code
    line: str | None
    function: str | None
    evidence: tuple[Line, ...]

    @property
    def place(self) -> str:
        inside = f" in {self.function}" if self.function and not self.function.startswith("<") else ""
        return f"{self.file}:{self.line}{inside}" if self.file else ""


def last_traceback(output: Sequence[Line]) -> tuple[int, int] | None:
    """Where the last traceback begins: with the exceptions that it is chained to, and without."""
    starts = [number for number, line in enumerate(output) if line.text == _HEADER]
    if not starts:
        # A syntax error in the main file has no header.
        errors = [number for number, line in enumerate(output) if _SYNTAX_ERROR.match(line.text)]
        return (max(0, errors[-1] - 4),) * 2 if errors else None
    chain = starts[-1]
    for start, after in zip(starts[-2::-1], starts[:0:-1], strict=True):
        if not any(line.text.startswith(_CHAINED) for line in output[start:after]):
            break
        chain = start
    return chain, starts[-1]


def parse_traceback(block: Sequence[Line]) -> PythonError | None:
    """The exception of a traceback; `block` begins with its header."""
    plain = [number for number, line in enumerate(block) if number and line.text[:1].strip()]
    first = next((number for number in plain if _EXCEPTION.fullmatch(block[number].text)), None)
    if first is None:
        return None
    outer = _EXCEPTION.fullmatch(block[first].text)
    assert outer is not None
    last = first
    if outer["inner"]:  # RayTaskError(KeyError): the traceback of the task follows
        suffix = outer["inner"].split(".")[-1]
        inner = [number for number in plain if number > first and block[number].text.split(":")[0].endswith(suffix)]
        last = inner[-1] if inner else first
    exception = _EXCEPTION.fullmatch(block[last].text) or outer
    frames = [(line, frame) for line in block[:last] if (frame := _FRAME.match(line.text))]
    own = [(line, frame) for line, frame in frames if not _LIBRARY.search(frame["file"])]
    at = own[-1] if own else None
    evidence = [*([at[0]] if at else []), *([block[first]] if last != first else []), *block[last : last + 2]]
    evidence.sort(key=block.index)
    return PythonError(
        exception["name"].split(".")[-1],
        (exception["message"] or "").strip(),
        file=at[1]["file"] if at else None,
        line=at[1]["line"] if at else None,
        function=at[1]["function"] if at else None,
        evidence=tuple(evidence),
    )
