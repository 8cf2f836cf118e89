"""Check a script without submitting it: against the site profile, and with bash, shellcheck and sbatch --test-only."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_launch import process
from slurm_launch.config.profile import SiteFacts
from slurm_launch.config.profile_rules import refusals
from slurm_launch.errors import SlurmUnavailable, SubmitRefused, UsageError
from slurm_launch.launch import hints
from slurm_launch.slurm import sbatch
from slurm_launch.spec.launch_spec import LaunchSpec

# The environment stands in the script as a here-document, which bash -n and shellcheck do not look into.
_ENVIRONMENT = re.compile(r"^IFS= read .* slaunch_environment <<'(\w+)'\n(.*?\n)\1$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class ScriptCheck:
    """The result of one check."""

    tool: str
    status: str  # ok, note, skipped, problem
    detail: str = ""
    exit_code: int = 0


def check_profile(spec: LaunchSpec, site: SiteFacts) -> list[ScriptCheck]:
    """Check a spec against the site profile, which may describe another cluster than this host's."""
    if not site.partitions and site.container_runtimes is None:
        return []
    problems = refusals(spec, site)
    results = [ScriptCheck("profile", "problem", text, UsageError.exit_code) for text in problems]
    return results or [ScriptCheck("profile", "ok")]


def check_script(
    text: str,
    spec: LaunchSpec,
    name: str,
    env: Mapping[str, str],
    *,
    runner: process.Runner = process.run,
    skip_sbatch: str = "",
) -> list[ScriptCheck]:
    """Run every available tool on a script, and bash -n on the code that it contains as text.

    `skip_sbatch` is why the Slurm of this host must not be queried."""
    texts = {f"{name}.sh": text, "command": spec.command + "\n"}
    if spec.load_env and (found := _ENVIRONMENT.search(text)):
        texts["environment"] = found[2]
    if spec.container_setup:
        texts["container setup"] = "\n".join(spec.container_setup) + "\n"
    with tempfile.TemporaryDirectory(prefix="slurm-launch-") as folder:
        for file, content in texts.items():
            Path(folder, file).write_text(content, encoding="utf-8", errors="surrogateescape")
        script, *parts = (str(Path(folder, file)) for file in texts)
        # What `source` reads may be on the nodes only: SC1090 and SC1091 are not about the user's code.
        shellcheck = ["shellcheck", "--shell=bash", "--severity=warning", "--exclude=SC1090,SC1091"]
        environment = [part for part in parts if Path(part).name == "environment"]
        tools = _Tools(folder, env, runner)
        return [
            tools.run("bash -n", ["bash", "-n", script]),
            *(tools.run(f"bash -n, {Path(part).name}", ["bash", "-n", part]) for part in parts),
            # Below a warning are remarks on style, which does not matter in the user's own lines.
            tools.run("shellcheck", [*shellcheck, script, *environment]),
            ScriptCheck("sbatch --test-only", "skipped", skip_sbatch) if skip_sbatch else tools.run_sbatch(script),
        ]


@dataclass(frozen=True)
class _Tools:
    """Runs tools on the files of a folder."""

    folder: str
    env: Mapping[str, str]
    runner: process.Runner

    def run(self, tool: str, argv: Sequence[str], failure: int = UsageError.exit_code) -> ScriptCheck:
        """Run a tool; `failure` is the exit code if it finds a problem."""
        try:
            result = self.runner(argv, env=self.env, timeout=process.TIMEOUT)
        except process.NotFound as error:
            return ScriptCheck(tool, "skipped", error.message)
        except process.TimedOut as error:
            return ScriptCheck(tool, "problem", error.message, error.exit_code)
        output = "\n".join(part.strip() for part in (result.stdout, result.stderr) if part.strip())
        output = output.replace(f"{self.folder}/", "")  # the folder is temporary
        if result.returncode == 0:
            return ScriptCheck(tool, "ok", output)
        if failure == SubmitRefused.exit_code and sbatch.is_unreachable(result.stderr):
            failure = SlurmUnavailable.exit_code
        return ScriptCheck(tool, "problem", output, failure)

    def run_sbatch(self, script: str) -> ScriptCheck:
        result = self.run("sbatch --test-only", ["sbatch", "--test-only", script], SubmitRefused.exit_code)
        hint = hints.hint_for(result.detail) if result.exit_code == SubmitRefused.exit_code else None
        if hint is None:
            return result
        return ScriptCheck(result.tool, result.status, f"{result.detail}\n  hint: {hint}", result.exit_code)
