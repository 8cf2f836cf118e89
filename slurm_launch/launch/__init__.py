"""Submits jobs: scripts, sbatch, dependencies, splitting of large sweeps, differences between specs."""
