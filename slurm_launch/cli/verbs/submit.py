"""`slurm-launch submit`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from slurm_launch.cli.options import origin, resolve, verb_app
from slurm_launch.cli.output import note, print_json, warn
from slurm_launch.cli.preflight import absent_images, checked
from slurm_launch.cli.run_argument import current_directory, slurm_client
from slurm_launch.errors import NoCommandCode, UsageError
from slurm_launch.launch import dependencies, grow_job, sweep_split
from slurm_launch.launch import submit as submission
from slurm_launch.runs.record import Run
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.status import wait as waiting


def submit(
    flags: dict[str, Any],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; touch neither disk nor Slurm.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the job's end; exit with the command's code.")] = False,
    follow_it: Annotated[
        bool, typer.Option("--follow", help="Watch the job to its end, as `watch` does; exit with the command's code.")
    ] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Submit, but hold the job until `scontrol release`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Answer with the job id alone.")] = False,
) -> int:
    if as_json and parsable:
        raise UsageError("--json and --parsable exclude one another", hint="give one of them")
    other = "--wait" if wait else "--json" if as_json else "--parsable" if parsable else None
    if follow_it and other:
        hint = "--follow waits too, and shows the job; --wait leaves stdout to the answer"
        raise UsageError(f"--follow and {other} exclude one another", hint=hint)
    found = resolve(flags)
    spec = checked(found)
    for text in absent_images(spec):
        warn(text)
    if dry_run:
        print_plan(submission.plan(spec, hold=hold, embedded=origin(found)), as_json)
        tell_of_second(spec)
        return 0
    dependencies.check_known(spec, os.environ, current_directory(), slurm_client())
    if spec.is_sweep:
        parts = sweep_split.parts_of(spec)
        if follow_it and len(parts) > 1:
            hint = "use --wait, or `slurm-launch watch` for each of them"
            raise UsageError(f"--follow shows one run, but the sweep becomes {len(parts)} of them", hint=hint)
        runs = submission.submit_parts(parts, hold=hold, embedded=origin(found), notify=note)
    else:
        runs = [submission.submit(spec, hold=hold, embedded=origin(found), notify=note)]
    if as_json:
        answers = [as_json_of(run) for run in runs]
        print_json(**answers[0], **({"runs": answers} if spec.is_sweep else {}))
    else:
        for run in runs:
            print_run(run, parsable)
    if follow_it:
        from slurm_launch.cli.verbs.watch import watched

        return watched(runs[0])
    return _wait_for_all(runs) if wait else 0


def as_json_of(run: Run) -> dict[str, Any]:
    return {key: value for key, value in asdict(run).items() if key != "schema"} | {"logs": run.logs}


def print_run(run: Run, parsable: bool) -> None:
    """The answer to a submission, for people or as sbatch --parsable has it."""
    if parsable:  # the cluster follows in a federation
        print(f"{run.job_id};{run.cluster}" if run.cluster else run.job_id, flush=True)
        return
    print(f"job     {run.job_id}" + (f" on {run.cluster}" if run.cluster else ""))
    log = run.log.removesuffix(".log") + "_TASK.log" if run.array else run.log
    print(f"script  {run.script}\nlog     {log}\nrecord  {run.record}")
    if run.points:
        print(f"points  {run.points}")
    sys.stdout.flush()


def _wait_for_all(runs: Sequence[Run]) -> int:
    """The highest exit code of their commands; the first that ended without one is told when all have ended."""
    codes, first = [], None
    for run in runs:
        try:
            codes.append(waiting.wait(run, notify=note))
        except NoCommandCode as error:
            first = first or error
    if first is not None:
        raise first
    return max(codes)


def print_plan(plan: submission.Plan, as_json: bool) -> None:
    for text in plan.notes:
        note(text)
    if as_json:
        print_json(dry_run=True, name=plan.name, script=plan.text, argv=plan.argv, log=plan.log, record=plan.record)
        return
    print(plan.text, end="")
    note(f"dry run: nothing is written. It would be {plan.script}, submitted by: {shlex.join(plan.argv)}")


def tell_of_second(spec: LaunchSpec) -> None:
    """What a dry run does not print: the script of the job that grows the first one needs the id of that."""
    if (second := grow_job.second_spec(spec)) is not None:
        nodes = f"{second.nodes} node{'s' * (second.nodes > 1)}"
        note(f"then a second job, {second.exp_name}, would be submitted, which grows it by {nodes}")


app = verb_app(submit, help="Write the script and submit it to Slurm.")
