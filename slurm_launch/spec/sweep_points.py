"""The points of a sweep: what was written, read into values, and how they stand in a script.

    --sweep lr=1e-3,1e-4 --sweep seed=0..4

Pure: the files of --sweep-file are read by sweep_file.py. All that is wrong is a BadValue, told before anything is
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
from slurm_launch.spec.array_checks import task_numbers
from slurm_launch.spec.checks import BadValue, one_line, pairs

MAX_POINTS = MAX_TASKS
_HINT = "write KEY=A,B,C or KEY=0..9, for example lr=1e-3,1e-4 or seed=0..4"
# Variables without which, or with a value of which, the command's shell, its programs or its Ray would not work.
_TAKEN = re.compile(
    r"_|PATH|IFS|HOME|USER|SHELL|PWD|OLDPWD|TMPDIR|ENV|TERM|UID|EUID|PPID|GROUPS|DIRSTACK|FUNCNAME|PIPESTATUS|RANDOM|SRANDOM"
    r"|SECONDS|LINENO|HISTCMD|HOSTNAME|OPTIND|OPTARG|OPTERR|PS[0-4]|CDPATH|GLOBIGNORE|POSIXLY_CORRECT|EXECIGNORE"
    r"|SHELLOPTS|TIMEFORMAT|PYTHONPATH|PYTHONHOME|CUDA_VISIBLE_DEVICES|LC_ALL|LANG"
    r"|(EPOCH|COMP_|BASH|LD_|RAY_|SLURM_|SLURMD_|SLAUNCH_|SBATCH_|SRUN_)\w*"
)
_RANGE = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:\.\.(-?[0-9]{1,18}))?")
_ITEM = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*(?=,|$)|([^,]*))(,|$)')


@dataclass(frozen=True)
class Points:
    """The points of a sweep, by their number from 0: of each the values, in the order of the keys."""

    keys: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def point(self, number: int) -> dict[str, str]:
        return dict(zip(self.keys, self.rows[number], strict=True))

    def lines(self) -> list[str]:
        """Each point as shell words: lr=1e-3 name='a b'."""
        known: dict[str, str] = {}  # most values come often

        def quoted(value: str) -> str:
            if value not in known:
                known[value] = shlex.quote(value)
            return known[value]

        return [
            " ".join([f"{key}={quoted(value)}" for key, value in zip(self.keys, row, strict=True)]) for row in self.rows
        ]


def from_lines(lines: Iterable[str]) -> Points:
    """What `lines` was made from; BadValue when somebody has edited it and it is none any more."""
    keys: tuple[str, ...] | None = None
    rows = []
    for number, line in enumerate(lines):
        try:
            words = shlex.split(line) if re.search(r"['\"\\]", line) else line.split()
            point = dict(word.split("=", 1) for word in words)
        except ValueError:
            raise BadValue(f"point {number} cannot be read: {show(line)}", "write KEY=VALUE KEY=VALUE") from None
        keys = keys or tuple(checked_key(key) for key in point)
        if tuple(point) != keys:
            raise BadValue(f"point {number} has other keys than the first: {show(line)}", "give all the same keys")
        rows.append(tuple(point.values()))
    if not keys:
        raise BadValue("there are no points", "write one a line: KEY=VALUE KEY=VALUE")
    return Points(keys, rows)


# What is written


def checked_key(key: str) -> str:
    """The name of a variable that the command may get."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        hint = "a key becomes a variable: letters, digits and _, not a digit first"
        raise BadValue(f"has a key that cannot name a variable: {show(key)}", hint)
    if _TAKEN.fullmatch(key):
        hint = "it means something to the shell, to Ray or to Slurm; choose another name"
        raise BadValue(f"has a key that the command's shell needs itself: {key}", hint)
    return key


def value_text(value: Any) -> str:
    """A value as the command gets it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise BadValue(f"has a value that is no text and no number: {show(value)}", "put no list into a point")
    return one_line(str(value))


def written(values: Any) -> Any:
    """The values of a key as one text, such that reading it gives them back: a,"b, c",d. A text is left as it is."""
    if not isinstance(values, (list, tuple)):
        return values
    return ",".join(_item(value_text(value)) for value in values)


def _item(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",]|^\s|\s$|^$', text) else text


def option_value(value: Any) -> Any:
    """The keys of --sweep: KEY=VALUES, or a mapping with a list for each key."""
    if isinstance(value, (list, tuple)):
        keys = [str(item).partition("=")[0].strip() for item in value]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise BadValue(f"has {show(twice)} twice", "give each key once, with all of its values: lr=1e-3,1e-4")
    return declared(pairs(value, "lr=1e-3,1e-4"))


def declared(given: Mapping[str, Any]) -> dict[str, str]:
    """What a spec holds of --sweep: the keys with their values as they are written, checked."""
    found: dict[str, str] = {}
    counts = []
    for name, values in given.items():
        key = checked_key(str(name))
        if values is None or values == [] or values == ():
            raise BadValue(f"has no values for {key}", _HINT)
        found[key] = one_line(str(written(values)))
        counts.append(_count(_values(key, found[key])))
    if (count := prod(counts)) > MAX_POINTS:
        sizes = " x ".join(f"{size:,}" for size in counts)
        raise BadValue(
            f"has {count:,} points{f' ({sizes})' if len(counts) > 1 else ''}, at most {MAX_POINTS:,} are possible",
            "take fewer values, or let the command choose among them (Ray Tune does)",
        )
    return found


def every_combination(sweep: Mapping[str, str]) -> Points:
    """All points of a checked --sweep; the last key varies fastest."""
    values = [[text for one in _values(key, text) for text in one] for key, text in sweep.items()]
    return Points(tuple(sweep), list(product(*values)))


@dataclass(frozen=True)
class _Range:
    """Whole numbers, padded with zeros where they are written so."""

    numbers: range
    width: int = 0

    def __iter__(self) -> Any:
        return (str(number).zfill(self.width) for number in self.numbers)


def _count(values: Iterable[_Range | tuple[str]]) -> int:
    return sum(len(one.numbers) if isinstance(one, _Range) else 1 for one in values)


def _values(key: str, text: str) -> list[_Range | tuple[str]]:
    """The values of a key: ranges not expanded yet, and single ones."""
    if not text.strip():
        raise BadValue(f"has no values for {key}", _HINT)
    found: list[_Range | tuple[str]] = []
    end = 0
    while end <= len(text):
        item = _ITEM.match(text, end)
        assert item  # it matches anything
        if item[1] is not None:
            found.append((item[1].replace('""', '"'),))
        elif item[2].strip().startswith('"'):
            raise BadValue(f"has a quote without its end for {key}: {show(text)}", 'write "a, b"; a quote within is ""')
        elif item[2].strip():
            found.append(_range(key, item[2].strip()) or (item[2].strip(),))
        else:
            raise BadValue(f"has an empty value for {key}: {show(text)}", 'write "" for a value without text')
        end = item.end() + (not item[3])  # without a comma this was the last
    return found


def _range(key: str, text: str) -> _Range | None:
    """a..b or a..b..step, both ends included; None for a plain value."""
    hint = f"write {key}=0..9 or {key}=0..20..5: from the smaller whole number to the larger"
    found = _RANGE.fullmatch(text)
    if found is None:
        if re.fullmatch(r"[0-9.eE+-]*[0-9]\.\.[0-9.eE+-]*", text):
            raise BadValue(f"has a range that is none for {key}: {show(text)}", f'{hint}; in "" it is a plain text')
        return None
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if step <= 0:
        raise BadValue(f"has a range with the step {step} for {key}: {text}", hint)
    if first > last:
        raise BadValue(f"has a range that runs backwards for {key}: {text}", hint)
    padded = any(re.match("0[0-9]", end) for end in (found[1], found[2]))
    return _Range(range(first, last + 1, step), max(len(found[1]), len(found[2])) if padded else 0)


# Which of them


def chosen(text: str | None, count: int) -> list[int]:
    """The numbers of the points that --points chooses, or all."""
    if text is None:
        return list(range(count))
    last = max(int(part.partition(":")[0].rpartition("-")[2]) for part in text.split(","))
    if last >= count:
        raise BadValue(f"names point {last}, but the sweep has {count}", f"they are 0 to {count - 1}")
    return array_numbers(text)


def array_indexes(selection: str | None, count: int) -> str:
    """The tasks of a sweep's array, one for each point and with its number: 0-11, or what --points selects."""
    chosen(selection, count)
    return selection or (f"0-{count - 1}" if count > 1 else "0")


def selection(text: str) -> str:
    """--points as a spec holds it."""
    hint = "write 3, 3,7-9 or 0-20:4: the points have numbers from 0"
    task_numbers(text, f"names no points: {show(text)}", hint)
    return text
