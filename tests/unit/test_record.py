"""The record of a run."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.errors import UsageError
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from tests.unit.some_run import some_run


def a_run(directory: Path) -> Run:
    spec = {"exp-name": "t", "command": "true"}
    argv = ["sbatch", "--parsable", "x.sh"]
    other = {"job_id": None, "submitted": None, "submit_dir": "/home/ü/\udcff"}
    return some_run(directory, "t_20261116-090507", spec=spec, argv=argv, **other)


def test_a_written_record_is_read_back(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    records.write(run)
    assert records.read(run.record) == run
    done = run.with_job("12", "west", "2026-11-16T09:05:08+00:00")
    records.update(done)
    assert records.read(run.record) == done
    assert (done.job_id, done.cluster) == ("12", "west")


def test_the_schema_comes_first(tmp_path: Path) -> None:
    assert next(iter(json.loads(a_run(tmp_path).to_json()).items())) == ("schema", 1)


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    Path(run.record).write_text(json.dumps(json.loads(run.to_json()) | {"colour": "blue"}))
    assert records.read(run.record) == run


@pytest.mark.parametrize("keep", [0, 1, 30, 200])
def test_a_truncated_record(tmp_path: Path, keep: int) -> None:
    run = a_run(tmp_path)
    Path(run.record).write_text(run.to_json()[:keep])
    with pytest.raises(UsageError, match="the record is damaged") as caught:
        records.read(run.record)
    assert caught.value.at == run.record


@pytest.mark.parametrize(
    "text", ["[]", "1", "{}", '{"schema": "1"}', '{"schema": 1}', b"\xff".decode("latin-1"), "[" * 100_000]
)
def test_a_file_that_is_not_a_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="the record is damaged"):
        records.read(tmp_path / "x.json")


def test_a_field_of_the_wrong_type(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(json.loads(a_run(tmp_path).to_json()) | {"job_id": 12}))
    with pytest.raises(UsageError, match="job_id is int"):
        records.read(tmp_path / "x.json")


@pytest.mark.parametrize("text", ["abc", "", "-1", "1.5", "1" * 19, "\u0661\u0662", "12_3", "12\n"])
def test_an_invalid_job_id(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(json.loads(a_run(tmp_path).to_json()) | {"job_id": text}))
    with pytest.raises(UsageError, match="job_id is not a number"):
        records.read(tmp_path / "x.json")


@pytest.mark.parametrize("key", ["script", "log", "record", "run_dir", "cluster", "user"])
def test_a_null_byte_in_a_record(tmp_path: Path, key: str) -> None:
    """Neither a path nor an argument can contain one."""
    (tmp_path / "x.json").write_text(json.dumps(json.loads(a_run(tmp_path).to_json()) | {key: "/a\0b"}))
    with pytest.raises(UsageError, match=f"{key} contains a null byte"):
        records.read(tmp_path / "x.json")


@pytest.mark.parametrize("key", ["created", "submitted", "cancelled"])
@pytest.mark.parametrize("text", ["", "soon", "2026-11-16T09:05:07"])
def test_an_invalid_time(tmp_path: Path, key: str, text: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(json.loads(a_run(tmp_path).to_json()) | {key: text}))
    with pytest.raises(UsageError, match=f"{key} is not a time"):
        records.read(tmp_path / "x.json")


def test_an_older_record_has_one_cancellation_for_all_tasks(tmp_path: Path) -> None:
    data = json.loads(replace(a_run(tmp_path), job_id="12").to_json())
    for old, new in ((None, {}), ("2026-11-16T09:05:07+00:00", {"12": "2026-11-16T09:05:07+00:00"})):
        (tmp_path / "x.json").write_text(json.dumps(data | {"cancelled": old}))
        assert records.read(tmp_path / "x.json").cancelled == new
    (tmp_path / "x.json").write_text(json.dumps(data | {"cancelled": {"12": 3}}))
    with pytest.raises(UsageError, match="cancelled is not a time"):
        records.read(tmp_path / "x.json")


@pytest.mark.parametrize("name", [3, None, ["b"], "a\0b"])
def test_an_invalid_name_of_a_resubmitted_run(tmp_path: Path, name: Any) -> None:
    (tmp_path / "x.json").write_text(json.dumps(json.loads(a_run(tmp_path).to_json()) | {"resubmitted": {"12": name}}))
    with pytest.raises(UsageError, match="resubmitted does not name a run"):
        records.read(tmp_path / "x.json")


def test_a_record_of_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(replace(a_run(tmp_path), schema=2).to_json())
    with pytest.raises(UsageError, match="written by a newer slurm-launch") as caught:
        records.read(tmp_path / "x.json")
    assert caught.value.exit_code == 2


def test_a_missing_record(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the record: No such file"):
        records.read(tmp_path / "x.json")


@pytest.mark.parametrize("key", [field.name for field in fields(Run)])
def test_every_field_is_checked(tmp_path: Path, key: str) -> None:
    """A damaged record raises UsageError, whichever field is damaged."""
    data = json.loads(replace(a_run(tmp_path), job_id="12").to_json())
    (tmp_path / "x.json").write_text(json.dumps(data | {key: 1.5}))
    with pytest.raises(UsageError, match="the record is damaged"):
        records.read(tmp_path / "x.json")


def test_keys_that_the_first_records_lack(tmp_path: Path) -> None:
    later = ("cancelled", "tasks", "array", "points", "script_sha256", "resubmitted", "grow")
    data = json.loads(a_run(tmp_path).to_json())
    (tmp_path / "x.json").write_text(json.dumps({key: value for key, value in data.items() if key not in later}))
    assert replace(records.read(tmp_path / "x.json"), record=a_run(tmp_path).record) == a_run(tmp_path)
    for key in data.keys() - set(later) - {"schema"}:
        (tmp_path / "x.json").write_text(json.dumps({name: data[name] for name in data if name != key}))
        with pytest.raises(UsageError, match=f"{key} is missing"):
            records.read(tmp_path / "x.json")
