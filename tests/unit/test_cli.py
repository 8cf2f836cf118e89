"""The command line: verbs, the default verb, output, exit codes, completion, lazy imports."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import __version__
from slurm_launch.cli import main as cli
from slurm_launch.cli.summaries import SUMMARIES
from slurm_launch.errors import LaunchError, SlurmUnavailable, SubmitRefused
from slurm_launch.launch import submit as submission
from slurm_launch.runs import index
from slurm_launch.runs import record as records
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import GROUPS
from slurm_launch.status import wait as waiting
from tests.unit.some_run import some_run

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "test", "--command", "python train.py")
ROOT = Path(__file__).parents[2]


def process(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    command = [sys.executable, "-m", "slurm_launch", *argv]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=60)


def shown(launcher: Launcher, *argv: str) -> dict[str, Any]:
    """The values that these arguments give."""
    answer = launcher("config", "show", "--json", *argv)
    assert answer.code == 0, answer
    return {key: about["value"] for key, about in json.loads(answer.out)["values"].items()}


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put an sbatch in PATH that runs the given shell code; returns its folder."""

    def install(code: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "sbatch").write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{code}\n')
        (folder / "sbatch").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return folder

    return install


class TestRoot:
    def test_version(self, launcher: Launcher) -> None:
        answer = launcher("--version")
        assert (answer.code, answer.out, answer.err) == (0, f"slurm-launch {__version__}\n", "")

    @pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
    def test_help(self, argv: tuple[str, ...], launcher: Launcher) -> None:
        answer = launcher(*argv)
        assert answer.code == 0
        assert answer.err == ""
        for verb, summary in SUMMARIES.items():
            assert re.search(rf"^  {verb} +{re.escape(summary)}$", answer.out, re.MULTILINE), "whole, on one line"

    @pytest.mark.parametrize("verb", SUMMARIES)
    def test_the_help_of_a_verb_starts_with_its_summary(self, verb: str, launcher: Launcher) -> None:
        answer = launcher(verb, "--help")
        lines = [line.strip() for line in answer.out.splitlines() if line.strip()]
        assert (answer.code, lines[1]) == (0, SUMMARIES[verb]), answer.out

    def test_a_bare_call_is_submit(self, launcher: Launcher) -> None:
        bare, named = launcher(*GOOD, "--mem", "x"), launcher("submit", *GOOD, "--mem", "x")
        assert bare == named
        assert bare.code == 2
        assert "--command is missing" in launcher("--exp-name=x").err
        assert "--exp-name is missing" in launcher("--", "python", "x.py").err
        assert "--command is missing" in launcher("-n", "3").err

    def test_verbs_are_loaded_only_when_called(self) -> None:
        code = "import sys; from slurm_launch.cli.main import run; run({argv}); print(*sys.modules, file=sys.stderr)"

        def modules(*argv: str) -> set[str]:
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-c", code.format(argv=list(argv))]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            return set(done.stderr.split())

        ours = {
            f"slurm_launch.{name}"
            for name in ("spec.model", "spec.checks", "config.resolve", "launch.submit", "rendering.render")
        }
        assert not modules("--version") & {"jinja2", "yaml", "rich", "hostlist", *ours}
        assert not modules("--help") & {"jinja2", "yaml", *ours}
        for verb in ("status", "list", "logs", "watch", "explain", "cancel"):  # pydantic would double their CPU time
            argv = [verb] if verb == "list" else [verb, "no-such-run"]
            assert not modules(*argv) & {"pydantic", "jinja2", "yaml"}, verb
        render = modules("render", *GOOD, "-n", "3")
        assert "jinja2" in render
        assert not render & {
            "yaml",
            "rich",
            "hostlist",
            "slurm_launch.cli.verbs.submit",
            "slurm_launch.cli.verbs.config",
        }
        assert "slurm_launch.cli.verbs.render" not in modules("config", "schema")


class TestHelp:
    def test_every_option_is_there_with_its_flags_group_and_default(self, launcher: Launcher) -> None:
        text = " ".join(launcher("submit", "--help").out.split())
        for name, option in options().items():
            for flag in (f"--{name.replace('_', '-')}", *option.flags):
                assert f"{flag} " in text or f"{flag}, " in text, flag
            assert option.help.split()[0] in text
        for group in GROUPS:
            assert f"{group}: " in text
        assert "Default: 180" in text
        assert "One of: fail, continue." in text
        assert "--dashboard / --no-dashboard" in text

    @pytest.mark.parametrize("verb", [["submit"], ["render"], ["check"], ["config", "show"]])
    def test_each_verb_of_a_spec_has_them(self, verb: list[str], launcher: Launcher) -> None:
        answer = launcher(*verb, "--help")
        assert answer.code == 0
        assert "--object-store-memory SIZE" in answer.out
        assert "\033" not in answer.out
        assert "╭" not in answer.out

    def test_panels_on_a_terminal_only_and_no_color_is_honoured(self) -> None:
        def on_terminal(**extra: str) -> str:
            env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **extra}
            argv = ["script", "-qec", f"{sys.executable} -m slurm_launch submit --help", "/dev/null"]
            return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout

        text = on_terminal()
        assert "╭─" in text
        assert "\033[1;3" in text
        assert "\033[1;3" not in on_terminal(NO_COLOR="1")


class TestOptions:
    def test_flags_become_values(self, launcher: Launcher) -> None:
        values = shown(
            launcher, "--exp-name", "x", "-n", "3", "-w", "n[1-3]", "-p", "main", "-A", "acc", "-q", "q",
            "-t", "1:30:00", "-c", "8", "-C", "a100", "-x", "n9", "-d", "afterok:1",
            "--exclusive", "--no-dashboard", "--no-requeue",
            "--module", "gcc", "--modules", "cuda", "--env", "A=1", "--env", "B=x=y", "--sbatch", "gres=nvme:1",
            "--sbatch", "exclusive", "--no-sbatch", "mem", "--ray-arg=-v", "--load-env", "a; b",
            "--", "python", "a b.py",
        )  # fmt: skip
        expected = {
            "exp-name": "x", "num-nodes": 3, "node": "n[1-3]", "partition": "main", "account": "acc", "qos": "q",
            "time": "1:30:00", "cpus-per-task": 8, "constraint": "a100", "exclude": "n9", "dependency": "afterok:1",
            "exclusive": True, "dashboard": False, "requeue": False, "modules": ["gcc", "cuda"],
            "env": {"A": "1", "B": "x=y"}, "sbatch": {"gres": "nvme:1", "exclusive": None}, "no-sbatch": ["mem"],
            "ray-arg": ["-v"], "load-env": ["a; b"], "command": "python 'a b.py'",
        }  # fmt: skip
        assert {key: values[key] for key in expected} == expected

    def test_aliases(self, launcher: Launcher) -> None:
        assert shown(launcher, "-N", "2")["num-nodes"] == 2
        assert shown(launcher, "--nodes=2", "--nodelist", "n[1-2]")["node"] == "n[1-2]"

    def test_the_command_after_the_dashes_may_look_like_options(self, launcher: Launcher) -> None:
        values = shown(launcher, "-n", "1", "--", "python", "t.py", "--num-nodes", "9", "--", "$HOME", "*")
        assert values["command"] == "python t.py --num-nodes 9 -- '$HOME' '*'"
        assert values["num-nodes"] == 1

    def test_a_value_may_begin_with_a_dash(self, launcher: Launcher) -> None:
        assert shown(launcher, "--ray-arg", "--num-cpus=4", "--nice", "-5")["ray-arg"] == ["--num-cpus=4"]

    def test_no_value_is_taken_from_typers_own_environment(
        self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_LAUNCH_SUBMIT_TIME", "5")
        assert shown(launcher)["time"] is None


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "code"),
        [(LaunchError("a"), 1), (SubmitRefused("no\nreally", at="x.sh", hint="h"), 3), (SlurmUnavailable("gone"), 4)],
    )
    def test_each_kind_has_its_code(
        self, error: LaunchError, code: int, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(submission, "submit", fail)
        answer = launcher(*GOOD)
        assert answer.code == code
        assert answer.err == f"error: {error}\n"

    def test_an_internal_error(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError("oops")

        monkeypatch.setattr(submission, "submit", fail)
        answer = launcher(*GOOD)
        assert answer.code == 1
        assert answer.err.startswith("error: internal error: ZeroDivisionError: oops\n")
        assert "with the traceback that SLAUNCH_DEBUG=1 prints" in answer.err
        assert "Traceback" not in answer.err
        monkeypatch.setenv("SLAUNCH_DEBUG", "1")
        assert "Traceback" in launcher(*GOOD).err

    def test_ctrl_c(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(submission, "submit", interrupt)
        answer = launcher(*GOOD)
        assert (answer.code, answer.err) == (130, "interrupted\n")
        monkeypatch.setattr(cli, "_dispatch", interrupt)
        assert launcher(*GOOD).code == 130

    def test_ctrl_c_as_a_signal(self, sbatch: Callable[[str], Path]) -> None:
        folder = sbatch("sleep 30")
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "slurm_launch", *GOOD]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            deadline = time.monotonic() + 20
            while not (folder / "asked").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=20)
        assert running.returncode == 130
        assert "Traceback" not in out + err
        assert err.rstrip().endswith("interrupted")

    def test_a_closed_pipe_on_stdout(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        for argv in ("config schema", "submit --help", "--help"):
            command = f"{sys.executable} -m slurm_launch {argv} | true; echo ${{PIPESTATUS[0]}}"
            done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, check=True)
            assert done.stderr == ""
            assert done.stdout.strip() in ("0", "1", "141")

    def test_a_missing_current_directory(
        self, tmp_path: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        answer = launcher(*GOOD)
        assert answer.code == 2
        assert "the current directory no longer exists" in answer.err


class TestSubmit:
    def test_the_output(self, launcher: Launcher, sbatch: Callable[[str], Path]) -> None:
        folder = sbatch("echo 4711")
        answer = launcher(*GOOD, "-n", "3")
        assert answer.code == 0
        assert answer.err == ""
        lines = dict(line.split(maxsplit=1) for line in answer.out.splitlines())
        assert lines["job"] == "4711"
        assert sorted(path.suffix for path in Path.cwd().iterdir()) == [".json", ".sh"]
        script = Path(lines["script"])
        assert stat.S_IMODE(script.stat().st_mode) == 0o700
        assert (folder / "asked").read_text() == f"--parsable {script}\n"

    def test_parsable(self, launcher: Launcher, sbatch: Callable[[str], Path]) -> None:
        sbatch("echo 4711")
        assert launcher(*GOOD, "--parsable").out == "4711\n"
        sbatch("echo '4711;fed'")
        assert launcher(*GOOD, "--parsable").out == "4711;fed\n"

    def test_json(self, launcher: Launcher, sbatch: Callable[[str], Path]) -> None:
        sbatch("echo 4711")
        answer = json.loads(launcher(*GOOD, "--json").out)
        assert (answer["schema"], answer["job_id"], answer["cluster"]) == (1, "4711", None)
        assert Path(answer["script"]).exists()
        assert json.loads(Path(answer["record"]).read_text())["job_id"] == "4711"
        assert answer["spec"]["exp-name"] == "test"

    def test_hold(self, launcher: Launcher, sbatch: Callable[[str], Path]) -> None:
        folder = sbatch("echo 4711")
        assert launcher(*GOOD, "--hold").code == 0
        assert (folder / "asked").read_text().startswith("--parsable --hold ")

    def test_wait_exits_with_the_commands_code(
        self, launcher: Launcher, sbatch: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sbatch("echo 4711")
        waited = []

        def wait(run: Any, **_: Any) -> int:
            waited.append(run.job_id)
            return 7

        monkeypatch.setattr(waiting, "wait", wait)
        answer = launcher(*GOOD, "--wait", "--parsable")
        assert (answer.code, answer.out, waited) == (7, "4711\n", ["4711"])

    def test_sbatch_warnings_and_refusals(self, launcher: Launcher, sbatch: Callable[[str], Path]) -> None:
        sbatch("echo 'sbatch: your project expires soon' >&2; echo 4711")
        answer = launcher(*GOOD, "--parsable")
        assert answer.out == "4711\n"
        assert "note: sbatch: your project expires soon" in answer.err
        sbatch("echo 'sbatch: error: invalid partition specified: x' >&2; exit 1")
        answer = launcher(*GOOD)
        assert answer.code == 3
        assert answer.out == ""
        assert "sbatch: error: invalid partition specified: x" in answer.err
        assert "hint: `sinfo -s`" in answer.err

    def test_control_sequences_of_sbatch_do_not_reach_the_terminal(
        self, launcher: Launcher, sbatch: Callable[[str], Path]
    ) -> None:
        sbatch("printf 'sbatch: \\033[2Jhi\\n' >&2; echo 4711")
        assert "note: sbatch: \\x1b[2Jhi" in launcher(*GOOD).err
        sbatch("printf 'sbatch: \\033[2Jno\\n' >&2; exit 1")
        assert "\nsbatch: \\x1b[2Jno" in launcher(*GOOD).err

    def test_without_slurm(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        answer = launcher(*GOOD)
        assert answer.code == 4
        assert answer.err.startswith("error: sbatch is not in PATH")
        assert list(Path.cwd().iterdir()) == []

    def test_dry_run_writes_nothing(self, launcher: Launcher, sbatch: Callable[[str], Path]) -> None:
        folder = sbatch("echo 4711")
        answer = launcher(*GOOD, "-n", "3", "--run-dir", "runs", "--dry-run")
        assert answer.code == 0
        assert answer.out.startswith("#!")
        assert "python train.py" in answer.out
        assert "sbatch --parsable" in answer.err
        assert "dry run: nothing was written" in answer.err
        assert list(Path.cwd().iterdir()) == []
        assert not (folder / "asked").exists()
        plan = json.loads(launcher(*GOOD, "--dry-run", "--json").out)
        assert plan["dry_run"] is True
        assert plan["argv"][:2] == ["sbatch", "--parsable"]

    def test_warnings_go_to_stderr(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLAUNCH_TIEM", "1")
        answer = launcher(*GOOD, "--dry-run")
        assert answer.code == 0
        assert "warning: unknown variable SLAUNCH_TIEM is ignored; did you mean SLAUNCH_TIME?" in answer.err


class TestRender:
    def test_the_script_goes_to_stdout(self, launcher: Launcher) -> None:
        answer = launcher("render", *GOOD, "-n", "3")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.startswith("#!")
        assert answer.out.endswith("\n")
        assert not answer.out.endswith("\n\n")
        assert list(Path.cwd().iterdir()) == []

    def test_json(self, launcher: Launcher) -> None:
        answer = json.loads(launcher("render", *GOOD, "-n", "3", "--json").out)
        assert set(answer) == {"schema", "name", "script", "spec"}
        assert answer["schema"] == 1
        assert answer["name"].startswith("test_")
        assert answer["script"].startswith("#!")
        assert answer["spec"] == {"exp-name": "test", "command": "python train.py", "num-nodes": 3}

    def test_from_a_script(self, launcher: Launcher) -> None:
        profiles = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles")
        profiles.mkdir(parents=True)
        (profiles / "old.yaml").write_text("account: old\npartition: old\nmodules: [old]\n")
        (profiles / "new.yaml").write_text("account: new\nmodules: [new]\n")
        first = launcher("render", *GOOD, "--profile", "old", "--module", "mine", "--time", "1:30:00")
        Path("old.sh").write_text(first.out)

        def spec(*argv: str) -> dict[str, Any]:
            answer = launcher("render", "--from", "old.sh", "--json", *argv)
            assert answer.code == 0, answer.err
            found: dict[str, Any] = json.loads(answer.out)["spec"]
            return found

        same = spec()
        assert (same["account"], same["partition"], same["modules"]) == ("old", "old", ["old", "mine"])
        assert same["time"] == "1:30:00"
        other = spec("--profile", "new", "--exp-name", "again")
        assert (other["account"], other["modules"], other["exp-name"]) == ("new", ["new", "mine"], "again")
        assert "partition" not in other

    def test_from_something_else(self, launcher: Launcher) -> None:
        answer = launcher("render", "--from", "nope.sh")
        assert answer.code == 2
        assert "cannot read the script of --from: No such file" in answer.err
        Path("plain.sh").write_text("#!/bin/bash\necho hi\n")
        answer = launcher("render", "--from", "plain.sh")
        assert answer.code == 2
        assert "plain.sh" in answer.err
        Path("binary.sh").write_bytes(b"\xff\xfe\x00")
        assert launcher("render", "--from", "binary.sh").code == 2


class TestCheck:
    @pytest.fixture(autouse=True)
    def tools(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
        """Nothing but bash in PATH, and the programs that a test adds."""
        folder = tmp_path / "tools"
        folder.mkdir()
        (folder / "bash").symlink_to("/bin/bash")
        monkeypatch.setenv("PATH", str(folder))

        def add(name: str, code: str) -> None:
            (folder / name).write_text(f"#!/bin/bash\n{code}\n")
            (folder / name).chmod(0o755)

        return add

    def test_missing_tools_are_skipped(self, launcher: Launcher) -> None:
        answer = launcher("check", *GOOD)
        assert (answer.code, answer.err) == (0, "")
        tools = {line[:20].strip(): line[21:] for line in answer.out.splitlines()}
        assert tools == {
            "bash -n": "ok",
            "bash -n, command": "ok",
            "shellcheck": "skipped: shellcheck is not in PATH",
            "sbatch --test-only": "skipped: sbatch is not in PATH",
        }
        assert list(Path.cwd().iterdir()) == []

    def test_bash_finds_a_problem_in_the_users_code(self, launcher: Launcher) -> None:
        answer = launcher("check", "--exp-name", "x", "--command", "if true; then")
        assert answer.code == 2
        assert "bash -n, command     problem: command: line 2: syntax error" in answer.out
        answer = launcher("check", *GOOD, "--load-env", "if true; then")
        assert answer.code == 2
        assert "bash -n, environment problem: " in answer.out

    def test_shellcheck_checks_the_script(self, launcher: Launcher, tools: Callable[[str, str], None]) -> None:
        tools("shellcheck", '[[ $(< "${!#}") == "#!/bin/bash"* ]] && echo "In ${!#} line 3: SC1"; exit 1')
        answer = launcher("check", *GOOD)
        assert answer.code == 2
        assert "shellcheck           problem: In test_" in answer.out
        assert ".sh line 3: SC1" in answer.out

    def test_sbatch_tests_without_queueing(
        self, launcher: Launcher, tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tools("sbatch", 'echo "sbatch: $1 $SBATCH_PARTITION: Job 5 to start at 2030" >&2')
        monkeypatch.setenv("SBATCH_PARTITION", "wrong")
        answer = launcher("check", *GOOD, "--json")
        assert answer.code == 0
        result = json.loads(answer.out)
        assert result["ok"] is True
        assert result["checks"][-1] == {
            "tool": "sbatch --test-only",
            "status": "ok",
            "detail": "sbatch: --test-only : Job 5 to start at 2030",
            "exit_code": 0,
        }

    def test_sbatch_refuses(self, launcher: Launcher, tools: Callable[[str, str], None]) -> None:
        tools("sbatch", "echo 'allocation failure: Invalid partition name specified' >&2; exit 1")
        answer = launcher("check", *GOOD)
        assert answer.code == 3
        assert "sbatch --test-only   problem: allocation failure: Invalid partition name specified" in answer.out
        assert "hint: `sinfo -s`" in answer.out
        tools("sbatch", "echo 'Unable to contact slurm controller' >&2; exit 1")
        assert launcher("check", *GOOD).code == 4


class TestConfig:
    def test_show_without_anything(self, launcher: Launcher) -> None:
        answer = launcher("config", "show")
        assert (answer.code, answer.err) == (0, "")
        lines = answer.out.splitlines()
        assert [line.split()[0] for line in lines] == [name.replace("_", "-") for name in LaunchSpec.model_fields]
        assert all(line.endswith("  built-in") for line in lines)
        assert len({line.index("built-in") for line in lines}) == 1, "aligned"

    def test_show_with_sources(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("slurm-launch.yaml").write_text("# mine\ntime: 1:30:00\nmodules: [a b]\nexclusive: yes\n")
        monkeypatch.setenv("SLAUNCH_QOS", "high")
        answer = launcher("config", "show", "--module", "c", "--command", "a\nb")
        rows = {line.split()[0]: " ".join(line.split()[1:]) for line in answer.out.splitlines()}
        file = f"{Path.cwd()}/slurm-launch.yaml"
        assert rows["time"] == f"1:30:00 {file}:2"
        assert rows["modules"] == f"'a b' c {file}:3, flag --modules"
        assert rows["qos"] == "high env SLAUNCH_QOS"
        assert rows["exclusive"] == f"true {file}:4"
        assert rows["command"] == r'"a\nb" flag --command'

    def test_show_reports_errors_too(self, launcher: Launcher) -> None:
        Path("slurm-launch.yaml").write_text("tiem: 1\nqos: high\nmem: 4XB")
        answer = launcher("config", "show")
        assert answer.code == 2
        assert "high" in answer.out
        assert "unknown key 'tiem'" in answer.err
        assert "--mem is not an amount" in answer.err
        assert "missing" not in answer.err

    def test_path(self, launcher: Launcher) -> None:
        assert "absent" in launcher("config", "path").out
        profiles = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles")
        profiles.mkdir(parents=True)
        (profiles / "juwels.yaml").touch()
        Path("slurm-launch.yaml").write_text("profile: juwels")
        answer = launcher("config", "path", "--json")
        assert answer.code == 0
        files = {file["role"]: (file["path"], file["state"]) for file in reversed(json.loads(answer.out)["files"])}
        assert files["project"] == (f"{Path.cwd()}/slurm-launch.yaml", "read")
        assert files["profile juwels"] == (f"{profiles}/juwels.yaml", "read")
        assert files["machine"][1] == "absent"
        assert json.loads(answer.out)["profiles"] == ["juwels"]
        assert launcher("config", "path").out.splitlines()[-1].split() == ["profiles", "juwels"]

    def test_path_reports_errors_too(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        profiles = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles")
        answer = launcher("config", "path")
        assert (answer.code, answer.err) == (0, "")
        places = f"{profiles} or {os.environ['XDG_CONFIG_DIRS']}/slurm-launch/profiles"
        assert answer.out.splitlines()[-1] == f"profiles    none; put them in {places}"
        profiles.mkdir(parents=True)
        for name in ("one", "two"):
            (profiles / f"{name}.yaml").write_text("hosts: ['*']")
        answer = launcher("config", "path")
        assert answer.code == 2
        assert answer.out.splitlines()[-1].split() == ["profiles", "one,", "two"]
        assert "error: several profiles are for the host" in answer.err
        answer = launcher("config", "path", "--json")
        assert answer.code == 2
        assert "one, two" in json.loads(answer.out)["problems"][0]
        assert launcher("config", "path", "--profile", "one").code == 0

    def test_path_knows_absent_from_not_read(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        folders = [Path("a").absolute(), Path("b").absolute(), Path("c").absolute()]
        monkeypatch.setenv("XDG_CONFIG_DIRS", ":".join(map(str, folders)))
        for folder in folders[:2]:
            (folder / "slurm-launch/profiles").mkdir(parents=True)
            for file in ("slurm-launch.yaml", "profiles/p.yaml"):
                (folder / "slurm-launch" / file).touch()
        answer = launcher("config", "path", "--profile", "p", "--json")
        states: dict[str, list[str]] = {role: [] for role in ("project", "profile p", "machine")}
        for file in json.loads(answer.out)["files"]:
            states[file["role"]].append(file["state"])
        assert states["profile p"] == ["absent", "read", "not read", "absent"]
        assert states["machine"] == ["read", "not read", "absent"]

    def test_init(self, launcher: Launcher) -> None:
        answer = launcher("config", "init")
        path = Path.cwd() / "slurm-launch.yaml"
        assert (answer.code, answer.out) == (0, f"{path}\n")
        before = path.read_text()
        assert shown(launcher)["time"] is None
        answer = launcher("config", "init")
        assert answer.code == 2
        assert "already exists" in answer.err
        assert str(path) in answer.err
        assert path.read_text() == before

    def test_init_a_profile(self, launcher: Launcher) -> None:
        answer = launcher("config", "init", "--profile", "juwels")
        assert answer.code == 0
        assert answer.out.strip().endswith("/slurm-launch/profiles/juwels.yaml")
        assert launcher("config", "show", "--profile", "juwels").code == 0
        assert launcher("config", "init", "--profile", "juwels").code == 2
        for name in ("", "../x", "a/b", ".x"):
            assert launcher("config", "init", "--profile", name).code == 2
        assert list(Path.cwd().iterdir()) == []

    def test_init_where_one_may_not_write(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir("/proc")
        answer = launcher("config", "init")
        assert answer.code == 2
        assert "/proc/slurm-launch.yaml" in answer.err

    def test_schema(self, launcher: Launcher) -> None:
        assert "exp-name" in json.loads(launcher("config", "schema").out)["properties"]


class TestCompletion:
    def complete(self, line: str) -> list[str]:
        """What bash gets for the last word of a line, by Typer's protocol."""
        words = line.split(" ")
        settings = {"_SLURM_LAUNCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        done = process(**settings)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    def test_a_bare_call_offers_the_options_of_submit(self) -> None:
        assert self.complete("slurm-launch --exp") == ["--exp-name"]
        assert self.complete("slurm-launch --exp-name x --num") == ["--num-nodes", "--num-gpus"]
        assert self.complete("slurm-launch --ve") == ["--version", "--venv"]

    def test_verbs(self) -> None:
        assert set(self.complete("slurm-launch ")) == set(SUMMARIES)
        assert self.complete("slurm-launch ren") == ["render"]
        assert self.complete("slurm-launch config s") == ["show", "schema"]
        assert self.complete("slurm-launch render --fr") == ["--from"]

    def test_choices_and_profiles(self) -> None:
        assert self.complete("slurm-launch --on-node-loss c") == ["continue"]
        assert self.complete("slurm-launch submit --auth ") == ["token", "off"]
        profiles = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles")
        profiles.mkdir(parents=True)
        for name in ("juwels", "jureca", "leonardo"):
            (profiles / f"{name}.yaml").touch()
        assert self.complete("slurm-launch --profile ju") == ["jureca", "juwels"]

    def test_runs(self, tmp_path: Path) -> None:
        run = some_run(tmp_path, "lr_20260102-030405")
        records.write(run)
        index.add(run, os.environ)
        for verb in ("status", "list", "resubmit", "cancel"):
            assert self.complete(f"slurm-launch {verb} lr") == [run.name]
            assert self.complete(f"slurm-launch {verb} 1") == ["12"]
        assert self.complete("slurm-launch resubmit 12 --fail") == ["--failed"]

    def test_bash_itself(self, tmp_path: Path) -> None:
        command = tmp_path / "slurm-launch"
        command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m slurm_launch "$@"\n')
        command.chmod(0o755)
        code = (
            f"{process(_SLURM_LAUNCH_COMPLETE='source_bash').stdout}\n"
            "COMP_WORDS=(slurm-launch --exp); COMP_CWORD=1\n"
            "_slurm_launch_completion slurm-launch; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["--exp-name"]
