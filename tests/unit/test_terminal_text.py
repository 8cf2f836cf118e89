"""The text of a log on the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_launch.cli.terminal_text import MAX_LINES, Tail
from tests.unit.some_run import END, START


def tail(*data: bytes) -> list[str]:
    text = Tail()
    for part in data:
        text.add(part)
    return text.last(50)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"", []),
        (b" 10%|#   |\r 50%|##  |\r100%|####|\ndone\n", ["100%|####|", "done"]),
        (b" 10%|#   |\r 50%|##  |", [" 50%|##  |"]),
        (b"50%\r", ["50%"]),  # as long as nothing else is there
        (b"\x1b[31;1mred\x1b[0m\n", ["red"]),
        (b"\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["textlink"]),
        (b"\x1b[2J\x1b[H\x1bcwiped\x07\x08\x00\n", ["wiped"]),
        (b"a\nb\x1b[" + b"9" * 5000 + b"A\n", ["a", "b"]),
        (b"a\tb\n", ["a    b"]),
        (b"\xff\xfe broken\n", ["\ufffd\ufffd broken"]),
        ("\u202eright to left\u200b\x9b31m\n".encode(), ["right to left31m"]),
        ("größer 東京\n".encode(), ["größer 東京"]),
    ],
)
def test_a_text(data: bytes, shown: list[str]) -> None:
    assert tail(data) == shown
    assert tail(*(data[i : i + 1] for i in range(len(data)))) == shown, "byte by byte"


def test_two_progress_bars() -> None:
    """As tqdm(position=1) writes them: down, the bar, and up again."""
    steps = [f"\router {n}%\n\rinner {n}%\x1b[A".encode() for n in (10, 20, 30)]
    assert tail(b"begin\n", *steps) == ["begin", "outer 30%", "inner 30%"]
    assert tail(b"begin\n", *steps, b"\n\nend\n")[-1] == "end"


def test_phases_shown_otherwise_are_hidden() -> None:
    warning = "[slurm-launch] 2026-11-16T09:05:09+0000 warning Ray 2.40 does not support tokens\n"
    said = "[slurm-launch] 2026-11-16T09:05:09+0000 [n2] no space\n"
    log = START + "out\n" + warning + said + "unfinished" + END.format(outcome="ok", code=0)
    assert tail(log.encode()) == ["out", warning.strip(), said.strip(), "unfinished" + END.format(outcome="ok", code=0).strip()]  # fmt: skip  # noqa: E501


def test_hidden_lines_take_no_room() -> None:
    text = Tail()
    text.add(b"one\ntwo\n" + START.encode() * 5)
    assert text.last(2) == ["one", "two"]


def test_as_many_as_there_is_room_for() -> None:
    text = Tail()
    text.add(b"".join(b"%d\n" % n for n in range(100_000)))
    assert text.last(2) == ["99998", "99999"]
    assert text.last(0) == []
    assert len(text.lines) <= 2 * MAX_LINES + 1


def test_an_endless_line_is_cut() -> None:
    text = Tail()
    for _ in range(100):
        text.add(b"x" * 100_000)
    assert len(text.lines[0]) <= 2000


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_control_sequences_are_removed(parts: list[bytes]) -> None:
    for line in tail(*parts):
        assert line.isprintable() or not line
