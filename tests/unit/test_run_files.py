"""Names and exclusive writes."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from slurm_launch.errors import UsageError
from slurm_launch.runs import files as run_files

WHEN = datetime(2026, 11, 16, 9, 5, 7)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With nothing in it, unlike tmp_path itself (conftest.py)."""
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_name() -> None:
    assert run_files.run_name("test", WHEN) == "test_20261116-090507"


def test_the_script(folder: Path) -> None:
    files = run_files.create_script(folder, "test", WHEN, lambda name: f"#!/bin/bash\n# {name} ü\n")
    assert files.script == folder / "test_20261116-090507.sh"
    assert files.script.read_text(encoding="utf-8") == "#!/bin/bash\n# test_20261116-090507 ü\n"
    assert mode(files.script) == 0o700
    assert entries(folder) == ["test_20261116-090507.sh"]


def test_the_mode_does_not_depend_on_the_umask(folder: Path) -> None:
    old = os.umask(0o777)
    try:
        files = run_files.create_script(folder, "test", WHEN, lambda _: "x")
        run_files.write_record(files.record, b"{}")
    finally:
        os.umask(old)
    assert (mode(files.script), mode(files.record)) == (0o700, 0o600)


@pytest.mark.parametrize("suffix", [".sh", ".log", ".json", ".ray"])
def test_any_file_with_the_name_is_a_conflict(folder: Path, suffix: str) -> None:
    other = folder / f"test_20261116-090507{suffix}"
    other.write_text("precious")
    files = run_files.create_script(folder, "test", WHEN, lambda name: name)
    assert files.name == "test_20261116-090507-2"
    assert files.script.read_text() == files.name
    assert other.read_text() == "precious"


def test_suffixes_continue(folder: Path) -> None:
    found = [run_files.create_script(folder, "t", WHEN, lambda name: name).name for _ in range(4)]
    assert found == [f"t_20261116-090507{suffix}" for suffix in ("", "-2", "-3", "-4")]


def test_an_existing_link_is_not_followed(folder: Path) -> None:
    (folder / "t_20261116-090507.sh").symlink_to(folder / "elsewhere")
    assert run_files.create_script(folder, "t", WHEN, lambda name: name).name.endswith("-2")
    assert not (folder / "elsewhere").exists()


def test_a_name_lost_to_another_process_is_rendered_again(folder: Path) -> None:
    """The other process creates its file between the check and the write."""

    def text_of(name: str) -> str:
        if not name.endswith("-2"):
            (folder / f"{name}.sh").write_text("theirs")
        return name

    files = run_files.create_script(folder, "t", WHEN, text_of)
    assert files.script.read_text() == files.name == "t_20261116-090507-2"
    assert (folder / "t_20261116-090507.sh").read_text() == "theirs"


def test_a_file_server_with_a_stale_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may hide for a while what another host has created; the exclusive creation detects it."""
    (folder / "t_20261116-090507.sh").write_text("theirs")
    monkeypatch.setattr(run_files.RunFiles, "taken", lambda _: False)
    assert run_files.create_script(folder, "t", WHEN, lambda name: name).name == "t_20261116-090507-2"
    assert (folder / "t_20261116-090507.sh").read_text() == "theirs"


def test_many_processes_at_once(folder: Path) -> None:
    driver = (
        "import sys; from pathlib import Path; from datetime import datetime; from slurm_launch.runs import files\n"
        "sys.stdin.read()\n"
        "for _ in range(10):\n"
        "    when = datetime(2026, 11, 16, 9, 5, 7)\n"
        "    print(files.create_script(Path(sys.argv[1]), 't', when, lambda name: name * 1000).name)\n"
    )
    argv = [sys.executable, "-c", driver, str(folder)]
    pipe = subprocess.PIPE
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ours = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=env) for _ in range(6)]
    for one in ours:
        assert one.stdin
        one.stdin.close()
        one.stdin = None
    names = [name for one in ours for name in one.communicate(timeout=60)[0].split()]
    assert len(names) == len(set(names)) == 60
    assert all((folder / f"{name}.sh").read_text() == name * 1000 for name in names)


def test_the_record_is_created_atomically_and_never_overwritten(folder: Path) -> None:
    record = folder / "t.json"
    run_files.write_record(record, b"first")
    assert mode(record) == 0o600
    with pytest.raises(UsageError, match="cannot write: File exists"):
        run_files.write_record(record, b"second")
    assert record.read_bytes() == b"first"
    record.chmod(0o640)
    run_files.replace_record(record, b"third")
    assert stat.S_IMODE(record.stat().st_mode) == 0o640
    assert record.read_bytes() == b"third"
    assert entries(folder) == ["t.json"]


def test_a_file_system_without_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    run_files.write_record(folder / "t.json", b"first")
    assert (folder / "t.json").read_bytes() == b"first"
    with pytest.raises(UsageError):
        run_files.write_record(folder / "t.json", b"second")
    assert entries(folder) == ["t.json"]


def test_directories_are_created_with_their_parents_and_removed(folder: Path) -> None:
    made = run_files.make_directory(folder / "a/b/c")
    assert made == [folder / "a", folder / "a/b", folder / "a/b/c"]
    assert run_files.make_directory(folder / "a/b/c") == []
    (folder / "a/theirs").touch()
    run_files.remove_directories(made)
    assert entries(folder / "a") == ["theirs"]


@pytest.mark.parametrize("below", ["file", "file/x"])
def test_a_file_in_place_of_the_directory(folder: Path, below: str) -> None:
    (folder / "file").touch()
    with pytest.raises(UsageError, match="cannot write") as caught:
        run_files.make_directory(folder / below)
    assert caught.value.exit_code == 2
    assert str(folder / "file") in str(caught.value.at)
    assert "--run-dir" in str(caught.value.hint)


def test_a_directory_that_is_not_writable() -> None:
    """/proc refuses all users, including root."""
    with pytest.raises(UsageError, match="cannot write"):
        run_files.make_directory(Path("/proc/runs"))
    with pytest.raises(UsageError, match="cannot write"):
        run_files.create_script(Path("/proc"), "t", WHEN, lambda _: "x")


def test_a_missing_directory_is_an_error_of_its_own(folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot write: No such file or directory"):
        run_files.create_script(folder / "gone", "t", WHEN, lambda _: "x")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a tiny disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_leaves_nothing_half_written(tiny: Path) -> None:
    with pytest.raises(UsageError, match="No space left on device") as caught:
        run_files.create_script(tiny, "t", WHEN, lambda _: "x" * 100_000)
    assert caught.value.exit_code == 2
    assert "df -h" in str(caught.value.hint)
    with pytest.raises(UsageError, match="No space left on device"):
        run_files.write_record(tiny / "t.json", b"x" * 100_000)
    assert entries(tiny) == []
    run_files.write_record(tiny / "t.json", b"old")
    with pytest.raises(UsageError, match="No space left on device"):
        run_files.replace_record(tiny / "t.json", b"x" * 100_000)
    assert entries(tiny) == ["t.json"]
    assert (tiny / "t.json").read_bytes() == b"old"


def test_a_disk_that_is_full_only_at_fsync(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS and quotas report it."""

    def full(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="Disk quota exceeded"):
        run_files.create_script(folder, "t", WHEN, lambda _: "x")
    with pytest.raises(UsageError, match="Disk quota exceeded"):
        run_files.write_record(folder / "t.json", b"x")
    assert entries(folder) == []


def test_ctrl_c_while_writing_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_files.create_script(folder, "t", WHEN, lambda _: "x")
    with pytest.raises(KeyboardInterrupt):
        run_files.write_record(folder / "t.json", b"x")
    assert entries(folder) == []
