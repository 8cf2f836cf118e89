"""Work that is longer than a job: the time limit, preemption, and the lives that come after them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.slurm.conftest import left_behind
from tests.slurm.jobs import HOME, Job, standing_ray, submit, wrapped_ray
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Counts, saves the count when it is told to, and goes on from there. Its first shell only waits for the one that counts.
COUNTS = """echo "LIFE $SLAUNCH_RESTART"
cat >"$SLAUNCH_RUN_DIR/count.sh" <<'END'
count=$(cat "$SLAUNCH_RUN_DIR/count" 2>/dev/null || echo 0)
echo "FROM $count"
trap 'echo $count >"$SLAUNCH_RUN_DIR/count"; echo "SAVED $count"; exit 0' SIGNAL
until ((++count > (SLAUNCH_RESTART + 1) * 3)); do sleep 0.1; done
((SLAUNCH_RESTART < 2)) || { echo DONE; exit 7; }
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
    """A requeued job waits for two minutes; not here."""
    begun = job.log.count(" starting ")
    for _ in range(300):
        state = job.cluster.job(job.id)
        if job.log.count(" starting ") > begun:
            return
        if state["Reason"] == "BeginTime":
            job.cluster.run(["scontrol", "update", f"JobId={job.id}", "StartTime=now"], user="root", check=True)
        time.sleep(0.2)
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
    assert (job.state["JobState"], job.code, job.state["Restarts"]) == ("FAILED", 7, "2"), job.log
    told = [line for line in job.output if not line.startswith(("slurmstepd", "User defined signal"))]
    lives = ["LIFE 0", "FROM 0", "UP 0", "SAVED 4", "after it: 0"]
    lives += ["LIFE 1", "FROM 4", "UP 1", "SAVED 7", "after it: 0", "LIFE 2", "FROM 7", "DONE", "after it: 7"]
    assert told == lives, job.log
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
    former = [cluster.path(f"/home/alice/{job.name}.ray{life}") for life in ("-0", "-1", "")]
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
    assert job.end["cause"] == "it has been requeued 1 times (--max-restarts 1)"
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
    command = "((SLURM_ARRAY_TASK_ID * (1 - SLAUNCH_RESTART))) && exit 85; echo UP $SLAUNCH_RESTART; until [[ -e over ]]; do sleep 0.1; done"
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
    assert all(cluster.path(f"{HOME}/{task.name}.run").is_dir() for task in tasks)


def test_a_command_that_does_not_end_is_ended(cluster: Cluster) -> None:
    """And a job that Slurm does not requeue says so."""
    stubborn = "trap 'echo GOT USR1' USR1; trap 'echo GOT TERM; exit 1' TERM; echo UP; while :; do sleep 0.1; done"
    job = long(cluster, signal_before=60, time="1:00:00", command=stubborn, sbatch=("--no-requeue",))
    job.wait_for("\nUP")
    soon = ["scontrol", "update", f"JobId={job.id}", "EndTime=now+6seconds"]
    cluster.run(soon, user="root", check=True)
    warn(job)
    job.wait()
    assert [line for line in job.output if line.startswith("GOT")] == ["GOT USR1", "GOT TERM"], job.log
    assert (job.state["JobState"], job.code) == ("FAILED", 74), job.log
    assert "Slurm did not requeue it: Requested operation is presently disabled" in job.end["cause"]


def test_preemption_with_a_grace(make_cluster: Callable[..., Cluster]) -> None:
    """Slurm tells only the steps, and would requeue neither of the two: the script had ended by itself."""
    urgent = "PartitionName=urgent Nodes=ALL PriorityTier=9 PreemptMode=OFF State=UP"
    modes = [
        f"PartitionName={mode} Nodes=ALL PriorityTier=1 PreemptMode={mode} GraceTime=30"
        for mode in ("requeue", "cancel")
    ]
    plain = "PartitionName=plain Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=30"
    conf = ["PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", urgent, *modes, plain]
    cluster = make_cluster(nodes=3, slurm_conf_extra=conf)
    ours = [
        long(cluster, partition="requeue", command=counts("TERM"), exclusive=True, node="n1"),
        long(cluster, partition="cancel", command=counts(), exclusive=True, node="n2", signal_before=60),
        long(cluster, partition="plain", command="echo UP 0; sleep 900", exclusive=True, node="n3", requeue=False),
    ]
    for job in ours:
        job.wait_for("\nUP 0")
    cluster.run(["sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--wrap=true"], check=True)
    for job in ours[:2]:
        job.wait_for("outcome=requeued")
        assert said(job, "requeue") == ["restart=1 reason=preemption"], job.log
        assert "SAVED 4" in job.output
    ours[2].wait()
    assert (ours[2].end["outcome"], ours[2].code) == ("ended-from-outside", 75), ours[2].log
    for job in ours[:2]:
        next_life(job)
    for job in ours[:2]:
        job.wait_for("\nUP 1")
        assert "FROM 4" in job.output
        cluster.run(["scancel", job.id], check=True)
        job.wait()
        assert job.state["JobState"] == "CANCELLED"
        assert job.end["outcome"] == "ended-from-outside"
    assert left_behind(cluster) == []
