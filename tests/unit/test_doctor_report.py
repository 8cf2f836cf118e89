"""The doctor: this host, the profile, the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_launch import LaunchSpec
from slurm_launch.cli.doctor import for_job, placed
from slurm_launch.doctor import machine, nodes, profile, trials
from slurm_launch.doctor.asking import Ask
from slurm_launch.doctor.cluster import Site
from slurm_launch.errors import UsageError
from slurm_launch.slurm_site import Node, Partition
from tests.unit import doctor_answers as answers
from tests.unit.doctor_answers import Fake, about, examined, one

Launcher = Callable[..., Any]  # tests/unit/conftest.py
SPEC = LaunchSpec(exp_name="doctor", command="true")


class TestMachine:
    @pytest.mark.parametrize(
        ("kind", "status"),
        [("nfs", "ok"), ("lustre", "ok"), ("gpfs", "ok"), ("fhgfs", "ok"), ("tmpfs", "note"), ("ext2/ext3", "note")],
    )
    def test_file_systems(self, kind: str, status: str) -> None:
        ask = Ask({"PATH": ""}, Fake({"stat -f": f"{kind}\n", "ip -o addr": answers.ADDRESSES}))
        findings = machine.examine(ask, {"run-dir": "/no/such/runs", "cwd": "/no/such/runs"})
        assert one(findings, "run-dir").status == status
        assert kind in one(findings, "run-dir").text
        assert about(findings, "cwd") == [], "the same directory once"
        assert one(findings, "network").text == "br0 10.77.0.1, fd77::1"
        assert one(findings, "ray").status == "note"

    def test_several_networks_and_none(self) -> None:
        second = answers.ADDRESSES + "5: ib0    inet 10.88.0.1/16 scope global ib0\\  valid_lft forever\n"
        found = one(machine.examine(Ask({}, Fake({"ip -o addr": second})), {}), "network")
        assert (found.status, found.text) == ("note", "2 networks here: br0 10.77.0.1, fd77::1; ib0 10.88.0.1")
        assert "--interface" in str(found.hint)
        assert one(machine.examine(Ask({}, Fake()), {}), "network").status == "note", "no `ip` here"

    def test_limits(self) -> None:
        assert [finding.status for finding in machine.limits(20000, -1)] == ["ok"]
        (few,) = machine.limits(1024, 100)
        assert few.text == "at most 1024 open files (ulimit -Hn) and 100 processes (ulimit -Hu)"
        assert machine.ports(1024, 65535).status == "note"
        assert machine.ports(32768, 60999).status == "ok"

    @pytest.mark.parametrize(
        ("said", "status"),
        [("ray, version 2.60.0", "ok"), ("2.52.0rc1", "ok"), ("2.51.9", "note"), ("2.39.0", "problem"), ("?", "note")],
    )
    def test_versions_of_ray(self, said: str, status: str) -> None:
        assert machine.ray_version(said).status == status

    def test_rays_version_is_read_without_starting_it(self, tmp_path: Path) -> None:
        program = tmp_path / "bin/ray"
        program.parent.mkdir()
        program.touch(0o755)
        runner = Fake({str(program): "ray, version 2.40.0\n"})
        ask = Ask({"PATH": str(program.parent)}, runner)
        assert one(machine.examine(ask, {}), "ray").text == "2.40.0 knows no tokens"
        assert f"{program} --version" in runner.asked
        (tmp_path / "lib/python3.12/site-packages/ray-2.60.0.dist-info").mkdir(parents=True)
        assert machine.installed_ray(str(program)) == "2.60.0"


def facts(site: Site | None = None, **changes: Any) -> profile.Facts:
    plain = profile.Facts(
        "here", date(2026, 11, 16), ("login",), site or examined(), trials.Trials(gpu_directive="gres")
    )
    return replace(plain, **changes)


class TestProfile:
    OWN_KEYS = ("hosts", "partitions", "gpu-types", "container-runtimes")  # those that are no options

    def read(self, given: profile.Facts) -> dict[str, Any]:
        text = profile.text_of(given)
        lines = text.splitlines()
        found: dict[str, Any] = yaml.safe_load(text)
        for key, value in found.items():
            at = next(number for number, line in enumerate(lines) if line.startswith(f"{key}:"))
            assert lines[at - 1].startswith("# ") or key == "container-runtimes", f"{key} is not explained"
            if key not in self.OWN_KEYS:
                LaunchSpec.model_validate({"exp-name": "x", "command": "true", key: value})
        return found

    def test_a_plain_cluster(self) -> None:
        assert self.read(facts()) == {
            "hosts": ["login"],
            "partition": "main",
            "gpu-directive": "gres",
            "partitions": {"main": {"max-gpus": 2}, "short": {"max-time": "00:01:00", "max-gpus": 2}},
        }

    def test_all_there_is_to_say(self) -> None:
        site = examined({"scontrol show config": answers.WITH_ACCOUNTS})
        site.partitions = [Partition("no", max_nodes=4, max_time="1-00:00:00"), Partition("0123", default=True)]
        site.nodes = [
            *(Node(f"gpu{number}", ("no",), {"a100": 4}) for number in range(3)),
            *(Node(f"big{number}", ("0123",), {"h100": 8}) for number in range(2)),
            Node("cpu1", ("0123",)),
        ]
        told = nodes.Advice(("n1",), (), "ib0", "It is faster.", "/var/tmp", "It is larger.")
        found = self.read(
            facts(site, trials=trials.Trials(time="01:00:00"), runtimes=("pyxis", "apptainer"), nodes=told)
        )
        assert found == {
            "hosts": ["login"],
            "partition": "0123",
            "account": "lab",
            "time": "01:00:00",
            "gpu-types": {"^big[0-9]*$": "h100", "^gpu[0-9]*$": "a100"},
            "container-runtime": "pyxis",
            "container-runtimes": ["pyxis", "apptainer"],
            "interface": "ib0",
            "temp-dir": "/var/tmp",
            "partitions": {
                "no": {"max-time": "1-00:00:00", "max-nodes": 4, "max-gpus": 4, "gpu-type": "a100"},
                "0123": {"max-gpus": 8, "gpu-type": "h100"},
            },
        }

    def test_a_time_that_fits_everywhere(self) -> None:
        found = self.read(facts(trials=trials.Trials(time="01:00:00")))
        assert found["time"] == "01:00:00"
        assert found["partitions"]["short"] == {"max-time": "00:01:00", "time": "00:01:00", "max-gpus": 2}
        assert "time" not in found["partitions"]["main"]

    def test_the_users_choice(self) -> None:
        found = self.read(facts(partition="short", account="mine"))
        assert (found["partition"], found["account"]) == ("short", "mine")

    def test_memory_is_explained_where_a_job_would_take_all(self) -> None:
        text = answers.CONFIG.replace("DefMemPerCPU            = 512", "DefMemPerNode = UNLIMITED")
        assert "#mem-per-cpu: 4G" in profile.text_of(facts(examined({"scontrol show config": text})))
        assert "mem-per-cpu" not in profile.text_of(facts())

    @pytest.mark.parametrize(
        ("name", "pattern"),
        [
            ("login1.site.example", "login*.site.example"),
            ("login01-ib", "login*-ib"),
            ("c3login2.x9.example", "c3login*.x9.example"),
            ("head", "head"),
            ("10.0.0.1", "10.0.0.1"),
            ("17", "17"),
        ],
    )
    def test_hosts(self, name: str, pattern: str) -> None:
        assert profile.host_pattern(name) == pattern

    def test_gpu_types_only_where_names_tell_them(self) -> None:
        site = Site()
        site.nodes = [Node("n1", gpus={"a100": 1}), Node("n2", gpus={"h100": 1})]
        assert profile.gpu_types(site) == {}
        site.nodes = [Node("a1", gpus={"a100": 1}), Node("h1", gpus={"h100": 1}), Node("h2", gpus={"h100": 2})]
        assert profile.gpu_types(site) == {"^a[0-9]*$": "a100", "^h[0-9]*$": "h100"}
        mixed = [Node("m1", gpus={"a100": 1}), Node("m2", gpus={"h100": 1})]
        assert profile.gpu_types(replace(site, nodes=[*site.nodes, *mixed])) == {}, "m tells nothing"
        site.nodes.append(Node("h3"))
        assert profile.gpu_types(site) == {}, "h3 has none"

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        env = {"XDG_CONFIG_HOME": str(tmp_path)}
        path = profile.target("here", env)
        profile.write(path, "a: 1\n")
        with pytest.raises(UsageError, match="already"):
            profile.target("here", env)
        with pytest.raises(UsageError, match="already"):
            profile.write(path, "b: 2\n")
        assert path.read_text() == "a: 1\n"
        for name in ("", "../x", "a/b", ".x", "-x", "a\nb"):
            with pytest.raises(UsageError, match="needs a name"):
                profile.target(name, env)
        with pytest.raises(UsageError, match="no home"):
            profile.target("x", {})


class TestCommand:
    @pytest.fixture
    def tools(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Only these programs in PATH, each saying what it is given, or running it as shell code."""
        folder = tmp_path / "bin"
        folder.mkdir()

        def install(**programs: str) -> None:
            for name, said in {"stat": "nfs\n", "ip": answers.ADDRESSES, **programs}.items():
                code = said[1:] if said.startswith("!") else f"cat <<'END'\n{said}END\n"
                (folder / name).write_text(f"#!/bin/bash\nPATH=/usr/bin:/bin\n{code}")
                (folder / name).chmod(0o755)
            monkeypatch.setenv("PATH", str(folder))

        return install

    @pytest.fixture
    def slurm(self, tools: Callable[..., None], tmp_path: Path) -> Callable[..., None]:
        def install(**changes: str) -> None:
            texts = {"config": answers.CONFIG, "partition": answers.PARTITIONS, "node": answers.NODES}
            for name, text in texts.items():
                (tmp_path / name).write_text(text)
            programs = {
                "sinfo": answers.VERSION,
                "scontrol": f'!cat {tmp_path}/"$2"\n',
                "srun": answers.SRUN_HELP,
                "sbatch": "!cat >/dev/null\n",
            }
            tools(**{**programs, **changes})

        return install

    def test_without_slurm(self, launcher: Launcher, tools: Callable[..., None]) -> None:
        tools()
        answer = launcher("doctor")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.startswith("note     slurm       there is no Slurm here")
        assert "ok       run-dir" in answer.out
        assert "ok       python" in answer.out
        for flags in (["--write", "x"], ["--job"]):
            assert launcher("doctor", *flags).code == 4

    def test_a_good_cluster(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm()
        answer = launcher("doctor")
        assert (answer.code, answer.err) == (0, "")
        assert all(line.startswith(("ok ", "note ")) for line in answer.out.splitlines())
        assert "would take a plain job" in answer.out

    def test_a_problem_has_its_exit_code(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm(sbatch="!cat >/dev/null; echo 'sbatch: error: Invalid partition name specified' >&2; exit 1\n")
        answer = launcher("doctor", "--json", "-p", "nosuch")
        told = json.loads(answer.out)
        assert (answer.code, told["ok"], told["schema"], told["profile"]) == (6, False, 1, None)
        (found,) = [finding for finding in told["findings"] if finding["status"] == "problem"]
        assert found["about"] == "sbatch"
        assert "sinfo -s" in found["hint"]

    def test_write(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm()
        answer = launcher("doctor", "--write", "here")
        path = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles/here.yaml")
        assert answer.code == 0
        assert answer.out.splitlines()[-1] == f"written  profile     {path}"
        assert yaml.safe_load(path.read_text())["partition"] == "main"
        again = launcher("doctor", "--write", "here")
        assert (again.code, again.out) == (2, "")
        assert "nothing is overwritten" in again.err

    def test_an_experiments_wishes_do_not_count_but_flags_do(
        self, launcher: Launcher, slurm: Callable[..., None]
    ) -> None:
        slurm(sbatch="!cat >>asked\n")
        Path("slurm-launch.yaml").write_text("mem: 900G\nnum-gpus: 9\npartition: short\narray: 0-9\n")
        assert launcher("doctor", "-c", "3").code == 0
        asked = Path("asked").read_text()
        assert "#SBATCH --partition=short" in asked
        assert "#SBATCH --cpus-per-task=3" in asked
        assert not any(text in asked for text in ("900G", ":9", "=9", "array"))

    def test_a_job_goes_where_the_profile_would_send_it(self) -> None:
        assert placed(SPEC, examined()) == SPEC, "the cluster's default needs no word"
        text = answers.PARTITIONS.replace("Default=YES", "Default=NO")
        site = examined({"scontrol show partition": text, "scontrol show config": answers.WITH_ACCOUNTS})
        there = placed(SPEC, site)
        assert (there.partition, there.account) == ("main", "lab")
        chosen = SPEC.model_copy(update={"partition": "short", "account": "mine"})
        assert placed(chosen, site) == chosen

    def test_the_job_is_small(self) -> None:
        site, spec = examined(), SPEC.model_copy(update={"num_nodes": 64, "array": "0-9"})
        small = for_job(spec, {}, site)
        assert (small.nodes, small.time, small.array) == (2, "00:05:00", None)
        assert for_job(spec, {"num_nodes": "64"}, site).nodes == 64
        assert for_job(SPEC.model_copy(update={"partition": "short"}), {}, site).time == "00:01:00"
        site.partitions = [Partition("main", default=True, nodes=1)]
        assert for_job(spec, {}, site).nodes == 1, "there are no two"

    def test_a_wrong_option(self, launcher: Launcher, tools: Callable[..., None]) -> None:
        tools()
        assert launcher("doctor", "--mem", "x").code == 2
