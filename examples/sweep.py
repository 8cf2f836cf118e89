"""One point of a sweep: fit a line to noisy points by gradient descent, with the given learning rate and seed.

    slurm-launch --exp-name sweep --sweep lr=0.3,0.1 --sweep seed=0..1 --max-parallel 2 -- python sweep.py --lr {lr} --seed {seed}
    slurm-launch rehearse --exp-name sweep --num-nodes 1 --sweep-file points.csv --tasks 1 -- python sweep.py --lr {lr} --seed {seed}

Every point is a separate job with its own Ray cluster. It fails if the learning rate is too large to converge.
"""  # noqa: E501
# mypy: disable-error-code="no-untyped-call"

import argparse
import random
import sys

import ray

SLOPE, OFFSET = 2.0, -3.0  # the values to find


@ray.remote(num_cpus=1)
def gradient(shard: list[tuple[float, float]], slope: float, offset: float) -> tuple[float, float]:
    """Return the gradient of the squared error on one part of the data."""
    errors = [(slope * x + offset - y, x) for x, y in shard]
    return sum(error * x for error, x in errors) / len(errors), sum(error for error, _ in errors) / len(errors)


def main() -> int:
    parser = argparse.ArgumentParser(description="one point of a sweep")
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()

    ray.init()  # connects to the job's cluster through RAY_ADDRESS
    draw = random.Random(args.seed)
    data = [(x, SLOPE * x + OFFSET + draw.gauss(0, 0.01)) for x in (draw.uniform(-1.5, 1.5) for _ in range(400))]
    shards = [data[part::2] for part in range(2)]
    slope = offset = 0.0
    for _ in range(args.steps):
        parts = ray.get([gradient.remote(shard, slope, offset) for shard in shards])
        slope -= args.lr * sum(part[0] for part in parts) / len(parts)
        offset -= args.lr * sum(part[1] for part in parts) / len(parts)
    print(f"lr={args.lr} seed={args.seed}: slope {slope:.2f}, offset {offset:.2f} after {args.steps} steps")
    return 0 if abs(slope - SLOPE) + abs(offset - OFFSET) < 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
