"""How generated scripts are built: settings, functions, and last the call of `main`."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.script_parts import all_functions, assigned_variables, bare_code, called, local_variables, settings, story
from tests.unit.test_golden import CASES, rendered

each_case = pytest.mark.parametrize("case", CASES)


def prefixed(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("slaunch_")}


# --- a truncated copy ------------------------------------------------------------------------------------------------

LINES = rendered("three-nodes").splitlines(keepends=True)
# Up to the lines that load the environment, every cut leaves definitions only.
START = LINES.index("set_up_exit_and_signals\n")
# About twenty, and every line around the two here-documents and at the end.
HERE_DOCUMENTS = [place + 1 for place, line in enumerate(LINES) if "END_OF_" in line]
CUTS = sorted(
    {*range(0, START, START // 20), *HERE_DOCUMENTS, *(place - 1 for place in HERE_DOCUMENTS), START - 1, START}
)


def run_copy(folder: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a script on a machine whose programs all fail, and note in the file `called` that they were started."""
    stubs = folder / "bin"
    stubs.mkdir()
    for program in (
        "srun",
        "scontrol",
        "squeue",
        "mkdir",
        "mkfifo",
        "rm",
        "ray",
        "getent",
        "ip",
        "od",
        "df",
        "timeout",
    ):
        (stubs / program).write_text(f'#!/bin/bash\necho "{program} $*" >>"{folder}/called"\nexit 1\n')
        (stubs / program).chmod(0o755)
    script = folder / "copy.sh"
    script.write_text("".join(lines))
    slurm = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
    env = {**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **slurm}
    argv = ["bash", str(script)]
    work = folder / "empty"
    work.mkdir()
    done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert list(work.iterdir()) == []
    return done


@pytest.mark.parametrize("cut", CUTS)
def test_a_truncated_copy_does_nothing(tmp_path: Path, cut: int) -> None:
    done = run_copy(tmp_path, LINES[:cut])
    assert not (tmp_path / "called").exists()
    assert done.stdout == ""
    assert done.returncode in (0, 1, 2)  # 1 and 2: a syntax error, or the last command was a `read`
    errors = re.sub(r".* warning: here-document .*\n", "", done.stderr)
    assert not errors or re.search(r"syntax error|unexpected EOF", errors), errors


@pytest.mark.parametrize("cut", range(START + 1, len(LINES)))
def test_a_copy_without_its_last_lines_only_says_so(tmp_path: Path, cut: int) -> None:
    """It may load the environment, and ask Slurm whether the job was canceled meanwhile, but starts nothing."""
    done = run_copy(tmp_path, LINES[:cut])
    called = tmp_path / "called"
    assert not called.exists() or called.read_text() == "timeout 2 squeue -h -t all -j 7 -o %T\n"
    assert (done.returncode, done.stderr) == (77, "")
    (line,) = done.stdout.splitlines()
    assert 'end outcome=script-failed code=77 phase=environment job=7 total=0s cause="the script itself ended"' in line


def test_a_whole_copy_does_something(tmp_path: Path) -> None:
    """Otherwise the tests above would pass with any script."""
    run_copy(tmp_path, LINES)
    assert "scontrol show hostnames" in (tmp_path / "called").read_text()


@each_case
def test_only_the_last_lines_do_something(case: str) -> None:
    """Everything else is a setting, a function or a comment."""
    patterns = [
        r"unalias -a #.*",
        r"slaunch_functions=\$\(own_functions\)",
        r"set_up_exit_and_signals",
        r"slaunch_loading=1",
        r"eval \"\$slaunch_environment\".* \|\| environment_failed '.*'",
        r"slaunch_loading=''",
        r"set [-+a-zA-Z ]+",
        r"unalias -a",
        r"eval \"\$slaunch_functions\"( #.*)?",
        r"main",
    ]
    rest = settings_and_functions_removed(rendered(case))
    assert [line for line, pattern in zip(rest, patterns, strict=True) if not re.fullmatch(pattern, line)] == []


def settings_and_functions_removed(script: str) -> list[str]:
    for function in all_functions(script).values():
        script = script.replace(function, "")
    below = script.removeprefix(settings(script))
    return [line for line in below.splitlines() if line and not line.startswith("#")]


@each_case
def test_settings_come_before_the_story(case: str) -> None:
    """They are assignments and here-documents only."""
    above = re.sub(r"<<'(\w+)'\n.*?^\1$", "", settings(rendered(case)), flags=re.DOTALL | re.MULTILINE)
    code = [line for line in bare_code(above).splitlines() if line.strip()]
    read = r"IFS= read -r -d \"\" slaunch_(environment|command|container_setup) ?|mapfile -t slaunch_points ?"
    assert [line for line in code if not re.fullmatch(rf"slaunch_\w+=(\(.*\)|\S*)|{read}", line)] == []


# --- functions -------------------------------------------------------------------------------------------------------


@each_case
def test_every_function_is_used(case: str) -> None:
    """What a job does not use is not in its script."""
    script = rendered(case)
    found = all_functions(script)
    rest = {name: called(function, set(found)) for name, function in found.items()}
    used = {other for name, others in rest.items() for other in others if other != name}
    start = "\n".join(settings_and_functions_removed(script))
    used |= {name for name in found if re.search(rf"\b{name}\b", start)}
    assert set(found) - used == set()


@each_case
def test_every_step_of_the_story_is_a_function(case: str) -> None:
    script = rendered(case)
    assert set(story(script)) <= set(all_functions(script))


# --- variables -------------------------------------------------------------------------------------------------------

# What users' programs find in their environment: nothing else of it is changed.
FOR_PROGRAMS = {
    *("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_TMPDIR", "TMPDIR"),
    *("RAY_raylet_client_num_connect_attempts", "RAY_raylet_client_connect_timeout_milliseconds"),
    *("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT"),
    *("SLAUNCH_LINK", "SLAUNCH_NODE_DIR", "SLAUNCH_RESTART", "SLAUNCH_RUN_DIR", "SLAUNCH_SET"),
    *("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "RAY_memory_monitor_refresh_ms", "RAY_memory_usage_threshold"),
    *("RAY_gcs_rpc_server_connect_timeout_s", "RAY_gcs_server_request_timeout_seconds"),
    "RAY_worker_register_timeout_seconds",
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "VLLM_HOST_IP"),
    *("HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
}
OF_BASH = {"IFS", "SECONDS", "_"}
FOR_ONE_CALL = {"BASH_ENV", "PATH", "SLURM_TIME_FORMAT", "SLAUNCH_PROGRAM"}
# In the subshell that becomes an srun, and of a heterogeneous job's group.
OF_SLURM = {"SLURM_OOM_KILL_STEP", "SLURM_JOB_CPUS_PER_NODE"}
# These start a step, Ray or the command, or save the environment of the command. Their callers are still active then.
STARTERS = {"start_step", "start_command", "start_ray", "in_head_container", "save_environment_for_attach"}


@each_case
def test_every_variable_of_ours_is_prefixed_or_local(case: str) -> None:
    """A variable of the user's, exported or not, is never overwritten."""
    for name, function in all_functions(rendered(case)).items():
        names = assigned_variables(function)
        others = names - prefixed(names) - local_variables(function) - FOR_PROGRAMS - OF_BASH - FOR_ONE_CALL - OF_SLURM
        assert others == set(), name


@each_case
def test_no_local_variable_hides_one_from_the_programs(case: str) -> None:
    """A local variable of the same name as an exported one is exported in its place."""
    found = all_functions(rendered(case))
    active = STARTERS & set(found)
    assert {"start_step", "start_ray"} <= active
    while more := {name for name, function in found.items() if called(function, active)} - active:
        active |= more
    assert "main" in active
    for name in active:
        names = local_variables(found[name])
        assert names == prefixed(names), name


def test_what_is_active_when_a_step_starts() -> None:
    """The rule above looks at these at least."""
    found = all_functions(rendered("het-pyxis"))
    known = {"slaunch_first", "slaunch_last", "slaunch_size", "slaunch_steps"}
    assert local_variables(found["start_workers"]) == known
    step = {"slaunch_step", "slaunch_first_index", "slaunch_fd", "slaunch_nodelist"}
    assert local_variables(found["start_step"]) == step
    assert local_variables(found["in_head_container"]) == {"slaunch_pid", "slaunch_signal", "slaunch_early"}
    assert local_variables(found["run_command"]) == local_variables(found["start_command"]) == set()


def test_bash_exports_a_local_variable_in_the_place_of_an_exported_one() -> None:
    """The reason for the rule."""
    code = "f() { local x=ours; printenv x; }; f"
    done = subprocess.run(["bash", "-c", code], env={**os.environ, "x": "yours"}, capture_output=True, text=True)
    assert done.stdout == "ours\n"


# --- the reader of the scripts ---------------------------------------------------------------------------------------

FUNCTION = r"""f() {
  local a="b c=d" e=$((1 + 2)) g=($(ls "h i") j) # local k
  read -r -t 1 -u "$l" m n <<<"o=p"
  mapfile -t q < <(r=1)
  printf -v s '%s,' "$@"
  exec {t}<> <(:)
  for u in "${v[@]}"; do w[x]+=1; done
  for ((y = 0; y < 3; y++)); do
    export z="it's $(echo ")") \" done"
  done
  say aa=1 bb \
    cc=2
  case $dd in
    ee=*) ff=${dd#*=} ;; # don't
  esac
}
"""


def test_the_variables_of_a_function() -> None:
    assert local_variables(FUNCTION) == {"a", "e", "g"}
    assert assigned_variables(FUNCTION) == {*"aegmnqstuwyz", "ff"}


def test_the_calls_of_a_function() -> None:
    names = {"say", "ls", "local", "don", "dd", "aa", "f"}
    assert called(FUNCTION, names) == {"say", "ls", "local"}
