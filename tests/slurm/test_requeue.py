"""Work that is longer than a job: the time limit, preemption, and the lives that come after them."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.slurm.conftest import SUITE, left_behind
from tests.slurm.jobs import HOME, Job, standing_ray, submit, wrapped_ray
from tests.testbed import Cluster, rootfs

pytestmark = pytest.mark.slurm

# Counts, saves the count when it is told to, and goes on from there. Its first shell only waits for the one that does.
COUNTS = """echo "LIFE $SLAUNCH_RESTART"
cat >"$SLAUNCH_RUN_DIR/count.sh" <<'END'
count=$(cat "$SLAUNCH_RUN_DIR/count" 2>/dev/null || echo 0)
echo "FROM $count"
is_up() { [[ ! -e ${RAY_TMPDIR%/t} ]] || echo ' with Ray'; }
trap 'echo $count >"$SLAUNCH_RUN_DIR/count"; echo "SAVED $count$(is_up)"; exit 0' SIGNAL
until ((++count > (SLAUNCH_RESTART + 1) * 3)); do sleep 0.1; done
((SLAUNCH_RESTART < 2)) || { echo DONE; exit 0; }
echo "UP $SLAUNCH_RESTART"
while :; do sleep 0.1; done
END
bash "$SLAUNCH_RUN_DIR/count.sh"
code=$?; echo "after it: $code"; exit $code
"""


def counts(signal: str = "USR1") -> str:
    return COUNTS.replace("SIGNAL", signal)


def long(cluster: Cluster, **options: Any) -> Job:
    """A job that may be requeued, with a Ray that only stands there."""
    options = {"requeue": True, "load_env": [standing_ray(cluster)], **options}
    return submit(cluster, **options)


def warn(job: Job) -> None:
    """What Slurm does before the time limit, for `--signal=B:USR1@...`."""
    job.cluster.run(["scancel", "--batch", "--signal=USR1", job.id], check=True)


def next_life(job: Job) -> None:
    """A requeued job waits for two minutes; not here. A second it needs: else slurmd takes it for the former life."""
    begun, asked = job.log.count(" starting "), False
    for _ in range(600):
        state = job.cluster.job(job.id)
        if job.log.count(" starting ") > begun:
            return
        if not asked and (state["JobState"], state["Reason"]) == ("PENDING", "BeginTime"):
            soon = ["scontrol", "update", f"JobId={job.id}", "StartTime=now+2seconds"]
            job.cluster.run(soon, user="root", check=True)
            asked = True
        time.sleep(0.1)
    raise AssertionError(f"no other life began: {state}\n{job.log}")


def said(job: Job, phase: str) -> list[str]:
    return re.findall(rf"^\[slurm-launch\] \S+ {phase} (.*)$", job.log, re.MULTILINE)


def test_three_lives(cluster: Cluster) -> None:
    """Its time is over twice: first Slurm itself warns it, then we do as Slurm does."""
    command = counts("USR2")
    job = long(
        cluster, num_nodes=2, time="1", signal_before=50, checkpoint_signal="USR2", command=command, keep_ray_logs=True
    )
    job.wait_for("\nUP 0")
    job.wait_for("outcome=requeued", 90)
    next_life(job)
    job.wait_for("\nUP 1")
    warn(job)
    job.wait_for("(?s)outcome=requeued.*outcome=requeued")
    next_life(job)
    job.wait()
    assert (job.state["JobState"], job.code, job.state["Restarts"]) == ("COMPLETED", 0, "2"), job.log
    # slurmstepd's lines start with the time since Slurm 26.05.
    told = [line for line in job.output if not re.match(r"slurmstepd|\[\S+\] error: |User defined signal", line)]
    attempts = ["LIFE 0", "FROM 0", "UP 0", "SAVED 4 with Ray", "after it: 0"]
    attempts += [
        "LIFE 1",
        "FROM 4",
        "UP 1",
        "SAVED 7 with Ray",
        "after it: 0",
        "LIFE 2",
        "FROM 7",
        "DONE",
        "after it: 0",
    ]
    assert told == attempts, job.log
    assert said(job, "requeue") == ["restart=1 reason=time-limit", "restart=2 reason=time-limit"]
    assert [re.sub(r"\d+", "N", line) for line in said(job, "saving")] == [
        "seconds=N signal=USRN reason=time-limit"
    ] * 2
    assert job.phases.count("end") == 3
    addresses = [line.partition("dir=")[2] for line in said(job, "starting")]
    assert len(set(addresses)) == 3, "a directory of its own for each life"
    folder = cluster.path(f"/home/alice/{job.name}.run")
    assert (folder / "count").read_text() == "7\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    former = [cluster.path(f"/home/alice/{job.name}.ray{attempt}") for attempt in ("-0", "-1", "")]
    assert all(list(path.iterdir()) for path in former), "each life keeps its own logs of Ray"


def test_the_command_asks_for_another_life(cluster: Cluster) -> None:
    """By exit code 85, as long as --max-restarts lets it; a warning in the bring-up is another reason."""
    job = long(cluster, max_restarts=1, command="exit 85")
    early = long(cluster, signal_before=60, node="n2", load_env=[wrapped_ray(cluster, "exec sleep 900")])
    alone = long(cluster, requeue=False, signal_before=60, node="n3", command=counts())
    early.wait_for(" starting ")
    warn(early)
    next_life(job)
    job.wait()
    assert (job.state["JobState"], job.code) == ("FAILED", 85), job.log
    assert said(job, "requeue") == ["restart=1 reason=exit-code"]
    assert job.end["cause"] == "it has been requeued 1 time (--max-restarts 1)"
    early.wait_for("outcome=requeued")
    assert said(early, "requeue") == ["restart=1 reason=time-limit"]
    assert "command" not in early.phases
    cluster.run(["scancel", early.id], check=True)
    alone.wait_for("\nUP 0")
    warn(alone)
    alone.wait()
    assert (alone.state["JobState"], alone.code) == ("COMPLETED", 0), alone.log
    assert "requeue" not in alone.phases


def test_requeued_from_outside_in_the_bring_up(cluster: Cluster) -> None:
    """Nothing of the first life is left, and the second one works."""
    first = wrapped_ray(cluster, "((SLAUNCH_RESTART)) || exec sleep 900", f"{HOME}/standing/ray")
    job = long(cluster, num_nodes=3, load_env=[standing_ray(cluster), first], command="echo LIFE $SLAUNCH_RESTART")
    job.wait_for(" starting ")
    cluster.run(["scontrol", "requeue", job.id], check=True)
    job.wait_for("outcome=requeued")
    assert said(job, "requeue") == ["restart=1 reason=slurm"], job.log
    assert left_behind(cluster) == []
    next_life(job)
    job.wait()
    assert (job.state["JobState"], job.output[-1]) == ("COMPLETED", "LIFE 1"), job.log


def test_a_task_of_an_array_is_requeued_alone(cluster: Cluster) -> None:
    """The last task has the array's own id, by which Slurm would requeue all of them."""
    command = "((SLURM_ARRAY_TASK_ID * (1 - SLAUNCH_RESTART))) && exit 85\n"
    command += "echo UP $SLAUNCH_RESTART; until [[ -e over ]]; do sleep 0.1; done"
    cluster.run(["rm", "-f", "over"], check=True)
    array = long(cluster, array="0-1", command=command)
    tasks = [Job(cluster, f"{array.id}_{number}", f"{array.name}_{number}") for number in (0, 1)]
    tasks[0].wait_for("\nUP 0")
    tasks[1].wait_for("outcome=requeued")
    next_life(tasks[1])
    tasks[1].wait_for("\nUP 1")
    cluster.run(["touch", "over"], check=True)
    for task in tasks:
        task.wait()
    assert [(task.state["JobState"], task.state["Restarts"]) for task in tasks] == [
        ("COMPLETED", "0"),
        ("COMPLETED", "1"),
    ]
    assert all(cluster.path(f"{HOME}/{array.name}.run/{number}").is_dir() for number in (0, 1))


def test_a_command_that_does_not_end_is_ended(cluster: Cluster) -> None:
    """And a job that Slurm does not requeue says so."""
    stubborn = "trap 'echo GOT USR1' USR1; trap 'echo GOT TERM; exit 1' TERM; echo UP; while :; do sleep 0.1; done"
    job = long(cluster, signal_before=60, time="1:00:00", command=stubborn, arguments=("--no-requeue",))
    job.wait_for("\nUP")
    soon = ["scontrol", "update", f"JobId={job.id}", "EndTime=now+6seconds"]
    cluster.run(soon, user="root", check=True)
    warn(job)
    job.wait()
    assert [line for line in job.output if line.startswith("GOT")] == ["GOT USR1", "GOT TERM"], job.log
    assert (job.state["JobState"], job.code) == ("FAILED", 74), job.log
    assert "Slurm did not requeue it: Requested operation is presently disabled" in job.end["cause"]


def test_a_limit_below_the_warning(cluster: Cluster) -> None:
    """Which is the partition's: the job would be warned at once, in a hundred lives."""
    job = long(cluster, signal_before=90, partition="short", command="echo UP").wait()
    assert (job.state["JobState"], job.code, job.state["Restarts"]) == ("FAILED", 74, "0"), job.log
    assert job.end["cause"] == "the job's time limit is 60 s, not more than --signal-before 90"
    assert "UP" not in job.output


@pytest.mark.parametrize("reason", ["exit-code", "node-lost"])
def test_a_heterogeneous_job_is_requeued_whole(cluster: Cluster, reason: str) -> None:
    """By its leader's id; all components run again, on nodes of their own."""
    dies = "if ((!SLAUNCH_RESTART)); then echo UP; [[ $REASON == node-lost ]] && sleep 90; exit 85; fi; echo LIFE 1"
    job = long(cluster, head_cpus=1, num_nodes=3, command=dies, env={"REASON": reason})
    if reason == "node-lost":
        job.wait_for("\nUP\n")
        lost = sorted(cluster.jobs(job.id), key=lambda one: int(one["JobId"]))[1]["NodeList"]
        node = cluster.run(["scontrol", "show", "hostnames", lost]).stdout.split()[-1]
        assert cluster.signal(node, r"^sleep 900", signal.SIGKILL)
    job.wait_for("outcome=requeued")
    assert said(job, "requeue") == [f"restart=1 reason={reason}"], job.log
    assert left_behind(cluster) == []
    next_life(job)
    job.wait_for(" end outcome=ok ")
    assert "LIFE 1" in job.output
    assert said(job, "ready")[1].startswith("nodes=3/3 "), job.log


def test_preemption(make_cluster: Callable[..., Cluster]) -> None:
    """With a grace Slurm tells only the steps, and requeues nothing that ends by itself; without, it tells all."""
    new = rootfs.slurm_version(rootfs.root_folder(SUITE)) >= (23, 2)
    send = "PreemptParameters=send_user_signal" if new else "SlurmctldParameters=preempt_send_user_signal"
    conf = ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", send]
    conf.append("PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF State=UP")
    for mode in ("REQUEUE", "CANCEL"):
        conf += [f"PartitionName={mode}-{grace} Nodes=ALL PreemptMode={mode} GraceTime={grace}" for grace in (0, 30)]
    cluster = make_cluster(nodes=6, slurm_conf_extra=conf)

    def job(node: str, partition: str, signal: str = "TERM", **options: Any) -> Job:
        options = {"command": counts(signal), **options}
        return long(cluster, node=node, partition=partition, exclusive=True, **options)

    again = {
        "preemption": [
            job("n1", "REQUEUE-30"),
            job("n2", "CANCEL-30"),
            warned := job("n3", "CANCEL-30", "USR1", signal_before=60),
            job("n4", "CANCEL-0"),
        ],
        "slurm": [job("n5", "REQUEUE-0")],
    }
    once = job("n6", "CANCEL-30", requeue=False, command="echo; echo UP 0; sleep 900")
    for one in (*again["preemption"], *again["slurm"], once):
        one.wait_for("\nUP 0")
    cluster.run(["sbatch", "--partition=urgent", "--nodes=6", "--exclusive", "--wrap=true"], check=True)
    for reason, jobs in again.items():
        for one in jobs:
            one.wait_for("outcome=requeued")
            assert said(one, "requeue") == [f"restart=1 reason={reason}"], one.log
            assert "SAVED 4" in one.log, one.log
    assert "SAVED 4 with Ray" in warned.output, "Slurm has sent it the signal in the place of SIGTERM for the nodes"
    once.wait()
    assert (once.end["outcome"], once.end["code"]) == ("ended-from-outside", "75"), once.log
    assert once.end["cause"] == "the job was terminated externally (preemption)"
    next_life(warned)
    warned.wait_for("\nUP 1")
    assert "FROM 4" in warned.output
    warn(warned)
    cluster.run(["scancel", warned.id], check=True)
    warned.wait()
    assert warned.state["JobState"] == "CANCELLED", "not requeued, though its time was short"
    for one in (*again["preemption"], *again["slurm"]):
        cluster.run(["scancel", one.id], check=True)
    assert left_behind(cluster) == []
