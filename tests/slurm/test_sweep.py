"""Sweeps on the real cluster: every value arrives, and more points than an array can have become several runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_launch.runs import points_table
from slurm_launch.runs.record import Run
from tests.slurm.desk import Desk
from tests.slurm.jobs import standing_ray
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Keys that are names of the script's own variables, or of columns in the table; values that a shell would take apart.
KEYS = {"run": "1e-3,1e-4", "nodes": '"a b",it\'s', "log": '"$HOME `id` \\",x"y,0..0'}
FAILING = [3, 8]
# The two fail on their first try, and a file tells which were tried: for `resubmit`.
COMMAND = """printf '<%s>' {run} "{nodes}" '{log}' "$run" "$nodes" "$log" && echo
echo {run} {nodes} >>tried
[[ $SLURM_ARRAY_TASK_ID != @(3|8) || -e again ]]"""


def a_sweep(desk: Desk, *flags: str) -> Run:
    """Twelve points, four at a time; two of them fail, until there is a file `again`."""
    sweep = [word for key, values in KEYS.items() for word in ("--sweep", f"{key}={values}")]
    return desk.launch(*sweep, "--max-parallel", "4", "--command", COMMAND, *flags)


def ended(desk: Desk, run: Run) -> dict[int, str]:
    """The state of each task, when all of them have ended."""
    desk.cluster.wait_job(str(run.job_id), 120)
    return {int(job["ArrayTaskId"]): job["JobState"] for job in desk.cluster.jobs(str(run.job_id))}


def table(desk: Desk, run: Run) -> dict[int, dict[str, str]]:
    assert run.points
    return points_table.read(replace(run, points=str(desk.cluster.path(run.points))))


def test_every_value_arrives_and_a_failing_point_fails_alone(cluster: Cluster) -> None:
    desk = Desk(cluster)
    run = a_sweep(desk)
    assert (run.array, run.argv[-1]) == ("0-11%4", run.script)
    states = ended(desk, run)
    assert states == {task: "FAILED" if task in FAILING else "COMPLETED" for task in range(12)}
    points = table(desk, run)
    values = [(a, b, c) for a in ("1e-3", "1e-4") for b in ("a b", "it's") for c in ("$HOME `id` \\", 'x"y', "0")]
    assert [tuple(points[task].values()) for task in range(12)] == values
    for task, point in enumerate(values):
        log = desk.log(run, f"_{task}")
        assert "".join(f"<{value}>" for value in point * 2) in log.splitlines(), log
        assert f" point number={task} run=" in log


def test_more_points_than_an_array_can_have(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2, cpus=4, slurm_conf_extra=["MaxArraySize=5"])
    desk = Desk(cluster)
    check = desk.call("check", "--exp-name", "many", "--sweep", "n=0..11", "--command", "true")
    assert check.returncode == 0, check.stdout + check.stderr
    assert "the sweep is split into 3 runs" in check.stdout
    flags = ["--exp-name", "many", "--cpus-per-task", "1", "--load-env", standing_ray(cluster)]
    flags += ["--sweep", "n=0..11", "--max-parallel", "3", "--command", "echo n={n}; echo $n >>seen"]
    done = desk.call(*flags, "--json", "--wait")
    assert done.returncode == 0, done.stderr
    assert "12 points, a job array of this cluster at most 5: it becomes 3 runs" in done.stderr
    answer = json.loads(done.stdout)
    runs = [desk.record(one["record"]) for one in answer["runs"]]
    assert answer["job_id"] == runs[0].job_id
    assert [run.name.removeprefix(runs[0].name) for run in runs] == ["", "-2", "-3"]
    assert [run.array for run in runs] == ["0-4%3", "0-4%3", "0-1%3"]
    numbers = [[int(point["n"]) for point in table(desk, run).values()] for run in runs]
    assert numbers == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    seen = [int(line) for line in cluster.path(f"{desk.home}/seen").read_text().split()]
    # Each part has waited for the one before it.
    assert [sorted(seen[:5]), sorted(seen[5:10]), sorted(seen[10:])] == numbers
