"""`slurm-launch dashboard`."""

from __future__ import annotations

import os
import socket
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, note, print_json, warn
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.control import dashboard as control
from slurm_launch.control import running_job
from slurm_launch.control.running_job import RunningJob
from slurm_launch.errors import UsageError

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = "Prints the SSH command for a tunnel; --open opens a tunnel without SSH."


@app.command(help=help_text("dashboard", DETAILS))
def dashboard(
    run: RunArgument = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open a tunnel through srun, without SSH to the nodes. Ctrl-C closes it.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="PORT",
            help="Port on this machine. Default: 8265, or a free one with --open if 8265 is in use.",
        ),
    ] = None,
    token: Annotated[bool, typer.Option("--token", help="Print only the token that the dashboard asks for.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    if open_ + token + as_json > 1:
        raise UsageError("--open, --token and --json are mutually exclusive", hint="use one of them")
    job = running_job.find_running(find_run(run), run, slurm_client())
    if token:
        text = running_job.read_token(job, slurm_client())
        note("anyone who has this token can run code as you while the job runs")
        print(text)
        return 0
    remote_port = control.dashboard_port(job)
    if open_:
        return _open(job, remote_port, port)
    _show(job, remote_port, port or control.USUAL_PORT, as_json)
    return 0


def _show(job: RunningJob, remote_port: int, local_port: int, as_json: bool) -> None:
    ssh = control.ssh_command(job, remote_port, local_port)
    ssh_from_afar = control.ssh_command(job, remote_port, local_port, through=socket.gethostname())
    url = f"http://127.0.0.1:{local_port}"
    if as_json:
        print_json(
            job=job.task, head=job.head, port=remote_port, url=url, ssh=ssh, ssh_from_afar=ssh_from_afar,
            auth=job.attempt.auth, ray=job.attempt.ray,
        )  # fmt: skip
        return
    print(f"here       {ssh}\nelsewhere  {ssh_from_afar}\nthen       {url}")
    _note_token(job)
    note(f"if the nodes do not accept SSH: `slurm-launch dashboard {job.task} --open`")


def _note_token(job: RunningJob) -> None:
    if job.attempt.auth == "token":
        note(f"it asks for a token, which `slurm-launch dashboard {job.task} --token` prints")


def _open(job: RunningJob, remote_port: int, port: int | None) -> int:
    from slurm_launch.control import tunnel  # asyncio takes 20 ms of CPU time

    listener = tunnel.open_listener(port)
    local_port = listener.getsockname()[1]
    here = socket.gethostname()
    if not control.is_protected(job):
        warn(f"this Ray needs no token: while the tunnel is open, everyone on {here} can run code as you through it")

    def ready() -> None:
        print(f"http://127.0.0.1:{local_port}", flush=True)
        _note_token(job)
        note(f"from your own machine: ssh -N -L {local_port}:127.0.0.1:{local_port} {job.run.user}@{here}")
        note("Ctrl-C closes the tunnel; the job keeps running")

    try:
        raise tunnel.run_tunnel(job, remote_port, listener, env=os.environ, ready=ready)
    except KeyboardInterrupt:
        note(f"the tunnel is closed; job {job.task} keeps running")
        return 0
