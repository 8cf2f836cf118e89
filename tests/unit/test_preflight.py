"""Warnings before a submission: limits of the site, images, scripts of another cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.config import profile_files
from slurm_launch.config.resolve import Resolution, resolve
from slurm_launch.spec.script_header import EmbeddedSpec

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "test", "--command", "python train.py")
OWN = {"exp-name": "x", "command": "y"}


def profile(name: str, text: str) -> Path:
    path = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles", f"{name}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found(embedded: EmbeddedSpec, **flags: Any) -> Resolution:
    return resolve(flags, os.environ, Path.cwd(), embedded)


def script(launcher: Launcher, *argv: str, name: str = "old.sh") -> None:
    answer = launcher("render", *GOOD, *argv)
    assert answer.code == 0, answer.err
    Path(name).write_text(answer.out)


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only bash, and an sbatch that records its calls."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "bash").symlink_to("/bin/bash")
    (folder / "sbatch").write_text(f'#!/bin/bash\necho "$1" >> {folder}/asked\necho 7\n')
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


class TestLimitsOfTheSite:
    TEXT = """\
container-runtimes: [apptainer]
partitions:
  main: {max-time: 2:00:00, max-nodes: 2, max-gpus: 1}
"""

    @pytest.mark.parametrize("verb", [["submit", "--parsable"], ["submit", "--dry-run"], ["render"]])
    @pytest.mark.parametrize(
        ("argv", "told"),
        [
            ("-p main --time 3:00:00", ["--time 3:00:00 is more than the max-time 2:00:00 of partition main"]),
            (
                "-p main --signal-before 7200",
                ["--signal-before 7200 is not below the max-time 2:00:00 of partition main"],
            ),
            ("-p main -n 3 --num-gpus 2", ["--num-nodes 3 is more than", "--num-gpus 2 is more than"]),
            ("-p man", ["--partition 'man' is not in the profile; did you mean 'main'?"]),
            ("--container-image x", ["--container-runtime pyxis is not available; available: apptainer"]),
            ("-p main --time 2:00:00 -n 2", []),
        ],
    )
    def test_are_a_warning(self, verb: list[str], argv: str, told: list[str], launcher: Launcher, tools: Path) -> None:
        profile("p", self.TEXT)
        answer = launcher(*verb, *GOOD, "--profile", "p", *argv.split())
        assert answer.code == 0, answer.err
        warnings = [line for line in answer.err.splitlines() if line.startswith("warning: ")]
        assert len(warnings) == len(told)
        for warning, text in zip(warnings, told, strict=True):
            assert warning.startswith(f"warning: {text}")
        assert answer.out
        assert (tools / "asked").exists() == ("--parsable" in verb), "the job is submitted all the same"

    def test_in_a_rehearsal(self, launcher: Launcher) -> None:
        profile("p", self.TEXT)
        answer = launcher("rehearse", *GOOD, "--profile", "p", "-p", "main", "-n", "3", "--fault", "no-such-fault")
        assert answer.code == 2, "which spares us the Ray"
        assert "warning: --num-nodes 3 is more than" in answer.err

    def test_check_reports_them_once(self, launcher: Launcher) -> None:
        profile("p", self.TEXT)
        answer = launcher("check", *GOOD, "--profile", "p", "-p", "main", "-n", "3")
        assert (answer.code, answer.err) == (2, "")

    def test_a_time_of_many_digits(self, launcher: Launcher) -> None:
        profile("p", self.TEXT)
        answer = launcher("render", *GOOD, "--profile", "p", "-p", "main", "--time", "9" * 5000)
        assert "is more than the max-time" in answer.err


class TestGpusThatRayDoesNotGet:
    TEXT = "partitions: {gpu: {max-gpus: 4}, cpu: {max-gpus: 0}, other: {}}"
    EXCLUSIVE = "the nodes of partition gpu have GPUs, but Ray gets none: --exclusive does not give them to the steps"
    SHARDS = "--sbatch gres=shard:2 requests shards of a GPU, which Ray does not count; add --ray-arg=--num-gpus=1"

    @pytest.mark.parametrize(
        ("argv", "told"),
        [
            ("-p gpu --exclusive", EXCLUSIVE),
            ("-p gpu --sbatch exclusive=user", EXCLUSIVE),
            ("-p gpu", ""),
            ("-p gpu --exclusive --num-gpus 4", ""),
            ("-p gpu --exclusive --num-gpus 4 --gpu-directive none", ""),
            ("-p gpu --exclusive --sbatch gres=gpu:4", ""),
            ("-p gpu --exclusive --worker-group n=1,gpus=4", ""),
            ("-p cpu --exclusive", ""),
            ("-p other --exclusive", ""),
            ("--exclusive", ""),
            ("--sbatch gres=shard:2", SHARDS),
            ("--sbatch gres=shard:2 --ray-arg=--num-gpus=1", ""),
            ("--sbatch comment=shard", ""),
        ],
    )
    def test_are_a_warning(self, argv: str, told: str, launcher: Launcher) -> None:
        profile("p", self.TEXT)
        options = (*GOOD, "--profile", "p", *argv.split())
        answer = launcher("submit", "--dry-run", *options)
        assert answer.code == 0, answer.err
        warnings = [line for line in answer.err.splitlines() if line.startswith("warning: ")]
        assert [line[9:].startswith(told) for line in warnings] == [True] * bool(told)
        checked = json.loads(launcher("check", *options, "--json").out)["checks"]
        notes = [check for check in checked if check["tool"] == "gpus"]
        assert [(check["status"], check["detail"].startswith(told)) for check in notes] == [("note", True)] * bool(told)

    def test_how_many_there_are(self, launcher: Launcher) -> None:
        profile("p", self.TEXT)
        answer = launcher("render", *GOOD, "--profile", "p", "-p", "cpu,gpu", "--exclusive")
        assert answer.err.rstrip().endswith("add --num-gpus 4")


def test_a_request_that_cannot_work_names_its_source(launcher: Launcher) -> None:
    profile("p", "sbatch: {gpus: 4}")
    answer = launcher("submit", "--dry-run", *GOOD, "-n", "2", "--profile", "p")
    assert answer.code == 2
    first, at, hint = answer.err.splitlines()
    assert first.startswith("error: --sbatch gpus=4 is the number for all 2 nodes")
    assert "p.yaml" in at
    assert "--num-gpus" in hint
    short = launcher("submit", "--dry-run", *GOOD, "-n", "2", "--sbatch", "G=4")
    assert (short.code, "is not a long option of sbatch: 'G'" in short.err) == (2, True)


class TestWhatTheOtherClusterLacks:
    MINE = ("--container-mounts", "/data", "--container-workdir", "/data", "--container-setup", "x=1")

    @pytest.mark.parametrize("other", ["", "container-image: y\ncontainer-runtime: none"])
    def test_is_left_out_with_a_note(self, other: str, launcher: Launcher) -> None:
        profile("old", "cpu-image: docker://x")
        profile("other", other)
        script(launcher, "--profile", "old", *self.MINE)
        answer = launcher("render", "--from", "old.sh", "--profile", "other")
        assert answer.code == 0, answer.err
        for flag in ("--container-mounts", "--container-workdir", "--container-setup"):
            expected = f"note: {flag} is dropped, the job no longer has a container image: old.sh (its spec)\n"
            assert answer.err.count(expected) == 1
        assert answer.err.count("warning:") == 1
        assert "warning: the job now runs without a container; before, it used the image docker://x\n" in answer.err
        assert "container-mounts: /data:/data -> - (built-in (old.sh (its spec) is for jobs with" in answer.err
        checked_spec = launcher("check", "--from", "old.sh", "--profile", "other")
        assert "warning: the job now runs without a container" in checked_spec.err
        Path("new.sh").write_text(answer.out)
        back = launcher("render", "--from", "new.sh", "--profile", "old")
        assert "mounts=(/data:/data" in back.out, "the script still knows it"
        assert "warning:" not in back.err

    def test_without_any_site(self, launcher: Launcher) -> None:
        profile("old", "cpu-image: docker://x")
        script(launcher, "--profile", "old", *self.MINE)
        answer = launcher("render", "--from", "old.sh", "--profile", "none")
        assert answer.code == 0, answer.err
        assert "note: --container-mounts is dropped" in answer.err

    def test_gpus(self, launcher: Launcher) -> None:
        script(launcher, "--num-gpus", "2", "--gpu-type", "a100")
        answer = launcher("render", "--from", "old.sh", "--num-gpus", "0")
        assert answer.code == 0
        assert "note: --gpu-type is dropped, the job no longer has GPUs: old.sh (its spec)\n" in answer.err

    def test_gpus_of_a_group(self, launcher: Launcher) -> None:
        profile("gpus", "gpu-type: a100")
        for where in (("--gpu-type", "a100"), ("--profile", "gpus")):
            script(launcher, "--worker-group", "n=1,gpus=2", *where)
            assert "\n#SBATCH --gpus-per-node=a100:2\n" in Path("old.sh").read_text()
            answer = launcher("render", "--from", "old.sh")
            assert (answer.code, answer.err) == (0, "note: nothing changed from old.sh\n")

    @pytest.mark.parametrize(
        ("old", "new", "note"),
        [
            ("--chain 3 --chain-while notok", "--array 0-3", "--chain-while is dropped, the job no longer has --chain"),
            ("--sweep a=1,2 --points 1", "--array 0-3", "--points is dropped, the job no longer has a sweep"),
            (
                "--sweep a=1,2 --max-parallel 1",
                "--chain 2",
                "--max-parallel is dropped, the job no longer has a sweep or an array",
            ),
        ],
    )
    def test_other_tasks(self, old: str, new: str, note: str, launcher: Launcher) -> None:
        script(launcher, *old.split())
        answer = launcher("render", "--from", "old.sh", *new.split())
        assert answer.code == 0, answer.err
        assert f"note: {note}: old.sh (its spec)\n" in answer.err

    def test_the_points_that_the_command_uses(self, launcher: Launcher) -> None:
        command = """echo {a} "$b" ${c} $dd '{{e}}' $f"""
        keys = [word for key in "abcdef" for word in ("--sweep", f"{key}=1,2")]
        answer = launcher("render", "--exp-name", "x", *keys, "--command", command)
        Path("old.sh").write_text(answer.out)
        told = "the job is no longer a sweep: its command has no value for {a}, $b, {c}, {e}"
        for verb in ("render", "check"):
            for other in ("--chain", "3"), ("--array", "0-3"):
                assert told in launcher(verb, "--from", "old.sh", *other, "--env", "f=1").err
            assert "no sweep" not in launcher(verb, "--from", "old.sh", "--chain", "3", "--command", "true").err
            assert "no sweep" not in launcher(verb, "--from", "old.sh").err

    def test_a_profile_may_say_what_chains_do(self, launcher: Launcher) -> None:
        profile("p", "chain-while: notok")
        assert launcher("render", *GOOD, "--profile", "p").code == 0
        text = launcher("render", *GOOD, "--profile", "p", "--chain", "2").out
        assert "\nslaunch_chain_while='notok'\n" in text

    def test_is_used_where_it_can_be(self, launcher: Launcher) -> None:
        profile("old", "cpu-image: docker://x")
        profile("other", "container-runtime: apptainer\ngpu-image: docker://y")
        script(launcher, "--profile", "old", *self.MINE)
        answer = launcher("render", "--from", "old.sh", "--profile", "other")
        assert "is dropped" not in answer.err
        assert "warning:" not in answer.err
        assert "mounts=(/data:/data" in answer.out

    def test_what_is_given_anew_stays_an_error(self, launcher: Launcher) -> None:
        profile("old", "cpu-image: docker://x")
        script(launcher, "--profile", "old", *self.MINE)
        answer = launcher("render", "--from", "old.sh", "--profile", "none", "--container-mounts", "/more")
        assert answer.code == 2
        assert "error: --container-mounts has no effect without a" in answer.err

    def test_an_error_names_the_script(self, launcher: Launcher) -> None:
        script(launcher)
        path = Path("old.sh")
        path.write_text(path.read_text().replace('"exp-name": "test"', '"exp-name": "test", "time": "soon"'))
        answer = launcher("render", "--from", "old.sh")
        assert answer.code == 2
        assert "at: old.sh (its spec)\n" in answer.err


class TestAnotherCluster:
    @pytest.fixture(autouse=True)
    def host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            profile_files, "host_names", lambda full: ["here1", *(["here1.example.org"] if full else [])]
        )

    @pytest.mark.parametrize(
        ("hosts", "asked"),
        [
            ("hosts: [LOGIN*, jw*]", False),
            ("hosts: login*.example.org", False),
            ("hosts: [login*, HERE*]", True),
            ("hosts: here*.example.org", True),
            ("extends: base", True),  # `hosts` is not inherited
            ("", True),
        ],
    )
    def test_is_not_checked_with_this_slurm(self, hosts: str, asked: bool, launcher: Launcher, tools: Path) -> None:
        profile("base", "hosts: [nowhere]")
        profile("other", hosts)
        script(launcher)
        answer = launcher("check", "--from", "old.sh", "--profile", "other", "--container-image", "./nope.sqsh")
        assert answer.code == 0, answer.out
        assert (tools / "asked").exists() == asked
        assert ("does not exist on this machine" in answer.out) == asked
        if hosts.startswith("hosts: [LOGIN"):
            expected = "sbatch --test-only   skipped: profile other is for LOGIN*, jw*, this is here1\n"
            assert expected in answer.out


def test_only_check_asks_for_the_full_name(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a question to a network that does not answer."""
    monkeypatch.setattr(os, "uname", lambda: type("Name", (), {"nodename": "here1"}))
    monkeypatch.setattr(profile_files, "_full_name", lambda name: pytest.fail("asked"))
    profile("p", "hosts: login*.example.org")
    assert launcher("render", *GOOD, "--profile", "p").code == 0


class TestImages:
    def test_a_workers_image_beside_the_sites(self) -> None:
        profile("p", "cpu-image: docker://site")
        spec = found(EmbeddedSpec(OWN), profile="p", worker_image="docker://mine").spec()
        assert (spec.image, spec.workers_image) == ("docker://site", "docker://mine")
        spec = found(EmbeddedSpec(OWN), profile="p", worker_image="docker://mine", head_image="docker://head").spec()
        assert (spec.image, spec.container_image) == ("docker://head", None)

    def test_a_missing_file(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("USER", "alice")
        Path("alice.sqsh").touch()
        for image, there in (("./%u.sqsh", True), ("docker://x", True), ("./nope.sqsh", False), ("/a/b.sqsh", False)):
            told = "" if there else f"{image} does not exist on this machine; the nodes must have it\n"
            answer = launcher("--dry-run", *GOOD, "--container-image", image)
            assert answer.code == 0
            assert [line for line in answer.err.splitlines() if "does not exist" in line] == (
                [f"warning: {told.strip()}"] if told else []
            )
            answer = launcher("check", *GOOD, "--container-image", image)
            assert answer.code == 0
            lines = [line for line in answer.out.splitlines(keepends=True) if line.startswith("image ")]
            assert lines == ([f"image                note: {told}"] if told else [])
            assert "does not exist" not in launcher("render", *GOOD, "--container-image", image).err

    def test_it_is_looked_for_where_the_job_runs(self, launcher: Launcher) -> None:
        Path("sub").mkdir()
        Path("sub/x.sqsh").touch()
        argv = ("--dry-run", *GOOD, "--container-image", "./x.sqsh", "--worker-image", "./y.sqsh")
        assert "./x.sqsh does not exist on this machine" in launcher(*argv).err
        answer = launcher(*argv, "--chdir", str(Path("sub").absolute()))
        assert "./x.sqsh" not in answer.err
        assert "./y.sqsh does not exist on this machine" in answer.err

    def test_bash_checks_the_setup(self, launcher: Launcher) -> None:
        argv = ("check", *GOOD, "--container-image", "docker://x", "--container-setup")
        answer = launcher(*argv, "if true; then")
        assert answer.code == 2
        assert "bash -n, container setup problem: container setup: line 2: syntax error" in answer.out
        answer = launcher(*argv, "if true; then", "--container-setup", "true; fi", "--json")
        assert {"tool": "bash -n, container setup", "status": "ok", "detail": "", "exit_code": 0} in json.loads(
            answer.out
        )["checks"]


class TestTemplate:
    """A template runs code when it is filled in, and a script may come by mail."""

    def test_of_a_script_is_not_used(self, launcher: Launcher) -> None:
        script(launcher)
        Path("evil.j2").write_text("filled in\n")
        path = Path("old.sh")
        path.write_text(path.read_text().replace('"exp-name": "test"', '"exp-name": "test", "template": "evil.j2"'))
        answer = launcher("render", "--from", "old.sh")
        assert answer.code == 0
        assert answer.out.startswith("#!/bin/bash")
        assert "warning: the template 'evil.j2' in the script's header is not used" in answer.err
        answer = launcher("render", "--from", "old.sh", "--template", "evil.j2")
        assert answer.out == "filled in\n"
        assert "warning" not in answer.err

    @pytest.mark.parametrize(
        "site", [{"template": "e.j2"}, {"partition": "gpu", "partitions": {"gpu": {"template": "e.j2"}}}]
    )
    def test_of_its_site(self, site: dict[str, Any]) -> None:
        resolution = found(EmbeddedSpec(OWN, site))
        assert resolution.spec().template is None
        assert "'e.j2'" in resolution.warnings[0]
        profile("other", "template: /mine.j2")
        resolution = found(EmbeddedSpec(OWN, site), profile="other")
        assert (resolution.spec().template, resolution.warnings) == ("/mine.j2", ())


def test_a_header_with_facts_about_files() -> None:
    resolution = found(EmbeddedSpec(OWN, {"extends": "x", "hosts": ["a"], "cpu-image": "docker://x"}))
    assert resolution.spec().image == "docker://x"
