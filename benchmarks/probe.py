"""probe.py NODES RESULT: the command of the job, the same for all methods to start Ray.

It writes JSON to the file RESULT: the times at which a driver saw all nodes, a task had run on each of them, and the
command ended. The job's first line stores its own time in BENCH_BEGIN. All nodes are on one machine and share a clock.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

moments = {"first_line": float(os.environ["BENCH_BEGIN"]), "command": time.time()}

import ray  # noqa: E402 # its import counts
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402


@ray.remote(num_cpus=1)
def where() -> str:
    return str(ray.get_runtime_context().get_node_id())


def main(nodes: int, result: Path) -> None:
    ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
    while len(alive := [node["NodeID"] for node in ray.nodes() if node["Alive"]]) < nodes:  # type: ignore[no-untyped-call]
        time.sleep(0.02)
    moments["nodes"] = time.time()
    strategies = [NodeAffinitySchedulingStrategy(node, soft=False) for node in alive]
    ran = ray.get([where.options(scheduling_strategy=strategy).remote() for strategy in strategies])
    moments["tasks"] = time.time()
    assert sorted(ran) == sorted(alive), (ran, alive)
    ray.shutdown()
    moments["end"] = time.time()
    whole = result.with_suffix(".part")
    whole.write_text(json.dumps(moments))
    whole.rename(result)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
