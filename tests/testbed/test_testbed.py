"""The testbed itself: few and quick tests, because every other test on it depends on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import STATE_PREFIX, Cluster, TestbedError, unavailable_reason
from .config import NodeOptions

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("testbed"),
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    second = NodeOptions(tmp_size="1m", hosts_extra=["127.0.1.1 n2"], docker0=True, eth1=True)
    with Cluster(nodes=3, node_options={"n2": second, "n3": NodeOptions(eth1=True)}) as running:
        yield running


def test_a_job_of_alice_runs_on_all_nodes(cluster: Cluster) -> None:
    done = cluster.run(["srun", "-N3", "bash", "-c", "echo $(hostname) $(id -un)"], check=True)
    assert sorted(done.stdout.splitlines()) == ["n1 alice", "n2 alice", "n3 alice"]


def test_a_batch_job_ends_with_its_code_and_output_in_the_shared_home(cluster: Cluster) -> None:
    script = "#!/bin/bash\nsrun -N3 bash -c 'echo $CUDA_VISIBLE_DEVICES'\nexit 3\n"
    cluster.path("/home/alice/job.sh").write_text(script)
    argv = ["sbatch", "--parsable", "-N3", "--gpus-per-node=2", "--comment=a comment", "job.sh"]
    job_id = cluster.run(argv, check=True).stdout.strip()
    job = cluster.wait_job(job_id)
    assert (job["JobState"], job["ExitCode"], job["Comment"]) == ("FAILED", "3:0", "a comment")
    assert cluster.path(f"/home/alice/slurm-{job_id}.out").read_text() == "0,1\n" * 3
    assert cluster.leftovers() == []


def test_each_node_has_its_own_tmp_hosts_file_and_interfaces(cluster: Cluster) -> None:
    cluster.run(["touch", "/tmp/mine"], node="n1", check=True)
    assert cluster.node_path("n1", "/tmp/mine").exists()
    assert not cluster.node_path("n3", "/tmp/mine").exists()
    full = cluster.run(["dd", "if=/dev/zero", "of=/tmp/big", "bs=1M", "count=2"], node="n2")
    assert "No space left" in full.stderr
    assert "127.0.1.1" in cluster.run(["getent", "ahostsv4", "n2"], node="n2").stdout
    assert cluster.address("n2", 4) in cluster.run(["getent", "ahostsv4", "n2"], node="n1").stdout
    addresses = cluster.run(["hostname", "-I"], node="n2").stdout.split()
    assert addresses[:3] == ["172.17.0.1", "10.88.0.12", "10.77.0.12"]
    assert cluster.run(["hostname", "-I"], node="n1").stdout.split() == ["10.77.0.11", "fd77::11"]


def test_reset_repairs_a_killed_slurmd_and_a_cut_link(cluster: Cluster) -> None:
    job_id = cluster.run(["sbatch", "--parsable", "-N3", "--wrap", "srun sleep 300"], check=True).stdout.strip()
    while len(cluster.processes("n2", "alice")) == 0:
        time.sleep(0.05)
    cluster.run(["touch", "/tmp/mine"], node="n2", check=True)
    cluster.kill_slurmd("n2")
    cluster.link_down("n3")
    answer = cluster.run(["timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{cluster.address('n3')}/6818"])
    assert answer.returncode != 0
    cluster.reset()
    assert cluster.job(job_id)["JobState"] == "CANCELLED"
    assert cluster.leftovers() == []
    assert list(cluster.node_path("n2", "/tmp").iterdir()) == []
    assert len(cluster.run(["srun", "-N3", "hostname"], check=True).stdout.split()) == 3


def test_a_command_that_times_out_is_ended(cluster: Cluster) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sleep", "4711"], timeout=0.5)
    time.sleep(0.1)
    assert cluster.processes("login") == []


def test_a_daemon_that_does_not_start_is_reported_at_once_with_its_log() -> None:
    started = time.monotonic()
    with pytest.raises(TestbedError, match=r"fatal: .*select/nosuch"):
        Cluster(nodes=1, slurm_conf_extra=["SelectType=select/nosuch"]).start()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("families", ["4", "6"])
def test_one_address_family(families: str) -> None:
    with Cluster(nodes=2, families=families) as running:
        assert len(running.run(["srun", "-N2", "hostname"], check=True).stdout.split()) == 2
        addresses = running.run(["hostname", "-I"], node="n1").stdout.split()
        assert addresses == [running.address("n1", families)]


def test_many_nodes_are_routed() -> None:
    with Cluster(nodes=26) as running:
        assert len(set(running.run(["srun", "-N26", "hostname"], check=True).stdout.split())) == 26
        running.link_down("n26")
        running.link_up("n26")
        assert running.run(["srun", "-w", "n26", "hostname"], check=True).stdout == "n26\n"


@pytest.mark.skipif(unavailable_reason(accounting=True) is not None, reason=str(unavailable_reason(accounting=True)))
def test_accounting_is_real() -> None:
    with Cluster(nodes=1, accounting=True) as running:
        running.run(["srun", "bash", "-c", "exit 4"])
        deadline = time.monotonic() + 20  # slurmctld passes its records on every few seconds
        rows = ""
        while "FAILED" not in rows and time.monotonic() < deadline:
            rows = running.run(["sacct", "-X", "-n", "-P", "-o", "User,Account,State,ExitCode"], check=True).stdout
            time.sleep(0.2)
        assert rows == "alice|lab|FAILED|4:0\n"
        assert "Invalid account" in running.run(["sbatch", "-A", "nosuch", "--wrap", "true"]).stderr


def test_nothing_is_left_when_python_is_killed() -> None:
    code = "from tests.testbed import Cluster; c = Cluster(nodes=2); c.start(); print(c.state, flush=True); input()"
    argv = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None
        state = Path(python.stdout.readline().strip())
        assert state.name.startswith(STATE_PREFIX)
        ours = _namespaces(int(path.read_text()) for path in (state / "pids").iterdir())
        assert len(ours) >= 3 * 3  # network, mount and PID, of the login node and two nodes
        python.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while (left := ours & _namespaces(int(pid) for pid in os.listdir("/proc") if pid.isdigit())) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert not left
    assert str(state) not in Path("/proc/self/mountinfo").read_text()
    with Cluster(nodes=1):
        assert not state.exists()  # the next start cleans up


def _namespaces(pids: Iterator[int]) -> set[str]:
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                break  # it has ended
    return found
