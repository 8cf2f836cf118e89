"""Monte Carlo estimate of pi with tasks on every node of the cluster.

    slurm-launch --exp-name pi --num-nodes 3 -- python pi.py
    slurm-launch rehearse --exp-name pi --num-nodes 3 -- python pi.py

It prints how many tasks each node ran, and fails if a node ran none.
"""
# mypy: disable-error-code="no-untyped-call"

import argparse
import math
import random
import sys
import time
from collections import Counter

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=1)
def sample(seed: int, count: int) -> tuple[str, int]:
    """Throw `count` darts at a square; return the node ID and how many hit the circle."""
    throw = random.Random(seed).random  # one seed per task: the same darts on any cluster
    hits = sum(throw() ** 2 + throw() ** 2 <= 1 for _ in range(count))
    return ray.get_runtime_context().get_node_id(), hits


def main() -> int:
    parser = argparse.ArgumentParser(description="Monte Carlo estimate of pi on all nodes")
    parser.add_argument("--tasks-per-node", type=int, default=10)
    parser.add_argument("--samples", type=int, default=200_000, help="samples per task")
    args = parser.parse_args()

    ray.init()  # connects to the job's cluster through RAY_ADDRESS
    # Node names, not hostnames: in a rehearsal all nodes are on one host. A node without a CPU runs no task.
    names = {n["NodeID"]: n["NodeName"] for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1}

    # scheduling_strategy="SPREAD" is the usual way to use all nodes, but it is best effort. Here every node must take
    # part, however slowly it starts its first worker, so each task is pinned to a node.
    begin = time.monotonic()
    refs = []
    for seed in range(args.tasks_per_node * len(names)):
        node = list(names)[seed % len(names)]
        place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        refs.append(sample.options(scheduling_strategy=place).remote(seed, args.samples))
    results = ray.get(refs)
    seconds = time.monotonic() - begin

    tasks = Counter(node for node, _ in results)  # where the tasks ran, not where they were sent
    total = args.samples * len(results)
    pi = 4 * sum(hits for _, hits in results) / total
    error, limit = abs(pi - math.pi), 5 * 1.65 / math.sqrt(total)  # five standard deviations

    width = max(map(len, names.values()))
    print()
    for node, name in sorted(names.items(), key=lambda item: item[1]):
        print(f"  {name:{width}}  {'#' * min(tasks[node], 40):<10}  {tasks[node]} tasks")
    print()
    print(f"  {total:,} samples on {len(tasks)} nodes in {seconds:.1f} s")
    print(f"  pi = {pi:.5f}, off by {error:.5f}")

    idle = [name for node, name in names.items() if not tasks[node]]
    if idle:
        print(f"wrong: no task ran on {', '.join(idle)}", file=sys.stderr)
    if error > limit:
        print(f"wrong: the error should be below {limit:.5f}", file=sys.stderr)
    return 1 if idle or error > limit else 0


if __name__ == "__main__":
    sys.exit(main())
