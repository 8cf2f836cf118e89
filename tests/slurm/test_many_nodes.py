"""Contract 6: beyond 32 workers at most 32 sruns, and every node exactly once. Ray itself would not fit here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.slurm.jobs import HOME, submit
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Tells where it was started, listens where the head should, and stays.
RAY = """#!/bin/bash
echo "$SLURMD_NODENAME" >>{home}/started
echo 'Ray runtime started.'
[[ " $* " != *' --head '* ]] || exec /usr/bin/python3 -c '
import socket, sys, time
port = next(int(word.split("=")[1]) for word in sys.argv if word.startswith("--port="))
listener = socket.create_server(("", port), backlog=200)
time.sleep(900)' "$@"
exec sleep 900
"""
# Beside `ray`, so that the script asks it for the version.
PYTHON = "#!/bin/bash\necho 2.60.0 None\n"


@pytest.mark.parametrize("count", [40])
def test_the_workers_share_32_sruns(make_cluster: Callable[..., Cluster], count: int) -> None:
    cluster = make_cluster(nodes=count)
    for name, text in (("ray", RAY.replace("{home}", HOME)), ("python3", PYTHON)):
        cluster.run(["mkdir", "-p", "bin"])
        cluster.run(["tee", f"bin/{name}"], stdin=text, check=True)
        cluster.run(["chmod", "755", f"bin/{name}"])
    job = submit(
        cluster,
        num_nodes=count,
        load_env=[f"export PATH={HOME}/bin:$PATH"],
        command="pgrep -c -x -u alice srun | sed 's/^/SRUNS /'",
    ).wait()
    assert job.code == 0, job.log
    started = Counter(cluster.path(f"{HOME}/started").read_text().split())
    assert started == Counter(cluster.nodes)
    # srun keeps a second process of its own beside it.
    assert [line for line in job.output if line.startswith("SRUNS")] == [f"SRUNS {2 * 33}"], job.log
