"""--sweep: values become points, and bad input is refused."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slurm_launch import LaunchSpec, render
from slurm_launch.config.sweep_file import points_of
from slurm_launch.errors import UsageError
from slurm_launch.spec import sweep_points
from slurm_launch.spec.script_header import read_embedded
from slurm_launch.spec.sweep_points import Points
from tests.script_parts import functions
from tests.unit.conftest import Launcher

NEEDED: dict[str, Any] = {"exp_name": "t", "command": "true"}
# What fits on a line of the script.
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs")), max_size=8)


def points(**options: Any) -> list[dict[str, str]]:
    found = points_of(LaunchSpec(**NEEDED, **options))
    assert found is not None
    return [found.point(number) for number in range(len(found))]


def values(text: str) -> list[str]:
    return [point["k"] for point in points(sweep={"k": text})]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1e-3,1e-4", ["1e-3", "1e-4"]),
        ("a, b ,c", ["a", "b", "c"]),
        ('"a, b",c', ["a, b", "c"]),
        ('"say ""hi""", "" ,x', ['say "hi"', "", "x"]),
        ("it's,a b", ["it's", "a b"]),
        ("k=v,a=b", ["k=v", "a=b"]),
        ("0..3", ["0", "1", "2", "3"]),
        ("-2..0,7", ["-2", "-1", "0", "7"]),
        ("0..9..4", ["0", "4", "8"]),
        ("08..11", ["08", "09", "10", "11"]),
        ("5..5", ["5"]),
        ('"0..3",../data,a..b', ["0..3", "../data", "a..b"]),
        ("1,1", ["1", "1"]),
    ],
)
def test_values(text: str, found: list[str]) -> None:
    assert values(text) == found


def test_every_combination_and_the_last_key_varies_fastest() -> None:
    found = points(sweep=["b=1,2", "a=x,y"])
    assert found == [{"b": "1", "a": "x"}, {"b": "1", "a": "y"}, {"b": "2", "a": "x"}, {"b": "2", "a": "y"}]


def test_lists_of_python() -> None:
    found = points(sweep={"a": [1, 2.5, True, "0..1", 'x,"y"', " z ", ""], "b": "c"})
    assert [point["a"] for point in found] == ["1", "2.5", "true", "0", "1", 'x,"y"', " z ", ""]


@given(st.lists(VALUES.filter(lambda text: ".." not in text), min_size=1, max_size=6))
def test_any_list_of_texts_is_read_back(texts: list[str]) -> None:
    assert values(sweep_points.join_values(texts)) == texts


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5))
def test_points_are_read_back_from_the_script(rows: list[tuple[str, str]]) -> None:
    before = Points(("a", "b"), rows)
    assert sweep_points.from_lines(before.lines()) == before
    for line, row in zip(before.lines(), rows, strict=True):
        assert shlex.split(line) == [f"a={row[0]}", f"b={row[1]}"]


BAD = {
    ("--sweep", "lr"): "--sweep has no values for lr",
    ("--sweep", "lr="): "--sweep has no values for lr",
    ("--sweep", "lr=1,,2"): "--sweep has an empty value for lr",
    ("--sweep", "lr=1,"): "--sweep has an empty value for lr",
    ("--sweep", 'lr="a,b'): "--sweep has an unterminated quote for lr",
    ("--sweep", "lr=1", "--sweep", "lr=2"): "--sweep has 'lr' twice",
    ("--sweep", "1r=1"): "--sweep has a key that is not a valid variable name: '1r'",
    ("--sweep", "l-r=1"): "--sweep has a key that is not a valid variable name",
    ("--sweep", "=1"): "--sweep has a key that is not a valid variable name: ''",
    ("--sweep", "PATH=a"): "--sweep has a reserved key: PATH",
    ("--sweep", "SLURM_JOB_ID=1"): "--sweep has a reserved key",
    ("--sweep", "RAY_ADDRESS=1"): "--sweep has a reserved key",
    ("--sweep", "BASH_ENV=x"): "--sweep has a reserved key",
    ("--sweep", "n=4..0"): "--sweep has a descending range for n: 4..0",
    ("--sweep", "n=0..4..0"): "--sweep has a range with step 0 for n",
    ("--sweep", "n=4..0..-1"): "--sweep has a range with step -1 for n",
    ("--sweep", "n=0..0.5"): "--sweep has an invalid range for n: '0..0.5'",
    ("--sweep", "n=0..999999999"): "--sweep has 1,000,000,000 points; the maximum is 100,000",
    ("--sweep", "n=0..999", "--sweep", "m=0..999"): "--sweep has 1,000,000 points (1,000 x 1,000)",
    ("--sweep", "n=a\nb"): "--sweep contains a line break",
    ("--sweep", "n=1", "--sweep-file", "x.csv"): "--sweep and --sweep-file are mutually exclusive",
    ("--sweep", "n=1", "--array", "0-3"): "--array and --sweep are mutually exclusive",
    ("--sweep", "n=1", "--no-sbatch", "array"): "--no-sbatch array removes the directive that a sweep needs",
    ("--max-parallel", "3"): "--max-parallel has no effect without a sweep or an array",
    ("--max-parallel", "0", "--sweep", "n=1"): "--max-parallel must be at least 1",
    ("--max-parallel", "3", "--array", "0-9%2"): "--max-parallel 3 and --array 0-9%2 both limit the concurrent tasks",
    ("--points", "3"): "--points has no effect without a sweep",
    ("--points", "x", "--sweep", "n=1"): "--points is not a selection of points: 'x'",
    ("--points", "3-1", "--sweep", "n=1"): "3-1 is a descending range",
    ("--points", "0,2-4", "--sweep", "n=0..3"): "--points names point 4, but the sweep has 4",
    ("--points", "0-999999999999", "--sweep", "n=0..3"): "--points is not a selection of points",
    ("--sweep", "n=1", "--command", "echo {m}"): "--command has {m}, which is not a key of the sweep",
}


@pytest.mark.parametrize("flags", BAD, ids=" ".join)
def test_bad_input_is_refused(launcher: Launcher, flags: tuple[str, ...]) -> None:
    command = () if "--command" in flags else ("--command", "true")
    answer = launcher("render", "--exp-name", "t", *command, *flags)
    assert (answer.code, answer.out) == (2, "")
    assert BAD[flags] in answer.err
    assert "hint: " in answer.err


def test_a_nul_in_a_value() -> None:
    with pytest.raises(ValueError, match="NUL"):
        LaunchSpec(**NEEDED, sweep={"a": ["x\0y"]})


def rendered(launcher: Launcher, *flags: str) -> str:
    answer = launcher("render", "--exp-name", "t", "--command", "echo {lr}", *flags)
    assert answer.code == 0, answer.err
    return answer.out


def in_script(text: str) -> list[str]:
    return text.split("<<'END_OF_POINTS'")[1].split("\nEND_OF_POINTS\n")[0].splitlines()[1:]


def test_yaml_takes_lists_and_texts_and_a_flag_replaces_a_key(launcher: Launcher) -> None:
    config = {"sweep": {"seed": "0..1", "lr": [0.1, "a,b"], "name": "x"}, "max-parallel": 2}
    Path("slurm-launch.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert in_script(rendered(launcher)) == [f"seed={s} lr={lr} name=x" for s in "01" for lr in ("0.1", "a,b")]
    text = rendered(launcher, "--sweep", "seed=7")
    assert in_script(text) == ["seed=7 lr=0.1 name=x", "seed=7 lr=a,b name=x"]
    assert "#SBATCH --array=0-1%2\n" in text


@pytest.mark.parametrize("text", ["{lr: [1, ~]}", "{lr: [null]}", "{lr: ~}"])
def test_null_is_not_a_value(launcher: Launcher, text: str) -> None:
    Path("slurm-launch.yaml").write_text(f"sweep: {text}\n")
    answer = launcher("render", "--exp-name", "t", "--command", "echo {lr}")
    assert (answer.code, "slurm-launch.yaml:1" in answer.err) == (2, True)


def test_an_array_on_the_command_line_replaces_the_sweep_of_a_file(launcher: Launcher) -> None:
    Path("slurm-launch.yaml").write_text("sweep: {lr: 0..3}\n")
    answer = launcher("render", "--exp-name", "t", "--command", "echo {lr}", "--array", "0-3", "--max-parallel", "2")
    assert "#SBATCH --array=0-3%2\n" in answer.out
    assert "echo {lr}\n" in answer.out, "without a sweep it is plain text"


def test_variables_of_the_environment(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLAUNCH_SWEEP", "lr=1,2 'name=a b'")
    assert in_script(rendered(launcher)) == ["lr=1 name='a b'", "lr=2 name='a b'"]


def test_a_profile_may_limit_what_a_plain_job_does_not_have(launcher: Launcher, tmp_path: Path) -> None:
    profiles = tmp_path / "home/.config/slurm-launch/profiles"
    profiles.mkdir(parents=True)
    (profiles / "site.yaml").write_text("max-parallel: 8\n")
    answer = launcher("render", "--exp-name", "t", "--command", "true", "--profile", "site")
    assert (answer.code, answer.err) == (0, "")
    assert "#SBATCH --array=0-1%8\n" in rendered(launcher, "--profile", "site", "--sweep", "lr=1,2")


def test_the_order_of_the_keys_survives_the_header() -> None:
    spec = LaunchSpec(**NEEDED, sweep={"z": "1,2", "a": "3,4"})
    own = read_embedded(render(spec), "x.sh").own
    assert own["sweep"] == ["z=1,2", "a=3,4"]
    assert LaunchSpec(**NEEDED, sweep=own["sweep"]) == spec == LaunchSpec(**json.loads(json.dumps(spec.given())))


def test_a_script_keeps_its_own_points(launcher: Launcher) -> None:
    Path("p.csv").write_text("lr,x\n1,a b\n2,c\n")
    Path("s.sh").write_text(first := rendered(launcher, "--sweep-file", "p.csv"))
    Path("p.csv").write_text("lr,x\n9,z\n")
    again = launcher("render", "--from", "s.sh")
    assert (again.code, in_script(again.out)) == (0, in_script(first))
    chosen = launcher("render", "--from", "s.sh", "--points", "1").out
    assert "#SBATCH --array=1\n" in chosen
    assert in_script(chosen) == in_script(first), "the numbers keep their meaning"
    other = launcher("render", "--from", "s.sh", "--sweep", "lr=5").out
    assert in_script(other) == ["lr=5"]
    Path("s.sh").write_text(first.replace("lr=2 x=c", "lr=2"))
    damaged = launcher("render", "--from", "s.sh")
    assert (damaged.code, "point 1 has different keys than the first" in damaged.err) == (2, True)


def test_a_billion_points_are_refused_quickly() -> None:
    """Expanded, they would need more memory than there is."""
    for text in ("0..999999999999", ",".join(["0..999999999"] * 20)):
        with pytest.raises(ValueError, match=r"points \(.*\); the maximum is 100,000"):
            LaunchSpec(**NEEDED, sweep={"a": text, "b": text})


def test_a_template_must_write_the_points() -> None:
    Path("own.j2").write_text("#!/bin/bash\n{{ directives }}\n{{ spec.command | raw }}\n")
    spec = LaunchSpec(exp_name="t", command="echo {lr}", sweep={"lr": "1,2"}, template="own.j2")
    with pytest.raises(UsageError, match="the template leaves out the points of the sweep"):
        render(spec)


def test_bash_reads_the_line_of_its_task() -> None:
    """A key may have the name of a variable of the script."""
    found = Points(("slaunch_nodes", "slaunch_command"), [("1", "a"), ("it's", 'b "$HOME"')])
    body = "\n".join(found.lines())
    script = render(LaunchSpec(**NEEDED, sweep={"lr": "1,2"}))
    code = f"""finish() {{ echo "$@"; exit "$1"; }}; say() {{ echo "$@"; }}; slaunch_nodes=(n1 n2)
slaunch_command='printf "<%s>" "$slaunch_nodes" "$slaunch_command"'
mapfile -t slaunch_points <<'END_OF_POINTS'\n{body}\nEND_OF_POINTS
{functions(script, "choose_point")}
choose_point; bash -c "$slaunch_command"; echo "${{slaunch_nodes[1]}}" """

    def said(task: str) -> tuple[int, str]:
        env = {"SLURM_ARRAY_TASK_ID": task} if task else {}
        done = subprocess.run(["/bin/bash", "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout

    assert said("1") == (0, f'point number=1 {found.lines()[1]}\n<it\'s><b "$HOME">n2\n')
    assert said("2") == (77, "77 script-failed the sweep has no point 2 its points are 0 to 1\n")
    assert said("")[1].startswith(
        "77 script-failed a sweep needs a task number submit it as an array: sbatch --array=0-1"
    )
