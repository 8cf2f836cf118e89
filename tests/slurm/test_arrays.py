"""Arrays: every task is a Ray cluster of its own, also where two of them meet on the same nodes at the same moment."""

from __future__ import annotations

import json

import pytest

from slurm_launch import LaunchSpec
from tests.slurm.desk import Desk
from tests.slurm.jobs import OLD_RAY
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# What a task sees while its partner's cluster stands beside its own: 0 and 1 wait for one another, 2 and 3, 4 and 5.
SEEN = """\
import hashlib, json, os, pathlib, subprocess, time, ray
me = int(os.environ["SLURM_ARRAY_TASK_ID"])
ray.init(namespace="x", log_to_driver=False)
@ray.remote(num_cpus=0.1)
class Mark:
    def ready(self): return True
mark = Mark.options(name=f"task-{me}").remote()
ray.get(mark.ready.remote())
pathlib.Path(f"up-{me}").touch()
while not os.path.exists(f"up-{me ^ 1}"):
    time.sleep(0.1)
seen = {
    "task": me,
    "marks": ray.util.list_named_actors(),
    "rays": sorted(node["NodeName"] for node in ray.nodes() if node["Alive"]),
    "given": subprocess.check_output(["scontrol", "show", "hostnames"], text=True).split(),
    "address": os.environ["RAY_ADDRESS"],
    "directory": os.environ["RAY_TMPDIR"],
    "token": hashlib.sha256(open(os.environ["RAY_AUTH_TOKEN_PATH"], "rb").read()).hexdigest(),
}
print("SEEN", json.dumps(seen), flush=True)
pathlib.Path(f"seen-{me}").touch()
while not os.path.exists(f"seen-{me ^ 1}"):
    time.sleep(0.1)
"""


def test_six_tasks_on_three_shared_nodes_two_at_a_time(cluster: Cluster) -> None:
    """Two nodes each of three: they cannot but meet."""
    alice = Desk(cluster)
    alice.file("seen.py", SEEN)
    run = alice.launch(
        *("--array", "0-5%2", "--num-nodes", "2", "--exclude", "n[4-6]", "--mem", "1200M", "--no-dashboard"),
        *("--start-timeout", "120", "--command", "python3 seen.py"),
        ray=OLD_RAY,
    )
    jobs = [cluster.wait_job(str(run.job_id), 240), *cluster.jobs(str(run.job_id))]
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}, [alice.log(run, f"_{task}") for task in range(6)]
    logs = [alice.log(run, f"_{task}") for task in range(6)]
    seen = [json.loads(log.split("SEEN ", 1)[1].splitlines()[0]) for log in logs]
    for task, one in enumerate(seen):
        assert (one["task"], one["marks"]) == (task, [f"task-{task}"]), "nobody else's actor"
        assert one["rays"] == one["given"], "its own nodes, and these only"
        assert len(one["rays"]) == 2
        assert f" address={one['address']} " in logs[task]
    for one, partner in zip(seen[::2], seen[1::2], strict=True):
        assert set(one["rays"]) & set(partner["rays"]), "they met"
    for what in ("address", "directory", "token"):
        assert len({one[what] for one in seen}) == 6, what

    status = json.loads(alice.call("status", run.name, "--json").stdout)
    tasks = [f"{run.job_id}_{task}" for task in range(6)]
    assert [task["id"] for task in status["tasks"]] == tasks
    assert [task["log"] for task in status["tasks"]] == [f"{alice.home}/{run.name}_{task}.log" for task in range(6)]
    remembered = alice.record(run.record).tasks
    assert {task: remembered[task]["state"] for task in tasks} == dict.fromkeys(tasks, "COMPLETED")
    names = sorted(path.name for path in cluster.path(alice.home).glob(f"{run.name}*"))
    assert names == sorted([f"{run.name}{end}" for end in (".sh", ".json", *(f"_{task}.log" for task in range(6)))])


TAKEN = ("0-9", "7", "5-5", "1,3,5", "0-20:4", "0-9:20", "0-9:2,20%3", "1,1,2,1-3", "00-03", "[1,3]%2", "0-9%999999999")
REFUSED = ("9-0", "a-b", "0-9:0", "1:2", "0-9:2-9", "1-", "-1", "0 - 9", "1_000", "4000001", "0-99999999999")


def test_sbatch_takes_and_refuses_the_same_arrays(cluster: Cluster) -> None:
    """What our own check lets through, and what it refuses at once (of the oddities that sbatch takes, see there)."""
    code = 'for a; do j=$(sbatch --parsable --hold --array="$a" --wrap=true 2>&1) && echo "$a" && scancel "$j"; done; :'
    done = cluster.run(["bash", "-c", code, "bash", *TAKEN, *REFUSED], check=True)
    assert tuple(done.stdout.splitlines()) == TAKEN
    for text in TAKEN:
        LaunchSpec(exp_name="x", command="true", array=text)
    for text in REFUSED:
        with pytest.raises(ValueError, match="is not a job array"):
            LaunchSpec(exp_name="x", command="true", array=text)
