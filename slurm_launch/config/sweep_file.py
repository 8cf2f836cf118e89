"""The points of a launch: those of --sweep, or of the file that --sweep-file names (.csv, .yaml, .yml or .jsonl)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch.errors import UsageError, show
from slurm_launch.spec import sweep_points
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.sweep_points import MAX_POINTS, Points

if TYPE_CHECKING:
    from slurm_launch.spec.launch_spec import LaunchSpec

MAX_BYTES = 64 << 20  # more than MAX_POINTS need; --sweep-file /dev/zero must end
Row = tuple[int, list[tuple[str, Any]]]  # a line of the file, and the point that stands there


def points_of(spec: LaunchSpec) -> Points | None:
    """All points of the sweep that a spec asks for; None when it is none. A relative file is looked for here."""
    if spec.sweep:
        return sweep_points.every_combination(spec.sweep)
    return read(spec.sweep_file) if spec.sweep_file is not None else None


def task_numbers(spec: LaunchSpec, points: Points) -> str:
    """The tasks of a sweep's array, a task for each point and with its number: 0-11, or what --points says."""
    try:
        sweep_points.chosen(spec.points, len(points))
    except BadValue as problem:
        raise UsageError(f"--points {problem}", at="--points", hint=problem.hint) from None
    return spec.points or (f"0-{len(points) - 1}" if len(points) > 1 else "0")


def read(path: str) -> Points:
    """The points in a file. All that is wrong with it is a UsageError with the line."""
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        known = "CSV with a header (.csv), a list of mappings (.yaml, .yml) or an object a line (.jsonl)"
        raise UsageError(f"--sweep-file is of no known kind: {show(path)}", at=path, hint=f"give {known}")
    return _points(path, reader(path, _text(path)))


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--sweep-file cannot be read: {why}", at=path, hint="check the path") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"--sweep-file is larger than {MAX_BYTES >> 20} MB", at=path, hint="is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError("--sweep-file is not UTF-8 text", at=f"{path}:{line}", hint="save it as UTF-8") from None


def _points(path: str, rows: Iterable[Row]) -> Points:
    """The rows as points: all with the keys of the first."""
    keys: tuple[str, ...] = ()
    found: list[tuple[str, ...]] = []
    for line, pairs in rows:
        at = f"{path}:{line}"
        point = dict(pairs)
        try:
            if not pairs:
                raise BadValue("has a point without keys", "give it a value for each key")
            if not keys:
                keys = tuple(sweep_points.checked_key(key) for key, _ in pairs)
            if len(point) < len(pairs):
                names = [key for key, _ in pairs]
                twice = next(name for name in names if names.count(name) > 1)
                raise BadValue(f"has {show(twice)} twice", "keep one of them")
            if point.keys() != set(keys):
                raise BadValue(
                    f"has a point with other keys than the first: {_difference(keys, list(point))}",
                    "give every point the same keys",
                )
            found.append(tuple([sweep_points.value_text(point[key]) for key in keys]))
        except BadValue as problem:
            raise UsageError(f"--sweep-file {problem}", at=at, hint=problem.hint) from None
        if len(found) > MAX_POINTS:
            raise UsageError(f"--sweep-file has more than {MAX_POINTS:,} points", at=at, hint="take fewer")
    if not keys:
        raise UsageError("--sweep-file has no points", at=path, hint="write one a line; of a CSV, below the header")
    return Points(keys, found)


def _difference(keys: Iterable[str], others: Iterable[str]) -> str:
    missing, more = [key for key in keys if key not in set(others)], [key for key in others if key not in set(keys)]
    told = [f"{', '.join(missing)} is missing"] * bool(missing) + [f"{', '.join(map(show, more))} is new"] * bool(more)
    return " and ".join(told) or "none"


def _read_csv(path: str, text: str) -> Iterator[Row]:
    rows = csv.reader(text.splitlines(keepends=True), skipinitialspace=True, strict=True)
    header: list[str] | None = None
    line = 0
    try:
        for cells in rows:
            line = rows.line_num
            if not cells or cells == [""]:
                continue  # a blank line
            if header is None:
                header = [_header_key(cell.strip(), path, line) for cell in cells]
                if twice := next((name for name in header if header.count(name) > 1), None):
                    raise UsageError(f"--sweep-file has {twice} twice", at=f"{path}:{line}", hint="keep one of them")
            elif len(cells) != len(header):
                message = f"--sweep-file has a row with {len(cells)} values, but the header has {len(header)} keys"
                hint = 'give each key a value; one with commas goes in "..."'
                raise UsageError(message, at=f"{path}:{line}", hint=hint)
            else:
                yield line, list(zip(header, cells, strict=True))
    except csv.Error as error:
        hint = 'quotes are written "" within "..."'
        raise UsageError(f"--sweep-file is no CSV: {error}", at=f"{path}:{line + 1}", hint=hint) from None


def _header_key(cell: str, path: str, line: int) -> str:
    try:
        return sweep_points.checked_key(cell)
    except BadValue as problem:
        hint = f"the first line names the keys, separated by commas, for example lr,seed; {problem.hint}"
        raise UsageError(f"--sweep-file {problem}", at=f"{path}:{line}", hint=hint) from None


def _read_jsonl(path: str, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:  # numbers as they are written: 1e-3 stays 1e-3
            point = json.loads(line, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError) as error:
            at, hint = f"{path}:{number}", 'write an object a line: {"lr": 1e-3, "seed": 0}'
            raise UsageError(f"--sweep-file has a line that is no JSON: {error}", at=at, hint=hint) from None
        if not isinstance(point, _Pairs):
            at, hint = f"{path}:{number}", 'write an object a line: {"lr": 1e-3, "seed": 0}'
            raise UsageError(f"--sweep-file has a line that is no object: {show(line)}", at=at, hint=hint)
        yield number, list(point)


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, with keys that come twice."""


def _read_yaml(path: str, text: str) -> Iterator[Row]:
    import yaml

    from slurm_launch.config.files import yaml_problem

    try:
        tree = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise yaml_problem(error, text, Path(path)) from None
    if tree is None:
        return
    hint = "write a list of points: - {lr: 1e-3, seed: 0}"
    if not isinstance(tree, yaml.SequenceNode):
        raise UsageError("--sweep-file is no list", at=f"{path}:{tree.start_mark.line + 1}", hint=hint)
    for node in tree.value:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise UsageError("--sweep-file has an item that is no mapping", at=f"{path}:{line}", hint=hint)
        for key, value in node.value:
            if not (isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)):
                at = f"{path}:{value.start_mark.line + 1}"
                raise UsageError("--sweep-file has a point with a list or mapping in it", at=at, hint=hint)
            if value.tag == "tag:yaml.org,2002:null":
                at, message = f"{path}:{value.start_mark.line + 1}", f"--sweep-file has no value for {show(key.value)}"
                raise UsageError(message, at=at, hint='write "" for a value without text, or put it in quotes')
        yield line, [(key.value, value.value) for key, value in node.value]


_READERS = {".csv": _read_csv, ".yaml": _read_yaml, ".yml": _read_yaml, ".jsonl": _read_jsonl}
