"""A Ray Tune search over all nodes, which a later job can resume.

    slurm-launch --exp-name tune --num-nodes 3 -- python tune.py
    slurm-launch rehearse --exp-name tune --num-nodes 3 -- python tune.py

Needs `pip install "ray[tune]>=2.43"` where the job runs; without it the exit code is 69. If a job ended too early,
`--name` with the run's name in results/ resumes it from the last state that Tune saved.
"""

import argparse
import json
import secrets
import sys
import tempfile
from pathlib import Path

import ray

try:
    from ray.tune import Checkpoint, RunConfig, TuneConfig, Tuner, get_checkpoint, loguniform, report
    from ray.tune.schedulers import ASHAScheduler
except ImportError as error:
    print(f'{error}\nThis example needs: pip install "ray[tune]>=2.43"', file=sys.stderr)
    sys.exit(69)


def train(config: dict[str, float]) -> None:
    """Run gradient descent on x*x. Replace it with yours; Tune gives it one CPU, or what tune.with_resources() sets."""
    step, x = 0, 10.0
    if checkpoint := get_checkpoint():  # this trial started in an earlier job
        with checkpoint.as_directory() as folder:
            step, x = json.loads(Path(folder, "state.json").read_text())
    while step < config["steps"]:
        step, x = step + 1, x - config["lr"] * 2 * x
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps([step, x]))
            report({"loss": x * x}, checkpoint=Checkpoint.from_directory(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description="a small Ray Tune search")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--results", type=Path, default="results", help="a directory that all nodes share")
    parser.add_argument("--name", default=f"tune_{secrets.token_hex(3)}", help="name of the run")
    args = parser.parse_args()

    ray.init()  # connects to the job's cluster through RAY_ADDRESS
    run = args.results.resolve() / args.name  # Tune needs the full path
    if Tuner.can_restore(str(run)):
        tuner = Tuner.restore(str(run), trainable=train, resume_errored=True)
    else:
        halving = ASHAScheduler(metric="loss", mode="min", max_t=args.steps, grace_period=2)  # stops bad trials early
        tuner = Tuner(
            train,
            param_space={"lr": loguniform(1e-3, 1), "steps": args.steps},
            tune_config=TuneConfig(num_samples=args.trials, scheduler=halving),
            run_config=RunConfig(name=args.name, storage_path=str(run.parent)),
        )
    results = tuner.fit()
    best = results.get_best_result("loss", "min")
    loss, lr = (best.metrics or {})["loss"], (best.config or {})["lr"]
    print(f"{len(results)} trials, {results.num_errors} failed; results are in {run}")
    print(f"best: lr {lr:.3f} brought the loss from 100 to {loss:.2g}")
    return 0 if not results.num_errors and loss < 100 else 1


if __name__ == "__main__":
    sys.exit(main())
