"""watch, submit --follow and logs against a real Slurm, as a plain user; on a real terminal where one matters."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable

import pytest

from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from tests.slurm.desk import read_until
from tests.slurm.jobs import ROOT, VENV, standing_ray
from tests.slurm.test_submit import silent_controller
from tests.terminal import Terminal
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

BAR = "\u2501"  # the part of the bar that is done


class Desk:
    """alice at work in a directory of her own. Her jobs wait for what she lets happen."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.home = f"/home/alice/{uuid.uuid4().hex[:8]}"
        cluster.run(["mkdir", self.home], check=True)
        self.env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "TERM": "xterm"}

    def argv(self, *words: str) -> list[str]:
        return [str(VENV / "bin/python"), "-m", "slurm_launch", *words]

    def __call__(self, *words: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(self.argv(*words), env=self.env, cwd=self.home, timeout=timeout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self.cluster.popen(self.argv(*words), env=self.env, cwd=self.home)

    def terminal(self, *words: str, rows: int = 20, columns: int = 80) -> Terminal:
        enter = [str(self.cluster.state / "enter"), "--user", "alice", "--cwd", self.home]
        for name, value in self.env.items():
            enter += ["--env", f"{name}={value}"]
        return Terminal([*enter, *self.argv(*words)], rows=rows, columns=columns)

    def flags(self, command: str, *more: str, ray: str | None = None) -> list[str]:
        ray = standing_ray(self.cluster) if ray is None else ray
        return ["--exp-name", "w", "-c", "1", "--load-env", ray, "--command", command, *more]

    def launch(self, command: str, *more: str, ray: str | None = None) -> Run:
        done = self("submit", *self.flags(command, *more, ray=ray), "--json")
        assert done.returncode == 0, done.stderr
        return records.read(self.cluster.path(json.loads(done.stdout)["record"]))

    # What a job waits for

    def until(self, name: str) -> str:
        """Shell code that waits until `let` was called with the name."""
        return f"until [[ -e {self.home}/{name} ]]; do sleep 0.1; done"

    def let(self, name: str) -> None:
        self.cluster.path(f"{self.home}/{name}").touch()

    def gated_ray(self) -> str:
        """A standing Ray that starts on a node once it may: `let("go-n1")`."""
        plain = standing_ray(self.cluster)
        gate = f'#!/bin/bash\n{self.until("go-$SLURMD_NODENAME")}\nexec /home/alice/standing/ray "$@"\n'
        self.cluster.path(f"{self.home}/bin").mkdir()
        program = self.cluster.path(f"{self.home}/bin/ray")
        program.write_text(gate)
        program.chmod(0o755)
        self.cluster.path(f"{self.home}/bin/python3").symlink_to("/home/alice/standing/python3")
        return f"{plain}; export PATH={self.home}/bin:$PATH"

    def wait_for(self, run: Run, text: str, seconds: float = 60) -> None:
        """Until the log says so."""
        self.eventually(lambda: re.search(text, self.log(run)) is not None, seconds, lambda: f"{text}: {self.log(run)}")

    def eventually(self, true: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, what()
            time.sleep(0.05)

    def log(self, run: Run) -> str:
        path = self.cluster.path(f"{self.home}/{run.name}.log")  # the record tells where the log is as we see it
        return path.read_text() if path.exists() else ""

    def interrupt(self, verb: str) -> None:
        """Ctrl-C, for our program alone: nsenter, by which it got into the cluster, would not survive it."""
        assert self.cluster.signal("login", rf"-m slurm_launch {verb}", signal.SIGINT)


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


# On a terminal


def test_the_whole_story_on_a_terminal(desk: Desk) -> None:
    """The queue, the bar of nodes that join, the output, the outcome; the exit code is the command's."""
    command = f"echo at work; {desk.until('on')}; printf '10%%\\r90%%\\nthe last line\\n'; {desk.until('end')}; exit 3"
    run = desk.launch(command, "--num-nodes", "3", "--hold", ray=desk.gated_ray())
    with desk.terminal("watch", str(run.job_id)) as terminal:
        terminal.wait_for(r"pending: held by the user; `scontrol release` releases it \(JobHeldUser\)")
        desk.cluster.run(["scontrol", "release", str(run.job_id)], check=True)
        for joined, node in enumerate(("n1", "n2", "n3")):
            full = BAR * (40 * joined // 3)
            terminal.wait_for(rf"(?<!{BAR}){full}\u2500{{{40 - len(full)}}} {joined}/3 nodes joined")
            desk.let(f"go-{node}")
        terminal.wait_for("running your command")
        terminal.wait_for("at work")
        desk.let("on")
        last = terminal.wait_for(r"\r\n\s*90%.*?\r\n\s*the last line")
        assert "10%" not in last
        desk.let("end")
        assert terminal.end() == 3
    assert "\x1b[?1049l" in terminal.screen, "the screen is given back"
    assert "\x1b[?25h" in terminal.screen.rpartition("\x1b[?25l")[2], "and the cursor"
    left = terminal.screen.rpartition("\x1b[?1049l")[2]
    assert "the last line" in left
    assert f"job {run.job_id} failed: its command exited with code 3 (queued " in left
    assert "[slurm-launch]" not in left


def test_a_small_terminal_that_changes_its_size(desk: Desk) -> None:
    run = desk.launch(f"seq 100; {desk.until('more')}; seq 101 200; {desk.until('end')}", "--num-nodes", "1")
    with desk.terminal("watch", str(run.job_id), rows=8, columns=30) as terminal:
        terminal.wait_for(r"100\s")
        terminal.resize(3, 12)
        terminal.wait_for(r"\x1b\[H")
        terminal.resize(30, 100)
        desk.let("more")
        shown = terminal.wait_for(r"180\s[\s\S]*?200\s")
        assert len(re.findall(r"\d{3}", shown)) >= 20
        desk.let("end")
        assert terminal.end() == 0


def test_ctrl_c_on_a_terminal_leaves_the_job_running(desk: Desk) -> None:
    run = desk.launch("echo at work; sleep 600", "--num-nodes", "1")
    with desk.terminal("watch", str(run.job_id)) as terminal:
        terminal.wait_for("at work")
        desk.interrupt("watch")
        assert terminal.end() == 130
    left = terminal.screen.rpartition("\x1b[?1049l")[2]
    assert f"`slurm-launch watch {run.job_id}` resumes watching" in " ".join(left.split())
    assert f"`slurm-launch cancel {run.job_id}` cancels it" in " ".join(left.split())
    assert "\x1b[?25h" in terminal.screen
    assert desk.cluster.job(str(run.job_id))["JobState"] == "RUNNING"


@pytest.mark.parametrize("name", ["TERM", "NO_COLOR"])
def test_a_plain_terminal(desk: Desk, name: str) -> None:
    """A dumb one gets lines; without colours there is none."""
    desk.env |= {"TERM": "dumb"} if name == "TERM" else {"NO_COLOR": "1"}
    run = desk.launch("echo out", "--num-nodes", "1")
    with desk.terminal("watch", str(run.job_id)) as terminal:
        assert terminal.end() == 0
    if name == "TERM":
        assert "\x1b" not in terminal.screen
        assert "\r\nout\r\n" in terminal.screen
    else:
        assert "out" in terminal.screen
        assert not re.search(r"\x1b\[(\d+;)*(3[0-7]|9[0-7])m", terminal.screen)


# Not on a terminal


def test_follow_goes_straight_there(desk: Desk) -> None:
    done = desk("submit", *desk.flags("echo out; printf unfinished", "--num-nodes", "3"), "--follow")
    assert (done.returncode, done.stderr) == (0, "")
    record = re.search(r"^record  (.*)$", done.stdout, re.MULTILINE)
    assert record
    run = records.read(desk.cluster.path(record[1]))
    assert "\x1b" not in done.stdout
    ours = [line for line in done.stdout.splitlines()[4:] if line.startswith("[watch] ")]
    assert f"[watch] job {run.job_id} completed (queued" in ours[-1]
    shown = [line for line in done.stdout.splitlines()[4:] if not line.startswith("[watch] ")]
    assert "\n".join(shown) + "\n" == desk.log(run), "nothing of the log is lost or changed"
    assert run.tasks[str(run.job_id)]["state"] == "COMPLETED", "the record knows the end"


def test_a_failure_of_ours_is_told_in_its_own_words(desk: Desk) -> None:
    done = desk("submit", *desk.flags("true", "--num-nodes", "2", ray="export PATH=/usr/bin:/bin"), "--follow")
    assert done.returncode == 5
    assert " end outcome=environment-failed code=73 " in done.stdout
    assert "failed with exit code 73: failed: ray is not in PATH" in done.stdout
    assert "[watch] what to do: " in done.stdout


def test_a_job_that_is_cancelled(desk: Desk) -> None:
    run = desk.launch("echo at work; sleep 600", "--num-nodes", "2")
    watching = desk.start("watch", str(run.job_id))
    desk.wait_for(run, "at work")
    desk.cluster.run(["scancel", str(run.job_id)], check=True)
    out, _ = watching.communicate(timeout=90)
    assert watching.returncode == 5
    assert f"[watch] job {run.job_id} was canceled: the job was terminated externally" in out


def test_ctrl_c_in_a_pipe(desk: Desk) -> None:
    run = desk.launch("sleep 600", "--num-nodes", "1")
    watching = desk.start("watch", str(run.job_id))
    read_until(watching, "command sleep 600")
    desk.interrupt("watch")
    _, err = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert f"`slurm-launch cancel {run.job_id}` cancels it" in err
    assert desk.cluster.job(str(run.job_id))["JobState"] == "RUNNING"


def test_a_job_that_has_ended_is_told_of_at_once(desk: Desk) -> None:
    run = desk.launch("seq 100000; exit 4", "--num-nodes", "1")
    desk.cluster.wait_job(str(run.job_id))
    done = desk("watch", str(run.job_id))
    assert done.returncode == 4
    assert "[watch] the first 0.5 MB of the log are omitted" in done.stdout
    assert "\n100000\n" in done.stdout


def test_the_tasks_of_an_array(desk: Desk) -> None:
    flags = desk.flags(
        "echo task $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID", "--num-nodes", "1", "--array", "0-4:2"
    )
    done = desk("submit", *flags, "--follow")
    assert done.returncode == 4, done.stderr
    job = re.match(r"job +(\d+)", done.stdout)
    assert job
    for task in (0, 2, 4):
        assert f"\n{job[1]}_{task}: task {task}\n" in done.stdout
        assert f"\n[watch] job {job[1]}_{task} " in done.stdout
    one = desk("watch", f"{job[1]}_2")
    assert one.returncode == 2
    assert "\ntask 2\n" in one.stdout
    assert desk("logs", f"{job[1]}_4", "--command-only").stdout == "task 4\n"
    assert desk("watch", f"{job[1]}_3").returncode == 2, "there is no such task"


def test_the_place_in_the_queue(desk: Desk) -> None:
    blocker = desk.cluster.run(
        ["sbatch", "--parsable", "-N6", "--exclusive", "--wrap", "sleep 600"], user="bob", check=True
    )
    waits = [
        desk.cluster.run(["sbatch", "--parsable", "-N6", "--exclusive", "--wrap", "true"], user="bob", check=True)
        for _ in range(2)
    ]
    run = desk.launch("true", "--num-nodes", "1", "--exclusive")
    watching = desk.start("watch", str(run.job_id))
    assert "3rd of 3 pending jobs in partition main" in read_until(watching, "jobs in partition")
    desk.cluster.run(["scancel", *(job.stdout.strip() for job in (blocker, *waits))], user="bob", check=True)
    watching.communicate(timeout=90)
    assert watching.returncode == 0


def test_the_log_goes_on_while_slurm_is_silent(desk: Desk) -> None:
    run = desk.launch(f"echo at work; {desk.until('on')}; echo more; {desk.until('end')}", "--num-nodes", "1")
    watching = desk.start("watch", str(run.job_id))
    read_until(watching, "^at work$")
    with silent_controller(desk.cluster):
        desk.let("on")
        read_until(watching, "^more$")
    desk.let("end")
    watching.communicate(timeout=120)
    assert watching.returncode == 0


# logs


def test_logs_followed_from_before_the_start_and_through_a_requeue(desk: Desk) -> None:
    command = "echo life ${SLURM_RESTART_COUNT:-0}; [[ ${SLURM_RESTART_COUNT:-0} == 1 ]] || sleep 600"
    run = desk.launch(command, "--num-nodes", "2", "--requeue", "--hold")
    job = str(run.job_id)
    following = desk.start("logs", job, "-f")
    watching = desk.start("watch", job)
    read_until(following, "pending: held by the user", stream=following.stderr)
    desk.cluster.run(["scontrol", "release", job], check=True)
    desk.wait_for(run, "\nlife 0\n")
    desk.cluster.run(["scontrol", "requeue", job], check=True)
    shown = read_until(watching, "the delay after a requeue")

    def lives_again() -> bool:
        """Slurm would let two minutes pass; it does not listen while the first life is cleaned up."""
        desk.cluster.run(["scontrol", "update", f"jobid={job}", "starttime=now"])
        return "\nlife 1\n" in desk.log(run)

    desk.eventually(lives_again, 60, lambda: desk.log(run))
    out, err = following.communicate(timeout=90)
    assert following.returncode == 0, err
    assert out == desk.log(run)
    assert out.count(" starting ") == 2
    out, err = watching.communicate(timeout=90)
    assert watching.returncode == 0, err
    assert "\nlife 0\n" in shown
    assert "\nlife 1\n" in out
    assert f"[watch] job {job} completed" in out


def test_the_logs_of_the_nodes_with_a_real_ray(desk: Desk) -> None:
    """While it runs from the nodes, after its failure those that were kept."""
    ray = f"export PATH={shlex.quote(str(VENV / 'bin'))}:$PATH"
    run = desk.launch(f"echo at work; {desk.until('end')}; exit 3", "--num-nodes", "2", "--no-dashboard", ray=ray)
    job = str(run.job_id)
    early = desk("logs", job, "--ray")
    assert early.returncode in (0, 7), early.stderr  # it may have begun by then
    desk.wait_for(run, "\nat work\n", 90)

    # A node is up when its raylet has registered; `ray start` looks once a second, and may tell it a little later.
    def told(*words: str) -> Callable[[], bool]:
        return lambda: "Ray runtime started." in desk("logs", job, *words).stdout

    for words in (("--head",), ("--node", "n2")):
        done = desk("logs", job, *words)
        assert (done.returncode, done.stderr) == (0, ""), done
        desk.eventually(told(*words), 60, lambda: "ray start has not told its end")
    assert len(desk("logs", job, "--node", "n2", "--tail", "2").stdout.splitlines()) == 2
    live = desk("logs", job, "--ray")
    assert live.returncode == 0
    assert "==> gcs_server.out <==" in live.stdout
    assert "showing those on the head node n1" in live.stderr
    worker = desk("logs", job, "--ray", "--node", "n2", "--tail", "3")
    assert "==> raylet.out <==" in worker.stdout
    assert "gcs_server" not in worker.stdout
    strange = desk("logs", job, "--node", "n6")
    assert strange.returncode == 2
    assert "its nodes are n1, n2" in strange.stderr
    following = desk.start("logs", job, "-f", "--head")
    read_until(following, "Ray runtime started")
    desk.let("end")
    _, err = following.communicate(timeout=60)
    assert (following.returncode, err) == (0, "")
    desk.cluster.wait_job(job)
    done = desk("logs", job, "--node", "n2")
    assert "Ray runtime started." in done.stdout
    kept = desk("logs", job, "--ray").stdout
    assert "==> n1/ray-start.log <==" in kept
    assert "==> n2/logs/raylet.out <==" in kept
    assert desk("logs", job, "--command-only").stdout == "at work\n"


def test_nothing_is_kept_of_a_good_run(desk: Desk) -> None:
    run = desk.launch("true", "--num-nodes", "2")
    desk.cluster.wait_job(str(run.job_id))
    done = desk("logs", str(run.job_id), "--node", "n2")
    assert done.returncode == 7
    assert "--keep-ray-logs" in done.stderr
