"""The entry point of all fake commands: call the right one, and report an OSError in one line."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

from slurm_launch.rehearsal.job import RehearsalFolder


def main(program: str, folder: str) -> NoReturn:
    try:
        sys.exit(_run(program, RehearsalFolder(Path(folder)), sys.argv[1:]))
    except OSError as error:  # above all a full disk
        sys.exit(f"{program}: error: {error}")


def _run(program: str, folder: RehearsalFolder, argv: list[str]) -> int:
    if program == "srun":  # imported separately: they start often, and must start quickly
        from slurm_launch.rehearsal import srun

        return srun.main(folder, argv)
    if program == "sbatch":
        from slurm_launch.rehearsal import sbatch

        return sbatch.main(folder, argv)
    from slurm_launch.rehearsal import scontrol_squeue

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # quiet if the reader ends early: scontrol ... | head
    programs = {
        "scontrol": scontrol_squeue.scontrol,
        "squeue": scontrol_squeue.squeue,
        "scancel": scontrol_squeue.scancel,
    }
    return programs[program](folder, argv)
