"""The real Slurm cluster that these tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed import Cluster, unavailable_reason, venv_binds

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes, with this repo and the Python that runs the tests at their own places."""
    if reason := unavailable_reason():
        if os.environ.get("CI"):  # there it must be possible, or nobody notices that nothing is tested
            pytest.fail(reason)
        pytest.skip(reason)
    with Cluster(nodes=3, binds=[ROOT, *venv_binds(sys.prefix)]) as running:
        yield running
