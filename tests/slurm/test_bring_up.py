"""Contract 5 and 6: Ray gets exactly the nodes and what Slurm allocated on them, and the command finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.slurm.jobs import HOME, Job, python, run, standing_ray, submit, wrapped_ray
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm

LOOK = python(
    """
import json, os, ray
ray.init()  # no address given: RAY_ADDRESS says it

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where():
    return ray.get_runtime_context().get_node_id()

nodes = [n for n in ray.nodes() if n["Alive"]]
ran = set()
for node in nodes:
    pin = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    ran.add(ray.get(where.options(scheduling_strategy=pin).remote()))
print("SEEN", json.dumps({
    "address": os.environ["RAY_ADDRESS"],
    "gcs": ray.get_runtime_context().gcs_address,
    "ran": len(ran),
    "nodes": {n["NodeName"]: {"ip": n["NodeManagerAddress"], **n["Resources"]} for n in nodes},
}))
"""
)


def seen(job: Job) -> Any:
    line = next((line for line in job.output if line.startswith("SEEN ")), None)
    assert line, job.log
    return json.loads(line.removeprefix("SEEN "))


@pytest.mark.parametrize("count", [1, 3, 6])
def test_ray_has_exactly_the_allocated_nodes(cluster: Cluster, count: int) -> None:
    job = run(cluster, num_nodes=count, cpus_per_task=2, mem="1500M", num_gpus=1, dashboard=True, command=LOOK)
    assert (job.state["JobState"], job.code) == ("COMPLETED", 0), job.log
    found = seen(job)
    assert sorted(found["nodes"]) == [f"n{i}" for i in range(1, count + 1)]
    assert found["ran"] == count
    assert found["gcs"] == found["address"]
    for name, node in found["nodes"].items():
        assert node["ip"] == cluster.address(name, 4)
        assert node["CPU"] == 2
        assert node["GPU"] == 1
        assert node["memory"] + node["object_store_memory"] == 1500 * 2**20
    assert job.phases[0] == "starting"
    assert job.phases[-4:] == ["ready", "command", "stopping", "end"]
    assert job.end["outcome"] == "ok"


@pytest.mark.parametrize(
    ("options", "cpus", "gpus", "megabytes"),
    [
        ({"mem_per_cpu": "500M", "cpus_per_task": 3}, 3, 0, 1500),
        ({"mem_per_gpu": "700M", "num_gpus": 2, "gpu_directive": "gres"}, 1, 2, 1400),
        ({"num_gpus": 2, "gpu_directive": "gpus-per-task", "mem": "1500M"}, 1, 2, 1500),
        ({"exclusive": True, "mem": "1700M", "num_gpus": 2, "cpus_per_task": 2}, 8, 2, 1700),
    ],
    ids=["mem-per-cpu", "mem-per-gpu", "gpus-per-task", "exclusive"],
)
def test_whatever_way_it_was_asked_for(
    cluster: Cluster, options: dict[str, Any], cpus: int, gpus: int, megabytes: int
) -> None:
    job = run(cluster, num_nodes=2, command=LOOK, **options)
    assert job.code == 0, job.log
    for node in seen(job)["nodes"].values():
        assert node["CPU"] == cpus
        assert node.get("GPU", 0) == gpus
        assert node["memory"] + node["object_store_memory"] == megabytes * 2**20


def test_nodes_that_differ(make_cluster: Callable[..., Cluster]) -> None:
    """Whole nodes of different sizes: each Ray gets what its own node has."""
    cluster = make_cluster(nodes=2, node_options={"n2": NodeOptions(cpus=4, gpus=1)})
    job = run(cluster, num_nodes=2, exclusive=True, mem="1500M", command=LOOK)
    assert job.code == 0, job.log
    assert {name: node["CPU"] for name, node in seen(job)["nodes"].items()} == {"n1": 8, "n2": 4}


def test_the_object_store_can_be_chosen_and_ray_gets_extra_arguments(cluster: Cluster) -> None:
    job = run(
        cluster,
        num_nodes=2,
        mem="1G",
        object_store_memory="200M",
        ray_arg=['--resources={"everywhere": 1}'],
        ray_head_arg=["--no-redirect-output"],
        ray_worker_arg=["--log-style=record"],
        command=LOOK,
    )
    assert job.code == 0, job.log
    for node in seen(job)["nodes"].values():
        assert node["object_store_memory"] == 200 * 2**20
        assert node["everywhere"] == 1


def test_the_steps_get_all_cpus_of_the_allocation(cluster: Cluster) -> None:
    """Slurm 22.05 stopped to pass --cpus-per-task on to steps."""
    job = submit(cluster, num_nodes=2, cpus_per_task=4, command="sleep 60").wait_for(" command ")
    steps = cluster.run(["scontrol", "show", "step", job.id, "-o"], check=True).stdout
    cluster.run(["scancel", job.id])
    job.wait()
    assert steps.count("CPUs=4") == 2, steps


STEPS = "RAY_raylet_client_connect_timeout_milliseconds", "RAY_raylet_client_num_connect_attempts"


@pytest.mark.parametrize("given", [{}, {STEPS[1]: "60"}], ids=["ours", "the user's"])
def test_a_raylet_looks_for_its_store_in_small_steps(cluster: Cluster, given: dict[str, str]) -> None:
    """By itself once a second, for ten. The user's own words count."""
    notify = f"env | grep ^RAY_raylet_client >{HOME}/steps-$SLURMD_NODENAME"
    wrapped = [standing_ray(cluster), wrapped_ray(cluster, notify, ray=f"{HOME}/standing/ray")]
    job = run(cluster, num_nodes=2, env=given, load_env=wrapped)
    assert job.code == 0, job.log
    expected = given or dict(zip(STEPS, ("50", "200"), strict=True))
    for node in ("n1", "n2"):
        lines = cluster.path(f"{HOME}/steps-{node}").read_text().splitlines()
        assert dict(line.split("=") for line in lines) == expected


def test_min_nodes_begins_without_the_last_node(cluster: Cluster) -> None:
    """The third node is slow; the command begins with two, and the third joins while it runs."""
    wait_for_three = python(
        "import ray, time; ray.init()\n"
        "alive = lambda: sum(n['Alive'] for n in ray.nodes())\n"
        "print('BEGAN', alive(), flush=True); open('go', 'w').close()\n"
        "while alive() < 3: time.sleep(0.2)\n"
        "print('THREE')"
    )
    # Ray knows of the node before `ray start` says so to the script: the command must not be over by then.
    wait_for_three += "; until grep -qs nodes=3/3 test-*.log; do sleep 0.1; done"
    cluster.run(["bash", "-c", "rm -f go test-*.log"])
    job = run(
        cluster,
        num_nodes=3,
        min_nodes=2,
        load_env=[wrapped_ray(cluster, "[[ $SLURMD_NODENAME != n3 ]] || until [[ -e go ]]; do sleep 0.1; done")],
        command=wait_for_three,
    )
    assert job.code == 0, job.log
    assert "BEGAN 2" in job.output
    assert "THREE" in job.output
    assert job.log.index(" command ") < job.log.index("nodes=3/3")
