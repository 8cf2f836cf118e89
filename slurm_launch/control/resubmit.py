"""Resubmit a run or some of its tasks: select the tasks, read the run's script, and derive the flags of the new run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_launch.config.resolve import BUILT_IN
from slurm_launch.control.task_history import (
    MAX_CHARACTERS,
    FindRun,
    LatestRun,
    TaskNumber,
    latest_runs,
    outcomes,
    task_id,
    task_numbers_of,
)
from slurm_launch.errors import Notify, UsageError, show
from slurm_launch.launch.script import SweepTasks, sweep_tasks
from slurm_launch.runs import files as run_files
from slurm_launch.runs import record as run_record
from slurm_launch.runs import search
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.spec import checks
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import flag_name
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded
from slurm_launch.status.task_points import shorten

TASKS_FLAG = "--tasks"
_FIXED = ("array", "sweep", "sweep_file", "chain")  # task numbers keep their meaning from one run to the next


@dataclass(frozen=True)
class RunScript:
    """The script of a run and the spec in its header."""

    path: str
    embedded: EmbeddedSpec
    edited: bool


@dataclass(frozen=True)
class Resubmission:
    """The tasks of a run to resubmit."""

    run: Run
    script: RunScript
    numbers: list[TaskNumber]
    latest: list[LatestRun]  # where they ran last

    @property
    def is_whole(self) -> bool:
        return self.numbers == task_numbers_of(self.run)

    @property
    def ids(self) -> list[str]:
        return [task_id(self.run, number) for number in self.numbers]

    @property
    def sbatch_command(self) -> str:
        """The command that submits the script as it is now, with edits."""
        tasks = [] if self.is_whole or self.numbers == [None] else [f"--array={array_text(self.numbers)}"]
        return shlex.join(["sbatch", *tasks, self.script.path])


def select(
    run: Run,
    argument: str,
    *,
    tasks: str | None,
    points: str | None,
    failed: bool,
    find: FindRun,
    client: SlurmClient,
    notify: Notify,
) -> Resubmission:
    """Select what to resubmit. Queries Slurm only for `failed`; then there may be no tasks at all."""
    script = read_script(run)
    numbers = _selected_numbers(run, argument, tasks, points)
    if run.spec.get("chain") and (failed or numbers != task_numbers_of(run)):
        hint = "leave out the selection to resubmit the whole chain"
        raise UsageError(f"{run.name} is a chain: its links cannot be resubmitted separately", at="RUN", hint=hint)
    latest = latest_runs(run, numbers, find)
    if failed:
        latest = _failed(run, latest, client, notify)
        failed_numbers = {number for one in latest for number in one.numbers}
        numbers = [number for number in numbers if number in failed_numbers]
    return Resubmission(run, script, numbers, latest)


def _selected_numbers(run: Run, argument: str, tasks: str | None, points: str | None) -> list[TaskNumber]:
    """The tasks that RUN, --tasks or --points selects; all without a selection."""
    if points is not None and tasks is not None:
        raise UsageError(f"--points and {TASKS_FLAG} are the same", hint="use one of them")
    text, flag = (points, "--points") if tasks is None else (tasks, TASKS_FLAG)
    ids = search.task_ids_in(run, argument)
    if ids is not None:
        if text is not None:
            raise UsageError(f"{argument} and {flag} both select tasks", at=f"RUN, {flag}", hint="use one of them")
        text, flag = array_text([int(id.rpartition("_")[2]) for id in ids]), "RUN"
    return task_numbers_of(run) if text is None else parse_task_numbers(run, text, flag)


def parse_task_numbers(run: Run, text: str, flag: str) -> list[TaskNumber]:
    """The tasks of a run selected by their numbers: 3,7-9."""
    known = task_numbers_of(run)
    if known == [None]:
        raise UsageError(f"{run.name} is not an array: it has no tasks to select", at=flag, hint=f"leave out {flag}")
    try:
        checks.task_numbers(text, f"{show(text)} is not a list of tasks", "write 3,7 or 3,7-9")
    except checks.BadValue as error:
        raise UsageError(str(error), at=flag, hint=error.hint) from None
    numbers: list[TaskNumber] = list(array_ids.array_numbers(text))
    if unknown := [number for number in numbers if number not in set(known)]:
        hint = f"its tasks are {shorten(array_text(known), MAX_CHARACTERS)}"
        raise UsageError(f"{run.name} has no task {shorten(array_text(unknown), MAX_CHARACTERS)}", at=flag, hint=hint)
    return numbers


def array_text(numbers: Iterable[TaskNumber]) -> str:
    """Task numbers as sbatch reads them: 3,7-9."""
    ids = [f"0_{number}" for number in numbers]
    return array_ids.join_task_ids(ids).removeprefix("0_").strip("[]")


def _failed(run: Run, latest: Sequence[LatestRun], client: SlurmClient, notify: Notify) -> list[LatestRun]:
    """The failed tasks among these; tasks that have not ended are reported."""
    result = outcomes(latest, client)
    if result.unknown:
        hint = f"`slurm-launch status {run.name}` shows what is known; select the tasks to resubmit with {TASKS_FLAG}"
        hint = hint if run.array_indexes else "leave out --failed to resubmit it anyway"
        raise UsageError(f"unknown outcome: {', '.join(result.unknown)}", at="--failed", hint=hint)
    if result.active:
        notify(f"not ended yet, so not resubmitted: {', '.join(result.active)}")
    if not result.failed:
        resubmitted = " that were not already resubmitted" if run.resubmitted else ""
        notify(f"nothing to resubmit: {run.name} has no failed tasks{resubmitted}")
    return result.failed


def read_script(run: Run) -> RunScript:
    """Read the script of the user's own run, and the spec in it."""
    if run.user != run_record.user_name():
        hint = f"`slurm-launch render --from {shlex.quote(run.script)}` generates your own script from it"
        raise UsageError(f"{run.name} belongs to {run.user}", at=run.record, hint=hint)
    for path in _script_paths(run):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            hint = "fix the file, or launch a new run"
            raise UsageError(f"cannot read the run's script: {why}", at=path, hint=hint) from None
        edited = run.script_sha256 is not None and run_files.sha256(Path(path)) != run.script_sha256
        return RunScript(path, read_embedded(text, path), edited)
    hint = "it contains the spec of the run: restore it, or launch a new run"
    raise UsageError("the run's script is missing", at=run.script, hint=hint)


def _script_paths(run: Run) -> Iterator[str]:
    """Where the script may be: the directory may have been moved."""
    yield run.script
    yield os.path.join(os.path.dirname(run.record), os.path.basename(run.script))


def new_flags(resubmission: Resubmission, flags: Mapping[str, Any], cwd: Path, notify: Notify) -> dict[str, Any]:
    """The flags of the new run: the user's, and what the header of the script does not contain."""
    run = resubmission.run
    for name in _FIXED:
        if name in flags:
            flag = flag_name(name)
            hint = f"{TASKS_FLAG} selects tasks of {run.name}; for other tasks launch a new run"
            raise UsageError(f"{flag} cannot be changed: tasks keep their numbers", at=f"flag {flag}", hint=hint)
    result = dict(flags)
    if "run_dir" in flags:  # relative to this directory, not to that of the job
        result["run_dir"] = os.path.join(cwd, os.path.expanduser(flags["run_dir"]))
    if "template" not in flags and run.spec.get("template"):  # the user's own run, so its template is trusted
        result["template"] = os.path.join(run.submit_dir, run.spec["template"])
    if not resubmission.is_whole:
        result |= _task_flag(run, resubmission.numbers)
    folder = os.path.join(run.run_dir, f"{run.name}.run")
    if "checkpoint_dir" not in flags and not run.spec.get("checkpoint-dir") and os.path.isdir(folder):
        result["checkpoint_dir"] = folder
        notify(f"the command finds its checkpoints in {folder}; use --checkpoint-dir DIR to start from scratch")
    return result


def _task_flag(run: Run, numbers: Sequence[TaskNumber]) -> dict[str, Any]:
    """The option that restricts the new run to these tasks."""
    if run.points is not None:
        return {"points": array_text(numbers)}
    _, percent, max_parallel = str(run.spec.get("array") or "").partition("%")
    return {"array": array_text(numbers) + percent + max_parallel}


def check_new_run(resubmission: Resubmission, spec: LaunchSpec, sources: Mapping[str, tuple[str, ...]]) -> SweepTasks:
    """Check that the new run would run the selected tasks in the same directory; returns the tasks of its sweep."""
    run = resubmission.run
    if not os.path.isdir(run.submit_dir):
        hint = "the command runs there: create it again, or launch a new run from another directory"
        raise UsageError("the submit directory no longer exists", at=run.submit_dir, hint=hint)
    points = resubmission.script.embedded.points  # not those that the sweep file has now
    sweep = sweep_tasks(spec, points) if spec.is_sweep == (points is not None) else None
    if sweep is None or _task_numbers(spec, sweep) != resubmission.numbers:
        at = ", ".join({at for name in (*_FIXED, "points") for at in sources.get(name, ()) if at != BUILT_IN})
        raise UsageError(f"this would not run the tasks of {run.name}", at=at, hint="unset what changes them")
    return sweep


def _task_numbers(spec: LaunchSpec, sweep: SweepTasks) -> list[TaskNumber]:
    """The tasks that the new run would have."""
    array = spec.tasks(sweep.tasks)
    return [None] if array is None else list(array_ids.array_numbers(array))
