"""CPU time of a bring-up by program, over all processes that are alive when the command starts."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.bring_up import ROOT, VENV, Bench
from benchmarks.measured import Measured, known
from tests.testbed import Cluster, Process, venv_binds

SIZES = (3, 6)

OURS = "our script and srun"
# Substrings of command lines. Ray's agents and dashboard rename themselves while they start.
PROGRAMS = {
    "slaunch_program": OURS,  # srun and the shell of a step
    "slurm_script": OURS,
    "raylet/raylet": "raylets",  # before the agents, whose command lines are arguments of the raylet
    "gcs_server": "GCS",
    "dashboard/agent.py": "dashboard agents",
    "ray::DashboardAgent": "dashboard agents",
    "runtime_env/agent/main.py": "runtime environment agents",
    "ray::RuntimeEnvAgent": "runtime environment agents",
    "log_monitor.py": "log monitors",
    "dashboard/dashboard.py": "dashboard",
    "ray-dashboard": "dashboard",
    "client.server": "Ray Client's server",
    "monitor.py": "autoscaler's monitor",
    "ray start": "`ray start`",
}


def measure() -> Iterator[Measured]:
    with Cluster(nodes=max(SIZES), slurmd_timeout=90, binds=[ROOT, *venv_binds(VENV)]) as cluster:
        bench = Bench(cluster)
        for nodes in SIZES:
            bench.until_it_runs(nodes)
            of_alice = [cluster.processes(node, user="alice") for node in cluster.nodes[:nodes]]
            found = by_program(process for processes in of_alice for process in processes)
            detail = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.items() if seconds >= 0.1)
            yield known(f"CPU time until the command begins, {nodes} nodes", f"{sum(found.values()):.1f} s", detail)


def by_program(processes: Iterable[Process]) -> dict[str, float]:
    """Return seconds by program, largest first. CPU time of children that exited counts for their parent."""
    found: dict[str, float] = defaultdict(float)
    for process in processes:
        name = next((name for part, name in PROGRAMS.items() if part in process.args), "others")
        try:
            fields = Path(f"/proc/{process.host_pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has exited meanwhile
        ticks = sum(map(int, fields[11:15]))  # user and system, its own and its children's
        found[name] += ticks / os.sysconf("SC_CLK_TCK")
    return dict(sorted(found.items(), key=lambda item: -item[1]))
