"""Why a run failed: every rule against real logs (tests/unit/logs), the script's words, and odd files."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.cli.verbs.explain import show, tasks_to_explain
from slurm_launch.explain import job_files
from slurm_launch.explain.evidence import Evidence, JobFacts
from slurm_launch.explain.explain import Explanation, explain, explain_task
from slurm_launch.explain.job_files import JobFiles, parse_log, read_files
from slurm_launch.explain.rules import RULES
from slurm_launch.runs import index, log_phases
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import plain_words
from slurm_launch.slurm.jobs import JobState
from slurm_launch.status import saved_outcomes
from slurm_launch.status.task import Task
from tests.unit.conftest import Launcher
from tests.unit.some_run import some_run

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests/unit/logs"
CASES = sorted(path.name for path in LOGS.iterdir() if path.is_dir())
TEMPLATES = "\n".join(path.read_text() for path in sorted((ROOT / "templates").rglob("*")) if path.is_file())
# Uncertain causes: the explanation says so and shows the lines.
UNSURE = {
    "command-failed",
    "command-killed",
    "script-killed",
    "temp-dir-on-network",
    "unknown",
    "worker-died",
}


def with_log(text: str) -> JobFiles:
    return JobFiles(parse_log(text))


def facts_of(case: str, **more: Any) -> JobFacts:
    """The facts of a job whose files are in tests/unit/logs."""
    said = json.loads((LOGS / case / "state.json").read_text())
    code, signal = (int(number) for number in said["ExitCode"].split(":"))
    reason = None if said["Reason"] == "None" else said["Reason"]
    job = JobState("1", said["JobState"], code, signal, reason)
    files = read_files(str(LOGS / case / "log"), str(LOGS / case / "ray"))
    return replace(JobFacts(job.state, job.reason, job.code, job.signal, files), **more)


@pytest.mark.parametrize("case", CASES)
def test_a_real_log_is_explained(case: str) -> None:
    facts = facts_of(case)
    why = explain(facts)
    assert why.cause == case.partition(".")[0], why
    assert why.sure == (case not in UNSURE), why
    assert bool(why.evidence) == bool(facts.files.log.lines), why
    for line in why.evidence:  # the location is right
        where, number, text = line.split(":", 2)
        path = LOGS / case / ("log" if where == "log" else f"ray/{where}")
        there = re.sub(r"\x1b\[\d+m", "", path.read_text().split("\n")[int(number) - 1])
        assert re.sub(r"^ \[\S+\] ", "", text)[:60].strip() in there
    assert not re.search(r"[{}]|None", why.sentence.replace("{'CPU': 1.0, 'GPU': 1.0}", "")), why.sentence
    assert why.advice


def test_every_rule_has_a_real_log() -> None:
    assert [rule.cause for rule in RULES if rule.cause not in CASES] == []
    assert len({rule.cause for rule in RULES}) == len(RULES)


def test_rays_logs_of_a_previous_attempt_are_left_out(tmp_path: Path) -> None:
    at = "[slurm-launch] 2026-11-16T09:0"
    attempts = [
        f"{at}{n}:00+0000 starting nodes=1 head=n1 job=12\n{at}{n}:50+0000 end outcome=x code=1" for n in (1, 2)
    ]
    for name, minute in (("n1", 1), ("n2", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "raylet.err").write_text("words\n")
        time = datetime(2026, 11, 16, 9, minute, 50, tzinfo=timezone.utc).timestamp()
        os.utime(tmp_path / name / "raylet.err", (time, time))
    log = tmp_path / "log"
    log.write_text("\n".join(attempts))
    assert list(read_files(str(log), str(tmp_path)).ray_logs) == ["n2/raylet.err"]
    log.write_text(attempts[0])
    assert len(read_files(str(log), str(tmp_path)).ray_logs) == 2


def test_the_log_of_another_job_is_the_commands_output() -> None:
    at = "[slurm-launch] 2026-11-16T09:05:08+0000"
    other = [f"{at} starting nodes=1 head=n9 job=99", f"{at} end outcome=nodes-missing code=71 job=99 total=3s"]
    ours = [f"{at} starting nodes=1 head=n1 job=12", f"{at} command x", *other]
    log = "\n".join([*ours, f"{at} end outcome=command-failed code=1 job=12 total=9s"])
    evidence = Evidence(JobFacts(files=with_log(log)))
    assert evidence.outcome == "command-failed"
    assert [line.text for line in evidence.output] == other
    assert Evidence(JobFacts(files=with_log("\n".join(ours)))).end_line is None


def in_new_form(log: str) -> str:
    """A recorded log with the lines as the script writes them since version 0.2.0."""
    log = re.sub(r"(\[slurm-launch\] \d{4}-\S+) (\S+) said: ", r"\1 [\2] ", log)
    return log.replace("ended from outside (", "terminated externally (")


@pytest.mark.parametrize("case", CASES)
def test_both_forms_of_the_scripts_lines_are_understood(case: str) -> None:
    path = LOGS / case / "log"
    old = path.read_text(errors="replace") if path.exists() else ""
    new = in_new_form(old)
    before = explain(facts_of(case))
    facts = facts_of(case)
    after = explain(replace(facts, files=replace(facts.files, log=parse_log(new))))
    assert (after.cause, after.sure, after.node) == (before.cause, before.sure, before.node)
    assert after.sentence == before.sentence.replace("ended from outside (", "terminated externally (")
    assert len(after.evidence) == len(before.evidence)


def test_the_new_form_is_in_the_recorded_logs() -> None:
    """Otherwise the test above would compare nothing."""
    logs = [path.read_text(errors="replace") for path in LOGS.glob("*/log")]
    assert sum(" said: " in log for log in logs) >= 5
    assert sum("ended from outside (" in log for log in logs) >= 2
    assert sum(bool(re.search(r"\+0000 \[\w+\] ", in_new_form(log))) for log in logs) >= 5


@pytest.mark.parametrize("form", ["n2 said: ", "[n2] "])
def test_a_line_of_a_node_is_shown_with_its_name(form: str) -> None:
    end = HEAD.format(3, 'end outcome=node-failed code=71 phase=bring-up node=n2 total=2s cause="x" hint="y"')
    facts = JobFacts("FAILED", code=71, files=with_log(BEGIN + HEAD.format(2, f"{form}Address already in use") + end))
    assert Evidence(facts).node_output["n2"][0].text == "Address already in use"
    assert explain(facts).evidence == ("log:3: [n2] Address already in use",)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("python-error", "the command failed with KeyError: 'name' (/home/alice/proj/model.py:5 in build)"),
        (
            "python-error.task",
            "the command failed with ZeroDivisionError: integer division or modulo by zero"
            " (/home/alice/proj/task.py:6 in work)",
        ),
        (
            "module-missing.task",
            "the command needs a Python module that is not installed: torch_not_here"
            " (/home/alice/proj/lazy.py:6 in work)",
        ),
        ("out-of-memory", "the job ran out of memory on n1, and Slurm killed it"),
        (
            "out-of-memory.ray-task",
            "the job ran out of memory on n2: the kernel killed ray::task at Slurm's limit of 1200 MB",
        ),
        (
            "out-of-memory.raylet",
            "the job ran out of memory on n2: the kernel killed ray::task at Slurm's limit of 1200 MB, 3 times",
        ),
        ("out-of-memory.slurmstepd", "the job ran out of memory: the kernel killed a process"),
        (
            "not-failed.out-of-memory",
            "it has not failed: the command exited with code 0;"
            " but it ran out of memory on n1 (limit 1200M): python killed",
        ),
        ("no-space", "there is no space left on n2"),
        (
            "version-mismatch",
            "the nodes have different versions of Ray or Python:"
            " Ray 2.59.1 and Python 3.11.7 against 2.60.0 and 3.11.7",
        ),
        (
            "version-mismatch.old-ray",
            "the nodes have different versions of Ray or Python: n2 has Ray 2.40.0, the head 2.60.0",
        ),
        ("token-mismatch", "a token other than the job's was used on n6"),
        ("head-not-reached", "n2 cannot reach the head at 10.88.0.11:22772: Network is unreachable"),
        ("never-enough", "the command waits for resources that no node has: {'CPU': 1.0, 'GPU': 1.0}"),
        ("option-refused.ray", "unknown option: --no-such-option"),
        ("environment", "the environment could not be loaded: source setup.sh"),
        ("start-timeout", "missing after 10 s: n4 (1 of 2 nodes joined)"),
        ("temp-dir-on-network", "the temporary directory /mnt/net is on a network file system"),
        ("command-not-found.second-life", "there is no program no-such-program"),
        ("command-killed.crash", "the command crashed with SIGSEGV"),
        ("cancelled", "the job was ended from outside (SIGTERM)"),
        ("cancelled.while-waiting", "the job was canceled"),
        ("waiting", "still pending: held by the user; `scontrol release` releases it"),
    ],
)
def test_the_sentence_names_what_is_wrong(case: str, sentence: str) -> None:
    assert explain(facts_of(case)).sentence == sentence


def test_the_advice_names_what_was_requested() -> None:
    for spec, words in (
        ({"mem": "4G"}, "--mem (it was 4G on each node);"),
        ({"mem": "4G", "head-mem": "1G"}, "--mem (it was 4G);"),
        ({"mem-per-cpu": "500M"}, "--mem (--mem-per-cpu was 500M);"),
        ({"sbatch": {"mem-per-gpu": "8G"}}, "--mem (--mem-per-gpu was 8G);"),
        ({"sbatch": ["x"]}, "--mem;"),
    ):
        assert words in explain(facts_of("out-of-memory", spec=spec)).advice
    assert explain(facts_of("time-limit", spec={"time": "1:00"})).advice == "request more with --time (it was 1:00)"


# The script's words


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.words], ids=lambda rule: rule.cause)
def test_a_rule_knows_the_scripts_words(rule: Any) -> None:
    """The rule searches for them or repeats them: a change of the script must reach the table."""
    for words in rule.words:
        assert words in TEMPLATES


ENDINGS = "finish|give_up|set_outcome"
CODES = r"(?:7\d|80)"


def endings() -> list[tuple[str, str, str, str]]:
    """Every call that ends the script with a cause, in the templates: code, outcome, cause, hint."""
    text = r"""(?:"((?:[^"\\]|\\.|\\\n)*)"|'([^']*)')"""
    space = r"(?: \\\n)?\s+"
    found = re.findall(rf"\b(?:{ENDINGS}) ({CODES}) ([a-z-]+){space}{text}(?:{space}{text})?", TEMPLATES)
    return [
        (code, outcome, (one or two).replace("\\\n", ""), (three or four).replace("\\\n", ""))
        for code, outcome, one, two, three, four in found
    ]


def test_the_endings_are_found() -> None:
    """Otherwise the test below would pass with none."""
    assert len(endings()) >= 15
    outcomes = re.findall(rf"\b(?:{ENDINGS}) {CODES} ([a-z-]+)", TEMPLATES)
    assert sorted(outcome for _, outcome, *_ in endings()) == sorted(outcomes), "each has a cause"


@pytest.mark.parametrize("ending", endings(), ids=lambda ending: ending[1])
def test_every_ending_of_the_script_is_explained(ending: tuple[str, str, str, str]) -> None:
    """A failure that the script reports itself is certain, and its node is named."""
    code, outcome, cause, hint = ending
    cause, hint = (re.sub(r"\$\(\(.*|\$\{[^}]*\}|\$\w+|\$\(.*", "x", text).replace('"', "'") for text in (cause, hint))
    end = f'end outcome={outcome} code={code} phase=bring-up node=n7 total=9s cause="{cause}" hint="{hint}"'
    why = explain(
        JobFacts(
            "FAILED",
            "NonZeroExitCode",
            int(code),
            files=with_log(f"[slurm-launch] 2026-11-16T02:52:23+0000 {end}\n"),
        )
    )
    assert why.sure, why
    assert why.cause not in ("command-failed", "unknown")
    assert why.node == "n7"
    assert any(end in line for line in why.evidence), why


def test_slurms_words_are_those_of_status() -> None:
    sentences = {rule.cause: rule.sentence for rule in RULES}
    assert f"the job {plain_words.describe_end('DEADLINE')}" == sentences["deadline"]
    assert sentences["out-of-memory"].startswith(f"the job {plain_words.describe_end('OUT_OF_MEMORY')}")
    assert sentences["preempted"].startswith(f"the job {plain_words.describe_end('PREEMPTED')}")
    assert (plain_words.describe_pending_reason("DependencyNeverSatisfied") or "").startswith(sentences["dependency"])


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("OUT_OF_MEMORY", "out-of-memory"),
        ("NODE_FAIL", "node-failure"),
        ("BOOT_FAIL", "node-failure"),
        ("TIMEOUT", "time-limit"),
        ("PREEMPTED", "preempted"),
        ("DEADLINE", "deadline"),
        ("CANCELLED", "cancelled"),
        ("UNKNOWN", "unknown"),
        ("SOMETHING_NEW", "running"),
        ("RESV_DEL_HOLD", "waiting"),
        ("POWER_UP_NODE", "running"),
    ],
)
def test_slurms_state_alone(state: str, cause: str) -> None:
    """The log does not exist, or has no last line."""
    why = explain(JobFacts(state))
    assert (why.cause, why.sure) == (cause, cause != "unknown")


# Lines that are not the cause

HEAD = "[slurm-launch] 2026-11-16T02:52:2{}+0000 {}\n"
BEGIN = HEAD.format(1, "starting nodes=1 head=n1 address=10.0.0.1:1 auth=token job=1") + HEAD.format(2, "command x")
END = HEAD.format(3, "end outcome=command-failed code=1 phase=command bring-up=1s command=1s total=2s")


def failed(output: str, ray_logs: dict[str, str] | None = None) -> Explanation:
    files = JobFiles(parse_log(BEGIN + output + END), ray_logs or {})
    return explain(JobFacts("FAILED", "NonZeroExitCode", 1, files=files))


def test_what_was_caught_is_not_the_cause() -> None:
    """Errors in the middle of the output that the command recovered from."""
    caught = (
        "torch.OutOfMemoryError: CUDA out of memory. Trying a smaller batch\n"
        "warning: No space left on device, using another cache\n"
        "(autoscaler +3s) Error: No available node types can fulfill resource request {'GPU': 1.0}.\n"
    )
    last = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nKeyError: 1\n'
    assert failed(caught + last).cause == "python-error"
    assert failed(caught + "fine\n" * 50 + "exit\n").cause == "never-enough", "it may have waited to the end"


def test_rays_advice_about_memory_is_not_taken_for_a_fact() -> None:
    """`Some common causes include: (1) the process was killed by the OOM killer`."""
    why = explain(facts_of("worker-died"))
    assert any("OOM killer" in line.text for line, _ in facts_of("worker-died").files.log.lines)
    assert (why.cause, why.sure) == ("worker-died", False)


def test_a_kill_that_ray_survived() -> None:
    raylet = {"n1/logs/raylet.out": "[2026] (raylet) node_manager.cc:3199: Killing 1 worker(s), kill details: Memory"}
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n'
    assert failed(trace + "ValueError: 1\n", ray_logs=raylet).cause == "python-error"
    died = failed(trace + "ray.exceptions.ActorDiedError: The actor died\n", ray_logs=raylet)
    assert (died.cause, died.sure) == ("ray-out-of-memory", False)
    step = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.\n"
    assert failed(step).sure
    other = failed(step + trace + "ValueError: 1\n")
    assert (other.cause, other.sure) == ("out-of-memory", False), "both are shown"
    assert any("ValueError" in line for line in other.evidence)


# Processes that the kernel killed for memory

KILL = HEAD.format(2, "out-of-memory node=n2 limit=2000M killed=ray::hog kills=1")
CRASHED = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n{}\n'
DIED = CRASHED.format("ray.exceptions.WorkerCrashedError: The worker died unexpectedly")
STEPD = (  # of 22.05, of 24.11 and later, and of srun
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=4.1. Some of your processes may have been killed by"
    " the cgroup out-of-memory handler.\n",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=4.1. Some of the step tasks have been OOM Killed.\n",
    "slurmstepd-n2: error: Detected 3 oom_kill events in StepId=4.1. Some of the step tasks have been OOM Killed.\n",
    "srun: error: n2: task 0: Out Of Memory\n",
)


def test_the_evidence_of_a_killed_task() -> None:
    lines = explain(facts_of("out-of-memory.ray-task")).evidence
    parts = (
        " out-of-memory node=n2 ",
        "line 10",
        "WorkerCrashedError",
        "A worker died",
        " end outcome=command-failed ",
    )
    assert len(lines) == len(parts)
    assert all(part in line for part, line in zip(parts, lines, strict=True))


@pytest.mark.parametrize("line", STEPD)
def test_only_slurm_reports_the_kill(line: str) -> None:
    why = failed(DIED + line)
    assert (why.cause, why.sure) == ("out-of-memory", True)
    assert any(line.strip()[:40] in shown for shown in why.evidence)
    in_files = failed(DIED, ray_logs={"n2/srun.err": line})
    assert (in_files.cause, in_files.sure) == ("out-of-memory", True)
    assert in_files.evidence[0].startswith("n2/srun.err:1: ")
    assert failed(DIED).cause == "worker-died", "otherwise it is uncertain"
    end = "its srun has ended: " + line.strip()
    lost = HEAD.format(3, f'end outcome=node-lost code=72 phase=command node=n2 total=2s cause="n2: {end}" hint="y"')
    why = explain(JobFacts("FAILED", code=72, files=with_log(BEGIN + lost)))
    assert (why.cause, why.sure, why.node) == ("out-of-memory", True, "n2")


@pytest.mark.parametrize(
    ("error", "sure"),
    [
        ("ray.exceptions.ActorDiedError: The actor died", True),
        ("ray.exceptions.OutOfMemoryError: Task was killed", True),
        ("concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated", True),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", False),
        ("KeyError: 'name'", False),
    ],
)
def test_another_exception_after_a_kill(error: str, sure: bool) -> None:
    """Ray may have run the killed task again."""
    why = failed(KILL + CRASHED.format(error))
    assert (why.cause, why.sure, why.node) == ("out-of-memory", sure, "n2")
    assert any(error[:30] in line for line in why.evidence)


@pytest.mark.parametrize(
    ("end", "state", "cause"),
    [
        ("end outcome=time-limit code=74 phase=command", "TIMEOUT", "time-limit"),
        ("end outcome=ended-from-outside code=75 phase=command", "CANCELLED", "cancelled"),
        ("end outcome=node-lost code=72 phase=command node=n1", "FAILED", "ray-died"),
        ("end outcome=node-lost code=72 phase=command node=n2", "FAILED", "out-of-memory"),
        ("end outcome=out-of-memory code=80 phase=bring-up node=n2", "FAILED", "out-of-memory"),
        ("end outcome=ok code=0 phase=command", "OUT_OF_MEMORY", "not-failed"),
        ("stopping", "TIMEOUT", "time-limit"),
        ("stopping", "OUT_OF_MEMORY", "out-of-memory"),
        ("stopping", "RUNNING", "running"),
    ],
)
def test_a_kill_that_the_job_survived(end: str, state: str, cause: str) -> None:
    """The end has another reason: the script, or Slurm, says so."""
    why = explain(JobFacts(state, files=with_log(BEGIN + KILL + HEAD.format(3, end))))
    assert (why.cause, why.sure) == (cause, True), why
    if cause in ("running", "not-failed", "out-of-memory"):
        assert "ray::hog" in why.sentence
        assert any(" out-of-memory node=n2 " in line for line in why.evidence)


def test_slurm_calls_a_job_out_of_memory_whose_command_succeeded() -> None:
    end = HEAD.format(3, "end outcome=ok code=0 phase=command")
    why = explain(JobFacts("OUT_OF_MEMORY", files=with_log(BEGIN + STEPD[1] + end)))
    assert why.sentence == (
        "it has not failed: the command exited with code 0; but the kernel killed a process for memory;"
        " Slurm's state is OUT_OF_MEMORY"
    )


def test_a_process_whose_name_is_unknown() -> None:
    why = failed(KILL.replace("ray::hog", "unknown").replace("2000M", "0M") + DIED)
    assert why.sentence == "the job ran out of memory on n2: the kernel killed a process"


def test_the_scripts_own_words_about_a_kill() -> None:
    """The middle of a long log is not read."""
    cause = "out of memory on n2: the kernel killed its step at Slurm's limit"
    end = f'end outcome=out-of-memory code=80 phase=command node=n2 total=2s cause="{cause}" hint="y"'
    why = explain(JobFacts("FAILED", code=80, files=with_log(BEGIN + HEAD.format(3, end))))
    assert (why.sentence, why.node) == (f"the job ran {cause}", "n2")


def test_colours_and_prefixes_of_tasks() -> None:
    trace = (
        "\x1b[36m(work pid=1, ip=10.0.0.1)\x1b[0m Traceback (most recent call last):\n"
        '\x1b[36m(work pid=1, ip=10.0.0.1)\x1b[0m   File "/home/a/t.py", line 6, in work\n'
        "\x1b[36m(work pid=1, ip=10.0.0.1)\x1b[0m KeyError: 'x'\n"
    )
    why = failed(trace)
    assert why.sentence == "the command failed with KeyError: 'x' (/home/a/t.py:6 in work)"
    assert not any("\x1b" in line for line in why.evidence)


def test_a_syntax_error_has_no_traceback() -> None:
    why = failed('  File "/home/a/t.py", line 3\n    def :\n        ^\nSyntaxError: invalid syntax\n')
    assert why.sentence == "the command failed with SyntaxError: invalid syntax (/home/a/t.py:3)"


def test_an_exception_without_message_and_one_with_lines() -> None:
    trace = 'Traceback (most recent call last):\n  File "/home/a/t.py", line 3, in f\n    x()\n'
    assert failed(trace + "AssertionError\n").sentence == "the command failed with AssertionError (/home/a/t.py:3 in f)"
    assert (
        failed(trace + "my.Error: first\nsecond\n").sentence
        == "the command failed with Error: first (/home/a/t.py:3 in f)"
    )


# Odd files


def test_a_job_that_was_requeued_once() -> None:
    log = (LOGS / "not-requeued" / "log").read_text().replace("requeued 0 times", "requeued 1 time")
    assert "requeued 1 time (" in explain(facts_of("not-requeued", files=with_log(log))).sentence


def test_no_files_at_all() -> None:
    assert read_files("gone.log", "gone.ray") == JobFiles()


def test_a_log_that_is_not_a_regular_file() -> None:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    for path in ("pipe", "folder", "/dev/zero"):
        assert read_files(path, "x").log.lines == ()


def test_a_huge_log_is_read_in_part() -> None:
    with open("t.log", "wb") as file:
        file.write(BEGIN.encode())
        file.truncate(1 << 33)  # a hole of 8 GB
        file.seek(0, os.SEEK_END)
        file.write(b'\nTraceback (most recent call last):\n  File "t.py", line 1, in f\nKeyError: 1\n' + END.encode())
    files = read_files("t.log", "x")
    assert sum(len(line.text) for line, _ in files.log.lines) < 2 * job_files.LOG_BYTES
    assert not files.log.complete
    why = explain(JobFacts("FAILED", code=1, files=files))
    assert why.cause == "python-error"
    assert why.evidence[-1].startswith("log: "), "the number of the line is unknown"


def test_a_log_with_invalid_bytes() -> None:
    Path("t.log").write_bytes(BEGIN.encode() + b"\xff\xfe gr\xfc\xdfe\r\n\x1b]0;title\x07\n" + END.encode())
    why = explain(JobFacts("FAILED", code=1, files=read_files("t.log", "x")))
    assert why.cause == "command-failed"


def test_only_the_last_attempt_counts() -> None:
    killed = HEAD.format(1, "starting nodes=1 head=n1") + "slurmstepd: error: Detected 1 oom-kill event(s)\n"
    retried = HEAD.format(2, "starting a=1") + HEAD.format(3, "retry port 1") + HEAD.format(4, "starting a=2")
    ended = HEAD.format(5, 'end outcome=no-address code=78 phase=address node=n1 total=0s cause="x" hint="y"')
    third = "bash: line 3: setup.sh: No such file\n" + HEAD.format(
        6, 'end outcome=environment-failed code=73 phase=environment total=0s cause="failed: a" hint="b"'
    )
    for attempts, begin in ((killed, 0), (killed + retried, 2), (killed + retried + ended + third, 6)):
        lines = parse_log(attempts).lines
        assert lines[0][0].where == f"log:{begin + 1}"
        assert [line.text for line, _ in lines] == attempts.splitlines()[begin:]
    Path("t.log").write_text(killed + retried + ended + third)
    why = explain(JobFacts("FAILED", code=73, files=read_files("t.log", "x")))
    assert why.cause == "environment"
    assert why.evidence[0] == "log:7: bash: line 3: setup.sh: No such file"


def test_links_out_of_rays_logs_are_not_followed() -> None:
    Path("secret").mkdir()
    Path("secret/raylet.err").write_text("secret")
    Path("t.ray/n1/logs").mkdir(parents=True)
    Path("t.ray/n1/logs/raylet.out").write_text("told")
    Path("t.ray/n1/logs/raylet.err").symlink_to("../../../secret/raylet.err")
    Path("t.ray/n2").symlink_to("../secret")
    os.mkfifo("t.ray/n1/ray-start.log")
    assert read_files("x", "t.ray").ray_logs == {"n1/logs/raylet.out": "told"}


def test_thousands_of_files_and_long_ones() -> None:
    for number in range(40):
        folder = Path(f"t.ray/n{number}/logs")
        folder.mkdir(parents=True)
        for name in (*(f"worker-{i}.err" for i in range(30)), "raylet.out", "other.txt"):
            (folder / name).write_text("x")
        (folder.parent / "ray-start.log").write_text("x" * (job_files.RAY_LOG_BYTES * 2))
    Path("t.log").write_text(HEAD.format(1, 'end outcome=node-lost code=72 phase=command node=n33 cause="x" hint="y"'))
    read = read_files("t.log", "t.ray").ray_logs
    assert len(read) == job_files.RAY_LOGS
    assert next(iter(read)) == "n33/ray-start.log", "the node that failed comes first"
    assert {name for name in read if name.endswith("ray-start.log")} == {f"n{i}/ray-start.log" for i in range(40)}
    assert not any(name.endswith("other.txt") for name in read)
    assert all(len(text) < job_files.RAY_LOG_BYTES + 99 for text in read.values())


# The command line


def test_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(Explanation("x", "it broke", ("log:3: a \x1b[31mred\x07 line", "n1/raylet.err:1: b"), "mend it"))
    assert capsys.readouterr().out == (
        "it broke\nevidence:\n  log:3: a \\x1b[31mred\\x07 line\n  n1/raylet.err:1: b\nwhat to do: mend it\n"
    )
    show(Explanation("x", "it may be so", (), "look", sure=False))
    assert capsys.readouterr().out == "not sure: it may be so\nwhat to do: look\n"


def test_the_failed_tasks_of_an_array_are_explained() -> None:
    tasks = [Task(f"1_{i}", "FAILED" if i % 2 else "COMPLETED", "squeue", "x") for i in range(6)]
    assert [task.id for task in tasks_to_explain(tasks)] == ["1_1", "1_3", "1_5"]
    assert [task.id for task in tasks_to_explain(tasks[::2])] == ["1_0", "1_2", "1_4"]


@pytest.fixture
def record() -> Run:
    stem = str(Path.cwd() / "t_20260102-030405")
    Path(f"{stem}.log").write_text((LOGS / "head-not-reached/log").read_text())
    (Path(f"{stem}.ray") / "n2").mkdir(parents=True)
    (Path(f"{stem}.ray") / "n2/ray-start.log").write_text((LOGS / "head-not-reached/ray/n2/ray-start.log").read_text())
    at = "2026-01-02T03:04:05+00:00"
    run = some_run(Path.cwd(), "t_20260102-030405", created=at, submitted=at, user="me")
    records.write(run)
    index.add(run, os.environ)
    return run


def test_without_slurm_the_files_are_used(launcher: Launcher, record: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    answer = launcher("explain", "12")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0] == "n2 cannot reach the head at 10.88.0.11:22772: Network is unreachable"
    assert lines[1:3] == [
        "evidence:",
        "  n2/ray-start.log:1: n2 never reached 10.88.0.11:22772: Network is unreachable",
    ]
    assert lines[-2].startswith("what to do: choose with --interface")
    assert lines[-1] == f"log: {record.log}"
    assert "note: " in answer.err


def test_json(launcher: Launcher, record: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    answer = json.loads(launcher("explain", "--json").out)
    assert (answer["schema"], answer["name"]) == (1, record.name)
    (task,) = answer["tasks"]
    assert (task["id"], task["cause"], task["sure"], task["node"]) == ("12", "head-not-reached", True, "n2")
    assert task["evidence"]
    assert task["advice"]


@pytest.mark.parametrize(("saved", "times"), [(True, 1), (False, 2)])
def test_a_log_is_parsed_once(
    launcher: Launcher, record: Run, monkeypatch: pytest.MonkeyPatch, saved: bool, times: int
) -> None:
    """Only if nothing but the log shows how the job ended, its tail is parsed for that before."""
    monkeypatch.setenv("PATH", "/nowhere")
    Path(record.log).write_text(BEGIN + "ValueError: wrong\n" + END)
    if saved:
        entry = saved_outcomes.to_record(Task("12", "FAILED", "squeue", "", code=1))
        records.update(replace(record, tasks={"12": entry}))
    parsed: Counter[str] = Counter()
    parse = log_phases.phase_of

    def counted(line: str) -> log_phases.Phase | None:
        parsed[line] += "[slurm-launch]" in line
        return parse(line)

    monkeypatch.setattr(log_phases, "phase_of", counted)
    assert launcher("explain", "12").out.startswith("not sure: the command exited with code 1;")
    assert {parsed[line] for line in (BEGIN + END).splitlines()} == {times}


def test_a_running_job_while_slurmctld_is_unreachable(
    launcher: Launcher, record: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    Path(record.log).write_text(BEGIN + "hello\n")
    answer = launcher("explain", "12")
    assert "its final state is unknown" not in answer.out
    first = "not sure: cannot reach slurmctld, and the files do not show an end:"
    assert answer.out.splitlines()[0] == f"{first} the job may still be pending or running"


def test_an_array_while_slurmctld_is_unreachable(
    launcher: Launcher, record: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task has a log; a saved outcome needs none."""
    monkeypatch.setenv("PATH", "/nowhere")
    memory = saved_outcomes.to_record(Task("12_3", "TIMEOUT", "squeue", ""))
    records.update(replace(record, spec={"array": "0-5"}, tasks={"12_3": memory}))
    Path(record.log.replace(".log", "_1.log")).write_text(BEGIN + "ValueError: wrong\n" + END)
    Path(record.log.replace(".log", "_2.log")).write_text(BEGIN)
    told = json.loads(launcher("explain", "12", "--json").out)["tasks"]
    assert [(task["id"], task["state"], task["cause"]) for task in told] == [
        ("12_1", "FAILED", "command-failed"),
        ("12_3", "TIMEOUT", "time-limit"),
    ]
    assert "may still be pending or running" in launcher("explain", "12_2").out
    assert "may still be pending or running" in launcher("explain", "12_5").out


def test_a_job_that_slurm_launch_canceled(record: Run) -> None:
    Path(record.log).write_text(BEGIN + END.replace("command-failed code=1", "ended-from-outside code=75"))
    task = Task("12", "CANCELLED", "squeue", record.log)
    assert "sacct" in explain_task(record, task).advice
    why = explain_task(replace(record, cancelled={"12": "2026-01-02T03:04:05+00:00"}), task)
    assert (why.cause, why.sure) == ("cancelled", True)
    assert why.sentence.startswith("the job was canceled by `slurm-launch cancel`, at 2026-01-0")
    assert "sacct" not in why.advice
