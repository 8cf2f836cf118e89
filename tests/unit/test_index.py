"""Finding runs: the index, and the meaning of a RUN argument."""

from __future__ import annotations

import errno
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
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home/.local/state/slurm-launch/runs"


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


# Many at once


def enter_many(env: dict[str, str], run: Run, barrier: Barrier, count: int) -> None:
    barrier.wait()
    for number in range(count):
        index.add(replace(run, name=f"{run.name}-{number}"), env)


def list_many(env: dict[str, str], directory: Path, barrier: Barrier, count: int) -> None:
    barrier.wait()
    for _ in range(count):
        index.entries(env, directory)  # which removes the oldest


def test_concurrent_launches_while_old_links_are_removed(
    launched: Make, env: dict[str, str], folder: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty processes enter runs, two remove the oldest links at the same time: no new run is lost."""
    old = launched("old", "1", second=1, enter=False)
    for number in range(900):
        index.add(replace(old, name=f"{old.name}-{number}"), env)
    monkeypatch.setattr(index, "MAX_RUNS", 900)
    monkeypatch.setattr(index, "MAX_REMOVED", 50)
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(22)
    new = [launched(f"e{number}", str(100 + number), second=60, enter=False) for number in range(20)]
    workers = [fork.Process(target=enter_many, args=(env, run, barrier, 20)) for run in new]
    workers += [fork.Process(target=list_many, args=(env, here / "none", barrier, 20)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    for _ in range(900 // 50):
        found = index.entries(env, here / "none")
    assert {entry.name for entry in found} >= {f"{run.name}-{number}" for run in new for number in range(20)}
    assert len(os.listdir(folder)) == 900, "the oldest are removed"


def test_one_lookup_removes_few_links(
    launched: Make, env: dict[str, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        launched("t", str(number + 1), second=number)
    monkeypatch.setattr(index, "MAX_RUNS", 3)
    monkeypatch.setattr(index, "MAX_REMOVED", 2)
    for left in (8, 6, 4, 3, 3):
        jobs(env, tmp_path)
        assert len(os.listdir(folder)) == left
    assert jobs(env, tmp_path) == ["8", "9", "10"], "the newest stay"


# The links


def test_a_link_has_the_keys_of_a_lookup_and_points_to_the_record(
    launched: Make, env: dict[str, str], folder: Path
) -> None:
    run = launched("t", "12", cluster="east")
    (link,) = folder.iterdir()
    created, job_id, cluster, _, name = link.name.split(",")
    assert (created, job_id, cluster, name) == (run.created, "12", "east", run.name)
    assert os.readlink(link) == run.record
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_lookup_follows_only_the_links_that_match(
    launched: Make, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        launched(f"e{number}", str(number + 1), second=number, folder=f"far{number}")
    followed: list[str] = []
    readlink = os.readlink

    def follow(path: str) -> str:
        followed.append(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", follow)
    assert search.find("e3", env, tmp_path).job_id == "4"
    assert search.find("5", env, tmp_path).job_id == "5"
    assert search.find(None, env, tmp_path).job_id == "9"
    assert [entry.job_id for entry in search.candidates(["7", "e7_"], env, tmp_path)] == ["7", "8"]
    assert len(followed) == 5


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "runs.jsonl",
        ".0123456789abcdef",
        "now,1,,0123456789abcdef,t",
        "2026-11-16T00:00:00+00:00,x,,0123456789abcdef,t",
        "2026-11-16T00:00:00+00:00,1,a b,0123456789abcdef,t",
        "2026-11-16T00:00:00+00:00,1,,0123,t",
        "2026-11-16T00:00:00+00:00,1,,0123456789abcdef,",
        "2026-11-16T00:00:00+00:00,1,,0123456789abcdef,t",
    ],
)
@pytest.mark.parametrize("kind", ["file", "directory", "fifo", "relative link", "dangling link"])
def test_other_files_in_the_folder_are_ignored(
    launched: Make,
    env: dict[str, str],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
) -> None:
    launched("a", "1", second=1)
    monkeypatch.chdir(folder)  # the target of the relative link exists
    other = folder / name
    if kind == "file":
        other.write_text("x")
    elif kind == "directory":
        other.mkdir()
    elif kind == "fifo":
        os.mkfifo(other)
    else:
        other.symlink_to("../other" if kind == "relative link" else "/none/x.json")
    (folder.parent / "other").write_text("{}")
    launched("b", "2", second=2)
    assert jobs(env, tmp_path) == ["1", "2"]
    assert search.find(None, env, tmp_path).job_id == "2"
    assert os.path.lexists(other)


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a/b"},
        {"name": "../../x"},
        {"name": "n" * 300},
        {"name": "\ud800"},
        {"name": "x\n"},
        {"cluster": "a,b"},
        {"cluster": "../x"},
        {"created": "2026-11-16T00:00:00/x+00:00"},
    ],
)
def test_values_that_cannot_be_part_of_a_file_name(
    launched: Make, env: dict[str, str], here: Path, folder: Path, values: dict[str, Any]
) -> None:
    """As in a record that was edited by hand."""
    run = launched(enter=False)
    index.add(replace(run, **values), env)
    assert not folder.exists() or os.listdir(folder) == []
    assert jobs(env, here) == ["12"]


def test_a_lost_index_is_rebuilt(launched: Make, env: dict[str, str], folder: Path, here: Path, tmp_path: Path) -> None:
    launched("a", "1", second=1)
    far = launched("b", "2", second=2, folder="far")
    shutil.rmtree(folder)
    assert jobs(env, tmp_path) == []
    assert jobs(env, here) == ["1"], "from the directory"
    assert jobs(env, tmp_path) == ["1"], "now it is in the index"
    assert [entry.job_id for entry in index.adopt([far.script, far.script, "/none.sh", ""], env)] == ["2"]
    assert index.adopt([far.record], env) == []
    assert jobs(env, tmp_path) == ["1", "2"]


def test_a_known_run_is_not_entered_again(
    launched: Make, env: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launched()

    def refuse(*_: Any) -> None:
        pytest.fail("a link is created")

    monkeypatch.setattr(os, "symlink", refuse)
    index.entries(env, here)
    index.adopt([run.script], env)


def test_a_record_that_is_temporarily_not_visible(launched: Make, env: dict[str, str], tmp_path: Path) -> None:
    run = launched(folder="mounted")
    os.rename(tmp_path / "mounted", tmp_path / "away")
    assert jobs(env, tmp_path) == []
    os.rename(tmp_path / "away", tmp_path / "mounted")
    assert jobs(env, tmp_path) == [run.job_id]


def test_the_job_id_and_name_of_a_deleted_record_stay(launched: Make, env: dict[str, str], folder: Path) -> None:
    run = launched()
    Path(run.record).unlink()
    (link,) = os.listdir(folder)
    assert link.split(",")[1::3] == ["12", run.name]


def test_a_run_that_is_found_before_sbatch_returns(launched: Make, env: dict[str, str], here: Path) -> None:
    """Another process lists the directory before the run has its job ID."""
    run = launched("t", None, enter=False)
    assert jobs(env, here) == [None]
    done = run.with_job("12", None, run.created)
    records.update(done)
    assert jobs(env, here / "none") == ["12"], "from the record"
    index.add(done, env)
    assert jobs(env, here / "none") == ["12"]
    assert search.find("12", env, here / "none") == done


# The index of 0.1.0


@pytest.fixture
def runs_jsonl(folder: Path) -> Path:
    folder.parent.mkdir(parents=True)
    return folder.with_name("runs.jsonl")


def line_of(run: Run) -> bytes:
    """A line as 0.1.0 wrote it."""
    fields = {"record": run.record, "name": run.name, "job": run.job_id, "created": run.created}
    return json.dumps({**fields, "cluster": run.cluster, "from": run.submit_dir}).encode() + b"\n"


def test_runs_of_the_older_index_are_found(
    launched: Make, env: dict[str, str], runs_jsonl: Path, tmp_path: Path
) -> None:
    old = launched("old", "1", second=1, folder="far", submit_dir=f"{tmp_path}/project", enter=False)
    runs_jsonl.write_bytes(line_of(old))
    assert search.find(None, env, tmp_path) == old
    launched("new", "2", second=2, folder="other")
    assert jobs(env, tmp_path) == ["1", "2"]
    assert search.find("1", env, tmp_path) == search.find("old", env, tmp_path) == old
    assert search.find(None, env, tmp_path / "project") == old, "launched there"
    assert index.adopt([old.script], env) == []
    assert runs_jsonl.read_bytes() == line_of(old)


VALID_LINE = {"record": "/etc/hosts", "name": "x", "job": "1", "created": "2026-11-16T00:00:00+00:00"}
VALID_LINE |= {"cluster": "", "from": ""}
INVALID_VALUES: list[dict[str, Any]] = [
    {"record": "relative"},
    {"record": 3},
    {"job": 1},
    {"job": "1; rm"},
    {"created": "now"},
    {"name": None},
    {"name": "a/b"},
    {"from": 3},
]


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
        *(json.dumps(VALID_LINE | change).encode() for change in INVALID_VALUES),
    ],
)
def test_damaged_lines_of_the_older_index_are_ignored(
    launched: Make,
    env: dict[str, str],
    runs_jsonl: Path,
    tmp_path: Path,
    damage: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("relative").write_text("exists")
    first = launched("a", "1", second=1, enter=False)
    second = launched("b", "2", second=2, enter=False)
    runs_jsonl.write_bytes(line_of(first) + damage + b"\n" + line_of(second))
    assert jobs(env, tmp_path) == ["1", "2"]


# Nothing fails


def not_a_place(_: Path, env: dict[str, str]) -> dict[str, str]:
    return {}


def relative(_: Path, env: dict[str, str]) -> dict[str, str]:
    return {"HOME": "home", "XDG_STATE_HOME": "state"}


def directory(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local/state/slurm-launch/runs.jsonl").mkdir(parents=True)
    (tmp_path / "home/.local/state/slurm-launch/runs").write_text("a file")
    return env


def pipe(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local/state/slurm-launch").mkdir(parents=True)
    os.mkfifo(tmp_path / "home/.local/state/slurm-launch/runs.jsonl")
    os.mkfifo(tmp_path / "home/.local/state/slurm-launch/runs")
    return env


def in_the_way(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local").write_text("")
    return env


def full(tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    (tmp_path / "home/.local/state/slurm-launch").mkdir(parents=True)
    (tmp_path / "home/.local/state/slurm-launch/runs").symlink_to("/dev/full")
    return env


def no_proc(_: Path, env: dict[str, str]) -> dict[str, str]:
    return {"XDG_STATE_HOME": "/proc/1"}


@pytest.mark.parametrize("place", [not_a_place, relative, directory, pipe, in_the_way, full, no_proc])
def test_launches_and_lookups_work_without_an_index(
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


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EPERM, errno.ENOSYS])
def test_a_file_system_that_refuses_links(
    launched: Make,
    env: dict[str, str],
    folder: Path,
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
) -> None:
    launched("a", "1", second=1, folder="first")
    os.rename(tmp_path / "first", here)  # its link has to be replaced
    before = [(link.name, os.readlink(link)) for link in folder.iterdir()]

    def refuse(*_: Any) -> None:
        raise OSError(error, os.strerror(error))

    run = launched("b", "2", second=2, enter=False)
    for name in ("replace", "symlink"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            if name == "symlink":
                index.add(run, env)
            assert jobs(env, here) == ["1", "2"]
        assert [(link.name, os.readlink(link)) for link in folder.iterdir() if "b_" not in link.name] == before


def as_nobody(check: Callable[[], None]) -> None:
    """Run a check as another user, in its own process: setuid cannot be undone."""

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
    """Give other users access to pytest's directories."""
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)


@needs_root
def test_the_index_and_records_of_another_user(
    launched: Make, env: dict[str, str], here: Path, folder: Path, open_path: None
) -> None:
    run = launched("secret", "1", second=1)
    shared = launched("shared", "2", second=2)
    os.chmod(shared.record, 0o644)
    for parent in folder.parents:
        if "home" in str(parent):
            parent.chmod(0o755)
    before = os.listdir(folder)

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
    assert os.listdir(folder) == before


@needs_root
def test_root_does_not_change_the_index_of_another_user(
    launched: Make, env: dict[str, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under sudo, which may keep HOME."""
    os.chown(tmp_path / "home", 65534, 65534)
    launched()
    assert not (tmp_path / "home/.local").exists()
    folder.mkdir(parents=True)
    os.symlink("/none.json", folder / "2026-11-16T00:00:00+00:00,1,,0123456789abcdef,t")
    os.chown(folder, 65534, 65534)
    monkeypatch.setattr(index, "MAX_RUNS", 0)
    launched("b", second=2)
    assert jobs(env, tmp_path) == []
    assert len(os.listdir(folder)) == 1


# Which run an argument selects


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
def test_an_empty_argument_is_not_a_prefix(launched: Make, env: dict[str, str], here: Path, argument: str) -> None:
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
def test_which_run_an_argument_selects(
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


def test_a_whole_exp_name_takes_precedence_over_longer_ones(launched: Make, env: dict[str, str], here: Path) -> None:
    launched("base", "12", second=1)
    for number, name in enumerate(("base-grow", "base2", "base_20261116-000001", "base_2"), start=13):
        launched(name, str(number), second=2)
    assert search.find("base", env, here).job_id == "12"
    assert search.find("base_2", env, here).job_id == "16"
    assert search.find("base-", env, here).job_id == "13"
    with pytest.raises(UsageError, match="matches 5 runs"):
        search.find("bas", env, here)
    launched("base", "17", second=3)
    with pytest.raises(UsageError, match="'base' matches 2 runs") as caught:
        search.find("base", env, here)
    assert "base2" not in str(caught.value)


def test_paths_from_anywhere(launched: Make, env: dict[str, str], tmp_path: Path) -> None:
    run = launched("t", enter=False)
    for path in (run.script, run.log, run.record, run.log.replace(".log", "_12.log")):
        assert search.find(path, env, tmp_path / "none") == run


def test_ambiguity_lists_the_newest(launched: Make, env: dict[str, str], here: Path) -> None:
    for number in range(13):
        launched("many", str(number + 1), second=number)
    with pytest.raises(UsageError, match="'man' matches 13 runs") as caught:
        search.find("man", env, here)
    shown = str(caught.value).splitlines()[1:12]
    assert shown[0].split()[:3] == ["many_20261116-000012", "job", "13"]
    assert shown[9].split()[:3] == ["many_20261116-000003", "job", "4"]
    assert shown[10] == "  and 3 older runs"


def test_an_unknown_run(launched: Make, env: dict[str, str], here: Path) -> None:
    launched()
    for argument in ("13", "13_1", "nothing", "T_"):
        with pytest.raises(UsageError, match=f"no run has the name or job ID '{argument}'") as caught:
            search.find(argument, env, here)
        assert caught.value.exit_code == 2


def test_the_same_job_id_twice(launched: Make, env: dict[str, str], here: Path) -> None:
    """After a reset of the cluster the newer run counts; on two clusters it is ambiguous."""
    launched("old", "12", second=1, cluster="east")
    launched("new", "12", second=2, cluster="east")
    assert search.find("12", env, here).exp_name == "new"
    launched("west", "12", second=3, cluster="west")
    with pytest.raises(UsageError, match="'12' matches 2 runs:") as caught:
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
    assert moved.script == run.script, "Slurm knows the job by it"
    assert search.find("12", env, tmp_path) == moved, "the link follows"


def test_through_a_link(launched: Make, env: dict[str, str], tmp_path: Path, folder: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    run = launched("t", folder="link")
    assert jobs(env, tmp_path / "real") == ["12"]
    assert search.find("t", env, tmp_path / "real") == run
    assert len(os.listdir(folder)) == 1


# Damaged records and other files


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
def test_a_damaged_record_is_reported(
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
    with pytest.raises(UsageError, match=r"no run has the name|the record is damaged|newer"):
        search.find(run.name, env, here)


def test_files_that_do_not_belong_to_a_run(env: dict[str, str], here: Path) -> None:
    (here / "own.sh").write_text("")
    (here / "x_20261116-090000.json").write_text("{}")
    os.mkfifo(here / "x_20261116-090001.json")
    for argument in ("own.sh", "./own.sh"):
        with pytest.raises(UsageError, match="there is no record next to this file") as caught:
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
        return lookup.select_tasks(run, tasks, search.task_ids_in(run, argument))

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
        with pytest.raises(UsageError, match="does not name any tasks"):
            meant(unreadable)
    assert search.task_ids_in(replace(run, name="12_20261116-090507"), "12_2026") is None
