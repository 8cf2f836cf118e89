"""People edit the script: what they change at its top has the effect that its comments promise."""

from __future__ import annotations

import pytest

from slurm_launch import LaunchSpec, render
from tests.slurm.jobs import HOME, VENV, Job
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

LOOK = """\
import sys, ray
ray.init(logging_level="ERROR")
print("SAW", len(ray.nodes()), ray.cluster_resources().get("disk"), *sys.argv[1:])
"""
COMMAND = "\npython train.py\n"
EDITS = {
    "another command": {COMMAND: "\npython train.py --fast\n"},
    "another number of nodes": {"#SBATCH --nodes=2\n": "#SBATCH --nodes=3\n"},
    "a flag of ray start": {"\nslaunch_ray_args=()\n": "\nslaunch_ray_args=(--resources='{\"disk\": 1}')\n"},
    "an environment": {
        "\n# nothing yet; for example: module load cuda\n": "\nexport WHAT=loaded\n",
        COMMAND: '\npython train.py "$WHAT"\n',
    },
}
SEEN = {
    "another command": "SAW 2 None --fast",
    "another number of nodes": "SAW 3 None",
    "a flag of ray start": "SAW 2 2.0",
    "an environment": "SAW 2 None loaded",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_has_its_effect(cluster: Cluster, edit: str) -> None:
    name = f"edited-{list(EDITS).index(edit)}"
    script = render(LaunchSpec(exp_name="x", command="python train.py", num_nodes=2, dashboard=False), name=name)
    for old, new in EDITS[edit].items():
        assert script.count(old) == 1
        script = script.replace(old, new)
    cluster.run(["tee", "train.py"], stdin=LOOK, check=True)
    cluster.run(["tee", f"{name}.sh"], stdin=script, check=True)
    env = {"PATH": f"{VENV}/bin:/usr/bin:/bin"}
    submitted = cluster.run(["sbatch", "--parsable", "--export=ALL", f"{HOME}/{name}.sh"], env=env, check=True)
    job = Job(cluster, submitted.stdout.strip(), name).wait()
    assert job.code == 0, job.log
    assert SEEN[edit] in job.output, job.log


def test_a_script_for_one_node_refuses_more(cluster: Cluster) -> None:
    """It has no workers, and says so at once instead of waiting for them."""
    script = render(LaunchSpec(exp_name="x", command="true"), name="for-one")
    cluster.run(["tee", "for-one.sh"], stdin=script.replace("#SBATCH --nodes=1\n", "#SBATCH --nodes=2\n"), check=True)
    env = {"PATH": f"{VENV}/bin:/usr/bin:/bin"}
    submitted = cluster.run(["sbatch", "--parsable", "for-one.sh"], env=env, check=True)
    job = Job(cluster, submitted.stdout.strip(), "for-one").wait()
    assert (job.code, job.end["cause"]) == (77, "this script is for one node, and the job has 2"), job.log
    assert "--num-nodes" in job.end["hint"]
