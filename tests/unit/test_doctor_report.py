"""The doctor: this host, and the profile."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from slurm_launch import LaunchSpec
from slurm_launch.config import files as config_files
from slurm_launch.config import resolve
from slurm_launch.doctor import cluster_advice, node_advice, profile_writer, sbatch_trials, this_host
from slurm_launch.doctor.cluster_facts import ClusterFacts
from slurm_launch.rendering.templates import TEMPLATES
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm.client import Probe
from slurm_launch.slurm.site import Node, Partition
from slurm_launch.spec import container_runtimes
from tests.unit import doctor_answers as answers
from tests.unit.doctor_answers import FakeRunner, about, malformed, one, query_fake


class TestHost:
    @pytest.mark.parametrize(
        ("kind", "status"),
        [("nfs", "ok"), ("lustre", "ok"), ("gpfs", "ok"), ("fhgfs", "ok"), ("tmpfs", "note"), ("ext2/ext3", "note")],
    )
    def test_file_systems(self, kind: str, status: str) -> None:
        probe = Probe({"PATH": ""}, FakeRunner({"stat -f": f"{kind}\n", "ip -o addr": answers.ADDRESSES}))
        findings = this_host.check_host(probe, {"run-dir": "/no/such/runs", "cwd": "/no/such/runs"})
        assert one(findings, "run-dir").status == status
        assert kind in one(findings, "run-dir").text
        assert about(findings, "cwd") == [], "each directory once"
        assert one(findings, "network").text == "br0 10.77.0.1, fd77::1"
        assert one(findings, "ray").status == "note"

    def test_virtual_interfaces_are_those_that_the_script_ignores(self) -> None:
        for template in ("parts/nodes.sh", "doctor.sh.j2"):
            patterns = re.findall(r"\$2 !?~ /\^\(([^)]*)\)/", (TEMPLATES / template).read_text())
            assert patterns == [this_host.VIRTUAL_INTERFACES.pattern], template

    def test_container_runtimes_are_those_that_the_probe_job_looks_for(self) -> None:
        found = re.search(r"for runtime in (.*); do", (TEMPLATES / "doctor.sh.j2").read_text())
        assert found
        assert found[1].split() == list(this_host.RUNTIMES)
        programs = {kind(name).program: name for name, kind in container_runtimes.RUNTIMES.items()}
        assert {program: name for program, name in programs.items() if program} == this_host.RUNTIMES

    def test_several_networks_and_none(self) -> None:
        second = answers.ADDRESSES + "5: ib0    inet 10.88.0.1/16 scope global ib0\\  valid_lft forever\n"
        found = one(this_host.check_host(Probe({}, FakeRunner({"ip -o addr": second})), {}), "network")
        assert (found.status, found.text) == ("note", "2 networks here: br0 10.77.0.1, fd77::1; ib0 10.88.0.1")
        assert "--interface" in str(found.hint)
        assert one(this_host.check_host(Probe({}, FakeRunner()), {}), "network").status == "note", "no `ip` here"

    def test_limits(self) -> None:
        assert [finding.status for finding in this_host.check_limits(20000, -1)] == ["ok"]
        (few,) = this_host.check_limits(1024, 100)
        assert few.text == "at most 1024 open files (ulimit -Hn) and 100 processes (ulimit -Hu)"
        assert this_host.check_ports(1024, 65535).status == "note"
        assert this_host.check_ports(32768, 60999).status == "ok"

    @pytest.mark.parametrize(
        ("text", "status"),
        [("ray, version 2.60.0", "ok"), ("2.52.0rc1", "ok"), ("2.51.9", "note"), ("2.39.0", "problem"), ("?", "note")],
    )
    def test_versions_of_ray(self, text: str, status: str) -> None:
        assert this_host.check_ray_version(text).status == status

    def test_the_version_of_ray_is_read_without_starting_it(self, tmp_path: Path) -> None:
        program = tmp_path / "bin/ray"
        program.parent.mkdir()
        program.touch(0o755)
        runner = FakeRunner({str(program): "ray, version 2.40.0\n"})
        probe = Probe({"PATH": str(program.parent)}, runner)
        assert one(this_host.check_host(probe, {}), "ray").text == "2.40.0, without token authentication"
        assert f"{program} --version" in runner.calls
        (tmp_path / "lib/python3.12/site-packages/ray-2.60.0.dist-info").mkdir(parents=True)
        assert this_host.installed_ray(str(program)) == "2.60.0"


def facts(cluster: ClusterFacts | None = None, **changes: Any) -> profile_writer.ProfileFacts:
    plain = profile_writer.ProfileFacts(
        "here",
        date(2026, 11, 16),
        ("login",),
        cluster or query_fake(),
        sbatch_trials.SbatchTrials(gpu_directive="gres"),
    )
    return replace(plain, **changes)


class TestProfile:
    OWN_KEYS = ("hosts", "partitions", "gpu-types", "container-runtimes")  # those that are not options

    def read(self, given: profile_writer.ProfileFacts) -> dict[str, Any]:
        text = profile_writer.profile_text(given)
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
            "partitions": {
                "main": {"max-nodes": 2, "max-gpus": 2},
                "short": {"max-time": "00:01:00", "max-nodes": 2, "max-gpus": 2},
            },
        }

    def test_every_value(self) -> None:
        site = query_fake({"scontrol show config": answers.WITH_ACCOUNTS})
        site.partitions = [Partition("no", max_nodes=4, max_time="1-00:00:00"), Partition("0123", default=True)]
        site.nodes = [
            *(Node(f"gpu{number}", ("no",), {"a100": 4}) for number in range(3)),
            *(Node(f"big{number}", ("0123",), {"h100": 8}) for number in range(2)),
            Node("cpu1", ("0123",)),
        ]
        report = node_advice.NodeReport(("n1",), (), "ib0", "It is faster.", "/var/tmp", "It is larger.")
        found = self.read(
            facts(
                site, trials=sbatch_trials.SbatchTrials(time="01:00:00"), runtimes=("pyxis", "apptainer"), nodes=report
            )
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
        found = self.read(facts(trials=sbatch_trials.SbatchTrials(time="01:00:00")))
        assert found["time"] == "01:00:00"
        assert found["partitions"]["short"] == {
            "max-time": "00:01:00",
            "time": "00:01:00",
            "max-nodes": 2,
            "max-gpus": 2,
        }
        assert "time" not in found["partitions"]["main"]

    def test_the_users_options(self) -> None:
        chosen = {"partition": "short", "account": "mine", "temp-dir": "/local", "gpu-directive": "none", "venv": "/v"}
        report = node_advice.NodeReport(("n1",), temp_dir="/var/tmp", temp_dir_reason="It is larger.")
        given = facts(chosen=chosen, nodes=report)
        assert {key: self.read(given)[key] for key in chosen} == chosen
        assert profile_writer.profile_text(given).count("# Set by you.\n") == len(chosen)
        assert self.read(facts(chosen={"partition": "nosuch"}))["partition"] == "main", "it could never be used"

    def test_a_runtime_set_by_the_user_is_listed(self) -> None:
        found = self.read(facts(runtimes=("podman",), chosen={"container-runtime": "apptainer"}))
        assert (found["container-runtime"], found["container-runtimes"]) == ("apptainer", ["apptainer", "podman"])
        found = self.read(facts(runtimes=("podman",), chosen={"container-runtime": "none"}))
        assert found["container-runtimes"] == ["podman"]

    def test_options_that_a_profile_contains(self) -> None:
        own = {
            "modules": ["", "gcc"],
            "env": {"A": "1"},
            "venv": "v",
            "conda-env": "ray",
            "run-dir": "runs",
            "mem": "4G",
        }
        found = profile_writer.chosen_values({**own, "load-env": [""], "qos": None, "exp-name": "x"})
        assert found == {"modules": ["gcc"], "env": {"A": "1"}, "venv": os.path.abspath("v"), "conda-env": "ray"}
        assert profile_writer.chosen_values({"run-dir": "~/runs"}) == {"run-dir": os.path.expanduser("~/runs")}

    def test_reasons_for_a_limit_and_a_runtime(self) -> None:
        text = profile_writer.profile_text(facts(runtimes=("apptainer",)))
        assert "    max-nodes: 2  # all of its nodes\n" in text
        assert "In order of preference: Pyxis, apptainer, singularity" in text
        site = query_fake({"scontrol show partition": answers.PARTITIONS.replace("MaxNodes=UNLIMITED", "MaxNodes=1")})
        assert "    max-nodes: 1\n" in profile_writer.profile_text(facts(site))

    def test_a_limit_that_cannot_be_read(self) -> None:
        site = query_fake({"scontrol show partition": answers.PARTITIONS.replace("00:01:00", "weird")})
        given = facts(site, trials=sbatch_trials.SbatchTrials(time="01:00:00"))
        assert self.read(given)["partitions"]["short"] == {"max-nodes": 2, "max-gpus": 2}

    def test_invalid_names_are_ignored(self) -> None:
        text = answers.PARTITIONS.replace("PartitionName=main", "PartitionName=\x1b[1m")
        assert [found.name for found in slurm_site.parse_partitions(text)] == ["short"]
        assert slurm_site.parse_names("lab|\n\x1b\n" + "9" * 5000) == ("lab",)
        assert slurm_site.parse_gpus("gpu:\x1b:2,gpu:a100:4") == {"a100": 4}

    def test_malformed_output_gives_a_valid_profile(self) -> None:
        random = Random(1)
        target = config_files.profile_target("here", "--write", os.environ)
        target.parent.mkdir(parents=True)
        for _ in range(100):
            texts = {
                "scontrol show config": answers.WITH_ACCOUNTS,
                "scontrol show partition": answers.PARTITIONS,
                "scontrol show node": answers.NODES,
                "sacctmgr -n -P show assoc": "lab||\n",
                "sacctmgr -n -P show user": "lab\n",
            }
            changes = {key: malformed(text, random) for key, text in texts.items()}
            site = query_fake(changes)
            cluster_advice.check_cluster(site)
            if site.partitions:
                text = profile_writer.profile_text(facts(site, trials=sbatch_trials.SbatchTrials(time="01:00:00")))
                target.write_text(text)
                flags = {"exp_name": "x", "command": "true", "profile": "here"}
                found = resolve.resolve(flags, os.environ, Path.cwd())
                assert not found.problems, (changes, text)
                found.spec()

    def test_memory_is_explained_if_a_job_would_take_all(self) -> None:
        text = answers.CONFIG.replace("DefMemPerCPU            = 512", "DefMemPerNode = UNLIMITED")
        assert "#mem-per-cpu: 4G" in profile_writer.profile_text(facts(query_fake({"scontrol show config": text})))
        assert "mem-per-cpu" not in profile_writer.profile_text(facts())

    @pytest.mark.parametrize(
        ("name", "pattern"),
        [
            ("login1.site.example", "login[0-9]*.site.example"),
            ("n1", "n[0-9]*"),
            ("login01-ib", "login01-ib"),
            ("h100-login", "h100-login"),
            ("c3login2.x9.example", "c3login[0-9]*.x9.example"),
            ("head", "head"),
            ("10.0.0.1", "10.0.0.1"),
            ("17", "17"),
        ],
    )
    def test_hosts(self, name: str, pattern: str) -> None:
        assert profile_writer.host_pattern(name) == pattern
        assert fnmatchcase(name, pattern)
        assert not fnmatchcase("notebook", pattern)

    def test_hosts_with_a_domain(self) -> None:
        assert profile_writer.host_patterns(("login1", "login1.site.example")) == ["login[0-9]*.site.example"]
        assert profile_writer.host_patterns(("login1",)) == ["login[0-9]*"]

    @pytest.mark.parametrize(
        ("hosts", "taken"),
        [
            ("[login1]", True),
            ("[LOGIN*]", True),
            ("[login7]", True),
            ("login1.site.example", True),
            ("[other, log]", False),
            ("[login1", False),
            ("", False),
        ],
    )
    def test_a_host_that_has_a_profile(self, tmp_path: Path, hosts: str, taken: bool) -> None:
        folder = tmp_path / "etc/xdg/slurm-launch/profiles"
        folder.mkdir(parents=True)
        (folder / "first.yaml").write_text(f"hosts: {hosts}\n")
        names = ("login1", "login1.site.example") if "site" in hosts else ("login1",)
        assert profile_writer.matching_profiles(names, os.environ) == ["first"] * taken
        assert profile_writer.matching_profiles(("elsewhere",), os.environ) == []

    def test_gpu_types_only_if_names_imply_them(self) -> None:
        site = ClusterFacts()
        site.nodes = [Node("n1", gpus={"a100": 1}), Node("n2", gpus={"h100": 1})]
        assert profile_writer.gpu_types(site) == {}
        site.nodes = [Node("a1", gpus={"a100": 1}), Node("h1", gpus={"h100": 1}), Node("h2", gpus={"h100": 2})]
        assert profile_writer.gpu_types(site) == {"^a[0-9]*$": "a100", "^h[0-9]*$": "h100"}
        mixed = [Node("m1", gpus={"a100": 1}), Node("m2", gpus={"h100": 1})]
        assert profile_writer.gpu_types(replace(site, nodes=[*site.nodes, *mixed])) == {}, "the prefix m is ambiguous"
        site.nodes.append(Node("h3"))
        assert profile_writer.gpu_types(site) == {}, "h3 has none"
