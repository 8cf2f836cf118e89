"""The story of runs through every verb, with accounting and without, to the end and after it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from tests.slurm.conftest import SUITE, binds, need_cluster
from tests.slurm.jobs import HOME, OLD_RAY, ROOT, VENV, standing_ray, submit, wrapped_ray
from tests.slurm.test_submit import silent_controller
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

PYTHON = str(VENV / "bin/python")
# The command line has no flag for how long Slurm may take to answer.
IMPATIENT = """
import os, sys
from slurm_launch.cli import main as cli
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.cli import run_argument
run_argument.slurm_client = lambda: SlurmClient(os.environ, timeout=2)
cli.main(sys.argv[1:])
"""
# Several calls in one process: to start Python takes longer than to answer.
SEVERAL = """
import contextlib, io, json, sys
from slurm_launch.cli import main as cli
answers = []
for argv in json.loads(sys.argv[1]):
    with (
        io.TextIOWrapper(io.BytesIO(), "utf-8") as out,
        io.TextIOWrapper(io.BytesIO(), "utf-8") as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = cli.run(argv)
        out.flush()
        err.flush()
        answers.append((code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()))
print(json.dumps(answers))
"""
FOREVER = "echo UP; sleep 900 & wait"


@pytest.fixture(scope="module")
def accounted() -> Iterator[Cluster | None]:
    """With slurmdbd; and slurmctld forgets a job two seconds after its end. The testbed has it for one Slurm only."""
    if SUITE != "host":
        yield None
        return
    need_cluster(accounting=True)
    with Cluster(nodes=2, accounting=True, binds=binds(), slurm_conf_extra=["MinJobAge=2"]) as cluster:
        yield cluster


def until(question: Callable[[], Any], what: str, timeout: float = 90) -> Any:
    for _ in range(int(timeout * 5)):
        if answer := question():
            return answer
        time.sleep(0.2)
    raise AssertionError(f"{what}: not within {timeout} s")


class Alice:
    """At work in a directory of her own, with an index of her own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.home = f"{HOME}/{uuid.uuid4().hex[:8]}"
        cluster.run(["mkdir", self.home], check=True)
        # Each part of a bring-up waits for a file.
        ray = standing_ray(cluster)
        gate = wrapped_ray(cluster, f"until [[ -e {self.home}/up ]]; do sleep 0.1; done", f"{HOME}/standing/ray")
        self.ray = ["--load-env", ray]
        self.gated = [
            *self.ray,
            "--load-env",
            gate,
            "--load-env",
            f"until [[ -e {self.home}/env ]]; do sleep 0.1; done",
        ]
        self.env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "XDG_STATE_HOME": f"{self.home}/state"}

    def call(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str = "alice",
        path: str | None = None,
        start: tuple[str, ...] = ("-m", "slurm_launch"),
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        environment = self.env | dict(env or {})
        python = ["env", f"PATH={path}", PYTHON] if path else [PYTHON]
        argv = (*python, *start, *argv)
        done = self.cluster.run(argv, env=environment, cwd=cwd or self.home, user=user, timeout=timeout)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return self.cluster.popen([PYTHON, "-m", "slurm_launch", *argv], env=self.env, cwd=self.home)

    def submit(self, name: str, command: str, *flags: str) -> Run:
        (run,) = self.submit_all((name, command, *(flags or self.ray)))
        return run

    def submit_all(self, *jobs: tuple[str, ...]) -> list[Run]:
        """Each is a name, a command and flags."""
        answers = self.several(
            *(
                ["submit", "--exp-name", name, "--cpus-per-task", "1", "--command", command, "--json", *flags]
                for name, command, *flags in jobs
            )
        )
        assert [code for code, _, _ in answers] == [0] * len(jobs), answers
        return [self.record(json.loads(out)["record"]) for _, out, _ in answers]

    def record(self, path: str) -> Run:
        run = records.read(self.cluster.path(path))
        return replace(run, record=path, log=path.replace(".json", ".log"), run_dir=str(Path(path).parent))

    def forget(self, run: Run) -> None:
        """Take from the record how the run ended."""
        path = self.cluster.path(run.record)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tasks": {}}))

    @contextmanager
    def remembering_nothing(self) -> Iterator[None]:
        """Her records cannot be written, so that each verb must ask anew."""
        self.cluster.run(["chmod", "555", self.home], check=True)
        yield
        self.cluster.run(["chmod", "755", self.home], check=True)

    def several(self, *calls: list[str]) -> list[tuple[int, str, str]]:
        """Code, output and errors of each call."""
        done = self.call(json.dumps(calls), start=("-c", SEVERAL), timeout=180)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stdout, done.stdout
        return [(code, out, err) for code, out, err in json.loads(done.stdout)]

    def statuses(self, *of: Run | str) -> list[dict[str, Any]]:
        names = [run if isinstance(run, str) else str(run.job_id) for run in of]
        answers = self.several(*(["status", name, "--json"] for name in names))
        assert [code for code, _, _ in answers] == [0] * len(of), answers
        return [json.loads(out) for _, out, _ in answers]

    def status(self, run: Run | str) -> dict[str, Any]:
        (told,) = self.statuses(run)
        return told

    def list(self, *flags: str, **more: Any) -> dict[str, str]:
        done = self.call("list", "--json", *flags, **more)
        assert done.returncode == 0, done.stderr
        # Those of other tests are found, too, as long as their jobs are in the queue.
        ours = [run for run in json.loads(done.stdout)["runs"] if run["record"].startswith(f"{self.home}/")]
        return {run["exp_name"]: run["state"] for run in ours}

    def touch(self, name: str) -> None:
        self.cluster.run(["touch", f"{self.home}/{name}"], check=True)

    def wait_for(self, run: Run, text: str) -> None:
        log = self.cluster.path(run.log)
        until(lambda: log.exists() and re.search(text, log.read_text()), f"{text!r} in {run.log}")

    def wait_end(self, run: Run) -> None:
        """Until Slurm says so, or has forgotten it."""
        argv = ["squeue", "-h", "-t", "all", "-j", str(run.job_id), "-o", "%T"]
        over = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", ""}
        until(lambda: set(self.cluster.run(argv).stdout.split("\n")) <= over, f"the end of job {run.job_id}")

    def wait_forgotten(self, run: Run) -> None:
        argv = ["squeue", "-h", "-t", "all", "-j", str(run.job_id)]
        until(lambda: "Invalid job id" in self.cluster.run(argv).stderr, f"slurmctld forgets job {run.job_id}")

    def as_root(self, *argv: str) -> None:
        self.cluster.run(argv, user="root", check=True)


@dataclass(frozen=True)
class Ending:
    """What the verbs say of a run that has ended."""

    code: int  # of `watch`
    told: str  # by `watch`, behind the job's number
    cause: str
    why: str
    in_words: str


ENDINGS = {
    "good": Ending(0, "completed (", "not-failed", "it has not failed: ", "completed"),
    "bad": Ending(
        3,
        "failed: its command exited with code 3 (",
        "command-failed",
        "not sure: the command exited with code 3; ",
        "failed with exit code 3",
    ),
    "late": Ending(
        5,
        "timed out: the time limit was reached (",
        "time-limit",
        "the time limit was reached\n",
        "timed out",
    ),
    "stopped": Ending(
        5,
        "was canceled: the job was terminated externally (",
        "cancelled",
        "the job was canceled by `slurm-launch cancel`, at ",
        "was canceled",
    ),
}


class Story:
    """Runs of all kinds, side by side."""

    def __init__(self, alice: Alice) -> None:
        self.alice = alice
        good = f"echo UP; until [[ -e {alice.home}/done ]]; do sleep 0.1; done"
        self.all = alice.submit_all(
            ("good", good, "--num-nodes", "2", "--node", "n[1-2]", "--hold", *alice.gated),
            ("bad", "echo UP; exit 3", *alice.ray),
            ("late", FOREVER, *alice.ray),
            ("stopped", FOREVER, *alice.ray),
            ("killed", "echo UP; kill -9 $PPID; sleep 900 & wait", *alice.ray),
            ("array", "exit $SLURM_ARRAY_TASK_ID", "--array", "0-2%1", *alice.ray),
            ("again", FOREVER, "--requeue", *alice.ray),
        )
        self.good, self.bad, self.late, self.stopped, self.killed, self.array, self.again = self.all
        self.watched: dict[str, subprocess.Popen[str]] = {}  # by `watch`, as it happens
        self.ends = {
            "good": "COMPLETED", "bad": "FAILED", "late": "TIMEOUT", "stopped": "CANCELLED", "killed": "FAILED",
            "again": "CANCELLED",
        }  # fmt: skip

    def begin(self) -> None:
        alice = self.alice
        held = alice.status(self.good)
        assert (held["state"], held["reason"], held["phase"], held["source"]) == (
            "PENDING",
            "JobHeldUser",
            "queued",
            "squeue",
        )
        assert "held by the user" in held["in_words"]
        assert (held["nodes"], held["times"]["started"]) == (None, None)
        assert alice.list("--exp", "good", "--state", "pending") == {"good": "PENDING"}
        for run in (self.late, self.stopped, self.again):
            alice.wait_for(run, "\nUP")
        for run in (self.good, self.late, self.stopped):
            self.watched[run.exp_name] = alice.start("watch", str(run.job_id))
        soon = "EndTime=now+2seconds"  # one that is past is refused
        alice.as_root("scontrol", "update", f"JobId={self.late.job_id}", soon)
        alice.cluster.run(["scontrol", "release", str(self.good.job_id)], check=True)
        alice.as_root("scontrol", "requeue", str(self.again.job_id))

    def go_on(self) -> None:
        """The good one comes up step by step."""
        alice = self.alice
        alice.wait_for(self.good, "")  # the log is there: Slurm calls the job RUNNING a moment before
        told = alice.status(self.good)
        assert told["state"] == "RUNNING"
        assert (told["phase"], told["in_words"]) == ("environment", "running: loading the environment")
        assert (told["num_nodes"], told["joined"], told["address"]) == (2, [], None)
        alice.touch("env")
        alice.wait_for(self.good, " starting ")
        told = alice.status(self.good)
        assert (told["phase"], told["joined"]) == ("bring-up", [])
        assert told["address"].startswith("10."), told
        alice.touch("up")
        alice.wait_for(self.good, " command ")
        told = alice.status("good")
        assert (told["phase"], sorted(told["joined"])) == ("command", ["n1", "n2"])
        assert alice.list("--state", "active")["good"] == "RUNNING"
        shown = alice.call("status", self.good.log).stdout
        assert "RUNNING: running your command" in shown
        assert "running since" in shown
        self.verbs_while_it_runs(told["address"])
        alice.touch("done")

    def verbs_while_it_runs(self, address: str) -> None:
        good = str(self.good.job_id)
        attached = self.alice.start("attach", good, "--", "bash", "-c", "echo $RAY_ADDRESS on $(hostname); exit 9")
        head = self.alice.call("logs", good, "--head")  # they go into the job: the files are those of the process
        assert (head.returncode, head.stdout, head.stderr) == (0, "Ray runtime started.\n", "")
        out, err = attached.communicate(timeout=60)
        assert (attached.returncode, out, err) == (9, f"{address} on n1\n", "")
        dashboard, why, log = self.alice.several(["dashboard", good], ["explain", good], ["logs", good])
        assert (dashboard[0], dashboard[1]) == (7, "")
        assert f"job {good} uses Ray 2.60.0 without the dashboard installed" in dashboard[2]
        assert (why[0], why[1].splitlines()[0]) == (0, "it has not failed: still running")
        assert (log[0], "\nUP\n" in log[1], " end outcome=" in log[1]) == (0, True, False)

    def requeue(self) -> None:
        """The first life has ended, the second has not begun."""
        alice = self.alice
        alice.wait_for(self.again, " end outcome=")
        told = until(lambda: (now := alice.status(self.again))["state"] == "PENDING" and now, "PENDING again")
        assert (told["phase"], told["outcome"], told["restarts"]) == ("queued", None, 1)
        assert "the delay after a requeue" in told["in_words"]
        alice.cluster.run(["scancel", str(self.again.job_id)], check=True)

    def end(self) -> None:
        stopped = str(self.stopped.job_id)
        done = self.alice.call("cancel", stopped)
        assert (done.returncode, done.stdout) == (0, f"job {stopped} has ended\n"), done.stderr
        assert "the command has ten seconds" in done.stderr
        for run in self.all:
            self.alice.wait_end(run)
        for name, watching in self.watched.items():
            out, _ = watching.communicate(timeout=60)
            assert watching.returncode == ENDINGS[name].code, out
            assert re.search(rf"\[watch\] job \d+ {re.escape(ENDINGS[name].told)}", out), out
            assert "\nUP\n" in out

    def verbs_at_the_end(self) -> None:
        """Each tells the same, whoever has told it."""
        calls = [
            ["watch"],
            ["logs"],
            ["logs", "-f", "--command-only"],
            ["logs", "--head"],
            ["logs", "--ray"],
            ["explain"],
            ["explain", "--json"],
            ["attach", "--", "true"],
            ["dashboard"],
            ["cancel"],
        ]
        runs = [run for run in self.all if run.exp_name in ENDINGS]
        jobs = [str(run.job_id) for run in runs]
        answers = self.alice.several(*([words[0], job, *words[1:]] for job in jobs for words in calls))
        for run, job in zip(runs, jobs, strict=True):
            end = ENDINGS[run.exp_name]
            watch, log, output, head, ray, why, cause, attach, dashboard, cancel = answers[: len(calls)]
            del answers[: len(calls)]
            assert watch[0] == end.code, watch
            assert f"\n[watch] job {job} {end.told}" in watch[1]
            assert log == (0, self.alice.cluster.path(run.log).read_text(), "")
            assert (output[0], output[1][:3], output[2]) == (0, "UP\n", "")
            assert "[slurm-launch]" not in output[1]  # but Slurm's own word of a time limit
            kept = run is not self.good
            text = self.alice.cluster.path(run.log).read_text()
            assert head[:2] == ((0, "Ray runtime started.\n") if kept else (7, "")), (head, text)
            assert bool(re.match(r"==> n\d/ray-start\.log <==\n", ray[1])) == kept, ray
            if not kept:
                assert re.search(rf"no logs of n\d were kept: job {job} {end.in_words}", head[2]), head
            assert (why[0], why[1].startswith(end.why)) == (0, True), why
            assert [(task["id"], task["cause"]) for task in json.loads(cause[1])["tasks"]] == [(job, end.cause)]
            for code, out, err in (attach, dashboard):
                assert (code, out) == (7, ""), err
                assert f"job {job} {end.in_words}" in err
            assert cancel[:2] == (0, ""), cancel
            assert f"job {job} ({run.name}) has already ended" in cancel[2]

    def told_at_the_end(self, source: str, known: Mapping[str, str]) -> None:
        """By `status`, and by `list`: the states, the codes, the times, and who says so."""
        alice = self.alice
        listed = alice.list()
        assert {name: listed[name] for name in known} == known
        task_2 = f"{self.array.job_id}_2"
        good, bad, late, stopped, killed, array, again, two = alice.statuses(*self.all, task_2)
        assert (good["state"], good["exit_code"], good["outcome"], good["source"]) == ("COMPLETED", 0, "ok", source)
        times = [good["times"][name] for name in good["times"]]
        if source != "log":
            assert None not in times, times
            assert times == sorted(times)
            assert (good["nodes"], good["partition"]) == ("n[1-2]", "main")
            assert (again["state"], again["in_words"], again["times"]["started"]) == (
                "CANCELLED",
                "was canceled",
                None,
            )
        assert (bad["state"], bad["exit_code"], bad["outcome"]) == ("FAILED", 3, "command-failed")
        assert (late["state"], late["exit_code"], late["outcome"]) == ("TIMEOUT", None, "time-limit")
        assert "timed out" in late["in_words"]
        assert (stopped["state"], stopped["outcome"]) == ("CANCELLED", "ended-from-outside")
        assert (killed["state"], killed["outcome"]) == (known["killed"], None)
        assert [(task["id"], task["exit_code"]) for task in array["tasks"]] == [
            (f"{self.array.job_id}_{number}", number) for number in range(3)
        ]
        assert [(task["id"], task["outcome"]) for task in two["tasks"]] == [(task_2, "command-failed")]

    def forget(self) -> None:
        for run in self.all:
            self.alice.forget(run)


@pytest.mark.xdist_group("accounted")
def test_the_whole_story(cluster: Cluster, accounted: Cluster | None) -> None:
    """On two clusters at the same time: one without accounting, one that has it and whose controller soon forgets."""
    with ThreadPoolExecutor() as both:
        plain = both.submit(to_the_end, cluster)
        rich = to_the_end(accounted) if accounted else None
        after = both.submit(told_when_slurmctld_has_forgotten, rich) if rich else None
        story = plain.result()
        story.told_at_the_end("squeue", story.ends)
        with story.alice.remembering_nothing():
            story.verbs_at_the_end()
        if after:
            after.result()


def to_the_end(cluster: Cluster) -> Story:
    story = Story(Alice(cluster))
    story.begin()
    story.go_on()
    story.requeue()
    story.end()
    return story


def told_when_slurmctld_has_forgotten(story: Story) -> None:
    alice = story.alice
    for run in story.all:
        alice.wait_forgotten(run)
    story.forget()
    with alice.remembering_nothing():
        story.verbs_at_the_end()
    story.told_at_the_end("sacct", story.ends)
    assert alice.list() == story.ends | {"array": "2 FAILED, 1 COMPLETED"}
    # And without accounting: by the record, which remembers; by the last line of the log; or not at all.
    alice.env |= {"SLURM_CONF": without_accounting(alice.cluster)}
    assert alice.status(story.killed)["source"] == "record"
    story.verbs_at_the_end()
    story.forget()
    with alice.remembering_nothing():
        story.verbs_at_the_end()
    # A log that ends with `requeued` does not tell what became of the job while it waited.
    story.told_at_the_end("log", story.ends | {"killed": "UNKNOWN", "again": "UNKNOWN"})
    unknown = alice.call("status", str(story.killed.job_id)).stdout
    assert "UNKNOWN: left the queue; its final state is unknown" in unknown
    alice.cluster.path(story.bad.log).unlink()
    story.forget()
    assert alice.status(story.bad)["state"] == "UNKNOWN"


def sacct(cluster: Cluster, job_id: str) -> str:
    """State and code, once the database has them: some seconds after the end."""
    argv = ["sacct", "-X", "-n", "-P", "-j", job_id, "-o", "State,ExitCode"]

    def over() -> str:
        said = cluster.run(argv, check=True).stdout.strip()
        return "" if said.startswith(("PENDING", "RUNNING")) else said

    return str(until(over, f"the end of job {job_id} in the accounts"))


@pytest.mark.xdist_group("accounted")
def test_with_accounting(accounted: Cluster | None) -> None:
    """What sacct says of a job is what its script said, with a real Ray; and what else is different with slurmdbd."""
    if accounted is None:
        pytest.skip("the testbed has slurmdbd for the machine's own Slurm only")
    alice = Alice(accounted)
    jobs = [submit(accounted, num_nodes=2, command=command, ray=OLD_RAY) for command in ("exit 0", "exit 3")]

    # A job that slurmctld may have forgotten, and whose log says nothing of its end.
    template = f"{alice.home}/t.j2"
    accounted.path(template).write_text("#!/bin/bash\n{{ directives }}\n{{ spec.command | raw }}\n")
    done = alice.call("--exp-name", "t", "--template", template, "--command", "exit 6", "--wait")
    assert done.returncode == 6, done.stderr

    refused = alice.call("--exp-name", "t", "--command", "true", "-A", "nosuch")
    assert refused.returncode == 3, refused.stderr
    assert "Invalid account or account/partition combination specified" in refused.stderr
    assert "--account" in refused.stderr

    assert [sacct(accounted, job.id) for job in jobs] == ["COMPLETED|0:0", "FAILED|3:0"], jobs[1].log


def without_accounting(cluster: Cluster) -> str:
    """A slurm.conf as of a site that keeps no accounts."""
    text = cluster.run(["bash", "-c", "cat ${SLURM_CONF:-/etc/slurm/slurm.conf}"], check=True).stdout
    text = re.sub(r"(?m)^AccountingStorage.*\n", "", text)
    cluster.path("/home/alice/off.conf").write_text(text)
    return "/home/alice/off.conf"


def nobody_listens(cluster: Cluster) -> str:
    text = cluster.run(["bash", "-c", "cat ${SLURM_CONF:-/etc/slurm/slurm.conf}"], check=True).stdout
    cluster.path("/home/alice/down.conf").write_text(f"{text}\nSlurmctldPort=1\nMessageTimeout=2\n")
    return "/home/alice/down.conf"


def test_faults(cluster: Cluster) -> None:
    """Each of them is told in a few words, and nothing is lost."""
    alice = Alice(cluster)
    run = alice.submit("t", FOREVER)
    job = str(run.job_id)
    alice.wait_for(run, "\nUP")

    # slurmctld cannot be reached.
    impatient = ("-c", IMPATIENT)
    with silent_controller(cluster):
        done = alice.call("status", start=impatient)
        assert (done.returncode, done.stdout) == (4, "")
        assert "squeue did not answer within 2 s" in done.stderr
        done = alice.call("list", start=impatient)
        assert (done.returncode, "UNKNOWN" in done.stdout) == (4, True), "what is known is told all the same"
    done = alice.call("status", env={"SLURM_CONF": nobody_listens(cluster)})
    assert done.returncode == 4, done.stderr
    assert "Unable to contact slurm controller" in done.stderr
    done = alice.call("status", path="/nowhere")
    assert (done.returncode, "squeue is not in PATH" in done.stderr) == (4, True), done.stderr

    # Somebody else: bob neither finds alice's run nor gets at its record; alice does not take bob's job for hers.
    cluster.run(["chmod", "755", HOME, alice.home], check=True)
    stranger = {"XDG_STATE_HOME": "/home/bob/state"}
    done = alice.call("status", job, user="bob", env=stranger, cwd="/home/bob")
    assert (done.returncode, f"no run has the name or job ID '{job}'" in done.stderr) == (2, True), done.stderr
    done = alice.call("status", run.record, user="bob", env=stranger, cwd="/home/bob")
    assert (done.returncode, "cannot read the record: Permission denied" in done.stderr) == (2, True), done.stderr
    assert alice.list(user="bob", env=stranger) == {}
    bobs = cluster.run(["sbatch", "--parsable", "--job-name=t", "--wrap=sleep 900"], user="bob", cwd="/home/bob")
    bob = bobs.stdout.strip()
    assert alice.call("status", bob).returncode == 2
    record = cluster.path(run.record)
    before = record.read_text()
    record.write_text(json.dumps(json.loads(before) | {"job_id": bob}))
    assert alice.status(run.record)["state"] == "UNKNOWN", "the number is another job's by now"

    # The record.
    for text, message in (
        (before[:99], "the record is damaged"),
        ("", "the record is damaged"),
        (before.replace('"schema": 1', '"schema": 2'), "written by a newer slurm-launch"),
    ):
        record.write_text(text)
        (code, _, told), (listed, _, warned) = alice.several(["status", job], ["list"])
        assert (code, message in told) == (2, True), told
        assert (listed, "cannot read 1 record" in warned) == (0, True), warned
    record.unlink()
    done = alice.call("status", run.script)
    assert (done.returncode, "there is no record next to this file" in done.stderr) == (2, True)
    record.write_text(before)
    cluster.run(["chown", "alice:", run.record], user="root", check=True)

    # The index, lost: the runs of this directory are found without it, and it is rebuilt.
    # So are those of jobs in the queue.
    index = cluster.path(f"{alice.home}/state/slurm-launch/runs")
    for first in (alice.home, "/tmp"):
        shutil.rmtree(index)
        assert alice.list(cwd=first) == {"t": "RUNNING"}
        assert alice.call("status", job, cwd="/").returncode == 0, "now it is known again"

    # The log, removed while the job runs; and a directory in which nothing can be written.
    log = cluster.path(run.log)
    log.rename(log.with_suffix(".old"))
    seen = alice.status(job)
    assert (seen["state"], seen["phase"]) == ("RUNNING", "running")
    log.with_suffix(".old").rename(log)
    cluster.run(["scancel", job], check=True)
    alice.wait_end(run)
    cluster.run(["chmod", "555", alice.home], check=True)
    assert alice.status(job)["state"] == "CANCELLED"
    assert alice.list() == {"t": "CANCELLED"}
    assert record.read_text() == before
    cluster.run(["chmod", "755", alice.home], check=True)
    assert alice.status(job)["state"] == "CANCELLED"
    assert list(alice.record(run.record).tasks) == [job], "now it is written down"


def test_a_long_array_is_told_to_its_end(cluster: Cluster) -> None:
    """squeue cuts a list of tasks short unless it is told not to."""
    alice = Alice(cluster)
    squares = ",".join(str(number * number) for number in range(30))
    run = alice.submit("array", "true", "--array", squares, "--hold", "--load-env", shlex.quote("true"))
    (task,) = alice.status(run)["tasks"]
    assert (task["state"], task["id"].endswith(",784,841]")) == ("PENDING", True), task
    assert alice.list() == {"array": "PENDING"}
    cluster.run(["scancel", str(run.job_id)], check=True)
