"""With slurmdbd and a real database: what sacct says of a job is what its script said."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.slurm.conftest import SUITE, binds, need_cluster
from tests.slurm.jobs import ROOT, VENV, run, standing_ray
from tests.testbed import Cluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(SUITE != "host", reason="the testbed has slurmdbd for the machine's own Slurm only"),
]


@pytest.fixture(scope="module")
def accounted() -> Iterator[Cluster]:
    need_cluster(accounting=True)
    with Cluster(nodes=2, accounting=True, binds=binds(), slurm_conf_extra=["MinJobAge=2"]) as cluster:
        yield cluster


def sacct(cluster: Cluster, job_id: str) -> str:
    """State and code, once the database has them: some seconds after the end."""
    for _ in range(200):
        said = cluster.run(["sacct", "-X", "-n", "-P", "-j", job_id, "-o", "State,ExitCode"], check=True).stdout.strip()
        if said and not said.startswith(("PENDING", "RUNNING")):
            return said
        time.sleep(0.1)
    raise AssertionError(f"sacct does not know the end of job {job_id}: {said!r}")


@pytest.mark.parametrize(("command", "said"), [("exit 0", "COMPLETED|0:0"), ("exit 3", "FAILED|3:0")])
def test_sacct_agrees(accounted: Cluster, command: str, said: str) -> None:
    job = run(accounted, num_nodes=2, command=command)
    assert sacct(accounted, job.id) == said, job.log


def test_wait_learns_the_code_from_sacct_when_slurmctld_has_forgotten(accounted: Cluster) -> None:
    env = {"PYTHONPATH": str(ROOT)}
    argv = [str(VENV / "bin/python"), "-m", "slurm_launch", "--exp-name", "t", "--template", "t.j2", "--command"]
    accounted.path("/home/alice/t.j2").write_text("#!/bin/bash\n{{ directives }}\n{{ spec.command | raw }}\n")
    done = accounted.run([*argv, "exit 6", "--wait"], env=env)
    assert done.returncode == 6, done.stderr


def test_an_account_that_does_not_exist_is_refused_in_sbatchs_own_words(accounted: Cluster) -> None:
    env = {"PYTHONPATH": str(ROOT)}
    argv = [str(VENV / "bin/python"), "-m", "slurm_launch", "--exp-name", "t", "--command", "true", "-A", "nosuch"]
    refused = accounted.run(argv, env=env)
    assert refused.returncode == 3, refused.stderr
    assert "Invalid account or account/partition combination specified" in refused.stderr
    assert "--account" in refused.stderr


def test_watch_of_a_job_that_slurmctld_has_forgotten(accounted: Cluster) -> None:
    """Its state comes from sacct, its output and its timings from the log; `logs -f` ends too."""
    env = {"PYTHONPATH": str(ROOT)}
    ours = [str(VENV / "bin/python"), "-m", "slurm_launch"]
    flags = ["--exp-name", "w", "-c", "1", "--load-env", standing_ray(accounted), "--command", "echo out; exit 6"]
    job = accounted.run([*ours, *flags, "--parsable"], env=env, check=True).stdout.strip()
    sacct(accounted, job)
    for _ in range(600):
        if "Invalid job id" in accounted.run(["scontrol", "show", "job", job]).stderr:
            break
        time.sleep(0.1)
    else:
        raise AssertionError("slurmctld does not forget the job")
    done = accounted.run([*ours, "watch", job], env=env)
    assert done.returncode == 6, done.stderr
    assert "\nout\n" in done.stdout
    assert f"[watch] job {job} has ended: its command failed with exit code 6 (waited" in done.stdout
    logs = accounted.run([*ours, "logs", job, "-f", "--command-only"], env=env)
    assert (logs.returncode, logs.stdout) == (0, "out\n")
