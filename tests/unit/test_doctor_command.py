"""The doctor: the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_launch import LaunchSpec
from slurm_launch.cli.verbs.doctor import probe_spec, with_partition_and_account
from slurm_launch.errors import UsageError
from slurm_launch.slurm.site import Partition
from tests.unit import doctor_answers as answers
from tests.unit.doctor_answers import query_fake

Launcher = Callable[..., Any]  # tests/unit/conftest.py
SPEC = LaunchSpec(exp_name="doctor", command="true")


class TestCommand:
    @pytest.fixture
    def tools(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Only these programs in PATH; each prints its text, or runs it as shell code if it starts with !."""
        folder = tmp_path / "bin"
        folder.mkdir()

        def install(**programs: str) -> None:
            for name, text in {"stat": "nfs\n", "ip": answers.ADDRESSES, **programs}.items():
                code = text[1:] if text.startswith("!") else f"cat <<'END'\n{text}END\n"
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
        assert answer.out.startswith("note     slurm         not installed here")
        assert "ok       run-dir" in answer.out
        assert "ok       python" in answer.out
        for flags in (["--write", "x"], ["--job"]):
            assert launcher("doctor", *flags).code == 4

    def test_a_healthy_cluster(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm()
        answer = launcher("doctor")
        assert (answer.code, answer.err) == (0, "")
        assert all(line.startswith(("ok ", "note ")) for line in answer.out.splitlines())
        assert "would accept a plain job" in answer.out

    def test_the_exit_code_of_a_problem(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm(sbatch="!cat >/dev/null; echo 'sbatch: error: Invalid partition name specified' >&2; exit 1\n")
        answer = launcher("doctor", "--json", "-p", "nosuch")
        report = json.loads(answer.out)
        assert (answer.code, report["ok"], report["schema"], report["profile"]) == (6, False, 1, None)
        (found,) = [finding for finding in report["findings"] if finding["status"] == "problem"]
        assert found["about"] == "sbatch"
        assert "sinfo -s" in found["hint"]

    def test_write(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm()
        answer = launcher("doctor", "--write", "here")
        path = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles/here.yaml")
        assert answer.code == 0
        assert answer.out.splitlines()[-1] == f"written  profile       {path}"
        assert yaml.safe_load(path.read_text())["partition"] == "main"
        again = launcher("doctor", "--write", "here")
        assert (again.code, again.out) == (2, "")
        assert "already exists" in again.err

    @pytest.mark.parametrize("name", ["none", "", "../x", "a/b", ".x", "a\nb"])
    def test_invalid_profile_names(self, launcher: Launcher, slurm: Callable[..., None], name: str) -> None:
        slurm()
        answer = launcher("doctor", "--write", name)
        assert (answer.code, answer.out) == (2, "")
        assert "--write is not a valid profile name" in answer.err

    def test_the_users_options_are_written(
        self, launcher: Launcher, slurm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slurm()
        Path("slurm-launch.yaml").write_text("modules: [gcc/12]\nmem: 4G\n")
        monkeypatch.setenv("SLAUNCH_INTERFACE", "ib0")
        code = 'if true; then\n\techo "\U0001f600: #"; fi'
        flags = {
            "venv": "/v", "conda-env": "ray", "load-env": code, "env": "A=1: #", "temp-dir": "/local",
            "port-range": "20000-20999", "ip-family": "4", "qos": "yes", "reservation": "0123", "constraint": "a&b",
            "gpu-directive": "gres", "container-runtime": "apptainer", "container-image": "/i.sif",
            "container-mounts": "/data:/data:ro", "srun-arg": "--mpi=none", "sbatch": "gres=nvme:1",
            "no-sbatch": "mem", "partition": "short",
            "num-nodes": "2",
        }  # fmt: skip
        answer = launcher("doctor", "--write", "here", *(f"--{key}={value}" for key, value in flags.items()))
        assert answer.code == 0, answer
        Path("slurm-launch.yaml").unlink()
        monkeypatch.delenv("SLAUNCH_INTERFACE")
        shown = json.loads(launcher("config", "show", "--json").out)["values"]
        found = {key: about["value"] for key, about in shown.items() if about["sources"] != ["built-in"]}
        lists = {"load-env": [code], "container-mounts": ["/data:/data:ro"], "no-sbatch": ["mem"]}
        lists |= {"srun-arg": ["--mpi=none"], "modules": ["gcc/12"]}
        maps = {"env": {"A": "1: #"}, "sbatch": {"gres": "nvme:1"}}
        wanted = {**flags, **lists, **maps, "interface": "ib0", "profile": "here"}
        del wanted["num-nodes"]
        assert found == wanted

    def test_a_second_profile_for_the_host(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm()
        assert "\nnote     profile" not in launcher("doctor", "--write", "first").out
        answer = launcher("doctor", "--write", "second")
        assert answer.code == 0
        assert (
            "\nnote     profile       second is not selected by hostname: first matches this host already" in answer.out
        )
        text = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles/second.yaml").read_text()
        assert "first matches this host already" in text
        assert "\n#hosts: [" in text
        shown = launcher("config", "show", "--json")
        assert shown.code == 0, shown.err
        assert json.loads(shown.out)["values"]["profile"]["value"] == "first"

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("x", "is not a whole number: 'x'"),
            ("0", "must be at least 1, not '0'"),
            ("-1", "is not a whole number: '-1'"),
        ],
    )
    def test_an_invalid_timeout(self, launcher: Launcher, text: str, problem: str) -> None:
        answer = launcher("doctor", f"--job-timeout={text}")
        assert (answer.code, answer.out) == (2, "")
        assert f"--job-timeout {problem}" in answer.err

    def test_a_job_on_more_nodes_than_exist(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        slurm()
        answer = launcher("doctor", "--job", "--nodes", "5")
        assert (answer.code, answer.out) == (2, "")
        assert "--nodes 5 is too many: the partition main has 2 nodes" in answer.err

    @pytest.mark.parametrize("flags", [["--job"], ["--job", "--write", "x"]])
    def test_a_job_without_a_controller(self, launcher: Launcher, slurm: Callable[..., None], flags: list[str]) -> None:
        slurm(scontrol="!echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1\n", stat="ext2\n")
        answer = launcher("doctor", *flags)
        assert answer.code == 4
        assert "problem  slurmctld" in answer.out
        assert "no profile is written and no job is run" in answer.err or flags == ["--job"]
        assert "doctor --job" not in answer.out
        assert list(Path.cwd().iterdir()) == []

    def test_a_job_whose_sbatch_gets_no_response(self, launcher: Launcher, slurm: Callable[..., None]) -> None:
        refuse = (
            '!cat >/dev/null; [[ $1 == --test-only ]] || { echo "Unable to contact slurm controller" >&2; exit 1; }\n'
        )
        slurm(sbatch=refuse, stat="ext2\n")
        answer = launcher("doctor", "--job")
        assert answer.code == 4
        assert "problem  job " in answer.out
        assert "no job is run" in answer.err
        assert "doctor --job" not in answer.out, "the hint is pointless here"
        assert "doctor --job" in launcher("doctor").out
        assert list(Path.cwd().iterdir()) == []

    def test_resources_of_an_experiment_are_ignored_but_flags_count(
        self, launcher: Launcher, slurm: Callable[..., None]
    ) -> None:
        slurm(sbatch="!cat >>submitted\n")
        Path("slurm-launch.yaml").write_text("mem: 900G\nnum-gpus: 9\npartition: short\narray: 0-9\n")
        assert launcher("doctor", "-c", "3").code == 0
        submitted = Path("submitted").read_text()
        assert "#SBATCH --partition=short" in submitted
        assert "#SBATCH --cpus-per-task=3" in submitted
        assert not any(text in submitted for text in ("900G", ":9", "=9", "array"))

    def test_the_job_uses_the_partition_and_account_of_the_profile(self) -> None:
        assert with_partition_and_account(SPEC, query_fake()) == SPEC, "the cluster's default need not be named"
        text = answers.PARTITIONS.replace("Default=YES", "Default=NO")
        site = query_fake({"scontrol show partition": text, "scontrol show config": answers.WITH_ACCOUNTS})
        there = with_partition_and_account(SPEC, site)
        assert (there.partition, there.account) == ("main", "lab")
        chosen = SPEC.model_copy(update={"partition": "short", "account": "mine"})
        assert with_partition_and_account(chosen, site) == chosen

    def test_the_job_is_small(self) -> None:
        site, spec = query_fake(), SPEC.model_copy(update={"num_nodes": 64, "array": "0-9"})
        small = probe_spec(spec, {}, site)
        assert (small.nodes, small.time, small.array) == (2, "00:05:00", None)
        wide = replace(site, partitions=[Partition("main", default=True, nodes=99)])
        assert probe_spec(spec, {"num_nodes": "64"}, wide).nodes == 64
        assert probe_spec(SPEC.model_copy(update={"partition": "short"}), {}, site).time == "00:01:00"
        site.partitions = [Partition("main", default=True, nodes=1)]
        assert probe_spec(spec, {}, site).nodes == 1, "there is only one"
        site.partitions = [Partition("main", default=True, nodes=4, max_nodes=1)]
        assert probe_spec(spec, {}, site).nodes == 1, "a job can have only one"
        with pytest.raises(UsageError, match="main allows at most 1 node per job"):
            probe_spec(spec, {"num_nodes": "64"}, site)

    def test_a_wrong_option(self, launcher: Launcher, tools: Callable[..., None]) -> None:
        tools()
        assert launcher("doctor", "--mem", "x").code == 2
