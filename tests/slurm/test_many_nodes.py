"""Contract 6: beyond 32 workers at most 32 sruns, and every node exactly once. Ray itself would not fit here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.slurm.jobs import HOME, standing_ray, submit
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize("count", [40])
def test_the_workers_share_32_sruns(make_cluster: Callable[..., Cluster], count: int) -> None:
    cluster = make_cluster(nodes=count)
    job = submit(
        cluster,
        num_nodes=count,
        load_env=[standing_ray(cluster)],
        command="pgrep -c -x -u alice srun | sed 's/^/SRUNS /'",
    ).wait()
    assert job.code == 0, job.log
    started = Counter(cluster.path(f"{HOME}/started").read_text().split())
    assert started == Counter(cluster.nodes)
    # srun keeps a second process of its own beside it.
    assert [line for line in job.output if line.startswith("SRUNS")] == [f"SRUNS {2 * 33}"], job.log
