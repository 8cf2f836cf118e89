"""`slurm-launch submit`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from slurm_launch.cli.output import note, print_json, warn
from slurm_launch.cli.preflight import checked_spec, missing_images
from slurm_launch.cli.run_argument import current_directory, slurm_client
from slurm_launch.cli.spec_flags import header_spec, resolve, verb_app
from slurm_launch.errors import NoCommandCode, UsageError
from slurm_launch.launch import dependencies, grow_job, sweep_split
from slurm_launch.launch import submit as submission
from slurm_launch.runs.record import Run
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec
from slurm_launch.status import wait as waiting


def submit(
    flags: dict[str, Any],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; write and submit nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the job; exit with the command's code.")] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Watch the job, as `watch` does; exit with the command's code."),
    ] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold the job until `scontrol release`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Print only the job ID.")] = False,
) -> int:
    if as_json and parsable:
        raise UsageError("--json and --parsable are mutually exclusive", hint="use one of them")
    other = "--wait" if wait else "--json" if as_json else "--parsable" if parsable else None
    if follow and other:
        hint = "--follow waits too, and shows the job; --wait keeps stdout for the result"
        raise UsageError(f"--follow and {other} are mutually exclusive", hint=hint)
    resolution = resolve(flags)
    spec = checked_spec(resolution)
    for text in missing_images(spec):
        warn(text)
    if dry_run:
        print_plan(submission.plan(spec, hold=hold, embedded=header_spec(resolution)), as_json)
        note_growing_job(spec)
        return 0
    runs = _submit(spec, header_spec(resolution), hold=hold, follow=follow)
    if as_json:
        results = [run_json(run) for run in runs]
        print_json(**results[0], **({"runs": results} if spec.is_sweep else {}))
    else:
        for run in runs:
            print_run(run, parsable)
    if follow:
        from slurm_launch.cli.verbs.watch import watch_run  # 27 ms of CPU time, only for --follow

        return watch_run(runs[0])
    return _wait_for_all(runs) if wait else 0


def _submit(spec: LaunchSpec, header: EmbeddedSpec, *, hold: bool, follow: bool) -> list[Run]:
    """Submit the job, or the jobs of a sweep."""
    job_ids = dependencies.job_ids(spec, os.environ, current_directory(), slurm_client())
    if not spec.is_sweep:
        return [submission.submit(spec, hold=hold, embedded=header, job_ids=job_ids, notify=note)]
    parts = sweep_split.parts_of(spec)
    if follow and len(parts) > 1:
        hint = "use --wait, or `slurm-launch watch` for each of them"
        raise UsageError(f"--follow shows one run, but the sweep is split into {len(parts)} runs", hint=hint)
    return submission.submit_parts(parts, hold=hold, embedded=header, job_ids=job_ids, notify=note)


def run_json(run: Run) -> dict[str, Any]:
    return {key: value for key, value in asdict(run).items() if key != "schema"} | {"logs": run.logs}


def print_run(run: Run, parsable: bool) -> None:
    """Print a submitted run, for people or as sbatch --parsable does."""
    if parsable:
        print(f"{run.job_id};{run.cluster}" if run.cluster else run.job_id, flush=True)
        return
    print(f"job     {run.job_id}" + (f" on {run.cluster}" if run.cluster else ""))
    log = run.log.removesuffix(".log") + "_TASK.log" if run.array else run.log
    print(f"script  {run.script}\nlog     {log}\nrecord  {run.record}")
    if run.points:
        print(f"points  {run.points}")
    sys.stdout.flush()


def _wait_for_all(runs: Sequence[Run]) -> int:
    """Wait for all runs; returns the highest exit code. Raises the first NoCommandCode after all have ended."""
    codes, first = [], None
    for run in runs:
        try:
            codes.append(waiting.wait(run, notify=note))
        except NoCommandCode as error:
            first = first or error
    if first is not None:
        raise first
    return max(codes)


def print_plan(plan: submission.SubmissionPlan, as_json: bool) -> None:
    for text in plan.notes:
        note(text)
    if as_json:
        print_json(dry_run=True, name=plan.name, script=plan.text, argv=plan.argv, log=plan.log, record=plan.record)
        return
    print(plan.text, end="")
    note(f"dry run: nothing was written or submitted. Would write {plan.script} and run: {shlex.join(plan.argv)}")


def note_growing_job(spec: LaunchSpec) -> None:
    """Note the job that a dry run does not print: the script of the growing job needs the ID of the first one."""
    if (second := grow_job.second_spec(spec)) is not None:
        nodes = f"{second.nodes} node{'s' * (second.nodes > 1)}"
        note(f"a second job, {second.exp_name}, would then be submitted to add {nodes} to its cluster")


app = verb_app(submit, "submit")
