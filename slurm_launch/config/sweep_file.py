"""The points of a launch: from --sweep, or from the file of --sweep-file (.csv, .yaml, .yml or .jsonl)."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch.config.files import read_text, yaml_problem
from slurm_launch.errors import UsageError, show
from slurm_launch.spec import sweep_points
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.sweep_points import MAX_POINTS, Points

if TYPE_CHECKING:
    from slurm_launch.spec.launch_spec import LaunchSpec

MAX_BYTES = 64 << 20  # generous for MAX_POINTS; makes --sweep-file /dev/zero fail
Row = tuple[int, list[tuple[str, Any]]]  # the line number of a point, and its keys and values


def points_of(spec: LaunchSpec) -> Points | None:
    """All points of a spec's sweep; None without a sweep. A relative path is resolved against the current directory."""
    if spec.sweep:
        return sweep_points.all_combinations(spec.sweep)
    return read(spec.sweep_file) if spec.sweep_file is not None else None


def task_numbers(spec: LaunchSpec, points: Points) -> str:
    """The task indexes of a sweep's array, or a UsageError about --points."""
    try:
        return sweep_points.array_indexes(spec.points, len(points))
    except BadValue as problem:
        raise UsageError(f"--points {problem}", at="--points", hint=problem.hint) from None


def read(path: str) -> Points:
    """The points in a file. Raises UsageError with the line of the first error."""
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        known = "CSV with a header (.csv), a list of mappings (.yaml, .yml) or one object per line (.jsonl)"
        raise UsageError(f"--sweep-file has an unknown file type: {show(path)}", at=path, hint=f"use {known}")
    return _points(path, reader(path, _text(path)))


def _text(path: str) -> str:
    try:
        return read_text(Path(path), MAX_BYTES)
    except UsageError as problem:
        problem.message = f"--sweep-file: {problem.message}"
        raise


def _points(path: str, rows: Iterable[Row]) -> Points:
    """The rows as points. All must have the keys of the first."""
    keys: tuple[str, ...] = ()
    found: list[tuple[str, ...]] = []
    for line, pairs in rows:
        at = f"{path}:{line}"
        try:
            if not pairs:
                raise BadValue("has a point without keys", "set a value for each key")
            if not keys:
                keys = tuple(sweep_points.check_key(key) for key, _ in pairs)
            point = _point(pairs, keys)
            found.append(tuple([sweep_points.value_text(point[key]) for key in keys]))
        except BadValue as problem:
            raise UsageError(f"--sweep-file {problem}", at=at, hint=problem.hint) from None
        if len(found) > MAX_POINTS:
            raise UsageError(f"--sweep-file has more than {MAX_POINTS:,} points", at=at, hint="use fewer")
    if not keys:
        raise UsageError("--sweep-file has no points", at=path, hint="write one per line; in a CSV, below the header")
    return Points(keys, found)


def _point(pairs: list[tuple[str, Any]], keys: tuple[str, ...]) -> dict[str, Any]:
    """The values of a point by key. Raises BadValue unless it has each of the keys once."""
    point = dict(pairs)
    if len(point) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadValue(f"has {show(twice)} twice", "keep one of them")
    if point.keys() != set(keys):
        different = f"has a point whose keys differ from the first: {_difference(keys, point)}"
        raise BadValue(different, "use the same keys for every point")
    return point


def _difference(keys: Iterable[str], others: Iterable[str]) -> str:
    missing = [key for key in keys if key not in set(others)]
    new = [key for key in others if key not in set(keys)]
    parts = []
    if missing:
        parts.append(f"{', '.join(missing)} is missing")
    if new:
        parts.append(f"{', '.join(map(show, new))} is new")
    return " and ".join(parts)


def _read_csv(path: str, text: str) -> Iterator[Row]:
    rows = csv.reader(text.splitlines(keepends=True), skipinitialspace=True, strict=True)
    header: list[str] | None = None
    line = 0
    try:
        for cells in rows:
            line = rows.line_num
            if not cells or cells == [""]:
                continue  # an empty line
            if header is None:
                header = [_header_key(cell.strip(), path, line) for cell in cells]
                if twice := next((name for name in header if header.count(name) > 1), None):
                    raise UsageError(f"--sweep-file has {twice} twice", at=f"{path}:{line}", hint="keep one of them")
            elif len(cells) != len(header):
                message = f"--sweep-file has a row with {len(cells)} values, but the header has {len(header)} keys"
                hint = 'set a value for each key; quote values with commas: "a,b"'
                raise UsageError(message, at=f"{path}:{line}", hint=hint)
            else:
                yield line, list(zip(header, cells, strict=True))
    except csv.Error as error:
        hint = 'write "" for a quote within "..."'
        raise UsageError(f"--sweep-file is not valid CSV: {error}", at=f"{path}:{line + 1}", hint=hint) from None


def _header_key(cell: str, path: str, line: int) -> str:
    try:
        return sweep_points.check_key(cell)
    except BadValue as problem:
        hint = f"the first line has the keys, separated by commas, for example lr,seed; {problem.hint}"
        raise UsageError(f"--sweep-file {problem}", at=f"{path}:{line}", hint=hint) from None


def _read_jsonl(path: str, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        at, hint = f"{path}:{number}", 'write one object per line: {"lr": 1e-3, "seed": 0}'
        try:  # numbers are kept as written: 1e-3 stays 1e-3
            point = json.loads(line, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_Pairs)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--sweep-file has a line that is not JSON: {error}", at=at, hint=hint) from None
        if not isinstance(point, _Pairs):
            raise UsageError(f"--sweep-file has a line that is not an object: {show(line)}", at=at, hint=hint)
        yield number, list(point)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its duplicate keys."""


def _read_yaml(path: str, text: str) -> Iterator[Row]:
    import yaml  # lazy: saves 20 ms per start without such a file

    try:
        tree = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise yaml_problem(error, text, Path(path)) from None
    if tree is None:
        return
    hint = "write a list of points: - {lr: 1e-3, seed: 0}"
    if not isinstance(tree, yaml.SequenceNode):
        raise UsageError("--sweep-file is not a list", at=f"{path}:{tree.start_mark.line + 1}", hint=hint)
    for node in tree.value:
        line = node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise UsageError("--sweep-file has an item that is not a mapping", at=f"{path}:{line}", hint=hint)
        for key, value in node.value:
            if not (isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)):
                at = f"{path}:{value.start_mark.line + 1}"
                raise UsageError("--sweep-file has a point with a list or mapping in it", at=at, hint=hint)
            if value.tag == "tag:yaml.org,2002:null":
                at, message = f"{path}:{value.start_mark.line + 1}", f"--sweep-file has no value for {show(key.value)}"
                raise UsageError(message, at=at, hint='write "" for an empty value, or quote it')
        yield line, [(key.value, value.value) for key, value in node.value]


_READERS = {".csv": _read_csv, ".yaml": _read_yaml, ".yml": _read_yaml, ".jsonl": _read_jsonl}
