"""`slurm-launch watch`."""

from __future__ import annotations

import typer

from slurm_launch.cli import watch_view
from slurm_launch.cli.output import markup, note
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.signals import cleanup_on_signals
from slurm_launch.cli.summaries import help_text
from slurm_launch.control import running_job
from slurm_launch.errors import NoCommandCode
from slurm_launch.runs.record import Run
from slurm_launch.status import wait
from slurm_launch.status.watch import RunWatcher

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = (
    "Shows the queue, the nodes that join, the command's output and the outcome. Ctrl-C stops watching; the job keeps"
    " running. The exit code is 5 if the job ended without an exit code of its command."
)


@app.command(help=help_text("watch", DETAILS))
def watch(run: RunArgument = None) -> int:
    chosen = find_run(run)
    return watch_run(chosen, running_job.named_task(chosen, run))


def watch_run(run: Run, task: str | None = None) -> int:
    """Show a run until it ends; returns the exit code of its command, or 5 without one."""
    client = slurm_client()
    wait.JobPoller(run, client)  # raises for a run without a job, before the screen changes
    with cleanup_on_signals():
        view = watch_view.choose_view(labels=run.array_indexes is not None and task is None)
        try:
            watcher = RunWatcher(run, view, client, task=task)
            watcher.run_to_end()
        except KeyboardInterrupt:
            view.close()
            note(wait.keeps_running(task or run.job_id))
            raise
        finally:
            view.close()
    view.end(watcher.snapshot)
    try:
        return watcher.exit_code()
    except NoCommandCode as error:  # the view has just shown why
        return error.exit_code
