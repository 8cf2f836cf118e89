"""`slurm-launch render`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_launch import artifacts
from slurm_launch.cli.options import origin, resolve, verb_app
from slurm_launch.cli.output import print_json
from slurm_launch.errors import UsageError
from slurm_launch.script import Embedded, read_embedded, render_script


def render(
    flags: dict[str, Any],
    from_script: Annotated[
        str | None, typer.Option("--from", metavar="SCRIPT", help="Begin with the spec in a script of ours.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    found = resolve(flags, read_script(from_script) if from_script is not None else None)
    spec = found.spec()
    when = datetime.now().astimezone()
    name = artifacts.run_name(spec.exp_name, when)
    # not launch.render: what only a submission needs would be a twentieth of the time
    text = render_script(spec, name=name, when=when, run_dir=spec.run_dir, embedded=origin(found))
    if as_json:
        print_json(name=name, script=text, spec=spec.given())
    else:
        print(text, end="")


def read_script(path: str) -> Embedded:
    """The spec in a script's header."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"--from cannot be read: {why}", at=path, hint="give a script of slurm-launch") from None
    return read_embedded(text, path)


app = verb_app(render, help="Print the script to stdout; needs no Slurm and writes nothing.")
