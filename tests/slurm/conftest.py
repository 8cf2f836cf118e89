"""Fixtures: the real Slurm cluster that these tests share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.jobs import OLD_RAY, ROOT, VENV
from tests.testbed import Cluster, unavailable_reason, venv_binds

# A Debian release with another Slurm version: `make matrix` sets it to trixie.
SUITE = os.environ.get("TESTBED_SUITE", "host")


def need_cluster(accounting: bool = False, cgroups: bool = False) -> None:
    """Skip if no cluster can run here. In CI fail instead: a skip would go unnoticed."""
    reason = unavailable_reason(accounting, cgroups=cgroups)
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
    """Processes and files that jobs left on the nodes."""
    found = [str(process) for process in cluster.leftovers(5)]
    for node in cluster.nodes:
        for folder in ("/tmp", "/dev/shm"):
            for path in cluster.node_path(node, folder).iterdir():
                if path.stat(follow_symlinks=False).st_uid:  # root's belong to the testbed
                    found.append(f"{node}:{folder}/{path.name}")
    return found


@pytest.fixture
def cluster(_shared: Cluster) -> Iterator[Cluster]:
    """A cluster of six idle nodes. Jobs must leave nothing on a node, whatever the test does."""
    _shared.reset()
    yield _shared
    busy = _shared.squeue()
    left = [] if busy else left_behind(_shared)
    _shared.reset()
    assert not left, left


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Start a separate cluster, with other options than the shared one."""
    need_cluster()
    started: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        started.append(Cluster(suite=SUITE, binds=binds(), **options))
        started[-1].start()
        return started[-1]

    yield make
    for cluster in started:
        cluster.stop()
