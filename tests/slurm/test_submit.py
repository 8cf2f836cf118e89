"""submit and wait against a real Slurm, as a plain user. The script is a trivial one: Ray has its own tests."""

from __future__ import annotations

import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from tests.slurm.desk import read_until
from tests.slurm.jobs import ROOT, VENV
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Ray has no part in it.
TEMPLATE = "#!/bin/bash\n{{ directives }}\n{{ spec.command | raw }}\n"

# The command line has no flag for how long Slurm may take to answer.
IMPATIENT = """
import sys
from functools import partial
from slurm_launch.cli import main as cli
from slurm_launch.launch import submit as submission
from slurm_launch.status import wait as waiting
submission.submit, waiting.wait = partial(submission.submit, timeout=2), partial(waiting.wait, timeout=2)
cli.main(sys.argv[1:])
"""


class Login:
    """alice at work in a directory of her own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.home = f"/home/alice/{uuid.uuid4().hex[:8]}"
        self.template = f"{self.home}.j2"
        cluster.run(["mkdir", self.home], check=True)
        cluster.path(self.template).write_text(TEMPLATE)
        self.env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def argv(self, command: str, *flags: str, start: tuple[str, ...] = ("-m", "slurm_launch")) -> list[str]:
        ours = ["--exp-name", "t", "--template", self.template, "--command", command]
        return [str(VENV / "bin/python"), *start, *ours, *flags]

    def submit(
        self, command: str, *flags: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(self.argv(command, *flags), env=self.env | dict(env or {}), cwd=self.home)

    def start(self, argv: list[str]) -> tuple[subprocess.Popen[str], Run]:
        """In the background, until the job is submitted."""
        process = self.cluster.popen(argv, env=self.env, cwd=self.home)
        return process, self.run(read_until(process, "^record"))

    def run(self, stdout: str) -> Run:
        """The run that the command line has told of."""
        told = dict(line.split(maxsplit=1) for line in stdout.splitlines())
        run = records.read(self.cluster.path(told["record"]))
        return replace(run, log=told["log"], record=told["record"])  # as alice sees them, not we

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cluster.path(self.home).iterdir())


@pytest.fixture
def login(cluster: Cluster) -> Login:
    return Login(cluster)


def test_a_job_runs_where_it_was_submitted_and_leaves_its_files(login: Login) -> None:
    done = login.submit("pwd; id -un", "--wait")
    assert (done.returncode, done.stderr) == (0, "")
    run = login.run(done.stdout)
    job = login.cluster.job(str(run.job_id))
    assert (job["JobState"], job["JobName"], job["Command"]) == ("COMPLETED", "t", run.script)
    assert job["StdOut"] == run.log
    assert login.cluster.path(run.log).read_text() == f"{login.home}\nalice\n"
    assert login.files() == sorted(f"{run.name}{suffix}" for suffix in (".sh", ".log", ".json"))
    assert (run.user, run.host, run.submit_dir) == ("alice", "login", login.home)


def test_wait_ends_with_the_commands_code(login: Login) -> None:
    done = login.submit("exit 3", "--wait")
    assert (done.returncode, done.stderr) == (3, "")


def test_wait_after_a_failure_of_ours(login: Login) -> None:
    line = "[slurm-launch] 2026-11-16T09:05:09+0000 end outcome=nodes-missing code=71"
    done = login.submit(f"echo '{line}'; exit 71", "--wait")
    assert done.returncode == 5
    assert "nodes-missing" in done.stderr


def test_wait_for_a_job_whose_script_is_killed(login: Login) -> None:
    done = login.submit("kill -9 $$", "--wait")
    assert done.returncode == 5
    assert "was killed by signal 9" in done.stderr


def test_wait_for_an_array(login: Login) -> None:
    done = login.submit("exit $SLURM_ARRAY_TASK_ID", "--array", "0-4:2%2", "--wait")
    assert done.returncode == 4, done.stderr
    assert len([name for name in login.files() if name.endswith(".log")]) == 3


def test_wait_for_a_job_that_is_cancelled(login: Login) -> None:
    waiting, run = login.start(login.argv("sleep 600", "--wait"))
    login.cluster.run(["scancel", str(run.job_id)], check=True)
    _, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 5
    assert f"job {run.job_id} was canceled" in err


def test_hold(login: Login) -> None:
    run = login.run(login.submit("echo ran", "--hold").stdout)
    job = login.cluster.job(str(run.job_id))
    assert (job["JobState"], job["Reason"]) == ("PENDING", "JobHeldUser")
    login.cluster.run(["scontrol", "release", str(run.job_id)], check=True)
    assert login.cluster.wait_job(str(run.job_id))["JobState"] == "COMPLETED"
    assert login.cluster.path(run.log).read_text() == "ran\n"


def test_an_invalid_partition_is_refused_in_sbatchs_own_words(login: Login) -> None:
    done = login.submit("true", "-p", "nosuch")
    assert (done.returncode, done.stdout) == (3, "")
    assert "sbatch: error: Batch job submission failed: Invalid partition name specified" in done.stderr
    assert "sinfo -s" in done.stderr
    (kept,) = login.files()
    assert kept.endswith(".sh")
    assert f"{login.home}/{kept}" in done.stderr


def test_the_users_sbatch_variables_do_not_change_the_job(login: Login) -> None:
    env = {"SBATCH_PARTITION": "short", "SBATCH_JOB_NAME": "other", "SLURM_NTASKS": "5"}
    done = login.submit("env", "--wait", env=env)
    assert done.returncode == 0
    assert "SBATCH_PARTITION='short' is not passed on to sbatch: use --partition" in done.stderr
    run = login.run(done.stdout)
    job = login.cluster.job(str(run.job_id))
    assert (job["Partition"], job["JobName"]) == ("main", "t")
    seen = login.cluster.path(run.log).read_text()
    assert "SBATCH_" not in seen
    assert "SLURM_NTASKS=5" not in seen
    assert f"\nPWD={login.home}\n" in f"\n{seen}"


def test_from_within_a_job(login: Login) -> None:
    """The variables of the outer job must not become the inner one's."""
    text = f"#!/bin/bash\nexec {shlex.join(login.argv('env | grep ^SLURM_', '--wait'))}\n"
    login.cluster.path(f"{login.home}/outer.sh").write_text(text)
    argv = ["sbatch", "--parsable", "-N1", "-n2", "-c2", "--output=outer.out", "outer.sh"]
    outer = login.cluster.run(argv, env=login.env, cwd=login.home, check=True).stdout.strip()
    job = login.cluster.wait_job(outer)
    said = login.cluster.path(f"{login.home}/outer.out").read_text()
    assert job["JobState"] == "COMPLETED", said
    assert f"submitting from within job {outer}: its SLURM_* variables are not passed on" in said
    (log,) = [name for name in login.files() if name.endswith(".log")]
    seen = login.cluster.path(f"{login.home}/{log}").read_text()
    assert "SLURM_CPUS_PER_TASK=" not in seen
    assert "SLURM_NTASKS=1\n" in seen  # its own, not the two of the outer one


@pytest.mark.parametrize("chdir", [None, "/tmp"])
def test_a_new_run_dir_gets_the_log(login: Login, chdir: str | None) -> None:
    done = login.submit("pwd", "--run-dir", "deep/runs", "--wait", *(["--chdir", chdir] if chdir else []))
    assert done.returncode == 0, done.stderr
    run = login.run(done.stdout)
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
    waiting, _ = login.start(login.argv("sleep 1", "--wait", start=("-c", IMPATIENT)))
    with silent_controller(login.cluster):
        told = read_until(waiting, "", stream=waiting.stderr)
    _, err = waiting.communicate(timeout=60)
    assert "cannot reach slurmctld" in told
    assert "reachable again" in err
    assert waiting.returncode == 0


def test_a_silent_controller_at_submission(login: Login) -> None:
    """Nobody knows whether the job was made, so nothing is thrown away."""
    with silent_controller(login.cluster):
        argv = login.argv("true", start=("-c", IMPATIENT))
        done = login.cluster.run(argv, env=login.env, cwd=login.home)
    assert (done.returncode, done.stdout) == (4, "")
    assert "sbatch did not answer within 2 s" in done.stderr
    assert "squeue --me --name=t" in done.stderr
    assert [name.rpartition(".")[2] for name in login.files() if not name.endswith(".log")] == ["json", "sh"]
