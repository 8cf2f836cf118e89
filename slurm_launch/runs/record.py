"""The record of a run, `<name>.json`: what status, logs, cancel and watch will know about it."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from slurm_launch.errors import UsageError
from slurm_launch.runs import files as run_files
from slurm_launch.slurm import array_ids

SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One launch. Paths are absolute; times are ISO 8601 in UTC. It never holds a token."""

    name: str
    exp_name: str
    spec: dict[str, Any]  # the values given, by their YAML keys
    job_id: str | None  # None: sbatch was interrupted, so nobody knows whether there is a job
    cluster: str | None  # in a federation
    script: str
    log: str
    record: str
    run_dir: str
    submit_dir: str
    created: str
    submitted: str | None
    argv: list[str]
    user: str
    host: str
    version: str
    schema: int = SCHEMA
    cancelled: dict[str, str] = field(default_factory=dict)  # when we were asked to end what: 12, 12_3 or 12_[4-9]
    tasks: dict[str, Any] = field(default_factory=dict)  # how each job or task of an array ended, once that is known
    array: str | None = None  # the tasks of its array, whichever way they came about: 0-11%4
    points: str | None = None  # the table of a sweep's points
    script_sha256: str | None = None  # of the script as we wrote it: people edit them
    resubmitted: dict[str, str] = field(default_factory=dict)  # 12_[3,7]: name or record of the run that they are now
    grow: str | None = None  # the job that was submitted with it, by --grow

    @property
    def array_indexes(self) -> str | None:
        """The tasks of the run's array, such as 0-11%4; None when it is not an array."""
        more = self.spec.get("sbatch")
        text = self.array or self.spec.get("array") or (more.get("array") if isinstance(more, dict) else None)
        return str(text) if text and array_ids.array_numbers(str(text)) else None

    @property
    def logs(self) -> str:
        """The log, or the pattern for those of an array's tasks: then there is no `log`."""
        return self.log.removesuffix(".log") + "_*.log" if self.array_indexes else self.log

    def with_job(self, job_id: str, cluster: str | None, submitted: str) -> Run:
        return replace(self, job_id=job_id, cluster=cluster, submitted=submitted)

    def cancelled_at(self, task_id: str) -> str | None:
        """When we were asked to end a job, or a task of an array; None: never."""
        wanted = set(array_ids.task_ids(task_id))
        times = [time for ids, time in self.cancelled.items() if ids == self.job_id or wanted <= _ids(ids)]
        return min(times, default=None)

    def run_again(self) -> dict[str, str]:
        """Which of its tasks, or its job, were run again, and as which run; the last time counts."""
        return {one: name for ids, name in self.resubmitted.items() for one in array_ids.task_ids(ids)}

    def to_json(self) -> str:
        data = asdict(self)
        return json.dumps({"schema": data.pop("schema"), **data}, indent=2) + "\n"


def user_name() -> str:
    """Who we are to the records: by the environment, as for every program."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())


@cache  # an array may have thousands of tasks, and each is asked for
def _ids(text: str) -> frozenset[str]:
    return frozenset(array_ids.task_ids(text))


def write(run: Run) -> None:
    """Create the record; one that exists is never overwritten."""
    run_files.write_record(Path(run.record), run.to_json().encode("ascii"))


def update(run: Run) -> None:
    """Put the record in the place of its former self."""
    run_files.replace_record(Path(run.record), run.to_json().encode("ascii"))


def change(record: str, function: Callable[[Run], Run]) -> Run:
    """Change a record as it is now, not as it was read a while ago: others may have written there meanwhile."""
    with run_files.locked(Path(record)):
        before = read(record)
        after = function(before)
        if after != before:
            update(after)
    return after


def read(path: str | os.PathLike[str]) -> Run:
    """The record in a file; one that is damaged or from a newer version is an error that says so."""
    at = os.fspath(path)
    try:
        data = json.loads(Path(at).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the record: {error.strerror or error}", at=at) from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or JSON out of its mind
        raise _damaged(at, f"it is no JSON ({error})") from None
    if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
        raise _damaged(at, "it has no schema number")
    if data["schema"] > SCHEMA:
        hint = f"its schema is {data['schema']}, this one knows {SCHEMA}: use the slurm-launch that wrote it"
        raise UsageError("the record was written by a newer slurm-launch", at=at, hint=hint)
    return _where_it_is(_checked(data, at), os.path.abspath(at))


def _checked(data: Mapping[str, Any], at: str) -> Run:
    known = {one.name: str(one.type) for one in fields(Run)}
    later: dict[str, Any] = {"cancelled": {}, "tasks": {}, "resubmitted": {}}
    later |= dict.fromkeys(("array", "points", "script_sha256", "grow"))
    data = {**later, **data}  # these are unknown to the first records
    if not isinstance(data["cancelled"], dict):  # one time, or none, for all of it
        data["cancelled"] = {} if data["cancelled"] is None else {str(data.get("job_id")): data["cancelled"]}
    kinds: dict[str, Any] = {
        "str": str,
        "str | None": (str, type(None)),
        "int": int,
        "dict[str, Any]": dict,
        "dict[str, str]": dict,
        "list[str]": list,
    }
    for name, kind in known.items():
        if name not in data:
            raise _damaged(at, f"{name} is missing")
        if not isinstance(data[name], kinds[kind]):
            raise _damaged(at, f"{name} is {type(data[name]).__name__}")
        if isinstance(data[name], str) and "\0" in data[name]:
            raise _damaged(at, f"{name} has a zero byte in it")
    if data["job_id"] is not None and not re.fullmatch(r"\d{1,18}", data["job_id"], re.ASCII):
        raise _damaged(at, "job_id is no number")
    times = [(name, data[name]) for name in ("created", "submitted") if data[name] is not None]
    for name, time in (*times, *(("cancelled", time) for time in data["cancelled"].values())):
        if not _is_time(time):
            raise _damaged(at, f"{name} is no time")
    if not all(isinstance(name, str) and "\0" not in name for name in data["resubmitted"].values()):
        raise _damaged(at, "resubmitted names no run")
    return Run(**{name: data[name] for name in known})


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _where_it_is(run: Run, at: str) -> Run:
    """A run whose directory was moved or copied: its log and its table have gone along.

    Its script is how Slurm knows the job."""
    if at == run.record:
        return run
    with suppress(OSError):
        if os.path.samefile(at, run.record):  # through a link
            return run
    folder = os.path.dirname(at)

    def moved(path: str) -> str:
        return path if os.path.exists(path) else os.path.join(folder, os.path.basename(path))

    return replace(run, record=at, run_dir=folder, log=moved(run.log), points=run.points and moved(run.points))


def _damaged(at: str, why: str) -> UsageError:
    hint = "the script beside it has the whole spec; `squeue --me` lists the jobs"
    return UsageError(f"the record is damaged: {why}", at=at, hint=hint)
