"""`slurm-launch check`: everything that can be found out about a script without queueing it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_launch import process
from slurm_launch.cli.options import (
    FromScript,
    origin,
    points_from,
    read_script,
    resolve,
    verb_app,
)
from slurm_launch.cli.output import print_json
from slurm_launch.cli.preflight import (
    absent_images,
    old_spec,
    warn_of_lost_container,
    warn_of_lost_points,
)
from slurm_launch.config.profile import Site
from slurm_launch.config.profile_rules import refusals
from slurm_launch.errors import SlurmUnavailable, SubmitRefused, UsageError
from slurm_launch.launch import hints, sweep_split
from slurm_launch.launch import submit as submission
from slurm_launch.launch.sweep_split import SweepPart
from slurm_launch.runs import files as run_files
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import sbatch
from slurm_launch.spec.launch_spec import LaunchSpec

TIMEOUT = 60.0


@dataclass(frozen=True)
class Outcome:
    """What one tool said, or the profile."""

    tool: str
    status: str  # ok, note, skipped, problem
    detail: str = ""
    exit_code: int = 0


def check(
    flags: dict[str, Any],
    from_script: FromScript = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    embedded = read_script(from_script)
    found = resolve(flags, embedded)
    spec = found.spec()
    warn_of_lost_container(old_spec(embedded), spec)
    warn_of_lost_points(embedded, spec)
    when = datetime.now()
    name = run_files.run_name(spec.exp_name, when)
    elsewhere = found.elsewhere
    points = points_from(embedded, found)
    shares: list[SweepPart] = []
    if spec.is_sweep and not elsewhere:
        shares = sweep_split.parts_of(spec, points)
        spec, points = shares[0].spec, shares[0].points
    text = submission.render(spec, name=name, when=when, embedded=origin(found), points=points)
    env, _ = slurm_environment.scrub(os.environ, spec.sbatch)
    with tempfile.TemporaryDirectory(prefix="slurm-launch-") as folder:
        texts = {f"{name}.sh": text, "command": spec.command + "\n"}
        if spec.container_setup:
            texts["container setup"] = "\n".join(spec.container_setup) + "\n"
        for file, content in texts.items():
            Path(folder, file).write_text(content, encoding="utf-8", errors="surrogateescape")
        script, *parts = (str(Path(folder, file)) for file in texts)
        outcomes = ask_profile(spec, found.site_facts) + try_script(script, parts, env, elsewhere=elsewhere)
    if len(shares) > 1:
        outcomes.append(Outcome("sweep", "note", f"it becomes {len(shares)} runs; this is the first"))
    if not elsewhere:
        outcomes += [Outcome("image", "note", text) for text in absent_images(spec)]
    if as_json:
        print_json(
            name=name, ok=not any(outcome.exit_code for outcome in outcomes), checks=[asdict(o) for o in outcomes]
        )
    else:
        width = max(20, *(len(outcome.tool) for outcome in outcomes))
        for outcome in outcomes:
            print(f"{outcome.tool:<{width}} {outcome.status}" + (f": {outcome.detail}" if outcome.detail else ""))
    return next((outcome.exit_code for outcome in outcomes if outcome.exit_code), 0)


def ask_profile(spec: LaunchSpec, site: Site) -> list[Outcome]:
    """What the profile tells of the cluster, which may be another one than this."""
    if not site.partitions and site.container_runtimes is None:
        return []
    told = refusals(spec, site)
    return [Outcome("profile", "problem", text, UsageError.exit_code) for text in told] or [Outcome("profile", "ok")]


def try_script(
    script: str,
    parts: Sequence[str],
    env: Mapping[str, str],
    runner: process.Runner = process.run,
    elsewhere: str = "",
) -> list[Outcome]:
    """Hand a script to every tool that is here; and the files with the code that it holds as mere text.

    `elsewhere` says why the Slurm of this machine is the wrong one to ask.
    """

    def ask(tool: str, argv: Sequence[str], refused: int) -> Outcome:
        try:
            result = runner(argv, env=env, timeout=TIMEOUT)
        except process.NotFound as error:
            return Outcome(tool, "skipped", error.message)
        except process.TimedOut as error:
            return Outcome(tool, "problem", error.message, error.exit_code)
        said = "\n".join(part.strip() for part in (result.stdout, result.stderr) if part.strip())
        said = said.replace(f"{Path(script).parent}/", "")  # the directory is gone when they read this
        if result.returncode == 0:
            return Outcome(tool, "ok", said)
        if refused == SubmitRefused.exit_code and sbatch.is_unreachable(result.stderr):
            refused = SlurmUnavailable.exit_code
        hint = hints.hint_for(said) if refused == SubmitRefused.exit_code else None
        return Outcome(tool, "problem", said + (f"\n  hint: {hint}" if hint else ""), refused)

    return [
        ask("bash -n", ["bash", "-n", script], UsageError.exit_code),
        *(ask(f"bash -n, {Path(part).name}", ["bash", "-n", part], UsageError.exit_code) for part in parts),
        # remarks below a warning are about style, and the user's own lines have a style of their own
        ask("shellcheck", ["shellcheck", "--severity=warning", script], UsageError.exit_code),
        Outcome("sbatch --test-only", "skipped", f"not asked: {elsewhere}")
        if elsewhere
        else ask("sbatch --test-only", ["sbatch", "--test-only", script], SubmitRefused.exit_code),
    ]


app = verb_app(check, help="Try the script without queueing it: bash -n, shellcheck and sbatch --test-only.")
