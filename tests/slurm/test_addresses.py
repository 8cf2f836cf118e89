"""Contract 2: the right address, whatever else the node has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.slurm.jobs import OLD_RAY, VENV, Job, python, run, standing_ray
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm

ADDRESSES = python(
    "import ray; ray.init()\n"
    "at = lambda n: ray.remote(num_cpus=1, resources={'node:' + n['NodeManagerAddress']: 0.1})\n"
    "assert all(ray.get([at(n)(lambda: True).remote() for n in ray.nodes()]))\n"
    "print('AT', *sorted(n['NodeManagerAddress'] for n in ray.nodes()))"
)


def addresses(job: Job) -> list[str]:
    line = next((line for line in job.output if line.startswith("AT ")), None)
    assert line, job.log
    return line.split()[1:]


def test_ipv6_on_request(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=2, ip_family="6", command=f'{ADDRESSES}; echo "ADDRESS $RAY_ADDRESS"')
    assert addresses(job) == [cluster.address("n1", 6), cluster.address("n2", 6)]
    assert any(line.startswith(f"ADDRESS [{cluster.address('n1', 6)}]:") for line in job.output), job.log


@pytest.mark.parametrize("family", ["4", "6"])
def test_one_family_only(make_cluster: Callable[..., Cluster], family: str) -> None:
    cluster = make_cluster(nodes=2, families=family)
    job = run(cluster, num_nodes=2, command=ADDRESSES, ray=OLD_RAY if family == "4" else VENV)  # it knows no IPv6
    assert addresses(job) == [cluster.address("n1", family), cluster.address("n2", family)]
    other = run(cluster, num_nodes=2, ip_family="6" if family == "4" else "4")
    assert (other.code, other.end["outcome"], other.end["node"]) == (78, "no-address", "n1"), other.log
    assert "--interface" in other.end["hint"]


def test_loopback_names_docker_and_a_second_network(make_cluster: Callable[..., Cluster]) -> None:
    """Each node's own name means 127.0.1.1, and docker0 and eth1 come before eth0 in every list."""
    odd = {name: NodeOptions(hosts_extra=[f"127.0.1.1 {name}"], docker0=True, eth1=True) for name in ("n1", "n2", "n3")}
    cluster = make_cluster(nodes=3, node_options=odd)
    listed = cluster.run(["hostname", "-I"], node="n1").stdout
    assert listed.index("172.17.") < listed.index("10.77."), "the order that must not matter"
    job = run(cluster, num_nodes=3, command=ADDRESSES)
    assert addresses(job) == [cluster.address(name, 4) for name in ("n1", "n2", "n3")]

    job = run(cluster, num_nodes=3, interface="eth1", ray=OLD_RAY, command=ADDRESSES)
    assert all(address.startswith("10.88.") for address in addresses(job)), job.log
    assert len(addresses(job)) == 3

    # What the site's TaskProlog or the environment's code says goes before all; the workers then follow the head.
    job = run(cluster, num_nodes=2, ray=OLD_RAY, load_env=["export SLAUNCH_NODE_IP=10.88.0.11"], command=ADDRESSES)
    assert all(address.startswith("10.88.") for address in addresses(job)), job.log

    job = run(cluster, num_nodes=2, interface="ib7")
    assert (job.code, job.end["outcome"]) == (78, "no-address"), job.log
    assert "ib7" in job.end["cause"]

    alone = run(cluster, num_nodes=1, ray=OLD_RAY, command=ADDRESSES)  # no other node to compare with
    assert addresses(alone)[0].startswith(("10.77.", "10.88.")), alone.log


def test_link_local_with_global_scope(make_cluster: Callable[..., Cluster]) -> None:
    """A link-local address is never used, even if the host name resolves to it and it claims a global scope."""
    cluster = make_cluster(nodes=2, node_options={"n1": NodeOptions(hosts_extra=["169.254.7.7 n1"])})
    add = ["ip", "address", "add", "169.254.7.7/16", "dev", "eth0", "scope", "global"]
    cluster.run(add, user="root", node="n1", check=True)
    job = run(cluster, num_nodes=2, load_env=[standing_ray(cluster)])
    assert job.code == 0, job.log
    assert f"address={cluster.address('n1', 4)}:" in job.log
