"""Submission, against a stand-in sbatch: a real program in PATH."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import slurm_launch
from slurm_launch import LaunchSpec, Run
from slurm_launch.errors import LaunchError, SlurmUnavailable, SubmitRefused, UsageError
from slurm_launch.launch import submit as submission
from slurm_launch.process import Result
from slurm_launch.runs import files as run_files
from slurm_launch.runs import record as records

ROOT = Path(__file__).parents[2]
WHEN = datetime(2026, 11, 16, 9, 5, 7)
NAME = "t_20261116-090507"
SPEC = LaunchSpec(exp_name="t", command="echo hi")

SBATCH = """#!{python} -ES
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
answer = json.load(open(here + "/answer.json"))
call = dict(argv=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd(), pid=os.getpid(), script=open(sys.argv[-1]).read())
with open(f"{{here}}/call-{{os.getpid()}}.tmp", "w") as file:
    json.dump(call, file)
os.rename(file.name, file.name[:-4] + ".json")
if answer["hang"]:
    time.sleep(600)
sys.stderr.write(answer["stderr"])
sys.stdout.write(answer["stdout"].replace("PID", str(os.getpid())))
sys.exit(answer["code"])
"""


class Site:
    """A directory to work in and a PATH with the stand-in sbatch."""

    def __init__(self, base: Path) -> None:
        self.bin = base / "bin"
        self.work = base / "work"
        self.bin.mkdir(parents=True)
        self.work.mkdir()
        sbatch = self.bin / "sbatch"
        sbatch.write_text(SBATCH.format(python=sys.executable))
        sbatch.chmod(0o755)
        self.env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(base / "home"), "PWD": "/somewhere"}
        self.told: list[str] = []
        self.answers()

    def answers(self, stdout: str = "12\n", stderr: str = "", code: int = 0, hang: bool = False) -> None:
        text = json.dumps({"stdout": stdout, "stderr": stderr, "code": code, "hang": hang})
        (self.bin / "answer.json").write_text(text)

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self.bin.glob("call-*.json")]

    def submit(self, spec: LaunchSpec = SPEC, env: Mapping[str, str] | None = None, **more: Any) -> Run:
        given: dict[str, Any] = {"when": WHEN, "cwd": self.work, "notify": self.told.append, "timeout": 60} | more
        return submission.submit(spec, env=self.env | dict(env or {}), **given)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.work)) for path in self.work.rglob("*"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


# Submission


def test_a_submission(site: Site) -> None:
    run = site.submit()
    (call,) = site.calls
    assert call["argv"] == ["--parsable", f"{site.work}/{NAME}.sh"]
    assert call["cwd"] == call["env"]["PWD"] == str(site.work)
    assert call["script"] == Path(run.script).read_text()
    assert site.files() == [f"{NAME}.json", f"{NAME}.sh"]
    assert stat.S_IMODE(os.stat(run.script).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(run.record).st_mode) == 0o600
    assert records.read(run.record) == run
    assert (run.job_id, run.cluster, run.name, run.exp_name) == ("12", None, NAME, "t")
    assert (run.run_dir, run.submit_dir) == (str(site.work), str(site.work))
    assert (run.script, run.log) == (f"{site.work}/{NAME}.sh", f"{site.work}/{NAME}.log")
    assert run.spec == {"exp-name": "t", "command": "echo hi"}
    assert run.created == WHEN.astimezone(timezone.utc).isoformat()
    assert run.submitted is not None
    assert run.submitted.endswith("+00:00")
    assert run.version == slurm_launch.__version__
    assert site.told == []


def test_the_record_is_there_before_the_job_is(site: Site) -> None:
    """A job that sbatch created while the launcher was killed must be found again."""
    seen = []

    def runner(argv: Sequence[str], **_: Any) -> Result:
        seen.append(records.read(site.work / f"{NAME}.json"))
        return Result(tuple(argv), 0, "12\n", "")

    site.submit(runner=runner)
    assert seen[0].job_id is None
    assert seen[0].submitted is None


def test_hold(site: Site) -> None:
    run = site.submit(hold=True)
    assert site.calls[0]["argv"] == ["--parsable", "--hold", run.script] == run.argv[1:]


@pytest.mark.parametrize(
    ("stdout", "job"),
    [
        ("Welcome!\nquota 80 %\n12\n", ("12", None)),
        ("12;west\n", ("12", "west")),
        ("Submitted batch job 12 on cluster west\n", ("12", "west")),
    ],
)
def test_what_sbatch_may_print(site: Site, stdout: str, job: tuple[str, str | None]) -> None:
    site.answers(stdout)
    run = site.submit()
    assert (run.job_id, run.cluster) == job
    assert records.read(run.record) == run


def test_removed_variables_are_reported(site: Site) -> None:
    env = {
        "SBATCH_PARTITION": "short",
        "SLURM_JOB_ID": "77",
        "SLURM_CPU_BIND": "quiet",
        "SRUN_DEBUG": "3",
        "PMIX_RANK": "0",
        "RAY_ADDRESS": "10.0.0.1:6379",
        "SLURM_CONF": "/etc/other.conf",
        "MINE": "kept",
    }
    site.submit(env=env)
    got = site.calls[0]["env"]
    assert {name for name in got if name in env} == {"SLURM_CONF", "MINE"}
    assert [line.split()[0] for line in site.told] == ["RAY_ADDRESS", "SBATCH_PARTITION='short'", "submitting"]
    assert "use --partition" in site.told[1]
    assert "job 77" in site.told[-1]


def test_warnings_of_sbatch_are_passed_on(site: Site) -> None:
    site.answers(stderr="sbatch: warning: lua: you should use --account\n")
    site.submit()
    assert site.told == ["sbatch: warning: lua: you should use --account"]


def test_two_in_the_same_second(site: Site) -> None:
    assert [site.submit().name for _ in range(3)] == [NAME, f"{NAME}-2", f"{NAME}-3"]


# Where the files go


def output_line(text: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith("#SBATCH --output")]
    return line


def test_a_missing_run_dir_is_made_and_stays_relative_in_the_script(site: Site) -> None:
    run = site.submit(SPEC.model_copy(update={"run_dir": "a/b"}))
    assert run.run_dir == f"{site.work}/a/b"
    assert run.log == f"{site.work}/a/b/{NAME}.log"
    assert f"a/b/{NAME}.log" in output_line(site.calls[0]["script"])
    assert str(site.work) not in site.calls[0]["script"]


@pytest.mark.parametrize("more", [{"chdir": "/elsewhere"}, {"sbatch": {"chdir": "/elsewhere"}}])
def test_with_chdir_the_log_is_absolute(site: Site, more: dict[str, Any]) -> None:
    run = site.submit(SPEC.model_copy(update={"run_dir": "runs", **more}))
    assert run.log in output_line(site.calls[0]["script"])


def test_home_in_a_run_dir_from_yaml(site: Site) -> None:
    run = site.submit(SPEC.model_copy(update={"run_dir": "~/runs"}))
    assert run.run_dir == f"{site.env['HOME']}/runs"
    assert run.log in output_line(site.calls[0]["script"])


def test_a_run_dir_that_looks_like_a_flag(site: Site) -> None:
    site.submit(SPEC.model_copy(update={"run_dir": "-x"}))
    assert site.calls[0]["argv"][-1] == f"{site.work}/-x/{NAME}.sh"


# Failures


def test_refused(site: Site) -> None:
    words = (
        "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition"
    )
    site.answers("", words + "\n", 1)
    with pytest.raises(SubmitRefused) as caught:
        site.submit()
    error = caught.value
    assert error.exit_code == 3
    assert words in str(error)
    assert error.script == f"{site.work}/{NAME}.sh"
    assert error.script in str(error)
    assert "sinfo" in str(error.hint)
    assert site.files() == [f"{NAME}.sh"]  # the script is kept; no job, no record


def test_refused_without_a_message(site: Site) -> None:
    site.answers("", "", 255)
    with pytest.raises(SubmitRefused, match="exit code 255") as caught:
        site.submit()
    assert "sbatch " in str(caught.value.hint)


def test_controller_down_is_not_a_refusal(site: Site) -> None:
    site.answers(
        "", "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n", 1
    )
    with pytest.raises(SlurmUnavailable, match="Unable to contact slurm controller") as caught:
        site.submit()
    assert (caught.value.exit_code, caught.value.script) == (4, f"{site.work}/{NAME}.sh")
    assert site.files() == [f"{NAME}.sh"]


def test_an_answer_that_was_lost_leaves_the_record(site: Site) -> None:
    site.answers("", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n", 1)
    with pytest.raises(SlurmUnavailable) as caught:
        site.submit()
    assert "squeue --me --name=t" in str(caught.value.hint)
    assert records.read(site.work / f"{NAME}.json").job_id is None


def test_success_without_a_job_id(site: Site) -> None:
    site.answers("your wish is my command\n")
    with pytest.raises(LaunchError, match="printed no job ID:\nyour wish is my command") as caught:
        site.submit()
    assert (caught.value.exit_code, caught.value.script) == (4, f"{site.work}/{NAME}.sh")
    assert "squeue" in str(caught.value.hint)
    assert site.files() == [f"{NAME}.json", f"{NAME}.sh"]


def test_no_sbatch_leaves_nothing(site: Site) -> None:
    with pytest.raises(SlurmUnavailable, match="sbatch is not in PATH") as caught:
        site.submit(SPEC.model_copy(update={"run_dir": "a/b"}), env={"PATH": str(site.work)})
    assert (caught.value.exit_code, caught.value.script) == (4, None)
    assert site.files() == []


def test_sbatch_hangs(site: Site) -> None:
    site.answers(hang=True)
    with pytest.raises(SlurmUnavailable, match="sbatch did not answer within 2 s") as caught:
        site.submit(timeout=2)
    assert (caught.value.exit_code, caught.value.script) == (4, f"{site.work}/{NAME}.sh")
    assert f"{NAME}.sh" in str(caught.value.at)
    assert "squeue --me --name=t" in str(caught.value.hint)
    assert site.files() == [f"{NAME}.json", f"{NAME}.sh"]
    for call in site.calls:
        assert not Path(f"/proc/{call['pid']}").exists()


@pytest.mark.parametrize("run_dir", ["file", "file/below", "/proc/nothing"])
def test_an_impossible_run_dir(site: Site, run_dir: str) -> None:
    (site.work / "file").touch()
    with pytest.raises(UsageError, match="cannot write") as caught:
        site.submit(SPEC.model_copy(update={"run_dir": run_dir}))
    assert caught.value.exit_code == 2
    assert site.files() == ["file"]
    assert site.calls == []


@pytest.fixture
def full_disk(site: Site) -> Iterator[Path]:
    """A disk of 8 kB: a script does not fit."""
    disk = site.work / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a tiny disk")
    (disk / "filler").write_bytes(b"x" * 8192)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(site: Site, full_disk: Path) -> None:
    with pytest.raises(UsageError, match="No space left on device") as caught:
        site.submit(SPEC.model_copy(update={"run_dir": "disk"}))
    assert caught.value.exit_code == 2
    assert site.files() == ["disk", "disk/filler"]
    assert site.calls == []


def test_no_room_for_the_record_is_found_before_sbatch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(run: Run) -> None:
        raise UsageError("cannot write: No space left on device", at=run.record)

    monkeypatch.setattr(records, "write", full)
    with pytest.raises(UsageError):
        site.submit()
    assert site.files() == []
    assert site.calls == []


def test_a_record_that_cannot_be_updated_does_not_lose_the_job(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(run: Run) -> None:
        raise UsageError("cannot write: No space left on device", at=run.record)

    monkeypatch.setattr(records, "update", full)
    assert site.submit().job_id == "12"
    assert "job 12 is submitted" in site.told[0]


# Ctrl-C


@pytest.mark.parametrize("stage", ["slurm_launch.launch.job.render_job", "slurm_launch.runs.record.write", "os.fsync"])
def test_ctrl_c_before_sbatch_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        site.submit(SPEC.model_copy(update={"run_dir": "a/b"}))
    assert site.files() == []
    assert site.calls == []


DRIVER = """
import sys
from slurm_launch import LaunchSpec, submit
run = submit(LaunchSpec(exp_name="t", command="echo hi"), notify=lambda line: print(line, file=sys.stderr))
print(run.job_id, run.name)
"""


def driver(site: Site) -> subprocess.Popen[str]:
    env = os.environ | site.env | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    argv = [sys.executable, "-c", DRIVER]
    return subprocess.Popen(
        argv, cwd=site.work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def test_ctrl_c_while_sbatch_works(site: Site) -> None:
    site.answers(hang=True)
    ours = driver(site)
    deadline = time.monotonic() + 60
    while not site.calls:
        assert time.monotonic() < deadline, ours.communicate()
        time.sleep(0.01)
    ours.send_signal(signal.SIGINT)
    out, err = ours.communicate(timeout=60)
    assert ours.returncode in (-signal.SIGINT, 130)
    assert out == ""
    assert "interrupted while sbatch was running" in err
    assert "squeue --me --name=t" in err
    script, record = sorted(site.work.glob("*.sh")), sorted(site.work.glob("*.json"))
    assert str(script[0]) in err
    assert records.read(record[0]).job_id is None
    assert not Path(f"/proc/{site.calls[0]['pid']}").exists()


def test_ctrl_c_after_the_answer_names_the_job(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        site.submit()
    assert "job 12 is submitted" in site.told[-1]
    assert site.files() == [f"{NAME}.json", f"{NAME}.sh"]


def test_twenty_at_once(site: Site) -> None:
    site.answers("PID\n")
    drivers = [driver(site) for _ in range(20)]
    said = [one.communicate(timeout=120) for one in drivers]
    assert [one.returncode for one in drivers] == [0] * 20, said
    found = [records.read(path) for path in site.work.glob("*.json")]
    assert len(found) == 20
    assert sorted(f"{run.job_id} {run.name}" for run in found) == sorted(out.strip() for out, _ in said)
    calls = {str(call["pid"]): call for call in site.calls}
    for run in found:
        assert run.job_id is not None
        assert calls[run.job_id]["argv"][-1] == run.script
        assert calls[run.job_id]["script"] == Path(run.script).read_text()
        assert f"{run.name}.log" in output_line(Path(run.script).read_text())
    assert len(site.files()) == 40


# Dry run and API


def test_a_plan_touches_nothing(site: Site) -> None:
    (site.work / f"{NAME}.log").touch()
    spec = SPEC.model_copy(update={"run_dir": "."})
    env = site.env | {"SBATCH_QOS": "high"}
    plan = submission.plan(spec, env=env, cwd=site.work, when=WHEN, hold=True)
    assert plan.name == f"{NAME}-2"
    assert plan.argv == ["sbatch", "--parsable", "--hold", f"{site.work}/{NAME}-2.sh"]
    assert "use --qos" in plan.notes[0]
    assert site.files() == [f"{NAME}.log"]
    assert site.calls == []
    run = submission.submit(spec, env=env, cwd=site.work, when=WHEN, hold=True, notify=site.told.append)
    assert plan.text == Path(run.script).read_text()
    assert (plan.name, plan.script, plan.log, plan.record) == (run.name, run.script, run.log, run.record)
    assert (plan.run_dir, plan.submit_dir, plan.argv) == (run.run_dir, run.submit_dir, run.argv)


def test_a_plan_where_there_is_nothing(site: Site) -> None:
    plan = submission.plan(SPEC.model_copy(update={"run_dir": "no/such"}), env={}, cwd=site.work, when=WHEN)
    assert plan.run_dir == f"{site.work}/no/such"
    assert site.files() == []


def test_render_fills_in_the_clock_and_the_name() -> None:
    text = submission.render(SPEC, when=WHEN)
    assert text == submission.render(SPEC, when=WHEN, name=NAME, run_dir=".")
    assert run_files.run_name("t", WHEN) + ".log" in output_line(text)
    assert submission.render(SPEC).startswith("#!")


def test_the_api_is_functions_even_after_the_modules_are_loaded() -> None:
    submission.render(SPEC, when=WHEN)
    code = (
        "import slurm_launch, importlib\n"
        "for name in ('rendering.render', 'launch.submit'): importlib.import_module(f'slurm_launch.{name}')\n"
        "from slurm_launch import render, submit, LaunchSpec\n"
        "assert callable(render) and callable(submit), render\n"
        "assert slurm_launch.render(LaunchSpec(exp_name='t', command='true')).startswith('#!')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_dir_lists_the_api_before_it_is_imported() -> None:
    code = (
        "import sys, slurm_launch\n"
        "assert 'slurm_launch.launch.submit' not in sys.modules\n"
        "assert {'LaunchSpec', 'render', 'submit', 'submit_all', 'rehearse'} <= set(slurm_launch.__all__)\n"
        "assert set(slurm_launch.__all__) <= set(dir(slurm_launch)), dir(slurm_launch)\n"
        "assert all(getattr(slurm_launch, name) for name in slurm_launch.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
