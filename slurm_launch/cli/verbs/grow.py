"""`slurm-launch grow`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slurm_launch.cli.output import note, print_json, warn
from slurm_launch.cli.preflight import checked_spec, missing_images
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.spec_flags import resolve, verb_app
from slurm_launch.cli.verbs.submit import print_plan, print_run, run_json
from slurm_launch.control import grow as growing
from slurm_launch.errors import UsageError
from slurm_launch.launch import grow_job
from slurm_launch.launch.job import plan_job


def grow(
    flags: dict[str, Any],
    run: RunArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; write and submit nothing.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Hold the job until `scontrol release`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Print only the job ID.")] = False,
) -> None:
    if as_json and parsable:
        raise UsageError("--json and --parsable are mutually exclusive", hint="use one of them")
    growing.check_flags(flags)
    main_run = find_run(run)
    main = growing.find_main_job(main_run, run, slurm_client())
    spec = checked_spec(resolve(flags, growing.inherited_spec(main_run), grow_job.ALLOWED))
    for text in missing_images(spec):
        warn(text)
    if not main.started:
        note(f"job {main.joins.job} has not started yet; the new job waits for it")
    if dry_run:
        job, cwd = grow_job.with_dependency(main, spec), grow_job.directory_of(main_run)
        print_plan(plan_job(job, hold=hold, joins=main.joins, cwd=cwd), as_json)
        return
    new = grow_job.submit_grow_job(main, spec, hold=hold, notify=note)
    if as_json:
        print_json(**run_json(new), main=main.joins.job)
    else:
        print_run(new, parsable)


app = verb_app(grow, "grow", "Submits a job whose nodes join it. Options default to those of that run.")
