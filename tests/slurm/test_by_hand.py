"""Contract 11: the script can be submitted by hand, from any shell, also from within another job.

`slurm-launch submit` removes variables that would disturb; here plain sbatch passes all of them on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from tests.slurm.jobs import HOME, Job, standing_ray, submit, wrapped_ray, write
from tests.slurm.test_limits import recording_ray, told
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm


def submitted(job: Job, command: list[str], env: dict[str, str] | None = None) -> Job:
    """Run a command that ends with the arguments of sbatch, and wait for the job."""
    done = job.cluster.run([*command, "sbatch", "--parsable", f"{job.name}.sh"], env=env, check=True)
    job.id = done.stdout.split()[-1]
    return job.wait()


# What an outer job or a login shell may leave in the environment.
LEFTOVERS = {
    "SLURM_LABELIO": "1",
    "SLURM_UNBUFFEREDIO": "1",
    "SLURM_STDOUTMODE": "/dev/null",
    "SLURM_STDINMODE": "none",
    "SRUN_OUTPUT": "/dev/null",
    "SLURM_MEM_PER_NODE": "100",
    "SLURM_GPUS_PER_NODE": "2",
    "SLURM_GPUS": "9",
    "SLURM_CPUS_PER_GPU": "3",
    "SLURM_CPUS_PER_TASK": "7",
    "SRUN_CPUS_PER_TASK": "7",
    "SLURM_TRES_PER_TASK": "cpu=7",
    "SLURM_NTASKS": "5",
    "SLURM_NTASKS_PER_NODE": "5",
    "SLURM_DISTRIBUTION": "cyclic",
    "SLURM_HINT": "nomultithread",
    "SLURM_THREADS_PER_CORE": "1",
    "SLURM_EXACT": "1",
    "SLURM_EXCLUSIVE": "1",
    "SLURM_CPU_BIND": "cores",
    "SLURM_HET_SIZE": "3",
    "SLURM_KILL_BAD_EXIT": "1",
    "SLURM_TIMELIMIT": "1",
    "PMI_RANK": "0",
    "PMIX_RANK": "0",
    "PYXIS_CONTAINER_IMAGE": "ubuntu",
}


def test_variables_that_are_left_over(cluster: Cluster) -> None:
    job = write(cluster, num_nodes=2, mem_per_cpu="500M", cpus_per_task=2, load_env=recording_ray(cluster))
    submitted(job, [], env=LEFTOVERS)
    assert job.code == 0, job.log
    assert job.end["outcome"] == "ok"
    for node in ("n1", "n2"):
        assert told(job, node) == {"cpus": 2, "gpus": 0, "memory": 1000, "limit": 1000}


@pytest.mark.parametrize("inside", ["a batch job", "a step"])
def test_from_within_another_job(cluster: Cluster, inside: str) -> None:
    """The outer job has GPUs and asks for memory in another way."""
    job = write(cluster, num_nodes=2, mem_per_cpu="500M", cpus_per_task=2, load_env=recording_ray(cluster))
    outer = ["--nodes=1", "--mem=300M", "--gpus-per-node=2", "--cpus-per-task=3"]
    if inside == "a step":
        submitted(job, ["srun", *outer])
    else:
        code = f"#!/bin/bash\nsbatch --parsable {shlex.quote(job.name)}.sh >inner.id\n"
        done = cluster.run(["sbatch", "--parsable", *outer, "--output=outer.log"], stdin=code, check=True)
        cluster.wait_job(done.stdout.strip())
        job.id = cluster.path(f"{HOME}/inner.id").read_text().strip()
        job.wait()
    assert job.code == 0, job.log
    for node in cluster.run(["scontrol", "show", "hostnames", job.state["NodeList"]]).stdout.split():
        assert told(job, node) == {"cpus": 2, "gpus": 0, "memory": 1000, "limit": 1000}


SHELLS = {
    "set -u": "set -u",
    "noisy": "echo WELCOME; echo TO THE CLUSTER >&2",
    "aliases": "shopt -s expand_aliases; alias grep='grep --color=always' local='echo' kill='echo' mkdir='false'",
    "options": "set -o posix; shopt -s nullglob nocasematch; set -o noclobber",
}


@pytest.mark.parametrize("code", SHELLS.values(), ids=SHELLS)
def test_what_every_shell_reads_first(cluster: Cluster, code: str) -> None:
    """BASH_ENV names a file that every bash of the job reads: the script, its steps, and the command."""
    cluster.run(["tee", "every-shell"], stdin=f"{code}\n", check=True)
    job = write(cluster, num_nodes=2, load_env=[standing_ray(cluster)], command="echo RAN")
    submitted(job, [], env={"BASH_ENV": f"{HOME}/every-shell"})
    assert (job.code, job.end["outcome"]) == (0, "ok"), job.log
    assert "RAN" in job.output


def test_a_shell_with_exported_options(cluster: Cluster) -> None:
    job = write(cluster, num_nodes=2, load_env=[standing_ray(cluster)], command="echo RAN")
    submitted(job, ["bash", "-c", 'set -u; export SHELLOPTS; exec "$@"', "bash"])
    assert (job.code, job.end["outcome"]) == (0, "ok"), job.log
    assert "RAN" in job.output


def test_in_an_allocation_of_salloc(cluster: Cluster) -> None:
    """The shell of salloc is on the login node: the script refuses, and says what works."""
    job = write(cluster, num_nodes=2, load_env=[standing_ray(cluster)], command="echo RAN ON $SLURM_JOB_NUM_NODES")
    salloc = ["salloc", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem=1G"]
    done = cluster.run([*salloc, "bash", f"{job.name}.sh"])
    assert done.returncode == 77
    assert 'cause="login is not a node of job ' in done.stdout
    hint = f"srun --nodes=1 --ntasks=1 --overlap bash {job.name}.sh"
    assert f"within salloc: {hint}" in done.stdout
    done = cluster.run([*salloc, *hint.split()])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "RAN ON 2" in done.stdout.splitlines()


def test_without_a_job(cluster: Cluster) -> None:
    job = write(cluster, num_nodes=2)
    done = cluster.run(["bash", f"{job.name}.sh"])
    assert done.returncode == 77
    assert f'cause="this is not a Slurm job" hint="submit the script: sbatch {job.name}.sh"' in done.stdout


def test_ip_is_in_the_path_of_root_only(cluster: Cluster) -> None:
    """As on most clusters. The address is found all the same."""
    hide = 'mkdir -p own; for f in /usr/bin/* /bin/*; do [[ $f == */ip ]] || ln -sf "$f" own/; done'
    hide += "; PATH=${PATH//:*}:$PWD/own"
    job = submit(cluster, num_nodes=2, load_env=[standing_ray(cluster), hide, "! command -v ip"]).wait()
    assert job.code == 0, job.log
    assert f"address={cluster.address('n1', 4)}:" in job.log


def test_a_private_tmp_for_each_job(make_cluster: Callable[..., Cluster]) -> None:
    """job_container/tmpfs: the script, its steps and the command share it."""
    cluster = make_cluster(nodes=2, private_tmp=True)
    job = submit(cluster, num_nodes=2, load_env=[standing_ray(cluster)], command="ls -d ${RAY_TMPDIR%/t}").wait()
    assert (job.code, job.end["outcome"]) == (0, "ok"), job.log


def test_a_site_that_hides_jobs_and_has_a_task_prolog(make_cluster: Callable[..., Cluster]) -> None:
    """PrivateData hides the jobs of others, not one's own. The output of a TaskProlog sets variables."""
    prolog = "#!/bin/bash\necho export SLAUNCH_NODE_IP=10.88.0.$((10 + ${SLURMD_NODENAME#n}))\n"
    cluster = make_cluster(
        nodes=2,
        node_options={node: NodeOptions(eth1=True) for node in ("n1", "n2")},
        slurm_conf_extra=["PrivateData=jobs,nodes,usage,users", "TaskProlog=/etc/slurm/task_prolog.sh"],
        etc_slurm={"task_prolog.sh": prolog},
    )
    dump = f'printf "%s\\n" "$@" >{HOME}/started-$SLURMD_NODENAME'
    ray = [standing_ray(cluster), wrapped_ray(cluster, dump, ray=f"{HOME}/standing/ray")]
    job = submit(cluster, num_nodes=2, mem="900M", load_env=ray).wait()
    assert job.code == 0, job.log
    for node in cluster.nodes:
        words = cluster.path(f"{HOME}/started-{node}").read_text().split()
        assert f"--node-ip-address=10.88.0.{10 + int(node[1:])}" in words
