"""What every stand-in does: find its own part, and tell what went wrong in one line."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

from slurm_launch.rehearsal.job import Folder


def main(program: str, folder: str) -> NoReturn:
    try:
        sys.exit(_play(program, Folder(Path(folder)), sys.argv[1:]))
    except OSError as error:  # a full disk above all
        sys.exit(f"{program}: error: {error}")


def _play(program: str, where: Folder, argv: list[str]) -> int:
    if program == "srun":  # imported one by one: each of them starts often, and should start quickly
        from slurm_launch.rehearsal import srun

        return srun.main(where, argv)
    if program == "sbatch":
        from slurm_launch.rehearsal import sbatch

        return sbatch.main(where, argv)
    from slurm_launch.rehearsal import scontrol_squeue

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # quiet when nobody reads it any more: scontrol ... | head
    programs = {
        "scontrol": scontrol_squeue.scontrol,
        "squeue": scontrol_squeue.squeue,
        "scancel": scontrol_squeue.scancel,
    }
    return programs[program](where, argv)
