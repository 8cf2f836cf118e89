"""How the start of the steps scales with the number of nodes: a fake `ray` on up to 64 emulated nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from statistics import median

from benchmarks.bring_up import HOME, ROOT, timed
from benchmarks.measured import Measured, at_most, known, spread
from slurm_launch import LaunchSpec, render
from tests.slurm.jobs import standing_ray
from tests.testbed import Cluster

SIZES = (8, 16, 32, 64)
ROUNDS = 5


def measure() -> Iterator[Measured]:
    taken: dict[int, list[float]] = {size: [] for size in SIZES}
    with Cluster(nodes=max(SIZES), slurmd_timeout=90, binds=[ROOT]) as cluster:
        ray = standing_ray(cluster)
        for number in range(ROUNDS):
            for size in SIZES if number % 2 else reversed(SIZES):
                taken[size].append(_until_all_started(cluster, size, ray, f"{size}-{number}"))
                print(f"      {size} nodes, round {number + 1}: {taken[size][-1]:.1f} s", flush=True)
    least, most = min(SIZES), max(SIZES)
    ratio = median(taken[most]) / median(taken[least])
    detail = "; ".join(f"{size} nodes {spread(taken[size])}" for size in SIZES)
    yield at_most(f"scaling: all steps started, {most} nodes / {least} nodes, with a fake Ray", 4, ratio, detail)
    a_node = (median(taken[most]) - median(taken[least])) / (most - least)
    yield known("scaling: seconds per additional node", f"{a_node:.2f} s", "5 s in the script of Ray's documentation")


def _until_all_started(cluster: Cluster, nodes: int, ray: str, name: str) -> float:
    cluster.reset()
    spec = LaunchSpec(
        exp_name="bench",
        command=f'echo "$BENCH_BEGIN $EPOCHREALTIME" >{HOME}/{name}.part && mv {HOME}/{name}.part {HOME}/{name}.times',
        num_nodes=nodes,
        cpus_per_task=1,
        load_env=[ray],
    )
    script = timed(render(spec, when=datetime(2026, 1, 1, tzinfo=timezone.utc)))
    cluster.run(["tee", f"{name}.sh"], stdin=script, check=True)
    cluster.run(["sbatch", f"--output={name}.log", f"{name}.sh"], check=True)
    times = cluster.path(f"{HOME}/{name}.times")
    deadline = time.monotonic() + 180
    while not times.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"{nodes} nodes did not start:\n{cluster.path(f'{HOME}/{name}.log').read_text()}")
        time.sleep(0.03)
    begin, end = map(float, times.read_text().split())
    return end - begin
