"""Contract 5: Ray gets what Slurm allocated on each node, as the step's cgroup enforces it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.slurm.jobs import HOME, Job, python, run, standing_ray, submit, wrapped_ray, write
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Prints the smallest limit of the cgroup in MB, as the kernel has it.
LIMIT = r"""
path=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
smallest=999999999
while :; do
  bytes=$(cat "/sys/fs/cgroup/memory$path/memory.limit_in_bytes")
  ((bytes >> 20 >= smallest)) || smallest=$((bytes >> 20))
  [[ ${path%/} ]] || break
  path=${path%/*}
done
echo "limit=$smallest"
"""


def recording_ray(cluster: Cluster) -> list[str]:
    """Code for load_env: a `ray` that records what it was told and what the step's cgroup allows."""
    record = f'{{ printf "%s\\n" "$@"; {LIMIT} }} >{HOME}/told-$SLURM_JOB_ID-$SLURMD_NODENAME'
    return [standing_ray(cluster), wrapped_ray(cluster, record, ray=f"{HOME}/standing/ray")]


def told(job: Job, node: str) -> dict[str, int]:
    """What Ray was told on this node, and the limit of its step; memory in MB."""
    lines = job.cluster.path(f"{HOME}/told-{job.id}-{node}").read_text().splitlines()
    values = dict(line.removeprefix("--").split("=", 1) for line in lines if "=" in line)
    memory = int(values["memory"]) + int(values["object-store-memory"])
    return {
        "cpus": int(values["num-cpus"]),
        "gpus": int(values["num-gpus"]),
        "memory": memory >> 20,
        "limit": int(values["limit"]),
    }


def expect(job: Job, nodes: list[str], cpus: int, gpus: int, memory: int) -> None:
    job.wait()
    assert job.code == 0, job.log
    for node in nodes:
        assert told(job, node) == {"cpus": cpus, "gpus": gpus, "memory": memory, "limit": memory}, (node, job.log)


# name: options, CPUs, GPUs, MB of memory on each node. The cluster has DefMemPerCPU=1024 and nodes of 8192 MB.
REQUESTS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "mem": ({"mem": "700M", "cpus_per_task": 2, "num_gpus": 1}, 2, 1, 700),
    "mem-per-cpu": ({"mem_per_cpu": "300M", "cpus_per_task": 3}, 3, 0, 900),
    "mem-per-gpu": ({"mem_per_gpu": "400M", "num_gpus": 2, "gpu_directive": "gres"}, 1, 2, 800),
    "DefMemPerCPU": ({"cpus_per_task": 2}, 2, 0, 2048),
    "mem=0": ({"mem": "0", "cpus_per_task": 2}, 2, 0, 8192),
    "exclusive": ({"exclusive": True, "cpus_per_task": 2, "num_gpus": 2, "mem": "900M"}, 8, 2, 900),
}


def test_what_ray_is_told_is_what_the_cgroup_allows(cluster: Cluster) -> None:
    ray = recording_ray(cluster)
    jobs = {name: submit(cluster, num_nodes=2, load_env=ray, **options) for name, (options, *_) in REQUESTS.items()}
    for name, job in jobs.items():
        nodes = job.wait().state["NodeList"]
        expect(job, cluster.run(["scontrol", "show", "hostnames", nodes]).stdout.split(), *REQUESTS[name][1:])


# The same on cores of two hyperthreads, with DefMemPerGPU=350 instead of DefMemPerCPU. A job that wants one thread of
# each core gets both, and memory for the one.
THREADS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "plain": ({"mem_per_cpu": "500M", "cpus_per_task": 4}, 4, 0, 2000),
    "hint": ({"mem_per_cpu": "500M", "cpus_per_task": 4, "sbatch": {"hint": "nomultithread"}}, 4, 0, 2000),
    "threads": ({"mem_per_cpu": "500M", "cpus_per_task": 4, "sbatch": {"threads-per-core": "1"}}, 4, 0, 2000),
    "DefMemPerGPU": ({"num_gpus": 2, "cpus_per_task": 2}, 2, 2, 700),
}


def test_hyperthreads_and_memory_per_gpu(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2, threads=2, slurm_conf_extra=["DefMemPerGPU=350"])
    ray = recording_ray(cluster)
    for options, cpus, gpus, memory in THREADS.values():
        expect(submit(cluster, num_nodes=2, load_env=ray, **options), cluster.nodes, cpus, gpus, memory)


def test_memory_that_nothing_limits(make_cluster: Callable[..., Cluster]) -> None:
    """Without cgroups, Slurm's record of the job is the only source."""
    cluster = make_cluster(nodes=2, cgroups=False)
    job = submit(cluster, num_nodes=2, mem_per_cpu="300M", cpus_per_task=3, load_env=recording_ray(cluster)).wait()
    assert job.code == 0, job.log
    found = told(job, "n2")
    assert (found["cpus"], found["memory"]) == (3, 900)
    assert found["limit"] > 900


USABLE = python(
    """
import os, ray
ray.init()

@ray.remote
def usable():
    return len(os.sched_getaffinity(0))

print("CPUS", int(ray.cluster_resources()["CPU"]), "USABLE", ray.get(usable.remote()), len(os.sched_getaffinity(0)))
"""
)


def test_the_tasks_can_use_the_cpus_of_the_job(make_cluster: Callable[..., Cluster]) -> None:
    """All of them: a step is not bound to a part; and with task/affinity no others."""
    cluster = make_cluster(nodes=1, real_cpus=True)
    both = cluster.settings.cpus
    for cpus in (1, both):
        job = run(cluster, cpus_per_task=cpus, command=USABLE)
        assert job.output[-1] == f"CPUS {cpus} USABLE {cpus} {cpus}", job.log


OPENS = python(
    """
import os, ray
ray.init()

@ray.remote(num_gpus=1)
def tries():
    said = {}
    for gpu in (0, 1):
        try:
            os.close(os.open(f"/etc/slurm/gpu{gpu}", os.O_RDONLY))
        except OSError as error:
            said[gpu] = error.strerror
    return said, os.environ["CUDA_VISIBLE_DEVICES"]

print("TRIED", ray.get(tries.remote()))
"""
)


def test_a_task_cannot_open_its_neighbors_gpu(cluster: Cluster) -> None:
    """The fake GPUs have no driver: the job's own is found, but not there; the other one is forbidden."""
    job = run(cluster, num_gpus=1, command=OPENS)
    said = {0: "No such device or address", 1: "Operation not permitted"}
    assert job.output[-1] == f"TRIED {(said, '0')}", job.log


def test_fewer_gpus_than_the_job_has_are_a_warning(cluster: Cluster) -> None:
    """Whole nodes without a request for GPUs: the script sees them, but Slurm gives none to its steps."""
    job = run(cluster, num_nodes=2, exclusive=True, load_env=[standing_ray(cluster)])
    assert job.code == 0, job.log
    for node in ("n1", "n2"):
        assert f"warning Ray gets only 0 of 2 GPUs on {node}: Slurm gives no more to a step" in job.log
    other = run(cluster, num_nodes=2, exclusive=True, num_gpus=2, load_env=[standing_ray(cluster)])
    assert "warning" not in other.log


def test_shards_of_a_gpu_are_a_warning(make_cluster: Callable[..., Cluster]) -> None:
    node = "NodeName=n1 CPUs=8 CoresPerSocket=8 State=UNKNOWN RealMemory=4096 Gres=gpu:2,shard:4"
    gres = "NodeName=n1 Name=gpu File=/etc/slurm/gpu[0-1]\nNodeName=n1 Name=shard Count=4\n"
    cluster = make_cluster(
        nodes=1, slurm_conf_extra=["GresTypes=gpu,shard", node], etc_slurm={"gres.conf": f"AutoDetect=off\n{gres}"}
    )
    job = run(cluster, sbatch={"gres": "shard:1"}, load_env=[standing_ray(cluster)])
    assert job.code == 0, job.log
    assert "warning the job has shards of a GPU on n1, which Ray does not count" in job.log


def test_limits_of_the_login_shell_are_raised(cluster: Cluster) -> None:
    """Slurm passes on the soft limits of the shell that runs sbatch."""
    show = "echo $(ulimit -Su) $(ulimit -Hu)"
    ray = wrapped_ray(cluster, f"{show} >{HOME}/processes-$SLURMD_NODENAME", ray=f"{HOME}/standing/ray")
    job = write(cluster, num_nodes=2, load_env=[f"echo BEFORE $({show})", standing_ray(cluster), ray], command=show)
    done = cluster.run(["bash", "-c", f"ulimit -Su 300; exec sbatch --parsable {job.name}.sh"], check=True)
    job.id = done.stdout.strip()
    job.wait()
    (before, after) = job.output
    assert before.startswith("BEFORE 300 "), job.log
    hard = before.split()[-1]
    assert after == f"{hard} {hard}"
    for node in ("n1", "n2"):
        assert cluster.path(f"{HOME}/processes-{node}").read_text() == f"{hard} {hard}\n"
