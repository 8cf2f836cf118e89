"""`slurm-launch dashboard`."""

from __future__ import annotations

import os
import re
import shlex
import socket
from typing import Annotated

import typer

from slurm_launch.cli.output import (
    markup,
    note,
    print_json,
    warn,
)
from slurm_launch.cli.run_argument import RunArgument, found, slurm_client
from slurm_launch.control import running_job
from slurm_launch.control.running_job import Place
from slurm_launch.errors import UsageError, WrongMoment

USUAL_PORT = 8265  # of Ray's dashboard
app = typer.Typer(add_completion=False, rich_markup_mode=markup())


@app.command()
def dashboard(
    run: RunArgument = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the tunnel, by srun: no ssh to the nodes is needed. Ctrl-C closes it.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, metavar="PORT", help="Port on this machine. Default: 8265, or with --open a free one."
        ),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Print the token that the dashboard asks for, and nothing else.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    """How to reach Ray's dashboard in a running job: the ssh command for a tunnel, or the tunnel itself."""
    if open_ + token + as_json > 1:
        raise UsageError("--open, --token and --json exclude one another", hint="give one of them")
    place = running_job.find(found(run), run, slurm_client())
    if token:
        text = running_job.token(place, slurm_client())
        note("whoever has this token can run code as you, as long as the job runs")
        print(text)
        return 0
    there = dashboard_port(place)
    if open_:
        return _open(place, there, port)
    _tell(place, there, port or USUAL_PORT, as_json)
    return 0


def dashboard_port(place: Place) -> int:
    """On the head node's loopback; an error that tells why there is none."""
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d{1,5})/?", place.attempt.dashboard or "")
    if match:
        return int(match[1])
    spec = place.run.spec
    if spec.get("dashboard") is False or "dashboard=false" in str(spec.get("ray-head-arg", "")).lower():
        raise WrongMoment(f"job {place.task} was started without the dashboard", hint="leave --no-dashboard out")
    if "dashboard" in str(spec.get("ray-head-arg", "")):
        hint = "--ray-head-arg has settled it; ssh -L leads there"
        raise WrongMoment(f"the log of job {place.task} does not tell where its dashboard is", at=place.log, hint=hint)
    if place.attempt.ray in (None, "unknown"):
        raise WrongMoment(f"the log of job {place.task} does not tell of a dashboard", at=place.log)
    hint = "pip install 'ray[default]' in its environment or image, and start the job anew"
    raise WrongMoment(f"the Ray {place.attempt.ray} of job {place.task} has no dashboard installed", hint=hint)


def _ssh(place: Place, there: int, local: int, through: str | None = None) -> str:
    way = ["-J", f"{place.run.user}@{through}"] if through else []
    host = f"{place.run.user}@{place.head}" if through else place.head
    return shlex.join(["ssh", "-N", *way, "-L", f"{local}:127.0.0.1:{there}", host])


def _tell(place: Place, there: int, local: int, as_json: bool) -> None:
    here = socket.gethostname()
    ssh, ssh_from_afar, url = _ssh(place, there, local), _ssh(place, there, local, here), f"http://127.0.0.1:{local}"
    if as_json:
        print_json(
            job=place.task, head=place.head, port=there, url=url, ssh=ssh, ssh_from_afar=ssh_from_afar,
            auth=place.attempt.auth, ray=place.attempt.ray,
        )  # fmt: skip
        return
    print(f"here       {ssh}\nelsewhere  {ssh_from_afar}\nthen       {url}")
    if place.attempt.auth == "token":
        note(f"it asks for a token, which `slurm-launch dashboard {place.task} --token` prints")
    note(f"where the nodes take no ssh: `slurm-launch dashboard {place.task} --open`")


def _open(place: Place, there: int, port: int | None) -> int:
    from slurm_launch.control import tunnel  # asyncio costs time

    listener = tunnel.listen(port)
    local = listener.getsockname()[1]
    here = socket.gethostname()
    if place.attempt.auth != "token" or any("knows no tokens" in text for text in place.attempt.warnings):
        warn(
            f"this Ray asks for no token: while the tunnel is open, everybody on {here} can run code as you through it"
        )

    def ready() -> None:
        print(f"http://127.0.0.1:{local}", flush=True)
        if place.attempt.auth == "token":
            note(f"it asks for a token, which `slurm-launch dashboard {place.task} --token` prints")
        note(f"from your own machine: ssh -N -L {local}:127.0.0.1:{local} {place.run.user}@{here}")
        note("Ctrl-C closes the tunnel; the job goes on")

    try:
        raise tunnel.open_tunnel(place, there, listener, env=os.environ, ready=ready)
    except KeyboardInterrupt:
        note(f"the tunnel is closed; job {place.task} goes on")
        return 0
