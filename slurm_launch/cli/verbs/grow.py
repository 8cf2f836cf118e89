"""`slurm-launch grow`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slurm_launch.cli.options import resolve, verb_app
from slurm_launch.cli.output import note, print_json, warn
from slurm_launch.cli.preflight import absent_images, checked
from slurm_launch.cli.run_argument import RunArgument, found, slurm_client
from slurm_launch.cli.verbs.submit import as_json_of, print_plan, print_run
from slurm_launch.control import grow as growing
from slurm_launch.errors import UsageError
from slurm_launch.launch import grow_job
from slurm_launch.launch.job import plan_job


def grow(
    flags: dict[str, Any],
    run: RunArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; submit nothing.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Submit, but hold the job until `scontrol release`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Answer with the job id alone.")] = False,
) -> None:
    if as_json and parsable:
        raise UsageError("--json and --parsable exclude one another", hint="give one of them")
    growing.check_flags(flags)
    main_run = found(run)
    main = growing.find(main_run, run, slurm_client())
    spec = checked(resolve(flags, growing.origin(main_run), grow_job.ALLOWED))
    for text in absent_images(spec):
        warn(text)
    if not main.begun:
        note(f"job {main.joins.job} has not begun: the new one waits for it")
    if dry_run:
        job, cwd = grow_job.with_dependency(main, spec), grow_job.directory_of(main_run)
        print_plan(plan_job(job, hold=hold, joins=main.joins, cwd=cwd), as_json)
        return
    new = grow_job.submit_grow_job(main, spec, hold=hold, notify=note)
    if as_json:
        print_json(**as_json_of(new), main=main.joins.job)
    else:
        print_run(new, parsable)


app = verb_app(grow, help="Submit a job whose nodes join the Ray cluster of a run; what is not said is as in that run.")
