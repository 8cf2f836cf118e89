"""Reading a file that grows, is truncated, removed or replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_launch.runs import growing_file
from slurm_launch.runs.growing_file import LogFile, last_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def test_a_file_that_appears_and_grows(path: Path) -> None:
    log = LogFile(path)
    assert log.read() == b""
    append(path, b"one\ntw")
    assert log.read() == b"one\ntw"
    assert log.read() == b""
    append(path, b"o\n\xff\x00")
    assert log.read() == b"o\n\xff\x00"
    assert (log.restarts, log.skipped) == (0, 0)


def test_at_most_the_requested_bytes(path: Path) -> None:
    append(path, b"123456")
    log = LogFile(path)
    assert [log.read(4), log.read(4), log.read(4)] == [b"1234", b"56", b""]


def test_reading_near_the_end_starts_with_a_whole_line(path: Path) -> None:
    append(path, b"x" * 100 + b"\nfirst\nsecond\n")
    log = LogFile(path, last=15)
    assert log.read() == b"first\nsecond\n"
    assert log.skipped == 101
    append(path, b"third\n")
    assert log.read() == b"third\n"


def test_near_the_end_of_one_long_line(path: Path) -> None:
    append(path, b"x" * 100)
    log = LogFile(path, last=10)
    assert log.read() == b"x" * 10
    assert log.skipped == 90


def test_a_short_file_is_read_from_its_beginning(path: Path) -> None:
    append(path, b"all of it")
    log = LogFile(path, last=9)
    assert (log.read(), log.skipped) == (b"all of it", 0)


def test_a_truncated_file(path: Path) -> None:
    append(path, b"much text\n")
    log = LogFile(path)
    log.read()
    os.truncate(path, 0)
    assert (log.read(), log.restarts) == (b"", 1)
    append(path, b"new\n")
    assert (log.read(), log.restarts) == (b"new\n", 1)


def test_a_replaced_file(path: Path) -> None:
    """The rest of the old file comes first."""
    append(path, b"old\n")
    log = LogFile(path)
    assert log.read() == b"old\n"
    append(path, b"last words\n")
    path.rename(path.with_suffix(".1"))
    append(path, b"a new one, longer than the old one\n")
    assert log.read() == b"last words\n"
    assert (log.read(), log.restarts) == (b"a new one, longer than the old one\n", 1)


def test_a_file_that_is_moved_while_it_is_written(path: Path) -> None:
    """As by logrotate: the job keeps writing to the old file."""
    append(path, b"old\n")
    log = LogFile(path)
    log.read()
    path.rename(path.with_suffix(".1"))
    append(path.with_suffix(".1"), b"more\n")
    assert log.read() == b"more\n"


def test_a_file_that_is_removed_and_created_again(path: Path) -> None:
    append(path, b"old\n")
    log = LogFile(path)
    log.read()
    path.unlink()
    assert log.read() == b""
    append(path, b"new\n")
    assert (log.read(), log.restarts) == (b"new\n", 1)


def test_only_regular_files_are_read(path: Path) -> None:
    os.mkfifo(path)
    assert (LogFile(path).read(), LogFile(path.parent).read()) == (b"", b"")


def test_a_file_that_is_closed_between_two_reads(path: Path) -> None:
    append(path, b"x")
    log = LogFile(path)
    log.read()
    log.close()
    log.close()
    append(path, b"y")
    assert (log.read(), log.restarts) == (b"y", 0)
    log.close()
    append(path.with_suffix(".new"), b"another one")
    path.with_suffix(".new").rename(path)
    assert (log.read(), log.restarts) == (b"another one", 1)


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 16])
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"a", b"a\n", b"\n\n", b"a\nb\nc\n", b"a\n\nb", b"\na\n\n\n", b"xx\nyyy\nz"]
)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_the_last_lines(path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, count: int, block: int) -> None:
    monkeypatch.setattr(growing_file, "_BLOCK", block)
    path.write_bytes(data)
    lines = data.splitlines(keepends=True)
    assert data[last_lines(path, count) :] == b"".join(lines[len(lines) - min(count, len(lines)) :])


def test_lines_that_do_not_count(path: Path) -> None:
    path.write_bytes(b"one\n#\ntwo\n#\n#\nthree\n#\n")
    assert path.read_bytes()[last_lines(path, 2, lambda line: line != b"#") :] == b"two\n#\n#\nthree\n#\n"


def test_the_last_lines_of_a_missing_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        last_lines(path, 3)
