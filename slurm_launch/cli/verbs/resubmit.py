"""`slurm-launch resubmit`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from slurm_launch.cli.output import note, print_json, warn
from slurm_launch.cli.preflight import checked_spec, missing_images
from slurm_launch.cli.run_argument import complete_run, current_directory, find_run, slurm_client
from slurm_launch.cli.spec_flags import header_spec, resolve, verb_app
from slurm_launch.cli.verbs.submit import note_growing_job, print_plan, print_run, run_json
from slurm_launch.config.resolve import Resolution
from slurm_launch.control import resubmit as control
from slurm_launch.control import task_history
from slurm_launch.control.resubmit import Resubmission
from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.launch import dependencies
from slurm_launch.launch import submit as submission
from slurm_launch.runs.record import Run
from slurm_launch.spec.option import DEPENDENCIES

HELP = "A job ID, array tasks such as 12_3, a run name or a prefix of it, or the path of its .sh or .json."


def resubmit(
    flags: dict[str, Any],
    run: Annotated[str, typer.Argument(metavar="RUN", help=HELP, autocompletion=complete_run)],
    failed: Annotated[bool, typer.Option("--failed", help="Only failed tasks not yet resubmitted.")] = False,
    tasks: Annotated[
        str | None, typer.Option(control.TASKS_FLAG, metavar="3,7-9", help="Only these tasks of an array.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; write and submit nothing.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold the job until `scontrol release`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Print only the job ID.")] = False,
) -> int:
    if as_json and parsable:
        raise UsageError("--json and --parsable are mutually exclusive", hint="use one of them")
    selected = _select(run, tasks=tasks, points=flags.pop("points", None), failed=failed)
    if not selected.numbers:
        if as_json:
            print_json(name=None, job_id=None, again_of=selected.run.name, again=[])
        return 0
    resolution = _resolve(selected, flags)
    spec = checked_spec(resolution)
    for text in missing_images(spec):
        warn(text)
    sweep = control.check_new_run(selected, spec, resolution.sources)
    header, cwd = header_spec(resolution), selected.run.submit_dir
    if dry_run:
        print_plan(submission.plan(spec, hold=hold, embedded=header, sweep=sweep, cwd=cwd), as_json)
        note_growing_job(spec)
        return 0
    new = submission.submit(spec, hold=hold, embedded=header, sweep=sweep, cwd=cwd, notify=note)
    _record(selected, new)
    _print(selected, new, as_json, parsable)
    return 0


def _select(argument: str, *, tasks: str | None, points: str | None, failed: bool) -> Resubmission:
    find = task_history.run_finder(os.environ, current_directory())
    # With --failed, a run and its resubmissions are one run, whichever of them is named.
    run = find_run(argument, among=(lambda runs: task_history.original_of(runs, find)) if failed else None)
    client = slurm_client()
    return control.select(
        run, argument, tasks=tasks, points=points, failed=failed, find=find, client=client, notify=note
    )


def _resolve(selected: Resubmission, flags: dict[str, Any]) -> Resolution:
    """The configuration of the new run; what it does not inherit is reported."""
    if selected.script.edited:
        warn(
            f"{selected.script.path} was edited after it was submitted; the new script is generated from the spec in"
            f" its header, without the edits. To submit the edited one: {selected.sbatch_command}"
        )
    embedded, waited_for = dependencies.without_past_runs(selected.script.embedded)
    if waited_for and not flags.keys() & {"dependency", *DEPENDENCIES}:
        note(f"{', '.join(waited_for)}: used by {selected.run.name}, not by the new run; repeat it if you need it")
    return resolve(control.new_flags(selected, flags, current_directory(), note), embedded)


def _record(selected: Resubmission, new: Run) -> None:
    try:
        task_history.record_resubmission(selected.latest, new)
    except LaunchError as error:  # the job is submitted: an error now would make people submit it again
        warn(f"job {new.job_id} is submitted, but the record of {selected.run.name} cannot be updated: {error}")


def _print(selected: Resubmission, new: Run, as_json: bool, parsable: bool) -> None:
    if as_json:
        print_json(**run_json(new), again_of=selected.run.name, again=selected.ids)
        return
    print_run(new, parsable)
    if not parsable:
        print(f"repeats {task_history.format_ids(selected.ids) or 'all'} of {selected.run.name}", flush=True)


app = verb_app(resubmit, "resubmit")
