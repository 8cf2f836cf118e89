"""cancel and attach on the real cluster. Ray only stands there, except where it is the point."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from slurm_launch.runs.record import Run
from tests.slurm.desk import WAIT, Desk, read_until
from tests.slurm.jobs import OLD_RAY
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


# attach


def test_a_command_inside_the_job(desk: Desk) -> None:
    """It has the environment of the job's own command, and its code, its input and its words are as they were given."""
    setup = [
        'hello() { echo "hello $1"; }; export -f hello; export WEIRD=$\'a "b" $c\\nd\' SHELLOPTS BASHOPTS',
        "declare -rx FIXED=1; export dir=x node=y words=z; export POSIXLY_CORRECT=1",
    ]
    flags = [word for line in setup for word in ("--load-env", line)]
    run = desk.up(
        desk.launch("-n", "2", "--num-gpus", "1", "--mem", "500", *flags, "--command", f"env -0 >env; {WAIT}")
    )
    head, worker = desk.cluster.run(
        ["scontrol", "show", "hostnames", desk.cluster.job(str(run.job_id))["NodeList"]]
    ).stdout.split()

    code = r'hello you; printf "%s|" "$@"; pwd; hostname; echo said >&2; exit 7'
    words = ("a  b", "new\nline", "quo'te\" $x `y`", "", "é*", "--node", "-h")
    done = desk.call("attach", str(run.job_id), "--", "bash", "-c", code, "bash", *words)
    assert (done.returncode, done.stderr) == (7, "said\n")
    assert done.stdout == "hello you\n" + "".join(f"{word}|" for word in words) + f"{desk.home}\n{head}\n"

    done = desk.call("attach", "--", "bash", "-c", "env -0 >env2")
    assert done.returncode == 0, done.stderr
    theirs, ours = (
        {entry.partition("=")[0]: entry for entry in desk.cluster.path(f"{desk.home}/{name}").read_text().split("\0")}
        for name in ("env", "env2")
    )
    changing = {
        "SLAUNCH_ATTACHED",
        "SHLVL",
        "OLDPWD",
        "_",
        "SHELLOPTS",
        "BASHOPTS",
        "POSIXLY_CORRECT",
    }  # bash's own, in every new shell
    assert {ours.get(name) for name in theirs if name not in changing} >= {
        entry for name, entry in theirs.items() if name not in changing
    }
    assert not {name for name in ours if name not in theirs} - changing, "nothing of the step's own, nothing of ours"
    assert "CUDA_VISIBLE_DEVICES" in ours

    done = desk.call("attach", "test", "--", "cat", stdin="one\ntwo")
    assert (done.returncode, done.stdout) == (0, "one\ntwo")
    done = desk.call("attach", "test", stdin="hello there\necho $RAY_ADDRESS\nexit 3\n")
    assert (done.returncode, done.stdout.splitlines()[0]) == (3, "hello there")
    assert ":" in done.stdout.splitlines()[1]
    done = desk.call("attach", "test", "--", "nosuch")
    assert done.returncode == 127
    done = desk.call("attach", "test", "--", "bash", "-c", "kill -9 $$")
    assert (done.returncode, done.stderr) == (137, "")

    done = desk.call("attach", "test", stdin="sleep 4711 & nohup sleep 4711 >/dev/null 2>&1 </dev/null & echo left\n")
    assert (done.returncode, done.stdout) == (0, "left\n")
    assert not [process for process in desk.cluster.processes(head) if "sleep 4711" in process.args]

    there = "hostname; echo $SLURMD_NODENAME $HOSTNAME; [[ -O $RAY_AUTH_TOKEN_PATH ]] && hello you; exit 9"
    done = desk.call("attach", "test", "--node", worker, "--", "bash", "-c", there)
    assert (done.returncode, done.stdout, done.stderr) == (9, f"{worker}\n{worker} {worker}\nhello you\n", "")
    done = desk.call("attach", "test", "--node", "n6", "--", "hostname")
    assert done.returncode == 2
    assert f"n6 is not a node of the job, which has {head} {worker}" in done.stderr
    assert desk.states(run) == ["RUNNING"]


def test_a_shell_on_a_terminal_and_the_end_of_its_job(desk: Desk) -> None:
    desk.cluster.path("/home/alice/.bashrc").write_text("PS1='mine> '\nalias greet='echo hello'\nexport PATH=/wrong\n")
    try:
        run = desk.up(desk.launch("--command", WAIT))
        prompt = rf"\({run.name}\) mine> "
        with desk.terminal("attach", str(run.job_id)) as shell:
            shell.wait_for(prompt)
            shell.type("greet; echo $TERM of $(ps -o tty= $$); ray_is=$(type -P ray); echo in ${ray_is%/ray}\n")
            shell.wait_for("hello\r\nxterm of pts/")
            shell.wait_for(r"\nin /home/alice/standing")
            shell.wait_for(prompt)
            shell.type("bash -c 'echo aslee\"\"p; exec sleep 600'\n")
            shell.wait_for("asleep")
            shell.type("\x03")
            shell.wait_for(prompt)
            shell.type("echo still $?; exit 5\n")
            shell.wait_for("still 130")
            assert shell.end() == 5, shell.screen
        assert desk.states(run) == ["RUNNING"]
        with desk.terminal("attach", str(run.job_id)) as idle, desk.terminal("attach", str(run.job_id)) as busy:
            busy.wait_for(prompt)
            busy.type("sleep 600\n")
            busy.wait_for("sleep 600\r\n")
            idle.wait_for(prompt)
            done = desk.call("cancel", str(run.job_id))
            assert done.returncode == 0, done.stderr  # no shell keeps a job from its end
            for shell in (idle, busy):
                assert shell.end() == 137
                assert f"note: job {run.job_id} " in shell.screen
                assert "end" in shell.screen
    finally:
        desk.cluster.path("/home/alice/.bashrc").unlink()


def test_a_signal_to_attach_ends_its_program_and_not_the_job(desk: Desk) -> None:
    run = desk.up(desk.launch("--command", WAIT))
    with desk.terminal(
        "attach", "--", "bash", "-c", "trap 'echo caught; exit 4' INT; echo begun; sleep 600 & wait"
    ) as on:
        on.wait_for("begun")
        on.type("\x03")
        assert on.end() == 4
        assert "caught" in on.screen
    process = desk.popen("attach", "--", "bash", "-c", "echo begun; exec sleep 600")
    read_until(process, "^begun$")
    (ours,) = [
        one for one in desk.cluster.processes("login") if "slurm_launch attach" in one.args and "srun" not in one.args
    ]
    desk.cluster.signal("login", ours.pid)
    assert process.wait(60) in (143, 137)
    process.communicate()
    assert desk.states(run) == ["RUNNING"]


def test_a_job_that_is_not_up_or_over(desk: Desk) -> None:
    gate = f"{desk.home}/gate"
    held = desk.launch("--hold", "--command", "true")
    loading = desk.launch("--load-env", f"until [[ -e {gate} ]]; do sleep 0.1; done", "--command", WAIT)
    for verb in ("attach", "dashboard"):
        done = desk.call(verb, str(held.job_id))
        assert done.returncode == 7
        assert f"job {held.job_id} is pending: held by the user" in done.stderr
    desk.cluster.run(
        ["bash", "-c", f"until [[ $(squeue -h -j {loading.job_id} -o %t) == R ]]; do sleep 0.1; done"], check=True
    )
    done = desk.call("attach", str(loading.job_id))
    assert done.returncode == 7
    assert "loading the environment" in done.stderr
    assert f"slurm-launch watch {loading.name}" in done.stderr
    desk.cluster.run(["touch", gate], check=True)
    desk.up(loading)
    desk.cluster.run(["scancel", str(loading.job_id)], check=True)
    desk.cluster.wait_job(str(loading.job_id))
    done = desk.call("attach", str(loading.job_id), "--", "true")
    assert done.returncode == 7
    assert f"job {loading.job_id} was canceled" in done.stderr


# cancel


def test_a_cancelled_command_has_its_ray_while_it_saves(desk: Desk) -> None:
    """With real Ray: plain scancel would take it away at the same moment."""
    code = """\
import ray, signal, sys, time
ray.init(logging_level="error")
@ray.remote
class Model:
    def weights(self):
        return "the weights"
model = Model.remote()
ray.get(model.weights.remote())
def save(*_):
    print("saved", ray.get(model.weights.remote()), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("\\nup", flush=True)
while True:
    time.sleep(0.1)  # not signal.pause(): a signal that comes just before it would be slept over
"""
    script = desk.file("save.py", code)
    run = desk.up(desk.launch("-n", "2", "--no-dashboard", "--command", f"exec python {script}", ray=OLD_RAY))
    done = desk.call("cancel", "test")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"job {run.job_id} has ended\n"
    assert "the command has ten seconds" in done.stderr
    assert "saved the weights\n" in desk.log(run), desk.log(run)
    assert desk.record(run.record).cancelled
    told = json.loads(desk.call("status", "test", "--json").stdout)
    assert told["state"] == "CANCELLED"
    again = desk.call("cancel", "test")
    assert (again.returncode, again.stdout) == (0, "")
    assert f"job {run.job_id} ({run.name}) has already ended" in again.stderr


def test_what_waits_and_what_cannot_wait(desk: Desk) -> None:
    waiting = desk.launch("--hold", "--command", "true")
    done = desk.call("cancel", str(waiting.job_id))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"job {waiting.job_id} has ended\n", "")
    assert desk.states(waiting) == ["CANCELLED"]

    # A command that takes no notice keeps its ten seconds for itself; --now ends it all at once.
    deaf = desk.up(desk.launch("--command", "trap '' TERM; echo up; while :; do sleep 1; done"))
    done = desk.call("cancel", "--no-wait", "--json", str(deaf.job_id))
    assert json.loads(done.stdout)["cancelled"] == [{"id": deaf.job_id, "name": deaf.name, "ended": False}]
    with desk.terminal("cancel", str(deaf.job_id)) as person:
        person.wait_for("the command has ten seconds")
        person.type("\x03")
        assert person.end() == 130
        assert "the cancellation continues" in person.screen
    done = desk.call("cancel", "--now", str(deaf.job_id))
    assert done.returncode == 0, done.stderr
    assert "Ray is killed at once" in done.stderr or "has already ended" in done.stderr


def test_tasks_of_an_array(desk: Desk) -> None:
    run = desk.launch("--array", "0-5%2", "--command", f"echo task $SLURM_ARRAY_TASK_ID; {WAIT}")
    for task in ("_0", "_1"):
        desk.up(run, task)
    done = desk.call("attach", str(run.job_id), "--", "true")
    assert done.returncode == 2
    assert f"name one of: {run.job_id}_0, {run.job_id}_1" in done.stderr
    done = desk.call("attach", f"{run.job_id}_1", "--", "bash", "-c", "echo $SLURM_ARRAY_TASK_ID")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr

    done = desk.call("cancel", f"{run.job_id}_0", f"{run.job_id}_5", "-y")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"job {run.job_id}_{task} has ended" for task in (0, 5)]
    assert "outcome=ended-from-outside" in desk.log(run, "_0")
    assert "end outcome" not in desk.log(run, "_1")
    desk.up(run, "_2")  # the next in the queue, and not 5

    refused = desk.call("cancel", str(run.job_id))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "this would cancel 4 jobs, and there is no terminal to confirm on" in refused.stderr
    with desk.terminal("cancel", str(run.job_id)) as person:
        person.wait_for(r"Cancel these 4 jobs\? \[y/N\] ")
        person.type("no\n")
        assert person.end() == 0
        assert "nothing was canceled" in person.screen
    assert "RUNNING" in desk.states(run)
    with desk.terminal("cancel", str(run.job_id)) as person:
        person.wait_for(r"Cancel these 4 jobs\? \[y/N\] ")
        person.type("y\n")
        assert person.end() == 0, person.screen
        assert f"job {run.job_id}_3 has ended" in person.screen
    assert not desk.cluster.squeue()
    assert desk.log(run, "_3") == "", "it never began"
    for task in ("_1", "_2"):
        assert "outcome=ended-from-outside" in desk.log(run, task)


def put(desk: Desk, run: Run, **changes: Any) -> str:
    """A record that says something else; returns its path."""
    changed = replace(run, **changes)
    return desk.file("changed.json", changed.to_json())


def test_a_job_that_is_not_the_users_own(desk: Desk) -> None:
    """A record of somebody else's, and a job id that another job has got."""
    mine = desk.up(desk.launch("--command", WAIT))
    other = desk.up(desk.launch("--exp-name", "other", "--command", WAIT))
    bob = Desk(desk.cluster, "bob")

    copied = put(bob, mine)
    done = bob.call("cancel", copied)
    assert done.returncode == 2
    assert f"job {mine.job_id} belongs to alice according to its record; you are bob" in done.stderr
    done = bob.call("cancel", "--now", put(bob, mine, user="bob"))
    assert done.returncode == 2
    assert f"job {mine.job_id} does not belong to {mine.name}; it is another job: user alice" in done.stderr

    reused = put(desk, mine, job_id=str(other.job_id))
    done = desk.call("cancel", "-y", str(mine.job_id), reused)
    assert (done.returncode, done.stdout) == (2, "")
    whose = f"user alice, name 'other', script {other.script}"
    assert f"job {other.job_id} does not belong to {mine.name}; it is another job: {whose}" in done.stderr
    assert (desk.states(mine), desk.states(other)) == (["RUNNING"], ["RUNNING"]), "not even the right one"
    assert not desk.record(mine.record).cancelled

    done = bob.call("attach", put(bob, mine, user="bob"), "--", "true")
    assert done.returncode in (2, 7), done.stderr


def test_a_record_that_cannot_be_written(desk: Desk) -> None:
    run = desk.up(desk.launch("--command", WAIT))
    desk.cluster.run(["chmod", "500", desk.home], check=True)
    done = desk.call("cancel", "test")
    desk.cluster.run(["chmod", "700", desk.home], check=True)
    assert done.returncode == 0, done.stderr
    assert "cannot update the record" in done.stderr
    assert done.stdout == f"job {run.job_id} has ended\n"
