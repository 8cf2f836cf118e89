"""The points of a sweep: from the text of --sweep, and as lines of a script.

    --sweep lr=1e-3,1e-4 --sweep seed=0..4

Pure: config/sweep_file.py reads the files of --sweep-file. Every error is a BadValue, raised before anything is
expanded: a range of a billion numbers costs nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from slurm_launch.errors import show
from slurm_launch.slurm.array_ids import MAX_TASKS, array_numbers
from slurm_launch.spec.checks import BadValue, one_line, pairs, task_numbers

MAX_POINTS = MAX_TASKS
_HINT = "write KEY=A,B,C or KEY=0..9, for example lr=1e-3,1e-4 or seed=0..4"
# Variables that the command's shell, its programs or Ray depend on.
_RESERVED_KEYS = re.compile(
    r"_|PATH|IFS|HOME|USER|SHELL|PWD|OLDPWD|TMPDIR|ENV|TERM|UID|EUID|PPID|GROUPS|DIRSTACK|FUNCNAME|PIPESTATUS|RANDOM|SRANDOM"
    r"|SECONDS|LINENO|HISTCMD|HOSTNAME|OPTIND|OPTARG|OPTERR|PS[0-4]|CDPATH|GLOBIGNORE|POSIXLY_CORRECT|EXECIGNORE"
    r"|SHELLOPTS|TIMEFORMAT|PYTHONPATH|PYTHONHOME|CUDA_VISIBLE_DEVICES|LC_ALL|LANG"
    r"|(EPOCH|COMP_|BASH|LD_|RAY_|SLURM_|SLURMD_|SLAUNCH_|SBATCH_|SRUN_)\w*"
)
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.(-?[0-9]{1,18}))?")
_ITEM = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*(?=,|$)|([^,]*))(,|$)')


@dataclass(frozen=True)
class Points:
    """The points of a sweep, numbered from 0: the values of each, in the order of the keys."""

    keys: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def point(self, number: int) -> dict[str, str]:
        return dict(zip(self.keys, self.rows[number], strict=True))

    def lines(self) -> list[str]:
        """Each point as shell words: lr=1e-3 name='a b'."""
        cache: dict[str, str] = {}  # most values are frequent

        def quoted(value: str) -> str:
            if value not in cache:
                cache[value] = shlex.quote(value)
            return cache[value]

        return [
            " ".join([f"{key}={quoted(value)}" for key, value in zip(self.keys, row, strict=True)]) for row in self.rows
        ]


def from_lines(lines: Iterable[str]) -> Points:
    """The points of which `Points.lines` returned these lines; BadValue if an edit has made them invalid."""
    keys: tuple[str, ...] | None = None
    rows = []
    for number, line in enumerate(lines):
        try:
            words = shlex.split(line) if re.search(r"['\"\\]", line) else line.split()
            point = dict(word.split("=", 1) for word in words)
        except ValueError:
            raise BadValue(f"point {number} cannot be read: {show(line)}", "write KEY=VALUE KEY=VALUE") from None
        keys = keys or tuple(check_key(key) for key in point)
        if tuple(point) != keys:
            raise BadValue(f"point {number} has different keys than the first: {show(line)}", "use the same keys")
        rows.append(tuple(point.values()))
    if not keys:
        raise BadValue("there are no points", "write one per line: KEY=VALUE KEY=VALUE")
    return Points(keys, rows)


# --- keys and values as text -----------------------------------------------------------------------------------------


def check_key(key: str) -> str:
    """Return the key if it can be a variable of the command."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        hint = "a key becomes a variable: use letters, digits and _, not starting with a digit"
        raise BadValue(f"has a key that is not a valid variable name: {show(key)}", hint)
    if _RESERVED_KEYS.fullmatch(key):
        hint = "use another name: this one has a meaning for the shell, Ray or Slurm"
        raise BadValue(f"has a reserved key: {key}", hint)
    return key


def value_text(value: Any) -> str:
    """A value as the command receives it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise BadValue(f"has a value that is neither text nor a number: {show(value)}", "use a text or a number")
    return one_line(str(value))


def join_values(values: Any) -> Any:
    """The values of a key as one text from which they can be read again: a,"b, c",d. A text is returned unchanged."""
    if not isinstance(values, (list, tuple)):
        return values
    return ",".join(_quoted(value_text(value)) for value in values)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",]|^\s|\s$|^$', text) else text


def parse_sweep(value: Any) -> Any:
    """The keys of --sweep with their values as text, from KEY=VALUES or a mapping with a list for each key."""
    if isinstance(value, (list, tuple)):
        keys = [str(item).partition("=")[0].strip() for item in value]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise BadValue(f"has {show(twice)} twice", "give each key once, with all of its values: lr=1e-3,1e-4")
    return _check_sweep(pairs(value, "lr=1e-3,1e-4"))


def _check_sweep(sweep: Mapping[str, Any]) -> dict[str, str]:
    """The keys with their values as text, if they are valid and not too many."""
    checked: dict[str, str] = {}
    counts = []
    for name, values in sweep.items():
        key = check_key(str(name))
        if values is None or values == [] or values == ():
            raise BadValue(f"has no values for {key}", _HINT)
        checked[key] = one_line(str(join_values(values)))
        counts.append(_count(_values(key, checked[key])))
    if (count := prod(counts)) > MAX_POINTS:
        sizes = " x ".join(f"{size:,}" for size in counts)
        raise BadValue(
            f"has {count:,} points{f' ({sizes})' if len(counts) > 1 else ''}; the maximum is {MAX_POINTS:,}",
            "use fewer values, or let the command choose among them, for example with Ray Tune",
        )
    return checked


def all_combinations(sweep: Mapping[str, str]) -> Points:
    """All points of a checked --sweep; the last key varies fastest."""
    values = [[text for item in _values(key, text) for text in item] for key, text in sweep.items()]
    return Points(tuple(sweep), list(product(*values)))


@dataclass(frozen=True)
class _Range:
    """Whole numbers, padded with zeros to `width` digits."""

    numbers: range
    width: int = 0

    def __iter__(self) -> Any:
        return (str(number).zfill(self.width) for number in self.numbers)


def _count(values: Iterable[_Range | tuple[str]]) -> int:
    return sum(len(item.numbers) if isinstance(item, _Range) else 1 for item in values)


def _values(key: str, text: str) -> list[_Range | tuple[str]]:
    """The values of a key: unexpanded ranges, and single values."""
    if not text.strip():
        raise BadValue(f"has no values for {key}", _HINT)
    values: list[_Range | tuple[str]] = []
    end = 0
    while True:
        item = _ITEM.match(text, end)
        assert item  # the pattern matches any text
        if item[1] is not None:
            values.append((item[1].replace('""', '"'),))
        elif item[2].strip().startswith('"'):
            raise BadValue(f"has an unterminated quote for {key}: {show(text)}", 'write "a, b"; a quote inside is ""')
        elif item[2].strip():
            values.append(_range(key, item[2].strip()) or (item[2].strip(),))
        else:
            raise BadValue(f"has an empty value for {key}: {show(text)}", 'write "" for an empty value')
        if not item[3]:  # no comma: this was the last item
            break
        end = item.end()
    return values


def _range(key: str, text: str) -> _Range | None:
    """a..b or a..b..step, both ends included; None for a plain value."""
    hint = f"write {key}=0..9 or {key}=0..20..5: from the smaller whole number to the larger"
    match = _RANGE.fullmatch(text)
    if match is None:
        if re.fullmatch(r"[0-9.eE+-]*[0-9]\.\.[0-9.eE+-]*", text):
            raise BadValue(f"has an invalid range for {key}: {show(text)}", f'{hint}; in "" it is plain text')
        return None
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step <= 0:
        raise BadValue(f"has a range with step {step} for {key}: {text}", hint)
    if first > last:
        raise BadValue(f"has a descending range for {key}: {text}", hint)
    padded = any(re.match("0[0-9]", end) for end in (match[1], match[2]))
    return _Range(range(first, last + 1, step), max(len(match[1]), len(match[2])) if padded else 0)


# --- the selection of points -----------------------------------------------------------------------------------------


def selected_points(text: str | None, count: int) -> list[int]:
    """The numbers of the points that --points selects, or all."""
    if text is None:
        return list(range(count))
    last = max(int(part.partition(":")[0].rpartition("-")[2]) for part in text.split(","))
    if last >= count:
        raise BadValue(f"names point {last}, but the sweep has {count}", f"the points are 0 to {count - 1}")
    return array_numbers(text)


def array_indexes(selection: str | None, count: int) -> str:
    """The tasks of a sweep's array, numbered as its points: 0-11, or the value of --points."""
    selected_points(selection, count)
    return selection or (f"0-{count - 1}" if count > 1 else "0")


def check_selection(text: str) -> str:
    """Return the value of --points if it is a list of numbers."""
    hint = "write 3, 3,7-9 or 0-20:4; points are numbered from 0"
    task_numbers(text, f"is not a selection of points: {show(text)}", hint)
    return text
