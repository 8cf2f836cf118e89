"""The record of a run, `<name>.json`: what status, logs, cancel and watch will know about it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from slurm_launch import artifacts
from slurm_launch.errors import UsageError

SCHEMA = 1
TAIL = 1 << 16  # as much of a log's end as is searched for the line that tells the outcome


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

    def with_job(self, job_id: str, cluster: str | None, submitted: str) -> Run:
        return replace(self, job_id=job_id, cluster=cluster, submitted=submitted)

    def to_json(self) -> str:
        data = asdict(self)
        return json.dumps({"schema": data.pop("schema"), **data}, indent=2) + "\n"


def write(run: Run) -> None:
    """Create the record; one that exists is never overwritten."""
    artifacts.write_record(Path(run.record), run.to_json().encode("ascii"))


def update(run: Run) -> None:
    """Put the record in the place of its former self."""
    artifacts.replace_record(Path(run.record), run.to_json().encode("ascii"))


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
    return _checked(data, at)


def _checked(data: Mapping[str, Any], at: str) -> Run:
    known = {field.name: str(field.type) for field in fields(Run)}
    kinds: dict[str, Any] = {
        "str": str,
        "str | None": (str, type(None)),
        "int": int,
        "dict[str, Any]": dict,
        "list[str]": list,
    }
    for name, kind in known.items():
        if name not in data:
            raise _damaged(at, f"{name} is missing")
        if not isinstance(data[name], kinds[kind]):
            raise _damaged(at, f"{name} is {type(data[name]).__name__}")
    return Run(**{name: data[name] for name in known})


def _damaged(at: str, why: str) -> UsageError:
    hint = "the script beside it has the whole spec; `squeue --me` lists the jobs"
    return UsageError(f"the record is damaged: {why}", at=at, hint=hint)


# The end of the log


@dataclass(frozen=True)
class End:
    """What the last phase line of a log says."""

    outcome: str
    code: int | None
    cause: str | None = None
    hint: str | None = None

    @property
    def command_ended(self) -> bool:
        """Whether the code is the command's own."""
        return self.outcome in ("ok", "command-failed")


def parse_end(log: str) -> End | None:
    """The end line; None when the last phase is another one, as in a job that runs, runs again or was killed."""
    # Not only at the beginning of a line: the command may have left its last one unfinished.
    phases = re.findall(r"\[slurm-launch\] \d{4}-\d\d-\d\dT\S+ (\S+)(.*)", log)
    if not phases or phases[-1][0] != "end":
        return None
    # The first of each counts; a cause in quotes may follow and hold anything.
    outcome = re.search(r" outcome=(\S+)", phases[-1][1])
    code = re.search(r" code=(\d+)", phases[-1][1])
    why = re.search(r' cause="(.*?)" hint="(.*)"$', phases[-1][1])
    return End(
        outcome[1] if outcome else "unknown",
        int(code[1]) if code else None,
        *((why[1], why[2]) if why else (None, None)),
    )


def read_end(log: str | os.PathLike[str]) -> End | None:
    """`parse_end` of a log file; one that cannot be read tells nothing."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return parse_end(file.read().decode("utf-8", errors="replace"))
    except OSError:
        return None
