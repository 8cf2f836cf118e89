"""The doctor: what the nodes report, and the job that checks them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.doctor import node_advice, probe_job
from slurm_launch.errors import SubmitRefused
from slurm_launch.rendering.render import render_script
from slurm_launch.rendering.templates import TEMPLATES
from tests.processes import run_bash
from tests.unit import doctor_answers as answers
from tests.unit.doctor_answers import Answer, FakeRunner, about, malformed, one, timed_out

Launcher = Callable[..., Any]  # tests/unit/conftest.py
SPEC = LaunchSpec(exp_name="doctor", command="true")
DOCTOR = str(TEMPLATES / "doctor.sh.j2")


def doctor_script(folder: Path, spec: LaunchSpec) -> Path:
    path = folder / "d.sh"
    path.write_text(render_script(spec, name="d", when=datetime(2026, 11, 16), run_dir=spec.run_dir))
    return path


class TestNodes:
    def assessed(self, *changes: tuple[str, str], expected: int = 2) -> node_advice.NodeReport:
        log = answers.JOB_LOG
        for before, after in changes:
            assert before in log, before
            log = log.replace(before, after)
        return node_advice.assess(log, expected)

    def test_two_good_nodes(self) -> None:
        report = self.assessed()
        assert {finding.status for finding in report.findings} == {"ok", "note"}
        assert one(report.findings, "nodes").text == "n1, n2 responded"
        first, second = about(report.findings, "network")
        assert first.text == "the nodes reach each other on eth0: n1 10.77.0.11, n2 10.77.0.12"
        assert (second.status, second.hint) == ("note", "--interface eth1 uses it")
        assert one(report.findings, "ray").text == "2.60.0, with token authentication, on all nodes"
        assert (report.interface, report.temp_dir, report.runtimes) == (None, None, ("charliecloud",))
        assert node_advice.is_complete(answers.JOB_LOG)

    @pytest.mark.parametrize(
        ("before", "after", "what", "status", "text"),
        [
            ("n2 run-dir seen", "n2 run-dir absent", "run-dir", "problem", "not visible on n2"),
            ("n1 run-dir seen writable", "n1 run-dir seen", "run-dir", "problem", "not writable on n1"),
            ("n2 ray 2.60.0", "n2 ray 2.55.0", "ray", "problem", "n1 2.60.0, n2 2.55.0"),
            ("doctor n2 ray 2.60.0\n", "", "ray", "problem", "n2 none"),
            ("n1 bash 5.2", "n1 bash 4.2", "bash", "problem", "on n1"),
            ("n2 processes 96343", "n2 processes 99", "limits", "note", "99 processes"),
            ("n1 files 20000", "n1 files 1024", "limits", "note", "1024 open files"),
            ("clock 1794817163.52", "clock 1794817193.52", "clock", "note", "differ by 30 s"),
            ("n1 clock 1794817163.520117920", "n1 clock 1794817100.N", "clock", "note", "differ by 64 s"),
            ("n1 clock 1794817163.520117920", "n1 clock ?", "clock", "ok", "agree"),
            ("n1 files 20000", "n1 files \u00b2", "limits", "ok", "20000 open files"),
            ("n1 shm  12053", "n1 shm  64", "shm", "note", "64 MB on n1"),
            ("n1 memory-limit", "n1 memory-limit 4096", "memory-limit", "ok", "4096 MB"),
            ("n1 ports 32768\t60999", "n1 ports 1024 65535", "ports", "note", "differs"),
            ("n2 host", "n2 environment x failed\ndoctor n2 host", "environment", "problem", "x failed"),
            ("n1 chosen eth0 10.77.0.11", "n1 chosen  ", "network", "problem", "no usable address on n1"),
            ("eth0 10.77.0.11 yes", "eth0 10.77.0.11 silent", "network", "problem", "n2 to n1 (10.77.0.11: silent)"),
            (
                "n1 end",
                "n1 listener no python3\ndoctor n1 end",
                "network",
                "note",
                "no python3 on n1",
            ),
        ],
    )
    def test_problems_and_notes(self, before: str, after: str, what: str, status: str, text: str) -> None:
        found = about(self.assessed((before, after)).findings, what)[0]
        assert found.status == status
        assert text in found.text

    def test_a_node_that_does_not_respond(self) -> None:
        found = one(self.assessed(expected=3).findings, "nodes")
        assert (found.status, found.text) == ("problem", "2 of 3 responded")
        nothing = node_advice.assess("srun: error: Unable to create step: no\n", 2)
        assert nothing.nodes == ()
        assert one(nothing.findings, "nodes").text == "0 of 2 responded: srun: error: Unable to create step: no"

    def test_a_small_temporary_directory_and_a_better_one(self) -> None:
        report = self.assessed(
            ("doctor n2 directory /tmp tmpfs      9000  8999", "doctor n2 directory /tmp tmpfs 900 100")
        )
        found = one(report.findings, "temp-dir")
        assert found.status == "problem"
        assert "100 of 900 MB free on n2" in found.text
        assert (report.temp_dir, report.temp_dir_reason) == (
            "/var/tmp",
            "/tmp has only 100 MB free; this one has 12053.",
        )
        assert one(self.assessed(("9000  8999", "900 899")).findings, "temp-dir").status == "note"

    def test_a_shared_temporary_directory(self) -> None:
        tmp = "directory /tmp tmpfs      9000  8999 writable"
        report = self.assessed((f"doctor n2 {tmp} own", f"doctor n2 {tmp} shared"))
        assert one(report.findings, "temp-dir").status == "problem"
        assert report.temp_dir == "/var/tmp"
        report = self.assessed((f"{tmp} own", f"{tmp} shared"), ("/var/tmp tmpfs", "/var/tmp nfs"))
        assert report.temp_dir is None, "it is on a shared file system"
        report = self.assessed(
            (f"{tmp} own", f"{tmp} shared"), ("12053 12053 writable own", "12053 12053 writable shared")
        )
        assert report.temp_dir is None, "it is shared too"
        closed = self.assessed((f"doctor n1 {tmp}", f"doctor n1 {tmp.replace('writable', 'closed')}"))
        assert "not writable on n1" in one(closed.findings, "temp-dir").text

    def test_a_fast_network_that_all_nodes_reach(self) -> None:
        report = self.assessed(("eth1", "ib0"))
        assert report.interface == "ib0"
        assert "by default a job would use eth0" in report.interface_reason
        assert self.assessed(("eth1", "ib0"), ("n2 ib0 10.88.0.12 yes", "n2 ib0 10.88.0.12 silent")).interface is None

    def test_ray_in_a_container_is_not_checked_on_the_nodes(self) -> None:
        assert about(node_advice.assess(answers.JOB_LOG, 2, in_container=True).findings, "ray") == []


class TestJob:
    """The job itself runs in tests/slurm/test_the_doctor.py."""

    SHOWN = "JobId=7 JobName=doctor JobState={state} Reason={reason} Dependency=(null) Requeue=1 ExitCode=0:0 x=y\n"

    def probe(
        self, *states: str, log: str | None = answers.JOB_LOG, changes: Mapping[str, Any] | None = None
    ) -> tuple[node_advice.NodeReport, FakeRunner, list[str]]:
        left = list(states)

        def sbatch(line: str) -> Answer:
            if log is not None:
                Path(line.split()[-1].removesuffix(".sh") + ".log").write_text(log)
            return "7\n"

        def show(line: str) -> Answer:
            state = left.pop(0) if len(left) > 1 else left[0]
            if state == "Ctrl-C":
                raise KeyboardInterrupt
            return self.SHOWN.format(state=state, reason="Priority" if state == "PENDING" else "None")

        known = {"sbatch --parsable": sbatch, "scontrol show job": show, "scancel": "", **(changes or {})}
        runner, notices = FakeRunner(known), list[str]()
        self.notices, self.runner = notices, runner
        times = iter(range(0, 100000, 10))
        clock = probe_job.PollClock(now=lambda: float(next(times)), sleep=lambda _: None)
        spec = LaunchSpec(exp_name="doctor", command="true", num_nodes=2)
        return (
            probe_job.probe_nodes(spec, env={}, timeout=60, notify=notices.append, runner=runner, clock=clock),
            runner,
            notices,
        )

    def test_the_files_are_removed_without_a_problem(self) -> None:
        report, _, notices = self.probe("PENDING", "RUNNING", "COMPLETED")
        assert report.nodes == ("n1", "n2")
        assert list(Path.cwd().iterdir()) == []
        assert notices == ["job 7 checks 2 nodes; waiting for at most 60 s (Ctrl-C cancels it)"]

    def test_the_files_are_kept_after_a_problem(self) -> None:
        report, _, _ = self.probe("COMPLETED", log=answers.JOB_LOG.replace("n2 run-dir seen", "n2 run-dir absent"))
        assert sorted(path.suffix for path in Path.cwd().iterdir()) == [".json", ".log", ".sh"]
        assert "kept" in one(report.findings, "job").text

    def test_a_job_that_ends_early(self) -> None:
        report, _, _ = self.probe("FAILED", log="a module says: exit\n")
        assert any("ended early; its last output: a module says: exit" in finding.text for finding in report.findings)

    def test_a_log_that_does_not_appear(self) -> None:
        report, _, _ = self.probe("FAILED", log=None)
        assert "--run-dir" in str(one(report.findings, "run-dir").hint)

    def test_too_long_in_the_queue(self) -> None:
        report, runner, notices = self.probe("PENDING", log=None)
        found = one(report.findings, "job")
        assert (found.status, found.text) == ("problem", "7 did not end within 60 s: pending (Priority)")
        assert runner.calls[-1] == "scancel 7"
        assert notices[-1] == "canceled job 7"

    def test_ctrl_c_cancels_the_job(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.probe("RUNNING", "Ctrl-C")
        assert self.runner.calls[-1] == "scancel 7"
        assert self.notices[-1] == "canceled job 7"
        assert list(Path.cwd().iterdir()) == []

    def test_sbatch_refuses(self) -> None:
        report, _, _ = self.probe("RUNNING", changes={"sbatch --parsable": (1, "sbatch: error: Invalid partition")})
        assert one(report.findings, "job").status == "problem"
        assert not report.unreachable
        assert list(Path.cwd().iterdir()) == []

    @pytest.mark.parametrize(
        "answer",
        [
            (1, "sbatch: error: Unable to contact slurm controller (connect failure)"),
            (1, "sbatch: error: Socket timed out on send/recv operation"),
            timed_out("sbatch"),
        ],
    )
    def test_an_unreachable_controller_leaves_no_file(self, answer: Answer) -> None:
        report, _, _ = self.probe("RUNNING", log=None, changes={"sbatch --parsable": answer})
        assert report.unreachable
        assert "squeue --me" in str(one(report.findings, "job").hint)
        assert list(Path.cwd().iterdir()) == []

    def test_the_script_of_a_failed_submission_is_the_one_that_the_error_names(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script, record, other = Path("doctor_1.sh"), Path("doctor_1.json"), Path("other.sh")

        def refuse(*_: object, **__: object) -> None:
            for path in (script, record, other):
                path.touch()
            raise SubmitRefused("refused", at=f"{other} (kept)", script=str(script.absolute()))

        monkeypatch.setattr(probe_job, "submit_job", refuse)
        report, _, _ = self.probe("RUNNING")
        assert one(report.findings, "job").text == "refused"
        assert list(Path.cwd().iterdir()) == [other.absolute()]

    def test_malformed_logs_cause_no_traceback(self) -> None:
        random = Random(1)
        for _ in range(300):
            node_advice.assess(malformed(answers.JOB_LOG, random), 2)

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"modules": ["gcc"], "conda_env": "x", "venv": "/v", "load_env": ["a; b"], "env": {"A": "1"}},
            {"interface": "ib0", "ip_family": "4", "srun_arg": ["--x"], "run_dir": "/a b"},
        ],
    )
    def test_the_script_passes_shellcheck(self, options: dict[str, Any], tmp_path: Path) -> None:
        spec = LaunchSpec(exp_name="d", command="0", num_nodes=2, template=DOCTOR, **options)
        path = doctor_script(tmp_path, spec)
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
        shellcheck = Path(sys.executable).parent / "shellcheck"
        done = subprocess.run([shellcheck, path], capture_output=True, text=True, check=False)
        assert done.stdout == ""

    @pytest.mark.parametrize("taken", [True, False])
    def test_only_a_port_that_is_taken_is_reported_as_taken(self, taken: bool, tmp_path: Path) -> None:
        """The listener is killed at the end of the job: that says nothing about its port."""
        spec = LaunchSpec(exp_name="d", command="0", num_nodes=2, template=DOCTOR)
        script = doctor_script(tmp_path, spec).read_text()
        functions = re.findall(r"^(?:fact\(\) [^\n]*|listen\(\) .*?^\})$", script, re.MULTILINE | re.DOTALL)
        with socket.create_server(("", 0)) as other:
            port = other.getsockname()[1]
            if not taken:
                other.close()
            code = "\n".join(functions) + f"\nSLURMD_NODENAME=n1 slaunch_port={port}\n"
            kill = f"listen & until : 2>/dev/null >/dev/tcp/127.0.0.1/{port}; do sleep 0.05; done; pkill -P $!; wait"
            done = run_bash(code + ("listen" if taken else kill), tmp_path)
        assert done.stdout == (f"doctor n1 listener port {port} is taken\n" if taken else "")
