"""What `watch` shows, as lines and as a screen."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.cli.terminal_text import Tail
from slurm_launch.cli.watch_view import PlainView, screen_lines, summary
from slurm_launch.runs.growing_file import LogFile
from slurm_launch.runs.log_phases import Attempts
from slurm_launch.slurm.jobs import QueuePosition, parse_queue_position
from slurm_launch.status import lookup
from slurm_launch.status import watch_messages as words
from slurm_launch.status.report import clock
from slurm_launch.status.task import Task
from slurm_launch.status.watch import LogFeed, Snapshot
from tests.unit.some_run import END, JOINED, START, STARTING, some_run

AT = datetime(2026, 11, 16, 9, 6, tzinfo=timezone.utc)
SUBMITTED = AT - timedelta(minutes=2)
MISSING = '[slurm-launch] 2026-11-16T09:05:00+0000 end outcome=nodes-missing code=71 cause="n2 is gone" hint="x"'


def task(state: str, log: str = "", task_id: str = "12", **known: Any) -> Task:
    nodes = None if state == "PENDING" else "n[1-3]"
    known = {"partition": "main", "nodes": nodes, "times": {"submitted": SUBMITTED}, **known}
    found = Task(task_id, state, "squeue", "/x/t.log", **known)
    attempts = Attempts()
    for line in log.splitlines():
        attempts.take(line)
    return lookup.with_attempt(found, attempts.last)


def snapshot(tmp_path: Path, *tasks: Task, place: QueuePosition | None = None, problem: str | None = None) -> Snapshot:
    return Snapshot(some_run(tmp_path), list(tasks), place=place, problem=problem)


def screen(now: Snapshot, text: str = "", width: int = 60, height: int = 12, notes: tuple[str, ...] = ()) -> list[str]:
    tail = Tail()
    tail.add(text.encode())
    lines = screen_lines(now, {"12": tail}, notes, width, height, AT, ("#", "-"))
    assert len(lines) <= height
    return [line.plain for line in lines]


# The screen


def test_a_pending_job(tmp_path: Path) -> None:
    waits = task("PENDING", reason="Priority", expected=AT + timedelta(minutes=65))
    shown = screen(snapshot(tmp_path, waits, place=QueuePosition(3, 12, True)))
    assert shown[:5] == [
        "t  job 12",
        "pending: jobs with a higher priority are ahead of it (Priority)",
        "3rd of 12 pending jobs in partition main",
        f"estimated start {clock(waits.expected or AT, AT)}, in 1 h 5 min",
        "pending for 2 min",
    ]
    assert shown[-1] == "Ctrl-C stops watching; the job keeps running"


@pytest.mark.parametrize(("joined", "bar"), [(0, "-" * 40), (1, "#" * 13 + "-" * 27), (3, "#" * 40)])
def test_the_bar_of_nodes_that_join(tmp_path: Path, joined: int, bar: str) -> None:
    starting = task("RUNNING", STARTING + "".join(JOINED[:joined]), nodes="n[1-3]")
    shown = screen(snapshot(tmp_path, starting), width=80)
    assert f"{bar} {joined}/3 nodes joined" in shown
    assert shown[1].startswith("running: starting Ray")


def test_the_output_of_the_command(tmp_path: Path) -> None:
    running = task("RUNNING", START, nodes="n[1-3]")
    shown = screen(snapshot(tmp_path, running), START + "".join(f"line {n}\n" for n in range(50)), height=8)
    assert shown[1] == "running your command, for 51 s on n[1-3]"
    assert not any("nodes joined" in line for line in shown)
    assert shown[3:7] == [f"line {n}" for n in range(46, 50)]


def test_the_log_before_slurm_has_answered(tmp_path: Path) -> None:
    shown = screen(snapshot(tmp_path, problem="timed out"), START + "one\ntwo\n", height=8)
    assert shown[1:3] == ["cannot reach slurmctld, retrying: timed out", "querying Slurm"]
    assert shown[4:6] == ["one", "two"]


@pytest.mark.parametrize("height", range(1, 9))
@pytest.mark.parametrize("width", [1, 5, 20, 200])
def test_any_size(tmp_path: Path, width: int, height: int) -> None:
    """Never more lines than the screen has; the most important first."""
    shown = screen(snapshot(tmp_path, task("RUNNING", STARTING, nodes="n1")), "x" * 500 + "\n", width, height)
    assert shown[0] == "t  job 12"
    assert len(shown) <= height


def test_slurmctld_cannot_be_reached(tmp_path: Path) -> None:
    shown = screen(snapshot(tmp_path, task("RUNNING", START), problem="timed out\nand so on"))
    assert shown[1] == "cannot reach slurmctld, retrying: timed out"


def test_a_note_is_shown(tmp_path: Path) -> None:
    assert screen(snapshot(tmp_path, task("RUNNING")), notes=("old", "the log was cut off"))[1] == "the log was cut off"


def test_a_row_for_each_task(tmp_path: Path) -> None:
    tasks = [task("COMPLETED", task_id="12_0", code=0), task("RUNNING", START, task_id="12_1")]
    tasks += [task("FAILED", task_id="12_2", code=1), task("PENDING", task_id="12_[3-9%2]")]
    shown = screen(snapshot(tmp_path, *tasks), height=12)
    assert shown[1] == "1 ok, 1 failed, 1 running, 7 pending"
    assert shown[3].startswith("12_1  running your command")
    assert "12_2  failed with exit code 1" in shown


def test_more_tasks_than_room(tmp_path: Path) -> None:
    shown = screen(snapshot(tmp_path, *(task("RUNNING", task_id=f"12_{n}") for n in range(99))), height=10)
    assert shown[-2] == "and 94 more"


def test_no_control_sequence_reaches_the_terminal(tmp_path: Path) -> None:
    bad = replace(task("PENDING", reason="\x1b[31mx\n\x07"), nodes="\x1b[H")
    for line in screen(snapshot(tmp_path, bad, problem="\x1b[2J"), "\x1b[5mtext\x07\n"):
        assert line.isprintable()


# Lines


def feed(tmp_path: Path, task_id: str = "12") -> LogFeed:
    return LogFeed(task_id, LogFile(tmp_path / "log"))


def test_lines_in_their_order_and_byte_for_byte(tmp_path: Path) -> None:
    out = io.BytesIO()
    view = PlainView(out, now=lambda: AT)
    view.show(snapshot(tmp_path, task("PENDING", reason="Priority")))
    view.show(snapshot(tmp_path, task("PENDING", reason="Priority", expected=AT + timedelta(hours=1))))
    view.text(feed(tmp_path), b"\xff\x00 50%\r")
    view.show(snapshot(tmp_path, task("RUNNING", nodes="n[1-3]")))
    view.text(feed(tmp_path), b"100%\nlast")
    view.show(snapshot(tmp_path, task("COMPLETING", nodes="n1")))
    view.end(snapshot(tmp_path, task("FAILED", START + END.format(outcome="command-failed", code=3), code=3)))
    assert out.getvalue().split(b"\n") == [
        b"[watch] job 12 is pending: jobs with a higher priority are ahead of it (Priority)",
        b"\xff\x00 50%\r",
        b"[watch] job 12 is running on n[1-3]",
        b"100%",
        b"last",
        b"[watch] job 12 failed: its command exited with code 3 (total 2 min)",
        b"",
    ]


def test_the_lines_of_an_array_are_labelled(tmp_path: Path) -> None:
    out = io.BytesIO()
    view = PlainView(out, labels=True)
    view.text(feed(tmp_path, "12_0"), b"a\nhal")
    view.text(feed(tmp_path, "12_1"), b"b\n")
    view.text(feed(tmp_path, "12_0"), b"f\nrest")
    view.end(snapshot(tmp_path))
    assert out.getvalue() == b"12_0: a\n12_1: b\n12_0: half\n12_0: rest\n"


def test_omitted_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x\n" * 1_000_000)
    out = io.BytesIO()
    one = LogFeed("12", LogFile(tmp_path / "log", last=10))
    PlainView(out).text(one, one.read())
    first, _, rest = out.getvalue().partition(b"\n")
    assert first == b"[watch] the first 2.0 MB of the log are omitted; `slurm-launch logs 12` shows all"
    assert rest == b"x\n" * 4


KILL = "[slurm-launch] 2026-11-16T09:05:20+0000 out-of-memory node=n2 limit=2000M killed=ray::hog kills=3\n"
KILLED = "out of memory on n2 (limit 2000M): ray::hog killed, 3 times"


def test_what_the_kernel_killed(tmp_path: Path) -> None:
    assert screen(snapshot(tmp_path, task("RUNNING", START + KILL)), width=90)[2] == KILLED
    survived = task("COMPLETED", START + KILL + END.format(outcome="ok", code=0), code=0)
    assert summary(snapshot(tmp_path, survived))[1:] == [KILLED]
    end = END.format(outcome="command-failed", code=1).rstrip() + ' cause="out of memory on n2: x" hint="y"'
    failed = task("FAILED", START + KILL + end, code=1)
    assert words.outcome(failed) == "failed: its command exited with code 1: out of memory on n2: x"


# The end


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        (task("COMPLETED", code=0), "job 12 completed"),
        (task("CANCELLED"), "job 12 was canceled"),
        (task("TIMEOUT"), "job 12 timed out"),
        (task("UNKNOWN"), "job 12 left the queue; its final state is unknown"),
        (task("FAILED", code=None, signal=9), "job 12 was killed by signal 9"),
        (task("FAILED", STARTING + MISSING, code=71), "job 12 failed with exit code 71: n2 is gone"),
    ],
)
def test_the_outcome_in_words(tmp_path: Path, ended: Task, said: str) -> None:
    assert summary(snapshot(tmp_path, ended))[0].startswith(said)


def test_the_timings() -> None:
    stopping = "[slurm-launch] 2026-11-16T09:05:59+0000 stopping\n"
    log = START + stopping + END.format(outcome="ok", code=0)
    started = datetime(2026, 11, 16, 9, 5, 7, tzinfo=timezone.utc)
    ended = task("COMPLETED", log, times={"submitted": SUBMITTED, "started": started})
    assert words.timings(ended) == "queued 1 min 7 s, bring-up 2 s, command 50 s, total 2 min"


def test_a_large_array_ends_with_those_that_failed(tmp_path: Path) -> None:
    tasks = [task("COMPLETED" if n != 7 else "FAILED", task_id=f"12_{n}", code=int(n == 7)) for n in range(300)]
    assert summary(snapshot(tmp_path, *tasks)) == [
        "job 12_7 failed with exit code 1",
        "job 12: 299 ok, 1 failed",
    ]


@pytest.mark.parametrize(("number", "said"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (113, "113th"), (122, "122nd")])  # fmt: skip  # noqa: E501
def test_ordinals(number: int, said: str) -> None:
    assert words.ordinal(number) == said


# The place in the queue


def test_the_place() -> None:
    queue = "9|100|bob|Resources\n12|50|alice|Priority\n11|50|bob|Priority\n13|50|bob|Priority\n"
    queue += "8|90|bob|JobHeldUser\n7|80|bob|Dependency\n6|70|carol|BeginTime\n20_[1-9%2]|60|carol|Priority\n"
    assert parse_queue_position(queue, "12") == QueuePosition(4, 5, True)
    assert parse_queue_position(queue, "20_[1-9%2]") == QueuePosition(2, 5, True)
    assert parse_queue_position(queue, "8") is None, "it does not wait for its turn"
    assert parse_queue_position("a banner of the site\n" + queue, "99") is None


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (QueuePosition(3, 12, True), "3rd of 12 pending jobs in partition debug"),
        (QueuePosition(1, 2, False), "1st of your 2 pending jobs in partition debug"),
        (QueuePosition(1, 1, False), None),
    ],
)
def test_the_place_if_jobs_of_others_are_hidden(place: QueuePosition, said: str | None) -> None:
    assert words.place_in_words(place, "debug") == said
