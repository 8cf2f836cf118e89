"""Bad options, files and commands: the message says what, where and what to do; code 2; nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.config.layers import types_of
from slurm_launch.slurm import array_ids
from slurm_launch.spec.checks import nonempty_line
from slurm_launch.spec.launch_spec import LaunchSpec

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "test", "--command", "python train.py")


def everything_written() -> list[str]:
    """All files and directories around the working directory."""
    return sorted(str(path) for path in Path.cwd().parent.rglob("*"))


@pytest.fixture(autouse=True)
def counting_sbatch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sbatch that leaves a file behind if it is ever called."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "sbatch").write_text(f"#!/bin/sh\ntouch {folder}/called\necho 1\n")
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def refused(launcher: Launcher, counting_sbatch: Path) -> Launcher:
    """A call that must be refused and leave nothing behind."""

    def call(*argv: str) -> Any:
        before = everything_written()
        answer = launcher(*argv)
        assert answer.code == 2, answer
        assert answer.out == ""
        assert answer.err.startswith("error: ")
        assert "Traceback" not in answer.err
        assert everything_written() == before
        assert not (counting_sbatch / "called").exists()
        return answer

    return call


BAD_NAMES = [
    ("", "--exp-name is empty"),
    ("a/b", "'a/b'"),
    ("..", "'..'"),
    ("a..b", "'a..b'"),
    (".hidden", "'.hidden'"),
    ("a\nb", r"'a\nb'"),
    ("-x", "'-x'"),
    ("x" * 300, "has 300 characters; the maximum is 100"),
    ("é", "'é'"),
    ("a b", "'a b'"),
    ("$(id)", "'$(id)'"),
]


@pytest.mark.parametrize(("name", "shown"), BAD_NAMES)
def test_exp_name(name: str, shown: str, refused: Launcher) -> None:
    answer = refused(f"--exp-name={name}", "--command", "true")
    assert answer.err.startswith("error: --exp-name ")
    assert shown in answer.err
    assert "at: flag --exp-name" in answer.err
    assert "hint: use letters, digits" in answer.err


def test_exp_name_with_a_nul() -> None:
    from slurm_launch.config.resolve import resolve
    from slurm_launch.errors import InvalidSpec

    with pytest.raises(InvalidSpec) as caught:  # a command line cannot contain one
        resolve({"exp_name": "a\0b", "command": "true"}, os.environ, Path.cwd()).spec()
    assert r"'a\x00b'" in str(caught.value)


# flag, value, what the message says after the flag, what the hint offers
BAD_VALUES = [
    ("--num-nodes", "0", "must be at least 1, not 0", "use 1 or more"),
    ("--num-nodes", "-1", "must be at least 1, not -1", "use 1 or more"),
    ("--num-nodes", "x", "is not a whole number: 'x'", "3"),
    ("--num-nodes", "1.5", "is not a whole number: '1.5'", "3"),
    ("--num-nodes", "", "is not a whole number: ''", "3"),
    ("--num-gpus", "-1", "must be at least 0, not -1", "use 0 or more"),
    ("--node", "n[1-", "is not a list of hosts: 'n[1-'", "gpu[01-03]"),
    ("--node", "n[5-1]", "is not a list of hosts: 'n[5-1]'", "gpu[01-03]"),
    ("--node", "n 1", "is not a list of hosts: 'n 1'", "gpu[01-03]"),
    ("--node", "", "is empty", "omit the option"),
    ("--command", "", "is empty", "specify the command"),
    ("--command", "   ", "is empty", "specify the command"),
    ("--command", "a\r\nb", "contains a carriage return", "Unix line ends"),
    ("--time", "soon", "is not a valid Slurm time: 'soon'", "1:30:00"),
    ("--time", "1:2:3:4", "is not a valid Slurm time", "1:30:00"),
    ("--time", "1.5", "is not a valid Slurm time", "1:30:00"),
    ("--mem", "4XB", "is not an amount of memory: '4XB'", "4G"),
    ("--mem", "-4G", "is not an amount of memory", "4G"),
    ("--mem", "4.5G", "is not an amount of memory", "4G"),
    ("--object-store-memory", "lots", "is not an amount of memory: 'lots'", "2G"),
    ("--dependency", "afterok", "is not a dependency: 'afterok'", "afterok:123"),
    ("--dependency", "whenever:12", "is not a dependency: 'whenever:12'", "afterok:123"),
    # What sbatch 22.05 refuses, and what it accepts with an unexpected meaning.
    ("--array", "9-0", "9-0 is a descending range", "0-9"),
    ("--array", "1,9-0", "9-0 is a descending range", "0-9"),
    ("--array", "a-b", "is not a job array: 'a-b'", "0-9"),
    ("--array", "0-9:0", "0-9:0 has a step of 0", "0-20:4"),
    ("--array", "1:2", "'1:2' is neither a number nor a range", "0-20:4"),
    ("--array", "0-9:2-9", "'0-9:2-9' is neither a number", "0-20:4"),
    ("--array", "1-", "'1-' is neither a number", "0-9"),
    ("--array", "-1", "'-1' is neither a number", "0-9"),
    ("--array", "0 - 9", "'0 - 9' is neither a number", "0-9"),
    ("--array", "1_000", "'1_000' is neither a number", "0-9"),
    ("--array", "\u0663", "is neither a number nor a range", "0-9"),
    ("--array", "", "is empty", "omit the option"),
    ("--array", "1,,2", "a number is missing", "1,3,5"),
    ("--array", "1,", "a number is missing", "1,3,5"),
    ("--array", "%3", "a number is missing", "0-9%3"),
    ("--array", "0-9%", "a number is missing after the %", "0-9%3"),
    ("--array", "0-9%x", "x is not a number of tasks after the %", "0-9%3"),
    ("--array", "0-9%2%3", "2%3 is not a number of tasks", "0-9%3"),
    ("--array", "1-3%2,5", "2,5 is not a number of tasks after the %, which comes last", "0-9%3"),
    ("--array", "0-9%0", "allows 0 concurrent tasks", "omit %0"),
    ("--array", "4000001", "the highest task number of Slurm is 4000000", "0-9"),
    ("--array", "0-" + "9" * 5000, "the highest task number of Slurm is 4000000", "0-9"),
    ("--sbatch", "array=0-3", "--array cannot be set here", "use --array"),
    ("--port-range", "80", "is not a valid port range: '80'", "20000-20999"),
    ("--port-range", "20000-20001", "is not a valid port range", "64 ports"),
    ("--port-range", "20000-99999", "is not a valid port range", "65535"),
    ("--port-range", "30000-20000", "is not a valid port range", "20000-20999"),
    ("--partition", "", "is empty", "omit the option"),
    ("--auth", "tokn", "has an invalid value: 'tokn'", "did you mean 'token'? choose from token, off"),
    ("--gpu-directive", "gress", "has an invalid value: 'gress'", "did you mean 'gres'?"),
    ("--ip-family", "5", "has an invalid value: '5'", "choose from auto, 4, 6"),
    ("--switches", "few", "is not a number of switches", "1@10:00"),
    ("--signal", "B:", "is not a signal", "B:USR1@120"),
    ("--interface", "a b", "is not the name of a network interface", "ip -br addr"),
    ("--temp-dir", "tmp", "is not an absolute path", "/tmp"),
    ("--signal", "USR1@120", "would be sent to Ray", "B:USR1@120"),
    ("--env", "slaunch_token=x", "slaunch_token is reserved for the script", "omit it"),
    ("--env", "A", "has no value: A", "A=value"),
    ("--env", "1A=2", "is not the name of a variable: '1A'", "NAME=value"),
    ("--sbatch", "output=x", ": --output cannot be set here", "--run-dir"),
    ("--sbatch", "-p=x", "is not a long option of sbatch", "long name"),
    ("--no-sbatch", "output", ": --output cannot be dropped", "--run-dir"),
]


@pytest.mark.parametrize(("flag", "value", "message", "hint"), BAD_VALUES)
def test_a_bad_value(flag: str, value: str, message: str, hint: str, refused: Launcher) -> None:
    rest = GOOD if flag != "--command" else GOOD[:2]
    err = refused(*rest, f"{flag}={value}").err
    assert err.startswith(f"error: {flag}")
    assert message in err.splitlines()[0]
    assert f"  at: flag {flag}" in err
    assert hint in err.partition("hint:")[2]
    assert err.count("error:") == 1


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-9", range(10)),
        ("7", [7]),
        ("5-5", [5]),
        ("1,3,5", [1, 3, 5]),
        ("0-20:4", range(0, 21, 4)),
        ("0-9:20", [0]),
        ("0-9:2,20%3", [0, 2, 4, 6, 8, 20]),
        ("1,1,2,1-3", [1, 2, 3]),
        ("00-03", range(4)),
        ("[1,3]%2", [1, 3]),
        ("4000000%999999999", [4000000]),
    ],
)
def test_array_notations_that_sbatch_accepts(text: str, numbers: Iterable[int]) -> None:
    """As `scontrol show job` of Slurm 22.05 shows them."""
    array = LaunchSpec(exp_name="x", command="true", array=text).array
    assert array == text.replace("[", "").replace("]", "")
    assert array_ids.array_numbers(array) == list(numbers)


def is_one_line(name: str) -> bool:
    """Whether an option's declaration has the check for text on one line."""
    parts = [*types_of(name), *LaunchSpec.model_fields[name].metadata]
    return any(getattr(part, "func", None) is nonempty_line for part in parts)


ONE_LINE_TEXTS = [name for name in LaunchSpec.model_fields if is_one_line(name) and name not in ("profile", "config")]


def test_many_options_are_one_line_texts() -> None:
    assert {"partition", "comment", "modules", "ray_arg", "run_dir", "mail_user"} <= set(ONE_LINE_TEXTS)


@pytest.mark.parametrize("name", [*ONE_LINE_TEXTS, "node", "exclude", "time", "mem"])
def test_a_line_break_cannot_inject_a_line(name: str, refused: Launcher) -> None:
    flag = "--" + name.replace("_", "-")
    err = refused(*GOOD, f"{flag}=x\n#SBATCH --account=mine").err
    assert err.startswith(f"error: {flag} ")
    assert r"\n" in err.splitlines()[0]
    assert f"at: flag {flag}" in err


def test_a_line_break_in_any_directive(refused: Launcher) -> None:
    err = refused(*GOOD, "--sbatch", "gres=a\nb").err
    assert err.startswith("error: --sbatch contains a line break")


def test_a_line_break_from_a_file(refused: Launcher) -> None:
    Path("slurm-launch.yaml").write_text('comment: "a\\nb"\n')
    err = refused(*GOOD).err
    assert err.startswith("error: --comment contains a line break")
    assert f"at: {Path.cwd()}/slurm-launch.yaml:1" in err


def test_a_billion_hosts_are_refused_quickly(refused: Launcher) -> None:
    begin = time.monotonic()
    for hosts in ("n[1-1000000000]", "n[1-99999][1-99999]", "n[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"):
        err = refused(*GOOD, "--node", hosts).err
        assert err.startswith("error: --node is not a list of hosts")
    assert time.monotonic() - begin < 5


def test_node_and_num_nodes_contradict(refused: Launcher) -> None:
    Path("slurm-launch.yaml").write_text("num-nodes: 2\n")
    err = refused(*GOOD, "--node", "gpu[01-03]").err
    assert "error: --node names 3 hosts but --num-nodes is 2" in err
    assert f"at: flag --node, {Path.cwd()}/slurm-launch.yaml:1" in err
    assert "hint: make them agree" in err


def test_min_nodes_beyond_the_nodes(refused: Launcher) -> None:
    err = refused(*GOOD, "-n", "2", "--min-nodes", "3").err
    assert "error: --min-nodes 3 is more than the 2 nodes" in err


def test_two_memory_flags(refused: Launcher) -> None:
    err = refused(*GOOD, "--mem", "4G", "--mem-per-cpu", "1G").err
    assert err.startswith("error: --mem and --mem-per-cpu are mutually exclusive")
    assert "at: flag --mem, flag --mem-per-cpu" in err
    assert "hint: use one of them" in err


def test_nothing_given(refused: Launcher) -> None:
    err = refused("submit").err
    assert "error: --exp-name is missing" in err
    assert "slurm-launch --exp-name test --command" in err
    assert "error: --command is missing" in err
    assert "-- python train.py" in err


def test_both_forms_of_the_command(refused: Launcher) -> None:
    err = refused(*GOOD, "--", "python", "other.py").err
    assert err.startswith("error: --command and a command after -- are mutually exclusive")
    assert "hint: use one of them" in err


def test_a_quoted_command_after_the_dashes(refused: Launcher) -> None:
    err = refused("--exp-name", "x", "--", "python train.py").err
    assert "one quoted word" in err
    assert "--command 'python train.py'" in err


def test_nothing_after_the_dashes(refused: Launcher) -> None:
    assert "error: --command is missing" in refused("--exp-name", "x", "--").err


@pytest.mark.parametrize(
    "argv",
    [("--exp-name", "x", "--command", "python", "train.py"), ("--exp-name", "x", "python", "a.py"),
     ("--exp-name", "x", "stray", "--", "python", "a.py")],
)  # fmt: skip
def test_a_stray_argument(argv: tuple[str, ...], refused: Launcher) -> None:
    err = refused(*argv).err
    assert "error: unexpected argument" in err
    assert "hint: quote the value it belongs to" in err


def test_an_unknown_flag(refused: Launcher) -> None:
    err = refused(*GOOD, "--num-node", "3").err
    assert "--num-node" in err
    assert "--num-nodes" in err, "what was probably meant"
    assert "hint: `slurm-launch submit --help`" in err


def test_an_unknown_verb(refused: Launcher) -> None:
    assert "submit" in refused("sumbit").err


def test_a_flag_without_its_value(refused: Launcher) -> None:
    assert "--time" in refused(*GOOD, "--time").err


def test_json_and_parsable(refused: Launcher) -> None:
    assert "--json and --parsable are mutually exclusive" in refused(*GOOD, "--json", "--parsable").err


def test_several_problems_are_reported_at_once(refused: Launcher) -> None:
    Path("slurm-launch.yaml").write_text("mem: 4XB\ntiem: 3\n")
    err = refused("--exp-name", "a b", "--command", "", "--auth", "no").err
    assert err.count("error:") == 5
    assert err.count("hint:") == 5
    assert err.count("  at: ") == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tiem: 3", ("unknown key 'tiem'", "slurm-launch.yaml:1", "did you mean 'time'?")),
        ("\nnum-nodes: many", ("--num-nodes is not a whole number: 'many'", "slurm-launch.yaml:2", "3")),
        ("exp-name: [a]", ("exp-name takes one value, not a list", "slurm-launch.yaml:1", "exp-name: VALUE")),
        ("time: 1\naccount: 'x", ("not valid YAML", "slurm-launch.yaml:2", "quote texts")),
    ],
)
def test_a_bad_project_file(text: str, expected: tuple[str, str, str], refused: Launcher) -> None:
    Path("slurm-launch.yaml").write_text(text)
    err = refused(*GOOD).err
    for part in expected:
        assert part in err


def test_a_missing_profile(refused: Launcher) -> None:
    err = refused(*GOOD, "--profile", "nowhere").err
    assert err.startswith("error: --profile names a profile that does not exist: 'nowhere'")
    assert "at: flag --profile" in err
    assert "config init --profile nowhere" in err


def test_terminal_commands_in_a_value_are_not_obeyed(refused: Launcher) -> None:
    err = refused(*GOOD, "--partition", "\033[2J\033]0;owned\007").err
    assert "\033" not in err
    assert r"\x1b" in err
    assert "\033" not in refused(*GOOD, "--\033[2Jx").err


@pytest.mark.parametrize("verb", ["submit", "render", "check", "bare"])
def test_every_verb_refuses_alike(verb: str, refused: Launcher) -> None:
    err = refused(*([] if verb == "bare" else [verb]), *GOOD, "--mem", "4XB").err
    assert err == (
        "error: --mem is not an amount of memory: '4XB'\n  at: flag --mem\n"
        "  hint: write a whole number with K, M, G or T, for example 4G; without a unit it means megabytes\n"
    )


def test_as_a_process(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "slurm_launch", "--exp-name", "a/b", "--", "true"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --exp-name is not valid as a file name")
    argv[4] = os.fsdecode(b"caf\xe9")  # bytes that are not UTF-8
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --exp-name")
    assert list(Path.cwd().iterdir()) == []
