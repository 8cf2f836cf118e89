"""`status` and `list`, with scripted output of squeue and sacct on the PATH."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.errors import UsageError
from slurm_launch.runs import index, log_phases, points_table
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.status import report, task_points
from slurm_launch.status.task import TIMES, Task
from tests.unit.conftest import Launcher
from tests.unit.some_run import some_run

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=timezone.utc)
PHASES = """\
[slurm-launch] {0}:01+0000 starting nodes=2 head=n1 address=10.0.0.1:2400 auth=token job=12 dir=/tmp/r12-ab
[slurm-launch] {0}:05+0000 joined node=n1 nodes=1/2
[slurm-launch] {0}:09+0000 joined node=n2 nodes=2/2
[slurm-launch] {0}:09+0000 ready nodes=2/2 ray=2.60.0 client=ray://10.0.0.1:2401 dashboard=http://127.0.0.1:2402
[slurm-launch] {0}:09+0000 command python train.py
"""
END = """\
[slurm-launch] {0}:39+0000 stopping
[slurm-launch] {0}:40+0000 end outcome=node-lost code=72 phase=command node=n2 cause="n2 was lost" hint="look at n2"
"""


@pytest.fixture(autouse=True)
def slurm_is_in_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slurm reports local times."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def launched(tmp_path: Path) -> Callable[..., Run]:
    """Make the record of a launch."""

    def make(
        name: str = "t", job_id: str | None = "12", created: str = "2020-03-04T09:00:00+00:00", **more: Any
    ) -> Run:
        date, clock = created[:10].replace("-", ""), created[11:19].replace(":", "")
        stem = str(tmp_path / "work" / f"{name}_{date}-{clock}")
        own = {"exp_name": name, "job_id": job_id, "created": created, "submitted": created if job_id else None}
        run = some_run(os.path.dirname(stem), os.path.basename(stem), user="me", **own, **more)
        records.write(run)
        index.add(run, os.environ)
        return run

    return make


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a squeue and a sacct with scripted output on the PATH; returns the file that records their calls."""

    def make(squeue: str = "", sacct: str = "", code: int = 0, stderr: str = "") -> Path:
        programs, calls = tmp_path / "bin", tmp_path / "calls"
        programs.mkdir(exist_ok=True)
        for name, answer in (("squeue", squeue), ("sacct", sacct), ("scontrol", "")):
            (tmp_path / f"{name}.txt").write_text(answer)
            text = f"#!/bin/sh\necho {name} >>{calls}\necho '{stderr}' >&2\ncat {tmp_path}/{name}.txt\nexit {code}\n"
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        calls.write_text("")
        return calls

    return make


def queued(run: Run, state: str, code: str = "0:0", reason: str = "None", task: str = "", end: str = "N/A") -> str:
    times = f"2020-03-04T09:00:00|2020-03-04T09:00:00|{end}"
    return f"{run.job_id}{task}|{state}|{code}|{reason}|0|2|n[1-2]|main|me|{times}|{run.script}|{run.exp_name}|\n"


def accounted(run: Run, state: str, code: str = "0:0") -> str:
    times = "2020-03-04T09:00:00|2020-03-04T09:00:00|2020-03-04T09:01:00"
    return f"{run.job_id}|{state}|{code}|2|n[1-2]|main|me|{times}|{run.exp_name}|sbatch --parsable {run.script}\n"


def test_a_pending_run(launcher: Launcher, launched: Any, slurm: Any) -> None:
    slurm(queued(launched(), "PENDING", reason="Resources"))
    answer = launcher("status")
    assert answer.code == 0
    assert "PENDING: next to start, as soon as nodes are free (Resources)" in answer.out
    assert "  start      2020-03-04 09:00:00" in answer.out


def test_a_running_run(launcher: Launcher, launched: Any, slurm: Any) -> None:
    run = launched()
    slurm(queued(run, "RUNNING"))
    Path(run.log).write_text(PHASES.format("2020-03-04T09:00") + "hello\n")
    told = json.loads(launcher("status", "12", "--json").out)
    assert (told["address"], told["client_address"]) == ("10.0.0.1:2400", "ray://10.0.0.1:2401")
    assert (told["dashboard_url"], told["phase"], told["joined"]) == ("http://127.0.0.1:2402", "command", ["n1", "n2"])
    assert told["times"]["head_ready"] == "2020-03-04T09:00:05+00:00"
    assert "RUNNING: running your command" in launcher("status", "t").out


def test_a_failed_run_is_shown_from_the_saved_record(launcher: Launcher, launched: Any, slurm: Any) -> None:
    run = launched()
    Path(run.log).write_text((PHASES + END).format("2020-03-04T09:00"))
    slurm(queued(run, "FAILED", code="72:0", end="2020-03-04T09:00:40"))
    first = launcher("status", run.script, "--timings")
    assert "FAILED: failed with exit code 72: n2 was lost" in first.out
    assert "  hint       look at n2" in first.out
    assert "  exit code  72 (the script's own)" in first.out
    assert "command            ████" in first.out
    times = records.read(run.record).tasks["12"]["times"]
    assert list(times) == list(TIMES)
    Path(run.log).unlink()
    slurm("", code=1, stderr="Unable to contact slurm controller")
    second = launcher("status")
    words = "FAILED: failed with exit code 72 (from the saved record; Slurm no longer lists this job)"
    assert (second.code, words in second.out) == (0, True)


def test_explain_saves_the_times_of_the_log(launcher: Launcher, launched: Any, slurm: Any) -> None:
    """As `status` does, so that they are known when the log is deleted."""
    run = launched()
    Path(run.log).write_text((PHASES + END).format("2020-03-04T09:00"))
    slurm(queued(run, "FAILED", code="72:0", end="2020-03-04T09:00:40"))
    assert launcher("explain", "12").out.startswith("n2 was lost\n")
    assert list(records.read(run.record).tasks["12"]["times"]) == list(TIMES)


def test_the_log_of_a_purged_job_is_parsed_once(
    launcher: Launcher, launched: Any, slurm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launched()
    text = (PHASES + END).format("2020-03-04T09:00")
    Path(run.log).write_text(text)
    slurm()
    parsed: Counter[str] = Counter()
    parse = log_phases.phase_of

    def counted(line: str) -> log_phases.Phase | None:
        parsed[line] += 1
        return parse(line)

    monkeypatch.setattr(log_phases, "phase_of", counted)
    assert "FAILED: failed with exit code 72: n2 was lost (from the log;" in launcher("status", "12").out
    assert {parsed[line] for line in text.splitlines()} == {1}


def test_explain_saves_the_times_in_a_long_log(launcher: Launcher, launched: Any, slurm: Any) -> None:
    """`explain` reads only parts of a log this long; the times in it are saved all the same."""
    run = launched()
    phases, end = (text.format("2020-03-04T09:00") for text in (PHASES, END))
    Path(run.log).write_text(phases + "x\n" * 2_500_000 + end)
    slurm()
    launcher("explain", "12")
    assert {"command-start", "ended"} <= records.read(run.record).tasks["12"]["times"].keys()


@pytest.mark.parametrize(
    ("stderr", "expected"), [("slurm_load_jobs error: Invalid job id specified", "UNKNOWN: left the queue")]
)
def test_a_job_that_no_source_knows_is_unknown(
    launcher: Launcher, launched: Any, slurm: Any, stderr: str, expected: str
) -> None:
    launched()
    slurm("", code=1, stderr=stderr)
    assert expected in launcher("status").out


def test_slurmctld_cannot_be_reached(launcher: Launcher, launched: Any, slurm: Any) -> None:
    launched()
    slurm("", code=1, stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    answer = launcher("status")
    assert answer.code == 4
    assert "Unable to contact slurm controller" in answer.err
    listed = launcher("list")
    assert (listed.code, "UNKNOWN" in listed.out) == (4, True), "what is known is told all the same"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write to somebody else's record")
def test_root_leaves_the_record_of_another_user_alone(launcher: Launcher, launched: Any, slurm: Any) -> None:
    """Otherwise its owner could no longer read it."""
    run = launched()
    os.chown(run.record, 65534, 65534)
    os.chmod(run.record, 0o644)
    before = Path(run.record).read_bytes()
    slurm(queued(run, "FAILED", code="3:0"))
    for verb in ("status", "explain"):
        assert launcher(verb, run.record).code == 0
    status = os.stat(run.record)
    assert (status.st_uid, status.st_mode & 0o777, Path(run.record).read_bytes()) == (65534, 0o644, before)
    with pytest.raises(UsageError, match="belongs to another user"):
        records.update(run)


def test_canceled_tasks_in_json(launcher: Launcher, launched: Any, slurm: Any) -> None:
    when = "2020-03-04T09:00:30+00:00"
    run = launched(spec={"array": "0-1"}, cancelled={"12_0": when})
    slurm(queued(run, "FAILED", "75:0", task="_0") + queued(run, "FAILED", "75:0", task="_1"))
    told = json.loads(launcher("status", "12", "--json").out)
    assert [(one["state"], one["cancelled"]) for one in told["tasks"]] == [("CANCELLED", when), ("FAILED", None)]
    assert told["cancelled"] == when
    alone = launched("u", "13")
    slurm(queued(alone, "RUNNING"))
    assert json.loads(launcher("status", "13", "--json").out)["cancelled"] is None


def test_list(launcher: Launcher, launched: Any, slurm: Any) -> None:
    good, bad = launched("good", "1", "2020-03-04T09:00:00+00:00"), launched("bad", "2", "2020-03-04T10:00:00+00:00")
    array = launched("many", "3", "2020-03-04T11:00:00+00:00")
    calls = slurm(
        queued(bad, "FAILED", "3:0", end="2020-03-04T09:00:30")
        + queued(array, "RUNNING", task="_1")
        + queued(array, "PENDING", task="_[2-5,8%2]"),
        accounted(good, "COMPLETED"),
    )
    rows = [line.split()[:3] for line in launcher("list").out.splitlines()]
    assert rows == [
        ["RUN", "JOB", "STATE"],
        ["many_20200304-110000", "3", "1"],
        ["bad_20200304-100000", "2", "FAILED"],
        ["good_20200304-090000", "1", "COMPLETED"],
    ]
    assert calls.read_text().split() == ["squeue", "sacct"]
    told = json.loads(launcher("list", "--json", "--state", "failed,active").out)["runs"]
    assert [(one["exp_name"], one["state"]) for one in told] == [("many", "5 PENDING, 1 RUNNING"), ("bad", "FAILED")]
    assert len(launcher("list", "--exp", "good").out.splitlines()) == 2
    assert len(launcher("list", "-n", "1").out.splitlines()) == 2
    assert "no matching runs" in launcher("list", "--since", "1s").err


def test_a_thousand_runs_take_two_queries(launcher: Launcher, launched: Any, slurm: Any) -> None:
    for number in range(1000):
        launched(f"e{number}", str(number + 1), f"2020-03-04T{number // 60:02}:{number % 60:02}:00+00:00")
    calls = slurm()
    answer = launcher("list")
    assert (answer.code, len(answer.out.splitlines())) == (0, 1001)
    assert calls.read_text().split() == ["squeue", "sacct"]


def test_one_of_several_pending_tasks(launcher: Launcher, launched: Any, slurm: Any) -> None:
    run = launched(spec={"array": "0-9"})
    slurm(queued(run, "RUNNING", task="_0") + queued(run, "PENDING", reason="Priority", task="_[1-9]"))
    told = json.loads(launcher("status", "12_5", "--json").out)["tasks"]
    assert [(one["id"], one["state"], one["log"]) for one in told] == [
        ("12_5", "PENDING", run.log.replace(".log", "_5.log"))
    ]
    explained = launcher("explain", "12_5")
    assert (explained.code, "its final state is unknown" in explained.out) == (0, False), explained
    assert "still pending: jobs with a higher priority" in explained.out
    inside = launcher("attach", "12_5")
    assert (inside.code, "job 12_5 is pending" in inside.err) == (7, True), inside.err
    log = launcher("logs", "12_5")
    assert (log.code, "there is no log yet: job 12_5 is pending" in log.err) == (7, True), log.err
    for verb in ("status", "explain", "attach", "logs"):
        answer = launcher(verb, "12_10")
        assert (answer.code, "there is no task 12_10" in answer.err) == (2, True), answer.err
    for verb in ("attach", "logs", "watch"):
        answer = launcher(verb, "12_[3-5]")
        assert (answer.code, "12_[3-5] names 3 tasks" in answer.err) == (2, True), answer.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("list", "--state", "ill"), "unknown state 'ill'"),
        (("list", "--since", "soon"), "'soon' is not a time"),
        (("status", "nothing"), "no run has the name or job ID 'nothing'"),
        (("status", "./x.json"), "cannot read the record"),
        (("status", "12_9"), "there is no task 12_9"),
    ],
)
def test_bad_input(launcher: Launcher, launched: Any, slurm: Any, argv: tuple[str, ...], message: str) -> None:
    slurm(queued(launched(), "RUNNING", task="_1"))
    answer = launcher(*argv)
    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert "Traceback" not in answer.err


def test_a_queued_job_restores_its_run_in_the_index(
    launcher: Launcher, launched: Any, slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is lost, and we are in another directory."""
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    run = launched()
    shutil.rmtree(tmp_path / "home/.local/state/slurm-launch")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    calls = slurm(queued(run, "RUNNING"))
    assert "no run" in launcher("status").err
    told = json.loads(launcher("list", "--json").out)["runs"]
    assert [(one["name"], one["state"]) for one in told] == [(run.name, "RUNNING")]
    assert calls.read_text().split() == ["squeue"]
    assert launcher("status").code == 0, "now it is known"


def test_nothing_yet(launcher: Launcher) -> None:
    assert launcher("status").code == 2
    assert "no runs yet" in launcher("list").err


def test_a_damaged_record_does_not_hide_the_others(launcher: Launcher, launched: Any, slurm: Any) -> None:
    slurm(queued(launched("good", "1"), "RUNNING"))
    broken = launched("broken", "2")
    Path(broken.record).write_text('{"schema": 1, "name"')
    answer = launcher("list")
    assert "good_20200304-090000" in answer.out
    assert "cannot read 1 record;" in answer.err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3600, "1 h"),
        (90061, "1 d 1 h"),
        (-5, "0 s"),
    ],
)
def test_durations(seconds: int, text: str) -> None:
    assert report.duration(seconds) == text


def test_bars_of_a_run_that_is_not_over() -> None:
    times = {"submitted": NOW - timedelta(seconds=40), "started": NOW - timedelta(seconds=20)}
    rows = report.timing_rows(Task("1", "RUNNING", "squeue", "x.log", times=times), NOW, width=4, block="#")
    assert rows == ["in the queue       ####  20 s", "environment, head  ####  20 s so far"]


def test_a_path_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Launcher) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", refused)
    for suffix, words in ((".json", "cannot read the record"), (".log", "no permission to see it")):
        answer = launcher("status", f"/secret/x{suffix}")
        assert (answer.code, words in answer.err) == (2, True), answer.err


@pytest.mark.parametrize("known", [True, False])
def test_a_run_whose_sbatch_was_interrupted_gets_its_job(
    launcher: Launcher, launched: Any, slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    run = launched(job_id=None)
    if not known:  # neither by the index nor by its directory
        shutil.rmtree(tmp_path / "home/.local/state/slurm-launch")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
    job = replace(run, job_id="17")
    slurm(queued(job, "RUNNING") + queued(replace(job, job_id="18"), "PENDING"))
    assert [line.split()[1:3] for line in launcher("list").out.splitlines()[1:]] == [["-", "UNKNOWN"]], "which one?"
    assert records.read(run.record).job_id is None
    slurm(queued(replace(job, user="you"), "RUNNING").replace("|me|", "|you|"))
    assert [line.split()[1] for line in launcher("list").out.splitlines()[1:]] in ([], ["-"])
    slurm(queued(job, "RUNNING"))
    told = json.loads(launcher("list", "--json").out)["runs"]
    assert [(one["name"], one["job_id"], one["state"]) for one in told] == [(run.name, "17", "RUNNING")]
    healed = records.read(run.record)
    assert (healed.job_id, healed.submitted) == ("17", "2020-03-04T09:00:00+00:00")
    assert "RUNNING" in launcher("status", "17").out


# Arrays and sweeps


@pytest.fixture
def sweep(launched: Any, slurm: Any) -> Run:
    """Twelve points: 0 and 1 completed, 2 failed and was resubmitted, 3 is running, the others are pending."""
    name = "t_20200304-090000"
    table = Path(f"{name}.points.csv").resolve()
    run: Run = launched(spec={"sweep": ["lr=..."]}, array="0-11%4", points=str(table), resubmitted={"12_2": "u_2020"})
    points_table.write(run, ("lr", "seed"), [(f"1e-{n}", "x" * 50 if n == 4 else str(n)) for n in range(12)])
    ended = [queued(run, "COMPLETED", task=f"_{n}", end="2020-03-04T09:00:30") for n in (0, 1)]
    ended.append(queued(run, "FAILED", "3:0", task="_2", end="2020-03-04T09:00:30"))
    going = queued(run, "RUNNING", task="_3") + queued(run, "PENDING", reason="Priority", task="_[4-11%4]")
    slurm("".join(ended) + going)
    return run


ROWS = [
    ["TASK", "lr", "seed", "STATE", "NODES", "ELAPSED", "EXIT", "REMARK"],
    ["12_0", "1e-0", "0", "COMPLETED", "n[1-2]", "30", "s", "0"],
    ["12_2", "1e-2", "2", "FAILED", "n[1-2]", "30", "s", "3", "rerun", "as", "u_2020"],
]


def test_a_row_for_each_point(launcher: Launcher, sweep: Run) -> None:
    """Also for pending tasks in one entry."""
    lines = launcher("status", "12").out.splitlines()
    assert lines[0] == f"{sweep.name}: 2 ok, 1 failed, 1 running, 8 pending"
    rows = [line.split() for line in lines[1:]]
    assert len(rows) == 13
    assert [rows[0], rows[1], rows[3]] == ROWS
    assert rows[4][:4] == ["12_3", "1e-3", "3", "RUNNING"]
    assert rows[5][:3] == ["12_4", "1e-4", "x" * 37 + "..."]
    assert rows[12][:4] == ["12_11", "1e-11", "11", "PENDING"]
    assert "jobs with a higher priority" in lines[-1]
    alone = launcher("status", "12_4").out
    assert f"  point      lr=1e-4 seed={'x' * 50}\n" in alone, "of one task all of it"
    assert "  rerun      as u_2020\n" in launcher("status", "12_2").out


def test_the_points_in_the_list(launcher: Launcher, sweep: Run, launched: Any) -> None:
    launched("other", "13", "2020-03-04T10:00:00+00:00")
    plain = launcher("list").out.splitlines()
    assert [line.split("  ")[0] for line in plain] == ["RUN", "other_20200304-100000", sweep.name]
    assert " 2 ok, 1 failed, 1 running, 8 pending " in plain[2]
    named = [line.split() for line in launcher("list", "12").out.splitlines()]
    assert named[1][0] == sweep.name
    assert [named[2], named[3], named[5]] == ROWS
    assert len(named) == 15
    with_points = launcher("list", "--points").out.splitlines()
    assert [line.split() for line in with_points[3:]] == named[2:]
    assert launcher("list", "nothing").code == 2


def test_the_points_for_programs(launcher: Launcher, sweep: Run) -> None:
    listed = json.loads(launcher("list", "--json").out)["runs"][0]
    for told in (json.loads(launcher("status", "12", "--json").out), listed):
        assert [task["id"] for task in told["tasks"]] == [f"12_{n}" for n in range(12)]
        assert told["tasks"][9]["point"] == {"lr": "1e-9", "seed": "9"}
        assert told["tasks"][9]["log"] == sweep.log.replace(".log", "_9.log")
        assert [task["run_again_as"] for task in told["tasks"][1:4]] == [None, "u_2020", None]
        assert (told["state"], told["points"]) == ("8 PENDING, 2 COMPLETED, 1 FAILED, 1 RUNNING", sweep.points)


def test_explain_names_the_point(launcher: Launcher, sweep: Run) -> None:
    assert "task 12_2 (lr=1e-2 seed=2)\n" in launcher("explain", "12").out
    assert task_points.read_points(sweep).label("12_[4-11%4]") == "12_[4-11%4]"


def test_a_pending_array_is_one_row(launcher: Launcher, launched: Any, slurm: Any) -> None:
    """Without points its tasks do not differ."""
    run = launched(spec={"array": "0-9"})
    slurm(queued(run, "RUNNING", task="_0") + queued(run, "PENDING", reason="Priority", task="_[1-9]"))
    rows = [line.split()[:2] for line in launcher("status").out.splitlines()]
    assert rows[1:] == [["TASK", "STATE"], ["12_0", "RUNNING"], ["12_[1-9]", "PENDING"]]
    assert "9 pending" in launcher("list").out


def test_no_control_sequence_of_a_point_reaches_the_terminal(launcher: Launcher, launched: Any, slurm: Any) -> None:
    run: Run = launched(array="0-1", points=str(Path("p.csv").resolve()))
    points_table.write(run, ("a", "b"), [("\x1b[31m", "\t"), ("x", "")])
    slurm(queued(run, "PENDING", task="_[0-1]"))
    for verb in ("status", "list"):
        out = launcher(verb, "12").out
        assert "\x1b" not in out
        assert r"\x1b[31m" in out


def test_links_of_a_chain_that_were_not_needed(launcher: Launcher, launched: Any, slurm: Any) -> None:
    """They differ from canceled ones; the chain has the code of the last link that ran."""
    run = launched(spec={"chain": 5, "chain-while": "notok"}, array="0-4%1")
    over = "[slurm-launch] 2020-03-04T09:01:00+0000 chain over link=1 this link ended ok\n"
    Path(run.log.replace(".log", "_1.log")).write_text(over)
    rest = queued(run, "CANCELLED", reason="JobArrayTaskLimit").replace("n[1-2]", "")
    slurm(queued(run, "FAILED", "3:0", task="_0") + queued(run, "COMPLETED", task="_1") + rest)
    row = launcher("list").out.splitlines()[1]
    lines = launcher("status", "12").out.splitlines()
    assert lines[0] == f"{run.name}: 1 ok, 1 failed, 3 not needed"
    words = "was not needed: the chain ended before it"
    assert lines[-1].split() == ["12_[2-4]", "CANCELLED", "-", "-", "-", *words.split()]
    assert "  1 ok, 1 failed, 3 not needed  " in row
    assert row.split()[-3] == "0", row


@pytest.mark.parametrize(
    ("states", "note"),
    [
        ({"_0": "FAILED", "_1": "COMPLETED", "_2": "COMPLETED"}, "the other 2 did not fail\n"),
        ({"_0": "FAILED", "_1": "COMPLETED", "_[2-3]": "PENDING"}, "the other 3 did not fail so far\n"),
        ({f"_{n}": "FAILED" for n in range(5, 27)}, "not shown: 2 more tasks; name one, such as 12_25\n"),
        ({f"_{n}": "COMPLETED" for n in range(21)}, "not shown: 1 more task; name one, such as 12_20\n"),
    ],
)
def test_what_explain_leaves_out(
    launcher: Launcher, launched: Any, slurm: Any, states: dict[str, str], note: str
) -> None:
    run = launched(array="0-3" if "_[2-3]" in states else ",".join(task[1:] for task in states))
    slurm("".join(queued(run, state, task=task) for task, state in states.items()))
    assert launcher("explain", "12").err == f"note: {note}"


def test_explain_does_not_count_unknown_tasks_as_successful(launcher: Launcher, launched: Any, slurm: Any) -> None:
    run = launched(array="0-1")
    slurm(queued(run, "FAILED", "3:0", task="_0"))
    assert "not shown: 1 more task; name one, such as 12_1\n" in launcher("explain", "12").err


def test_what_the_kernel_killed(launcher: Launcher, launched: Any, slurm: Any) -> None:
    run = launched()
    kill = "[slurm-launch] 2020-03-04T09:00:20+0000 out-of-memory node={} limit=2000M killed=ray::hog kills={}\n"
    phases = PHASES.format("2020-03-04T09:00")
    Path(run.log).write_text(phases + kill.format("n2", 1) + kill.format("n1", 1) + kill.format("n2", 3))
    slurm(queued(run, "RUNNING"))
    shown = [line for line in launcher("status").out.splitlines() if line.startswith("  memory ")]
    assert shown == [
        "  memory     out of memory on n1 (limit 2000M): ray::hog killed",
        "  memory     out of memory on n2 (limit 2000M): ray::hog killed, 3 times",
    ]
    told = json.loads(launcher("status", "--json").out)
    assert told["memory_kills"] == told["tasks"][0]["memory_kills"]
    assert told["memory_kills"][1] == {"node": "n2", "limit_mb": 2000, "killed": "ray::hog", "kills": 3, "step": None}
    Path(run.log).write_text(phases + "".join(kill.format(f"n{number}", 1) for number in range(9)))
    shown = [line for line in launcher("status").out.splitlines() if line.startswith("  memory ")]
    assert len(shown) == report.MEMORY_LINES + 1
    assert shown[-1] == "  memory     and 4 more, in the log"


def test_a_run_without_kills(launcher: Launcher, launched: Any, slurm: Any) -> None:
    slurm(queued(launched(), "PENDING"))
    assert json.loads(launcher("status", "--json").out)["memory_kills"] == []
