"""Contract 9: the end, whoever brings it about, leaves nothing of ours, and takes nothing of others with it."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable

import pytest

from tests.slurm.conftest import left_behind
from tests.slurm.jobs import OLD_RAY, python, run, submit, write
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

SAVES = "trap 'echo GOT TERM; sleep 1; echo SAVED; exit 0' TERM; echo UP; while :; do sleep 0.1; done"


def test_scancel_gives_the_command_its_time(cluster: Cluster) -> None:
    job = submit(cluster, num_nodes=2, command=SAVES).wait_for("^UP|\nUP")
    cluster.run(["scancel", job.id], check=True)
    job.wait()
    assert job.state["JobState"] == "CANCELLED"
    assert job.output[-2:] == ["GOT TERM", "SAVED"], job.log
    assert job.end["outcome"] == "ended-from-outside"


@pytest.mark.parametrize("code", ["echo LOADING; sleep 60", "echo LOADING; sleep 60; true"], ids=["fails", "goes on"])
def test_scancel_while_the_environment_loads(cluster: Cluster, code: str) -> None:
    """It ends what is being loaded, too; that is not a failure of the environment."""
    job = submit(cluster, num_nodes=2, load_env=[code]).wait_for("LOADING")
    cluster.run(["scancel", job.id], check=True)
    job.wait()
    assert (job.end["outcome"], job.end["phase"]) == ("ended-from-outside", "environment"), job.log
    assert "starting" not in job.phases


def test_the_time_limit_gives_the_command_its_time(cluster: Cluster) -> None:
    job = submit(cluster, num_nodes=2, ray=OLD_RAY, partition="short", time="1", command=SAVES).wait(150)
    assert job.state["JobState"] == "TIMEOUT"
    assert job.output[-2:] == ["GOT TERM", "SAVED"], job.log
    assert job.end["outcome"] == "time-limit"


def test_preemption_gives_the_command_its_time(make_cluster: Callable[..., Cluster]) -> None:
    urgent = "PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF State=UP"
    preempt = ["PreemptType=preempt/partition_prio", "PreemptMode=CANCEL", urgent]
    cluster = make_cluster(nodes=1, slurm_conf_extra=preempt)
    job = submit(cluster, exclusive=True, ray=OLD_RAY, command=SAVES).wait_for("\nUP")
    cluster.run(["sbatch", "--partition=urgent", "--exclusive", "--wrap=true"], check=True)
    job.wait()
    assert job.state["JobState"] == "PREEMPTED"
    assert job.output[-2:] == ["GOT TERM", "SAVED"], job.log
    assert (job.end["outcome"], job.end["code"]) == ("ended-from-outside", "75")
    assert "preemption" in job.end["hint"]
    assert left_behind(cluster) == []


def test_the_batch_shell_is_killed(cluster: Cluster) -> None:
    """Two jobs side by side: one gets SIGTERM, the other SIGKILL."""
    asked = submit(cluster, num_nodes=2, node="n[1-2]", ray=OLD_RAY, command=SAVES)
    killed = submit(cluster, num_nodes=2, node="n[3-4]", ray=OLD_RAY, command=SAVES)
    for job, node, sent in ((asked, "n1", signal.SIGTERM), (killed, "n3", signal.SIGKILL)):
        job.wait_for("\nUP")
        assert cluster.signal(node, r"^/bin/bash /var/.*slurm_script", sent)
    for job in (asked, killed):
        job.wait()
        assert job.state["JobState"] in ("FAILED", "CANCELLED"), job.state
    assert asked.output[-2:] == ["GOT TERM", "SAVED"], asked.log
    assert asked.code == 75


def test_a_signal_is_for_the_command(cluster: Cluster) -> None:
    """What `--signal B:USR1@120` sends. Ray does not get it, and the job goes on."""
    until = "until grep -q ^GOT test-*.log; do sleep 0.1; done; ray status >/dev/null"
    command = f"trap 'echo GOT USR1' USR1; echo UP; {until}"
    cluster.run(["bash", "-c", "rm -f test-*.log"])
    job = submit(cluster, num_nodes=2, ray=OLD_RAY, command=command).wait_for("\nUP")
    cluster.run(["scancel", "--batch", "--signal=USR1", job.id], check=True)
    job.wait()
    assert (job.code, job.state["JobState"]) == (0, "COMPLETED"), job.log
    assert "GOT USR1" in job.output


def test_scancel_in_the_bring_up(cluster: Cluster) -> None:
    job = submit(cluster, num_nodes=3).wait_for(" starting ")
    time.sleep(1)
    cluster.run(["scancel", job.id], check=True)
    job.wait()
    assert job.state["JobState"] == "CANCELLED"
    assert job.end["outcome"] == "ended-from-outside"
    assert job.end["phase"] == "bring-up"


def test_what_tasks_left_running_goes_too(cluster: Cluster) -> None:
    """Actors that outlive the driver, and a daemon that a task has put into a session of its own."""
    job = run(
        cluster,
        num_nodes=2,
        command=python(
            "import os, ray, subprocess; ray.init()\n"
            "@ray.remote\nclass Stays:\n"
            "    def begin(self): subprocess.Popen(['sleep', '900'], start_new_session=True); return oct(os.umask(0))\n"
            "actor = Stays.options(name='a', lifetime='detached').remote()\n"
            "print('BEGUN', ray.get(actor.begin.remote()))"
        ),
    )
    assert job.code == 0, job.log
    assert "BEGUN 0o22" in job.output, "the user's umask; and the fixture looks at what is left"


def test_the_job_leaves_the_queue_at_once_and_keeps_logs_on_request(cluster: Cluster) -> None:
    """No timing is asserted but Slurm's own: the default KillWait would show as half a minute."""
    job = run(cluster, num_nodes=3, dashboard=True, keep_ray_logs=True, command="date +%s > ended")
    left = time.mktime(time.strptime(job.state["EndTime"], "%Y-%m-%dT%H:%M:%S"))
    ended = int(cluster.path("/home/alice/ended").read_text())
    assert left - ended <= 5
    for node in ("n1", "n2", "n3"):
        assert "ray-start.log" in job.kept(node), job.log
        assert any("raylet" in name for name in job.kept(node))


def test_a_node_that_does_not_answer_cleans_up_later(cluster: Cluster) -> None:
    """Slurm continues its shell and ends it by SIGTERM; if its srun were killed, it would get SIGKILL."""
    cluster.run(["rm", "-f", "go"])
    command = "until [[ -e go ]]; do sleep 0.1; done"
    job = submit(cluster, num_nodes=2, node="n[1-2]", ray=OLD_RAY, command=command).wait_for(" command ")
    assert cluster.signal("n2", r"^(/\S*/)?bash -c .*slaunch_program", signal.SIGSTOP)
    cluster.run(["touch", "go"])
    job.wait(90)
    assert job.end["outcome"] == "ok", job.log
    assert "Killed" not in job.log
    assert left_behind(cluster) == []


def test_sigterm_more_than_once(cluster: Cluster) -> None:
    """At the time limit Slurm sends it twice: the second one meets the clean-up."""
    job = submit(cluster, num_nodes=2, ray=OLD_RAY, command=SAVES).wait_for("\nUP")
    storm = f"while squeue -h -j {job.id} | grep -q .; do scancel --signal=TERM {job.id}; done"
    cluster.run(["bash", "-c", storm])
    job.wait()
    assert job.end["outcome"] in ("node-lost", "ended-from-outside"), job.log


def test_a_job_that_the_command_submits_lives_on(cluster: Cluster) -> None:
    """It inherits the environment of this one, and so the mark of its processes, and runs on the same node."""
    inner = "until [ -e over ]; do sleep 0.1; done; echo it lives >inner.out"
    cluster.run(["rm", "-f", "over", "inner.out"])
    command = f"sbatch --parsable --nodelist=n1 --output=/dev/null --wrap={shlex.quote(inner)} | tee inner.id"
    command += "; until squeue -h -t R -j $(cat inner.id) | grep -q .; do sleep 0.1; done"
    job = run(cluster, num_nodes=1, node="n1", command=command)
    assert job.code == 0, job.log
    cluster.run(["touch", "over"])
    state = cluster.wait_job(cluster.path("/home/alice/inner.id").read_text().strip())
    assert state["JobState"] == "COMPLETED", state
    assert cluster.path("/home/alice/inner.out").read_text() == "it lives\n"


def test_slurm_ends_what_our_search_does_not_find(cluster: Cluster) -> None:
    """With proctrack/cgroup, whatever a job has started ends with its step, also without our own search for processes:
    a daemon of the command, one of a task, and one without our mark in its environment."""
    daemon = "setsid env -i sleep 7777 </dev/null >/dev/null 2>&1 &"
    task = python(
        "import ray, subprocess; ray.init()\n"
        "@ray.remote\ndef leave(): subprocess.Popen(['setsid', 'sleep', '8888'])\n"
        "ray.get(leave.remote()); print('LEFT')"
    )
    job = write(cluster, num_nodes=1, command=f"{daemon} {task}")
    edited = job.script.replace("\nown_processes() {\n", "\nown_processes() {\n  return 0\n")
    assert edited != job.script
    cluster.run(["tee", f"{job.name}.sh"], stdin=edited, check=True)
    job.id = cluster.run(["sbatch", "--parsable", f"{job.name}.sh"], check=True).stdout.strip()
    job.wait()
    assert "LEFT" in job.output, job.log
    left = [process for process in cluster.leftovers(10) if "7777" in process.args or "8888" in process.args]
    assert left == []
