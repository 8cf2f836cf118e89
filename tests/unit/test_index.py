"""How runs are found: the index of records, and what a RUN argument means."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.errors import UsageError
from slurm_launch.runs import index, search
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.status import lookup
from slurm_launch.status.task import Task
from tests.unit.some_run import some_run

Make = Callable[..., Run]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home/.local/state/slurm-launch/runs.jsonl"


@pytest.fixture
def launched(tmp_path: Path, env: dict[str, str]) -> Make:
    """Write the record of a launch and enter it, as a launch does."""

    def make(
        name: str = "t",
        job_id: str | None = "12",
        second: int = 0,
        folder: str = "work",
        enter: bool = True,
        **more: Any,
    ) -> Run:
        clock = f"{second // 3600:02}{second // 60 % 60:02}{second % 60:02}"
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        stem = f"{tmp_path}/{folder}/{name}_20261116-{clock}"
        created = f"2026-11-16T{clock[:2]}:{clock[2:4]}:{clock[4:]}+00:00"
        own = {"exp_name": name, "job_id": job_id, "created": created, "submitted": None, "user": "me"}
        run = some_run(os.path.dirname(stem), os.path.basename(stem), **{**own, **more})
        records.write(run)
        if enter:
            index.add(run, env)
        return run

    return make


def jobs(env: dict[str, str], folder: Path) -> list[str | None]:
    return [entry.job_id for entry in index.entries(env, folder)]


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# Many at once


def enter_many(env: dict[str, str], run: Run, barrier: Barrier, count: int) -> None:
    barrier.wait()
    for number in range(count):
        index.add(replace(run, record=f"{run.record}-{number}"), env)


def read_many(env: dict[str, str], folder: Path, barrier: Barrier, count: int) -> None:
    """Somebody who reads while it is damaged, and so rewrites it."""
    barrier.wait()
    path = index.index_file(env)
    assert path is not None
    for _ in range(count):
        with open(path, "ab") as file:
            file.write(b"torn off\n")
        index.entries(env, folder)  # which puts another file in its place


def test_many_launches_at_once_while_others_rewrite_it(
    launched: Make, env: dict[str, str], file: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty append, two repair it all the time, and it grows so long that the old ones are forgotten: none is lost."""
    old = launched("old", "1", second=1, enter=False)
    file.parent.mkdir(parents=True)
    lines_of = (index._entry(replace(old, record=f"/old/{number}")).to_line() for number in range(1_000))
    file.write_bytes(b"".join(lines_of))
    monkeypatch.setattr(index, "MAX_LINES", 900)
    monkeypatch.setattr(index, "PATIENCE", 60.0)
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(22)
    new = [launched(f"e{number}", str(100 + number), second=60, enter=False) for number in range(20)]
    workers = [fork.Process(target=enter_many, args=(env, run, barrier, 20)) for run in new]
    workers += [fork.Process(target=read_many, args=(env, here / "none", barrier, 40)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    index.entries(env, here / "none")
    found = {line["record"] for line in lines(file)}
    assert found >= {f"{run.record}-{number}" for run in new for number in range(20)}
    assert len(found) <= 900, "the older ones are forgotten"
    assert os.listdir(file.parent) == ["runs.jsonl"]


def test_where_there_are_no_locks_launches_append_all_the_same(
    launched: Make, env: dict[str, str], file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    launched("a", "1"), launched("b", "2")
    assert jobs(env, tmp_path) == ["1", "2"]
    file.write_bytes(b"torn off\n" + file.read_bytes())
    assert jobs(env, tmp_path) == ["1", "2"]
    assert file.read_bytes().startswith(b"torn off\n"), "nobody rewrites it without a lock"


def test_somebody_who_holds_the_lock_for_ever(
    launched: Make, env: dict[str, str], file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(index, "PATIENCE", 0.0)
    launched("a", "1")
    with open(file, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        launched("b", "2")
        assert jobs(env, tmp_path) == ["1", "2"]


# Damage


@pytest.mark.parametrize(
    "damage",
    [
        b"{",
        b"\xff\x00",
        b"[]",
        b"1",
        b'"x"',
        b"{}",
        b"[" * 100_000,
        b'{"record": "relative", "name": "x", "job": "1", "created": "2026-11-16T00:00:00"}',
        b'{"record": "/x", "name": "x", "job": 1, "created": "2026-11-16T00:00:00"}',
        b'{"record": "/x", "name": "x", "job": "1; rm", "created": "2026-11-16T00:00:00"}',
        b'{"record": "/x", "name": "x", "job": "1", "created": "now"}',
        b'{"record": "/x", "name": null, "job": "1", "created": "2026-11-16T00:00:00"}',
    ],
)
def test_lines_that_cannot_be_read_are_dropped(
    launched: Make, env: dict[str, str], file: Path, tmp_path: Path, damage: bytes
) -> None:
    launched("a", "1", second=1)
    with open(file, "ab") as out:
        out.write(damage)  # without an end
    launched("b", "2", second=2)
    assert jobs(env, tmp_path) == ["1", "2"]
    assert [line["job"] for line in lines(file)] == ["1", "2"], "it has been rewritten"


def test_what_was_lost_is_found_beside_what_was_not(
    launched: Make, env: dict[str, str], file: Path, tmp_path: Path
) -> None:
    launched("a", "1", second=1, folder="far")
    launched("b", "2", second=2, folder="far")
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:40] + b"\n")
    assert jobs(env, tmp_path) == ["1", "2"]
    assert [line["job"] for line in lines(file)] == ["1", "2"]


def test_a_lost_index_is_made_anew(launched: Make, env: dict[str, str], file: Path, here: Path, tmp_path: Path) -> None:
    launched("a", "1", second=1)
    far = launched("b", "2", second=2, folder="far")
    file.unlink()
    assert jobs(env, tmp_path) == []
    assert jobs(env, here) == ["1"], "by a look around"
    assert jobs(env, tmp_path) == ["1"], "which is remembered"
    assert [entry.job_id for entry in index.adopt([far.script, far.script, "/none.sh", ""], env)] == ["2"]
    assert index.adopt([far.record], env) == []
    assert jobs(env, tmp_path) == ["1", "2"]


def test_what_is_known_is_not_written_again(launched: Make, env: dict[str, str], file: Path, here: Path) -> None:
    run = launched()
    before = file.read_bytes()
    index.entries(env, here)
    index.adopt([run.script], env)
    assert file.read_bytes() == before


def test_a_record_that_is_away_is_kept_in_mind(launched: Make, env: dict[str, str], file: Path, tmp_path: Path) -> None:
    run = launched(folder="mounted")
    os.rename(tmp_path / "mounted", tmp_path / "away")
    with open(file, "ab") as out:
        out.write(b"damage\n")
    assert jobs(env, tmp_path) == []
    os.rename(tmp_path / "away", tmp_path / "mounted")
    assert jobs(env, tmp_path) == [run.job_id]


def test_found_while_sbatch_was_at_work(launched: Make, env: dict[str, str], file: Path, here: Path) -> None:
    """Another process looks around before the job has its number, and writes after it has got it."""
    run = launched("t", None, enter=False)
    assert jobs(env, here) == [None]
    early = file.read_bytes()
    done = run.with_job("12", None, run.created)
    records.update(done)
    index.add(done, env)
    with open(file, "ab") as out:
        out.write(early)
    assert jobs(env, here / "none") == ["12"]


# Nothing fails


def not_a_place(_: Path, env: dict[str, str]) -> dict[str, str]:
    return {}


def relative(_: Path, env: dict[str, str]) -> dict[str, str]:
    return {"HOME": "home", "XDG_STATE_HOME": "state"}


def directory(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local/state/slurm-launch/runs.jsonl").mkdir(parents=True)
    return env


def pipe(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local/state/slurm-launch").mkdir(parents=True)
    os.mkfifo(tmp_path / "home/.local/state/slurm-launch/runs.jsonl")
    return env


def in_the_way(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local").write_text("")
    return env


def full(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local/state/slurm-launch").mkdir(parents=True)
    (tmp_path / "home/.local/state/slurm-launch/runs.jsonl").symlink_to("/dev/full")
    return env


def no_proc(_: Path, env: dict[str, str]) -> dict[str, str]:
    return {"XDG_STATE_HOME": "/proc/1"}


@pytest.mark.parametrize("place", [not_a_place, relative, directory, pipe, in_the_way, full, no_proc])
def test_without_an_index_a_launch_and_a_look_around_work(
    launched: Make, env: dict[str, str], tmp_path: Path, here: Path, place: Any
) -> None:
    env = place(tmp_path, env)
    run = launched(enter=False)
    index.add(run, env)
    assert jobs(env, here) == ["12"]
    assert [entry.job_id for entry in index.adopt([run.script], env)] == ["12"]
    assert search.find(None, env, here) == run
    assert not (here / "home").exists()
    assert not (here / "state").exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses(
    launched: Make, env: dict[str, str], file: Path, here: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    launched("a", "1", second=1)
    with open(file, "ab") as out:
        out.write(b"damage\n")
    before = file.read_bytes()

    def refuse(*_: Any) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "write", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    run = launched("b", "2", second=2, enter=False)
    index.add(run, env)
    assert jobs(env, here) == ["1", "2"]
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["runs.jsonl"]


def as_nobody(check: Callable[[], None]) -> None:
    """As another user: in a process of its own, for root has no way back."""

    def change_and_check() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        check()

    process = multiprocessing.get_context("fork").Process(target=change_and_check)
    process.start()
    process.join(30)
    assert process.exitcode == 0


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_path(tmp_path: Path) -> None:
    """Let others in: pytest's own directories are closed."""
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)


@needs_root
def test_somebody_elses_index_and_records(
    launched: Make, env: dict[str, str], here: Path, file: Path, open_path: None
) -> None:
    run = launched("secret", "1", second=1)
    shared = launched("shared", "2", second=2)
    os.chmod(shared.record, 0o644)
    for folder in (file.parent, *file.parent.parents):
        if "home" in str(folder):
            folder.chmod(0o755)
    before = file.read_bytes()

    def check() -> None:
        index.add(run, env)  # nothing happens
        found = index.entries(env, here)
        assert [(entry.job_id, entry.own) for entry in found] == [("2", False)]
        assert index.adopt([run.script, shared.script], env) == []
        assert search.find("shared", env, here).job_id == "2", "who names it, gets it"
        with pytest.raises(UsageError, match="no run yet"):
            search.find(None, env, here)
        with pytest.raises(UsageError, match="cannot read the record: Permission denied"):
            search.find(run.record, env, here)

    as_nobody(check)
    assert file.read_bytes() == before


@needs_root
def test_root_leaves_the_index_of_another_user_alone(
    launched: Make, env: dict[str, str], file: Path, tmp_path: Path
) -> None:
    """As under sudo, which may keep HOME."""
    os.chown(tmp_path / "home", 65534, 65534)
    launched()
    assert not (tmp_path / "home/.local").exists()
    file.parent.mkdir(parents=True)
    file.write_bytes(b"damage\n")
    os.chown(file, 65534, 65534)
    launched("b", second=2)
    assert jobs(env, tmp_path) == []
    assert file.read_bytes() == b"damage\n"


# Which run is meant


def test_the_newest(launched: Make, env: dict[str, str], here: Path, tmp_path: Path) -> None:
    launched("a", "7", second=3)
    launched("a", "5", second=2, folder="far")
    launched("b", "10", second=9, folder="far")
    launched("c", "9", second=9, folder="far")  # in the same second
    launched("d", "8", second=4, folder="project/runs", submit_dir=f"{tmp_path}/project")
    assert search.find(None, env, here).job_id == "7", "of this directory"
    assert search.find(None, env, tmp_path / "far").job_id == "10"
    assert search.find(None, env, tmp_path / "project").job_id == "8", "which was launched here"
    assert search.find(None, env, tmp_path / "project/runs").job_id == "8"
    assert search.find(None, env, tmp_path / "elsewhere").job_id == "10", "of all, where there is none"


def test_no_run_yet(env: dict[str, str], here: Path) -> None:
    with pytest.raises(UsageError, match="there is no run yet"):
        search.find(None, env, here)


@pytest.mark.parametrize("argument", ["", " ", "\n"])
def test_an_empty_argument_is_no_beginning_of_a_name(
    launched: Make, env: dict[str, str], here: Path, argument: str
) -> None:
    """As from a script whose variable is not set."""
    launched()
    with pytest.raises(UsageError, match="is empty"):
        search.find(argument, env, here)


@pytest.mark.parametrize(
    ("argument", "job"),
    [
        ("12", "12"),
        ("12_3", "12"),
        ("12_[4-9%2]", "12"),
        ("test_20261116-000001", "12"),  # the other one begins with it
        ("test_20261116-000001-", "13"),
        ("other", "14"),
        ("14_2026", "15"),  # of the run whose name begins so; job 14 exists, too
        ("15", "15"),
        ("14", "14"),  # a job id counts before the beginning of a name
        ("14_", "15"),
        ("x.sh", "16"),
        ("./other_20261116-000003.sh", "14"),
        ("other_20261116-000003.log", "14"),
        ("../work/other_20261116-000003.json", "14"),
        ("~/../work/other_20261116-000003.log", "14"),
        ("other_20261116-000003_7.log", "14"),
    ],
)
def test_what_is_meant(
    launched: Make, env: dict[str, str], here: Path, argument: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched("test", "12", second=1)
    first = launched("test", "13", second=2)
    second = Path(first.record).with_name("test_20261116-000001-2.json")
    moved = replace(first, name="test_20261116-000001-2", record=str(second))
    Path(first.record).unlink()
    records.write(moved)
    index.add(moved, env)
    launched("other", "14", second=3)
    launched("14", "15", second=4)
    launched("x.sh", "16", second=5)
    assert search.find(argument, env, here).job_id == job


def test_a_whole_exp_name_counts_before_longer_ones(launched: Make, env: dict[str, str], here: Path) -> None:
    launched("base", "12", second=1)
    for number, name in enumerate(("base-grow", "base2", "base_20261116-000001", "base_2"), start=13):
        launched(name, str(number), second=2)
    assert search.find("base", env, here).job_id == "12"
    assert search.find("base_2", env, here).job_id == "16"
    assert search.find("base-", env, here).job_id == "13"
    with pytest.raises(UsageError, match="could be one of 5 runs"):
        search.find("bas", env, here)
    launched("base", "17", second=3)
    with pytest.raises(UsageError, match="'base' could be one of 2 runs") as caught:
        search.find("base", env, here)
    assert "base2" not in str(caught.value)


def test_paths_from_anywhere(launched: Make, env: dict[str, str], tmp_path: Path) -> None:
    run = launched("t", enter=False)
    for path in (run.script, run.log, run.record, run.log.replace(".log", "_12.log")):
        assert search.find(path, env, tmp_path / "none") == run


def test_ambiguity_lists_the_newest(launched: Make, env: dict[str, str], here: Path) -> None:
    for number in range(13):
        launched("many", str(number + 1), second=number)
    with pytest.raises(UsageError, match="'man' could be one of 13 runs") as caught:
        search.find("man", env, here)
    shown = str(caught.value).splitlines()[1:12]
    assert shown[0].split()[:3] == ["many_20261116-000012", "job", "13"]
    assert shown[9].split()[:3] == ["many_20261116-000003", "job", "4"]
    assert shown[10] == "  and 3 older ones"


def test_an_unknown_run(launched: Make, env: dict[str, str], here: Path) -> None:
    launched()
    for argument in ("13", "13_1", "nothing", "T_"):
        with pytest.raises(UsageError, match=f"no run is called '{argument}'") as caught:
            search.find(argument, env, here)
        assert caught.value.exit_code == 2


def test_the_same_job_id_twice(launched: Make, env: dict[str, str], here: Path) -> None:
    """After a reset of the cluster the newer one is meant; of two clusters nobody knows."""
    launched("old", "12", second=1, cluster="east")
    launched("new", "12", second=2, cluster="east")
    assert search.find("12", env, here).exp_name == "new"
    launched("west", "12", second=3, cluster="west")
    with pytest.raises(UsageError, match="'12' could be one of 2 runs:") as caught:
        search.find("12", env, here)
    assert [line.split()[:5] for line in str(caught.value).splitlines()[1:3]] == [
        ["west_20261116-000003", "job", "12", "on", "west"],
        ["new_20261116-000002", "job", "12", "on", "east"],
    ]


def test_a_directory_that_was_moved_or_copied(launched: Make, env: dict[str, str], tmp_path: Path) -> None:
    run = launched("t", "12", folder="first")
    Path(run.log).write_text("")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert len(index.entries(env, tmp_path / "copy")) == 1, "it is one run"
    assert search.find("t_", env, tmp_path / "copy").record == f"{tmp_path}/copy/{run.name}.json"
    shutil.rmtree(tmp_path / "copy")
    os.rename(tmp_path / "first", tmp_path / "second")
    moved = search.find(None, env, tmp_path / "second")
    assert (moved.record, moved.log) == (f"{tmp_path}/second/{run.name}.json", f"{tmp_path}/second/{run.name}.log")
    assert moved.script == run.script, "by which Slurm knows the job"


def test_through_a_link(launched: Make, env: dict[str, str], tmp_path: Path, file: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    run = launched("t", folder="link")
    assert jobs(env, tmp_path / "real") == ["12"]
    assert search.find("t", env, tmp_path / "real") == run
    assert len(lines(file)) == 1


# Records and files that are not as they should be


def damaged(run: Run) -> None:
    Path(run.record).write_text(run.to_json()[:100])


def empty(run: Run) -> None:
    Path(run.record).write_text("")


def newer(run: Run) -> None:
    Path(run.record).write_text(replace(run, schema=2).to_json())


def deleted(run: Run) -> None:
    Path(run.record).unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged, "the record is damaged"),
        (empty, "the record is damaged"),
        (newer, "written by a newer slurm-launch"),
        (deleted, "cannot read the record: No such file"),
    ],
)
def test_a_spoilt_record_is_told(
    launched: Make, env: dict[str, str], here: Path, tmp_path: Path, spoil: Any, message: str
) -> None:
    run = launched()
    spoil(run)
    with pytest.raises(UsageError, match=message) as caught:
        search.find(run.record, env, here)
    assert caught.value.at == run.record
    if spoil is not deleted:
        with pytest.raises(UsageError, match=message):
            search.find("12", env, tmp_path)
    with pytest.raises(UsageError, match=r"no run is called|the record is damaged|newer"):
        search.find(run.name, env, here)


def test_files_that_are_no_runs(env: dict[str, str], here: Path) -> None:
    (here / "own.sh").write_text("")
    (here / "x_20261116-090000.json").write_text("{}")
    os.mkfifo(here / "x_20261116-090001.json")
    for argument in ("own.sh", "./own.sh"):
        with pytest.raises(UsageError, match="there is no record beside this file") as caught:
            search.find(argument, env, here)
        assert "own.json" in str(caught.value)
    for argument in ("./gone.sh", "gone.log", "/none/gone.sh"):
        with pytest.raises(UsageError, match="no such file"):
            search.find(argument, env, here)
    with pytest.raises(UsageError, match="is a directory"):
        search.find("./", env, here)
    assert index.entries(env, here) == []
    assert index.entries(env, here / "none") == []


def test_tasks_of_an_array(tmp_path: Path) -> None:
    run = some_run(tmp_path)
    tasks = [Task(f"12_{number}", "RUNNING", "squeue", f"{tmp_path}/t_{number}.log") for number in (3, 4)]
    tasks.append(Task("12_[5-20%2]", "PENDING", "squeue", f"{tmp_path}/t_*.log"))

    def meant(argument: str | None) -> list[Task]:
        return lookup.these(run, tasks, search.task_ids_in(run, argument))

    for argument in ("12_4", "12_04", "12_[4]", "/runs/t_4.log"):
        assert meant(argument) == tasks[1:2]
    assert meant("./t_3.log") == tasks[:1]
    assert meant("12_[3-4]") == tasks[:2]
    for whole in (None, "12", "t", "/runs/t.sh", "14_2026"):
        assert meant(whole) == tasks
    (waiting,) = meant("12_7")
    assert (waiting.id, waiting.state, waiting.log) == ("12_7", "PENDING", f"{tmp_path}/t_7.log")
    assert [task.id for task in meant("12_[4,6-8,10%1]")] == ["12_4", "12_[6-8,10]"]
    assert [task.id for task in meant("12_[5-20]")] == ["12_[5-20%2]"]
    with pytest.raises(UsageError, match="there is no task 12_99"):
        meant("12_99")
    with pytest.raises(UsageError, match=r"there is no task 12_\[21-22\]"):
        meant("12_[19-22]")
    for unreadable in ("12_[]", "12_[x]", "12_[5-3]", "12_[3,x]", "12_[3-x]", "12_[3]x"):
        with pytest.raises(UsageError, match="no tasks can be read"):
            meant(unreadable)
    assert search.task_ids_in(replace(run, name="12_20261116-090507"), "12_2026") is None
