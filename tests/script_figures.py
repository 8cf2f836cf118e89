"""python -m tests.script_figures [FILE...]: how readable a script is, in figures. Without FILE, some golden cases."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.unit.test_golden import rendered

CASES = ("one-node", "three-nodes", "pyxis", "long", "sweep")
SHFMT = Path(sys.executable).with_name("shfmt")
COLUMNS = ("script", "lines", "story", "p95", "max", "statements", "packed", "longest function", "characters")

# Data that is as long as the spec is: neither counts as code, nor for the width.
_DATA = re.compile(r"# spec|#SBATCH")
_NO_CODE = re.compile(r"\s*(#|$)")
_SEPARATOR = re.compile(r"&&|\|\||;")
# What bash's own syntax needs, in the form that shfmt writes: it joins no two statements.
_SYNTAX = re.compile(r"; (then|do)\b|;;|\(\([^;]*;[^;]*;[^;]*\)\)")
_FUNCTION = re.compile(r"(?:function )?([\w:.-]+) ?\(\) ?[{(]")
_ONE_LINE_BODY = re.compile(r"\s*[^\s#].*[})](\s*#.*)?")


@dataclass(frozen=True)
class Function:
    """A function at the top level of a script."""

    name: str
    first: int  # the number of its header's line, from 1
    last: int  # and of the line with its closing brace

    @property
    def length(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class Figures:
    """The figures of a script, defined as in the columns of the table."""

    lines: int
    story: int | None  # the number of the line that closes main(), None without main()
    usual_width: int  # 95 % of the code lines are not wider
    widest: int  # of all lines, comments included
    statements: float  # per code line: 1 and one for each &&, || and ;
    packed: float  # the same without `; then`, `; do`, `;;` and the semicolons of `for ((...))`
    longest: Function | None
    characters: int  # of all code lines


def functions(text: str) -> list[Function]:
    """The functions of a script; a body ends at the next closing brace in the first column."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        if header := _FUNCTION.match(line):
            if _ONE_LINE_BODY.fullmatch(line, header.end()):
                last = number
            else:
                later = enumerate(lines[number:], number + 1)
                last = next((place for place, other in later if other.startswith(("}", ")"))), len(lines))
            found.append(Function(header[1], number, last))
    return found


def story_lines(text: str) -> int | None:
    """The number of the line that closes main(); None without main()."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("main() {")), None)
    if start is None:
        return None
    return next((number for number, line in enumerate(lines[start:], start + 1) if line == "}"), None)


def measure(text: str) -> Figures:
    """The figures of a script."""
    counted = [line for line in text.splitlines() if not _DATA.match(line)]
    code = [line for line in counted if not _NO_CODE.match(line)]
    widths = sorted(map(len, code))
    statements = sum(1 + len(_SEPARATOR.findall(line)) for line in code)
    packed = sum(1 + len(_SEPARATOR.findall(_SYNTAX.sub("", line))) for line in code)
    return Figures(
        lines=len(text.splitlines()),
        story=story_lines(text),
        usual_width=widths[-(-len(widths) * 95 // 100) - 1] if widths else 0,
        widest=max(map(len, counted), default=0),
        statements=statements / len(code) if code else 0,
        packed=packed / len(code) if code else 0,
        longest=max(functions(text), key=lambda function: function.length, default=None),
        characters=sum(widths),
    )


def formatting_findings(scripts: Sequence[Path]) -> str:
    """The changes that shfmt would make to scripts, and the syntax errors that it finds."""
    command = [str(SHFMT), "-d", "-i", "2", "-ci", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True)
    report = done.stdout + done.stderr
    assert bool(report) == bool(done.returncode)
    return report


def table(measured: Iterable[tuple[str, Figures]]) -> str:
    """A line of figures for each script, below a line of headings."""
    rows = [COLUMNS, *(_row(name, figures) for name, figures in measured)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned(row, widths) for row in rows)


def _row(name: str, figures: Figures) -> tuple[str, ...]:
    longest = figures.longest
    return (
        name,
        str(figures.lines),
        "-" if figures.story is None else str(figures.story),
        str(figures.usual_width),
        str(figures.widest),
        f"{figures.statements:.2f}",
        f"{figures.packed:.2f}",
        "-" if longest is None else f"{longest.name} {longest.length}",
        str(figures.characters),
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *figures = row
    cells = [text.rjust(width) for text, width in zip(figures, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *cells])


def main(files: Sequence[str]) -> None:
    texts = {file: Path(file).read_text(encoding="utf-8") for file in files} or {case: rendered(case) for case in CASES}
    print(table((name, measure(text)) for name, text in texts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
