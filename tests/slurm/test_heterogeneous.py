"""A separate head node and worker groups, on the real cluster: heterogeneous jobs."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.fake_slurm import run_job
from tests.slurm.desk import WAIT, Desk
from tests.slurm.jobs import OLD_RAY, VENV, Job, python, run, standing_ray, submit
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# What each node gives to Ray, and where a task with a GPU and one for the group `fast` land.
LOOK = (
    "import json, ray; ray.init(log_to_driver=False)\n"
    "for n in ray.nodes(): print('NODE', json.dumps([n['NodeName'], n['Resources'], n['Labels']]))\n"
    "here = lambda: ray.get_runtime_context().get_node_id()\n"
    "names = {n['NodeID']: n['NodeName'] for n in ray.nodes()}\n"
    "gpu = ray.remote(num_gpus=2, num_cpus=0)(here).remote()\n"
    "fast = ray.remote(resources={'fast': 0.001}, num_cpus=0)(here).remote()\n"
    "plain = [ray.remote(here).remote() for _ in range(4)]\n"
    "tier = ray.remote(**SELECT, num_cpus=0)(here).remote()\n"
    "print('TIER', names[ray.get(tier)]); print('GPU', names[ray.get(gpu)]); print('FAST', names[ray.get(fast)])\n"
    "print('PLAIN', *{names[one] for one in ray.get(plain)})"
)


def seen(job: Job) -> dict[str, tuple[dict[str, float], dict[str, str]]]:
    """What Ray knows of each node: its resources and its labels."""
    assert job.code == 0, job.log
    found = [json.loads(line.removeprefix("NODE ")) for line in job.output if line.startswith("NODE ")]
    return {name: (resources, labels) for name, resources, labels in found}


def said(job: Job, word: str) -> list[str]:
    return next(line.split()[1:] for line in job.output if line.startswith(f"{word} "))


def megabytes(resources: dict[str, float]) -> int:
    return round((resources["memory"] + resources["object_store_memory"]) / 2**20)


def groups(cluster: Cluster, job: Job) -> list[str]:
    """The nodes of each component, the head's first."""
    return [component["NodeList"] for component in sorted(cluster.jobs(job.id), key=lambda one: int(one["JobId"]))]


@pytest.mark.parametrize("ray", [OLD_RAY, VENV], ids=["old-ray", "new-ray"])
def test_every_node_gives_ray_what_its_own_group_has(cluster: Cluster, ray: Path) -> None:
    """The head has no GPU and schedules nothing; each kind of worker has its own CPUs, memory, GPUs and labels."""
    count = 2 if ray == OLD_RAY else 1  # it starts quicker
    job = run(
        cluster,
        timeout=180,
        ray=ray,
        head_cpus=2,
        head_mem="1000M",
        head_num_cpus=0,
        cpus_per_task=3,
        num_gpus=2,
        mem_per_cpu="300M",
        worker_group=[f"n={count},labels=fast+tier:a", "n=1,cpus=1,mem=800M,gpus=0,resources=disk:2"],
        command=python(LOOK.replace("SELECT", "{}" if ray == OLD_RAY else "{'label_selector': {'tier': 'a'}}")),
    )
    nodes, (head, together, slow) = seen(job), groups(cluster, job)
    quick = cluster.run(["scontrol", "show", "hostnames", together]).stdout.split()
    assert sorted(nodes) == sorted([head, *quick, slow])
    assert len(quick) == count

    assert "CPU" not in nodes[head][0]
    assert "GPU" not in nodes[head][0]
    assert megabytes(nodes[head][0]) == 1000

    for fast in quick:
        wanted = {"CPU": 3, "GPU": 2, "fast": 1}
        assert {name: nodes[fast][0].get(name) for name in wanted} == wanted
        assert megabytes(nodes[fast][0]) == 900
        labels = {key: value for key, value in nodes[fast][1].items() if not key.startswith("ray.io/")}
        assert labels == {"fast": "true", "tier": "a"}

    wanted = {"CPU": 1, "disk": 2}
    assert {name: nodes[slow][0].get(name) for name in wanted} == wanted
    assert not {"GPU", "fast"} & set(nodes[slow][0])
    assert megabytes(nodes[slow][0]) == 800

    assert said(job, "GPU")[0] in quick
    assert said(job, "FAST")[0] in quick
    assert ray == OLD_RAY or said(job, "TIER")[0] in quick
    assert head not in said(job, "PLAIN")


def test_a_dedicated_head(cluster: Cluster) -> None:
    """Without a heterogeneous job: the first node has its GPUs, but gives Ray none of what it has."""
    command = python(LOOK.replace("'fast': 0.001", "").replace("SELECT", "{}"))
    job = run(cluster, ray=OLD_RAY, num_nodes=2, num_gpus=2, dedicated_head=True, command=command)
    nodes = seen(job)
    assert {name: (has.get("CPU"), has.get("GPU")) for name, (has, _) in nodes.items()} == {
        "n1": (None, None),
        "n2": (1, 2),
    }
    assert said(job, "GPU") == said(job, "PLAIN") == ["n2"]


def test_a_groups_node_is_lost(cluster: Cluster) -> None:
    standing = standing_ray(cluster)
    job = submit(cluster, load_env=[standing], head_cpus=1, num_nodes=3, command=WAIT).wait_for(r"\nup\n")
    lost = groups(cluster, job)[1]
    node = cluster.run(["scontrol", "show", "hostnames", lost]).stdout.split()[-1]
    assert cluster.signal(node, r"^sleep 900", signal.SIGKILL)
    job.wait()
    assert (job.code, job.end["outcome"], job.end["node"]) == (72, "node-lost", node), job.log


def test_every_component_has_hosts_of_its_own(cluster: Cluster) -> None:
    """The script counts on it. Slurm would rather let a job wait than put two of its components on one host."""
    options: dict[str, Any] = {"load_env": [standing_ray(cluster)], "worker_group": ["n=3", "n=2"]}
    job = run(cluster, **options, command="printf '%s\n' HOSTS $SLURM_HET_SIZE")
    assert job.code == 0, job.log
    hosts = [cluster.run(["scontrol", "show", "hostnames", text]).stdout.split() for text in groups(cluster, job)]
    assert [len(names) for names in hosts] == [1, 3, 2]
    assert len({name for names in hosts for name in names}) == 6

    crowded = submit(cluster, **{**options, "worker_group": ["n=4", "n=2"]})
    reason = 'until [[ $(squeue -h -j "$0" -o %r | sort -u) == Resources ]]; do sleep 0.2; done'
    cluster.run(["timeout", "60", "bash", "-c", reason, crowded.id], check=True)
    cluster.run(["scancel", crowded.id], check=True)


def test_the_verbs_know_it_as_one_job(cluster: Cluster) -> None:
    desk = Desk(cluster)
    launched = desk.up(
        desk.launch("--head-cpus", "1", "--num-nodes", "3", "--num-gpus", "1", "--mem", "300", "--command", WAIT)
    )
    job = str(launched.job_id)
    parts = [component["NodeList"] for component in sorted(cluster.jobs(job), key=lambda one: int(one["JobId"]))]
    status = json.loads(desk.call("status", job, "--json").stdout)
    assert [(task["id"], task["state"], task["nodes"]) for task in status["tasks"]] == [
        (job, "RUNNING", ",".join(parts))
    ]
    (listed,) = (run for run in json.loads(desk.call("list", "--json").stdout)["runs"] if run["job_id"] == job)
    assert (listed["state"], listed["num_nodes"]) == ("RUNNING", 3), listed

    worker = cluster.run(["scontrol", "show", "hostnames", parts[1]]).stdout.split()[-1]
    for words, host, gpus in (((), parts[0], ""), (("--node", worker), worker, "0")):
        done = desk.call("attach", job, *words, "--", "bash", "-c", 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"')
        assert (done.returncode, done.stdout.strip()) == (0, f"{host} {gpus}".strip()), done.stderr
        done = desk.call("logs", job, "--node", host)
        assert "Ray runtime started" in done.stdout, done.stderr

    assert desk.call("cancel", job).returncode == 0
    assert desk.states(launched) == ["FAILED", "FAILED"]  # by its own script: see cancel
    status = json.loads(desk.call("status", job, "--json").stdout)
    assert [(task["id"], task["state"]) for task in status["tasks"]] == [(job, "CANCELLED")]


def test_a_partition_that_does_not_exist(cluster: Cluster) -> None:
    desk = Desk(cluster)
    for words in (("--head-partition", "nosuch", "-n", "2"), ("--worker-group", "n=1,partition=nosuch")):
        done = desk.call("--exp-name", "test", *words, "--command", "true")
        assert done.returncode == 3
        assert "invalid partition specified: nosuch" in done.stderr
    assert not cluster.squeue()


# What a script and its steps find in a heterogeneous job.
PROBE = """#!/bin/bash
#SBATCH --job-name=het --output=het.log --open-mode=append --nodes=1 --ntasks-per-node=1 --cpus-per-task=2 --mem=100M
#SBATCH --time=5 --nodelist=n1
#SBATCH hetjob
#SBATCH --nodes=2 --nodelist=n[2-3] --ntasks-per-node=1 --cpus-per-task=3 --gpus-per-node=2
#SBATCH hetjob
#SBATCH --nodes=1 --nodelist=n4 --ntasks-per-node=1 --mem=300M
exec 2>/dev/null
for name in SLURM_{HET_SIZE,JOB_NODELIST,JOB_NUM_NODES,JOB_CPUS_PER_NODE,CPUS_PER_TASK,MEM_PER_NODE,GPUS_ON_NODE}; do
  echo "$name=${!name-unset}"
  for group in 0 1 2; do each=${name}_HET_GROUP_$group; echo "$each=${!each-unset}"; done
done
scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1"
squeue -h -j "$SLURM_JOB_ID" -o '%T %r %j %D %N'
show='echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_CPUS_ON_NODE ${SLURM_GPUS_ON_NODE-none} ${CUDA_VISIBLE_DEVICES-none} \\
  $SLURM_MEM_PER_NODE'
try() { srun "$@" --ntasks-per-node=1 --overlap --export=ALL bash -c "$show" | sort; echo "code ${PIPESTATUS[0]}"; }
try --nodes=1 --ntasks=1 --cpus-per-task=2
try --het-group=1 --nodes=2 --ntasks=2 --cpus-per-task=3
try --het-group=1 --nodes=1 --ntasks=1 --cpus-per-task=3 --nodelist=n3
try --het-group=2 --nodes=1 --ntasks=1 --cpus-per-task=1
try --het-group=3 --nodes=1 --ntasks=1
"""


def test_a_rehearsal_shows_the_same(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run(["rm", "-f", "het.log"])
    cluster.run(["tee", "het.sh"], stdin=PROBE, check=True)
    cluster.wait_job(cluster.run(["sbatch", "--parsable", "het.sh"], check=True).stdout.strip())
    rehearsed = run_job(PROBE, tmp_path)
    assert rehearsed.submitted.returncode == 0, rehearsed.submitted.stderr
    real = cluster.path("/home/alice/het.log").read_text()
    assert sorted(rehearsed.output.splitlines()) == sorted(real.splitlines()), real


def test_what_stands_once_holds_for_every_component(cluster: Cluster) -> None:
    """sbatch hands it on; memory too, were it not said by the CPU where a later component has none of its own."""
    job = submit(
        cluster,
        arguments=("--hold",),
        time="7",
        comment="mine",
        head_mem="500M",
        head_cpus=2,
        worker_group=["n=1,mem=300M,partition=short", "n=1,constraint=fast"],
    )
    found = [
        [component[key] for key in ("JobName", "TimeLimit", "Comment", "Requeue", "Partition", "Features")]
        + re.findall(r"mem=(\w+)", component.get("ReqTRES", component.get("TRES", "")))
        for component in sorted(cluster.jobs(job.id), key=lambda one: int(one["JobId"]))
    ]
    same = ["test", "00:07:00", "mine", "0"]
    assert found == [
        [*same, "main", "(null)", "500M"],
        [*same, "short", "(null)", "300M"],
        [*same, "main", "fast", "1G"],  # the cluster's own default
    ]
    cluster.run(["scancel", job.id], check=True)
