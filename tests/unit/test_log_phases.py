"""Parsing the phases in a job's log."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from slurm_launch.runs import log_phases
from slurm_launch.runs.log_phases import End, MemoryKills

BEGIN = "[slurm-launch] 2026-11-16T09:05:08+00:00 begin job=12\n"
GOOD = "[slurm-launch] 2026-11-16T09:05:09+00:00 end outcome=ok code=0 total_s=3\n"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (BEGIN + "hello\n" + GOOD, End("ok", 0)),
        (GOOD.replace("ok", "command-failed").replace("code=0", "code=3"), End("command-failed", 3)),
        (GOOD.replace("ok", "nodes-missing").replace("code=0", "code=71"), End("nodes-missing", 71)),
        (GOOD + "slurmstepd: error: something late\n", End("ok", 0)),
        (BEGIN + "hello\n", None),
        (GOOD + BEGIN, None),  # requeued, and killed before it could say more
        ("", None),
        ("a command's last line" + GOOD, End("ok", 0)),
        ("[slurm-launch] end outcome=ok code=0\n", None),
        (GOOD.replace("total_s", 'cause="outcome=x code=9" total_s'), End("ok", 0)),
        (GOOD.replace("code=0 ", ""), End("ok", None)),
    ],
)
def test_the_end_line(tmp_path: Path, log: str, expected: End | None) -> None:
    assert log_phases.parse_end(log) == expected
    (tmp_path / "log").write_text("x\n" * log_phases.TAIL + log)
    assert log_phases.read_end(tmp_path / "log") == expected


@pytest.mark.parametrize("digits", ["\u00b2", "\u0663", "9" * 5000])
def test_digits_that_are_not_a_number(digits: str) -> None:
    attempts = log_phases.Attempts()
    attempts.take(f"[slurm-launch] 2026-11-16T09:05:08+0000 starting nodes={digits} head=n1")
    attempts.take(f"[slurm-launch] 0001-01-01T09:05:09+0000 end outcome=ok code={digits} total=999999999s")
    assert (attempts.last.count, attempts.last.end) == (0, End("ok", None))


def test_which_exit_codes_are_the_commands() -> None:
    assert End("ok", 0).command_ended
    assert End("command-failed", 3).command_ended
    assert not End("nodes-missing", 71).command_ended


def test_a_missing_log(tmp_path: Path) -> None:
    assert log_phases.read_end(tmp_path / "none") is None


RUN = """\
[slurm-launch] 2026-11-16T09:00:00+0100 starting nodes=2 head=n1 address=[fd77::1]:2400 auth=off job=12 dir=/tmp/r12-ab
[slurm-launch] 2026-11-16T09:00:05+0100 retry port 2400 was taken meanwhile
[slurm-launch] 2026-11-16T09:00:06+0100 starting nodes=2 head=n1 address=[fd77::1]:2404 auth=off job=12 dir=/tmp/r12-cd
[slurm-launch] 2026-11-16T09:00:09+0100 joined node=n1 nodes=1/2
[slurm-launch] 2026-11-16T09:00:10+0100 joined node=n2 nodes=2/2
[slurm-launch] 2026-11-16T09:00:10+0100 ready nodes=2/2 ray=2.60.0 client=ray://[fd77::1]:2405 dashboard=http://127.0.0.1:2406
[slurm-launch] 2026-11-16T09:00:10+0100 command python train.py node=x
a line of the command's
"""
REST = """\
[slurm-launch] 2026-11-16T09:00:12+0100 stopping
[slurm-launch] 2026-11-16T09:00:13+0100 end outcome=node-lost code=72 phase=command node=n2 bring-up=10s total=13s \
cause="n2 said 'node=n9'" hint="look, or "not""
"""
BEGAN = datetime(2026, 11, 16, 8, tzinfo=timezone.utc)
LOST = End("node-lost", 72, "n2 said 'node=n9'", 'look, or "not"', "n2", began=BEGAN)


def test_an_attempt(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(RUN.encode() + b"\xff" * 3_000_000 + b"\r\n" + REST.encode())
    (attempt,) = log_phases.read(tmp_path / "log").all
    assert (attempt.count, attempt.head, attempt.address, attempt.directory) == (
        2,
        "n1",
        "[fd77::1]:2404",
        "/tmp/r12-cd",
    )
    assert (attempt.ray, attempt.client, attempt.dashboard) == (
        "2.60.0",
        "ray://[fd77::1]:2405",
        "http://127.0.0.1:2406",
    )
    assert list(attempt.joined) == ["n1", "n2"]
    assert list(attempt.times) == ["starting", "ready", "command", "stopping", "end"]
    assert attempt.head_ready == datetime(2026, 11, 16, 8, 0, 9, tzinfo=timezone.utc)
    assert attempt.end == LOST


def test_several_attempts(tmp_path: Path) -> None:
    killed = RUN + "killed without a word\n"
    (tmp_path / "log").write_text(killed + RUN + REST + GOOD)
    first, second, third = log_phases.read(tmp_path / "log").all
    assert (first.end, first.phase) == (None, "command")
    assert second.end == LOST
    assert third.end == End("ok", 0)


# The log of another job in the command's output

OTHER = RUN.replace("job=12", "job=99").replace("head=n1", "head=n9").replace("r12-", "r99-")
OTHER_END = REST.replace("code=72", "code=0").replace("node-lost", "ok").replace("total=", "job=99 total=")
OUR_END = REST.replace("total=", "job=12 total=")


@pytest.mark.parametrize(
    ("shown", "end"),
    [
        (OTHER, OUR_END),
        (OTHER + OTHER_END, OUR_END),
        (OTHER + OTHER_END + OTHER, OUR_END),
        (OTHER + REST, REST),  # of an older version: it names the job only at the start
        (OTHER_END.splitlines(keepends=True)[-1], OUR_END),  # the tail of a log
    ],
)
def test_the_log_of_another_job_is_ignored(tmp_path: Path, shown: str, end: str) -> None:
    log = tmp_path / "log"
    log.write_text(RUN + shown)
    (attempt,) = log_phases.read(log).all
    assert (attempt.job, attempt.head, attempt.directory, attempt.phase) == ("12", "n1", "/tmp/r12-cd", "command")
    assert attempt.end is None
    assert (log_phases.read_end(log), log_phases.read_end(log, "12")) == (None, None)
    log.write_text(RUN + shown + end)
    (attempt,) = log_phases.read(log).all
    assert attempt.end == log_phases.read_end(log) == log_phases.read_end(log, "12")
    assert attempt.end
    assert (attempt.end.code, attempt.phase) == (72, "end")
    log.write_text(RUN + shown + end + RUN)
    assert len(log_phases.read(log).all) == 2, "it was requeued"


def test_the_other_log_continues_after_a_requeue(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(RUN + OTHER + RUN + OUR_END)
    killed, attempt = log_phases.read(tmp_path / "log").all
    assert (killed.job, killed.end, attempt.job) == ("12", None, "12")
    assert attempt.end


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    """Only its tail is read: the ID in the log of an array task is not known in advance."""
    log = tmp_path / "log"
    log.write_text(OTHER_END)
    assert log_phases.read_end(log, "12") is None
    assert (end := log_phases.read_end(log, "12_3"))
    assert end == log_phases.read_end(log)
    log.write_text(OTHER + OTHER_END + OUR_END)
    assert (end := log_phases.read_end(log, "12_3"))
    assert end.job == "12"


# Out of memory

KILL = "[slurm-launch] 2026-11-16T09:00:11+0100 out-of-memory "


def test_what_the_kernel_killed() -> None:
    """The last line of each step counts; the last of all comes last."""
    attempts = log_phases.Attempts()
    for line in (
        *RUN.splitlines(),
        KILL + "node=n2 limit=2000M killed=ray::hog kills=1",
        KILL + "node=n1 limit=3000M killed=python kills=1 step=batch",
        KILL + "node=n1 limit=0M killed=unknown kills=2",
        KILL + "node=n2 limit=2000M killed=ray::pig kills=3",
        KILL + "damaged",
    ):
        attempts.take(line)
    assert list(attempts.last.memory_kills.values()) == [
        MemoryKills("n1", 3000, "python", 1, "batch"),
        MemoryKills("n1", None, None, 2),
        MemoryKills("n2", 2000, "ray::pig", 3),
        MemoryKills("?", None, None, 1),
    ]
    assert [kills.in_words for kills in attempts.last.memory_kills.values()] == [
        "out of memory on n1 (limit 3000M): python killed",
        "out of memory on n1: a process killed, 2 times",
        "out of memory on n2 (limit 2000M): ray::pig killed, 3 times",
        "out of memory on ?: a process killed",
    ]
    assert attempts.last.phase == "command"


def test_a_restart_forgets_what_was_killed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(RUN + KILL + "node=n2 limit=1M killed=x kills=1\n" + REST + RUN)
    first, second = log_phases.read(tmp_path / "log").all
    assert (len(first.memory_kills), len(second.memory_kills)) == (1, 0)


@pytest.mark.parametrize(
    ("between", "attempts"),
    [
        ("retry port 2400 was taken in the meantime", 1),
        ("retry port 2400 was taken in the meantime\n" + KILL + "node=n1 limit=1M killed=x kills=1", 1),
        ("retry node=n2 attempt=2 Ray ended", 2),  # only n2 starts again: the next `starting` is a restart of the job
        ("joined node=n1 nodes=1/2", 2),
    ],
)
def test_what_announces_another_start(between: str, attempts: int) -> None:
    found = log_phases.Attempts()
    start = RUN.splitlines()[0]
    for line in (start, *("[slurm-launch] 2026-11-16T09:00:05+0100 " + between).splitlines(), start):
        found.take(line)
    assert len(found.all) == attempts
