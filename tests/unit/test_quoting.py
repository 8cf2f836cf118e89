"""Every value reaches the job byte for byte, through bash and through #SBATCH, or is refused."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from slurm_launch import LaunchSpec
from slurm_launch.errors import UsageError
from slurm_launch.launch.script import sweep_tasks
from slurm_launch.rehearsal.directive_parser import words
from slurm_launch.rendering.render import render_script
from slurm_launch.rendering.templates import shell_word
from slurm_launch.spec.model import options
from slurm_launch.spec.script_header import read_embedded
from tests.script_parts import loaded

WHEN = datetime(2026, 1, 2, tzinfo=timezone.utc)
SPECIAL = "'\"\\$`!*?~#%{}()[];&|<>=,: \t\u00a0éß漢🙂-/@^+."
ODD = " -'\"\\$HOME`id`!*?~#%j%%{a,b}(x)[y];&|<é漢🙂>\t\\"  # one of each, with a space and a backslash at the ends
TEMP_DIR = "/t.x_%u+@=-"

texts = st.text(
    st.one_of(st.sampled_from(SPECIAL), st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])), min_size=1
)
lines = texts.filter(str.strip)
multiline = st.text(st.one_of(st.sampled_from(SPECIAL + "\n"), st.characters(exclude_categories=["Cs", "Cc"])))
quick = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def render(**given: Any) -> str:
    spec = LaunchSpec(**{"exp_name": "x", "command": "true", **given})
    sweep = sweep_tasks(spec, None)
    return render_script(spec, name="x_1", when=WHEN, run_dir=spec.run_dir, points=sweep.points, tasks=sweep.tasks)


# --- bash ------------------------------------------------------------------------------------------------------------

# Stubs for what the environment calls, and for `ray`, which the script looks for; each call is reported.
STUBS = r"""
exec 3>&1 >/dev/null
report() { printf '%s\0' "$#" "$@" >&3; }
module() { report module "$@"; }
conda() { report conda "$@"; }
source() { report source "$@"; }
ray() { :; }
"""
WITNESS = r"""
reset_shell
report run "$slaunch_run"
report temp_dir "$slaunch_temp_base"
report srun_arg "${slaunch_srun_args[@]}"
report ray_arg "${slaunch_ray_args[@]}"
report ray_head_arg "${slaunch_ray_head_args[@]}"
report ray_worker_arg "${slaunch_ray_worker_args[@]}"
report command "$slaunch_command"
"$BASH" -c 'printf "%s\0" 2 env "$1" >&3' - "$(printenv VALUE && echo .)" # as another program finds it
trap - EXIT
"""


def arrived(script: str) -> dict[str, list[str]]:
    """Run the settings and the environment in bash; return the values that result, by name."""
    argv = ["bash", "-c", STUBS + loaded(script) + WITNESS]
    done = subprocess.run(argv, capture_output=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    assert (done.returncode, done.stderr) == (0, b"")
    fields = iter(done.stdout.decode().split("\0")[:-1])
    calls = [[next(fields) for _ in range(int(count))] for count in fields]
    return {call[0]: call[1:] for call in calls}


any_text = st.text(st.one_of(st.sampled_from(SPECIAL + "\n\r\b\x1b\x7f"), st.characters(exclude_categories=["Cs"])))
in_quotes = ["", "a", "1", "-", "~", "a=b", "a='b", "!x'", "\\", "\\'", "'\\\n", "\n", '"$x"', "`\\``", "continue", ODD]


@quick
@given(texts=st.lists(any_text.filter(lambda text: "\0" not in text), max_size=20))
@example(texts=in_quotes)
@example(texts=[f"{text}'" for text in in_quotes])
@example(texts=list(map(chr, range(1, 0x180))))
def test_bash_gives_back_the_bytes_of_a_word(texts: list[str]) -> None:
    """As an argument, as the value of a variable, and as an element of an array, in any locale."""
    words = [shell_word(text) for text in texts]
    code = [f"printf '%s\\0' {word}\n" for word in words]
    code += [f"variable={word}\nprintf '%s\\0' \"$variable\"\n" for word in words]
    code += [f"export variable={word}\nprintf '%s\\0' \"$variable\"\n" for word in words]
    # bash duplicates \x01 and \x7f between double quotes in an array. No option with several values accepts them.
    elements = [text for text in texts if not set("\x01\x7f") & set(text)]
    array = " ".join(map(shell_word, elements))
    code.append(f'array=({array})\nfor element in "${{array[@]}}"; do printf "%s\\0" "$element"; done\n')
    for locale in ("C", "C.UTF-8"):
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": locale}
        done = subprocess.run(["bash", "-s"], input="".join(code).encode(), capture_output=True, env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == "".join(f"{text}\0" for text in [*texts * 3, *elements]).encode()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/scratch/%u", "/scratch/%u"),
        ("a100:4", "a100:4"),
        ("2.60.0", "2.60.0"),
        ("--num-cpus=0", "--num-cpus=0"),
        ("continue", "'continue'"),
        ("", "''"),
        ("a b", "'a b'"),
        ('{"disk": 1}', "'{\"disk\": 1}'"),
        ("it's", '"it\'s"'),
        ("$HOME", '"\\$HOME"'),
        ("a\\b", "'a\\b'"),
        ("é", "'é'"),
    ],
)
def test_words_are_easy_to_read(text: str, word: str) -> None:
    assert shell_word(text) == word


# option: how to set it to a text, the name of the result, and the expected result
BY_SHELL: dict[str, tuple[Any, str, Any]] = {
    "run_dir": (lambda text: text, "run", lambda text: [os.path.join(os.getcwd(), f"{text.rstrip('/')}/x_1")]),
    "temp_dir": (lambda text: text, "temp_dir", lambda text: [text]),
    "env": (lambda text: {"VALUE": text}, "env", lambda text: [f"{text}\n."]),
    "modules": (lambda text: ["first", text], "module", lambda text: ["load", text]),
    "conda_env": (lambda text: text, "conda", lambda text: ["activate", text]),
    "venv": (lambda text: text, "source", lambda text: [f"{text}/bin/activate"]),
    "srun_arg": (lambda text: [text, "x", text], "srun_arg", lambda text: [text, "x", text]),
    "ray_arg": (lambda text: [text, "x", text], "ray_arg", lambda text: [text, "x", text]),
    "ray_head_arg": (lambda text: [text, "x", text], "ray_head_arg", lambda text: [text, "x", text]),
    "ray_worker_arg": (lambda text: [text, "x", text], "ray_worker_arg", lambda text: [text, "x", text]),
    "command": (lambda text: text, "command", lambda text: [f"{text}\n"]),
    "load_env": (lambda text: f"report load_env {shlex.quote(text)}", "load_env", lambda text: [text]),
}
# Read by the launcher only: they select files, and appear only in the script's header.
NOT_IN_THE_JOB = {"template", "profile", "config"}


def by_directive() -> set[str]:
    """Options whose text appears unchanged in a #SBATCH line."""
    return {name for name, option in options().items() if option.sbatch} & text_options()


def text_options() -> set[str]:
    """Options that accept text of any kind, according to their JSON schema."""
    properties = LaunchSpec.model_json_schema()["properties"]
    found = set()
    for name in options():
        schema = properties[name.replace("_", "-")]
        kinds = [part for part in schema.get("anyOf", [schema]) if part.get("type") in ("string", "array", "object")]
        if any("enum" not in kind for kind in kinds):
            found.add(name)
    return found


def test_every_text_option_is_covered() -> None:
    """A new text option must be added to BY_SHELL, unless it is a directive."""
    others = {"exp_name", "gpu_type", "interface", "port_range", "sbatch", "no_sbatch"}  # tested below
    others |= {"container_arg", "container_setup"}  # likewise
    others |= {"checkpoint_dir"}  # tests/unit/test_long_jobs.py
    others |= {"head_mem", "head_partition", "head_constraint", "worker_group"}  # likewise
    others |= {"after", "after_ok", "after_any", "after_notok"}  # test_dependencies.py
    others |= {"sweep", "sweep_file", "points"}  # tests/unit/test_sweep_points.py, test_placeholders.py
    # These accept plain characters only: tests/unit/test_container_runtimes.py, tests/unit/test_long_jobs.py
    plain = {"container_image", "container_mounts", "container_workdir", "head_image", "worker_image"}
    plain |= {"checkpoint_signal"}
    assert text_options() == set(BY_SHELL) | by_directive() | others | plain | NOT_IN_THE_JOB


@pytest.mark.parametrize("name", BY_SHELL)
def test_text_survives_the_shell(name: str) -> None:
    put, where, expected = BY_SHELL[name]
    kind = multiline.filter(str.strip) if name in ("command", "env", "load_env") else lines
    if name == "temp_dir":
        kind = st.from_regex(r"/[A-Za-z0-9._/%+@=-]{1,19}", fullmatch=True)  # Ray supports no others
    if name == "run_dir":
        kind = lines.filter(lambda text: "\\" not in text and text.rstrip("/") != "." and text.strip("/"))

    @quick
    @given(text=kind)
    @example(text={"temp_dir": TEMP_DIR, "run_dir": ODD.replace("\\", "")}.get(name, ODD))
    def check(text: str) -> None:
        assert arrived(render(**{name: put(text)}))[where] == expected(text)

    check()


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer", "podman", "shifter", "charliecloud"])
def test_text_for_a_container_survives_the_shell(runtime: str) -> None:
    """An argument reaches the runtime; setup code runs before the program, in the same shell."""

    @quick
    @given(text=lines)
    @example(text=ODD)
    def check(text: str) -> None:
        setup = f"printf '%s\\0' {shlex.quote(text)}"
        script = render(
            container_runtime=runtime, container_image="x", container_arg=[text, "last"], container_setup=[setup]
        )
        stubs = "srun() { echo --container-image; }; check_container() { :; }; start_container_keeper() { :; }\n"
        witness = (
            "set_up_container\ntrap - EXIT\n"
            'printf "%s\\0" "${slaunch_head_step[@]}" "${slaunch_head_enter[@]}" END\n'
            'exec "${slaunch_head_enter[@]: -4}" echo PROGRAM'
        )
        done = subprocess.run(
            ["bash", "-c", loaded(script) + stubs + witness], capture_output=True, env={"PATH": "/usr/bin:/bin"}
        )
        *words, end, program = done.stdout.decode().split("\0")
        assert words[words.index(text) + 1] == "last"
        assert (end, program) == ("END", "PROGRAM\n")
        # Its output must not mix with that of the program: the script reads versions and addresses from it.
        assert (done.returncode, done.stderr.decode()) == (0, f"{text}\0")

    check()


@pytest.mark.parametrize(
    "command", ["END_OF_COMMAND", "a\nEND_OF_COMMAND\nEND_OF_COMMAND_\nb", "END_OF_COMMAND\n", "a\n\n", "\ta"]
)
def test_a_command_may_contain_its_end_mark(command: str) -> None:
    assert arrived(render(command=command))["command"] == [f"{command}\n"]


@pytest.mark.parametrize(
    "text", ["END_OF_ENVIRONMENT", "a\nEND_OF_ENVIRONMENT\nEND_OF_ENVIRONMENT_\nb", "a\n\n", "\ta"]
)
def test_the_environment_may_contain_its_end_mark(text: str) -> None:
    assert arrived(render(env={"VALUE": text}))["env"] == [f"{text}\n."]
    code = f"report load_env {shlex.quote(text)}\ncat <<'END' >/dev/null\n{text}\nEND"
    assert arrived(render(load_env=[code]))["load_env"] == [text]


@quick
@given(text=lines)
@example(text=ODD)
def test_a_failing_environment_names_the_cause(text: str) -> None:
    script = STUBS.replace("conda() {", "conda() { false; }; other() {") + render(conda_env=text)
    argv = ["bash", "-c", script.replace("exec 3>&1 >/dev/null", "exec 3>/dev/null")]
    done = subprocess.run(argv, capture_output=True, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 73
    # The last line has the cause in double quotes; those inside it become single quotes.
    assert f"conda activate {text}".replace('"', "'").encode() in done.stdout


def test_bash_and_shellcheck_accept_odd_values(tmp_path: Path) -> None:
    """shellcheck reports values as errors: `'$HOME'`, `a,b` in an array, a setting called `continue`."""
    script = tmp_path / "x.sh"
    given = {
        name: put("$HOME,`x` 'y' \"z\"")
        for name, (put, _, _) in BY_SHELL.items()
        if name not in ("command", "temp_dir")
    }
    script.write_text(render(**given, comment="$x", on_node_loss="continue"), encoding="utf-8")
    for argv in (["bash", "-n"], [str(Path(sys.executable).with_name("shellcheck")), "--norc"]):
        done = subprocess.run([*argv, str(script)], capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


# --- the spec in the header ------------------------------------------------------------------------------------------


@quick
@given(command=multiline.filter(str.strip), comment=lines, env=multiline)
def test_the_header_has_the_same_values(command: str, comment: str, env: str) -> None:
    script = render(command=command, comment=comment, env={"A": env})
    own = {"exp-name": "x", "command": command, "comment": comment, "env": {"A": env}}
    assert read_embedded(script, "x.sh").own == own


# --- #SBATCH ---------------------------------------------------------------------------------------------------------


def directives(script: str) -> list[str]:
    """All arguments that sbatch reads in a script: one per line, up to the first line of code."""
    found: list[str] = []
    for line in script.split("\n"):
        if line and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            (word,) = words(line)
            found.append(word)
    return found


def accepts(name: str, text: str) -> bool:
    try:
        LaunchSpec(**{"exp_name": "x", "command": "true", name: text})
    except ValidationError:
        return False
    return True


def test_directives_that_accept_any_text() -> None:
    free = {
        *("account", "begin", "chdir", "comment", "constraint", "deadline", "licenses", "mail_type", "mail_user"),
        *("partition", "qos", "reservation"),
    }
    assert {name for name in by_directive() if accepts(name, ODD)} == free


@quick
@given(name=st.sampled_from(sorted(by_directive())), text=lines)
@example(name="comment", text=ODD)
def test_text_survives_a_directive(name: str, text: str) -> None:
    if accepts(name, text):
        assert f"--{options()[name].sbatch}={text}" in directives(render(**{name: text}))


@quick
@given(text=lines.filter(lambda text: not set("[]") & set(text)))
@example(text=re.sub(r"[][]", "", ODD).strip())
@example(text='"')
def test_text_survives_the_directives_of_a_component(text: str) -> None:
    text = text.strip()
    script = render(head_partition=f"{text}1", head_constraint=f"{text}2", worker_group=[{"n": 1, "partition": text}])
    found = [word for word in directives(script) if word.startswith(("--partition", "--constraint", "hetjob"))]
    assert found == [f"--constraint={text}2", f"--partition={text}1", "hetjob", f"--partition={text}"]


@quick
@given(text=texts)
@example(text=ODD)
def test_text_survives_a_directive_of_the_users_own(text: str) -> None:
    assert directives(render(sbatch={"wckey": text}))[-1] == f"--wckey={text}"


@quick
@given(text=lines)
@example(text=ODD)
def test_text_survives_as_the_gpu_type(text: str) -> None:
    given: dict[str, Any] = {"num_gpus": 2, "gpu_type": text}
    assert f"--gpus-per-node={text}:2" in directives(render(**given))
    assert f"--gres=gpu:{text}:2" in directives(render(**given, gpu_directive="gres"))


@quick
@given(text=lines.filter(lambda text: "\\" not in text and text.rstrip("/") != "." and text.strip("/")))
@example(text=ODD.replace("\\", ""))
def test_the_path_of_the_log(text: str) -> None:
    """Slurm replaces %% by %, and expands other patterns; tests/slurm checks the file itself."""
    log = f"{text.rstrip('/')}/x_1"
    (plain,) = [word for word in directives(render(run_dir=text)) if word.startswith("--output=")]
    assert not re.search(r"%[^%]", plain.replace("%%", ""))
    assert plain.replace("%%", "%") == f"--output={log}.log"
    (task,) = [word for word in directives(render(run_dir=text, array="0-3")) if word.startswith("--output=")]
    assert task == plain.removesuffix(".log") + "_%a.log"


def test_a_log_that_slurm_cannot_write_is_refused() -> None:
    with pytest.raises(UsageError, match="backslash") as caught:
        render(run_dir="a\\b")
    assert caught.value.at == "--run-dir"
    assert caught.value.hint


@pytest.mark.parametrize(
    "name", sorted(by_directive() | {"exp_name", "gpu_type", "interface", "port_range", "run_dir"})
)
@pytest.mark.parametrize("text", ["a\n#SBATCH --uid=0", "a\rb", "a\x0bb", "a\x85b", "a\u2028b", "a\0b", "a\x1bb"])
def test_no_value_starts_a_new_line(name: str, text: str) -> None:
    assert not accepts(name, text)


@pytest.mark.parametrize("name", ["exp_name", "interface", "port_range"])
def test_names_accept_no_odd_text(name: str) -> None:
    assert not [char for char in SPECIAL.replace("-", "") if accepts(name, f"{char}x{char}") and char not in "=:@^+."]


def test_directives_of_the_users_own_are_one_line_each() -> None:
    for sbatch in ({"comment": "a\nb"}, {"a\nb": "x"}, {"a b": "x"}, {"a=b c": None}, {"-J": "x"}):
        with pytest.raises(ValidationError):
            render(sbatch=sbatch)
    for name in ("a b", "mem\n", "a#b", "mem=4"):
        with pytest.raises(ValidationError):
            render(no_sbatch=[name])
