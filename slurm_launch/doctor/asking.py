"""How the doctor asks: one program at a time, each with a time-out, a failure being an answer too."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.errors import LaunchError
from slurm_launch.process import Runner
from slurm_launch.slurm import sbatch

TIMEOUT = 20.0  # seconds; a healthy slurmctld needs less than one
UNCONFIGURED = re.compile(r"Could not establish a configuration source|Unable to process configuration file")


class NoAnswer(Exception):
    """A program did not answer, and why."""

    def __init__(
        self,
        text: str,
        hint: str | None = None,
        *,
        missing: bool = False,
        silent: bool = False,
        unconfigured: bool = False,
    ) -> None:
        super().__init__(text)
        self.text, self.hint = text, hint
        self.missing = missing  # it is not installed
        self.silent = silent  # Slurm's controller is not there: to ask it more would only take time
        self.unconfigured = unconfigured  # nor will any other command of Slurm's find one


@dataclass(frozen=True)
class Ask:
    """Ask a program; its standard output, or NoAnswer."""

    env: Mapping[str, str]
    runner: Runner = process.run
    timeout: float = TIMEOUT

    def __call__(self, argv: Sequence[str], *, stdin: str | None = None) -> str:
        try:
            result = self.runner(argv, env=self.env, timeout=self.timeout, stdin=stdin)
        except process.NotFound as error:
            raise NoAnswer(error.message, error.hint, missing=True) from None
        except process.TimedOut as error:
            raise NoAnswer(error.message, error.hint, silent=True) from None
        except LaunchError as error:
            raise NoAnswer(error.message, error.hint) from None
        if result.returncode:
            said = (result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}").splitlines()
            if UNCONFIGURED.search(result.stderr):
                text = "Slurm's commands are here, but no configuration"
                raise NoAnswer(text, "this is no login node; `rehearse` works without", silent=True, unconfigured=True)
            silent = sbatch.is_unreachable(result.stderr)
            hint = "`scontrol ping` tells whether Slurm is up; try again later" if silent else None
            raise NoAnswer(f"{' '.join(argv[:3])}: {'; '.join(said[:3])}", hint, silent=silent)
        return result.stdout
