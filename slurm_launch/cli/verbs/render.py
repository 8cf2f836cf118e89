"""`slurm-launch render`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from slurm_launch.cli.output import note, print_json
from slurm_launch.cli.preflight import checked_spec, old_spec, warn_lost_points
from slurm_launch.cli.spec_flags import FromScript, embedded_points, header_spec, read_script, resolve, verb_app
from slurm_launch.launch.script import render as render_text
from slurm_launch.launch.script import sweep_tasks
from slurm_launch.launch.spec_diff import changes
from slurm_launch.runs import files as run_files


def render(
    flags: dict[str, Any],
    from_script: FromScript = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> None:
    embedded = read_script(from_script)
    resolution = resolve(flags, embedded)
    old = old_spec(embedded)
    spec = checked_spec(resolution, old)
    warn_lost_points(embedded, spec)
    when = datetime.now().astimezone()
    name = run_files.run_name(spec.exp_name, when)
    sweep = sweep_tasks(spec, embedded_points(embedded, resolution))
    text = render_text(spec, name=name, when=when, embedded=header_spec(resolution), sweep=sweep)
    changed = None
    if old is not None:
        changed = changes(old, spec, resolution.sources)
    if as_json:
        about = {} if changed is None else {"changes": changed}
        print_json(name=name, script=text, spec=spec.given(), **about)
        return
    print(text, end="")
    if changed is not None:
        title = f"changed from {from_script}:" if changed else f"nothing changed from {from_script}"
        note("\n  ".join([title, *changed]))


app = verb_app(render, "render", "Writes no files.")
