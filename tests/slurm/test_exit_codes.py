"""Contract 1: the job's code is the command's; our own failures have codes of their own."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.slurm.jobs import run
from tests.testbed import Cluster
from tests.unit.test_golden import rendered

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    ("command", "code", "state"),
    [
        ("true", 0, "COMPLETED"),
        ("exit 3", 3, "FAILED"),
        ("no-such-program", 127, "FAILED"),
        ("bash -c 'kill -KILL $$'", 137, "FAILED"),
        ("false | true", 0, "COMPLETED"),  # the user's shell, not ours: no pipefail
        ("if; then", 2, "FAILED"),  # a syntax error is the command's own failure
    ],
)
def test_the_jobs_code_is_the_commands(cluster: Cluster, command: str, code: int, state: str) -> None:
    job = run(cluster, num_nodes=1, command=command)
    assert (job.code, job.state["JobState"]) == (code, state), job.log
    assert job.end["outcome"] == ("ok" if code == 0 else "command-failed")
    assert job.end["code"] == str(code)
    assert bool(job.kept("n1")) == (code != 0), "Ray's logs are kept when something failed, and only then"


@pytest.mark.parametrize(
    "options",
    [
        {"load_env": ["false"]},
        {"load_env": ["true", "echo one\nno-such-loader"]},
        {"venv": "/no/such/venv"},
        {"modules": ["no-such-module/1.0"]},
        {"conda_env": "no-such-environment"},
        {"load_env": ["exit 0"]},
        {"load_env": ["PATH=/usr/bin:/bin"]},
    ],
    ids=["false", "second", "venv", "module", "conda", "exit", "no-ray"],
)
def test_an_environment_that_fails_ends_the_job_before_any_node_starts(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    job = run(cluster, num_nodes=2, **options)
    assert job.code in (73, 77), job.log
    assert job.end["outcome"] == ("script-failed" if job.code == 77 else "environment-failed")
    assert job.end["phase"] == "environment"
    assert job.end["hint"]
    assert "starting" not in job.phases


def test_names_of_the_environment_do_not_meet_those_of_the_script(cluster: Cluster) -> None:
    """A `source setup.sh` may set anything, and go anywhere; and a token of the user's name is not ours."""
    theirs = "export run=3 dir=/x command=y token=theirs auth=off interface=ib9 min_nodes=9 port=1 nodes=none; cd /tmp"
    look = 'echo "MODE $RAY_AUTH_MODE" "$PWD"; env | grep -qF "$(cat "$RAY_AUTH_TOKEN_PATH")" || echo NOWHERE; exit 6'
    job = run(cluster, num_nodes=2, load_env=[theirs], command=look)
    assert job.code == 6, job.log
    assert job.output == ["MODE token /tmp", "NOWHERE"]
    assert job.kept("n2")


NAMES = """\
import os, ray
names = open("names").read().split()
def changed():
    return sorted(name for name in names if os.environ.get(name) != "theirs")
ray.init()
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def on_node():
    import time
    time.sleep(1)
    return os.environ["SLURMD_NODENAME"], changed()
print("COMMAND", changed())
for node, names_there in sorted(ray.get([on_node.remote() for _ in range(2)])):
    print("NODE", node, names_there)
"""


def test_variables_of_any_name_reach_the_command_and_the_nodes(cluster: Cluster) -> None:
    """Every word of the script that is not prefixed is a variable of the user's, exported before anything starts."""
    words = set(re.findall(r"\b[a-z][a-z0-9_]*\b", rendered("three-nodes"))) - {"slaunch"}
    names = sorted(word for word in words if not word.startswith("slaunch_"))
    assert {"node", "line", "step", "lines"} <= set(names)
    cluster.run(["tee", "names"], stdin="\n".join([*names, ""]), check=True)
    cluster.run(["tee", "names.py"], stdin=NAMES, check=True)
    theirs = 'while read -r each; do export "$each=theirs"; done <names; export each=theirs; unset IFS'
    job = run(cluster, num_nodes=2, node="n[1-2]", load_env=[theirs], command="python names.py")
    assert job.code == 0, job.log
    said = [line for line in job.output if line.startswith(("COMMAND", "NODE"))]
    assert said == ["COMMAND []", "NODE n1 []", "NODE n2 []"], job.log


def test_functions_of_the_environment_do_not_replace_those_of_the_script(cluster: Cluster) -> None:
    """A sourced file may define anything, and `declare` in it is global; the command has its exported functions."""
    theirs = "main() { exit 9; }; finish() { :; }; pause() { :; }; declare -x DECLARED=yes; greet() { echo HELLO; }"
    job = run(cluster, load_env=[theirs, "export -f greet", "set -eu"], command='greet; echo "$DECLARED"; exit 6')
    assert (job.code, job.output) == (6, ["HELLO", "yes"]), job.log


def test_the_command_has_the_environment_and_nothing_of_ours_in_its_way(cluster: Cluster) -> None:
    job = run(
        cluster,
        num_nodes=1,
        env={"HI": 'it\'s "me" & $HOME\nagain', "EMPTY": ""},
        load_env=["export LOADED=yes"],
        command='printf "<%s><%s><%s>" "$HI" "${EMPTY-unset}" "$LOADED"; echo "$-" "$(trap)"; readlink -f /dev/stdin',
    )
    assert job.code == 0, job.log
    text = "\n".join(job.output)
    assert '<it\'s "me" & $HOME\nagain><><yes>hBc \n' in text
    assert text.endswith("/dev/null")


def test_a_cluster_without_pyxis(cluster: Cluster) -> None:
    """srun itself would say: unrecognized option '--container-image=...'. tests/slurm/test_in_containers.py has it."""
    job = run(cluster, container_image="ubuntu:24.04")
    assert (job.code, job.end["outcome"]) == (79, "container-failed"), job.log
    assert job.end["cause"] == "this cluster has no Pyxis: srun has no --container-image"
    assert "starting" not in job.phases
