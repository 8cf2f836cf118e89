"""The doctor on a real cluster: as alice, on the login node."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.slurm.conftest import SUITE
from tests.slurm.desk import read_until
from tests.slurm.jobs import ROOT, VENV
from tests.slurm.test_submit import silent_controller
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm

ENV = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
LAUNCH = [str(VENV / "bin/python"), "-m", "slurm_launch"]
# The command line has no flag for the timeout of Slurm's commands.
IMPATIENT = """
import sys
from functools import partial
from slurm_launch.cli import main as cli
from slurm_launch.cli.verbs import doctor
doctor.Probe = partial(doctor.Probe, timeout=2)
cli.main(sys.argv[1:])
"""
PROFILES = "/home/alice/.config/slurm-launch/profiles"


def doctor(cluster: Cluster, *flags: str) -> subprocess.CompletedProcess[str]:
    return cluster.run([*LAUNCH, "doctor", *flags], env=ENV)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, Any]]]:
    """The findings of the --json output, by `about`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["about"], []).append(finding)
    return found


def files(cluster: Cluster) -> list[str]:
    return [path.name for path in cluster.path("/home/alice").glob("doctor_*")]


def test_the_report(cluster: Cluster) -> None:
    done = doctor(cluster)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "note") for line in lines)
    for line in (
        "ok       slurmctld     reachable; cluster testbed",
        "ok       partition     main: default, 6 nodes, no time limit, up to 2 GPUs per node",
        "ok       partition     short: 6 nodes, time limit 00:01:00, up to 2 GPUs per node",
        "ok       sbatch        would accept a plain job",
        "ok       gpus          both --gpus-per-node and --gres work; no types",
    ):
        assert line in lines
    assert "\nnote     accounting    off" in done.stdout


def test_a_partition_that_does_not_exist_is_a_problem(cluster: Cluster) -> None:
    done = doctor(cluster, "--json", "-p", "nosuch")
    assert done.returncode == 6
    (found,) = findings(done)["sbatch"]
    assert found["status"] == "problem"
    assert "nvalid partition" in found["text"]
    assert "sinfo -s" in found["hint"]


def test_the_nodes_reach_each_other_and_nothing_is_left_behind(cluster: Cluster) -> None:
    done = doctor(cluster, "--json", "--job", "--venv", str(VENV))
    assert done.returncode == 0, done.stdout + done.stderr
    found = findings(done)
    assert [one["text"] for one in found["nodes"]] == ["n1, n2 responded"]
    assert [one["text"] for one in found["run-dir"]] == ["shared by all nodes, and writable"]
    shown = f"n1 {cluster.address('n1')}, n2 {cluster.address('n2')}"
    assert [one["text"] for one in found["network"]] == [f"the nodes reach each other on eth0: {shown}"]
    assert found["ray"][-1]["text"].endswith("with token authentication, on all nodes")
    assert files(cluster) == []


@pytest.mark.skipif(SUITE != "host", reason="a newer Slurm makes the directory on the node, and it stays there")
def test_a_directory_that_the_nodes_do_not_share(cluster: Cluster) -> None:
    done = doctor(cluster, "--json", "--job", "--run-dir", "/tmp/of-the-login-node")
    assert done.returncode == 6
    assert "its log is missing here" in findings(done)["run-dir"][-1]["text"]


def test_ctrl_c_cancels_the_job(cluster: Cluster) -> None:
    started = cluster.popen([*LAUNCH, "doctor", "--job", "--load-env", "sleep 600"], env=ENV)
    read_until(started, "waiting for at most", stream=started.stderr)
    (submitted,) = cluster.squeue()
    assert cluster.signal("login", r"slurm_launch doctor --job", signal.SIGINT)
    _, rest = started.communicate(timeout=60)
    assert (started.returncode, rest) == (130, f"note: canceled job {submitted['id']}\ninterrupted\n")
    assert cluster.wait_job(submitted["id"])["JobState"] == "CANCELLED"


def test_an_unresponsive_controller_is_one_problem(cluster: Cluster) -> None:
    with silent_controller(cluster):
        done = cluster.run([LAUNCH[0], "-c", IMPATIENT, "doctor"], env=ENV)
    assert done.returncode == 6
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("problem")]
    assert line.startswith("problem  slurmctld     scontrol did not answer within 2 s; slurmctld may be down")
    assert "\nok       python" in done.stdout, "the other checks continue"
    before = files(cluster)
    with silent_controller(cluster):
        done = cluster.run([LAUNCH[0], "-c", IMPATIENT, "doctor", "--job"], env=ENV)
    assert done.returncode == 4
    assert files(cluster) == before


def test_the_profile_launches_a_job_with_name_and_command_alone(cluster: Cluster) -> None:
    folder = "/home/alice/doctor-config"  # not alice's default one: other tests would find the profile there
    cluster.run(["rm", "-rf", folder], check=True)
    env = {**ENV, "XDG_CONFIG_HOME": folder}
    assert cluster.run(["bash", "-c", "command -v ray"]).returncode, "Ray must come from the profile"
    argv = [*LAUNCH, "doctor", "--venv", str(VENV), "--write", "here"]
    done = cluster.run(argv, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    written = yaml.safe_load(cluster.path(f"{folder}/slurm-launch/profiles/here.yaml").read_text())
    assert written["hosts"] == ["login"]
    assert (written["partition"], written["venv"]) == ("main", str(VENV))
    assert written["gpu-directive"] == "gpus-per-node"
    assert written["partitions"]["short"] == {"max-time": "00:01:00", "max-nodes": 6, "max-gpus": 2}
    again = cluster.run(argv, env=env)
    assert (again.returncode, again.stdout) == (2, "")

    command = "python -c 'import ray; ray.init(); print(len(ray.nodes()))'"
    launched = cluster.run([*LAUNCH, "--exp-name", "t", "--command", command, "--wait"], env=env, timeout=180)
    log = cluster.path(re.findall(r"^log +(.*)$", launched.stdout, re.MULTILINE)[0]).read_text()
    assert launched.returncode == 0, launched.stderr + log
    assert "1" in log.splitlines(), log


def test_a_temporary_directory_that_a_job_would_create(cluster: Cluster) -> None:
    done = doctor(cluster, "--json", "--job", "--temp-dir", "/tmp/%u/ray")
    assert done.returncode == 0, done.stdout + done.stderr
    found = findings(done)
    assert [one["text"].split(",")[0] for one in found["temp-dir"]] == ["/tmp/alice/ray is tmpfs"]
    assert found["containers"][0]["text"].endswith("on the nodes")
    # the fixture checks that /tmp is empty again on every node


def test_a_job_that_can_never_run(cluster: Cluster) -> None:
    done = doctor(cluster, "--job", "--nodes", "7")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the partition main has 6 nodes" in done.stderr
    assert cluster.squeue() == []


@pytest.mark.skipif(SUITE != "host", reason="the testbed has slurmdbd for the machine's own Slurm only")
def test_accounts_small_disks_and_a_second_network(make_cluster: Callable[..., Cluster]) -> None:
    odd = {"n1": NodeOptions(eth1=True), "n2": NodeOptions(eth1=True, tmp_size="100m")}
    extra = [
        "EnforcePartLimits=ALL",
        "PartitionName=short Nodes=ALL RootOnly=YES MaxTime=1 State=UP",
        "PartitionName=main Nodes=ALL MaxTime=2-00:00:00 MaxNodes=2 State=UP",
    ]
    cluster = make_cluster(nodes=2, accounting=True, node_options=odd, slurm_conf_extra=extra)
    cluster.run(["ip", "route", "add", "unreachable", "10.88.0.12"], user="root", node="n1", check=True)
    done = doctor(cluster, "--json", "--job", "--write", "odd")
    found = findings(done)
    assert done.returncode == 6, done.stdout + done.stderr
    assert [one["about"] for about in found.values() for one in about if one["status"] == "problem"] == ["temp-dir"]
    assert "100 MB free on n2" in found["temp-dir"][-1]["text"]
    assert found["account"][0]["text"] == "lab (your default)"
    assert found["network"][0]["text"].startswith("the nodes reach each other on eth0")
    assert found["network"][1]["text"] == "other interfaces: eth1 (not reachable, or not on all nodes)"
    assert any(one["hint"] == "not available to you: it is restricted to root" for one in found["partition"])
    assert any("no default" in one["text"] for one in found["partition"])
    assert len(files(cluster)) == 3, "there was a problem, so they are kept"
    written = yaml.safe_load(cluster.path(f"{PROFILES}/odd.yaml").read_text())
    assert (written["partition"], written["account"], written["temp-dir"]) == ("main", "lab", "/var/tmp")
    assert written["partitions"]["main"] == {"max-time": "2-00:00:00", "max-nodes": 2, "max-gpus": 2}
