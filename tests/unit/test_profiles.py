"""Profiles: inheritance, selection, and how their facts affect a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, render
from slurm_launch.config import profile_files
from slurm_launch.config.profile_keys import FACTS
from slurm_launch.config.resolve import Resolution, resolve
from slurm_launch.errors import InvalidSpec
from slurm_launch.slurm.times import seconds
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded

Launcher = Callable[..., Any]  # tests/unit/conftest.py
ROOT = Path(__file__).parents[2]
NEEDED = {"exp_name": "test", "command": "python train.py"}
GOOD = ("--exp-name", "test", "--command", "python train.py")


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def profile(name: str, text: str) -> Path:
    return written(Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles", f"{name}.yaml"), text)


def machine_profile(name: str, text: str) -> Path:
    return written(Path(os.environ["XDG_CONFIG_DIRS"], "slurm-launch/profiles", f"{name}.yaml"), text)


def machine(text: str) -> Path:
    return written(Path(os.environ["XDG_CONFIG_DIRS"], "slurm-launch/slurm-launch.yaml"), text)


def found(embedded: EmbeddedSpec | None = None, **flags: Any) -> Resolution:
    return resolve({**({} if embedded else NEEDED), **flags}, os.environ, Path.cwd(), embedded)


def with_profile(text: str, **flags: Any) -> Resolution:
    """A job with a profile p of this text."""
    profile("p", text)
    return found(profile="p", **flags)


def round_trip(resolution: Resolution) -> EmbeddedSpec:
    """The values read back from a script's header."""
    spec = LaunchSpec(exp_name="x", command="y")
    return read_embedded(render(spec, embedded=EmbeddedSpec(resolution.own, resolution.site)), "here")


def problems(resolution: Resolution) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        resolution.spec()
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


class TestExtends:
    def test_a_chain_with_a_source_for_every_value(self) -> None:
        low = machine_profile("low", "account: low\nqos: low\ntime: 1\nmodules: [low]")
        middle = profile("middle", "extends: low\nqos: middle\ntime: 2\nmodules: [middle]")
        high = profile("high", "time: 3\nextends: middle")
        resolution = found(profile="high")
        spec = resolution.spec()
        assert (spec.account, spec.qos, spec.time, spec.modules) == ("low", "middle", "3", ("low", "middle"))
        assert resolution.sources["account"] == (f"profile low ({low}:1)",)
        assert resolution.sources["qos"] == (f"profile middle ({middle}:2)",)
        assert resolution.sources["time"] == (f"profile high ({high}:1)",)
        read = [file.path for file in resolution.files if file.state == "read"]
        assert read == [str(high), str(middle), str(low)], "highest precedence first"

    def test_the_users_profiles_are_searched_first(self) -> None:
        machine_profile("base", "account: machine")
        machine_profile("p", "extends: base")
        profile("base", "account: user")
        assert found(profile="p").spec().account == "user"

    def test_a_profile_may_extend_the_one_that_it_hides(self) -> None:
        machine_profile("p", "account: machine\nqos: machine")
        profile("p", "extends: p\nqos: mine")
        spec = found(profile="p").spec()
        assert (spec.account, spec.qos) == ("machine", "mine")

    def test_a_cycle_is_reported(self) -> None:
        profile("a", "extends: b")
        profile("b", "extends: c")
        path = profile("c", "qos: x\nextends: a")
        (problem,) = problems(found(profile="a"))
        assert "in a cycle: a -> b -> c -> a" in problem
        assert f"at: profile c ({path}:2)" in problem
        profile("self", "extends: self")
        assert "in a cycle: self -> self" in problems(found(profile="self"))[0]

    def test_a_missing_profile(self) -> None:
        profile("juwels", "")
        path = profile("mine", "extends: juwles")
        (problem,) = problems(found(profile="mine"))
        assert problem.startswith("extends names a profile that does not exist: 'juwles'")
        assert f"at: profile mine ({path}:1)" in problem
        assert "did you mean 'juwels'?" in problem

    @pytest.mark.parametrize("text", ["[a]", "../x", "{a: b}", '""'])
    def test_an_invalid_profile_name(self, text: str) -> None:
        (problem,) = problems(with_profile(f"extends: {text}"))
        assert "extends is not a valid profile name" in problem

    def test_facts_are_inherited_but_not_the_hosts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(profile_files, "host_names", lambda full: ["login1"])
        profile("base", "hosts: [other]\nnode-prefix: com-\ncpu-image: base\ngpu-types: {'a.*': base, 'b.*': base}")
        profile("top", "extends: base\nhosts: [login*]\ncpu-image: top\ngpu-types: {'a1': top, 'b.*': top}")
        resolution = found()
        assert resolution.values["profile"] == "top"
        assert list(resolution.site_facts.gpu_types or ()) == ["a1", "b.*", "a.*"], "the first that matches wins"
        assert resolution.site_facts.as_json() == {
            "gpu-types": {"a1": "top", "b.*": "top", "a.*": "base"}, "node-prefix": "com-", "cpu-image": "top",
        }  # fmt: skip


class TestHosts:
    @pytest.fixture(autouse=True)
    def host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def names(full: bool) -> list[str]:
            return ["Login1", *(["login1.cluster.example.org"] if full else [])]

        monkeypatch.setattr(profile_files, "host_names", names)

    @pytest.mark.parametrize("pattern", ["login1", "LOGIN?", "log*", "*.example.org", "[lx]ogin[0-9]"])
    def test_a_pattern_selects_a_profile(self, pattern: str) -> None:
        path = profile("juwels", f'hosts: ["nowhere", "{pattern}"]\naccount: site')
        profile("other", "hosts: login2\naccount: other")
        resolution = found()
        spec = resolution.spec()
        assert (spec.profile, spec.account) == ("juwels", "site")
        assert resolution.sources["account"] == (f"profile juwels ({path}:2)",)
        assert resolution.sources["profile"][0].startswith("host name ")

    def test_an_explicit_choice_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        profile("here", "hosts: ['*']\naccount: here")
        profile("mine", "account: mine")
        assert found().spec().account == "here"
        assert found(profile="mine").spec().account == "mine"
        Path("slurm-launch.yaml").write_text("profile: mine")
        assert found().spec().account == "mine"
        monkeypatch.setenv("SLAUNCH_PROFILE", "here")
        assert found().spec().account == "here"

    @pytest.mark.parametrize("nothing", ["", "none"])
    def test_none_is_a_choice_too(self, nothing: str, monkeypatch: pytest.MonkeyPatch) -> None:
        profile("here", "hosts: ['*']\naccount: here")
        machine("qos: machine")
        resolution = found(profile=nothing)
        spec = resolution.spec()
        assert (spec.account, spec.profile, spec.qos) == (None, None, "machine")
        assert resolution.sources["profile"] == ("flag --profile",)
        again = found(round_trip(resolution)).spec()
        assert again == spec, "also from the script"
        monkeypatch.setenv("SLAUNCH_PROFILE", nothing)
        assert found().spec().account == ("here" if nothing == "" else None), "an empty variable counts as unset"

    def test_the_users_profiles_take_precedence(self) -> None:
        machine_profile("theirs", "hosts: ['*']\naccount: theirs")
        assert found().spec().account == "theirs"
        profile("mine", "hosts: login*\naccount: mine")
        assert found().spec().account == "mine"

    def test_a_hidden_profile_does_not_count(self) -> None:
        machine_profile("p", "hosts: ['*']\naccount: theirs")
        profile("p", "account: mine")
        assert found().spec().account is None

    def test_two_matches_in_one_directory_are_an_error(self) -> None:
        profile("b", "hosts: ['*']")
        profile("a", "hosts: login1")
        (problem,) = problems(found())
        assert problem.startswith("several profiles are for the host Login1: a, b")
        assert "choose one: --profile NAME" in problem
        assert found(profile="none").spec()

    def test_a_broken_profile_that_is_not_selected_is_a_warning(self) -> None:
        path = profile("broken", "hosts: [*\naccount: [")
        profile("odd", "hosts: {a: b}")
        profile("unrelated", "acount: x\nqos: [")
        profile("here", "hosts: login1\naccount: here")
        resolution = found()
        assert resolution.spec().account == "here"
        first, second = resolution.warnings
        assert first.startswith("profile broken is not considered for this host: not valid YAML")
        assert str(path) in first
        assert "profile odd" in second
        assert found(profile="none").warnings == (), "profiles are not searched"
        profile(".#here", "hosts: [")
        (path.parent / "folder.yaml").mkdir()
        assert len(found().warnings) == 2, "neither an editor's file nor a folder is a profile"

    def test_a_broken_profile_for_this_host_is_an_error(self) -> None:
        profile("here", "hosts: login1\nacount: here")
        assert "unknown key 'acount'" in problems(found())[0]

    def test_config_path_shows_why_a_profile_is_read(self, launcher: Launcher) -> None:
        path = profile("here", "hosts: login1\nextends: base")
        profile("base", "")
        lines = launcher("config", "path").out.splitlines()
        (line,) = [line for line in lines if str(path) in line]
        assert line.endswith("(chosen by the host name Login1)")
        assert "chosen" not in "".join(lines).replace(line, "")

    def test_a_script_keeps_its_site_on_another_host(self) -> None:
        profile("here", "hosts: login1\naccount: here")
        first = found()
        profile("here", "hosts: login1\naccount: changed")
        again = found(round_trip(first))
        assert again.spec() == first.spec()
        assert again.spec().profile == "here"


def test_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str) -> Callable[[], os.uname_result]:
        return lambda: os.uname_result(("Linux", name, "", "", ""))

    monkeypatch.setattr(os, "uname", named("login1.example.org"))
    assert profile_files.host_names(full=False) == ["login1", "login1.example.org"]
    monkeypatch.setattr(os, "uname", named("login1"))
    monkeypatch.setattr("socket.getfqdn", lambda name: f"{name}.example.net")
    assert profile_files.host_names(full=False) == ["login1"], "no DNS query"
    assert profile_files.host_names(full=True) == ["login1", "login1.example.net"]


def test_nothing_is_imported_for_a_site_that_says_nothing() -> None:
    code = (
        "import sys, os, pathlib; from slurm_launch.config.resolve import resolve;"
        "resolve({'exp_name': 'a', 'command': 'b'}, os.environ, pathlib.Path.cwd()).spec();"
        "lazy = ('yaml', 'slurm_launch.config.profile', 'slurm_launch.config.profile_rules');"
        "print(*[name for name in lazy if name in sys.modules])"
    )

    def imported() -> str:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, check=True).stdout

    assert imported().split() == []
    profile("p", "account: x\n# hosts: [a]\n")
    assert imported().split() == [], "a profile that is for no host is not even parsed"
    profile("q", "hosts: [a]")
    assert "yaml" in imported()


class TestPartitions:
    TEXT = """\
partition: cpu
time: 10
modules: [base]
partitions:
  gpu:
    time: 20
    modules: [cuda]
    gpu-type: a100
    max-time: 1-00:00:00
  cpu: {account: cpu, cpus_per_task: 4}
  bare:
"""

    def test_the_options_of_the_jobs_partition_apply(self) -> None:
        first = with_profile(self.TEXT).spec()
        assert (first.partition, first.account, first.cpus_per_task, first.time) == ("cpu", "cpu", 4, "10")
        resolution = with_profile(self.TEXT, partition="gpu", num_gpus=1)
        spec = resolution.spec()
        assert (spec.account, spec.time, spec.modules, spec.gpu_type) == (None, "20", ("base", "cuda"), "a100")
        path = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles/p.yaml")
        assert resolution.sources["time"] == (f"profile p ({path}:6, partition gpu)",)
        assert with_profile(self.TEXT, partition="bare").spec().time == "10"
        assert with_profile(self.TEXT, partition="elsewhere").spec().time == "10"

    def test_the_users_values_override_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert with_profile(self.TEXT, partition="gpu", time="30").spec().time == "30"
        Path("slurm-launch.yaml").write_text("time: 40\npartition: gpu\nmodules: ['', mine]")
        spec = with_profile(self.TEXT).spec()
        assert (spec.time, spec.modules) == ("40", ("mine",))

    @pytest.mark.parametrize(
        "groups",
        [
            "{n: 2, gpus: 8, partition: 'big,short'}",
            "[{n: 2, gpus: 8, partition: 'big,short'}]",
            """['n=2,gpus=8,partition="big,short"']""",
        ],
    )
    def test_a_worker_group_can_be_a_mapping(self, groups: str) -> None:
        """As at the top level of a file, and the same after a round trip through the script's header."""
        resolution = with_profile(f"partitions: {{gpu: {{worker-group: {groups}}}}}", partition="gpu")
        expected = ('n=2,gpus=8,partition="big,short"',)
        assert resolution.spec().worker_group == expected
        assert with_profile(f"worker-group: {groups}").spec().worker_group == expected
        assert found(round_trip(resolution)).spec().worker_group == expected

    def test_they_override_the_profile_whatever_their_file(self) -> None:
        """The machine's options for a partition are more specific than a profile's options for all jobs."""
        machine("partitions: {gpu: {time: 5, qos: low, modules: [m]}}")
        spec = with_profile("time: 10\npartitions: {gpu: {qos: high, modules: [p]}}", partition="gpu").spec()
        assert (spec.time, spec.qos, spec.modules) == ("5", "high", ("m", "p"))

    def test_an_alternative_replaces_those_of_the_profile(self) -> None:
        spec = with_profile("mem: 1G\npartitions: {gpu: {mem-per-gpu: 2G}}", partition="gpu").spec()
        assert (spec.mem, spec.mem_per_gpu) == (None, "2G")

    def test_the_script_keeps_the_other_partitions_too(self) -> None:
        first = with_profile(self.TEXT)
        assert found(round_trip(first)).spec() == first.spec()
        again = found(round_trip(first), partition="gpu", num_gpus=1)
        spec = again.spec()
        assert (spec.account, spec.time, spec.gpu_type, spec.cpus_per_task) == (None, "20", "a100", None)
        assert again.sources["time"] == ("here (its site, partition gpu)",)
        assert found(round_trip(again)).spec() == spec


class TestHostsOfTheJob:
    TYPES = "gpu-types: {'gpu0[12]': a100, 'gpu.*': h100, 'gpu01': never}\nnode-types: {'gpu.*': fat, 'cpu.*': thin}"

    def test_the_gpu_type_follows_from_the_nodes(self) -> None:
        resolution = with_profile(self.TYPES, node="gpu[01-02]", num_gpus=2)
        assert resolution.spec().gpu_type == "a100"
        assert resolution.sources["gpu_type"][0].startswith("profile p (")
        assert resolution.warnings == ()
        assert with_profile(self.TYPES, node="gpu03", num_gpus=2).spec().gpu_type == "h100"

    def test_only_for_a_job_with_gpus_and_no_other_type(self) -> None:
        assert with_profile(self.TYPES, node="gpu01").spec().gpu_type is None
        assert with_profile(self.TYPES, num_gpus=1).spec().gpu_type is None
        assert with_profile(self.TYPES, node="gpu01", num_gpus=1, gpu_type="mine").spec().gpu_type == "mine"
        for node in ("xgpu01", "gpu01x"):
            resolution = with_profile("gpu-types: {gpu01: a100}", node=node, num_gpus=1)
            assert resolution.spec().gpu_type is None, "the whole name"

    def test_the_script_keeps_their_order(self) -> None:
        for types in (
            "{'gpu.1': one, 'gpu.*': any}",
            "{'gpu[0-9]1': one, 'gpu.*': any}",
            "[{'gpu.1': one}, {g.*: any}]",
        ):
            first = with_profile(f"gpu-types: {types}", node="gpu01", num_gpus=1)
            assert first.spec().gpu_type == "one"
            assert found(round_trip(first)).spec().gpu_type == "one"

    def test_different_gpu_types_cause_a_warning(self) -> None:
        resolution = with_profile(self.TYPES, node="gpu[01-03],other", num_gpus=1)
        assert resolution.spec().gpu_type is None
        assert resolution.warnings == (
            "--node has different GPUs, so no type is requested: a100 (gpu01, gpu02); h100 (gpu03); unknown (other)",
        )

    def test_mixed_node_types_cause_a_warning(self) -> None:
        resolution = with_profile(self.TYPES, node="gpu[01-05],cpu1,other")
        assert resolution.warnings == (
            "--node has nodes of different types: fat (gpu01, gpu02, gpu03 and 2 more); thin (cpu1); unknown (other)",
        )
        assert with_profile(self.TYPES, node="gpu[01-05],other").warnings == ()

    @pytest.mark.parametrize(
        ("node", "meant"),
        [
            ("NODE[01-02]", "com-[01-02]"),
            ("[01-02]", "com-[01-02]"),
            ("NODE01,NODE[03,05]", "com-01,com-[03,05]"),
            ("gpu[01,02],[3,4]", "gpu[01,02],com-[3,4]"),
            ("NODELIST1", "NODELIST1"),
            ("gpu01", "gpu01"),
        ],
    )
    def test_the_prefix(self, node: str, meant: str) -> None:
        path = profile("p", "node-prefix: com-")
        resolution = found(profile="p", node=node, exclude=node)
        assert (resolution.spec().node, resolution.spec().exclude) == (meant, meant)
        assert resolution.own["node"] == node, "another cluster has another prefix"
        expected = [
            f"{flag} {node} means {meant} here: node-prefix, profile p ({path}:1)" for flag in ("--node", "--exclude")
        ]
        assert list(resolution.notes) == (expected if meant != node else [])
        assert found(node=node).spec().node == node

    def test_an_invalid_hostlist_is_left_to_the_spec(self) -> None:
        (problem,) = problems(with_profile(self.TYPES, node="gpu[5-1]", num_gpus=1))
        assert problem.startswith("--node is not a list of hosts")


class TestImages:
    BOTH = "cpu-image: /images/cpu.sqsh\ngpu-image: /images/gpu.sqsh"

    def test_by_gpus(self) -> None:
        resolution = with_profile(self.BOTH)
        assert resolution.spec().image == "/images/cpu.sqsh"
        assert resolution.sources["container_image"][0].endswith("p.yaml:1)")
        assert with_profile(self.BOTH, num_gpus=1).spec().image == "/images/gpu.sqsh"
        assert with_profile("gpu-image: one").spec().image == "one"
        assert with_profile("cpu-image: one", num_gpus=1).spec().image == "one"

    def test_an_explicit_image_wins(self) -> None:
        assert with_profile(self.BOTH, container_image="mine").spec().image == "mine"
        spec = with_profile(self.BOTH, head_image="head").spec()
        assert (spec.image, spec.container_image) == ("head", None)
        assert with_profile(f"{self.BOTH}\ncontainer-image: all").spec().image == "all"
        text = f"{self.BOTH}\npartition: x\npartitions: {{x: {{container-image: x}}}}"
        assert with_profile(text).spec().image == "x"

    def test_they_can_be_reset(self) -> None:
        Path("slurm-launch.yaml").write_text("container-image:")
        assert with_profile(self.BOTH).spec().image is None
        Path("slurm-launch.yaml").unlink()
        assert with_profile(self.BOTH, container_runtime="none").spec().container_image is None
        profile("base", self.BOTH)
        assert with_profile("extends: base\ncpu-image:").spec().image == "/images/gpu.sqsh"

    def test_the_script_keeps_both(self) -> None:
        first = with_profile(self.BOTH)
        assert found(round_trip(first)).spec() == first.spec()
        assert found(round_trip(first), num_gpus=2).spec().image == "/images/gpu.sqsh"


class TestUnusedOptions:
    TEXT = "gpu-type: a100\ncontainer-mounts: [/data]\ncontainer-home: true\ncontainer-runtime: apptainer"

    def test_those_of_the_site_are_dropped(self) -> None:
        resolution = with_profile(self.TEXT)
        spec = resolution.spec()
        assert (spec.gpu_type, spec.container_mounts, spec.container_home) == (None, (), False)
        (source,) = resolution.sources["gpu_type"]
        assert source.startswith("built-in (profile p (")
        assert source.endswith(" is for jobs with GPUs)")
        machine("gpu-type: v100\ncontainer-arg: [-x]")
        assert found().spec().gpu_type is None

    def test_they_are_used_by_a_job_that_needs_them(self) -> None:
        assert with_profile(self.TEXT, num_gpus=1).spec().gpu_type == "a100"
        spec = with_profile(self.TEXT, container_image="x").spec()
        assert (spec.container_mounts, spec.container_home) == (("/data:/data",), True)
        spec = with_profile(f"{self.TEXT}\ncontainer-image: x", container_runtime="none").spec()
        assert (spec.image, spec.container_mounts) == (None, ())

    def test_those_of_the_user_are_an_error(self) -> None:
        assert "--gpu-type has no effect without GPUs" in problems(with_profile(self.TEXT, gpu_type="h100"))[0]
        (problem,) = problems(with_profile(self.TEXT, container_mounts=["/mine"]))
        assert "--container-mounts has no effect without a container image" in problem

    def test_the_script_keeps_it(self) -> None:
        first = with_profile(self.TEXT)
        assert first.site["gpu-type"] == "a100"
        again = found(round_trip(first))
        assert again.spec() == first.spec()
        spec = found(round_trip(first), num_gpus=2, container_image="x").spec()
        assert (spec.gpu_type, spec.container_mounts) == ("a100", ("/data:/data",))
        profile("other", "qos: other")
        assert found(round_trip(first), profile="other", num_gpus=2).spec().gpu_type is None


class TestBadFacts:
    @pytest.mark.parametrize(
        ("text", "line", "expected"),
        [
            ("partions: {}", 1, ("unknown key 'partions'", "did you mean 'partitions'?")),
            ("qos: x\ngpu_tpyes: {}", 2, ("unknown key 'gpu_tpyes'", "did you mean 'gpu-types'?")),
            ("partitions: [gpu]", 1, ("partitions takes a mapping", "partitions: {gpu:")),
            ("partitions:\n  gpu: fast", 2, ("partitions takes a mapping, not 'fast'", "gpu: {time")),
            ("partitions:\n  gpu:\n    tiem: 1", 3, ("unknown key 'tiem'", "'time'")),
            ("partitions:\n  gpu:\n    max-tim: 1", 3, ("unknown key 'max-tim'", "'max-time'")),
            ("partitions:\n  gpu: {partition: x}", 2, ("partition cannot be set for a partition", "remove it")),
            ("partitions:\n  gpu: {extends: x}", 2, ("unknown key 'extends'", "")),
            ("partitions:\n  gpu: {max-time: soon}", 2, ("max-time is not a valid Slurm time", "1:30:00")),
            ("partitions:\n  gpu: {max-nodes: 0}", 2, ("max-nodes is not a number of nodes: '0'", "whole number")),
            (
                f"partitions:\n  gpu: {{max-nodes: {'9' * 5000}}}",
                2,
                ("max-nodes is not a number of nodes", "whole number"),
            ),
            (
                f"partitions:\n  gpu: {{max-time: {'9' * 5000}}}",
                2,
                ("max-time is not a valid Slurm time", "1-00:00:00"),
            ),
            ("partitions:\n  gpu: {max-gpus: \u0663}", 2, ("max-gpus is not a number of gpus", "whole number")),
            ("max-time: 1", 1, ("max-time is a limit of a partition", "it belongs under partitions: NAME:")),
            ("qos: a\nmax_nodes: 1", 2, ("max_nodes is a limit of a partition", "under partitions: NAME:")),
            ("gpu-types: {'[[a]x': b}", 1, ("gpu-types has a regular expression", "nested set")),
            (f"node-prefix: {'a' * 65}", 1, ("node-prefix is not the beginning of a host name", "com-")),
            (
                "container-runtimes: pyxis, apptainer",
                1,
                ("invalid value: 'pyxis, apptainer'", "write [pyxis, apptainer]"),
            ),
            ("container-runtimes: [pyxis apptainer]", 1, ("invalid value", "write [pyxis, apptainer]")),
            ("partitions:\n  gpu: {max-gpus: -1}", 2, ("max-gpus is not a number of gpus: '-1'", "whole number")),
            ("partitions:\n  gpu: {time: [1]}", 2, ("--time takes one value", "")),
            ("partitions:\n  gpu: {modules: {a: b}}", 2, ("--modules takes a list", "")),
            ("partitions:\n  gpu: {mem: 1G, mem-per-cpu: 1G}", 2, ("are mutually exclusive", "use one")),
            ("partitions:\n  gpu:\n  gpu:", 3, ("partitions has 'gpu' twice", "keep one")),
            ("partitions:\n  gpu: {max_gpus: 1, max-gpus: 2}", 2, ("max-gpus is set twice", "keep one")),
            ("gpu-types:\n  '[': a100", 2, ("gpu-types has a regular expression that is not valid: '['", "gpu[0-9]+")),
            ("gpu-types: {a: [b]}", 1, ("gpu-types has a value that is not text", "one text")),
            ("node-types:\n- {a: b}\n- {'[': b}", 3, ("node-types has a regular expression", "fix it")),
            ("node-types: [x]", 1, ("node-types takes a mapping", "a100")),
            ("node-types: x", 1, ("node-types takes a mapping", "a100")),
            ("node-prefix: com[", 1, ("node-prefix is not the beginning of a host name", "com-")),
            ("cpu-image: a b", 1, ("cpu-image is not an image", "ubuntu")),
            ("gpu-image: [x]", 1, ("gpu-image has a value that is not text", "one text")),
            ("container-runtimes: [docker]", 1, ("container-runtimes has an invalid value: 'docker'", "pyxis")),
            ("container-runtimes: [apptaine]", 1, ("has an invalid value: 'apptaine'", "did you mean 'apptainer'?")),
            ("hosts: {a: b}", 1, ("hosts takes a list", "[ONE, TWO]")),
            ("hosts: [a]\nhosts: [b]", 2, ("hosts is set twice", "keep one")),
            ("partitions: {a: &x {env: {A: *x}}}", 1, ("partitions is nested too deeply", "docs/profiles.md")),
            ("partitions: {a: {modules: [{b: c}]}}", 1, ("--modules has an item that is not plain text", "one text")),
            (
                "partitions: {a: {modules: [b, ~]}}",
                1,
                ("--modules has an item that is not plain text: None", "one text"),
            ),
            ("partitions: {a: {modules: {b: c}}}", 1, ("--modules takes a list", "[ONE, TWO]")),
            ("partitions: {a: {env: {A: {b: c}}}}", 1, ("--env has an item that is not plain text", "one text")),
            ("partitions: {a: {sweep: {lr: [~, 2]}}}", 1, ("--sweep has a value that is neither text nor a", "")),
            (
                "partitions: {a: {worker-group: [[n=1]]}}",
                1,
                ("--worker-group has an item that is not plain", "one text"),
            ),
            ("partitions: {a: {worker-group: {gpu: 1}}}", 1, ("--worker-group has an unknown key: 'gpu'", "'gpus'")),
            ("partitions: {a: {env: {A: !!python/name:os.system x}}}", 1, ("has the YAML tag", "plain value")),
            ("partitions: {? [a] : b}", 1, ("partitions has a key that is not a plain name", "KEY: VALUE")),
        ],
    )
    def test_the_error_names_the_line(self, text: str, line: int, expected: tuple[str, str]) -> None:
        path = profile("p", text)
        (problem,) = problems(found(profile="p"))
        assert expected[0] in problem
        assert f"{path}:{line}" in problem
        assert expected[1] in problem

    @pytest.mark.parametrize("key", FACTS)
    def test_a_project_file_cannot_have_facts(self, key: str) -> None:
        Path("slurm-launch.yaml").write_text(f"{key.replace('_', '-')}: x")
        (problem,) = problems(found())
        assert f"{key.replace('_', '-')} is not allowed in this file" in problem
        assert "put it in a profile" in problem

    def test_a_project_file_cannot_have_limits(self) -> None:
        Path("slurm-launch.yaml").write_text("max-time: 1")
        (problem,) = problems(found())
        assert "it belongs under partitions: NAME: in a profile" in problem

    def test_the_machines_defaults_can_have_all_but_two(self) -> None:
        machine("node-prefix: com-\ncpu-image: x\npartitions: {a: {max-nodes: 2}}")
        assert found(node="[1-2]").spec().node == "com-[1-2]"
        for key in ("extends", "hosts"):
            machine(f"{key}: x")
            assert f"{key} is not allowed in this file" in problems(found())[0]

    def test_all_errors_at_once(self) -> None:
        texts = problems(
            with_profile("gpu-types: {'[': a, '(': b}\nnode-prefix: '['\npartitions: {a: {x-y: 1, z-q: 1}}")
        )
        assert len(texts) == 5

    def test_unused_options_are_not_validated(self) -> None:
        text = "time: soon\npartitions: {gpu: {mem: much}, cpu: {mem: more}}"
        assert with_profile(text, time="1").spec().time == "1"
        assert len(problems(with_profile(text, partition="gpu"))) == 2

    def test_all_invalid_items(self) -> None:
        texts = problems(with_profile("container-runtimes: [docker, pyxis, rkt]\ngpu-types: [x, {'(': [b]}, y]"))
        assert len(texts) == 6
        assert "'docker'" in texts[0]
        assert "'rkt'" in texts[1]

    def test_nothing_is_written(self, launcher: Launcher) -> None:
        profile("p", "gpu-types: {'[': a}")
        answer = launcher(*GOOD, "--profile", "p")
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" not in answer.err
        assert list(Path.cwd().iterdir()) == []

    def test_a_damaged_script(self) -> None:
        (problem,) = problems(found(EmbeddedSpec({"exp-name": "x", "command": "y"}, {"partitions": ["gpu"]})))
        assert "partitions takes a mapping" in problem
        assert "the script (its site)" in problem
        (problem,) = problems(found(EmbeddedSpec({"exp-name": "x", "command": "y", "partitions": {}})))
        assert "unknown key 'partitions'" in problem


class TestRetarget:
    def script(self, launcher: Launcher, *argv: str) -> None:
        answer = launcher("render", *GOOD, *argv)
        assert answer.code == 0, answer.err
        Path("old.sh").write_text(answer.out)

    def test_changes_are_reported(self, launcher: Launcher) -> None:
        profile("old", "partition: main\naccount: a\ngpu-directive: gres")
        new = profile("new", "partition: gpu\nmodules: [gcc, cuda]")
        self.script(launcher, "--profile", "old", "--num-gpus", "2")
        answer = launcher("render", "--from", "old.sh", "--profile", "new")
        assert answer.out.startswith("#!")
        lines = [line.strip() for line in answer.err.splitlines()]
        assert lines == [
            "note: changed from old.sh:",
            "gpu-directive: gres -> gpus-per-node (built-in)",
            f"partition: main -> gpu (profile new ({new}:1))",
            "account: a -> - (built-in)",
            f"modules: - -> gcc cuda (profile new ({new}:2))",
            "profile: old -> new (flag --profile)",
            "directive removed: --gres=gpu:2",
            "directive removed: --account=a",
            "directive added: --gpus-per-node=2",
        ]
        changes = json.loads(launcher("render", "--from", "old.sh", "--profile", "new", "--json").out)["changes"]
        assert changes == lines[1:]

    def test_no_changes_are_reported(self, launcher: Launcher) -> None:
        self.script(launcher, "--num-nodes", "2")
        assert launcher("render", "--from", "old.sh").err == "note: nothing changed from old.sh\n"
        assert launcher("render", *GOOD).err == "", "and nothing without --from"

    def test_the_old_job_is_read_from_the_script(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script(launcher)
        monkeypatch.setenv("SLAUNCH_QOS", "high")
        assert "  qos: - -> high (env SLAUNCH_QOS)\n" in launcher("render", "--from", "old.sh").err


class TestCheck:
    TEXT = """\
container-runtimes: [pyxis, apptainer]
partitions:
  main: {max-time: 2:00:00, max-nodes: 2, max-gpus: 0}
  gpu: {max-time: 1-0, max-gpus: 4}
  free:
"""

    @pytest.fixture(autouse=True)
    def only_bash(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools/bash").symlink_to("/bin/bash")
        monkeypatch.setenv("PATH", str(tmp_path / "tools"))

    @pytest.mark.parametrize(
        ("argv", "expected"),
        [
            ("", []),
            ("-p gpu --time 23:59:59 --num-gpus 4 -n 100", []),
            ("-p free --time UNLIMITED --num-gpus 100 -n 100", []),
            (
                "-p gpx",
                ["--partition 'gpx' is not in the profile; did you mean 'gpu'? available: main, gpu, free"],
            ),
            (
                "-p gpu -n 2 --head-partition gpx",
                ["--head-partition 'gpx' is not in the profile; did you mean 'gpu'?"],
            ),
            ("-p gpu --worker-group n=3,partition=main", ["--num-nodes 3 is more than the max-nodes 2"]),
            ("-p gpu --time 1-00:01", ["--time 1-00:01 is more than the max-time 1-0 of partition gpu"]),
            ("-p gpu --time 0", ["--time 0 is more than"]),
            ("-p main -n 3", ["--num-nodes 3 is more than the max-nodes 2 of partition main"]),
            ("-p main -w n[1-3]", ["--num-nodes 3 is more than"]),
            ("-p main --num-gpus 1", ["--num-gpus 1 is more than the max-gpus 0 of partition main"]),
            ("-p main --time 121 -n 3", ["--time 121", "--num-nodes 3"]),
            ("-p main,gpu --num-gpus 1", []),
            ("-p main,gpu --num-gpus 5", ["of partition main", "of partition gpu"]),
            ("-p main,x", ["--partition 'x'"]),
            (
                "--container-image x --container-runtime podman",
                ["--container-runtime podman is not available; available: pyxis"],
            ),
            ("--container-image x --container-runtime apptainer", []),
        ],
    )
    def test_refusals(self, argv: str, expected: list[str], launcher: Launcher) -> None:
        profile("other", self.TEXT)
        answer = launcher("check", *GOOD, "--profile", "other", "--json", *argv.split())
        result = json.loads(answer.out)
        lines = [one for one in result["checks"] if one["tool"] == "profile"]
        if not expected:
            assert (answer.code, result["ok"]) == (0, True)
            assert lines == [{"tool": "profile", "status": "ok", "detail": "", "exit_code": 0}]
            return
        assert (answer.code, result["ok"]) == (2, False)
        assert len(lines) == len(expected)
        for line, text in zip(lines, expected, strict=True):
            assert text in line["detail"]
            assert (line["status"], line["exit_code"]) == ("problem", 2)

    def test_a_profile_without_such_facts_refuses_nothing(self, launcher: Launcher) -> None:
        profile("p", "partition: x\ncpu-image: y\nnode-types: {a: b}")
        assert "profile" not in launcher("check", *GOOD, "--profile", "p").out

    def test_from_a_script(self, launcher: Launcher) -> None:
        profile("old", "partition: main")
        profile("other", self.TEXT)
        Path("old.sh").write_text(launcher("render", *GOOD, "-p", "big", "--profile", "old").out)
        assert launcher("check", "--from", "old.sh").code == 0
        answer = launcher("check", "--from", "old.sh", "--profile", "other")
        assert answer.code == 2
        assert "profile              problem: --partition 'big' is not in the profile" in answer.out
        Path("new.sh").write_text(launcher("render", "--from", "old.sh", "--profile", "other").out)
        assert launcher("check", "--from", "new.sh").code == 2, "the script contains the profile's facts"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 5400), ("90:30", 5430), ("1:30:00", 5400), ("2-12", 216000), ("2-12:30", 217800), ("2-12:30:15", 217815),
     ("UNLIMITED", inf), ("infinite", inf), ("0", inf)],
)  # fmt: skip
def test_times(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_config_show_has_the_facts(launcher: Launcher) -> None:
    text = """\
partitions: {gpu: {max-gpus: 4, modules: [a, b]}, cpu: }
node-prefix: com-
container-runtimes: [pyxis]
gpu-types: {gpu.*: a100}
node-types: {}
"""
    path = profile("p", text)
    answer = launcher("config", "show", "--profile", "p")
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in answer.out.splitlines()}
    assert rows["node-prefix"] == f"com- profile p ({path}:2)"
    assert rows["partitions.gpu.max-gpus"] == f"4 profile p ({path}:1, partition gpu)"
    assert rows["partitions.gpu.modules"] == f"a b profile p ({path}:1, partition gpu)"
    assert rows["partitions.cpu"] == f"- profile p ({path}:1, partition cpu)"
    assert rows["gpu-types.gpu.*"] == f"a100 profile p ({path}:4)"
    assert rows["node-types"] == "-"
    assert "partitions" not in rows
    site = json.loads(launcher("config", "show", "--profile", "p", "--json").out)["site"]
    assert site["partitions"]["value"] == {"gpu": {"max-gpus": 4, "modules": ["a", "b"]}, "cpu": {}}
    assert site["container-runtimes"] == {"value": ["pyxis"], "sources": [f"profile p ({path}:3)"]}


EXAMPLES = sorted((ROOT / "examples/profiles").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_resolves_and_renders(path: Path, launcher: Launcher) -> None:
    for example in EXAMPLES:  # one may extend another
        profile(example.stem, example.read_text())
    resolution = found(profile=path.stem)
    resolution.spec()
    assert resolution.warnings == ()
    for partition in [None, *(resolution.site_facts.partitions or {})]:
        for gpus in ("0", "2"):
            flags = ["--num-gpus", gpus, *(["--partition", partition] if partition else [])]
            answer = launcher("render", *GOOD, "--profile", path.stem, *flags)
            assert answer.code == 0, answer.err
            assert answer.out.startswith("#!/bin/bash")


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} == {"pyxis-gpu", "apptainer-university", "modules-cpu"}
