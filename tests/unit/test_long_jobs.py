"""The options for work that is longer than a job, how the script handles them, and the attempts in its log."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, render
from slurm_launch.config import resolve
from slurm_launch.launch import hints
from slurm_launch.runs import log_phases
from slurm_launch.runs.log_phases import Attempts
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.status.lookup import with_attempt
from slurm_launch.status.task import Task
from tests.processes import run_bash
from tests.script_parts import all_functions, functions, loaded, settings

Launcher = Callable[..., Any]  # tests/unit/conftest.py
WHEN = datetime(2026, 1, 2, tzinfo=timezone.utc)


def script(**options: Any) -> str:
    return render(LaunchSpec(exp_name="x", command="true", **options), name="x", when=WHEN)


BAD = [
    (["--signal-before", "0"], "--signal-before must be 30 to 65535 seconds, not 0"),
    (["--signal-before", "-5"], "--signal-before must be 30 to 65535 seconds, not -5"),
    (["--signal-before", "99999999"], "--signal-before must be 30 to 65535 seconds"),
    (["--signal-before", "soon"], "--signal-before is not a whole number"),
    (
        ["--signal-before", "3600", "--time", "60"],
        "--signal-before 3600 is not below the time limit: --time 60 is 3600",
    ),
    (
        ["--signal-before", "60", "--time", "0:45"],
        "--signal-before 60 is not below the time limit: --time 0:45 is 45 s",
    ),
    (["--signal-before", "60", "--signal", "B:USR1@60"], "--signal and --signal-before are mutually exclusive"),
    (["--max-restarts", "3"], "--max-restarts has no effect without --requeue"),
    (["--max-restarts", "-1", "--requeue"], "--max-restarts must be at least 0"),
    (["--checkpoint-signal", "USR1"], "--checkpoint-signal has no effect without --signal-before or --requeue"),
    (["--signal-before", "60", "--checkpoint-signal", "KILL"], "--checkpoint-signal is not a supported signal: 'KILL'"),
    (["--signal-before", "60", "--checkpoint-signal", "; rm"], "--checkpoint-signal is not a supported signal: '; rm'"),
    (["--env", "SLAUNCH_RUN_DIR=/x"], "SLAUNCH_RUN_DIR is reserved for the script"),
    (["--sbatch", "requeue"], "--sbatch requeue bypasses the script's restart handling"),
    (["--sbatch", "requeue", "--chain", "3"], "--sbatch requeue bypasses the script's restart handling"),
    (["--requeue", "--sbatch", "no-requeue"], "--requeue and --sbatch no-requeue are mutually exclusive"),
    (["--requeue", "--no-sbatch", "requeue"], "--no-sbatch requeue removes the directive that --requeue needs"),
    (["--signal-before", "99", "--no-sbatch", "signal"], "--no-sbatch signal removes the directive that --signal-"),
    (
        ["--signal-before", "100", "--sbatch", "signal=B:USR2@3"],
        "--signal-before and --sbatch signal are mutually exclusive",
    ),
    (["--signal-before", "100", "--sbatch", "time=1"], "--signal-before and --sbatch time are mutually exclusive"),
]


@pytest.mark.parametrize(("flags", "said"), BAD, ids=[" ".join(flags) for flags, _ in BAD])
def test_bad_options_are_refused(launcher: Launcher, flags: list[str], said: str) -> None:
    done = launcher("--exp-name", "x", "--command", "true", *flags)
    assert (done.code, done.out) == (2, "")
    assert said in done.err, done.err
    assert "Traceback" not in done.err


def test_a_signal_well_before_the_limit() -> None:
    for time in ("1:00:00", "2-0", "unlimited", "0", None):
        assert LaunchSpec(exp_name="x", command="true", time=time, signal_before=3599).signal_before == 3599


@pytest.mark.parametrize(
    ("options", "before", "signal", "restarts"),
    [
        ({"requeue": True}, "0", "'TERM'", "100"),
        ({"signal_before": 60}, "60", "USR1", ""),
        ({"signal_before": 60, "checkpoint_signal": "sigint", "requeue": True, "max_restarts": 0}, "60", "'INT'", "0"),
    ],
)
def test_the_settings_of_a_long_job(options: dict[str, Any], before: str, signal: str, restarts: str) -> None:
    text = script(**options)
    lines = settings(text).splitlines()
    assert f"slaunch_signal_before={before}" in lines
    assert f"slaunch_checkpoint_signal={signal}" in lines
    assert f"slaunch_max_restarts={restarts}" in lines
    assert ("#SBATCH --signal=B:USR1@60\n" in text) == ("signal_before" in options)
    assert ("#SBATCH --requeue\n" in text) == ("requeue" in options)
    assert {"requeue", "requeue_or_say_why_not", "ask_command_to_save"} <= set(all_functions(text))


def test_other_jobs_contain_none_of_it() -> None:
    text = script(signal="B:USR1@60")
    assert not re.search(r"slaunch_(max_)?restart|slaunch_(signal_before|reason)|SLAUNCH_RUN_DIR|\brequeue\(", text)


def test_common_lines_of_both_kinds_of_scripts_are_equal() -> None:
    """Both end alike, with the same last line; only these functions differ, or have an addition."""
    plain, long = all_functions(script()), all_functions(script(requeue=True, signal_before=60))
    assert {name for name in plain if plain[name] != long[name]} == {
        "main",
        "finish",
        "set_up_exit_and_signals",
        "end_as_asked",
        "stop_cluster",
    }
    for name in ("main", "finish", "stop_cluster"):
        added = iter(long[name].splitlines())
        words = (line.partition("#")[0].split() for line in plain[name].splitlines())
        assert all(any(line.partition("#")[0].split() == ours for line in added) for ours in words), name
    assert re.findall(r"trap '[^']*' EXIT", plain["set_up_exit_and_signals"]) == re.findall(
        r"trap '[^']*' EXIT", long["set_up_exit_and_signals"]
    )


# The signal for the command


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(("count", "said"), [(0, "0 times"), (1, "1 time"), (2, "2 times")])
def test_the_number_of_requeues_in_words(count: int, said: str) -> None:
    values = f"SLURM_JOB_ID=1 slaunch_fate=runs slaunch_restart={count} slaunch_max_restarts={count}"
    requeue = functions(script(requeue=True), "requeue")
    code = f'{values}\nask_slurm() {{ :; }}\n{requeue}\nrequeue || echo "$slaunch_why_not"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    words = f"it has been requeued {said} (--max-restarts {count})"
    assert done.stdout == f"{words}\n", done.stderr


SAVES = "trap 'echo SAVED $0; exit' USR1; echo UP; while :; do sleep 0.1; done"


@pytest.mark.parametrize(
    "command",
    [
        f"{SAVES.replace('$0', 'itself')}",
        f'bash -c "{SAVES}" child; echo "after: $?"',
        f'(bash -c "{SAVES}" grandchild; echo inner); echo "after: $?"',
        f'bash -c "{SAVES}" in-the-background & wait; echo "after: $?"',
    ],
)
def test_a_shell_that_waits_is_not_killed(tmp_path: Path, command: str) -> None:
    """The shells of the command keep running, and finish what follows the program that saves."""
    (tmp_path / "command").write_text(command)
    code = f"""{functions(script(requeue=True), "signal_command", "processes_of_group")}
slaunch_job_dir=.; set -m; bash -c "$(cat command)" >out 2>/dev/null & slaunch_command_pid=$!; set +m
until grep -q UP out; do sleep 0.1; done
signal_command USR1; wait $slaunch_command_pid"""
    done = run_bash(code, tmp_path)
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[1].startswith("SAVED"), (lines, done)
    assert done.returncode == 0, lines
    assert "after" not in command or lines[-1] == "after: 0"


IN_ITS_OWN_STEP = (
    *("in_head_container", "pass_on", "program_in_head_container", "wait_despite_signals", "exit_as_in_container"),
    *("signal_command", "processes_of_group", "pause"),
)


@pytest.mark.parametrize("number", ["HUP", "USR1", "TERM"])
@pytest.mark.parametrize("early", [False, True], ids=["running", "on its way"])
def test_a_command_in_its_own_step_is_signaled(tmp_path: Path, number: str, early: bool) -> None:
    """As with Pyxis; `env` takes the place of its srun. A waiting shell is not killed. An early signal is kept."""
    saves = SAVES.replace("USR1", number)
    (tmp_path / "command").write_text(saves if early else f'bash -c "{saves}" child; echo "after: $?"')
    late = "bash -c 'until [[ -e told ]]; do sleep 0.1; done; sleep 0.3; exec \"$@\"' bash" if early else "env"
    told = "sleep 0.5" if early else "until grep -q UP out; do sleep 0.1; done"
    code = f"""{functions(script(requeue=True, container_image="x"), *IN_ITS_OWN_STEP)}
exec {{slaunch_clock}}<> <(:)
export SLAUNCH_NODE_DIR=$PWD; slaunch_job_dir=$PWD; slaunch_join_head=({late})
set -m; in_head_container bash -c "$(cat command)" >out 2>/dev/null </dev/null & slaunch_command_pid=$!; set +m
{told}; signal_command {number}; touch told; wait $slaunch_command_pid"""
    done = run_bash(code, tmp_path)
    lines = (tmp_path / "out").read_text().splitlines()
    if early:  # as without a container: it is fatal before the trap is set
        signals = {"HUP": 129, "USR1": 138, "TERM": 143}
        assert done.returncode in (0, signals[number]), (lines, done)
        assert (tmp_path / "group").exists(), "the script waited for the step"
    else:
        assert [line for line in lines if line.startswith(("SAVED", "after"))] == ["SAVED bash", "after: 0"], lines
        assert done.returncode == 0, lines


# A launch from within such a job


INSIDE = {"SLAUNCH_RESTART": "0", "SLAUNCH_RUN_DIR": "/home/me/x.run", "SLAUNCH_NODE_DIR": "/tmp/r1-0.job"}


def test_the_checkpoint_directory_is_not_the_run_dir_of_an_inner_launch() -> None:
    assert "run_dir" not in resolve.resolve({}, INSIDE, Path.cwd()).values
    own = INSIDE | {"SLAUNCH_RUN_DIR": "runs"}
    assert resolve.resolve({}, own, Path.cwd()).values["run_dir"] == "runs"
    assert resolve.resolve({}, {"SLAUNCH_RUN_DIR": "my.run"}, Path.cwd()).values["run_dir"] == "my.run"


def test_its_variables_are_not_passed_on() -> None:
    clean, dropped = slurm_environment.submit_env(INSIDE | {"SLAUNCH_QOS": "x"})
    assert clean == {"SLAUNCH_QOS": "x"}
    assert hints.notes(dropped) == []


# The attempts in the log


FIRST = """\
[slurm-launch] 2026-11-16T15:19:13+0000 starting nodes=1 head=n1 address=10.77.0.11:22772 auth=token job=1 dir=/tmp/r1-9
[slurm-launch] 2026-11-16T15:19:13+0000 ready nodes=1/1 ray=2.60.0
[slurm-launch] 2026-11-16T15:19:13+0000 command python train.py
[slurm-launch] 2026-11-16T15:19:38+0000 saving seconds=23 signal=USR1 reason=time-limit
"""
ITS_END = """\
[slurm-launch] 2026-11-16T15:19:38+0000 stopping
[slurm-launch] 2026-11-16T15:19:38+0000 requeue restart=1 reason=time-limit
[slurm-launch] 2026-11-16T15:19:38+0000 end outcome=requeued code=0 phase=command job=1 total=25s
"""


def attempts_of(log: str) -> Attempts:
    attempts = Attempts()
    for line in log.splitlines():
        attempts.take(line)
    return attempts


def test_an_attempt_close_to_its_time_limit() -> None:
    task = with_attempt(Task("1", "RUNNING", "squeue", "log"), attempts_of(FIRST).last)
    assert task.phase == "command"
    assert task.in_words == "running: the time limit is near, and the command was asked to save its work"


def test_a_requeued_attempt_is_not_the_end() -> None:
    assert log_phases.parse_end(FIRST + ITS_END) is None, "its code is not the command's"
    last = attempts_of(FIRST + ITS_END).last.end
    assert last is not None
    assert (last.outcome, last.command_ended) == ("requeued", False)
    again = FIRST + ITS_END + FIRST + ITS_END.replace("requeued code=0", "ok code=0")
    end = log_phases.parse_end(again)
    assert end is not None
    assert (end.outcome, len(attempts_of(again).all)) == ("ok", 2)


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_the_ray_logs_of_the_previous_attempt_are_kept(tmp_path: Path) -> None:
    """The beginning of such a script, in its second attempt."""
    (tmp_path / "x.ray").mkdir()
    (tmp_path / "x.ray/mine").touch()
    code = f"{loaded(script(requeue=True, max_restarts=5))}\nset_up_checkpoints\ntrap - EXIT"
    env = {"SLURM_RESTART_COUNT": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.glob("x.*")) == ["x.ray-0", "x.run"]
    assert (tmp_path / "x.ray-0/mine").exists()


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(("array", "below"), [(None, ""), ("0-3", "/2")])
def test_the_checkpoint_directory(tmp_path: Path, array: str | None, below: str) -> None:
    """Whatever its name is, the command receives it verbatim, and each task has its own."""
    name = "it's $HOME; `x`"
    spec = LaunchSpec(exp_name="x", command="true", requeue=True, checkpoint_dir=name, array=array)
    code = f"{loaded(render(spec, name='x'))}\nset_up_checkpoints\ntrap - EXIT\nprintenv SLAUNCH_RUN_DIR"
    env = {"PATH": "/usr/bin:/bin", **({"SLURM_ARRAY_TASK_ID": "2"} if array else {})}
    done = subprocess.run(["bash", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/{name}{below}\n"
    assert (tmp_path / f"{name}{below}").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(("ends", "short"), [("T10:05:00", True), ("T10:05:01", False), ("", False)])
def test_a_limit_below_the_warning_fails_at_once(tmp_path: Path, ends: str, short: bool) -> None:
    """Such a job would be signaled at the start of every attempt."""
    end = f"2026-01-02{ends}" if ends else "Unknown"
    answer = f"JobId=7 JobState=RUNNING StartTime=2026-01-02T10:00:00 EndTime={end} "
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "scontrol").chmod(0o755)
    code = loaded(script(signal_before=300, requeue=True, max_restarts=5))
    code += "\ncheck_time_for_warning; trap - EXIT; echo CONTINUES"
    env = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "CONTINUES" in done.stdout) == ((74, False) if short else (0, True)), done
    cause = 'cause="the job\'s time limit is 300 s, not more than --signal-before 300"'
    assert (cause in done.stdout) == short
    assert "requeue" not in done.stdout
    assert done.stderr == ""
