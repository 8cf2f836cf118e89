"""Nodes of another job join a running cluster, and leave it without harm."""

from __future__ import annotations

import json
import shlex

import pytest

from slurm_launch.runs.record import Run
from tests.slurm.desk import Desk
from tests.slurm.jobs import VENV, python
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Two tasks of one CPU each, on nodes of one CPU: one of them on the new node. They end when `go` is there.
MAIN = python(
    "import os, ray, time\n"
    "ray.init(log_to_driver=False)\n"
    "def nodes(count):\n"
    "    while len([node for node in ray.nodes() if node['Alive']]) != count: time.sleep(0.1)\n"
    "    print('NODES', count, flush=True)\n"
    "@ray.remote(num_cpus=1, max_retries=3)\n"
    "def work(number):\n"
    "    here = os.environ['SLURMD_NODENAME']\n"
    "    open(f'{os.getcwd()}/began-{here}-{number}', 'w').close()\n"
    "    while not os.path.exists(f'{os.getcwd()}/go'): time.sleep(0.1)\n"
    "    return here\n"
    "nodes(1)\n"
    "nodes(2)\n"
    "tasks = [work.remote(number) for number in range(2)]\n"
    "while not any(name.startswith('began-n2') for name in os.listdir('.')): time.sleep(0.1)\n"
    "print('WORKS', flush=True)\n"
    "nodes(1)\n"
    "open('go', 'w').close()\n"
    "print('DONE', sorted(ray.get(tasks)))"
)


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


def grown(desk: Desk, main: Run, *flags: str) -> Run:
    done = desk.call("grow", main.name, "--json", *flags)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["main"] == main.job_id
    return desk.record(answer["record"])


def test_a_node_joins_works_and_leaves(desk: Desk) -> None:
    """With a real Ray that asks for the token. What ran on the node when it left is done elsewhere."""
    main = desk.launch("--command", MAIN, "-w", "n1", "--no-dashboard", ray=VENV)
    desk.wait_for(main, "NODES 1")
    more = grown(desk, main, "-w", "n2", "--time", "10")
    desk.wait_for(main, "WORKS")
    desk.wait_for(more, " ready nodes=1/1 main=")
    told = desk.call("status", more.name).stdout
    assert f"its nodes are part of the cluster of job {main.job_id}" in told, told
    script = desk.cluster.path(more.script).read_text()
    assert "#SBATCH --signal=B:USR1@60\n" in script
    assert "#SBATCH --time=10\n" in script
    desk.cluster.run(["scancel", "--batch", "--signal=USR1", str(more.job_id)], check=True)  # as Slurm before the limit
    assert desk.cluster.wait_job(str(more.job_id))["JobState"] == "COMPLETED", desk.log(more)
    assert " leaving this job is about to reach its time limit\n" in desk.log(more)
    assert "warning" not in desk.log(more), "it was drained"
    assert desk.cluster.wait_job(str(main.job_id))["JobState"] == "COMPLETED", desk.log(main)
    assert "DONE ['n1', 'n1']" in desk.log(main)
    assert " lost " not in desk.log(main)
    over = desk.call("grow", main.name)
    assert (over.returncode, "completed" in over.stderr) == (7, True), over.stderr


def test_a_second_job_at_the_launch(desk: Desk) -> None:
    """It begins after the first, joins it, and ends with it. Ray only stands there."""
    go = f"{desk.home}/go"
    main = desk.launch("--command", f"until [[ -e {shlex.quote(go)} ]]; do sleep 0.1; done", "--grow", "2", "-w", "n1")
    more = next(run for run in records(desk) if run.exp_name == "test-grow")
    desk.wait_for(more, " ready nodes=2/2 ")
    assert f"#SBATCH --dependency=after:{main.job_id}\n" in desk.cluster.path(more.script).read_text()
    desk.cluster.run(["touch", go], check=True)
    assert desk.cluster.wait_job(str(main.job_id))["JobState"] == "COMPLETED", desk.log(main)
    assert desk.cluster.wait_job(str(more.job_id))["JobState"] == "COMPLETED", desk.log(more)
    assert f" leaving the cluster of job {main.job_id} has ended\n" in desk.log(more)


def test_a_heterogeneous_job_grows(desk: Desk) -> None:
    """Its head is in a component of its own, and there the token is. Ray only stands there."""
    go = f"{desk.home}/go"
    command = f"until [[ -e {shlex.quote(go)} ]]; do sleep 0.1; done"
    main = desk.launch("--command", command, "--head-cpus", "1", "--num-nodes", "2")
    desk.wait_for(main, " command ")
    more = grown(desk, main)
    desk.wait_for(more, " ready nodes=1/1 ")
    desk.cluster.run(["touch", go], check=True)
    assert desk.cluster.wait_job(str(main.job_id))["JobState"] == "COMPLETED", desk.log(main)
    assert desk.cluster.wait_job(str(more.job_id))["JobState"] == "COMPLETED", desk.log(more)


def records(desk: Desk) -> list[Run]:
    folder = desk.cluster.path(desk.home)
    return [desk.record(f"{desk.home}/{path.name}") for path in folder.glob("*.json")]
