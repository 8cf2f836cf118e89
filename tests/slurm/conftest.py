"""The real Slurm cluster that these tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.jobs import OLD_RAY, ROOT, VENV
from tests.testbed import Cluster, unavailable_reason, venv_binds

# Another Slurm than the machine's own: `make matrix` says trixie.
SUITE = os.environ.get("TESTBED_SUITE", "host")


def need_cluster(accounting: bool = False) -> None:
    """Skip, or in CI fail, where no cluster can be had: there nobody would notice that nothing is tested."""
    reason = unavailable_reason(accounting)
    if reason is None and not (VENV / "bin/ray").exists():
        reason = f"no Ray in {VENV}: run `make test`"
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def binds() -> list[str | Path]:
    venvs = [venv for venv in (VENV, OLD_RAY) if venv.exists()]
    return [ROOT, *venv_binds(*venvs)]


@pytest.fixture(scope="session")
def _shared() -> Iterator[Cluster]:
    need_cluster()
    with Cluster(nodes=6, suite=SUITE, slurmd_timeout=90, binds=binds()) as running:
        yield running


def left_behind(cluster: Cluster) -> list[str]:
    """Processes and files of a job that should have gone with it."""
    found = [str(process) for process in cluster.leftovers(5)]
    for node in cluster.nodes:
        for folder in ("/tmp", "/dev/shm"):
            for path in cluster.node_path(node, folder).iterdir():
                if path.stat(follow_symlinks=False).st_uid:  # root's are the testbed's own
                    found.append(f"{node}:{folder}/{path.name}")
    return found


@pytest.fixture
def cluster(_shared: Cluster) -> Iterator[Cluster]:
    """Six idle nodes. Whatever a test does with them, nothing of its jobs may stay on a node."""
    _shared.reset()
    yield _shared
    busy = _shared.squeue()
    left = [] if busy else left_behind(_shared)
    _shared.reset()
    assert not left, left


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """A cluster of the test's own, where the shared one does not fit."""
    need_cluster()
    started: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        started.append(Cluster(suite=SUITE, binds=binds(), **options))
        started[-1].start()
        return started[-1]

    yield make
    for cluster in started:
        cluster.stop()
