"""The testbed itself: few and quick tests, because every other test on it depends on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import cgroups
from .cluster import STATE_PREFIX, Cluster, TestbedError, unavailable_reason
from .config import NodeOptions
from .procs import scan

SUITE = os.environ.get("TESTBED_SUITE", "host")
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("testbed"),
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
]


needs_cgroups = pytest.mark.skipif(
    unavailable_reason(cgroups=True) is not None, reason=str(unavailable_reason(cgroups=True))
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    second = NodeOptions(tmp_size="1m", hosts_extra=["127.0.1.1 n2"], docker0=True, eth1=True)
    with Cluster(nodes=3, suite=SUITE, node_options={"n2": second, "n3": NodeOptions(eth1=True)}) as running:
        yield running


def test_a_job_of_alice_runs_on_all_nodes(cluster: Cluster) -> None:
    done = cluster.run(["srun", "-N3", "bash", "-c", "echo $(hostname) $(id -un)"], check=True)
    assert sorted(done.stdout.splitlines()) == ["n1 alice", "n2 alice", "n3 alice"]


def test_a_batch_job_ends_with_its_code_and_output_in_the_shared_home(cluster: Cluster) -> None:
    script = "#!/bin/bash\nsrun -N3 bash -c 'echo $CUDA_VISIBLE_DEVICES'\nexit 3\n"
    cluster.path("/home/alice/job.sh").write_text(script)
    argv = ["sbatch", "--parsable", "-N3", "--gpus-per-node=2", "--comment=a comment", "job.sh"]
    job_id = cluster.run(argv, check=True).stdout.strip()
    job = cluster.wait_job(job_id)
    assert (job["JobState"], job["ExitCode"], job["Comment"]) == ("FAILED", "3:0", "a comment")
    assert cluster.path(f"/home/alice/slurm-{job_id}.out").read_text() == "0,1\n" * 3
    assert cluster.leftovers() == []


def test_each_node_has_its_own_tmp_hosts_file_and_interfaces(cluster: Cluster) -> None:
    cluster.run(["touch", "/tmp/mine"], node="n1", check=True)
    assert cluster.node_path("n1", "/tmp/mine").exists()
    assert not cluster.node_path("n3", "/tmp/mine").exists()
    full = cluster.run(["dd", "if=/dev/zero", "of=/tmp/big", "bs=1M", "count=2"], node="n2")
    assert "No space left" in full.stderr
    assert "127.0.1.1" in cluster.run(["getent", "ahostsv4", "n2"], node="n2").stdout
    assert cluster.address("n2", 4) in cluster.run(["getent", "ahostsv4", "n2"], node="n1").stdout
    addresses = cluster.run(["hostname", "-I"], node="n2").stdout.split()
    assert addresses[:3] == ["172.17.0.1", "10.88.0.12", "10.77.0.12"]
    assert cluster.run(["hostname", "-I"], node="n1").stdout.split() == ["10.77.0.11", "fd77::11"]


def test_reset_repairs_a_killed_slurmd_and_a_cut_link(cluster: Cluster) -> None:
    job_id = cluster.run(["sbatch", "--parsable", "-N3", "--wrap", "srun sleep 300"], check=True).stdout.strip()
    while len(cluster.processes("n2", "alice")) == 0:
        time.sleep(0.05)
    cluster.run(["touch", "/tmp/mine"], node="n2", check=True)
    cluster.kill_slurmd("n2")
    cluster.link_down("n3")
    answer = cluster.run(["timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{cluster.address('n3')}/6818"])
    assert answer.returncode != 0
    cluster.reset()
    assert cluster.job(job_id)["JobState"] == "CANCELLED"
    assert cluster.leftovers() == []
    assert list(cluster.node_path("n2", "/tmp").iterdir()) == []
    assert len(cluster.run(["srun", "-N3", "hostname"], check=True).stdout.split()) == 3


@needs_cgroups
def test_the_kernel_enforces_the_memory_of_a_job(cluster: Cluster) -> None:
    allocate = "python3 -c 'bytearray(300 << 20)'"
    states = []
    for memory in ("400M", "100M"):
        argv = ["sbatch", "--parsable", f"--mem={memory}", "--wrap", allocate]
        states.append(cluster.wait_job(cluster.run(argv, check=True).stdout.strip())["JobState"])
    assert states == ["COMPLETED", "OUT_OF_MEMORY"]


@needs_cgroups
def test_a_step_can_open_its_own_gpu_only(cluster: Cluster) -> None:
    step = [
        "touch $SLURM_STEP_ID",
        "until [[ -e 0 && -e 1 ]]; do sleep 0.05; done",  # so that both run at the same time
        "cat /etc/slurm/gpu0 /etc/slurm/gpu1 2>&1 || echo $CUDA_VISIBLE_DEVICES",
    ]
    cluster.run(["mkdir", "gpus"], check=True)
    cluster.path("/home/alice/gpus/step.sh").write_text("\n".join(step))
    job = "for i in 1 2; do srun --exact -n1 -c1 --gpus=1 --mem=50M -o step.%s bash step.sh & done; wait"
    argv = ["sbatch", "--parsable", "-D", "gpus", "-N1", "-n2", "--gpus=2", "--wrap", job]
    cluster.wait_job(cluster.run(argv, check=True).stdout.strip())
    outputs = {cluster.path(f"/home/alice/gpus/step.{i}").read_text() for i in (0, 1)}
    opened, refused = "No such device or address", "Operation not permitted"  # opened, but there is no driver
    # Slurm numbers the GPUs that a step can open from 0.
    assert outputs == {
        f"cat: /etc/slurm/gpu0: {opened}\ncat: /etc/slurm/gpu1: {refused}\n0\n",
        f"cat: /etc/slurm/gpu0: {refused}\ncat: /etc/slurm/gpu1: {opened}\n0\n",
    }


def test_a_step_can_open_all_other_devices(cluster: Cluster) -> None:
    # As root: the machine may protect /dev/fuse from users.
    devices = "for f in null zero full random urandom fuse ptmx; do : </dev/$f; done; : >/dev/shm/mine"
    assert cluster.run(["srun", "bash", "-c", devices], user="root", check=True).stderr == ""
    terminal = cluster.run(["script", "-qec", "srun --pty bash -c 'tty </dev/tty'", "/dev/null"], check=True)
    assert "/dev/tty" in terminal.stdout


@needs_cgroups
def test_a_daemon_of_a_job_ends_with_it(cluster: Cluster) -> None:
    cluster.run(["srun", "-N3", "setsid", "--fork", "env", "-i", "sleep", "4712"], check=True)
    assert cluster.leftovers() == []


@needs_cgroups
def test_each_node_has_its_own_cgroups(cluster: Cluster) -> None:
    seen = cluster.run(["srun", "-w", "n2", "cat", "/proc/self/cgroup"], check=True).stdout
    assert {line.split("/")[1] for line in seen.splitlines() if ":memory:" in line} == {"slurm_n2"}
    listed = cluster.run(["bash", "-c", "echo /sys/fs/cgroup/memory/slurm*"], node="n2", check=True).stdout
    assert listed == "/sys/fs/cgroup/memory/slurm_n2\n"
    # What a test runs on the node is outside of all jobs.
    assert ":memory:/\n" in cluster.run(["cat", "/proc/self/cgroup"], node="n2", check=True).stdout


@needs_cgroups
def test_reset_removes_the_cgroups_and_frozen_processes_of_a_lost_job(cluster: Cluster) -> None:
    cluster.run(["sbatch", "-w", "n3", "--wrap", "sleep 300"], check=True)
    while not any("sleep 300" in process.args for process in cluster.processes("n3", "alice")):
        time.sleep(0.05)
    cluster.signal("n3", "slurmstepd", signal.SIGSTOP)  # it cannot clean up
    (job,) = cluster.node_path("n3", "/sys/fs/cgroup/freezer").glob("slurm*/uid_7001/job_*")
    (job / "freezer.state").write_text("FROZEN")
    cluster.signal("n3", "slurmstepd", signal.SIGKILL)
    cluster.reset()
    assert cluster.leftovers() == []
    assert list(cluster.node_path("n3", "/sys/fs/cgroup").glob("*/slurm*/uid_*")) == []


def test_a_command_that_times_out_is_ended(cluster: Cluster) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sleep", "4711"], timeout=0.5)
    time.sleep(0.1)
    assert cluster.processes("login") == []


def test_a_daemon_that_does_not_start_is_reported_at_once_with_its_log() -> None:
    started = time.monotonic()
    with pytest.raises(TestbedError, match=r"fatal: .*select/nosuch"):
        Cluster(nodes=1, slurm_conf_extra=["SelectType=select/nosuch"]).start()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("families", ["4", "6"])
def test_one_address_family(families: str) -> None:
    with Cluster(nodes=2, families=families) as running:
        assert len(running.run(["srun", "-N2", "hostname"], check=True).stdout.split()) == 2
        addresses = running.run(["hostname", "-I"], node="n1").stdout.split()
        assert addresses == [running.address("n1", families)]


def test_many_nodes_are_routed() -> None:
    with Cluster(nodes=26) as running:
        assert len(set(running.run(["srun", "-N26", "hostname"], check=True).stdout.split())) == 26
        running.link_down("n26")
        running.link_up("n26")
        assert running.run(["srun", "-w", "n26", "hostname"], check=True).stdout == "n26\n"


def test_without_cgroups_nothing_is_enforced(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "NEEDED", {"memory", "nosuch"})
    assert "no writable cgroup v1 controllers nosuch" in str(unavailable_reason(cgroups=True))
    for wanted in (True, False):
        with Cluster(nodes=1, suite=SUITE, cgroups=wanted) as running:
            assert not running.settings.cgroups
            assert ("runs without cgroups: " in capfd.readouterr().err) == wanted
            code = "setsid --fork env -i sleep 4712 >/dev/null 2>&1; python3 -c 'bytearray(300 << 20)'"
            running.run(["srun", "--mem=100M", "bash", "-c", code], check=True)
            assert [process.args for process in running.leftovers(0)] == ["sleep 4712"]
            running.reset()
            assert running.leftovers(0) == []


def test_threads_of_a_core_default_memory_per_gpu_and_a_task_prolog() -> None:
    extra = ["DefMemPerGPU=700", "TaskProlog=/etc/slurm/prolog.sh", "PrivateData=jobs"]
    prolog = "#!/bin/bash\necho export GREETING=hello\n"
    with Cluster(nodes=1, suite=SUITE, threads=2, slurm_conf_extra=extra, etc_slurm={"prolog.sh": prolog}) as running:
        show = running.run(["scontrol", "show", "node", "n1"], check=True).stdout
        assert "CPUTot=8" in show
        assert "CoresPerSocket=4" in show
        assert "ThreadsPerCore=2" in show
        argv = ["srun", "--gpus=1", "bash", "-c", "echo $GREETING; squeue -h -O tres-alloc:50"]
        assert running.run(argv, check=True).stdout.split() == ["hello", "cpu=2,mem=700M,node=1,billing=2"]
        job_id = running.run(["sbatch", "--parsable", "--wrap", "sleep 300"], check=True).stdout.strip()
        assert running.run(["squeue", "-h", "-o", "%i"]).stdout.split() == [job_id]
        assert running.run(["squeue", "-h", "-o", "%i"], user="bob").stdout == ""


@needs_cgroups
def test_a_step_can_use_only_its_own_real_cpus() -> None:
    count = os.cpu_count() or 1
    if count < 2 or len(os.sched_getaffinity(0)) < count:
        pytest.skip("binding needs two CPUs, and all of the machine's")
    with Cluster(nodes=1, suite=SUITE, real_cpus=True) as running:
        if "ThreadsPerCore=1" not in running.run(["scontrol", "show", "node", "n1"], check=True).stdout:
            pytest.skip("a job gets whole cores, and those of this machine have several CPUs")
        # A process may choose among its own CPUs only.
        used = f"taskset --cpu-list 0-{count - 1} nproc"
        for cpus in (1, 2):
            assert running.run(["srun", "-c", str(cpus), "bash", "-c", used], check=True).stdout == f"{cpus}\n"


def test_each_job_has_its_own_tmp() -> None:
    with Cluster(nodes=2, suite=SUITE, private_tmp=True) as running:
        for _ in range(2):
            argv = ["srun", "-N2", "bash", "-c", "ls -A /tmp; touch /tmp/mine; nproc"]
            assert running.run(argv, check=True).stdout.split() == [str(len(os.sched_getaffinity(0)))] * 2
        script = "touch /tmp/mine; srun ls /tmp; ls /tmp"
        job_id = running.run(["sbatch", "--parsable", "-N1", "--wrap", script], check=True).stdout.strip()
        running.wait_job(job_id)
        assert running.path(f"/home/alice/slurm-{job_id}.out").read_text() == "mine\nmine\n"
        assert list(running.node_path("n1", "/tmp").iterdir()) == []


@pytest.mark.skipif(unavailable_reason(accounting=True) is not None, reason=str(unavailable_reason(accounting=True)))
def test_accounting_is_real() -> None:
    with Cluster(nodes=1, accounting=True) as running:
        running.run(["srun", "bash", "-c", "exit 4"])
        deadline = time.monotonic() + 20  # slurmctld passes its records on every few seconds
        rows = ""
        while "FAILED" not in rows and time.monotonic() < deadline:
            rows = running.run(["sacct", "-X", "-n", "-P", "-o", "User,Account,State,ExitCode"], check=True).stdout
            time.sleep(0.2)
        assert rows == "alice|lab|FAILED|4:0\n"
        assert "Invalid account" in running.run(["sbatch", "-A", "nosuch", "--wrap", "true"]).stderr


@needs_cgroups
def test_stop_removes_the_cgroups_even_of_frozen_processes() -> None:
    with Cluster(nodes=1, suite=SUITE) as running:
        name = running.state.name
        running.run(["sbatch", "--wrap", "sleep 300"], check=True)
        while not any("sleep 300" in process.args for process in running.processes("n1", "alice")):
            time.sleep(0.05)
        (job,) = running.node_path("n1", "/sys/fs/cgroup/freezer").glob("slurm*/uid_7001/job_*")
        (job / "freezer.state").write_text("FROZEN")
        assert {path.parts[4] for path in _cgroups(name)} == cgroups.NEEDED
    assert _cgroups(name) == []


@needs_cgroups
def test_the_next_start_removes_the_cgroups_of_a_cluster_that_could_not() -> None:
    state, _ = _killed_cluster(with_guard=True)
    assert len(_cgroups(state.name)) == len(cgroups.NEEDED)
    with Cluster(nodes=1, suite=SUITE):
        assert _cgroups(state.name) == []
        assert not state.exists()


def test_nothing_is_left_when_python_is_killed() -> None:
    state, ours = _killed_cluster()
    deadline = time.monotonic() + 5
    while (left := ours & _namespaces(int(pid) for pid in os.listdir("/proc") if pid.isdigit())) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert not left
    assert str(state) not in Path("/proc/self/mountinfo").read_text()
    while _cgroups(state.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _cgroups(state.name) == []
    with Cluster(nodes=1):
        assert not state.exists()  # the next start cleans up


def _killed_cluster(with_guard: bool = False) -> tuple[Path, set[str]]:
    """The state folder and the namespaces of a cluster whose Python process was killed."""
    code = "from tests.testbed import Cluster; c = Cluster(nodes=2); c.start(); print(c.state, flush=True); input()"
    argv = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as python:
        assert python.stdout is not None
        state = Path(python.stdout.readline().strip())
        assert state.name.startswith(STATE_PREFIX)
        ours = _namespaces(int(path.read_text()) for path in (state / "pids").iterdir())
        assert len(ours) >= 3 * 3  # network, mount and PID, of the login node and two nodes
        if unavailable_reason(cgroups=True) is None:
            assert len(_cgroups(state.name)) == len(cgroups.NEEDED)
        if with_guard:
            (guard,) = (pid for pid, seen in scan().items() if seen.args[1:] == [str(cgroups.GUARD), state.name])
            os.kill(guard, signal.SIGKILL)
        python.send_signal(signal.SIGKILL)
    return state, ours


def _cgroups(name: str) -> list[Path]:
    """The cgroups of the cluster with this name, one for each controller."""
    return [Path(path) for path, _, _ in os.walk(cgroups.CGROUP_ROOT) if os.path.basename(path) == name]


def _namespaces(pids: Iterator[int]) -> set[str]:
    found = set()
    for pid in pids:
        for kind in ("net", "mnt", "pid"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                break  # it has ended
    return found
