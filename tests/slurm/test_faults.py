"""Contract 7 and 8: whatever fails, the job ends (or goes on) as promised, names the node and keeps Ray's logs.

docs/failures.md tells the user what each of these looks like.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.slurm.conftest import left_behind
from tests.slurm.jobs import HOME, OLD_RAY, Job, python, run, standing_ray, submit, wrapped_ray
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm

RAYLET = r"/raylet/raylet "
# A command that needs no Ray and ends only when it is told to.
PATIENT = "trap 'echo SAVED; exit 0' TERM; while :; do sleep 0.1; done"


def failed(job: Job, code: int, outcome: str, node: str) -> None:
    assert job.code == code, job.log
    end = job.end
    assert (end["outcome"], end["code"], end["node"]) == (outcome, str(code), node), job.log
    assert node in end["cause"]
    assert end["hint"]


def test_the_heads_raylet_dies_in_the_bring_up(cluster: Cluster) -> None:
    slow_worker = wrapped_ray(cluster, "[[ $SLURMD_NODENAME == n1 ]] || sleep 60")
    job = submit(cluster, num_nodes=2, load_env=[slow_worker]).wait_for("joined node=n1")
    assert cluster.signal("n1", RAYLET, signal.SIGKILL)
    failed(job.wait(), 70, "head-failed", "n1")
    assert "raylet" in job.log
    assert "ray-start.log" in job.kept("n1")
    assert any(name.startswith("logs/") and "raylet" in name for name in job.kept("n1"))


def test_a_node_without_ray(cluster: Cluster) -> None:
    missing = wrapped_ray(cluster, "[[ $SLURMD_NODENAME != n3 ]] || exec ray-is-missing", f"{OLD_RAY}/bin/ray")
    job = run(cluster, num_nodes=3, ray=OLD_RAY, load_env=[missing])
    failed(job, 71, "node-failed", "n3")
    assert "[n3] " in job.log
    assert "not found" in job.log


@pytest.mark.parametrize("late", [False, True])
def test_enough_nodes_are_left(cluster: Cluster, late: bool) -> None:
    """A node that never joined is no loss, whether it fails before the command begins or while it runs."""
    broken = wrapped_ray(
        cluster,
        f'[[ $SLURMD_NODENAME == n3 ]] || exec {OLD_RAY}/bin/ray "$@"\n'
        f"{'until [[ -e go ]]; do sleep 0.1; done;' * late} echo No such; exit 9",
        f"{OLD_RAY}/bin/ray",
    )
    command = "touch go; until grep -q 'los[t] node=n3' test-*.log; do sleep 0.1; done; echo RAN"
    cluster.run(["bash", "-c", "rm -f go test-*.log"])
    job = run(cluster, num_nodes=3, min_nodes=2, ray=OLD_RAY, load_env=[broken], command=command)
    assert job.code == 0, job.log
    assert "RAN" in job.output
    assert (job.phases.index("lost") > job.phases.index("command")) == late


def test_nodes_missing_at_the_deadline(cluster: Cluster) -> None:
    slow = wrapped_ray(cluster, "[[ $SLURMD_NODENAME != n2 ]] || sleep 90", f"{HOME}/standing/ray")
    job = run(
        cluster,
        num_nodes=3,
        start_timeout=15,
        load_env=[standing_ray(cluster), slow],  # the deadline is ours; Ray itself may take longer on a busy machine
    )
    failed(job, 71, "nodes-missing", "n2")
    assert "missing after 15 s: n2 (2 of 3 nodes joined)" in job.end["cause"]


def test_a_worker_dies_while_the_command_runs(cluster: Cluster) -> None:
    job = submit(cluster, num_nodes=3, command=PATIENT).wait_for(" command ")
    assert cluster.signal("n2", RAYLET, signal.SIGKILL)
    failed(job.wait(), 72, "node-lost", "n2")
    assert "SAVED" in job.output, "the command gets SIGTERM and its time"
    assert "ray-start.log" in job.kept("n2")


def test_the_job_goes_on_without_a_lost_worker(cluster: Cluster) -> None:
    until_two = python(
        "import ray, time; ray.init()\n"
        "while sum(n['Alive'] for n in ray.nodes()) > 2: time.sleep(0.2)\n"
        "print('TWO LEFT')"
    )
    job = submit(cluster, num_nodes=3, on_node_loss="continue", command=until_two).wait_for(" command ")
    assert cluster.signal("n3", RAYLET, signal.SIGKILL)
    job.wait()
    assert job.code == 0, job.log
    assert "TWO LEFT" in job.output
    assert "lost node=n3" in job.log


def test_the_head_is_lost_whatever_the_policy(cluster: Cluster) -> None:
    job = submit(cluster, num_nodes=2, on_node_loss="continue", command=PATIENT).wait_for(" command ")
    assert cluster.signal("n1", r"^/\S*/gcs_server ", signal.SIGKILL)
    failed(job.wait(), 72, "node-lost", "n1")


def test_a_link_is_cut_while_the_command_runs(cluster: Cluster) -> None:
    """Two jobs side by side, one for each policy: most of it is waiting."""
    cluster.run(["rm", "-f", "go"])
    keeps_running = "until [[ -e go ]]; do sleep 0.1; done; echo WENT ON"
    ends = submit(cluster, num_nodes=3, node="n[1-3]", ray=OLD_RAY, command=PATIENT)
    stays = submit(cluster, num_nodes=3, node="n[4-6]", ray=OLD_RAY, on_node_loss="continue", command=keeps_running)
    ends.wait_for(" command ")
    stays.wait_for(" command ")
    cluster.link_down("n3")
    cluster.link_down("n6")
    stays.wait_for("lost node=n6")
    cluster.run(["touch", "go"])
    # A node cannot hear that it is over; once it is back, Slurm ends what is there.
    for job, node in ((ends, "n3"), (stays, "n6")):
        job.wait_for(" end outcome=")
        cluster.link_up(node)
    ends.wait(200)  # Slurm may take a minute to notice that the node is back
    stays.wait(200)
    failed(ends, 72, "node-lost", "n3")
    assert "WENT ON" in stays.output, stays.log
    assert stays.end["outcome"] == "ok"


def test_no_space_on_a_node(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2, node_options={"n2": NodeOptions(tmp_size="16k")})
    cluster.run(["dd", "if=/dev/zero", "of=/tmp/full", "bs=1k"], node="n2", user="bob")
    job = run(cluster, num_nodes=2, ray=OLD_RAY)
    failed(job, 71, "node-failed", "n2")
    assert "No space left" in job.log
    assert "--temp-dir" in job.end["hint"]
    assert left_behind(cluster) == ["n2:/tmp/full"]


def test_no_directory_on_the_head(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=2, temp_dir="/etc/nobodys")
    failed(job, 76, "temp-dir", "n1")
    assert "--temp-dir" in job.end["hint"]


def test_a_link_is_down_from_the_start(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2, slurm_conf_extra=["MessageTimeout=5"])
    gate = "until [[ -e go ]]; do sleep 0.1; done"
    job = submit(cluster, num_nodes=2, start_timeout=40, ray=OLD_RAY, load_env=["echo GATE", gate]).wait_for("GATE")
    cluster.link_down("n2")
    cluster.run(["touch", "go"])
    job.wait_for(" end outcome=", 80)
    assert job.end["node"] == "n2", job.log
    assert job.end["code"] == "71"
    assert job.end["hint"]


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_a_slurmd_dies_while_the_command_runs(make_cluster: Callable[..., Cluster], policy: str) -> None:
    """Slurm itself ends the job when it misses a node, unless the job was told to go on."""
    cluster = make_cluster(nodes=2, slurmd_timeout=10, slurm_conf_extra=["MessageTimeout=4"])
    command = "echo UP; until [[ -e go ]]; do sleep 0.1; done; echo WENT ON"
    job = submit(cluster, num_nodes=2, ray=OLD_RAY, on_node_loss=policy, command=command).wait_for("\nUP")
    cluster.kill_slurmd("n2")
    if policy == "continue":
        for _ in range(400):
            if "DOWN" in cluster.run(["scontrol", "show", "node", "n2"]).stdout:
                break
            time.sleep(0.1)
        cluster.run(["touch", "go"])
        job.wait_for(" end outcome=ok")
        assert "WENT ON" in job.output
    else:
        job.wait_for(" end outcome=")
        assert (job.end["outcome"], job.end["code"]) == ("node-lost", "72"), job.log
        assert job.wait().state["JobState"] == "NODE_FAIL"
