"""Rollouts: actors on every node play episodes, and a pool of verifiers checks them in batches.

    slurm-launch --exp-name rollouts --num-nodes 3 -- python rollouts.py
    slurm-launch rehearse --exp-name rollouts --num-nodes 3 -- python rollouts.py

The game: get from 1 to a target by +1 and *2. A policy proposes the moves; a verifier replays and checks them.
"""
# mypy: disable-error-code="attr-defined, no-untyped-call"

import argparse
import random
import sys
import time
from collections import Counter, deque
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def play(number: int) -> tuple[int, str]:
    """Play a toy policy: it works back from the target and occasionally makes a mistake."""
    dice = random.Random(number)  # an episode does not depend on the worker, so that the result can be checked
    target = value = dice.randint(2, 10**6)
    moves = ""
    while value > 1:
        value, moves = (value - 1, "+" + moves) if value % 2 else (value // 2, "*" + moves)
        moves = "+" + moves if dice.random() < 0.01 else moves
    return target, moves


def solves(target: int, moves: str) -> bool:
    value = 1
    for move in moves:
        value = value * 2 if move == "*" else value + 1
    return value == target


# Half a CPU each: a worker and a verifier form a pair that fits on a node with one CPU.
@ray.remote(num_cpus=0.5)
class RolloutWorker:  # an actor, so that a real policy is loaded once, not for each call
    def collect(self, numbers: range) -> list[tuple[str, int, int, str]]:
        node = ray.get_runtime_context().get_node_id()
        return [(node, number, *play(number)) for number in numbers]


@ray.remote(num_cpus=0.5)
class Verifier:
    def check(self, batch: list[tuple[str, int, int, str]]) -> list[tuple[str, int, bool]]:
        return [(node, number, solves(target, moves)) for node, number, target, moves in batch]


def main() -> int:
    parser = argparse.ArgumentParser(description="rollouts on all nodes, verified in batches")
    parser.add_argument("--episodes-per-node", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=500, help="episodes per call of a worker or a verifier")
    parser.add_argument("--pairs-per-node", type=int, default=1, help="nodes with fewer CPUs are not used")
    args = parser.parse_args()

    ray.init()  # connects to the job's cluster through RAY_ADDRESS
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= args.pairs_per_node]
    places = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes] * args.pairs_per_node
    workers = [RolloutWorker.options(scheduling_strategy=place).remote() for place in places]
    verifiers = [Verifier.options(scheduling_strategy=place).remote() for place in places]
    ray.get([w.collect.remote(range(0)) for w in workers] + [v.check.remote([]) for v in verifiers])  # until all are up

    total, begin = args.episodes_per_node * len(nodes), time.monotonic()
    todo = deque(range(total)[first : first + args.batch] for first in range(0, total, args.batch))
    idle, free = deque(workers * 2), deque(verifiers)  # twice: a worker's next call is queued before it finishes one
    playing, checking, played = dict[Any, Any](), dict[Any, Any](), deque[Any]()
    verdicts: list[tuple[str, int, bool]] = []
    while todo or playing or played or checking:
        while played and free:
            verifier = free.popleft()
            checking[verifier.check.remote(played.popleft())] = verifier
        # Backpressure: while many batches wait for a verifier, no new one is started, so memory stays bounded.
        while todo and idle and len(played) < len(verifiers):
            worker = idle.popleft()
            playing[worker.collect.remote(todo.popleft())] = worker
        (call,), _ = ray.wait([*checking, *playing])
        if call in playing:
            idle.append(playing.pop(call))
            played.append(call)
        else:
            free.append(checking.pop(call))
            verdicts += ray.get(call)
    seconds = time.monotonic() - begin

    counts = Counter(node for node, _, _ in verdicts)
    for node in nodes:  # by name, not by host: in a rehearsal all nodes are on one host
        print(f"{node['NodeName']}: {counts[node['NodeID']]} episodes")
    print(f"{len(verdicts)} episodes in {seconds:.1f} s, {len(verdicts) / seconds:.0f} a second")
    # Check: every node took part, each episode was judged once, and a sample of verdicts is recomputed here.
    solved = {number for _, number, good in verdicts if good}
    right = 0 < len(counts) == len(nodes) and sorted(number for _, number, _ in verdicts) == list(range(total))
    right = right and all(solves(*play(number)) == (number in solved) for number in range(0, total, 100))
    print(f"{len(solved)} verified as solved; {'checked' if right else 'WRONG: an idle node or a wrong verdict'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
