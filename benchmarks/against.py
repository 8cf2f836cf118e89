"""The script against that of an earlier commit, side by side: `make bench PARTS=against AGAINST=REV`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.bring_up import ROOT, VENV, Bench
from benchmarks.measured import Measured, at_most, spread
from tests.testbed import Cluster, venv_binds

NODES = 3
ROUNDS = 9


def measure() -> Iterator[Measured]:
    revision = os.environ.get("AGAINST") or "HEAD~1"
    with _checkout(revision) as tree, _cluster() as cluster:
        bench = Bench(cluster, earlier=lambda nodes, command: _render(tree, nodes, command))
        bench.run(("ours", "earlier"), NODES, ROUNDS, to_the_end=True)
        for what, name in (
            ("bring-up", "nodes"),
            ("the first line until the command starts", "command"),
            ("the command's end until the nodes are free", "freed"),
        ):
            new, old = bench.seconds("ours", NODES, name), bench.seconds("earlier", NODES, name)
            row = f"{what}, {NODES} nodes: ours / {revision}"
            yield at_most(row, 1.03, median(new) / median(old), f"{spread(new)} / {spread(old)}")


def _cluster() -> Cluster:
    return Cluster(nodes=NODES, slurmd_timeout=90, binds=[ROOT, *venv_binds(VENV)])


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    """The files of a commit, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", ROOT, "archive", revision], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        yield Path(folder)


def _render(tree: Path, nodes: int, command: str) -> str:
    """The script that this checkout renders."""
    argv = [sys.executable, "-m", "slurm_launch", "render", "--exp-name", "bench", "--command", command]
    argv += ["--num-nodes", str(nodes), "--cpus-per-task", "1"]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(argv, cwd=tree, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
