"""What failed is run again, as a run of its own, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_launch.runs import Run
from tests.slurm.desk import Desk
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Tasks 3 and 7 fail until there is a file that lets them pass. What a task does is counted.
COMMAND = (
    "t=$SLURM_ARRAY_TASK_ID; echo $t >>done.txt; [[ ($t != 3 && $t != 7) || -e pass ]] || exit 4; echo task $t is well"
)


def states(alice: Desk, run: Run) -> dict[str, str]:
    told = json.loads(alice.call("status", run.name, "--json").stdout)
    return {task["id"].partition("_")[2]: task["state"] for task in told["tasks"]}


def again(alice: Desk, *words: str) -> Run | dict[str, Any]:
    """The new run; or the answer, when there is none."""
    done = alice.call("resubmit", *words, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return alice.record(told["record"]) if told["job_id"] else told


def test_only_what_failed_is_run_again(cluster: Cluster) -> None:
    alice = Desk(cluster)
    first = alice.launch("--array", "0-11%6", "--command", COMMAND)
    cluster.wait_job(str(first.job_id), 120)
    numbers = [str(number) for number in range(12)]
    assert states(alice, first) == {n: "FAILED" if n in ("3", "7") else "COMPLETED" for n in numbers}

    # They are held, so that nothing is over yet when it is asked for a second time.
    cluster.run(["rm", "-f", f"{alice.home}/done.txt"], check=True)
    second = again(alice, first.name, "--failed", "--hold", "--mem", "250M")
    assert isinstance(second, Run)
    (waiting,) = cluster.jobs(str(second.job_id))
    assert (waiting["ArrayTaskId"], waiting["Command"]) == ("3,7%6", second.script)
    assert waiting["MinMemoryNode"] == "250M"
    assert alice.record(first.record).resubmitted == {f"{first.job_id}_[3,7]": second.name}
    done = alice.call("resubmit", first.name, "--failed")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"not over yet, so not run again: {second.job_id}_[3,7]" in done.stderr
    assert f"nothing to run again: nothing of {first.name} has failed so far" in done.stderr
    assert f"run again as {second.name}" in alice.call("status", first.name).stdout

    alice.file("pass", "")
    cluster.run(["scontrol", "release", str(second.job_id)], check=True)
    cluster.wait_job(str(second.job_id), 60)
    assert sorted(cluster.path(f"{alice.home}/done.txt").read_text().split()) == ["3", "7"], "these two, and once"
    assert states(alice, second) == {"3": "COMPLETED", "7": "COMPLETED"}
    logs = sorted(path.name for path in cluster.path(alice.home).glob(f"{second.name}_*.log"))
    assert logs == [f"{second.name}_3.log", f"{second.name}_7.log"]
    assert "\ntask 7 is well\n" in alice.log(second, "_7")
    assert alice.log(first, "_7").count(" end outcome=") == 1, "nothing of the first run is written to"

    told = again(alice, first.name, "--failed")
    assert told == {"schema": 1, "name": None, "job_id": None, "again_of": first.name, "again": []}


def test_what_was_cancelled_and_what_failed_again(cluster: Cluster) -> None:
    """Tasks that waited are taken out of the queue. All fail again, and are not forgotten. The script was edited."""
    alice = Desk(cluster)
    first = alice.launch("--array", "0-2%1", "--command", "[[ -e pass ]] || exit 5")
    cluster.run(["scontrol", "hold", f"{first.job_id}_[1-2]"])
    assert alice.call("cancel", f"{first.job_id}_[1-2]", "-y").returncode == 0
    cluster.wait_job(str(first.job_id), 60)
    script = cluster.path(first.script)
    script.write_text(script.read_text() + "# an edit\n")
    done = alice.call("resubmit", first.name, "--failed", "--parsable")
    assert done.returncode == 0, done.stderr
    assert f"sbatch {first.script}" in done.stderr, "all of them"
    cluster.wait_job(done.stdout.strip(), 60)
    assert "3 failed" in alice.call("list", done.stdout.strip()).stdout
    third = alice.call("resubmit", f"{first.job_id}_[1-2]", "--failed", "--tasks", "1", "--json")
    assert (third.returncode, "names tasks, and so does --tasks" in third.stderr) == (2, True), third.stderr
    told = json.loads(alice.call("resubmit", f"{first.job_id}_1", "--failed", "--json").stdout)
    assert (told["again"], told["array"] or told["spec"]["array"]) == ([f"{first.job_id}_1"], "1%1")
    cluster.wait_job(told["job_id"], 60)
    assert {job["JobState"] for job in cluster.jobs(told["job_id"])} == {"FAILED"}
