"""`resubmit`: the selected tasks, the new run, and its record. sbatch and squeue are fakes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, render
from slurm_launch.control import resubmit, task_history
from slurm_launch.errors import UsageError
from slurm_launch.runs import points_table
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from tests.unit.conftest import Answer, Launcher
from tests.unit.some_run import some_run

LATER = "2099-11-16T09:05:08"  # a job that is older than the run is another one


class Slurm:
    """On the PATH: an sbatch that counts, and a squeue that knows the states that were set here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.states: dict[str, str] = {}
        self.scripts: dict[str, str] = {}  # of jobs
        sbatch = 'echo "$@" >>calls; n=$(($(cat next 2>/dev/null || echo 20) + 1)); echo $n >next; echo $n'
        for name, code in (("sbatch", sbatch), ("squeue", "echo squeue >>asked; cat queue"), ("sacct", "exit 1")):
            (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{code}\n")
            (folder / name).chmod(0o755)
        (folder / "scontrol").symlink_to(folder / "sacct")
        self.set({})

    def set(self, states: dict[str, str]) -> None:
        """12_3: FAILED"""
        self.states |= states
        lines = [
            f"{job}|{state}|0:0|None|0|2|n[1-2]|main|me|{LATER}|{LATER}|{LATER}|(null)|t|"
            for job, state in self.states.items()
            if state != "UNKNOWN"
        ]
        (self.folder / "queue").write_text("".join(line + "\n" for line in lines))

    @property
    def submitted(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    return Slurm(tmp_path / "bin")


@pytest.fixture
def launched(launcher: Launcher, slurm: Slurm) -> Callable[..., Run]:
    """Launch, in this directory; job 21 is the first."""

    def launch(*flags: str) -> Run:
        answer = launcher("--exp-name", "t", "--command", "python train.py", "--json", *flags)
        assert answer.code == 0, answer.err
        return records.read(json.loads(answer.out)["record"])

    return launch


def new_run(answer: Answer) -> Run:
    assert answer.code == 0, answer.err
    return records.read(json.loads(answer.out)["record"])


def test_resubmitting_a_run(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    old = launched("--mem", "4G", "--num-nodes", "3")
    before = {path: path.read_bytes() for path in Path.cwd().iterdir() if path.suffix == ".sh"}
    new = new_run(launcher("resubmit", "t", "--json", "--time", "2:00", "--hold"))
    assert (new.name, new.job_id, new.spec) == (f"{new.name}", "22", {**old.spec, "time": "2:00"})
    assert new.record != old.record
    assert slurm.submitted[-1].endswith(f"--hold {new.script}")
    assert all(path.read_bytes() == data for path, data in before.items()), "nothing of the old is touched"
    assert records.read(old.record).resubmitted == {"21": new.name}
    slurm.set({"21": "FAILED"})
    assert f"  rerun      as {new.name}\n" in launcher("status", "21").out
    assert json.loads(launcher("status", "21", "--json").out)["run_again_as"] == new.name
    assert launcher("resubmit", "21", "--parsable").out == "23\n"


def test_the_new_run_finds_the_checkpoints(launcher: Launcher, launched: Any) -> None:
    """Also the third run: the folder is the first one's."""
    old = launched("--requeue")
    folder = f"{old.run_dir}/{old.name}.run"
    assert "checkpoint-dir" not in new_run(launcher("resubmit", "21", "--json")).spec, "there is none yet"
    Path(folder).mkdir()
    answer = launcher("resubmit", "21", "--json")
    assert (
        f"the command finds its checkpoints in {folder}; use --checkpoint-dir DIR to start from scratch" in answer.err
    )
    second = new_run(answer)
    third = new_run(launcher("resubmit", str(second.job_id), "--json"))
    assert [run.spec["checkpoint-dir"] for run in (second, third)] == [folder, folder]
    assert new_run(launcher("resubmit", "21", "--json", "--checkpoint-dir", "new")).spec["checkpoint-dir"] == "new"


def test_a_dry_run_reports_the_growing_job(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    launched()
    answer = launcher("resubmit", "21", "--grow", "1", "--dry-run")
    assert "a second job, t-grow, would then be submitted to add 1 node to its cluster\n" in answer.err
    assert len(slurm.submitted) == 1


def test_only_if_it_failed(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    launched()
    for state, words in (("RUNNING", "not ended yet, so not resubmitted: 21"), ("COMPLETED", "has no failed tasks\n")):
        slurm.set({"21": state})
        answer = launcher("resubmit", "21", "--failed")
        assert (answer.code, answer.out, words in answer.err) == (0, "", True), answer
    assert len(slurm.submitted) == 1


def test_a_run_with_an_unknown_outcome(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    launched()
    answer = launcher("resubmit", "21", "--failed")
    assert (answer.code, "unknown outcome: 21" in answer.err) == (2, True), answer.err
    assert "leave out --failed" in answer.err
    assert launcher("resubmit", "21").code == 0


ENDS = {"21_0": "COMPLETED", "21_1": "TIMEOUT", "21_2": "RUNNING", "21_3": "NODE_FAIL", "21_[4-5%2]": "PENDING"}


def test_failed_tasks_of_an_array(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    old = launched("--array", "0-5%2")
    slurm.set(ENDS)
    answer = launcher("resubmit", "21", "--failed", "--json")
    new = new_run(answer)
    assert new.spec["array"] == "1,3%2", "the numbers are kept, and how many run at a time"
    assert "#SBATCH --array=1,3%2\n" in Path(new.script).read_text()
    assert "not ended yet, so not resubmitted: 21_[2,4-5]" in answer.err
    assert json.loads(answer.out)["again"] == ["21_1", "21_3"]
    assert records.read(old.record).resubmitted == {"21_[1,3]": new.name}
    assert len(slurm.submitted) == 2


def test_json_has_the_paths_of_the_logs(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    """Of an array, too, where `log` is no file."""
    flags = ("--exp-name", "u", "--command", "true", "--json")
    slurm.set({"21": "RUNNING", "22_[0-1]": "PENDING", "23_[0-1]": "PENDING"})
    alone = json.loads(launcher(*flags).out)
    assert (alone["logs"], json.loads(launcher("status", "21", "--json").out)["logs"]) == (alone["log"], alone["log"])
    many = json.loads(launcher(*flags, "--array", "0-1").out)
    pattern = f"{many['run_dir']}/{many['name']}_*.log"
    assert (many["logs"], json.loads(launcher("status", "22", "--json").out)["logs"]) == (pattern, pattern)
    again = json.loads(launcher("resubmit", "22", "--json").out)
    assert again["logs"] == again["log"].replace(".log", "_*.log")


def test_two_calls_in_a_row(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    """The first is still going; then it fails in a part; then that is run again, and ends well."""
    old = launched("--array", "0-5")
    slurm.set({f"21_{n}": "FAILED" if n in (1, 3) else "COMPLETED" for n in range(6)})
    first = new_run(launcher("resubmit", "21", "--failed", "--json"))
    slurm.set({"22_[1,3]": "PENDING"})
    answer = launcher("resubmit", "21", "--failed")
    assert (answer.code, answer.out, "nothing to resubmit" in answer.err) == (0, "", True), answer.err
    del slurm.states["22_[1,3]"]
    slurm.set({"22_1": "COMPLETED", "22_3": "CANCELLED"})
    second = new_run(launcher("resubmit", "21", "--failed", "--json"))
    assert second.spec["array"] == "3"
    assert records.read(old.record).resubmitted == {"21_[1,3]": first.name}
    assert records.read(first.record).resubmitted == {"22_3": second.name}, "where it was run last"
    slurm.set({"23_3": "RUNNING"})
    assert "not ended yet, so not resubmitted: 23_3" in launcher("resubmit", "22", "--failed").err, "whichever is named"
    slurm.set({"23_3": "COMPLETED"})
    told = json.loads(launcher("resubmit", "21", "--failed", "--json").out)
    assert told == {"schema": 1, "name": None, "job_id": None, "again_of": old.name, "again": []}
    assert len(slurm.submitted) == 3


def test_two_calls_in_a_row_by_name(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    """The runs that were made from one another are one story, until another run has the name, too."""
    launched("--array", "0-5")
    slurm.set({f"21_{n}": "FAILED" if n in (1, 3) else "COMPLETED" for n in range(6)})
    new_run(launcher("resubmit", "t", "--failed", "--json"))
    slurm.set({"22_1": "COMPLETED", "22_3": "FAILED"})
    assert new_run(launcher("resubmit", "t", "--failed", "--json")).spec["array"] == "3"
    slurm.set({"23_3": "COMPLETED"})
    assert "nothing to resubmit" in launcher("resubmit", "t", "--failed").err
    answer = launcher("resubmit", "t")
    assert (answer.code, "'t' matches 3 runs" in answer.err) == (2, True), answer.err
    launched("--array", "0-5")
    answer = launcher("resubmit", "t", "--failed")
    assert (answer.code, "'t' matches 4 runs" in answer.err) == (2, True), answer.err


def test_from_another_directory(
    launcher: Launcher, launched: Any, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs where it ran before; its files lie there too, unless --run-dir says otherwise, from here."""
    old = launched("--array", "0-2", "--run-dir", "runs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    new = new_run(launcher("resubmit", "21", "--json"))
    assert (new.submit_dir, new.run_dir) == (old.submit_dir, old.run_dir)
    other = new_run(launcher("resubmit", "21", "--json", "--run-dir", "here", "--tasks", "1"))
    assert (other.submit_dir, other.run_dir) == (old.submit_dir, f"{tmp_path}/elsewhere/here")
    slurm.set({"22_0": "COMPLETED", "22_1": "COMPLETED", "22_2": "COMPLETED", "23_1": "FAILED"})
    again = new_run(launcher("resubmit", "21", "--json", "--failed"))
    assert again.spec["array"] == "1", "the run in another directory is found"


def test_tasks_by_their_numbers(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    launched("--array", "0-9:3")
    assert new_run(launcher("resubmit", "21", "--tasks", "3,9,3", "--json")).spec["array"] == "3,9"
    assert new_run(launcher("resubmit", "21_6", "--json")).spec["array"] == "6"
    assert new_run(launcher("resubmit", "21", "--tasks", "0-9:3", "--json")).spec["array"] == "0-9:3", "all of them"
    assert not (slurm.folder / "asked").exists(), "without --failed Slurm is not asked"
    slurm.set({"22_3": "FAILED", "22_9": "COMPLETED", "23_6": "FAILED", "24_[0,3,6,9]": "UNKNOWN"})
    answer = launcher("resubmit", "21", "--failed")
    assert (answer.code, "unknown outcome: 24_[0,3,6,9]" in answer.err) == (2, True), answer.err
    assert "with --tasks" in answer.err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("21", "--tasks", "1"), "has no task 1", "its tasks are 0,3,6,9"),
        (("21", "--tasks", "9-0"), "9-0 is a descending range", "write 3,7"),
        (("21", "--tasks", ""), "a number is missing", "write 3,7"),
        (("21", "--tasks", "x"), "'x' is not a list of tasks", "write 3,7"),
        (("21_3", "--tasks", "3"), "21_3 and --tasks both select tasks", "use one"),
        (("21", "--array", "0-3"), "--array cannot be changed", "--tasks selects"),
        (("21", "--json", "--parsable"), "are mutually exclusive", "use one"),
        (("21", "stray"), "unexpected argument 'stray'", "--"),
        (("21", "--mem", "lots"), "--mem is not an amount of memory", "4G"),
        (("nothing",), "no run has the name or job ID 'nothing'", "list"),
    ],
)
def test_bad_input(
    launcher: Launcher, launched: Any, slurm: Slurm, words: tuple[str, ...], message: str, hint: str
) -> None:
    launched("--array", "0-9:3")
    answer = launcher("resubmit", *words)
    assert (answer.code, answer.out) == (2, ""), answer
    assert message in answer.err
    assert hint in answer.err.partition("hint:")[2]
    assert len(slurm.submitted) == 1


def test_tasks_of_a_run_that_is_not_an_array(launcher: Launcher, launched: Any) -> None:
    launched()
    answer = launcher("resubmit", "21", "--tasks", "0")
    assert (answer.code, "is not an array" in answer.err) == (2, True), answer.err


@pytest.mark.parametrize("words", [("21", "--failed"), ("21", "--tasks", "1"), ("21_2",)])
def test_links_of_a_chain_are_not_resubmitted_separately(
    launcher: Launcher, launched: Any, slurm: Slurm, words: tuple[str, ...]
) -> None:
    old = launched("--array", "0-2%1")
    records.update(replace(old, spec={**old.spec, "chain": 3}))
    answer = launcher("resubmit", *words)
    assert (answer.code, "is a chain" in answer.err) == (2, True), answer.err
    assert len(slurm.submitted) == 1


def test_a_script_that_was_edited(launcher: Launcher, launched: Any) -> None:
    old = launched("--array", "0-5")
    assert "without the edits" not in launcher("resubmit", "21", "--tasks", "2,4", "--dry-run").err
    with Path(old.script).open("a") as script:
        script.write("echo mine\n")
    answer = launcher("resubmit", "21", "--tasks", "2,4", "--json")
    assert f"without the edits. To submit the edited one: sbatch --array=2,4 {old.script}" in answer.err
    assert "echo mine" not in Path(new_run(answer).script).read_text()


def test_the_environment_cannot_change_the_tasks(
    launcher: Launcher, launched: Any, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched("--array", "0-5")
    for name, value in (("SLAUNCH_ARRAY", "7-9"), ("SLAUNCH_SWEEP", "lr=0..5")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            answer = launcher("resubmit", "21")
            assert (answer.code, "would not run the tasks of" in answer.err) == (2, True), answer.err
            assert f"at: env {name}" in answer.err
    assert len(slurm.submitted) == 1


def test_a_sweep_keeps_its_points(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    """Even if its file has changed or is missing."""
    Path("points.csv").write_text("lr,seed\n" + "".join(f"1e-{n},{n}\n" for n in range(6)))
    flags = ("--sweep-file", "points.csv", "--max-parallel", "2", "--command", "train {lr}")
    old = new_run(launcher("--exp-name", "t", "--json", *flags))
    assert old.array == "0-5%2"
    Path("points.csv").unlink()
    slurm.set({f"21_{n}": "FAILED" if n in (1, 4) else "COMPLETED" for n in range(6)})
    new = new_run(launcher("resubmit", "21", "--failed", "--json", "--max-parallel", "1"))
    assert (new.array, new.spec["points"]) == ("1,4%1", "1,4")
    assert points_table.read(new) == {n: {"lr": f"1e-{n}", "seed": str(n)} for n in (1, 4)}
    assert "\n22_4," not in Path(old.points or "").read_text()
    slurm.set({"22_1": "COMPLETED", "22_4": "FAILED"})
    last = new_run(launcher("resubmit", "22", "--points", "4", "--failed", "--json"))
    assert points_table.read(last) == {4: {"lr": "1e-4", "seed": "4"}}
    for words in (("--points", "0"), ("--points", "4", "--tasks", "4"), ("--sweep", "lr=1"), ("--sweep-file", "x.csv")):
        assert launcher("resubmit", "22", *words).code == 2, "a new run has only those that it was made for"
    again = new_run(launcher("resubmit", "22", "--json"))
    assert again.array == "1,4%1"


def test_a_long_list_is_shortened(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    launched("--array", "0-4000:2")
    for words in (("21", "--failed"), ("21", "--tasks", "1")):
        answer = launcher("resubmit", *words)
        assert (answer.code, len(answer.err) < 700) == (2, True), answer.err
    assert len(launcher("resubmit", "21", "--tasks", "0-4000:4").out) < 900


def test_a_dry_run(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    old = launched("--array", "0-5")
    answer = launcher("resubmit", "21", "--tasks", "2", "--dry-run")
    assert (answer.code, "#SBATCH --array=2\n" in answer.out) == (0, True)
    assert len(slurm.submitted) == 1
    assert records.read(old.record).resubmitted == {}


def test_a_custom_template_is_used_again(launcher: Launcher, launched: Any) -> None:
    Path("mine.j2").write_text("#!/bin/bash\n# spec: {{ embedded }}\n{{ directives }}\necho MINE\n")
    launched("--template", "mine.j2")
    assert "echo MINE" in Path(new_run(launcher("resubmit", "21", "--json")).script).read_text()


def test_sbatch_refuses(launcher: Launcher, launched: Any, slurm: Slurm) -> None:
    old = launched()
    (slurm.folder / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition' >&2; exit 1\n")
    answer = launcher("resubmit", "21", "--partition", "none")
    assert (answer.code, "invalid partition" in answer.err) == (3, True)
    assert records.read(old.record).resubmitted == {}, "nothing was run again"


def test_runs_of_others_and_missing_files(launcher: Launcher, launched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old = launched()
    monkeypatch.setattr("getpass.getuser", lambda: "you")
    answer = launcher("resubmit", "21")
    assert (answer.code, f"{old.name} belongs to me" in answer.err) == (2, True), answer.err
    assert f"render --from {old.script}" in answer.err
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    Path(old.script).rename("away")
    answer = launcher("resubmit", "21")
    assert (answer.code, "the run's script is missing" in answer.err) == (2, True), answer.err
    Path(old.script).write_text("#!/bin/bash\necho what\n")
    answer = launcher("resubmit", "21")
    assert (answer.code, "was not generated by slurm-launch" in answer.err) == (2, True), answer.err
    Path("away").rename(old.script)
    Path(old.record).unlink()
    answer = launcher("resubmit", old.script)
    assert (answer.code, "no record next to this file" in answer.err) == (2, True), answer.err


def test_the_directory_is_gone(launcher: Launcher, launched: Any, tmp_path: Path, monkeypatch: Any) -> None:
    old = launched()
    Path.cwd().rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    answer = launcher("resubmit", f"{old.name}.json")
    assert (answer.code, "the submit directory no longer exists" in answer.err) == (2, True), answer.err


# The chain


def chain(tmp_path: Path, *links: dict[str, str]) -> list[Run]:
    """Runs a, b, c ... with jobs 10, 11, 12 ... of an array of ten."""
    return [
        some_run(tmp_path, name, job_id=str(10 + place), array="0-9", resubmitted=link)
        for place, (name, link) in enumerate(zip("abcdef", links, strict=False))
    ]


def lasts(found: list[Run], numbers: list[int] | None = None) -> list[tuple[str, list[Any], str | None]]:
    by_name = {run.name: run for run in found}
    told = task_history.latest_runs(found[0], numbers or list(range(10)), lambda _, name: by_name.get(name))
    return [(last.run.name, last.numbers, last.lost) for last in told]


def test_the_run_in_which_a_task_ran_last(tmp_path: Path) -> None:
    found = chain(tmp_path, {"10_[1-3]": "b", "10_2": "c"}, {"11_3": "c"}, {})
    assert lasts(found) == [("a", [0, 4, 5, 6, 7, 8, 9], None), ("b", [1], None), ("c", [2, 3], None)]
    assert lasts(found, [2, 3]) == [("c", [2, 3], None)]


def test_a_broken_chain(tmp_path: Path) -> None:
    assert lasts(chain(tmp_path, {"10_1": "gone"}), [1, 2]) == [("a", [2], None), ("a", [1], "gone")]
    assert lasts(chain(tmp_path, {"10_1": "b"}, {"11_1": "a"}), [1]) == [("b", [1], "a")], "round and round"
    assert lasts(chain(tmp_path, {"10_1": "b"}, {"11_1": "c"}, {"12_1": "b"}), [1]) == [("c", [1], "b")]
    found = chain(tmp_path, {"10_[1-2]": "b"}, {})
    found[1] = replace(found[1], array="1")
    assert lasts(found, [1, 2]) == [("a", [1, 2], "b")], "it has no task 2"


def test_the_newest_note_counts(tmp_path: Path) -> None:
    (run,) = chain(tmp_path, {"10_[1-2]": "b"})
    records.write(run)
    new = replace(run, name="c")
    task_history.record_resubmission([task_history.LatestRun(run, [1])], new)
    task_history.record_resubmission([task_history.LatestRun(run, [1, 2])], replace(run, name="d"))
    after = records.read(run.record)
    assert after.resubmitted == {"10_1": "c", "10_[1-2]": "d"}
    assert after.resubmitted_as() == {"10_1": "d", "10_2": "d"}


@pytest.mark.parametrize("numbers", [[3], [3, 7], [0, 1, 2, 5], list(range(0, 40, 2))])
def test_numbers_as_sbatch_reads_them(numbers: list[int]) -> None:
    assert array_ids.array_numbers(resubmit.array_text(numbers)) == numbers


def test_an_old_record_without_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "alice")
    run = some_run(tmp_path)
    Path(run.script).write_text(render(LaunchSpec(exp_name="t", command="true")))
    assert resubmit.read_script(run).edited is False
    assert resubmit.read_script(replace(run, script_sha256="0" * 64)).edited is True
    with pytest.raises(UsageError, match="belongs to bob"):
        resubmit.read_script(replace(run, user="bob"))


def test_past_dependencies_are_dropped(launcher: Launcher, launched: Any) -> None:
    """Not even looked up: by now the name may be that of several runs, the new one's own forerunner among them."""
    launched()  # job 21
    waiting = launched("--exp-name", "t-eval", "--after-ok", "t", "--dependency", "after:9", "--singleton")
    assert "--dependency=after:9,afterok:21,singleton\n" in Path(waiting.script).read_text()
    answer = launcher("resubmit", waiting.name, "--json")
    again = new_run(answer)
    assert "#SBATCH --dependency=singleton\n" in Path(again.script).read_text()
    assert "after" not in json.dumps(again.spec)
    assert f"--dependency after:9, --after-ok t: used by {waiting.name}, not by the new run" in answer.err
    answer = launcher("resubmit", waiting.name, "--json", "--after-any", "21", "--no-singleton")
    assert "#SBATCH --dependency=afterany:21\n" in Path(new_run(answer).script).read_text()
    assert "waited for" not in answer.err
