"""The script's own side of the talk with its nodes, in real bash without Slurm."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from slurm_launch.rendering.templates import TEMPLATES

RUN = (TEMPLATES / "parts/run.sh").read_text(encoding="utf-8").partition("\nstart_cluster;")[0]
STOP = (TEMPLATES / "parts/stop.sh").read_text(encoding="utf-8")
HELPERS = "\n".join(re.findall(r"^(?:pause|tell)\(\).*$", STOP, re.MULTILINE))
HARNESS = (
    f"""
{HELPERS}
"""
    + """
declare -A step_of=([n1]=0 [n2]=0) heard=() words=() why=()
nodes=(n1 n2) count=2 step_pids=($$) joined='' never='' auth=token job_dir=$PWD/r.job head=n1
mkdir r.job && mkfifo r.job/from-nodes r.job/silence && exec {events}<>r.job/from-nodes {silence}<>r.job/silence
exec {orders}>orders && step_fds=("$orders")
say() { echo "$*"; }
(%s) >&"$events" &
for _ in {1..30}; do tick; done
echo "JOINED [$joined] LOST [${lost[*]}]"
"""
)


def after(tmp_path: Path, news: str) -> str:
    argv = ["bash", "-c", RUN + HARNESS % news]
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
    assert "JOINED [ n1  n2 ] LOST []" in said
    assert said.count("joined node=") == 2


@pytest.mark.parametrize(
    ("news", "told"),
    [
        ("echo up n2", ""),
        ("echo up n2; echo up n1; echo up n1", "go go\n"),
        # An older Ray's worker needs the head's port only, for which it waits itself.
        ("echo ray 2.40.0", "go go\n"),
        ("echo ray 2.53.0 client", "go go\n"),
        ("echo ray 2.54.0", ""),
        ("echo ray 2.60.0; echo up n1", "go go\n"),
    ],
    ids=["worker", "head", "2.40", "2.53", "2.54", "2.60"],
)
def test_the_workers_begin_when_the_head_is_up(tmp_path: Path, news: str, told: str) -> None:
    after(tmp_path, news)
    assert (tmp_path / "orders").read_text() == told


def test_a_lost_node_has_not_joined(tmp_path: Path) -> None:
    said = after(tmp_path, "echo up n1; echo up n2; sleep 0.5; echo failed n2 its Ray has ended; sleep 5")
    assert "JOINED [ n1 ]" in said


@pytest.mark.parametrize(
    ("version", "warned"), [("2.9.3", True), ("2.40.0", True), ("2.52.0", False), ("2.60.0", False)]
)
def test_a_ray_without_tokens_is_told(tmp_path: Path, version: str, warned: bool) -> None:
    assert (f"warning Ray {version} does not support tokens" in after(tmp_path, f"echo ray {version} client")) == warned


def test_a_step_that_is_gone_before_it_gets_its_token(tmp_path: Path) -> None:
    """srun may refuse an option at once: to write to it then must not end the script, which has to tell the cause."""
    report = (TEMPLATES / "parts/report.sh").read_text(encoding="utf-8")
    steps = (TEMPLATES / "parts/steps.sh").read_text(encoding="utf-8")
    late = 'echo() { sleep 0.5; builtin echo "$@"; }\nsrun() { :; }'
    code = f"""{report}\n{steps}\n{late}
declare -A step_of=() && step_pids=() step_fds=() job_dir=$PWD head=n1 token=secret SLURM_JOB_CPUS_PER_NODE=1
start_step n1; printf 'AFTER\\n'; trap - EXIT"""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("AFTER\n", "")
