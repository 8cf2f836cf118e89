"""A real Slurm cluster on one machine, for tests and development; see cluster.py."""

from .cluster import Cluster, Process, TestbedError, unavailable_reason, venv_binds
from .config import NodeOptions

__all__ = ["Cluster", "NodeOptions", "Process", "TestbedError", "unavailable_reason", "venv_binds"]
