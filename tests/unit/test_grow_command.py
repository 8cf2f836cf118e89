"""Growing: which runs can grow, with which options, and what the log of such a job shows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.control import grow, running_job
from slurm_launch.errors import LaunchError, UsageError, WrongMoment
from slurm_launch.launch import grow_job
from slurm_launch.launch import submit as submission
from slurm_launch.launch.job import plan_job
from slurm_launch.process import Result
from slurm_launch.rendering.templates import shell_word
from slurm_launch.runs import record as records
from slurm_launch.runs import search
from slurm_launch.runs.record import Run
from slurm_launch.slurm.client import SlurmClient
from slurm_launch.spec.script_header import JoinTarget
from tests.script_parts import functions
from tests.unit.queue_answers import GONE, NO_SACCT, queued
from tests.unit.some_run import END, START, some_run

Launcher = Callable[..., Any]  # tests/unit/conftest.py
SPEC = {
    "exp-name": "t",
    "command": "python train.py",
    "num-nodes": 4,
    "node": "n[1-4]",
    "cpus-per-task": 8,
    "time": "1-0",
    "venv": "/venv",
    "min-nodes": 2,
    "ray-head-arg": ["--num-cpus=0"],
    "after-ok": ["11"],
    "sbatch": {"gres": "nvme:1"},
}


def slurm_client(*lines: str) -> SlurmClient:
    def answer(argv: Any, **_: Any) -> Result:
        squeue = Result((), 0, "".join(lines), "") if lines else GONE
        return {"squeue": squeue, "sacct": NO_SACCT}.get(argv[0], GONE)

    return SlurmClient({}, answer)


@pytest.fixture(autouse=True)
def alice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose runs they are, by the answers of Slurm."""
    monkeypatch.setattr(records, "user_name", lambda: "alice")


def running(tmp_path: Path, log: str = START, **other: Any) -> Run:
    run = some_run(tmp_path, **{"spec": SPEC, **other})
    Path(run.log).write_text(log)
    return run


def test_a_run_that_runs(tmp_path: Path) -> None:
    run = running(tmp_path)
    main = grow.find_main_job(run, None, slurm_client(queued("12", "RUNNING")))
    assert (main.joins, main.started) == (JoinTarget("12", run.log), True)


def test_one_that_waits_is_waited_for(tmp_path: Path) -> None:
    run = running(tmp_path, "")
    main = grow.find_main_job(run, None, slurm_client(queued("12", "PENDING")))
    assert not main.started
    spec = LaunchSpec(exp_name="t-grow", command=":", after_ok=("7",))
    assert grow_job.with_dependency(main, spec).after == ("12",)


def test_one_of_several_components(tmp_path: Path) -> None:
    """Without its number, srun finds nothing to do in such a job."""
    run = running(tmp_path)
    main = grow.find_main_job(run, None, slurm_client(queued("12+0", "RUNNING"), queued("12+1", "RUNNING")))
    assert main.joins == JoinTarget("12", run.log, heterogeneous=True)


def test_a_task_of_an_array_has_a_number_of_its_own(tmp_path: Path) -> None:
    run = running(tmp_path, array="0-1")
    Path(f"{tmp_path}/t_1.log").write_text(START.replace("job=12", "job=15"))
    ask = slurm_client(queued("12_0", "COMPLETED"), queued("12_1", "RUNNING"))
    assert grow.find_main_job(run, "12_1", ask).joins == JoinTarget("15", f"{tmp_path}/t_1.log")
    with pytest.raises(WrongMoment):
        grow.find_main_job(run, "12_0", ask)


@pytest.mark.parametrize(
    ("log", "lines"),
    [
        (START + END.format(outcome="ok", code=0), (queued("12", "COMPLETED"),)),
        (START + "[slurm-launch] 2026-11-16T09:06:00+0000 stopping\n", (queued("12", "RUNNING"),)),
        (START, ()),
    ],
)
def test_one_that_is_over(tmp_path: Path, log: str, lines: tuple[str, ...]) -> None:
    with pytest.raises(LaunchError) as error:
        grow.find_main_job(running(tmp_path, log), None, slurm_client(*lines))
    assert error.value.exit_code == 7


def test_somebody_elses(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="belongs to bob according to its record"):
        grow.find_main_job(some_run(tmp_path, user="bob"), None, slurm_client(queued("12", "RUNNING")))


GROWING = START.replace(" dir=/tmp/r12-ab", " dir=/tmp/r12-ab main=9")


def test_one_that_grows_another(tmp_path: Path) -> None:
    run, ask = running(tmp_path, GROWING), slurm_client(queued("12", "RUNNING"))
    with pytest.raises(UsageError, match="join that of job 9"):
        grow.find_main_job(run, None, ask)
    with pytest.raises(WrongMoment, match="runs no command"):
        running_job.find_running(run, None, ask)


def test_its_words(tmp_path: Path) -> None:
    from slurm_launch.status import lookup

    waiting = "[slurm-launch] 2026-11-16T09:05:08+0000 waiting main=9\n"
    for log, words in (
        (waiting, "running: waiting for the cluster of job 9"),
        (waiting + GROWING.splitlines(keepends=True)[0], "running: its nodes are joining the cluster of job 9"),
        (waiting + GROWING, "running: its nodes are part of the cluster of job 9"),
    ):
        (task,) = lookup.look_up(running(tmp_path, log), slurm_client(queued("12", "RUNNING")))
        assert task.in_words == words


def test_the_new_nodes_are_like_those_of_the_run(tmp_path: Path) -> None:
    own = grow.inherited_spec(running(tmp_path)).own
    assert own == {
        "exp-name": "t-grow",
        "command": grow_job.NO_COMMAND,
        "signal": "B:USR1@60",
        "cpus-per-task": 8,
        "time": "1-0",
        "venv": "/venv",
        "sbatch": {"gres": "nvme:1"},
    }
    assert LaunchSpec.model_validate(own).nodes == 1


@pytest.mark.parametrize("flag", ["--command=x", "--idle", "--array=0-1", "--min-nodes=2", "--template=x", "--grow=2"])
def test_what_means_nothing_to_them(launcher: Launcher, flag: str) -> None:
    answer = launcher("grow", flag)
    assert answer.code == 2
    assert f"at: flag {flag.partition('=')[0]}" in answer.err.replace("--idle", "--command") or "--idle" in flag


def test_a_command_after_the_dashes(launcher: Launcher) -> None:
    answer = launcher("grow", "t", "--", "python", "x.py")
    assert (answer.code, "runs no command" in answer.err) == (2, True)


def test_the_script(tmp_path: Path) -> None:
    text = plan_job(
        LaunchSpec(exp_name="t-grow", command=":", num_nodes=2), joins=JoinTarget("12", "/home/me/it's.log")
    ).text
    assert '\nslaunch_main_job=12\nslaunch_main_log="/home/me/it\'s.log"\n' in text
    assert "# spec: " not in text, "it cannot be made again without the job that it joins"
    other = plan_job(LaunchSpec(exp_name="t", command="true", num_nodes=2)).text
    for name in ("end_as_asked", "finish", "log_end", "environment_failed"):
        assert functions(text, name) == functions(other, name), "it ends as all jobs do"
    assert len(re.findall(r"\*Node\*\)\n *finish 72 node-lost", text)) == 1


def test_its_script_is_no_origin(launcher: Launcher) -> None:
    text = plan_job(LaunchSpec(exp_name="t-grow", command=":"), joins=JoinTarget("12", "/home/me/t.log")).text
    run = some_run(Path.cwd(), "t-grow", job_id="13", user=records.user_name())
    Path(run.script).write_text(text)
    records.write(run)
    for words in (["resubmit", run.record], ["render", "--from", run.script]):
        answer = launcher(*words)
        assert answer.code == 2
        assert "this script adds nodes to the cluster of job 12" in answer.err
        assert "hint: for another such job, use `slurm-launch grow 12`\n" in answer.err


def test_the_second_job_of_a_launch(tmp_path: Path) -> None:
    """Both are submitted; if the second is refused, the first is still reported."""
    answers = [Result((), 0, "12\n", ""), Result((), 0, "13\n", "")]
    calls: list[list[str]] = []
    told: list[str] = []

    def sbatch(argv: Any, **_: Any) -> Result:
        calls.append(list(argv))
        return answers[len(calls) - 1]

    spec = LaunchSpec(exp_name="t", command="true", grow=2, cpus_per_task=3)
    run = submission.submit(spec, cwd=tmp_path, env=dict(os.environ), runner=sbatch, notify=told.append)
    assert (run.job_id, run.grow) == ("12", "13")
    assert records.read(run.record).grow == "13"
    second = search.find("13", os.environ, tmp_path)
    script = Path(second.script).read_text()
    assert second.exp_name == "t-grow"
    assert "#SBATCH --nodes=2\n" in script
    assert "#SBATCH --cpus-per-task=3\n" in script
    assert "#SBATCH --dependency=after:12\n" in script
    assert f"\nslaunch_main_job=12\nslaunch_main_log={shell_word(run.log)}\n" in script
    assert told == [f"job 13 will grow its cluster by 2 nodes: {second.script}"]
    answers += [Result((), 0, "14\n", ""), Result((), 1, "", "sbatch: error: no\n")]
    run = submission.submit(spec, cwd=tmp_path, env=dict(os.environ), runner=sbatch, notify=told.append)
    assert (run.job_id, run.grow) == ("14", None)
    assert told[1].startswith("job 14 is submitted, but not the job that grows its cluster: sbatch refused the job")


def test_the_second_job_of_one_with_gpus_in_its_groups(tmp_path: Path) -> None:
    scripts: list[str] = []

    def sbatch(argv: Any, **_: Any) -> Result:
        scripts.append(Path(argv[-1]).read_text())
        return Result((), 0, f"{11 + len(scripts)}\n", "")

    spec = LaunchSpec(exp_name="t", command="true", grow=1, gpu_type="a100", worker_group=("n=1,gpus=2",))
    assert submission.submit(spec, cwd=tmp_path, env=dict(os.environ), runner=sbatch, notify=print).job_id == "12"
    assert ["a100" in script for script in scripts] == [True, False]
    assert "\nslaunch_main_step=(--jobid=12 --het-group=0)\n" in scripts[1]


def test_a_dry_run_tells_of_both(launcher: Launcher) -> None:
    answer = launcher("submit", "--exp-name", "t", "--command", "true", "--grow", "2", "--dry-run")
    assert "a second job, t-grow, would then be submitted to add 2 nodes to its cluster\n" in answer.err


def test_a_second_job_that_cannot_be_is_told_before_the_first_is_there(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grow_job, "TIME_WARNING", "nonsense")
    for flags in (["--dry-run"], []):
        answer = launcher("submit", "--exp-name", "t", "--command", "true", "--grow", "1", *flags)
        assert answer.code == 2
        assert answer.err.startswith("error: --signal")
        assert "at: the second job of --grow" in answer.err
        assert not [path.name for path in Path.cwd().iterdir()]


@pytest.mark.parametrize("many", [{"array": "0-1"}, {"chain": 2}, {"sweep": {"a": "1,2"}}])
def test_not_for_many_clusters(many: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="--grow is for a job with one cluster"):
        LaunchSpec(exp_name="t", command="true", grow=2, **many)


@pytest.fixture
def main_run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """One that runs, here, as far as `grow` can see."""
    run = running(Path.cwd())
    records.write(run)
    monkeypatch.setattr(
        grow, "find_main_job", lambda found, *_: grow_job.MainJob(found, JoinTarget("12", found.log), started=True)
    )
    return run


OTHER_JOBS = {
    "SLAUNCH_ARRAY": "0-3",
    "SLAUNCH_SIGNAL_BEFORE": "100",
    "SLAUNCH_REQUEUE": "yes",
    "SLAUNCH_GROW": "2",
    "SLAUNCH_HEAD_CPUS": "2",
    "SLAUNCH_COMMAND": "python other.py",
}


def test_variables_for_other_jobs(launcher: Launcher, main_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = launcher("grow", main_run.record, "--dry-run", "--num-nodes", "2", "--qos", "fast")
    assert plain.code == 0, plain.err
    for name, value in {**OTHER_JOBS, "SLAUNCH_QOS": "fast"}.items():
        monkeypatch.setenv(name, value)
    answer = launcher("grow", main_run.record, "--dry-run", "--num-nodes", "2")
    assert directives(answer.out) == directives(plain.out)
    assert "#SBATCH --signal=B:USR1@60" in directives(plain.out)
    for name in OTHER_JOBS:
        assert f"does not apply and is ignored: env {name}\n" in answer.err


def test_files_for_other_jobs(launcher: Launcher, main_run: Run) -> None:
    Path("p.yaml").write_text("array: 0-3\ncommand: python other.py\nqos: fast\n")
    profiles = Path.home() / ".config/slurm-launch/profiles"
    profiles.mkdir(parents=True)
    (profiles / "site.yaml").write_text("requeue: true\npartitions:\n  big: {chain: 3}\n")
    flags = ("--config", "p.yaml", "--profile", "site", "--partition", "big")
    answer = launcher("grow", main_run.record, "--dry-run", *flags)
    assert answer.code == 0, answer.err
    lines = directives(answer.out)
    assert "#SBATCH --qos=fast" in lines
    assert not [line for line in lines if "array" in line or line == "#SBATCH --requeue"]
    assert "--array does not apply and is ignored: " in answer.err


def directives(script: str) -> list[str]:
    keep = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    return [line for line in keep if not line.startswith(("#SBATCH --output", "#SBATCH --error"))]
