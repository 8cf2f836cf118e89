"""The table of a sweep's points, and its path in the record."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_launch.errors import UsageError
from slurm_launch.runs import points_table
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.spec.sweep_points import Points
from tests.unit.some_run import some_run

POINTS = Points(("lr", "log"), [("1e-3", 'a "b", c'), ("", "ü $HOME"), ("0", "x")])


def a_sweep(folder: Path, array: str = "0-2%2") -> Run:
    return some_run(folder, array=array, points=f"{folder}/t.points.csv")


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    run = a_sweep(tmp_path)
    points_table.write(run, POINTS.keys, POINTS.rows)
    assert points_table.read(run) == {number: POINTS.point(number) for number in range(3)}
    assert stat.S_IMODE((tmp_path / "t.points.csv").stat().st_mode) == 0o600


def test_a_row_for_each_task(tmp_path: Path) -> None:
    points_table.write(a_sweep(tmp_path, "0,2"), POINTS.keys, POINTS.rows)
    assert (tmp_path / "t.points.csv").read_text().splitlines() == [
        "task,job,lr,log,log",
        f'0,12_0,1e-3,"a ""b"", c",{tmp_path}/t_0.log',
        f"2,12_2,0,x,{tmp_path}/t_2.log",
    ]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    run = a_sweep(tmp_path)
    (tmp_path / "t.points.csv").write_text("mine")
    with pytest.raises(UsageError, match="File exists"):
        points_table.write(run, POINTS.keys, POINTS.rows)
    assert (tmp_path / "t.points.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"a,b\n", b"task,job,lr,log\n0,12_0\n", b"task,job,lr,log\nx,12_0,1,l\n", b'task,job,"lr\0']
)
def test_a_damaged_table_is_empty(tmp_path: Path, data: bytes) -> None:
    run = a_sweep(tmp_path)
    assert points_table.read(run) == {}
    (tmp_path / "t.points.csv").write_bytes(data)
    assert points_table.read(run) == {}


def test_a_run_without_a_sweep(tmp_path: Path) -> None:
    points_table.write(some_run(tmp_path), POINTS.keys, POINTS.rows)
    assert points_table.read(some_run(tmp_path)) == {}
    assert not list(tmp_path.glob("*.csv"))


def test_the_record_names_the_table_and_the_tasks(tmp_path: Path) -> None:
    run = a_sweep(tmp_path)
    records.write(run)
    assert records.read(run.record) == run
    assert run.array_indexes == "0-2%2"


def test_an_older_record_has_no_table(tmp_path: Path) -> None:
    data = json.loads(replace(some_run(tmp_path), spec={"array": "0-3"}).to_json())
    del data["points"], data["array"]
    (tmp_path / "t.json").write_text(json.dumps(data))
    run = records.read(tmp_path / "t.json")
    assert (run.points, run.array_indexes) == (None, "0-3")


def test_the_table_of_a_run_that_was_moved(tmp_path: Path) -> None:
    run = a_sweep(tmp_path / "a")
    (tmp_path / "a").mkdir()
    records.write(run)
    points_table.write(run, POINTS.keys, POINTS.rows)
    (tmp_path / "a").rename(tmp_path / "b")
    assert points_table.read(records.read(tmp_path / "b/t.json")) == {n: POINTS.point(n) for n in range(3)}
