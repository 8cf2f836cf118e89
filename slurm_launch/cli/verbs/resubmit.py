"""`slurm-launch resubmit`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from slurm_launch.cli.options import origin, resolve, verb_app
from slurm_launch.cli.output import note, print_json, warn
from slurm_launch.cli.preflight import absent_images, checked
from slurm_launch.cli.run_argument import (
    complete,
    current_directory,
    found,
    slurm_client,
)
from slurm_launch.cli.verbs.submit import (
    as_json_of,
    print_plan,
    print_run,
    tell_of_second,
)
from slurm_launch.config import sweep_file
from slurm_launch.config.resolve import BUILT_IN
from slurm_launch.control import resubmit as again
from slurm_launch.control.resubmit import Last, Number
from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.launch import dependencies
from slurm_launch.launch import submit as submission
from slurm_launch.runs import search
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import DEPENDENCIES, flag_name
from slurm_launch.spec.sweep_points import Points
from slurm_launch.status.task_points import short

HELP = "A job id, tasks of an array such as 12_3, a run's name or the beginning of it, or the path of its .sh or .json."
TASKS = "--tasks"
# The numbers of tasks keep their meaning from one run to the next.
_FIXED = ("array", "sweep", "sweep_file", "chain")


def resubmit(
    flags: dict[str, Any],
    run: Annotated[str, typer.Argument(metavar="RUN", help=HELP, autocompletion=complete)],
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed, and was not run again since.")] = False,
    tasks: Annotated[str | None, typer.Option(TASKS, metavar="3,7-9", help="Only these tasks of an array.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the script; touch neither disk nor sbatch.")
    ] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Submit, but hold the job until `scontrol release`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Answer with the job id alone.")] = False,
) -> int:
    if as_json and parsable:
        raise UsageError("--json and --parsable exclude one another", hint="give one of them")
    finder = again.finder(os.environ, current_directory())
    # What failed of a run and of those made from it is one question, whichever of them is meant.
    old = found(run, among=lambda several: again.first_of(several, finder)) if failed else found(run)
    made_from = again.origin(old)
    wanted = _wanted(old, run, flags, tasks)
    if old.spec.get("chain") and (failed or wanted != again.numbers_of(old)):
        hint = "leave the choice out to run the whole chain again"
        raise UsageError(f"{old.name} is a chain: its links are one work, done in their order", at="RUN", hint=hint)
    lasts = again.last_runs(old, wanted, finder)
    if failed:
        lasts = _failed(old, lasts)
        chosen = {number for last in lasts for number in last.numbers}
        wanted = [number for number in wanted if number in chosen]
        if not wanted:
            if as_json:
                print_json(name=None, job_id=None, again_of=old.name, again=[])
            return 0
    whole = wanted == again.numbers_of(old)
    if made_from.edited:
        warn(
            f"{made_from.script} was edited since it was submitted; the new script is made from the spec in its header,"
            f" without the edits. The edited one is run by: {again.by_hand(made_from, wanted, all_of_it=whole)}"
        )
    embedded, waited = dependencies.past(made_from.embedded)
    if waited and not flags.keys() & {"dependency", *DEPENDENCIES}:
        note(f"{', '.join(waited)}: {old.name} waited for it, the new run does not; give it again if it is to")
    resolved = resolve(_flags(flags, old, wanted, whole), embedded)
    spec = checked(resolved)
    for text in absent_images(spec):
        warn(text)
    if not os.path.isdir(old.submit_dir):
        hint = "the command runs there: make it again, or launch anew from another one"
        raise UsageError("the directory of the launch does not exist any more", at=old.submit_dir, hint=hint)
    points = made_from.embedded.points  # whatever stands in the sweep's file now
    if _tasks(spec, points) != wanted:
        sources = ", ".join(
            {at for name in (*_FIXED, "points") for at in resolved.sources.get(name, ()) if at != BUILT_IN}
        )
        raise UsageError(f"this would not run the tasks of {old.name}", at=sources, hint="unset what changes them")
    header = origin(resolved)
    if dry_run:
        plan = submission.plan(spec, hold=hold, embedded=header, points=points, cwd=old.submit_dir)
        print_plan(plan, as_json)
        tell_of_second(spec)
        return 0
    new = submission.submit(spec, hold=hold, embedded=header, points=points, cwd=old.submit_dir, notify=note)
    try:
        again.note(lasts, new)
    except LaunchError as error:  # the job is there: to fail now would make people submit it again
        warn(f"job {new.job_id} is submitted, but the record of {old.name} does not know of it: {error}")
    ids = [again.task_id(old, number) for number in wanted]
    if as_json:
        print_json(**as_json_of(new), again_of=old.name, again=ids)
        return 0
    print_run(new, parsable)
    if not parsable:
        print(f"again   {short(array_ids.together(ids), again.MOST) or 'all'} of {old.name}", flush=True)
    return 0


def _wanted(old: Run, argument: str, flags: dict[str, Any], tasks: str | None) -> list[Number]:
    """The tasks that were asked for, in whichever way."""
    points = flags.pop("points", None)
    if points is not None and tasks is not None:
        raise UsageError(f"--points and {TASKS} are the same", hint="give one of them")
    numbers, flag = (points, "--points") if tasks is None else (tasks, TASKS)
    ids = search.task_ids_in(old, argument)
    if ids is not None:
        if numbers is not None:
            raise UsageError(f"{argument} names tasks, and so does {flag}", at=f"RUN, {flag}", hint="keep one of them")
        numbers, flag = again.spelled([int(one.rpartition("_")[2]) for one in ids]), "RUN"
    return again.numbers_of(old) if numbers is None else again.chosen(old, numbers, flag)


def _tasks(spec: LaunchSpec, points: Points | None) -> list[Number]:
    """The tasks that the new run would have; none where its sweep is another one than that of the script."""
    if spec.is_sweep != (points is not None):
        return []
    array = spec.tasks(None if points is None else sweep_file.task_numbers(spec, points))
    return [None] if array is None else list(array_ids.array_numbers(array))


def _failed(old: Run, lasts: Sequence[Last]) -> list[Last]:
    """Of these those that failed; what is not over yet is told."""
    there = again.outcomes(lasts, slurm_client())
    if there.unknown:
        hint = f"`slurm-launch status {old.name}` shows what is known; name those to run again by {TASKS}"
        hint = hint if old.array_indexes else "leave --failed out to run it again whatever became of it"
        raise UsageError(f"nobody knows how these ended: {', '.join(there.unknown)}", at="--failed", hint=hint)
    if there.going:
        note(f"not over yet, so not run again: {', '.join(there.going)}")
    if not there.failed:
        note(f"nothing to run again: nothing of {old.name} has failed" + (" so far" if there.going else ""))
    return there.failed


def _flags(flags: dict[str, Any], old: Run, wanted: Sequence[Number], whole: bool) -> dict[str, Any]:
    """The flags for the new run: the user's, and what the former run's script cannot say."""
    for name in _FIXED:
        if name in flags:
            flag = flag_name(name)
            hint = f"{TASKS} chooses among those of {old.name}; for others launch anew"
            raise UsageError(f"{flag} cannot be changed: a task keeps its number", at=f"flag {flag}", hint=hint)
    given = dict(flags)
    if "run_dir" in flags:  # from here, not from where the job runs
        given["run_dir"] = os.path.join(current_directory(), os.path.expanduser(flags["run_dir"]))
    if "template" not in flags and old.spec.get("template"):  # of a run of one's own it is no strange code
        given["template"] = os.path.join(old.submit_dir, old.spec["template"])
    if not whole:
        given |= _restricted(old, wanted)
    folder = os.path.join(old.run_dir, f"{old.name}.run")
    if "checkpoint_dir" not in flags and not old.spec.get("checkpoint-dir") and os.path.isdir(folder):
        given["checkpoint_dir"] = folder
        note(f"the command finds its checkpoints in {folder}; --checkpoint-dir DIR begins anew")
    return given


def _restricted(old: Run, wanted: Sequence[Number]) -> dict[str, Any]:
    """The option that leaves these tasks of an array."""
    if old.points is not None:
        return {"points": again.spelled(wanted)}
    _, percent, at_once = str(old.spec.get("array") or "").partition("%")
    return {"array": again.spelled(wanted) + percent + at_once}


app = verb_app(
    resubmit, help="Run a run again, or what of it failed, as a new run with the same spec; flags change it."
)
