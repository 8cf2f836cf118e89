"""What every stand-in does: find its own part, and keep quiet when nobody reads it any more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from slurm_launch.rehearsal.job import Folder


def main(program: str, folder: str) -> NoReturn:
    where = Folder(Path(folder))
    argv = sys.argv[1:]
    if program == "srun":  # imported one by one: each of them starts often, and should start quickly
        from slurm_launch.rehearsal import srun

        code = srun.main(where, argv)
    elif program == "sbatch":
        from slurm_launch.rehearsal import sbatch

        code = sbatch.main(where, argv)
    else:
        from slurm_launch.rehearsal import queries

        code = {"scontrol": queries.scontrol, "squeue": queries.squeue}[program](where, argv)
    sys.exit(code)
