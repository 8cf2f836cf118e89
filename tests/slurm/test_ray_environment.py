"""What Ray and its tasks find in their environment on each node, and how `ray start` is retried there."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.jobs import HOME, OLD_RAY, VENV, Job, python, run, standing_ray, submit, wrapped_ray
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm

SHOW = python(
    """
import json, os, ray
ray.init()

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def show():
    return os.environ["SLURMD_NODENAME"], dict(os.environ)

seen = {"command": dict(os.environ)}
while len(seen) < 3:
    seen.update(ray.get([show.remote() for _ in range(4)]))
print("SEEN", json.dumps(seen))
"""
)


def seen(job: Job) -> dict[str, dict[str, str]]:
    """The environment of the command, and of a task on each node."""
    line = next((line for line in job.output if line.startswith("SEEN ")), None)
    assert line, job.log
    found: dict[str, dict[str, str]] = json.loads(line.removeprefix("SEEN "))
    return found


def test_variables_of_libraries_and_of_the_step(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=2, command=SHOW)
    found = seen(job)
    for place, node in (("command", "n1"), ("n1", "n1"), ("n2", "n2")):
        here = found[place]
        assert here["VLLM_HOST_IP"] == cluster.address(node, 4)
        assert here["GLOO_SOCKET_IFNAME"] == "eth0"
        assert "NCCL_SOCKET_IFNAME" not in here
        assert here["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] == "0"
        assert here["SLURM_JOB_ID"] == job.id
    for node in ("n1", "n2"):
        left = [
            name
            for name in found[node]
            if name.startswith(("SLURM_STEP", "SLURM_NTASKS", "PMI", "SLURM_SRUN", "SLURM_TASK_PID"))
            or name in ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_GTIDS")
        ]
        assert left == []


def test_your_own_variables_count(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2, node_options={node: NodeOptions(eth1=True) for node in ("n1", "n2")})
    own = {"VLLM_HOST_IP": "10.0.0.1", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "1", "GLOO_SOCKET_IFNAME": "mine"}
    found = seen(run(cluster, num_nodes=2, interface="eth1", env=own, command=SHOW))
    for here in found.values():
        assert {name: here[name] for name in own} == own
        assert here["NCCL_SOCKET_IFNAME"] == "eth1"


@pytest.mark.parametrize(("ray", "name"), [(VENV, "HIP_VISIBLE_DEVICES"), (OLD_RAY, "ROCR_VISIBLE_DEVICES")])
def test_amd_gpus(make_cluster: Callable[..., Cluster], ray: Path, name: str) -> None:
    """Slurm sets ROCR_VISIBLE_DEVICES. Ray 2.45 and newer refuses to start with it, an older one needs it."""
    gres = "AutoDetect=off\nNodeName=n[1-2] Name=gpu File=/etc/slurm/gpu[0-1] Flags=amd_gpu_env\n"
    cluster = make_cluster(nodes=2, etc_slurm={"gres.conf": gres})
    dump = f"env >{HOME}/environment-$SLURMD_NODENAME"
    batch = 'echo "SLURM HAS SET $ROCR_VISIBLE_DEVICES"'
    job = run(
        cluster,
        num_nodes=2,
        num_gpus=2,
        ray=ray,
        load_env=[batch, wrapped_ray(cluster, dump, ray=f"{ray}/bin/ray")],
        command=f"{SHOW}; env >{HOME}/environment-command",
    )
    assert job.code == 0, job.log
    assert "SLURM HAS SET 0,1" in job.output
    for place in ("command", "n1", "n2"):
        lines = cluster.path(f"{HOME}/environment-{place}").read_text().splitlines()
        assert [line for line in lines if line.startswith(("ROCR_", "HIP_"))] == [f"{name}=0,1"], place


def failing(cluster: Cluster, node: str, times: int, message: str = "raylet crashed: error 7") -> list[str]:
    """Code for load_env: a `ray` that fails this many times on the node, and a fresh count of it."""
    count = f"{HOME}/failed-{node}"
    cluster.run(["rm", "-f", count])
    code = f"""
if [[ $SLURMD_NODENAME == {node} && $(cat {count} 2>/dev/null | wc -l) -lt {times} && $1 == start ]]; then
  echo x >>{count}
  echo {message!r}
  exit 1
fi
"""
    return [standing_ray(cluster), wrapped_ray(cluster, code, ray=f"{HOME}/standing/ray")]


@pytest.mark.parametrize("node", ["n1", "n2"], ids=["head", "worker"])
def test_a_ray_that_fails_to_start_is_retried(cluster: Cluster, node: str) -> None:
    job = run(cluster, num_nodes=2, node="n[1-2]", load_env=failing(cluster, node, 2))
    assert job.code == 0, job.log
    for attempt in (2, 3):
        assert f"retry node={node} attempt={attempt} raylet crashed: error 7" in job.log


def test_three_attempts_are_enough(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=2, node="n[1-2]", load_env=failing(cluster, "n2", 99))
    assert (job.code, job.end["outcome"], job.end["node"]) == (71, "node-failed", "n2"), job.log
    assert job.log.count("retry node=n2 ") == 2
    assert "[n2] raylet crashed: error 7" in job.log
    assert len(cluster.path(f"{HOME}/failed-n2").read_text().split()) == 3


def test_what_would_fail_again_is_not_retried(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=2, node="n[1-2]", load_env=failing(cluster, "n2", 99, "No such option: --x"))
    assert (job.code, job.end["outcome"]) == (71, "node-failed"), job.log
    assert "retry" not in job.phases


def test_slingshot(cluster: Cluster) -> None:
    """The plugin is not in Debian: a `scontrol` that names it takes its place. Each step asks for the job's network."""
    fake = '#!/bin/bash\n[[ $* != "show config" ]] || exec echo "SwitchType              = switch/hpe_slingshot"\n'
    fake += 'exec /usr/bin/scontrol "$@"\n'
    cluster.run(["mkdir", "-p", "slingshot"])
    cluster.run(["tee", "slingshot/scontrol"], stdin=fake, check=True)
    cluster.run(["chmod", "755", "slingshot/scontrol"])
    options: dict[str, Any] = {"num_nodes": 2, "command": "ps -ww -u alice -o args | grep '[s]run --ntasks' | sort -u"}
    with_it = run(cluster, load_env=[standing_ray(cluster), f"export PATH={HOME}/slingshot:$PATH"], **options)
    without = run(cluster, load_env=[standing_ray(cluster)], **options)
    for job, expected in ((with_it, 2), (without, 0)):
        assert job.code == 0, job.log
        assert len([line for line in job.output if line.startswith("srun ")]) == 2
        assert sum("--network=job_vni,single_node_vni" in line for line in job.output) == expected


def test_a_lost_node_does_not_end_its_group(make_cluster: Callable[..., Cluster]) -> None:
    """Beyond 32 workers, nodes share a step: it goes on when Slurm gives up one of them."""
    cluster = make_cluster(nodes=36, slurmd_timeout=10, slurm_conf_extra=["MessageTimeout=4"])
    cluster.run(["rm", "-f", "go"])
    command = "echo UP; until [[ -e go ]]; do sleep 0.1; done; echo WENT ON"
    job = submit(
        cluster, num_nodes=36, on_node_loss="continue", load_env=[standing_ray(cluster)], command=command
    ).wait_for("\nUP")
    node = "n36"
    steps = cluster.run(["scontrol", "show", "step", job.id, "-o"], check=True).stdout
    assert f" NodeList=n[35-{node[1:]}] " in steps, "it shares a step"
    cluster.kill_slurmd(node)
    cluster.signal(node, r"slurmstepd", signal.SIGKILL)
    for _ in range(600):
        if "DOWN" in cluster.run(["scontrol", "show", "node", node]).stdout:
            break
        time.sleep(0.1)
    job.wait_for(f"lost node={node}", 60)
    time.sleep(3)
    cluster.run(["touch", "go"])
    job.wait_for(" end outcome=ok", 60)
    assert job.phases.count("lost") == 1, job.log
