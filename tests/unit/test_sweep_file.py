"""--sweep-file: CSV, YAML and JSONL give the same points; errors name the line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_launch.config import sweep_file
from slurm_launch.errors import UsageError
from tests.unit.conftest import Launcher

VALUES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs")), max_size=8)


def read(name: str, text: str | bytes) -> list[dict[str, str]]:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    points = sweep_file.read(name)
    return [points.point(number) for number in range(len(points))]


WANTED = [{"lr": "1e-3", "name": "a b"}, {"lr": "007", "name": 'x, "y"'}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", 'lr,name\n1e-3,a b\n007,"x, ""y"""\n'),
        ("p.CSV", '\ufefflr, name\r\n1e-3, a b\r\n\r\n007, "x, ""y"""'),
        ("p.yaml", "- {lr: 1e-3, name: a b}\n- name: 'x, \"y\"'\n  lr: 007\n"),
        ("p.yml", "[{lr: 1e-3, name: a b}, {lr: 007, name: 'x, \"y\"'}]"),
        ("p.jsonl", '{"lr": 1e-3, "name": "a b"}\n\n{"name": "x, \\"y\\"", "lr": "007"}\n'),
    ],
)
def test_all_file_types_are_equivalent(name: str, text: str) -> None:
    assert read(name, text) == WANTED


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=4))
def test_any_values_survive_a_round_trip(rows: list[tuple[str, str]]) -> None:
    wanted = [{"a": a, "b": b} for a, b in rows]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    assert read("p.csv", text.getvalue()) == wanted
    assert read("p.jsonl", "".join(json.dumps(point) + "\n" for point in wanted)) == wanted
    assert read("p.yaml", yaml.safe_dump(wanted, allow_unicode=True, width=1000)) == wanted


def test_values_of_json_and_yaml_are_used_as_written() -> None:
    assert read("p.jsonl", '{"a": true, "b": 1.50, "c": 10000000000000000000000}') == [
        {"a": "true", "b": "1.50", "c": "10000000000000000000000"}
    ]
    assert read("p.jsonl", '{"a": NaN, "b": -Infinity}') == [{"a": "NaN", "b": "-Infinity"}]
    assert read("p.yaml", "- {a: '~', b: 'null', c: ''}") == [{"a": "~", "b": "null", "c": ""}]
    assert read("p.yaml", "- {a: yes, b: 1.50, c: 1:30:00}") == [{"a": "yes", "b": "1.50", "c": "1:30:00"}]


BAD = {
    ("p.csv", ""): ("has no points", ""),
    ("p.csv", "lr,seed\n"): ("has no points", ""),
    ("p.csv", "1e-3,0\n1e-4,1\n"): ("has a key that is not a valid variable name: '1e-3'", ":1"),
    ("p.csv", "lr;seed\n1;2\n"): ("has a key that is not a valid variable name: 'lr;seed'", ":1"),
    ("p.csv", "lr,lr\n1,2\n"): ("has lr twice", ":1"),
    ("p.csv", "lr,PATH\n1,2\n"): ("has a reserved key: PATH", ":1"),
    ("p.csv", "lr,seed\n1,2\n\n3\n"): ("has a row with 1 values, but the header has 2 keys", ":4"),
    ("p.csv", "lr,seed\n1,2,3\n"): ("has a row with 3 values, but the header has 2 keys", ":2"),
    ("p.csv", 'lr\n"a\nb"\n'): ("contains a line break", ":3"),
    ("p.csv", 'lr\n"a"b\n'): ("is not valid CSV", ":2"),
    ("p.csv", 'lr\n1\n"a\n'): ("is not valid CSV", ""),
    ("p.csv", b"lr\n\xff\n"): ("is not UTF-8 text", ":2"),
    ("p.csv", "lr\na\0b\n"): ("", ""),
    ("p.jsonl", ""): ("has no points", ""),
    ("p.jsonl", '{"a": 1}\n[1]\n'): ("has a line that is not an object", ":2"),
    ("p.jsonl", '{"a": 1}\n{"a"\n'): ("has a line that is not JSON", ":2"),
    ("p.jsonl", '{"a": 1}\n{"b": 1}\n'): (
        "has a point whose keys differ from the first: a is missing and 'b' is new",
        ":2",
    ),
    ("p.jsonl", '{"a": [1]}\n'): ("has a value that is neither text nor a number", ":1"),
    ("p.jsonl", '{"a": null}\n'): ("has a value that is neither text nor a number: None", ":1"),
    ("p.jsonl", '{"a": {"b": 1}}\n'): ("has a value that is neither text nor a number", ":1"),
    ("p.jsonl", '{"a": 1, "a": 2}\n'): ("has 'a' twice", ":1"),
    ("p.jsonl", "{}\n"): ("has a point without keys", ":1"),
    ("p.jsonl", "[" * 100_000): ("has a line that is not JSON", ":1"),
    ("p.yaml", ""): ("has no points", ""),
    ("p.yaml", "lr: [1, 2]\n"): ("is not a list", ":1"),
    ("p.yaml", "- {lr: 1}\n- 3\n"): ("has an item that is not a mapping", ":2"),
    ("p.yaml", "- {lr: 1}\n- {lr: [3]}\n"): ("has a point with a list or mapping in it", ":2"),
    ("p.yaml", "- {lr: 1}\n- {lr: 1, lr: 2}\n"): ("has 'lr' twice", ":2"),
    ("p.yaml", "- {lr: 1}\n- {lr: ~}\n"): ("has no value for 'lr'", ":2"),
    ("p.yaml", "- {lr: null}\n"): ("has no value for 'lr'", ":1"),
    ("p.yaml", "- lr:\n"): ("has no value for 'lr'", ":1"),
    ("p.yaml", "- {lr: 1\n"): ("not valid YAML", ""),
    ("p.yaml", "- {lr: \x01}\n"): ("not valid YAML", ""),
    ("p.yaml", "[" * 10_000): ("not valid YAML", ""),
    ("p.txt", "lr\n1\n"): ("has an unknown file type", ""),
    ("p", "lr\n1\n"): ("has an unknown file type", ""),
}


@pytest.mark.parametrize(("name", "text"), BAD)
def test_an_error_names_the_line(name: str, text: str | bytes) -> None:
    message, line = BAD[name, text]
    with pytest.raises(UsageError) as caught:
        read(name, text)
    assert message in caught.value.message
    assert (caught.value.at or "").startswith(name + line)
    assert caught.value.hint


def test_a_file_that_cannot_be_read(launcher: Launcher) -> None:
    for name in ("missing.csv", ".csv/x.csv", "a\0b.csv"):
        with pytest.raises(UsageError, match="--sweep-file: cannot read the file"):
            sweep_file.read(name)
    answer = launcher("render", "--exp-name", "t", "--command", "true", "--sweep-file", "missing.csv")
    assert (answer.code, "--sweep-file: cannot read the file: No such file" in answer.err) == (2, True)


def test_an_endless_file_and_too_many_points(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("zero.csv").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="larger than 64 MB"):
        sweep_file.read("zero.csv")
    monkeypatch.setattr(sweep_file, "MAX_POINTS", 3)
    assert len(read("p.csv", "a\n1\n2\n3\n")) == 3
    with pytest.raises(UsageError, match="has more than 3 points"):
        read("p.csv", "a\n1\n2\n3\n4\n")


def test_a_path_in_the_project_file_is_relative_to_it(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("slurm-launch.yaml").write_text("sweep-file: points.csv\n")
    Path("points.csv").write_text("lr\n1\n2\n")
    Path("below").mkdir()
    monkeypatch.chdir("below")
    answer = launcher("render", "--exp-name", "t", "--command", "echo {lr}")
    assert (answer.code, "\nlr=1\nlr=2\nEND_OF_POINTS\n" in answer.out) == (0, True), answer.err
