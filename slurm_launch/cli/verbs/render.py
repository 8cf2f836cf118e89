"""`slurm-launch render`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from slurm_launch.cli.options import (
    FromScript,
    origin,
    points_from,
    read_script,
    resolve,
    verb_app,
)
from slurm_launch.cli.output import note, print_json
from slurm_launch.cli.preflight import checked, old_spec, warn_of_lost_points
from slurm_launch.launch.script import render as render_text
from slurm_launch.runs import files as run_files


def render(
    flags: dict[str, Any],
    from_script: FromScript = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    embedded = read_script(from_script)
    found = resolve(flags, embedded)
    old = old_spec(embedded)
    spec = checked(found, old)
    warn_of_lost_points(embedded, spec)
    when = datetime.now().astimezone()
    name = run_files.run_name(spec.exp_name, when)
    points = points_from(embedded, found)
    text = render_text(spec, name=name, when=when, embedded=origin(found), points=points)
    changed = None
    if old is not None:
        from slurm_launch.launch.spec_diff import changes

        changed = changes(old, spec, found.sources)
    if as_json:
        about = {} if changed is None else {"changes": changed}
        print_json(name=name, script=text, spec=spec.given(), **about)
        return
    print(text, end="")
    if changed is not None:
        note("\n  ".join([f"changed from {from_script}:", *changed]) if changed else f"nothing changed: {from_script}")


app = verb_app(render, help="Print the script to stdout; needs no Slurm and writes nothing.")
