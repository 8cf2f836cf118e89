"""Work that takes longer than one job: it saves its state before the time limit and continues after the restart.

slurm-launch --exp-name long --time 24:00:00 --signal-before 300 --requeue -- python checkpoint.py --steps 100000
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import ray

# All attempts of the job share this directory. Without slurm-launch it is the current one.
STATE = Path(os.environ.get("SLAUNCH_RUN_DIR", ".")) / "state.json"
RUN_AGAIN = 85  # the exit code that requests a restart


@ray.remote
def step(total: int, number: int) -> int:
    """Stand in for an hour of training."""
    time.sleep(0.3)
    return total + number


def load() -> dict[str, int]:
    return json.loads(STATE.read_text()) if STATE.exists() else {"done": 0, "total": 0}


def save(state: dict[str, int]) -> None:
    """Write the state atomically: a job can be killed at any moment."""
    new = STATE.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(STATE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    steps = parser.parse_args().steps
    short_of_time: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: short_of_time.append(number))

    ray.init()
    state = load()
    print(f"attempt {os.environ.get('SLAUNCH_RESTART', '0')}: continuing after step {state['done']}", flush=True)
    while state["done"] < steps:
        state["total"] = ray.get(step.remote(state["total"], state["done"] + 1))
        state["done"] += 1
        if short_of_time:
            save(state)
            print(f"saved after step {state['done']}", flush=True)
            sys.exit(RUN_AGAIN)
    print(f"the sum of 1 to {steps} is {state['total']}")


if __name__ == "__main__":
    main()
