"""The script's own side of the talk with its nodes, in real bash without Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slurm_launch import LaunchSpec, render
from tests.script_parts import loaded

SCRIPT = loaded(render(LaunchSpec(exp_name="x", command="true", num_nodes=2)))
HARNESS = """
exec {orders}>orders
reset_steps
slaunch_nodes=(n1 n2) slaunch_count=2 slaunch_head=n1 slaunch_step_pids=($$) slaunch_step_fds=("$orders")
slaunch_step_of=([n1]=0 [n2]=0) slaunch_job_dir=$PWD/r.job
mkdir r.job && mkfifo r.job/messages && exec {slaunch_messages}<>r.job/messages
say() { echo "$*"; }
(%s) >&"$slaunch_messages" &
for _ in {1..30}; do poll_nodes; lost+=" ${slaunch_lost[*]}"; done
joined=" ${!slaunch_up[*]} "
echo "JOINED ${#slaunch_up[@]}:${joined/ n2 n1 / n1 n2 }LOST [${lost// /}]"
trap - EXIT
"""


def after(tmp_path: Path, news: str) -> str:
    argv = ["bash", "-c", SCRIPT + HARNESS % news]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "news",
    [
        "echo up n1; echo up n2",
        # The waiting time ends in the middle of a line.
        "printf 'up n'; sleep 0.7; printf '1\\nu'; sleep 0.5; echo 'p n2'",
        # What is not ours, or empty, does no harm.
        "echo; echo ray; echo 'ray '; echo up; echo 'up '; echo nonsense; echo up n1; echo up n2; echo up n1",
        # Nor does a line that has lost its end: a node called n1up would have been counted.
        "echo up n1up n2; echo up n1; echo up n2; echo up n",
    ],
    ids=["plain", "torn", "noise", "merged"],
)
def test_news_arrive_whole(tmp_path: Path, news: str) -> None:
    said = after(tmp_path, news)
    assert "JOINED 2: n1 n2 LOST []" in said
    assert said.count("joined node=") == 2


@pytest.mark.parametrize(
    ("news", "told"),
    [
        ("echo up n2", ""),
        ("echo up n2; echo up n1; echo up n1", "go\n"),
        # An older Ray's worker needs the head's port only, for which it waits itself.
        ("echo ray 2.40.0", "go\n"),
        ("echo ray 2.53.0 client", "go\n"),
        ("echo ray 2.54.0", ""),
        ("echo ray 2.60.0; echo up n1", "go\n"),
    ],
    ids=["worker", "head", "2.40", "2.53", "2.54", "2.60"],
)
def test_the_workers_begin_when_the_head_is_up(tmp_path: Path, news: str, told: str) -> None:
    after(tmp_path, news)
    assert (tmp_path / "orders").read_text() == told


def test_a_lost_node_has_not_joined(tmp_path: Path) -> None:
    said = after(tmp_path, "echo up n1; echo up n2; sleep 0.5; echo failed n2 its Ray has ended; sleep 5")
    assert "JOINED 1: n1 LOST [n2]" in said


@pytest.mark.parametrize(
    ("version", "warned"), [("2.9.3", True), ("2.40.0", True), ("2.52.0", False), ("2.60.0", False)]
)
def test_a_ray_without_tokens_is_told(tmp_path: Path, version: str, warned: bool) -> None:
    assert (f"warning Ray {version} does not support tokens" in after(tmp_path, f"echo ray {version} client")) == warned


def test_a_step_that_is_gone_before_it_gets_its_token(tmp_path: Path) -> None:
    """srun may refuse an option at once: to write to it then must not end the script, which has to tell the cause."""
    late = 'srun() { :; }\neval "late_$(declare -f node_program)"\nnode_program() { sleep 0.5; late_node_program; }'
    code = f"""{SCRIPT}\n{late}
reset_steps
slaunch_job_dir=$PWD slaunch_head=n1 slaunch_token=secret SLURM_JOB_CPUS_PER_NODE=1
start_step n1; printf 'AFTER\\n'; trap - EXIT"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("AFTER\n", "")


def test_what_a_node_is_told(tmp_path: Path) -> None:
    """The program for a node, token included, goes through its standard input: srun's arguments have none of it."""
    (tmp_path / "srun").write_text('#!/bin/bash\nprintf "%s\\n" "$@" >arguments\nexec "${@: -3}"\n')
    (tmp_path / "srun").chmod(0o755)
    code = f"""{SCRIPT}
PATH=$PWD:$PATH
run_node() {{ echo "TOKEN $slaunch_token INDEX $slaunch_first_index SETTING ${{slaunch_ray_args[*]}}"; }}
slaunch_functions=$(own_functions)
reset_steps
slaunch_job_dir=$PWD slaunch_token=secret SLURM_JOB_CPUS_PER_NODE='2(x3)' slaunch_ray_args=("it's" 'a b')
slaunch_dir=d slaunch_head_dir=d.0 slaunch_head=n1 slaunch_head_ip=10.0.0.1 slaunch_port=1 slaunch_address=10.0.0.1:1
slaunch_allocations=() slaunch_fabric_options=()
mkfifo messages && exec {{slaunch_messages}}<>messages
for node in n1 n2; do start_step "$node"; read -r -t 9 -u "$slaunch_messages" line; echo "$line"; done
trap - EXIT"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    said = [f"TOKEN secret INDEX {index} SETTING it's a b" for index in (0, 1)]
    assert (done.stdout.splitlines(), done.stderr) == (said, "")
    arguments = (tmp_path / "arguments").read_text()
    assert "secret" not in arguments
    assert "--nodelist=n2\n" in arguments
    assert "--cpus-per-task=2\n" in arguments


def test_silence(tmp_path: Path) -> None:
    """A node that has not reported for slaunch_node_timeout is lost; the other has just reported."""
    late = SCRIPT + "\nslaunch_node_timeout=2\n" + HARNESS % "echo up n2; while sleep 0.3; do echo up n1; done"
    late = late.replace('joined="', 'kill $!; joined="')
    done = subprocess.run(["bash", "-c", late], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert "JOINED 1: n1 LOST [n2]" in done.stdout, done.stdout


def in_script(tmp_path: Path, code: str) -> str:
    """What this code prints with the functions of the script."""
    argv = ["bash", "-c", f"{SCRIPT}\n{code}\ntrap - EXIT"]
    return subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False).stdout


def test_harmless_lines_of_srun(tmp_path: Path) -> None:
    lines = [
        "srun: error: Task launch failed on node n1: Communication connection failure",
        "srun: Warning: can't honor --ntasks-per-node set to 1: job may never run",
    ]
    (tmp_path / "srun-0.err").write_text("\n".join([*lines, ""]))
    said = in_script(tmp_path, "declare -A slaunch_step_of=([n1]=0); slaunch_job_dir=.; end_of_step n1")
    assert said == f"its srun has ended: {lines[0]}\n"


@pytest.mark.parametrize(("exists", "hint"), [(True, "Ray's logs are in ./run.ray/"), (False, "see the lines above")])
def test_the_hint_names_only_logs_that_exist(tmp_path: Path, exists: bool, hint: str) -> None:
    if exists:
        (tmp_path / "run.ray").mkdir()
    said = in_script(tmp_path, "SLURM_JOB_ID=7 slaunch_run=./run; (finish 71 node-failed 'n2 did not start' '' n2)")
    assert f'cause="n2 did not start" hint="{hint}"' in said


@pytest.mark.parametrize(
    ("version", "hip", "found"),
    [
        ("2.60.0", "", "HIP=2,5,7 ROCR="),
        ("2.60.0", "2,0", "HIP=7,2 ROCR="),  # numbers of HIP are positions in the list of ROCR
        ("2.45.0", "", "HIP=2,5,7 ROCR="),
        ("2.44.1", "", "HIP= ROCR=2,5,7"),
        ("2.60.0", "GPU-0b7,1", "HIP=GPU-0b7,5 ROCR="),
    ],
)
def test_which_amd_gpus(tmp_path: Path, version: str, hip: str, found: str) -> None:
    code = f"ROCR_VISIBLE_DEVICES=2,5,7 HIP_VISIBLE_DEVICES={hip}; use_hip_for_newer_ray {version}"
    assert in_script(tmp_path, f'{code}; echo "HIP=$HIP_VISIBLE_DEVICES ROCR=$ROCR_VISIBLE_DEVICES"') == f"{found}\n"


KILLED = """reset_steps; slaunch_job_dir=$PWD; slaunch_step_of=([n2]=0); : >srun-0.err
say() { :; }; finish() { printf '%s ' "$@"; echo; exit; }
note_kills n2 'limit=1200M killed=ray::task kills=1'
"""


@pytest.mark.parametrize(("later", "outcome"), [(5, "80 out-of-memory"), (36000, "72 node-lost")])
def test_a_kill_long_before_is_not_why_a_node_is_lost(tmp_path: Path, later: int, outcome: str) -> None:
    code = f"{KILLED}SECONDS=$((SECONDS + {later})); (give_up 72 node-lost 'n2 was lost' n2)"
    assert in_script(tmp_path, code).startswith(outcome)


@pytest.mark.parametrize(("later", "cause"), [(60, "out of memory on n2: the kernel killed ray::task"), (36000, "")])
def test_a_kill_long_before_is_not_why_the_command_failed(tmp_path: Path, later: int, cause: str) -> None:
    code = f'{KILLED}slaunch_cause=; SECONDS=$((SECONDS + {later})); blame_memory; echo "$slaunch_cause"'
    assert in_script(tmp_path, code).strip().startswith(cause)
    assert bool(in_script(tmp_path, code).strip()) == bool(cause)


@pytest.mark.parametrize(
    ("limit", "total", "found"),
    [(1000, 24000, "0 "), (23000, 24000, " 0.910"), (24000, 24000, " 0.950"), (30000, 24000, " 0.950")],
    ids=["part", "nearly", "whole", "more than there is"],
)
def test_the_threshold_of_rays_monitor(tmp_path: Path, limit: int, total: int, found: str) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal:       {total * 1024} kB\n")
    function = 'eval "$(declare -f fit_memory_monitor | sed s,/proc/meminfo,meminfo,)"'
    code = f"{function}; slaunch_limit={limit}; fit_memory_monitor"
    code += '; echo "$RAY_memory_monitor_refresh_ms $RAY_memory_usage_threshold"'
    assert in_script(tmp_path, code) == f"{found}\n"


RECORDS = """JobId=12 ArrayJobId=12 JobName=x Nodes=n[1-2] CPU_IDs=0-1 Mem=600 GRES=gpu:a100:2(IDX:0-1) Extra=
JobId=13 ArrayJobId=12 JobName=x Nodes=n1 CPU_IDs=2 Mem=900 GRES=
JobId=14 HetJobId=12 JobName=x Nodes=n3 CPU_IDs=0 Mem=700 GRES= Nodes=n4 CPU_IDs=3 Mem=600 GRES=gpu:2(IDX:0,3)
"""


def test_the_allocation_of_this_job_only(tmp_path: Path) -> None:
    """Not of the other tasks of its array; but of all components of a heterogeneous job. Equal nodes are one entry."""
    (tmp_path / "records").write_text(RECORDS)
    code = "timeout() { cat records; }; SLURM_JOB_ID=12; allocation_of_job | sort"
    assert in_script(tmp_path, code) == "n3 700 0\nn[1-2],n4 600 2\n"
