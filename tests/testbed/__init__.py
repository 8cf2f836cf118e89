"""A real Slurm cluster on one machine, for tests and for development: see cluster.py."""

from .cluster import Cluster, NodeOptions, Process, unavailable_reason, venv_binds

__all__ = ["Cluster", "NodeOptions", "Process", "unavailable_reason", "venv_binds"]
