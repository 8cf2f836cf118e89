"""`slurm-launch watch`."""

from __future__ import annotations

import typer

from slurm_launch.cli import watch_view
from slurm_launch.cli.output import markup, note
from slurm_launch.cli.run_argument import RunArgument, found, slurm_client
from slurm_launch.cli.signals import ended_in_order
from slurm_launch.control import running_job
from slurm_launch.errors import NoCommandCode
from slurm_launch.runs.record import Run
from slurm_launch.status import wait
from slurm_launch.status.watch import Watch

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


@app.command()
def watch(run: RunArgument = None) -> int:
    """Watch a run to its end: the queue, the nodes that join, the command's output, the outcome.

    Ctrl-C stops watching; the job goes on. Exits with the command's own code, or with 5 when the job ended without one.
    """
    chosen = found(run)
    return watched(chosen, running_job.task_of(chosen, run))


def watched(run: Run, task: str | None = None) -> int:
    """Show a run until it ends; the command's exit code, or NoCommandCode."""
    client = slurm_client()
    wait.Follower(run, client)  # a run without a job: told before the screen changes
    with ended_in_order():
        view = watch_view.chosen(labels=run.array_indexes is not None and task is None)
        try:
            watch = Watch(run, view, client, task=task)
            watch.to_its_end()
        except KeyboardInterrupt:
            view.close()
            note(wait.keeps_running(task or run.job_id))
            raise
        finally:
            view.close()
    view.end(watch.sight)
    try:
        return watch.code()
    except NoCommandCode as error:  # why has just been said
        return error.exit_code
