"""submit and wait against a real Slurm, as a plain user. The script is a trivial one: Ray has its own tests."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import runs
from slurm_launch.runs import Run
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]

# Runs on the login node: {"spec": ..., "hold": ..., "wait": ..., "timeout": ...} as its argument.
DRIVER = """
import json, sys
from slurm_launch import launch
from slurm_launch.errors import LaunchError
from slurm_launch.spec import LaunchSpec

def script(spec, *, name, when, run_dir, embedded):
    lines = ["#!/bin/bash", f"#SBATCH --job-name={spec.exp_name}"]
    folder = "" if run_dir == "." else run_dir + "/"
    lines.append(f"#SBATCH --output={folder}{name}" + ("_%a" if spec.array else "") + ".log")
    for key in ("partition", "array", "chdir"):
        lines += [f"#SBATCH --{key}={value}"] if (value := getattr(spec, key)) else []
    return "\\n".join([*lines, spec.command, ""])

launch.render = script
asked = json.loads(sys.argv[1])
tell = lambda line: print(line, file=sys.stderr, flush=True)
timeout = asked.get("timeout", 60)
try:
    run = launch.submit(LaunchSpec(**asked["spec"]), hold=asked.get("hold", False), timeout=timeout, tell=tell)
    print(run.record, flush=True)
    if asked.get("wait"):
        code = launch.wait(run, timeout=timeout, tell=tell)
        print("code", code)
        sys.exit(code)
except LaunchError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


class Login:
    """alice at work in a directory of her own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.home = f"/home/alice/{uuid.uuid4().hex[:8]}"
        cluster.run(["mkdir", self.home], check=True)

    def argv(self, spec: dict[str, Any], **more: Any) -> list[str]:
        asked = json.dumps({"spec": {"exp_name": "t", "command": "true"} | spec} | more)
        return [sys.executable, "-c", DRIVER, asked]

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **(more or {})}

    def submit(
        self, spec: dict[str, Any], env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(self.argv(spec, **more), env=self.env(env), cwd=self.home)

    def record(self, stdout: str) -> Run:
        return runs.read(self.cluster.path(stdout.split()[0]))

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cluster.path(self.home).iterdir())


@pytest.fixture
def login(cluster: Cluster) -> Iterator[Login]:
    yield Login(cluster)
    cluster.reset()


def test_a_job_runs_where_it_was_submitted_and_leaves_its_files(login: Login) -> None:
    done = login.submit({"command": "pwd; id -un"}, wait=True)
    assert (done.returncode, done.stderr) == (0, "")
    run = login.record(done.stdout)
    job = login.cluster.job(str(run.job_id))
    assert (job["JobState"], job["JobName"], job["Command"]) == ("COMPLETED", "t", run.script)
    assert job["StdOut"] == run.log
    assert login.cluster.path(run.log).read_text() == f"{login.home}\nalice\n"
    assert login.files() == sorted(f"{run.name}{suffix}" for suffix in (".sh", ".log", ".json"))
    assert (run.user, run.host, run.submit_dir) == ("alice", "login", login.home)


def test_wait_ends_with_the_commands_code(login: Login) -> None:
    done = login.submit({"command": "exit 3"}, wait=True)
    assert (done.returncode, done.stderr) == (3, "")


def test_wait_after_a_failure_of_ours(login: Login) -> None:
    done = login.submit({"command": "echo '[slurm-launch] 2026-11-16T09:05:09Z end outcome=nodes-missing code=71'; exit 71"}, wait=True)  # fmt: skip  # noqa: E501
    assert done.returncode == 5
    assert "nodes-missing" in done.stderr


def test_wait_for_a_job_whose_script_is_killed(login: Login) -> None:
    done = login.submit({"command": "kill -9 $$"}, wait=True)
    assert done.returncode == 5
    assert "was killed by signal 9" in done.stderr


def test_wait_for_an_array(login: Login) -> None:
    spec = {"command": "echo task $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID", "array": "0-4:2%2"}
    done = login.submit(spec, wait=True)
    assert done.returncode == 4, done.stderr
    assert len([name for name in login.files() if name.endswith(".log")]) == 3


def test_wait_for_a_job_that_is_cancelled(login: Login) -> None:
    waiting = login.cluster.popen(login.argv({"command": "sleep 600"}, wait=True), env=login.env(), cwd=login.home)
    assert waiting.stdout
    run = login.record(waiting.stdout.readline())
    login.cluster.run(["scancel", str(run.job_id)], check=True)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 5
    assert f"job {run.job_id} was cancelled" in err


def test_hold(login: Login) -> None:
    run = login.record(login.submit({"command": "echo ran"}, hold=True).stdout)
    job = login.cluster.job(str(run.job_id))
    assert (job["JobState"], job["Reason"]) == ("PENDING", "JobHeldUser")
    login.cluster.run(["scontrol", "release", str(run.job_id)], check=True)
    assert login.cluster.wait_job(str(run.job_id))["JobState"] == "COMPLETED"
    assert login.cluster.path(run.log).read_text() == "ran\n"


def test_an_invalid_partition_is_refused_in_sbatchs_own_words(login: Login) -> None:
    done = login.submit({"partition": "nosuch"})
    assert (done.returncode, done.stdout) == (3, "")
    assert "sbatch: error: Batch job submission failed: Invalid partition name specified" in done.stderr
    assert "sinfo -s" in done.stderr
    (kept,) = login.files()
    assert kept.endswith(".sh")
    assert f"{login.home}/{kept}" in done.stderr


def test_the_users_sbatch_variables_do_not_change_the_job(login: Login) -> None:
    env = {"SBATCH_PARTITION": "short", "SBATCH_JOB_NAME": "other", "SLURM_NTASKS": "5"}
    done = login.submit({"command": "env"}, env=env, wait=True)
    assert done.returncode == 0
    assert "SBATCH_PARTITION='short' is not passed on to sbatch: use --partition" in done.stderr
    run = login.record(done.stdout)
    job = login.cluster.job(str(run.job_id))
    assert (job["Partition"], job["JobName"]) == ("main", "t")
    seen = login.cluster.path(run.log).read_text()
    assert "SBATCH_" not in seen
    assert "SLURM_NTASKS=5" not in seen
    assert f"\nPWD={login.home}\n" in f"\n{seen}"


def test_from_within_a_job(login: Login) -> None:
    """The variables of the outer job must not become the inner one's."""
    inner = json.dumps({"spec": {"exp_name": "inner", "command": "env | grep ^SLURM_"}, "wait": True})
    text = f"#!/bin/bash\nexec {sys.executable} - '{inner}' <<'END'\n{DRIVER}\nEND\n"
    login.cluster.path(f"{login.home}/outer.sh").write_text(text)
    argv = ["sbatch", "--parsable", "-N1", "-n2", "-c2", "--output=outer.out", "outer.sh"]
    outer = login.cluster.run(argv, env=login.env(), cwd=login.home, check=True).stdout.strip()
    job = login.cluster.wait_job(outer)
    said = login.cluster.path(f"{login.home}/outer.out").read_text()
    assert job["JobState"] == "COMPLETED", said
    assert f"submitting from within job {outer}: its SLURM_* variables are not passed on" in said
    (log,) = [name for name in login.files() if name.startswith("inner") and name.endswith(".log")]
    seen = login.cluster.path(f"{login.home}/{log}").read_text()
    assert "SLURM_CPUS_PER_TASK=" not in seen
    assert "SLURM_NTASKS=" not in seen


@pytest.mark.parametrize("chdir", [None, "/tmp"])
def test_a_new_run_dir_gets_the_log(login: Login, chdir: str | None) -> None:
    spec = {"command": "pwd", "run_dir": "deep/runs"} | ({"chdir": chdir} if chdir else {})
    done = login.submit(spec, wait=True)
    assert done.returncode == 0, done.stderr
    run = login.record(done.stdout)
    assert run.log.startswith(f"{login.home}/deep/runs/")
    assert login.cluster.path(run.log).read_text() == f"{chdir or login.home}\n"


@contextmanager
def silent_controller(cluster: Cluster) -> Iterator[None]:
    """slurmctld stopped as by a debugger: its socket accepts, nobody answers."""
    stop = ["bash", "-c", 'kill "-$1" "$(cat /run/slurmctld.pid)"', "kill"]
    cluster.run([*stop, "STOP"], user="root", check=True)
    try:
        yield
    finally:
        cluster.run([*stop, "CONT"], user="root", check=True)


def test_a_silent_controller_is_waited_out(login: Login) -> None:
    argv = login.argv({"command": "sleep 1"}, wait=True, timeout=2)
    waiting = login.cluster.popen(argv, env=login.env(), cwd=login.home)
    assert waiting.stdout
    assert waiting.stderr
    waiting.stdout.readline()
    with silent_controller(login.cluster):
        told = waiting.stderr.readline()
    _, err = waiting.communicate(timeout=60)
    assert "Slurm does not answer" in told
    assert "answers again" in err
    assert waiting.returncode == 0


def test_a_silent_controller_at_submission(login: Login) -> None:
    """Nobody knows whether the job was made, so nothing is thrown away."""
    with silent_controller(login.cluster):
        done = login.submit({}, timeout=2)
    assert (done.returncode, done.stdout) == (4, "")
    assert "sbatch did not answer within 2 s" in done.stderr
    assert "squeue --me --name=t" in done.stderr
    assert [name.rpartition(".")[2] for name in login.files() if not name.endswith(".log")] == ["json", "sh"]
