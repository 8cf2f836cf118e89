"""What failed is run again, as a run of its own, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_launch.runs.record import Run
from tests.slurm.desk import Desk
from tests.slurm.test_sweep import FAILING, KEYS, a_sweep, ended, table
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm


def again(alice: Desk, *words: str) -> Run | dict[str, Any]:
    """The new run; or the answer, when there is none."""
    done = alice.call("resubmit", *words, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return alice.record(told["record"]) if told["job_id"] else told


def test_only_the_points_that_failed_are_run_again(cluster: Cluster) -> None:
    alice = Desk(cluster)
    first = a_sweep(alice)
    assert sorted(task for task, state in ended(alice, first).items() if state == "FAILED") == FAILING
    rows = alice.call("status", first.name).stdout.splitlines()
    assert rows[0] == f"{first.name}: 10 ok, 2 failed"
    assert rows[1].split()[:5] == ["TASK", *KEYS, "STATE"]
    assert len(rows) == 14, "a row for each point"
    assert " 10 ok, 2 failed " in alice.call("list").stdout

    # It is held, so that nothing of it is over when somebody asks for the same a second time.
    cluster.run(["rm", f"{alice.home}/tried"], check=True)
    second = again(alice, first.name, "--failed", "--hold", "--mem", "250M")
    assert isinstance(second, Run)
    (waiting,) = cluster.jobs(str(second.job_id))
    assert (waiting["ArrayTaskId"], waiting["Command"]) == ("3,8%4", second.script)
    assert waiting["MinMemoryNode"] == "250M"
    assert alice.record(first.record).resubmitted == {f"{first.job_id}_[3,8]": second.name}
    done = alice.call("resubmit", first.name, "--failed")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"not ended yet, so not resubmitted: {second.job_id}_[3,8]" in done.stderr
    assert f"nothing to resubmit: {first.name} has no failed tasks that were not already resubmitted" in done.stderr
    assert f"rerun as {second.name}" in alice.call("status", first.name).stdout

    alice.file("again", "")
    cluster.run(["scontrol", "release", str(second.job_id)], check=True)
    assert ended(alice, second) == dict.fromkeys(FAILING, "COMPLETED")
    tried = cluster.path(f"{alice.home}/tried").read_text().splitlines()
    points = table(alice, second)
    assert sorted(tried) == sorted(f"{point['run']} {point['nodes']}" for point in points.values()), "two, and once"
    assert points == {task: point for task, point in table(alice, first).items() if task in FAILING}
    logs = sorted(path.name for path in cluster.path(alice.home).glob(f"{second.name}_*.log"))
    assert logs == [f"{second.name}_3.log", f"{second.name}_8.log"]
    assert f"<{points[8]['nodes']}>" in alice.log(second, "_8")
    assert alice.log(first, "_8").count(" end outcome=") == 1, "nothing of the first run is written to"

    told = again(alice, first.name, "--failed")
    assert told == {"schema": 1, "name": None, "job_id": None, "again_of": first.name, "again": []}


def test_what_was_cancelled_and_what_failed_again(cluster: Cluster) -> None:
    """Tasks that waited are taken out of the queue. All fail again, and are not forgotten. The script was edited."""
    alice = Desk(cluster)
    first = alice.launch("--array", "0-2", "--hold", "--command", "exit 5")
    assert alice.call("cancel", f"{first.job_id}_[1-2]", "-y").returncode == 0
    cluster.run(["scontrol", "release", str(first.job_id)], check=True)
    cluster.wait_job(str(first.job_id), 60)
    script = cluster.path(first.script)
    script.write_text(script.read_text() + "# an edit\n")
    done = alice.call("resubmit", first.name, "--failed", "--parsable")
    assert done.returncode == 0, done.stderr
    assert f"sbatch {first.script}" in done.stderr, "all of them"
    cluster.wait_job(done.stdout.strip(), 60)
    assert "3 failed" in alice.call("list", done.stdout.strip()).stdout
    third = alice.call("resubmit", f"{first.job_id}_[1-2]", "--failed", "--tasks", "1", "--json")
    assert (third.returncode, "and --tasks both select tasks" in third.stderr) == (2, True), third.stderr
    told = json.loads(alice.call("resubmit", f"{first.job_id}_1", "--failed", "--json").stdout)
    assert (told["again"], told["array"]) == ([f"{first.job_id}_1"], "1")
    cluster.wait_job(told["job_id"], 60)
    assert {job["JobState"] for job in cluster.jobs(told["job_id"])} == {"FAILED"}
