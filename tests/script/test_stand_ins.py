"""The rehearsal's stand-ins for sbatch, srun, scontrol and squeue, as a script sees them.

tests/slurm/test_rehearsal_is_true.py runs the same lines on the real ones.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm_launch.rehearsal import rehearse
from slurm_launch.rehearsal.job import is_alive
from tests.fake_slurm import run_job

HEAD = "#!/bin/bash\n#SBATCH --output=out --nodes=3 --ntasks-per-node=1\n"


def lines(tmp_path: Path, code: str, *arguments: str) -> list[str]:
    done = run_job(f"{HEAD}{code}\n", tmp_path, *arguments)
    assert done.submitted.returncode == 0, done.submitted.stderr
    return done.output.splitlines()


def test_the_exit_code_of_the_script_is_the_jobs(tmp_path: Path) -> None:
    for code, state in ((0, "COMPLETED"), (3, "FAILED")):
        done = run_job(f"{HEAD}exit {code}\n", tmp_path)
        assert (done.state.state, done.state.code, done.state.signal) == (state, code, 0)
    killed = run_job(f"{HEAD}kill -KILL $$\n", tmp_path)
    assert (killed.state.state, killed.state.code, killed.state.signal) == ("FAILED", 0, 9)


def test_sbatch_prints_what_the_real_one_does(tmp_path: Path) -> None:
    done = run_job(f"{HEAD}true\n", tmp_path)
    number, _, cluster = done.submitted.stdout.strip().partition(";")
    assert int(number) > 67_043_328, "no real job has this id"
    assert cluster == "rehearsal"


@pytest.mark.parametrize(
    ("directive", "message"),
    [
        ("--no-such-thing=1", "unrecognized option '--no-such-thing=1': not supported in a rehearsal"),
        ("--nodes=none", "invalid value for --nodes: 'none'"),
        ("--time=soon", "Invalid --time specification: soon"),
        ('--comment="open', "unmatched"),
        ("--gpus-per-node=some", "invalid value for --gpus-per-node: 'some'"),
        ("--hold", "--hold is not supported"),
        ("--nodes=999999999999", "at most 1000 nodes"),
        ("--ntasks-per-node=2", "--ntasks-per-node must be 1"),
    ],
)
def test_sbatch_refuses_unsupported_options(tmp_path: Path, directive: str, message: str) -> None:
    done = run_job(f"#!/bin/bash\n#SBATCH {directive}\ntrue\n", tmp_path)
    assert done.submitted.returncode in (1, 255)
    assert message in done.submitted.stderr
    assert done.submitted.stdout == ""


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("--mem=1G", "--mem-per-cpu=1G", "mutually exclusive"),
        ("--array=0-3", "--nodes=1", "Invalid job array specification"),
        ("--nodelist=a", "--nodelist=a", "cannot be on the same node"),
    ],
)
def test_sbatch_refuses_components_like_the_real_one(tmp_path: Path, first: str, second: str, message: str) -> None:
    done = run_job(f"#!/bin/bash\n#SBATCH {first}\n#SBATCH hetjob\n#SBATCH {second}\ntrue\n", tmp_path)
    assert done.submitted.returncode == 1
    assert message in done.submitted.stderr


def test_srun_and_scontrol_refuse_unsupported_calls(tmp_path: Path) -> None:
    calls = ["srun --bcast=x true", "scontrol show nodes", "squeue -h -o %z", "SLURM_JOB_ID=1 srun true"]
    found = lines(tmp_path, "".join(f"{call}; echo $?\n" for call in calls))
    assert found[::2] == [
        "srun: error: unrecognized option '--bcast=x': not supported in a rehearsal",
        "scontrol: error: not supported in a rehearsal: scontrol show nodes",
        "squeue: error: not supported in a rehearsal: the field %z",
        "srun: error: Unable to confirm allocation for job 1: Invalid job id specified",
    ]
    assert found[1::2] == ["255", "1", "1", "1"]


def test_every_task_gets_the_whole_input(tmp_path: Path) -> None:
    found = lines(tmp_path, "printf 'a\\nb\\n' | srun --label cat | sort\necho c >file; srun --label cat <file | sort")
    assert found == ["0: a", "0: b", "1: a", "1: b", "2: a", "2: b", "0: c", "1: c", "2: c"]


def test_a_signal_to_srun_reaches_the_tasks(tmp_path: Path) -> None:
    code = """srun --nodes=1 --ntasks=1 bash -c 'trap "echo GOT; exit 5" USR1; echo UP; while :; do sleep 0.1; done' &
until grep -q UP out; do sleep 0.1; done; kill -s USR1 $!; wait $!; echo "code $?" """
    found = lines(tmp_path, code)
    assert "GOT" in found
    assert found[-1] == "code 5"


def test_a_signal_while_a_node_is_slow(tmp_path: Path) -> None:
    code = """folder=$(dirname $(command -v srun))/..; echo '{"kind": "slow-node", "node": 0}' >$folder/fault.json
srun --nodes=1 --ntasks=1 touch ran &
until [[ -d $folder/steps/0 ]]; do sleep 0.1; done; kill -s USR1 $!; wait $!; echo $?"""
    assert lines(tmp_path, code)[-1] == "138"
    assert not (tmp_path / "ran").exists()


def test_processes_that_a_script_leaves_are_ended(tmp_path: Path) -> None:
    code = "srun --nodes=1 --ntasks=1 sleep 900 &\nsetsid sleep 901 &\necho $! >pid; sleep 0.5"
    assert run_job(f"{HEAD}{code}\n", tmp_path).state.over
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_the_time_limit(tmp_path: Path) -> None:
    code = "trap 'squeue -h -j $SLURM_JOB_ID -o %r; exit 9' TERM; while :; do sleep 0.1; done"
    done = run_job(f"{HEAD}{code}\n", tmp_path, "--time=0:01")
    assert (done.state.state, done.state.reason) == ("TIMEOUT", "TimeLimit")
    assert done.output == "TimeLimit\n"


def test_a_missing_directory_is_reported_like_slurm_does(tmp_path: Path) -> None:
    found = run_job(
        f"#!/bin/bash\n#SBATCH --output={tmp_path}/out --chdir=/no/such\npwd\n", tmp_path
    ).output.splitlines()
    assert found == ["slurmstepd: error: couldn't chdir to `/no/such': going to /tmp instead", "/tmp"]


def test_only_the_first_task_of_an_array_runs(tmp_path: Path) -> None:
    done = run_job("#!/bin/bash\n#SBATCH --array=4-9%2 --output=out_%a\necho $SLURM_ARRAY_TASK_ID\n", tmp_path)
    assert done.output == "4\n"
    assert (tmp_path / "out_4").exists()


def test_only_processes_of_the_job_are_ended(tmp_path: Path) -> None:
    """The PID of an ended task may be reused by another process."""
    with subprocess.Popen(["sleep", "900"]) as other:
        code = f"srun true; touch $(dirname $(command -v srun))/../steps/0/{other.pid}; sleep 900"
        assert run_job(f"{HEAD}{code}\n", tmp_path, "--time=0:01").state.state == "TIMEOUT"
        assert other.poll() is None
        other.kill()


def test_exported_functions_arrive(tmp_path: Path) -> None:
    code = "greet() { echo hello; }; export -f greet\nsrun --nodes=1 --ntasks=1 bash -c greet"
    assert lines(tmp_path, code) == ["hello"]


def test_a_reader_that_leaves_early(tmp_path: Path) -> None:
    assert lines(tmp_path, "scontrol show hostnames 'n[1-99999]' | head -n 1") == ["n1"]


def test_a_daemon_that_does_not_start(tmp_path: Path) -> None:
    with rehearse.rehearsal_folder() as (folder, _):
        (folder.path / "slurmd.json").mkdir()  # so the daemon cannot write its PID
        (tmp_path / "script").write_text(f"{HEAD}true\n")
        argv = [str(rehearse.install_fake_commands(folder) / "sbatch"), str(tmp_path / "script")]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
        (folder.path / "slurmd.json").rmdir()
    assert (done.returncode, done.stdout) == (1, "")
    assert "sbatch: error: the rehearsal's daemon did not start" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["sleep", "900"]) as process:
        assert is_alive(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert os.path.exists(f"/proc/{process.pid}")
        assert not is_alive(process.pid)
    assert not is_alive(process.pid)


def test_a_requeued_job_restarts(tmp_path: Path) -> None:
    """It gets the warning two seconds after its start and requeues itself; a second request is refused."""
    script = """#!/bin/bash
#SBATCH --output=out --open-mode=append --time=0:32 --signal=B:USR1@30 --requeue
echo "attempt ${SLURM_RESTART_COUNT-0}"
trap 'trap "" TERM; echo warned; scontrol requeue $SLURM_JOB_ID; scontrol requeue $SLURM_JOB_ID; show; exit 3' USR1
show() { scontrol show job $SLURM_JOB_ID | grep -o 'Restarts=.'; }
show; ((SLURM_RESTART_COUNT)) || while :; do sleep 0.1; done
"""
    done = run_job(script, tmp_path)
    assert (done.state.state, done.state.code) == ("COMPLETED", 0), done.output
    lines = [line for line in done.output.splitlines() if "defined signal" not in line]
    assert lines[:3] == ["attempt 0", "Restarts=0", "warned"]
    assert lines[3].startswith("scontrol: error: Job is pending execution for job ")
    assert lines[4:] == ["Restarts=1", "attempt 1", "Restarts=1"]


def test_a_job_that_cannot_be_requeued(tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH --output=out --no-requeue\nscontrol requeue $SLURM_JOB_ID\n"
    done = run_job(script, tmp_path)
    assert done.output.startswith("scontrol: error: Requested operation is presently disabled for job "), done.output
    assert done.state.code == 1
