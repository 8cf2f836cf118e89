"""Contract 15: when the kernel kills a process at Slurm's memory limit, the log and `explain` say so."""

from __future__ import annotations

import shlex

import pytest

from tests.slurm.jobs import VENV, Job, python, run, submit
from tests.slurm.test_explain_for_real import why
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

LIMIT = 1200  # MB: Ray itself needs some 500 on the head node
HOG = """
import os, ray, time
ray.init()

def hog():
    return [bytearray(b"x" * (50 << 20)) for _ in range(40) if not time.sleep(0.1)]
"""


def out_of_memory_lines(job: Job) -> list[dict[str, str]]:
    lines = [line.split()[3:] for line in job.log.splitlines() if line.split()[2:3] == ["out-of-memory"]]
    return [dict(word.split("=", 1) for word in words) for words in lines]


def named(job: Job, node: str) -> None:
    """The last line and `explain` name the cause, the node, the limit and the fix."""
    assert f"out of memory on {node}: the kernel killed " in job.end["cause"], job.log
    assert f"at Slurm's limit of {LIMIT} MB" in job.end["cause"]
    assert "--mem" in job.end["hint"]
    assert job.end["node"] == node
    found = why(job)
    assert (found.cause, found.sure, found.node) == ("out-of-memory", True, node), found
    assert any("out-of-memory node=" in str(line) for line in found.evidence), found


def test_a_task_without_retries(cluster: Cluster) -> None:
    code = (
        "@ray.remote(max_retries=0, resources={'here': 1})\ndef task():\n    return len(hog())\nray.get(task.remote())"
    )
    job = run(
        cluster,
        num_nodes=2,
        mem=f"{LIMIT}M",
        ray_worker_arg=['--resources={"here": 1}'],
        command=python(HOG + code),
    )
    assert (job.code, job.end["outcome"]) == (1, "command-failed"), job.log
    (line,) = out_of_memory_lines(job)
    assert (line["node"], line["limit"], line["kills"]) == ("n2", f"{LIMIT}M", "1")
    assert line["killed"].startswith("ray::")
    named(job, "n2")


def test_a_task_that_is_retried_and_succeeds(cluster: Cluster) -> None:
    """The job goes on, and its end is its own; the log keeps what happened."""
    cluster.run(["rm", "-f", "tried"])
    code = (
        "@ray.remote(max_retries=2)\ndef task():\n"
        "    if not os.path.exists('tried'):\n        open('tried', 'w').close()\n        hog()\n    return 'FINE'\n"
        "print(ray.get(task.remote()))"
    )
    job = run(cluster, mem=f"{LIMIT}M", command=python(HOG + code))
    assert (job.code, job.end["outcome"]) == (0, "ok"), job.log
    assert "FINE" in job.output
    assert [line["kills"] for line in out_of_memory_lines(job)] == ["1"]
    assert "cause" not in job.end
    found = why(job)
    assert found.cause == "not-failed", found


def test_the_raylet(cluster: Cluster) -> None:
    """The node is lost, and the job ends with a code of its own. The kernel is made to prefer the raylet."""
    code = (
        "@ray.remote(max_retries=0, resources={'here': 1})\ndef task(greedy):\n    return len(hog()) if greedy else 0\n"
        "print('WARM', ray.get(task.remote(False)), flush=True)\n"
        "import time\nwhile not os.path.exists('go'): time.sleep(0.1)\n"
        "try:\n    ray.get(task.remote(True))\nexcept Exception as error: print('SAW', type(error))\n"
        "time.sleep(600)"
    )
    cluster.run(["rm", "-f", "go"])
    job = submit(
        cluster,
        num_nodes=2,
        mem=f"{LIMIT}M",
        ray_worker_arg=['--resources={"here": 1}'],
        command=python(HOG + code),
    ).wait_for("WARM")
    prefer = (
        "for pid in $(pgrep -f ^ray::); do echo 0 >/proc/$pid/oom_score_adj; done;"
        "for pid in $(pgrep -x raylet); do echo 1000 >/proc/$pid/oom_score_adj; done; pgrep -c -x raylet"
    )
    assert cluster.run(["bash", "-c", prefer], user="root", node="n2").stdout == "1\n"
    cluster.run(["touch", "go"])
    job.wait()
    assert (job.code, job.end["outcome"]) == (80, "out-of-memory"), job.log
    # The largest process that is gone: without its raylet, the task ends, too.
    assert out_of_memory_lines(job)[0]["killed"] in ("raylet", "ray::task")
    named(job, "n2")


def test_the_command(cluster: Cluster) -> None:
    """Its exit code is the job's, in the log; Slurm's own state says OUT_OF_MEMORY."""
    needs = "import time; held = [bytearray(b'x' * (20 << 20)) for _ in range(100) if not time.sleep(0.15)]"
    command = f"{shlex.join([f'{VENV}/bin/python', '-c', needs])} || exit 5"
    job = run(cluster, mem=f"{LIMIT}M", command=command)
    assert (job.state["JobState"], job.end["code"]) == ("OUT_OF_MEMORY", "5"), job.log
    (line,) = out_of_memory_lines(job)
    assert (line["killed"], line["step"]) == ("python", "batch")
    named(job, "n1")


# fraction: of the object store that is filled
STORE = """
import ray, numpy
ray.init()
total = int(ray.cluster_resources()["object_store_memory"])
held = [ray.put(numpy.ones(10 << 20, dtype=numpy.uint8)) for _ in range(int(total * {fraction}) // (10 << 20))]
print("HELD", len(held), sum(int(ray.get(one)[0]) for one in held))
"""


@pytest.mark.parametrize(("fraction", "outcome"), [(0.9, "ok"), (6, "out-of-memory")])
def test_the_object_store(cluster: Cluster, fraction: float, outcome: str) -> None:
    """It is memory of the job. Full, it stays within the limit; what does not fit is spilled to /tmp, which is memory
    on this cluster, as on nodes without disks: then it is named, too."""
    job = run(cluster, mem="2G", command=python(STORE.format(fraction=fraction)))
    if outcome == "ok":
        assert (job.code, job.end["outcome"]) == (0, "ok"), job.log
        assert out_of_memory_lines(job) == []
    else:
        assert job.end["outcome"] in ("out-of-memory", "command-failed"), job.log
        assert out_of_memory_lines(job)
        assert "out of memory on n1" in job.end["cause"]
        assert why(job).cause == "out-of-memory"


def test_the_monitor_of_ray_fits_the_cgroup(cluster: Cluster) -> None:
    """On a part of a machine it is off, since it watches the whole machine; the user's own settings count."""
    show = "echo MONITOR ${RAY_memory_monitor_refresh_ms-} ${RAY_memory_usage_threshold-}"
    task = python(
        "import os, ray; ray.init()\n"
        "names = ['RAY_memory_monitor_refresh_ms', 'RAY_memory_usage_threshold']\n"
        "@ray.remote\ndef seen(): return [os.environ.get(name) for name in names]\n"
        "print('TASK', *ray.get(seen.remote()))"
    )
    job = run(cluster, mem="1G", command=f"{show}; {task}")
    assert {"MONITOR", "TASK 0 None"} <= set(job.output), job.log
    job = run(cluster, mem="1G", env={"RAY_memory_usage_threshold": "0.7"}, command=task)
    assert "TASK None 0.7" in job.output, job.log
