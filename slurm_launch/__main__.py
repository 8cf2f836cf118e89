"""Runs the command line: `python -m slurm_launch`."""

from slurm_launch.cli.main import main

if __name__ == "__main__":
    main()
