"""What RUN means on a command line: a job ID, a name or its prefix, or the path of one of the run's files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from slurm_launch.errors import UsageError
from slurm_launch.runs import index
from slurm_launch.runs import record as records
from slurm_launch.runs.index import Entry, RunKey
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids


def find(
    argument: str | None,
    env: Mapping[str, str],
    cwd: Path,
    among: Callable[[list[Run]], Run | None] | None = None,
    known: list[Entry] | None = None,
) -> Run:
    """Return the run that a job ID, a name, the prefix of a name or the path of one of its files selects.

    None selects the newest run of this directory, otherwise the newest of all. An exact match takes precedence over a
    prefix. Raises UsageError if no run matches, or if several match and `among`, which receives them with the oldest
    first, selects none of them. `known` are the runs to choose from, by default those that can be found.
    """
    if argument is None:
        return _newest(env, cwd).read()
    if not argument.strip():
        raise UsageError("is empty", at="RUN", hint="omit it for the newest run; `slurm-launch list` shows all")
    if "/" in argument:
        return records.read(_record_of(argument, env, cwd))
    if known is None:
        known = candidates([argument], env, cwd)
    matching = _matching(argument, known)
    if len(matching) == 1:
        return matching[0].read()
    if not matching and re.search(r"\.(sh|log|json)$", argument):
        return records.read(_record_of(argument, env, cwd))
    if not matching:
        hint = "`slurm-launch list` shows the runs; the path of a .json, .sh or .log file works from anywhere"
        raise UsageError(f"no run has the name or job ID {argument!r}", at="RUN", hint=hint)
    if among is not None and (chosen := among([entry.read() for entry in matching])) is not None:
        return chosen
    raise UsageError(
        f"{argument!r} matches {len(matching)} runs:\n{_list_newest(matching)}",
        at="RUN",
        hint="use a longer prefix, the job ID, or the path of the record",
    )


def _newest(env: Mapping[str, str], cwd: Path) -> Entry:
    entry = index.newest(env, cwd)
    if entry is None:
        raise UsageError("there is no run yet", hint="launch one, or use the path of its .json file")
    return entry


_JOB_ID = re.compile(r"(\d+)(_(?:\d+|\[.*\]))?", re.ASCII)


def candidates(arguments: Iterable[str], env: Mapping[str, str], cwd: Path) -> list[Entry]:
    """All runs that one of the arguments may select, the oldest first: `find` accepts them as `known`."""
    prefixes = tuple(arguments)
    jobs = {match[1] for argument in prefixes if (match := _JOB_ID.fullmatch(argument))}

    def may_match(key: RunKey) -> bool:
        return key.name.startswith(prefixes) or key.job_id in jobs

    return index.entries(env, cwd, may_match)


def _matching(argument: str, known: list[Entry]) -> list[Entry]:
    """The runs that an argument selects, of runs with the oldest first."""
    exact = [entry for entry in known if entry.name == argument]
    if exact:
        return exact
    prefixed = [entry for entry in known if entry.name.startswith(argument)]
    if job := _JOB_ID.fullmatch(argument):
        # Job IDs restart when a cluster is reset: the newest run counts. Each cluster of a federation has its own IDs.
        newest = {entry.cluster: entry for entry in known if entry.job_id == job[1]}
        if newest and not (job[2] and prefixed):  # 12_2026 may also be the prefix of a name
            return list(newest.values())
    return [entry for entry in prefixed if entry.exp_name == argument] or prefixed


def _list_newest(matching: Iterable[Entry], limit: int = 10) -> str:
    newest = sorted(matching, key=lambda entry: entry.key.order, reverse=True)
    lines = [
        f"  {entry.name}  job {entry.job_id or '?'}{f' on {entry.cluster}' if entry.cluster else ''}  {entry.record}"
        for entry in newest[:limit]
    ]
    if len(newest) > limit:
        lines.append(f"  and {len(newest) - limit} older runs")
    return "\n".join(lines)


def _record_of(argument: str, env: Mapping[str, str], cwd: Path) -> Path:
    """The path of the record next to a script or a log; each task of an array has its own log."""
    home = env.get("HOME", "")
    expanded = home + argument[1:] if home and argument.startswith("~/") else os.path.expanduser(argument)
    path = Path(os.path.normpath(cwd / expanded))
    if os.path.isdir(path):
        hint = "use one of the run's files, or cd there to select its newest run"
        raise UsageError("is a directory", at=str(path), hint=hint)
    if path.suffix == ".json":
        return path
    stem = re.sub(r"\.(sh|log)$", "", path.name)
    for name in (stem, re.sub(r"_\d+$", "", stem)):
        record = path.with_name(f"{name}.json")
        if os.path.isfile(record):  # False without permission, where Path.is_file raises
            return record
    if not os.path.exists(path):
        hint = "`slurm-launch list` shows the runs and their names"
        raise UsageError("no such file, or no permission to see it", at=str(path), hint=hint)
    hint = f"the record has the name of the script, here {stem}.json; without it, use `squeue --me`"
    raise UsageError("there is no record next to this file", at=str(path), hint=hint)


_RANGE = r"\d{1,9}(?:-\d{1,9}(?::\d{1,9})?)?"


def task_ids_in(run: Run, argument: str | None) -> list[str] | None:
    """The array tasks that an argument selects: 12_3, 12_[3-5], or the path of a log. None: the whole run."""
    if argument is None or run.job_id is None:
        return None
    if log := re.fullmatch(rf"{re.escape(run.name)}_(\d{{1,9}})\.log", os.path.basename(argument), re.ASCII):
        return [f"{run.job_id}_{int(log[1])}"]
    if run.name.startswith(argument):  # 12_2026 may be the prefix of a name
        return None
    if number := re.fullmatch(rf"{run.job_id}_(\d{{1,9}})", argument, re.ASCII):
        return [f"{run.job_id}_{int(number[1])}"]
    if not argument.startswith(f"{run.job_id}_["):
        return None
    valid = re.fullmatch(rf"\d+_\[{_RANGE}(?:,{_RANGE})*(?:%\d+)?\]", argument, re.ASCII)
    ids = array_ids.task_ids(argument) if valid else []
    if not ids:
        hint = f"write {run.job_id}_3, or several as {run.job_id}_[3-5,8]"
        raise UsageError(f"{argument!r} does not name any tasks", at="RUN", hint=hint)
    return ids
