"""The record of a run, `<name>.json`: what status, logs, cancel and watch read."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
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
    job_id: str | None  # None: sbatch was interrupted, so it is unknown whether there is a job
    cluster: str | None  # of a federation, or sbatch.REHEARSAL_CLUSTER
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
    cancelled: dict[str, str] = field(default_factory=dict)  # time of each `cancel`, by 12, 12_3 or 12_[4-9]
    tasks: dict[str, Any] = field(default_factory=dict)  # how each job or array task ended, once that is known
    array: str | None = None  # the tasks of its array, from --array, --sweep or --chain: 0-11%4
    points: str | None = None  # path of the table of a sweep's points
    script_sha256: str | None = None  # of the script as generated: users edit scripts
    resubmitted: dict[str, str] = field(default_factory=dict)  # 12_[3,7]: name or record of the run that repeats them
    grow: str | None = None  # ID of the job that --grow submitted with it

    @property
    def array_indexes(self) -> str | None:
        """The tasks of the run's array, such as 0-11%4; None when it is not an array."""
        more = self.spec.get("sbatch")
        text = self.array or self.spec.get("array") or (more.get("array") if isinstance(more, dict) else None)
        return str(text) if text and array_ids.array_numbers(str(text)) else None

    @property
    def logs(self) -> str:
        """The path of the log; of an array, the pattern of its tasks' logs (`log` does not exist then)."""
        return self.log.removesuffix(".log") + "_*.log" if self.array_indexes else self.log

    def with_job(self, job_id: str, cluster: str | None, submitted: str) -> Run:
        return replace(self, job_id=job_id, cluster=cluster, submitted=submitted)

    def cancelled_at(self, task_id: str) -> str | None:
        """When `cancel` was first used on a job or an array task; None: never."""
        wanted = set(array_ids.task_ids(task_id))
        times = [time for ids, time in self.cancelled.items() if ids == self.job_id or wanted <= _expand(ids)]
        return min(times, default=None)

    def resubmitted_as(self) -> dict[str, str]:
        """The run that repeats each resubmitted task, or the job; of several the last."""
        return {one: name for ids, name in self.resubmitted.items() for one in array_ids.task_ids(ids)}

    def to_json(self) -> str:
        data = asdict(self)
        return json.dumps({"schema": data.pop("schema"), **data}, indent=2) + "\n"


def user_name() -> str:
    """The name of the current user, from the environment where it is set there."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        return str(os.getuid())


@cache  # called for each of the thousands of tasks that an array may have
def _expand(text: str) -> frozenset[str]:
    return frozenset(array_ids.task_ids(text))


def write(run: Run) -> None:
    """Create the record; one that exists is never overwritten."""
    run_files.write_record(Path(run.record), run.to_json().encode("ascii"))


def update(run: Run) -> None:
    """Replace the record atomically."""
    run_files.replace_record(Path(run.record), run.to_json().encode("ascii"))


def change(record: str, function: Callable[[Run], Run]) -> Run:
    """Apply a function to the record as it is now: other processes may have changed it since it was read."""
    with run_files.locked(Path(record)):
        before = read(record)
        after = function(before)
        if after != before:
            update(after)
    return after


def read(path: str | os.PathLike[str]) -> Run:
    """Read a record. Raises UsageError if it is missing, damaged or written by a newer version."""
    at = os.fspath(path)
    try:
        data = json.loads(Path(at).read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the record: {error.strerror or error}", at=at) from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
        raise _damaged(at, f"it is not valid JSON ({error})") from None
    if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
        raise _damaged(at, "it has no schema number")
    if data["schema"] > SCHEMA:
        hint = f"its schema is {data['schema']}, this version reads {SCHEMA}: use the slurm-launch that wrote it"
        raise UsageError("the record was written by a newer slurm-launch", at=at, hint=hint)
    return _relocated(_parse(data, at), os.path.abspath(at))


def _parse(data: Mapping[str, Any], at: str) -> Run:
    """The run in a record. Keys that the first version did not write have defaults; unknown keys are ignored."""
    fields = _Fields(data, at)
    return Run(
        name=fields.text("name"),
        exp_name=fields.text("exp_name"),
        spec=fields.mapping("spec"),
        job_id=fields.job_id(),
        cluster=fields.optional_text("cluster"),
        script=fields.text("script"),
        log=fields.text("log"),
        record=fields.text("record"),
        run_dir=fields.text("run_dir"),
        submit_dir=fields.text("submit_dir"),
        created=fields.time("created", fields.text("created")),
        submitted=fields.optional_time("submitted"),
        argv=fields.texts("argv"),
        user=fields.text("user"),
        host=fields.text("host"),
        version=fields.text("version"),
        schema=data["schema"],
        cancelled=fields.cancelled(),
        tasks=fields.mapping("tasks", {}),
        array=fields.optional_text("array", None),
        points=fields.optional_text("points", None),
        script_sha256=fields.optional_text("script_sha256", None),
        resubmitted=fields.resubmitted(),
        grow=fields.optional_text("grow", None),
    )


_REQUIRED: Any = object()  # the default of a key that must be present


class _Fields:
    """The values of a record by key, each with the type that it must have. Raises UsageError for a damaged record."""

    def __init__(self, data: Mapping[str, Any], at: str) -> None:
        self._data = data
        self._at = at

    def _get(self, key: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        value = self._data.get(key, default)
        if value is _REQUIRED:
            raise _damaged(self._at, f"{key} is missing")
        if not isinstance(value, kind):
            raise _damaged(self._at, f"{key} is {type(value).__name__}")
        if isinstance(value, str) and "\0" in value:
            raise _damaged(self._at, f"{key} contains a null byte")
        return value

    def text(self, key: str) -> str:
        return str(self._get(key, str))

    def optional_text(self, key: str, default: Any = _REQUIRED) -> str | None:
        value: str | None = self._get(key, (str, type(None)), default)
        return value

    def mapping(self, key: str, default: Any = _REQUIRED) -> dict[str, Any]:
        value: dict[str, Any] = self._get(key, dict, default)
        return value

    def texts(self, key: str) -> list[str]:
        value: list[str] = self._get(key, list)
        return value

    def job_id(self) -> str | None:
        job_id = self.optional_text("job_id")
        if job_id is not None and not re.fullmatch(r"\d{1,18}", job_id, re.ASCII):
            raise _damaged(self._at, "job_id is not a number")
        return job_id

    def time(self, key: str, text: object) -> str:
        """An ISO 8601 time with its zone."""
        with suppress(ValueError):
            if isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None:
                return text
        raise _damaged(self._at, f"{key} is not a time")

    def optional_time(self, key: str) -> str | None:
        text = self.optional_text(key)
        return None if text is None else self.time(key, text)

    def cancelled(self) -> dict[str, str]:
        """In the first records this is one time for the whole job, or null."""
        value = self._data.get("cancelled")
        if value is None:
            return {}
        times = value if isinstance(value, dict) else {str(self.job_id()): value}
        return {ids: self.time("cancelled", time) for ids, time in times.items()}

    def resubmitted(self) -> dict[str, str]:
        runs = self.mapping("resubmitted", {})
        if not all(isinstance(name, str) and "\0" not in name for name in runs.values()):
            raise _damaged(self._at, "resubmitted does not name a run")
        return runs


def _relocated(run: Run, at: str) -> Run:
    """The run with the paths of its log and its table, if its directory was moved or copied.

    The path of the script stays: Slurm knows the job by it.
    """
    if at == run.record:
        return run
    with suppress(OSError):
        if os.path.samefile(at, run.record):  # reached through a link
            return run
    folder = os.path.dirname(at)

    def moved(path: str) -> str:
        return path if os.path.exists(path) else os.path.join(folder, os.path.basename(path))

    return replace(run, record=at, run_dir=folder, log=moved(run.log), points=run.points and moved(run.points))


def _damaged(at: str, why: str) -> UsageError:
    hint = "the script next to it contains the whole spec; `squeue --me` lists your jobs"
    return UsageError(f"the record is damaged: {why}", at=at, hint=hint)
