"""Rehearsals of the tests in this folder leave no processes behind, also when a test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import fake_slurm


@pytest.fixture(autouse=True)
def _no_rehearsal_outlives_its_test() -> Iterator[None]:
    yield
    fake_slurm.end_unfinished()
