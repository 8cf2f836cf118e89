"""`slurm-launch render`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_launch import artifacts, config
from slurm_launch.cli.options import FromScript, origin, read_script, resolve, verb_app
from slurm_launch.cli.output import note, print_json
from slurm_launch.errors import UsageError
from slurm_launch.script import Embedded, render_script


def render(
    flags: dict[str, Any],
    from_script: FromScript = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    embedded = read_script(from_script)
    found = resolve(flags, embedded)
    spec = found.spec()
    when = datetime.now().astimezone()
    name = artifacts.run_name(spec.exp_name, when)
    # not launch.render: what only a submission needs would be a twentieth of the time
    text = render_script(spec, name=name, when=when, run_dir=spec.run_dir, embedded=origin(found))
    changed = _changes(embedded, found) if embedded is not None else None
    if as_json:
        about = {} if changed is None else {"changes": changed}
        print_json(name=name, script=text, spec=spec.given(), **about)
        return
    print(text, end="")
    if changed is not None:
        note("\n  ".join([f"changed from {from_script}:", *changed]) if changed else f"nothing changed: {from_script}")


def _changes(embedded: Embedded, found: config.Resolution) -> list[str] | None:
    """What is different from the job that the script was made for; None when it cannot be told."""
    from slurm_launch.retarget import changes

    try:
        old = config.resolve({}, {}, Path.cwd(), embedded).spec()  # the script alone, without this machine
        return changes(old, found.spec(), found.sources)
    except UsageError:
        return None


app = verb_app(render, help="Print the script to stdout; needs no Slurm and writes nothing.")
