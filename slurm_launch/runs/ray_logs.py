"""The names of Ray's log files, ranked by how likely they show the cause of a failure."""

from __future__ import annotations

from fnmatch import fnmatchcase

START_LOG = "ray-start.log"  # output of `ray start`, kept by the script
# Shell patterns, the most relevant first.
_OF_FAILURES = (
    "srun*.err",
    "gcs_server.err",
    "raylet.err",
    "worker-*.err",
    "gcs_server.out",
    "raylet.out",
    "ray_process_exit.log",
    "dashboard.err",
    "dashboard.log",
    "dashboard_agent.err",
    "dashboard_agent.log",
    "monitor.err",
    "monitor.log",
    "runtime_env*",
    "python-core-driver-*",
    "python-core-worker-*",
)
PRIORITY = (*_OF_FAILURES, "worker-*.out", "*.err", "*.log", "*.out")


def rank(name: str) -> int:
    """The place of a log file among all: ray-start.log comes first, unknown files come last."""
    if name == START_LOG:
        return -1
    return next((place for place, pattern in enumerate(PRIORITY) if fnmatchcase(name, pattern)), len(PRIORITY))


def may_show_failure(name: str) -> bool:
    """Whether errors are written to this file; other files hold the output of tasks."""
    return rank(name) < len(_OF_FAILURES)


def is_worker_log(name: str) -> bool:
    """Whether this is one of the files of which a node may have hundreds: of workers and of their environments."""
    return any(fnmatchcase(name, pattern) for pattern in ("worker-*", "python-core-*", "runtime_env_setup-*"))
