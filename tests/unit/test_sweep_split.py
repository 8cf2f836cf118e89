"""A sweep is submitted as one array, or as several if the cluster's limit is smaller. A fake runner plays Slurm."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, submit_all
from slurm_launch.config import sweep_file
from slurm_launch.errors import SubmitRefused, UsageError
from slurm_launch.launch import submit as submission
from slurm_launch.launch import sweep_split
from slurm_launch.launch.script import sweep_tasks
from slurm_launch.launch.sweep_split import ArrayLimits
from slurm_launch.process import Result, SlurmNotFound, SlurmTimedOut
from slurm_launch.runs import points_table
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded
from slurm_launch.spec.sweep_points import Points
from tests.unit.conftest import Launcher

WHEN = datetime(2026, 11, 16, 9, 5, 7)
NEEDED: dict[str, Any] = {"exp_name": "t", "command": "echo {n}"}
CONFIG = "MaxArraySize            = {size}\nSchedulerParameters     = bf_interval=1{more}\n"


class Slurm:
    """Plays sbatch and scontrol, and records the calls."""

    def __init__(self, size: int = 1001, more: str = "", refuse: int = 0) -> None:
        self.config, self.refuse = CONFIG.format(size=size, more=more), refuse
        self.asked: list[list[str]] = []
        self.scripts: list[str] = []
        self.told: list[str] = []

    def __call__(self, argv: Sequence[str], **_: Any) -> Result:
        self.asked.append(list(argv))
        if argv[0] == "scontrol":
            return Result(tuple(argv), 0, self.config, "")
        self.scripts.append(Path(argv[-1]).read_text())
        if len(self.scripts) == self.refuse:
            return Result(tuple(argv), 1, "", "sbatch: error: Job submit limit\n")
        return Result(tuple(argv), 0, f"{100 + len(self.scripts)}\n", "")

    def submit(self, spec: LaunchSpec, **more: Any) -> list[Run]:
        parts = sweep_split.parts_of(spec, env={}, runner=self)
        return submission.submit_parts(
            parts, env={"HOME": "."}, when=WHEN, runner=self, notify=self.told.append, **more
        )


def directive(script: str, name: str) -> str | None:
    lines = [line for line in script.splitlines() if line.startswith(f"#SBATCH --{name}=")]
    return lines[0].partition("=")[2] if lines else None


def test_one_array_with_record_and_table() -> None:
    slurm = Slurm()
    (run,) = slurm.submit(LaunchSpec(**NEEDED, sweep={"n": "0..2", "s": ["a, b", "it's"]}, max_parallel=2))
    assert [argv[0] for argv in slurm.asked] == ["scontrol", "sbatch"]
    assert slurm.told == []
    assert directive(slurm.scripts[0], "array") == run.array == "0-5%2"
    assert directive(slurm.scripts[0], "output") == "t_20261116-090507_%a.log"
    assert records.read(run.record) == run
    assert run.points == run.script.removesuffix(".sh") + ".points.csv"
    with open(run.points, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["task", "job", "n", "s", "log"]
    assert rows[2] == ["1", "101_1", "0", "it's", run.log.removesuffix(".log") + "_1.log"]
    assert len(rows) == 7
    assert points_table.read(run)[5] == {"n": "2", "s": "it's"}


@pytest.mark.parametrize(("size", "times"), [(1001, 1), (4, 1 + 3)])  # once for the sweep, and once for each part
def test_the_tasks_are_computed_once_for_each_run(size: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, calls, compute = Slurm(size), [], sweep_file.task_numbers

    def counted(spec: LaunchSpec, points: Points) -> str:
        calls.append(len(points))
        return compute(spec, points)

    monkeypatch.setattr(sweep_file, "task_numbers", counted)
    spec = LaunchSpec(**NEEDED, sweep={"n": "0..9"})
    runs = submit_all(spec, env={"HOME": "."}, when=WHEN, runner=slurm, notify=slurm.told.append)
    assert [run.job_id for run in runs] == [str(101 + number) for number in range(max(1, times - 1))]
    assert len(calls) == times


def test_chosen_points_keep_their_numbers() -> None:
    slurm = Slurm()
    (run,) = slurm.submit(LaunchSpec(**NEEDED, sweep={"n": "0..9"}, points="3,7-8"))
    assert directive(slurm.scripts[0], "array") == run.array == "3,7-8"
    assert points_table.read(run) == {3: {"n": "3"}, 7: {"n": "7"}, 8: {"n": "8"}}
    assert len((read_embedded(slurm.scripts[0], "x").points or Points((), [])).rows) == 10


def test_above_the_limit_it_becomes_several() -> None:
    slurm = Slurm(size=4)
    spec = LaunchSpec(**NEEDED, sweep={"n": "0..9"}, points="0-8", dependency="afterok:5")
    found = slurm.submit(spec, embedded=EmbeddedSpec(own=spec.given()))
    assert [run.array for run in found] == ["0-3", "0-3", "0"]
    assert [run.name for run in found] == [f"t_20261116-090507{end}" for end in ("", "-2", "-3")]
    shares = [[point["n"] for point in points_table.read(run).values()] for run in found]
    assert shares == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8"]]
    assert [directive(script, "dependency") for script in slurm.scripts] == ["afterok:5"] * 3, "they run side by side"
    assert slurm.told == ["the sweep has 9 points, a job array of this cluster at most 4: it becomes 3 runs"]
    embedded = read_embedded(slurm.scripts[2], "x")
    assert "points" not in embedded.own, "those that --points chose had other numbers"
    assert embedded.points == Points(("n",), [("8",)])


def test_with_a_limit_on_tasks_they_wait_for_one_another() -> None:
    slurm = Slurm(size=1001, more=",max_array_tasks=4")
    slurm.submit(LaunchSpec(**NEEDED, sweep={"n": "0..9"}, max_parallel=2, dependency="afterok:5"))
    waits = [directive(script, "dependency") for script in slurm.scripts]
    assert waits == ["afterok:5", "afterok:5,afterany:101", "afterok:5,afterany:102"]
    assert slurm.told[-1] == "each run waits for the previous one, so that at most 2 tasks run"


@pytest.mark.parametrize("more", [{"dependency": "afterok:1?afterok:2"}, {"sbatch": {"dependency": "afterok:1"}}])
def test_a_dependency_that_cannot_be_added_to(more: dict[str, Any]) -> None:
    slurm = Slurm(size=4)
    with pytest.raises(UsageError, match="--max-parallel of a split sweep and this --dependency conflict"):
        slurm.submit(LaunchSpec(**NEEDED, sweep={"n": "0..9"}, max_parallel=2, **more))
    assert slurm.scripts == []


def test_few_points_with_high_numbers_get_new_ones() -> None:
    points = Points(("n",), [(str(number),) for number in range(10)])
    spec = LaunchSpec(**NEEDED, sweep={"n": "0..9"}, points="2,9")
    parts = sweep_split.split(spec, sweep_tasks(spec, points), ArrayLimits(5))
    assert [(part.spec.points, part.points.rows) for part in parts] == [(None, [("2",), ("9",)])]
    slurm = Slurm(size=5)
    (run,) = slurm.submit(spec, embedded=EmbeddedSpec(own=spec.given()))
    assert points_table.read(run) == {0: {"n": "2"}, 1: {"n": "9"}}
    assert "points" not in read_embedded(slurm.scripts[0], "x").own


def test_after_a_refusal_the_submitted_parts_are_reported() -> None:
    slurm = Slurm(size=4, refuse=3)
    with pytest.raises(SubmitRefused, match="Job submit limit"):
        slurm.submit(LaunchSpec(**NEEDED, sweep={"n": "0..9"}))
    assert slurm.told[-1] == "parts 1 to 2 of 3 are submitted and keep running: 101, 102; the others are not submitted"


@pytest.mark.parametrize("error", [SlurmNotFound("no scontrol"), SlurmTimedOut("slow"), None])
def test_an_unknown_limit_is_left_to_sbatch(error: Exception | None) -> None:
    def runner(argv: Sequence[str], **_: Any) -> Result:
        if error:
            raise error
        return Result(tuple(argv), 1, "", "scontrol: error")

    assert len(sweep_split.parts_of(LaunchSpec(**NEEDED, sweep={"n": "0..5000"}), env={}, runner=runner)) == 1
    assert len(sweep_split.parts_of(LaunchSpec(**NEEDED, sweep={"n": "0..9"}), env={}, runner=Slurm(0))) == 1


def test_the_target_cluster_is_queried() -> None:
    for spec, env, argv in (
        ({"sbatch": {"clusters": "west"}}, {"SLURM_CLUSTERS": "east"}, ["scontrol", "-M", "west", "show", "config"]),
        ({}, {"SLURM_CLUSTERS": "east"}, ["scontrol", "-M", "east", "show", "config"]),
        ({}, {"SLURM_CLUSTERS": "east,west"}, None),
    ):
        slurm = Slurm()
        sweep_split.parts_of(LaunchSpec(**NEEDED, sweep={"n": "0..9"}, **spec), env=env, runner=slurm)
        assert slurm.asked == ([argv] if argv else [])


def test_the_answers_of_the_command_line(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Slurm(size=4)
    parts_of, submit = sweep_split.parts_of, submission.submit_parts
    monkeypatch.setattr(sweep_split, "parts_of", lambda spec: parts_of(spec, env={}, runner=slurm))
    monkeypatch.setattr(submission, "submit_parts", lambda parts, **more: submit(parts, runner=slurm, **more))
    flags = ("--exp-name", "t", "--command", "echo {n}", "--sweep", "n=0..4")
    assert launcher(*flags, "--parsable").out == "101\n102\n"
    answer = json.loads(launcher(*flags, "--json").out)
    assert [run["job_id"] for run in answer["runs"]] == ["103", "104"]
    assert answer["job_id"] == "103"
    plain = launcher(*flags)
    assert plain.out.count("points  ") == plain.out.count("_TASK.log\n") == 2
    assert "note: the sweep has 5 points" in plain.err
    refused = launcher(*flags, "--follow")
    assert (refused.code, "--follow shows one run" in refused.err, len(slurm.scripts)) == (2, True, 6)
    dry = launcher(*flags, "--dry-run")
    assert "#SBATCH --array=0-4\n" in dry.out


def test_a_current_directory_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    spec = LaunchSpec(**NEEDED, sweep={"n": "0..1"}, after_any=("12",))
    monkeypatch.setattr("os.getcwd", gone)
    with pytest.raises(UsageError, match="the current directory no longer exists"):
        submit_all(spec, env={}, runner=Slurm())
