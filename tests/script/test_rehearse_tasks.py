"""`rehearse --tasks`: tasks of an array or a sweep, one after another, with a fake `ray`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.errors import UsageError
from slurm_launch.rehearsal.tasks import selected_tasks
from slurm_launch.runs import points_table
from slurm_launch.runs import record as records
from tests.fake_slurm import env_with_fake_ray, leftovers, start_rehearsal


def test_the_tasks_of_a_sweep(tmp_path: Path) -> None:
    """Each has its own point and log; the first nonzero exit code is the rehearsal's."""
    work = tmp_path / "work"
    work.mkdir()
    flags = ["--sweep", 'name="a b",it\'s,x', "--sweep", "code=0,7", "--tasks", "0,3-5", "--json"]
    command = "echo \"<$name>\" '<{name}>' >>printed; [[ {name} != x ]] || exec kill $PPID; exit {code}"
    done = start_rehearsal(work, *flags, "--command", command, env=env_with_fake_ray(tmp_path)).wait()
    answer = json.loads(done.out)
    assert (done.code, answer["exit_code"]) == (7, 7), done.err
    assert answer["tasks"] == {"0": 0, "3": 7, "4": None, "5": None}
    assert (work / "printed").read_text().splitlines() == ["<a b> <a b>", "<it's> <it's>", "<x> <x>", "<x> <x>"]
    run = records.read(answer["record"])
    assert [path.name.removeprefix(run.name) for path in sorted(work.glob("*.log"))] == [
        f"_{task}.log" for task in (0, 3, 4, 5)
    ]
    assert points_table.read(run)[3] == {"name": "it's", "code": "7"}
    ids = {log.read_text().split(" job=")[1].split()[0] for log in work.glob("*.log")}
    assert ids == {run.job_id}, "one job"
    assert leftovers(int(str(run.job_id))) == []


def test_all_tasks_of_an_array(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    flags = ["--array", "2,4", "--tasks", "all", "--command", "echo task $SLURM_ARRAY_TASK_ID"]
    done = start_rehearsal(work, *flags, env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 0, done.err
    assert [line for line in done.out.splitlines() if line.startswith("task ")] == ["task 2", "task 4"]
    assert "note: task 4, 2 of 2" in done.err
    assert "rehearsed 2 tasks, 2 completed" in done.err
    assert len(list(work.glob("*.sh"))) == 1


def test_the_links_of_a_chain(tmp_path: Path) -> None:
    """Until one completes; its exit code is the rehearsal's. Every link knows the whole array."""
    work = tmp_path / "work"
    work.mkdir()
    command = "echo link $SLAUNCH_LINK of ${!SLURM_ARRAY_TASK_M*} $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX"
    command += " $SLURM_ARRAY_TASK_COUNT; ((SLAUNCH_LINK == 1))"
    flags = ["--chain", "4", "--chain-while", "notok", "--tasks", "all", "--command", command]
    done = start_rehearsal(work, *flags, env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 0, done.err
    names = "of SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN 0 3 4"
    links = [line for line in done.out.splitlines() if line.startswith("link ")]
    assert links == [f"link 0 {names}", f"link 1 {names}"]
    assert " chain over link=1 this link ended ok" in done.out
    assert "note: the chain ends after link 1" in done.err


@pytest.mark.parametrize(
    ("options", "tasks", "message"),
    [
        ({}, "all", "--tasks needs an array or a sweep"),
        ({"array": "0-3"}, "4", "--tasks selects 4, but the tasks are 0-3"),
        ({"array": "0-3"}, "x", "--tasks is not a list of tasks: 'x'"),
        ({"sweep": {"a": "1,2"}, "points": "1"}, "0", "--tasks selects 0, but the tasks are 1"),
    ],
)
def test_what_cannot_be_rehearsed(options: dict[str, str], tasks: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        selected_tasks(LaunchSpec(exp_name="t", command="true", **options), tasks)
