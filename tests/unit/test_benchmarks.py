"""The results that `make bench` writes. Nothing here measures anything."""

from __future__ import annotations

import itertools
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.__main__ import PARTS, main
from benchmarks.measured import at_least, at_most, known

ROOT = Path(__file__).parents[2]


def test_the_table_marks_a_missed_goal() -> None:
    lines = [at_most("a | b", 1.25, 1.5, "x"), at_least("c", 3, 4, "y", " s"), known("d", "0.9", "z")]
    assert [line.ok for line in lines] == [False, True, True]
    rows = results.table(lines).splitlines()[-3:]
    assert rows == [
        "| a \\| b | 1.50 | <= 1.25 | MISS | x |",
        "| c | 4.00 s | >= 3 s | ok | y |",
        "| d | 0.9 |  |  | z |",
    ]


@pytest.mark.parametrize(("value", "code"), [(1.2, 0), (1.3, 1)])
def test_a_missed_goal_is_an_error_of_make_bench(
    value: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PARTS, "runs", lambda: iter([at_most("a / b", 1.25, value, "x"), known("c", "9", "z")]))
    assert main(["runs"]) == code
    assert capsys.readouterr().err == ("MISS: a / b: 1.30, expected <= 1.25\n" if code else "")


def test_the_plot_has_a_line_and_a_name_for_each_way() -> None:
    points = {
        "docs": {3: 42.0, 6: 57.0},
        "symmetric": {3: 15.0, 6: 28.0},
        "floor": {3: 9.9, 6: 16.0},
        "ours": {3: 10.0, 6: 16.1},
    }
    picture = ElementTree.fromstring(results.plot(points))
    name = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{name}polyline")) == 4
    assert len(picture.findall(f"{name}circle")) == 8
    labels = [text for text in picture.findall(f"{name}text") if (text.text or "").endswith(" s")]
    heights = sorted(float(text.attrib["y"]) for text in labels)
    assert len(heights) == 4
    assert all(below - above >= 16.9 for above, below in itertools.pairwise(heights)), heights


def test_the_readme_of_the_benchmarks_quotes_the_table() -> None:
    assert results.README == ROOT / "benchmarks/README.md"
    _, quoted = results.README.read_text().split(results.BEGIN)
    assert quoted.split(results.END)[0] == results.TABLE.read_text()
    assert results.PLOT.read_text().startswith("<svg")


def test_an_unknown_part_is_an_error() -> None:
    argv = [sys.executable, "-m", "benchmarks", "nothing"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"benchmarks: no such part: nothing; available: {', '.join(PARTS)}\n"
