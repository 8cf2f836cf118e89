"""`explain` names the cause of what really fails: jobs on the cluster, each broken in another way.

Where Ray is not the point a `ray` that only stands there takes its place, so that many jobs can run side by side.
"""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from slurm_launch.explain.evidence import JobFacts
from slurm_launch.explain.explain import Explanation, explain
from slurm_launch.explain.job_files import read_files
from slurm_launch.slurm import jobs as slurm_jobs
from tests.slurm.desk import read_until
from tests.slurm.jobs import HOME, OLD_RAY, ROOT, VENV, Job, python, standing_ray, submit, wrapped_ray
from tests.testbed import Cluster, NodeOptions

pytestmark = pytest.mark.slurm

PATIENT = "trap 'exit 0' TERM; echo UP; while :; do sleep 0.1; done"
PYTHON = f"{VENV}/bin/python"


def why(job: Job, timeout: float = 120) -> Explanation:
    """What `explain` says, of what Slurm and the files say."""
    job.wait(timeout)
    (state,) = slurm_jobs.parse_show_job(job.cluster.run(["scontrol", "show", "job", "-o", job.id], check=True).stdout)
    stem = job.cluster.path(f"{HOME}/{job.name}")
    files = read_files(f"{stem}.log", f"{stem}.ray")
    return explain(JobFacts(state.state, state.reason, state.code, state.signal, files))


def real(code: str) -> str:
    """A command that runs this code; `python3` is a mere figure where Ray is one."""
    return shlex.join([PYTHON, "-c", code])


def all_named(jobs: dict[str, Job]) -> dict[str, Explanation]:
    """Each job by the cause that it must have; behind a dot which kind of it."""
    found = {case: why(job) for case, job in jobs.items()}
    wrong = {case: (one, jobs[case].log) for case, one in found.items() if one.cause != case.partition(".")[0]}
    assert not wrong, "\n".join(f"{case}: {one}\n{log}" for case, (one, log) in wrong.items())
    return found


@contextmanager
def held_by_bob(cluster: Cluster, node: str, ports: range) -> Iterator[None]:
    code = (
        f"import socket, time; held = [socket.create_server(('', port)) for port in {ports!r}]; "
        "print('HELD', flush=True); time.sleep(900)"
    )
    process = cluster.popen(["/usr/bin/python3", "-c", code], user="bob", node=node)
    read_until(process, "^HELD$")
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_before_the_command(cluster: Cluster) -> None:
    standing = standing_ray(cluster)
    slow = wrapped_ray(cluster, "[[ $SLURMD_NODENAME == n1 ]] || sleep 900", f"{HOME}/standing/ray")
    without = wrapped_ray(cluster, "[[ $SLURMD_NODENAME == n3 ]] || exec ray-is-missing", f"{HOME}/standing/ray")
    refused = "mkfifo() { echo \"mkfifo: cannot create fifo '$1': Operation not supported\" >&2; false; }"
    broken: dict[str, dict[str, Any]] = {
        "environment": {"load_env": ["source no-such-setup.sh"]},
        "environment.module": {"modules": ["no-such-module/1.0"]},
        "environment.conda": {"conda_env": "no-such-environment"},
        "script-ended": {"load_env": ["exit 0"]},
        "ray-missing": {"load_env": ["PATH=/usr/bin:/bin"]},
        "ray-missing.worker": {"num_nodes": 2, "node": "n[3-4]", "load_env": [without]},
        "no-address": {"interface": "ib7"},
        "container": {"container_runtime": "charliecloud", "container_image": "/images/gone"},
        "temp-dir": {"temp_dir": "/etc/nobodys"},
        "temp-dir-too-long": {"temp_dir": "/tmp/%u/%u/%u/%u/%u"},
        "temp-dir-on-network": {"load_env": [refused]},  # this kernel has no network file system to offer
        "option-refused": {"srun_arg": ["--no-such-option"]},
        "port-in-use": {"node": "n6", "port_range": "21000-21063"},
        "start-timeout": {"num_nodes": 2, "node": "n[1-2]", "start_timeout": 10, "load_env": [slow]},
    }
    with held_by_bob(cluster, "n6", range(21000, 21064, 8)):
        jobs = {
            case: submit(
                cluster, exp_name="broken", **{**options, "load_env": [standing, *options.get("load_env", [])]}
            )
            for case, options in broken.items()
        }
        found = all_named(jobs)
    assert all(one.sure and one.evidence and one.advice for one in found.values())
    assert found["environment"].sentence == "the environment could not be loaded: source no-such-setup.sh"
    assert found["environment.conda"].sentence == "the environment could not be loaded: conda is not in PATH"
    assert "/images/gone" in found["container"].sentence
    assert found["start-timeout"].node == "n2"
    assert found["ray-missing.worker"].node == "n4"


def test_the_command(cluster: Cluster) -> None:
    standing = standing_ray(cluster)
    cluster.run(
        ["tee", "broken.py"], stdin="import sys\n\n\ndef main():\n    return {}['name']\n\n\nmain()\n", check=True
    )
    commands = {
        "python-error": f"{PYTHON} broken.py",
        "module-missing": real("import no_such_module"),
        "file-missing": f"{PYTHON} gone.py",
        "command-not-found": "no-such-program",
        "not-executable": "./broken.py",
        "shell-syntax": "if; then",
        "no-space": "echo x >/dev/full",
        "no-space.python": real("open('/dev/full', 'wb', 0).write(b'x')"),
        "port-in-use": real("import socket; held = [socket.create_server(('', 29999)) for _ in range(2)]"),
        "command-killed": "bash -c 'kill -KILL $$'",
        "command-killed.crash": "bash -c 'kill -SEGV $$'",
        "command-failed": "echo went wrong >&2; exit 3",
        "not-failed": "true",
    }
    jobs = {
        case: submit(cluster, exp_name="broken", num_nodes=1, load_env=[standing], command=command)
        for case, command in commands.items()
    }
    found = all_named(jobs)
    unsure = {case for case, one in found.items() if not one.sure}
    assert unsure == {"command-killed", "command-failed"}
    assert found["python-error"].sentence == f"the command failed with KeyError: 'name' ({HOME}/broken.py:5 in main)"
    assert any("went wrong" in line for line in found["command-failed"].evidence)


def test_slurm_ends_it(cluster: Cluster) -> None:
    standing = standing_ray(cluster)

    def job(command: str = PATIENT, *sbatch: str, **options: Any) -> Job:
        return submit(
            cluster, exp_name="broken", num_nodes=1, load_env=[standing], command=command, arguments=sbatch, **options
        )

    first = job("exit 1").wait()
    jobs = {
        "cancelled": job().wait_for("\nUP"),
        "cancelled.while-waiting": job(PATIENT, "--hold"),
        "script-killed": job(node="n6").wait_for("\nUP"),
        "not-launched": job(PATIENT, "--output=/no/such/folder/x.log"),
        "deadline": job(PATIENT, "--time=1:00:00", "--deadline=now+5seconds"),
        "dependency": job(PATIENT, f"--dependency=afterok:{first.id}", "--kill-on-invalid-dep=yes"),
    }
    cluster.run(["scancel", jobs["cancelled"].id, jobs["cancelled.while-waiting"].id], check=True)
    assert cluster.signal("n6", r"^/bin/bash /var/.*slurm_script", signal.SIGKILL)
    found = all_named(jobs)
    assert {case for case, one in found.items() if not one.sure} == {"script-killed"}


def test_real_ray(cluster: Cluster) -> None:
    """Few at a time: Ray takes its time on two cores. Beside them a job runs into its limit, of a minute at least."""
    standing = standing_ray(cluster)
    limited = submit(cluster, node="n6", partition="short", time="1", load_env=[standing], command=PATIENT)
    old = wrapped_ray(cluster, f'[[ $SLURMD_NODENAME != n2 ]] || exec {OLD_RAY}/bin/ray "$@"')
    version = submit(cluster, num_nodes=2, node="n[1-2]", load_env=[old])
    token = f"export RAY_AUTH_TOKEN={'0' * 64}"
    worker_token = submit(
        cluster, num_nodes=2, node="n[3-4]", load_env=[wrapped_ray(cluster, f"[[ $SLURMD_NODENAME != n4 ]] || {token}")]
    )
    divided = "import ray; ray.init()\n@ray.remote\ndef divide(n):\n    return 1 // n\nray.get(divide.remote(0))"
    task = submit(cluster, num_nodes=1, node="n5", command=python(divided))  # the first two wait for much of their time
    named = all_named({"version-mismatch": version, "token-mismatch": worker_token, "python-error": task})
    assert named["python-error"].sentence.startswith("the command failed with ZeroDivisionError: ")
    assert "n2 has Ray 2.40.0, the head 2.60" in named["version-mismatch"].sentence
    assert named["token-mismatch"].node == "n4"

    hungry = (
        "import ray; ray.init()\n"
        "@ray.remote(max_retries=0)\ndef hungry():\n    import time; data = b'x' * (200 << 20); time.sleep(60)\n"
        "ray.get(hungry.remote())"
    )
    memory = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "100"}
    lost = submit(cluster, num_nodes=2, node="n[3-4]", command=PATIENT)
    jobs = {
        "ray-out-of-memory": submit(cluster, num_nodes=1, node="n1", env=memory, command=python(hungry)),
        "ray-died": lost.wait_for("\nUP", 120),
    }
    assert cluster.signal("n4", r"/raylet/raylet ", signal.SIGKILL)
    named = all_named(jobs)
    assert named["ray-died"].node == "n4"
    assert any("exit code" in line for line in named["ray-died"].evidence)
    assert why(limited, 150).cause == "time-limit"


def test_slurms_memory_limit(make_cluster: Callable[..., Cluster]) -> None:
    """Without cgroups, by slurmstepd's own watch. tests/slurm/test_out_of_memory.py has what the kernel does."""
    watch = ["JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=task=1"]
    cluster = make_cluster(nodes=1, cgroups=False, slurm_conf_extra=[*watch, "JobAcctGatherParams=OverMemoryKill"])
    eat = "/usr/bin/python3 -c 'import time; x = b\"x\" * (600 << 20); time.sleep(900)'"
    standing = standing_ray(cluster)
    eater = wrapped_ray(cluster, f"{eat} &", f"{HOME}/standing/ray")
    jobs = {
        "out-of-memory": submit(cluster, mem="200M", load_env=[standing], command=eat),
        "out-of-memory.step": submit(cluster, mem="200M", load_env=[standing, eater], command=PATIENT),
    }
    for one in all_named(jobs).values():
        assert one.node == "n1"
        assert one.sure


def test_the_wrong_network(make_cluster: Callable[..., Cluster]) -> None:
    """The head has the interface, the worker has none."""
    cluster = make_cluster(nodes=2, node_options={"n1": NodeOptions(eth1=True)})
    job = submit(cluster, num_nodes=2, interface="eth1", start_timeout=10, load_env=[standing_ray(cluster)])
    found = why(job)
    assert (found.cause, found.sure, found.node) == ("head-not-reached", True, "n2"), job.log
    assert "Network is unreachable" in found.sentence
    assert "--interface" in found.advice


def test_a_node_fails(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2, slurmd_timeout=10, slurm_conf_extra=["MessageTimeout=4"])
    standing = standing_ray(cluster)
    job = submit(cluster, num_nodes=2, load_env=[standing], command=PATIENT).wait_for("\nUP")
    cluster.kill_slurmd("n2")
    assert why(job).cause == "node-failure", job.log


def test_preemption_and_a_prolog(make_cluster: Callable[..., Cluster]) -> None:
    urgent = "PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF State=UP"
    preempt = ["PreemptType=preempt/partition_prio", "PreemptMode=CANCEL", urgent]
    prolog = "/home/alice/prolog"
    cluster = make_cluster(nodes=1, slurm_conf_extra=[*preempt, f"Prolog={prolog}"])
    cluster.run(["tee", prolog], user="root", stdin="#!/bin/sh\n[ ! -e /tmp/broken ]\n", check=True)
    cluster.run(["chmod", "755", prolog], user="root", check=True)
    standing = standing_ray(cluster)
    job = submit(cluster, exclusive=True, load_env=[standing], command=PATIENT).wait_for("\nUP")
    cluster.run(["sbatch", "--partition=urgent", "--exclusive", "--wrap=true"], check=True)
    assert why(job).cause == "preempted", job.log
    cluster.run(["touch", "/tmp/broken"], user="root", node="n1", check=True)
    job = submit(cluster, load_env=[standing], command=PATIENT)
    assert why(job).cause == "prolog-failed", job.log


def test_the_verb(cluster: Cluster) -> None:
    """From the launch to the answer, as a user has it."""
    standing_ray(cluster)
    env = {"PYTHONPATH": str(ROOT), "PATH": f"{HOME}/standing:/usr/bin:/bin"}
    launcher = [PYTHON, "-m", "slurm_launch"]
    code = real("raise ValueError('wrong\\x1b[31m')")
    done = cluster.run([*launcher, "--exp-name", "verb", "--wait", "--command", code], env=env)
    assert done.returncode == 1, done.stderr
    told = cluster.run([*launcher, "explain", "verb"], env=env, check=True).stdout.splitlines()
    assert told[0] == "the command failed with ValueError: wrong (<string>:1)"
    assert told[1] == "evidence:"
    assert told[-2].startswith("what to do: ")
    answer = json.loads(cluster.run([*launcher, "explain", "verb", "--json"], env=env, check=True).stdout)
    assert (answer["tasks"][0]["cause"], answer["tasks"][0]["state"]) == ("python-error", "FAILED")
