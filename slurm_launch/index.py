"""Where a user's runs are: an index of their records, so that a run can be named from any directory.

The index is a hint, never the truth: the records are. It is a file of lines, one for each launch, that many
processes may append to at once. Lines that cannot be read are passed over, records that are gone are forgotten, and
what lies in the current directory is found without it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slurm_launch import runs
from slurm_launch.errors import UsageError
from slurm_launch.runs import Run

MAX_LINES = 20_000  # then the older half is forgotten; a line has some 300 bytes


@dataclass(frozen=True)
class Entry:
    """What the index, or a file's name, tells of a run; `read` has the rest."""

    record: str
    name: str
    job_id: str | None
    created: str  # ISO 8601 in UTC: it sorts by time

    def read(self) -> Run:
        return runs.read(self.record)


def index_file(env: Mapping[str, str]) -> Path | None:
    """The user's index; None without a home."""
    base = env.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "slurm-launch/runs.jsonl"
    return Path(env["HOME"]) / ".local/state/slurm-launch/runs.jsonl" if env.get("HOME") else None


def add(run: Run, env: Mapping[str, str]) -> None:
    """Enter a run. Raises OSError where that cannot be; a launch must not fail for it."""
    path = index_file(env)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    line = json.dumps({"record": run.record, "name": run.name, "job": run.job_id, "created": run.created}) + "\n"
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # against the one who shortens it
        size = file.seek(0, os.SEEK_END)
        if size:  # the last one may have been torn off: by a full disk, or a machine that went down
            file.seek(size - 1)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode("ascii"))
        if size > MAX_LINES * 300:
            _shorten(file)


def _shorten(file: IO[bytes]) -> None:
    file.flush()
    file.seek(0)
    lines = file.read().splitlines(keepends=True)
    file.truncate(0)
    file.write(b"".join(lines[len(lines) // 2 :]))


def entries(env: Mapping[str, str], cwd: Path) -> list[Entry]:
    """All runs that can be found, the oldest first: those in the index whose records exist, and those in `cwd`."""
    found = {entry.record: entry for entry in (*_indexed(env), *_beside(cwd))}
    return sorted(
        (entry for entry in found.values() if os.path.isfile(entry.record)),
        key=lambda entry: (entry.created, entry.name),
    )


def _indexed(env: Mapping[str, str]) -> Iterator[Entry]:
    path = index_file(env)
    try:
        data = path.read_bytes() if path else b""
    except OSError:
        return
    for line in data.splitlines():
        try:
            fields = json.loads(line)
            yield Entry(
                str(fields["record"]), str(fields["name"]), fields["job"] and str(fields["job"]), str(fields["created"])
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def _beside(folder: Path) -> Iterator[Entry]:
    """The records in a directory; a file that is none is passed over."""
    try:
        names = sorted(name for name in os.listdir(folder) if re.search(r"_\d{8}-\d{6}(-\d+)?\.json$", name))
    except OSError:
        return
    for name in names:
        try:
            run = runs.read(folder / name)
        except UsageError:
            continue
        yield Entry(str(folder / name), run.name, run.job_id, run.created)


def find(argument: str | None, env: Mapping[str, str], cwd: Path) -> Run:
    """The run that is meant by a job id, a name or its beginning, or the path of one of its files; by None the newest.

    Raises UsageError when there is none, or more than one."""
    if argument is not None and ("/" in argument or re.search(r"\.(sh|log|json)$", argument)):
        return runs.read(_record_of(argument, cwd))
    known = entries(env, cwd)
    if argument is None:
        if not known:
            raise UsageError("there is no run yet", hint="launch one, or give the path of its .json file")
        return known[-1].read()
    if argument.isdigit() or re.fullmatch(r"\d+_\d+", argument):
        job = argument.partition("_")[0]
        same = [entry for entry in known if entry.job_id == job]
        if same:
            return same[-1].read()  # job ids begin anew after a reset of the cluster: the newest is meant
    exact = [entry for entry in known if entry.name == argument]
    matching = exact or [entry for entry in known if entry.name.startswith(argument)]
    if len(matching) == 1:
        return matching[0].read()
    if not matching:
        hint = "`slurm-launch list` shows the runs; a path to a .json, .sh or .log file works from anywhere"
        raise UsageError(f"no run is called {argument!r}, and none has such a job id", at="RUN", hint=hint)
    raise UsageError(
        f"{argument!r} could be one of {len(matching)} runs:\n{_listed(matching)}",
        at="RUN",
        hint="write more of the name, or the job id",
    )


def _listed(candidates: Iterable[Entry], most: int = 10) -> str:
    newest = list(candidates)[::-1]
    lines = [f"  {entry.name}  job {entry.job_id or '?'}  {entry.record}" for entry in newest[:most]]
    return "\n".join(lines + [f"  and {len(newest) - most} older ones"] * (len(newest) > most))


def _record_of(argument: str, cwd: Path) -> Path:
    """The record beside a run's script or log (an array's tasks have a log each)."""
    path = cwd / os.path.expanduser(argument)
    if path.suffix == ".json":
        return path
    stem = path.name.removesuffix(".sh").removesuffix(".log")
    for name in (stem, re.sub(r"_\d+$", "", stem)):
        if (record := path.with_name(f"{name}.json")).is_file():
            return record
    raise UsageError("there is no record beside this file", at=str(path), hint="give the run's .json file")
