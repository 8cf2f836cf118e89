"""`slurm-launch check`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from slurm_launch.cli.output import print_json
from slurm_launch.cli.preflight import missing_images, old_spec, unused_gpus, warn_lost_container, warn_lost_points
from slurm_launch.cli.spec_flags import FromScript, embedded_points, header_spec, read_script, resolve, verb_app
from slurm_launch.launch import script_checks, sweep_split
from slurm_launch.launch.script import render, sweep_tasks
from slurm_launch.launch.script_checks import ScriptCheck
from slurm_launch.launch.sweep_split import SweepPart
from slurm_launch.runs import files as run_files
from slurm_launch.slurm import environment as slurm_environment


def check(
    flags: dict[str, Any],
    from_script: FromScript = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON.")] = False,
) -> int:
    embedded = read_script(from_script)
    resolution = resolve(flags, embedded)
    spec = resolution.spec()
    warn_lost_container(old_spec(embedded), spec)
    warn_lost_points(embedded, spec)
    when = datetime.now()
    name = run_files.run_name(spec.exp_name, when)
    other_host = resolution.host_mismatch
    points = embedded_points(embedded, resolution)
    parts: list[SweepPart] = []
    if spec.is_sweep and not other_host:
        parts = sweep_split.parts_of(spec, points)
        spec, sweep = parts[0].spec, parts[0].sweep
    else:
        sweep = sweep_tasks(spec, points)
    text = render(spec, name=name, when=when, embedded=header_spec(resolution), sweep=sweep)
    env, _ = slurm_environment.submit_env(os.environ, spec.sbatch)
    results = script_checks.check_profile(spec, resolution.site_facts)
    results += script_checks.check_script(text, spec, name, env, skip_sbatch=other_host)
    results += [ScriptCheck("gpus", "note", text) for text in unused_gpus(spec, resolution.site_facts)]
    if len(parts) > 1:
        results.append(ScriptCheck("sweep", "note", f"the sweep is split into {len(parts)} runs; this is the first"))
    if not other_host:
        results += [ScriptCheck("image", "note", text) for text in missing_images(spec)]
    _print(results, name, as_json)
    return next((result.exit_code for result in results if result.exit_code), 0)


def _print(results: Sequence[ScriptCheck], name: str, as_json: bool) -> None:
    if as_json:
        ok = not any(result.exit_code for result in results)
        print_json(name=name, ok=ok, checks=[asdict(result) for result in results])
        return
    width = max(20, *(len(result.tool) for result in results))
    for result in results:
        print(f"{result.tool:<{width}} {result.status}" + (f": {result.detail}" if result.detail else ""))


app = verb_app(check, "check", "Runs bash -n, shellcheck and sbatch --test-only on it, as far as they are installed.")
