"""Runs that wait for others, and chains, on a real Slurm. Ray only stands there: it has its own tests."""

from __future__ import annotations

import json

import pytest

from slurm_launch.runs.record import Run
from tests.slurm.desk import WAIT, Desk
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


def tasks(desk: Desk, run: Run) -> list[dict[str, str]]:
    done = desk.call("status", "--json", str(run.job_id))
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)["tasks"]
    return found


def test_a_run_waits_for_others(desk: Desk) -> None:
    """By name, by id, by path; the one whose dependency cannot be fulfilled any more is told."""
    go = f"{desk.home}/go"
    first = desk.launch("--exp-name", "first", "--command", f"echo up; until [[ -e {go} ]]; do sleep 0.1; done")
    second = desk.launch("--exp-name", "second", "--after-ok", "first", "--command", f"test -e {go}")
    never = desk.launch("--exp-name", "never", "--after-notok", str(first.job_id), "--command", "true")
    last = desk.launch("--exp-name", "last", "--after-any", second.script, "--after", "first", "--command", "exit 3")
    single = desk.launch("--exp-name", "first", "--singleton", "--command", f"test -e {go}")
    desk.up(first)
    job = desk.cluster.job(str(last.job_id))
    assert job["Dependency"].startswith(f"afterany:{second.job_id}"), "that the first has begun is done with"
    (waiting,) = tasks(desk, second)
    assert (waiting["state"], waiting["reason"]) == ("PENDING", "Dependency")
    assert "waits for  --after-ok first\n" in desk.call("status", "second").stdout
    desk.cluster.run(["touch", go], check=True)
    for run in (first, second, last, single):
        desk.cluster.wait_job(str(run.job_id))
    assert "outcome=ok " in desk.log(second)
    assert "outcome=ok " in desk.log(single)
    assert "code=3 " in desk.log(last)
    for _ in range(100):
        explained = desk.call("explain", "never", "--json")
        if '"dependency"' in explained.stdout:
            break
    assert "it will never start" in explained.stdout
    assert "it will never start; cancel it" in desk.call("status", "never").stdout
    assert desk.call("cancel", "never").returncode == 0
    assert desk.log(never) == ""


# Each link tells when it begins and ends: were there two at a time, their lines would mix.
LINK = (
    'echo "begin $SLAUNCH_LINK" >>"$SLAUNCH_RUN_DIR/story"; {}; echo "end $SLAUNCH_LINK" >>"$SLAUNCH_RUN_DIR/story"; '
)


def story(desk: Desk, run: Run) -> list[str]:
    """What the links wrote into the directory that they share."""
    folder = desk.cluster.path(run.log.removesuffix(".log") + ".run")
    assert folder.stat().st_mode & 0o777 == 0o700
    return (folder / "story").read_text().splitlines()


def test_a_chain_ends_when_the_work_is_done(desk: Desk) -> None:
    """Side by side: until a link ends well, until one fails, to the end whatever happens, and on after a time limit."""
    command = f"[[ $SLAUNCH_LINK == 1 ]] || {{ {WAIT}; }}"
    late = desk.launch("--command", command, "--chain", "3", "--chain-while", "notok")
    desk.up(late, "_0")
    soon = ["scontrol", "update", f"JobId={late.job_id}_0", "EndTime=now+2seconds"]
    desk.cluster.run(soon, user="root", check=True)  # Slurm looks at the limits twice a minute
    done = desk.launch("--command", f"{LINK} (( SLAUNCH_LINK == 2 ))", "--chain", "5", "--chain-while", "notok")
    fails = desk.launch("--command", f"{LINK} (( SLAUNCH_LINK < 1 )) || exit 4", "--chain", "4", "--chain-while", "ok")
    every = desk.launch("--command", f"{LINK} (( SLAUNCH_LINK == 1 ))", "--chain", "2")
    codes = {}
    for run in (done, fails, every):
        codes[run.name] = desk.call("watch", run.name).returncode
    assert codes == {done.name: 0, fails.name: 4, every.name: 0}, "that of the last link that ran"
    assert story(desk, done) == [f"{what} {link}" for link in range(3) for what in ("begin", "end")]
    assert story(desk, fails) == ["begin 0", "end 0", "begin 1", "end 1"]
    assert story(desk, every) == ["begin 0", "end 0", "begin 1", "end 1"]
    assert " chain over link=2 this link ended ok" in desk.log(done, "_2")
    assert " chain over link=1 this link ended notok" in desk.log(fails, "_1")
    assert " chain " not in desk.log(every, "_0") + desk.log(every, "_1")
    told = tasks(desk, done)
    assert [task["state"] for task in told] == ["FAILED", "FAILED", "COMPLETED", "CANCELLED"]
    assert (told[-1]["id"], told[-1]["in_words"]) == (
        f"{done.job_id}_[3-4]",
        "was not needed: the chain ended before it",
    )
    explained = desk.call("explain", f"{done.job_id}_4")
    assert "it has not failed: an earlier link ended the chain" in explained.stdout, explained
    assert desk.call("watch", late.name).returncode == 0
    assert "outcome=time-limit" in desk.log(late, "_0")
    assert "outcome=ok" in desk.log(late, "_1")
    assert desk.log(late, "_2") == ""


def test_a_chain_longer_than_arrays_may_be(desk: Desk) -> None:
    done = desk.call("--exp-name", "test", "--command", "true", "--chain", "5000")
    assert done.returncode == 3
    assert "Invalid job array specification" in done.stderr
    assert "MaxArraySize" in done.stderr
    assert "--chain" in done.stderr
