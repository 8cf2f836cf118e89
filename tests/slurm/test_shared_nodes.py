"""Contract 3 and 9: jobs that meet on the same nodes do not clash, and none ends or joins another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.slurm.desk import read_until
from tests.slurm.jobs import python, run, submit
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Who is in my cluster? Each job marks its cluster and finds nobody else's mark; tasks run on all nodes.
ALONE = python(
    "import os, ray; ray.init(namespace='x')\n"
    "me = os.environ['SLURM_JOB_ID']\n"
    "@ray.remote\nclass Mark:\n    def job(self): return os.environ['SLURM_JOB_ID']\n"
    "marks = [Mark.options(name=me, num_cpus=0.1).remote()]\n"
    "assert ray.get([m.job.remote() for m in marks]) == [me]\n"
    "assert ray.util.list_named_actors() == [me], ray.util.list_named_actors()\n"
    "print('ALONE', len([n for n in ray.nodes() if n['Alive']]))"
)

EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"
HOLD = """
import socket, sys, time
held = []
for port in map(int, sys.argv[2:]):
    held.append(socket.socket(socket.AF_INET6))
    held[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if sys.argv[1] == "listen":  # whatever is in TIME_WAIT there
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held[-1].bind(("::", port))
    if sys.argv[1] == "listen":
        held[-1].listen()
print("held", flush=True)
time.sleep(300)
"""


@contextmanager
def held_by_bob(cluster: Cluster, ports: list[int], how: str = "listen") -> Iterator[None]:
    holder = cluster.popen(["python3", "-c", HOLD, how, *map(str, ports)], user="bob", node="n1")
    try:
        read_until(holder, "^held$")
        yield
    finally:
        holder.kill()
        holder.wait()


# `make soak` does ten rounds of each; the suite does fewer, for the time.
ROUNDS = int(os.environ.get("SOAK_ROUNDS", "0"))


@pytest.mark.parametrize(("jobs", "rounds"), [(2, 2), (4, 1)])
def test_jobs_that_start_at_the_same_moment_on_the_same_nodes(cluster: Cluster, jobs: int, rounds: int) -> None:
    for _ in range(ROUNDS or rounds):
        started = [
            submit(cluster, num_nodes=2, node="n[1-2]", mem="1200M", start_timeout=120, command=ALONE)
            for _ in range(jobs)
        ]
        for job in started:
            job.wait(180)
            assert job.code == 0, job.log
            assert "ALONE 2" in job.output, job.log


def test_one_job_ends_while_the_other_works(cluster: Cluster) -> None:
    wait = "until [[ -e go ]]; do sleep 0.1; done; " + ALONE
    cluster.run(["rm", "-f", "go"])
    stays = submit(cluster, num_nodes=2, node="n[1-2]", mem="1200M", dashboard=True, command=wait).wait_for(" command ")
    goes = run(cluster, num_nodes=2, node="n[1-2]", mem="1200M", dashboard=True, command=ALONE)
    assert goes.code == 0, goes.log
    cluster.run(["touch", "go"])
    assert stays.wait().code == 0, stays.log
    assert "ALONE 2" in stays.output


def test_a_foreign_tmp_ray_and_taken_ports(cluster: Cluster) -> None:
    """bob has /tmp/ray, Ray's default ports and the port that we would take first."""
    next_id = int(cluster.run(["sbatch", "--parsable", "--hold", "--wrap=true"], check=True).stdout) + 1
    cluster.run(["scancel", str(next_id - 1)])
    first = 32768 - 10000 + next_id % 2500 * 4
    cluster.run(["mkdir", "-m", "700", "/tmp/ray"], user="bob", node="n1", check=True)
    taken = [6379, 8265, 10001, 52365, 44217, 44227, first]
    with held_by_bob(cluster, taken):
        job = run(cluster, num_nodes=2, node="n[1-2]", dashboard=True, command=ALONE)
    cluster.run(["rmdir", "/tmp/ray"], user="bob", node="n1")
    assert int(job.id) == next_id
    assert job.code == 0, job.log
    assert f":{first} " not in job.log


def test_a_port_that_is_taken_meanwhile(cluster: Cluster) -> None:
    """Bound but not listening: nothing shows it, and Ray cannot have it. The bring-up goes on with another one."""
    next_id = int(cluster.run(["sbatch", "--parsable", "--hold", "--wrap=true"], check=True).stdout) + 1
    cluster.run(["scancel", str(next_id - 1)])
    first = 32768 - 10000 + next_id % 2500 * 4
    with held_by_bob(cluster, [first], "bind"):
        job = run(cluster, num_nodes=2, node="n[1-2]", command=ALONE)
    assert int(job.id) == next_id
    assert job.code == 0, job.log
    assert f":{first} " in job.log
    assert "retry" in job.phases


def test_the_kernel_hands_out_low_ports(cluster: Cluster) -> None:
    """Some sites let the kernel begin so low that there is no room below; a port that is free does as well."""
    before = cluster.run(["cat", EPHEMERAL], node="n1", check=True).stdout
    cluster.run(["tee", EPHEMERAL], node="n1", user="root", stdin="1024 60999", check=True)
    job = run(cluster, num_nodes=1, node="n1", command=ALONE)
    cluster.run(["tee", EPHEMERAL], node="n1", user="root", stdin=before, check=True)
    assert job.code == 0, job.log
    assert re.search(r" address=[0-9.]+:(2[2-9]|3[0-2])\d{3} ", job.log), job.log


def test_a_range_of_ports(cluster: Cluster) -> None:
    """Two jobs within one narrow range, on the same nodes: all that listens is inside it."""
    # What listens on the loopback address is no business of a firewall between nodes.
    listening = '; ss -Hltnp | awk \'$4 !~ /127\\.|::1\\]/ { sub(/.*:/, "", $4); print "PORT", $4, $6 }\' | sort -u'
    wait = "until [[ -e go ]]; do sleep 0.1; done"
    cluster.run(["rm", "-f", "go"])
    options: dict[str, Any] = {
        "num_nodes": 2,
        "node": "n[1-2]",
        "mem": "1200M",
        "port_range": "21000-21127",
        "dashboard": True,
    }
    first = submit(cluster, **options, command=f"{wait}; {ALONE}{listening}").wait_for(" command ")
    second = run(cluster, **options, command=ALONE + listening)
    cluster.run(["touch", "go"])
    first.wait()
    for job in (first, second):
        assert job.code == 0, job.log
        assert "ALONE 2" in job.output
    # Slurm's own, srun and slurmd, have a range of their own in slurm.conf.
    ports = {int(line.split()[1]) for line in second.output if line.startswith("PORT ") and "srun" not in line} - {6818}
    assert ports
    assert all(21000 <= port <= 21127 for port in ports), second.log


def test_too_narrow_a_range_is_told(cluster: Cluster) -> None:
    with held_by_bob(cluster, list(range(21000, 21064, 8))):
        job = run(cluster, num_nodes=1, node="n1", port_range="21000-21063")
    assert (job.code, job.end["outcome"]) == (70, "head-failed"), job.log
    assert "--port-range" in job.end["hint"]
