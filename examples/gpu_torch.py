"""Data-parallel training by hand: one worker per GPU computes the gradient on its own part of the data.

    slurm-launch --exp-name gpu --num-nodes 3 --num-gpus 1 -- python gpu_torch.py
    slurm-launch rehearse --exp-name gpu --num-nodes 3 --num-gpus 1 -- python gpu_torch.py

Without torch or a CUDA device it prints a note and computes the same on CPUs. In a rehearsal Ray may count GPUs that
do not exist.
"""
# mypy: disable-error-code="attr-defined, import-not-found, no-untyped-call"

import argparse
import random
import sys
from collections.abc import Iterable

import ray

TRUTH = [2.0, -3.0, 0.5]  # the weights that the training must find


def dot(a: Iterable[float], b: Iterable[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def find_device() -> tuple[str, str]:
    """Return the device of this process, and the GPU's name or the reason why there is none."""
    try:
        import torch

        torch.zeros(1, device="cuda")  # try it: is_available() does not detect a broken or busy device
        return "cuda", torch.cuda.get_device_name()
    except (ImportError, OSError):
        return "plain Python", "torch cannot be imported"
    except (RuntimeError, AssertionError):  # AssertionError: torch was built without CUDA
        return "cpu", "torch finds no usable CUDA device"


@ray.remote
class Worker:
    def __init__(self, rank: int, rows: int) -> None:
        dice = random.Random(rank)  # a real worker would read its part of the data here
        self.x = [[dice.gauss(0, 1) for _ in TRUTH] for _ in range(rows)]
        self.y = [dot(row, TRUTH) for row in self.x]
        self.device, self.about = find_device()  # Ray shows a worker only its own GPU

    def describe(self) -> tuple[str, str, str]:
        return ray.get_runtime_context().get_node_id(), self.device, self.about

    def gradient(self, weights: list[float]) -> list[float]:
        """Return the gradient of the mean squared error on this worker's data."""
        if self.device == "plain Python":
            errors = [dot(row, weights) - y for row, y in zip(self.x, self.y, strict=True)]
            return [2 * dot(errors, column) / len(errors) for column in zip(*self.x, strict=True)]
        import torch

        x, y, w = (torch.tensor(data, device=self.device) for data in (self.x, self.y, weights))
        ((x @ w.requires_grad_() - y) ** 2).mean().backward()
        return list(w.grad.tolist())


def main() -> int:
    parser = argparse.ArgumentParser(description="data-parallel gradient descent, on GPUs if there are any")
    parser.add_argument("--rows", type=int, default=500, help="rows of data per worker")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()

    ray.init()  # connects to the job's cluster through RAY_ADDRESS
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes() if node["Alive"]}
    have = ray.cluster_resources()
    if gpus := int(have.get("GPU", 0)):  # num_cpus=0: a node may have more GPUs than CPUs
        create, count = Worker.options(num_gpus=1, num_cpus=0), gpus
    else:
        create, count = Worker.options(num_cpus=1, scheduling_strategy="SPREAD"), min(len(names), int(have["CPU"]))
    workers = [create.remote(rank, args.rows) for rank in range(count)]

    found = ray.get([worker.describe.remote() for worker in workers])
    for rank, (node, device, about) in enumerate(found):
        print(f"worker {rank} on {names[node]}: {about if device == 'cuda' else device}")
    if missing := {about for _, device, about in found if device != "cuda"}:
        print(f"no GPU: {'; '.join(missing)}. Computing on CPUs instead")

    weights = [0.0] * len(TRUTH)
    for _ in range(args.steps):
        parts = ray.get([worker.gradient.remote(weights) for worker in workers])
        weights = [w - 0.3 * sum(part) / count for w, part in zip(weights, zip(*parts, strict=True), strict=True)]
    print(f"{count} workers, {args.steps} steps: weights {', '.join(f'{w:.3f}' for w in weights)}")
    return 0 if all(abs(w - truth) < 0.01 for w, truth in zip(weights, TRUTH, strict=True)) else 1


if __name__ == "__main__":
    sys.exit(main())
