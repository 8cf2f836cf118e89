"""Dependencies: names of runs become job IDs, once, and an impossible dependency is refused before submission."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, render
from slurm_launch.errors import UsageError
from slurm_launch.launch import dependencies
from slurm_launch.launch import submit as submission
from slurm_launch.runs import index
from slurm_launch.runs import record as records
from slurm_launch.slurm.sbatch import REHEARSAL_CLUSTER
from slurm_launch.status.report import status_rows
from tests.unit.some_run import some_run

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "x", "--command", "true")


def made(name: str, **other: Any) -> records.Run:
    """A run in the index."""
    run = some_run(Path.cwd(), name, **other)
    records.write(run)
    index.add(run, os.environ)
    return run


def line(**options: Any) -> str | None:
    text = render(LaunchSpec(exp_name="x", command="true", **options))
    found = [line for line in text.splitlines() if line.startswith("#SBATCH --dependency")]
    return found[0].partition("=")[2] if found else None


def test_names_and_ids_become_one_line() -> None:
    made("prepare_20261116-090507", job_id="12")
    made("array_20261116-090508", job_id="13", spec={"array": "0-9"})
    assert line(after_ok=("prepare", "99"), after_any=("13_4",)) == "afterok:12:99,afterany:13_4"
    assert line(after=("prepare_20261116-090507.sh",)) == "after:12"
    assert line(after_notok=("13_[2-3]",), singleton=True) == "afternotok:13_2:13_3,singleton"
    assert line(after_ok=("array_20261116-090508_7.log", "13", "13")) == "afterok:13_7:13"
    assert line(singleton=True) == "singleton"
    assert line() is None


def test_an_explicit_dependency_comes_first() -> None:
    assert line(dependency="after:1+5", after_ok=("2",)) == "after:1+5,afterok:2"


def test_the_header_keeps_the_names_of_runs() -> None:
    made("prepare_20261116-090507")
    spec = LaunchSpec(exp_name="x", command="true", after_ok=("prepare",))
    assert '"after-ok": ["prepare"]' in render(spec)
    plan = submission.plan(spec)
    assert '"after-ok": ["prepare"]' in plan.text
    assert "#SBATCH --dependency=afterok:12\n" in plan.text


def test_a_number_is_a_job_not_the_beginning_of_a_name() -> None:
    made("12_20261116-090507", job_id="77")
    assert line(after_ok=("12",)) == "afterok:12"
    assert line(after_ok=("12_2026",)) == "afterok:12_2026"
    assert line(after_ok=("12_20261116-090507",)) == "afterok:77"


@pytest.mark.parametrize(
    ("flags", "reads"),
    [
        ((), 0),
        (("--after-ok", "12", "--no-sbatch", "dependency"), 0),
        (("--after-ok", "prepare"), 1),
        (("--after-ok", "12", "--after-any", "13", "--after-any", "prepare", "--after", "99"), 1),
    ],
)
def test_the_index_is_read_only_for_dependencies_and_once(
    flags: tuple[str, ...], reads: int, launcher: Launcher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made("prepare_20261116-090507", job_id="12")
    made("other_20261116-090507", job_id="13")
    calls, entries = [], index.entries

    def counted(*arguments: Any) -> list[index.Entry]:
        calls.append(arguments)
        return entries(*arguments)

    monkeypatch.setattr(index, "entries", counted)
    for name in ("scontrol", "sbatch"):
        (tmp_path / name).write_text("#!/bin/sh\necho 14\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = launcher("submit", *GOOD, *flags, "--parsable")
    assert (answer.code, answer.out) == (0, "14\n"), answer.err
    assert len(calls) == reads


@pytest.mark.parametrize("verb", ["submit", "render", "check"])
def test_an_unknown_run(verb: str, launcher: Launcher) -> None:
    answer = launcher(verb, *GOOD, "--after-ok", "nosuch")
    assert answer.code == 2
    assert answer.err.startswith("error: no run has the name or job ID 'nosuch'")
    assert "at: --after-ok nosuch" in answer.err
    assert "slurm-launch list" in answer.err
    assert list(Path.cwd().iterdir()) == []


def refused(name: str = "after_ok", argument: str = "t_", **options: Any) -> UsageError:
    spec = LaunchSpec(exp_name="x", command="true", **{name: (argument,)}, **options)
    with pytest.raises(UsageError) as error:
        dependencies.job_ids(spec, os.environ)
    return error.value


def test_a_name_that_two_runs_have() -> None:
    made("t_20261116-090507")
    made("t_20261116-090508", job_id="13")
    error = refused()
    assert "matches 2 runs" in error.message
    assert error.at == "--after-ok t_"


def test_a_run_that_was_never_submitted() -> None:
    made("t_20261116-090507", job_id=None)
    error = refused()
    assert "has no job ID" in error.message
    assert "squeue --me" in str(error.hint)


def test_runs_of_other_clusters() -> None:
    made("t_20261116-090507", cluster="big", spec={"sbatch": {"clusters": "big"}})
    for clusters in ({}, {"clusters": "small"}):
        error = refused(sbatch=clusters)
        assert "is on the cluster big" in error.message
        assert error.hint == "submit to the same cluster: --sbatch clusters=big"
    assert line(after_ok=("t_",), sbatch={"clusters": "big,small"}) == "afterok:12"


def test_in_a_federation_every_cluster_knows_the_id() -> None:
    made("t_20261116-090507", cluster="big")
    assert line(after_ok=("t_",)) == "afterok:12"


def test_a_rehearsed_run_is_refused() -> None:
    made("t_20261116-090507", cluster=REHEARSAL_CLUSTER)
    assert "was a rehearsal" in refused().message


def test_a_chain_that_may_stop_early_neither_completes_nor_fails() -> None:
    made("t_20261116-090507", spec={"chain": 5, "chain-while": "notok"})
    for name in ("after_ok", "after_notok"):
        assert "--after-any" in str(refused(name).hint)
    assert line(after_any=("t_",)) == "afterany:12"
    assert line(after_ok=("12_0",)) == "afterok:12_0"


def test_what_cannot_be_joined(launcher: Launcher) -> None:
    either = launcher("render", *GOOD, "--dependency", "afterok:1?afterany:2", "--after-ok", "3")
    assert either.code == 2
    assert "--dependency afterok:1?afterany:2 cannot be combined with --after-ok" in either.err
    by_hand = launcher("render", *GOOD, "--sbatch", "dependency=afterok:1", "--singleton")
    assert by_hand.code == 2
    assert "--singleton and --sbatch dependency are mutually exclusive" in by_hand.err


def test_status_shows_the_dependencies_of_a_run() -> None:
    from datetime import datetime, timezone

    from slurm_launch.status.task import Task

    run = some_run(Path.cwd(), spec={"after-ok": ["train", "13"], "singleton": True})
    task = Task("12", "PENDING", "squeue", run.log, reason="Dependency")
    rows = dict(status_rows(run, task, datetime.now(timezone.utc)))
    assert rows["waits for"] == "--after-ok train 13, --singleton"
    assert "waits for" not in dict(status_rows(replace(run, spec={}), task, datetime.now(timezone.utc)))


def test_without_the_directive_no_name_is_looked_up() -> None:
    assert line(after_ok=("nosuch",), no_sbatch=("dependency",)) is None


@pytest.mark.parametrize("flag", ["--after", "--after-ok", "--after-any", "--after-notok", "--worker-group"])
def test_an_empty_flag_is_an_unset_variable(launcher: Launcher, flag: str) -> None:
    answer = launcher("render", "--exp-name", "x", "--command", "true", flag, "")
    assert (answer.code, answer.out) == (2, "")
    assert f"{flag} is empty" in answer.err


@pytest.mark.parametrize(
    ("says", "words", "code"),
    [
        ("slurm_load_jobs error: Invalid job id specified", "neither Slurm nor a record has job 99999", 2),
        ("slurm_load_jobs error: Unable to contact slurm controller", "sbatch refused", 3),
    ],
)
def test_an_unknown_job_id(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, words: str, code: int
) -> None:
    """Slurm 22.05 would not wait for it; if Slurm does not answer, sbatch reports that."""
    for name, text in (("scontrol", f"echo '{says}' >&2"), ("sbatch", "echo no >&2")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = launcher("--exp-name", "x", "--command", "true", "--after-ok", "99999")
    assert (answer.code, words in answer.err) == (code, True), answer.err
