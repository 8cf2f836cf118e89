"""What RUN means on a command line: a job ID, a name or its prefix, or the path of one of the run's files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from slurm_launch.errors import UsageError
from slurm_launch.runs import record as records
from slurm_launch.runs.index import Entry, entries
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids


def find(
    argument: str | None, env: Mapping[str, str], cwd: Path, among: Callable[[list[Run]], Run | None] | None = None
) -> Run:
    """The run that is meant by a job id, a name or its beginning, or the path of one of its files.

    None means the newest run of this directory, or else the newest of all. What fits exactly counts before the
    beginning of a name. Raises UsageError when there is none, or more than one of which `among` chooses none; it
    gets them with the oldest first.
    """
    if argument is not None and not argument.strip():
        raise UsageError("is empty", at="RUN", hint="leave it out for the newest run; `slurm-launch list` shows them")
    if argument is not None and "/" in argument:
        return records.read(_record_of(argument, env, cwd))
    known = entries(env, cwd)
    if argument is None:
        return _newest(known, cwd).read()
    matching = _matching(argument, known)
    if len(matching) == 1:
        return matching[0].read()
    if not matching and re.search(r"\.(sh|log|json)$", argument):
        return records.read(_record_of(argument, env, cwd))
    if not matching:
        hint = "`slurm-launch list` shows the runs; a path to a .json, .sh or .log file works from anywhere"
        raise UsageError(f"no run is called {argument!r}, and none has such a job id", at="RUN", hint=hint)
    if among is not None and (chosen := among([entry.read() for entry in matching])) is not None:
        return chosen
    raise UsageError(
        f"{argument!r} could be one of {len(matching)} runs:\n{_listed(matching)}",
        at="RUN",
        hint="write more of the name, or the job id, or the path of the record",
    )


def _newest(known: list[Entry], cwd: Path) -> Entry:
    ours = [entry for entry in known if entry.own]
    if not ours:
        raise UsageError("there is no run yet", hint="launch one, or give the path of its .json file")
    here = [entry for entry in ours if entry.is_at(str(cwd))]
    return (here or ours)[-1]


def _matching(argument: str, known: list[Entry]) -> list[Entry]:
    exact = [entry for entry in known if entry.name == argument]
    if exact:
        return exact
    begins = [entry for entry in known if entry.name.startswith(argument)]
    if job := re.fullmatch(r"(\d+)(_(?:\d+|\[.*\]))?", argument, re.ASCII):
        # Job ids begin anew after a reset of the cluster: the newest is meant. Of two clusters any could be.
        newest = {entry.cluster: entry for entry in known if entry.job_id == job[1]}
        if newest and not (job[2] and begins):  # 12_2026 is the beginning of a name, too
            return list(newest.values())
    return [entry for entry in begins if entry.exp_name == argument] or begins


def _listed(candidates: Iterable[Entry], most: int = 10) -> str:
    newest = sorted(candidates, key=lambda entry: entry.order, reverse=True)
    lines = [
        f"  {entry.name}  job {entry.job_id or '?'}{f' on {entry.cluster}' if entry.cluster else ''}  {entry.record}"
        for entry in newest[:most]
    ]
    return "\n".join(lines + [f"  and {len(newest) - most} older ones"] * (len(newest) > most))


def _record_of(argument: str, env: Mapping[str, str], cwd: Path) -> Path:
    """The record beside a run's script or log (an array's tasks have a log each)."""
    home = env.get("HOME", "")
    expanded = home + argument[1:] if home and argument.startswith("~/") else os.path.expanduser(argument)
    path = Path(os.path.normpath(cwd / expanded))
    if os.path.isdir(path):
        raise UsageError("is a directory", at=str(path), hint="give one of the run's files, or cd there for its newest")
    if path.suffix == ".json":
        return path
    stem = re.sub(r"\.(sh|log)$", "", path.name)
    for name in (stem, re.sub(r"_\d+$", "", stem)):
        if os.path.isfile(record := path.with_name(f"{name}.json")):  # never raises, where nobody may look
            return record
    if not os.path.exists(path):
        raise UsageError(
            "no such file, or none that you may look at",
            at=str(path),
            hint="`slurm-launch list` shows the runs and their names",
        )
    hint = f"a run's record has the name of its script, here {stem}.json; without it only Slurm knows: `squeue --me`"
    raise UsageError("there is no record beside this file", at=str(path), hint=hint)


_NUMBERS = r"\d{1,9}(?:-\d{1,9}(?::\d{1,9})?)?"


def task_ids_in(run: Run, argument: str | None) -> list[str] | None:
    """Which tasks of an array an argument names: as 12_3, as 12_[3-5], or by the log. None: it names the whole run."""
    if argument is None or run.job_id is None:
        return None
    if log := re.fullmatch(rf"{re.escape(run.name)}_(\d{{1,9}})\.log", os.path.basename(argument), re.ASCII):
        return [f"{run.job_id}_{int(log[1])}"]
    if run.name.startswith(argument):  # 12_2026 may be the beginning of a name
        return None
    if number := re.fullmatch(rf"{run.job_id}_(\d{{1,9}})", argument, re.ASCII):
        return [f"{run.job_id}_{int(number[1])}"]
    if not argument.startswith(f"{run.job_id}_["):
        return None
    whole = re.fullmatch(rf"\d+_\[{_NUMBERS}(?:,{_NUMBERS})*(?:%\d+)?\]", argument, re.ASCII)
    ids = array_ids.task_ids(argument) if whole else []
    if not ids:
        hint = f"write {run.job_id}_3, or several as {run.job_id}_[3-5,8]"
        raise UsageError(f"no tasks can be read from {argument!r}", at="RUN", hint=hint)
    return ids
