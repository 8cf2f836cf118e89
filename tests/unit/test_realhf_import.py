"""ReaL's cluster spec: as a layer by CLUSTER_SPEC_PATH, and as a profile by `config import`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import render
from slurm_launch.config import realhf_import
from slurm_launch.config.resolve import Resolution, resolve
from slurm_launch.errors import InvalidSpec
from slurm_launch.spec.script_header import EmbeddedSpec, read_embedded

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "test", "--command", "python train.py")
# examples/cluster_config.json of ReaL, with names of hosts that are not its default
REAL: dict[str, Any] = {
    "cluster_type": "slurm",
    "cluster_name": "my_cluster",
    "fileroot": "/nfs/real",
    "default_mount": "/nfs:/nfs,/dev/infiniband:/dev/infiniband",
    "node_type_from_node_name": {"com-0\\d$": "g8", "com-": "a100"},
    "gpu_type_from_node_name": {"com-\\d{2}$": "tesla"},
    "cpu_image": "garrett4wade/real-cpu",
    "gpu_image": "garrett4wade/real-gpu",
    "node_name_prefix": "com-",
}


def spec_file(text: str | None = None, **changes: Any) -> Path:
    """ReaL's file with changes; None removes a key."""
    about = {key: value for key, value in {**REAL, **changes}.items() if value is not None}
    path = Path.cwd() / "cluster.json"
    path.write_text(json.dumps(about) if text is None else text)
    return path


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a file and sets the variable to it."""

    def write(text: str | None = None, **changes: Any) -> Path:
        path = spec_file(text, **changes)
        monkeypatch.setenv("CLUSTER_SPEC_PATH", str(path))
        return path

    return write


def found(embedded: EmbeddedSpec | None = None, **flags: Any) -> Resolution:
    return resolve({"exp_name": "x", "command": "y", **flags}, os.environ, Path.cwd(), embedded)


def profile(name: str, text: str) -> Path:
    path = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles", f"{name}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestAsALayer:
    def test_every_key_is_mapped_and_has_its_source(self, spec: Callable[..., Path], launcher: Launcher) -> None:
        path = spec()
        resolution = found(num_gpus=1, node="NODE[01-02]")
        job = resolution.spec()
        assert job.run_dir == "/nfs/real/logs"
        assert job.container_mounts == ("/nfs:/nfs", "/dev/infiniband:/dev/infiniband")
        assert (job.node, job.gpu_type, job.image) == ("com-[01-02]", "tesla", "garrett4wade/real-gpu")
        assert found().spec().image == "garrett4wade/real-cpu"
        assert resolution.warnings == ()
        shown = json.loads(launcher("config", "show", "--json", *GOOD).out)
        sources = {key: about["sources"] for key, about in {**shown["values"], **shown["site"]}.items()}
        expected = {
            "run-dir": "fileroot",
            "container-mounts": "default_mount",
            "container-image": "cpu_image",
            "cpu-image": "cpu_image",
            "gpu-image": "gpu_image",
            "gpu-types": "gpu_type_from_node_name",
            "node-types": "node_type_from_node_name",
            "node-prefix": "node_name_prefix",
        }
        assert {key: sources[key] for key in expected} == {
            key: [f"cluster spec ({path}: {theirs})"] for key, theirs in expected.items()
        }

    def test_above_the_machine_and_below_a_profile_that_was_chosen(self, spec: Callable[..., Path]) -> None:
        spec()
        machine = Path(os.environ["XDG_CONFIG_DIRS"], "slurm-launch/slurm-launch.yaml")
        machine.parent.mkdir(parents=True)
        machine.write_text("run-dir: /machine\nqos: machine")
        assert (found().spec().run_dir, found().spec().qos) == ("/nfs/real/logs", "machine")
        profile("here", "hosts: ['*']\nrun-dir: /here\naccount: here")
        assert (found().spec().run_dir, found().spec().account) == ("/nfs/real/logs", "here"), "not named explicitly"
        assert found(profile="here").spec().run_dir == "/here"
        assert found(profile="none").spec().run_dir == "/nfs/real/logs"

    def test_regular_expressions_keep_reals_meaning(self, spec: Callable[..., Path]) -> None:
        """ReaL matches the beginning of a name, a profile the whole name."""
        spec(gpu_type_from_node_name={"com-1": "a", "com-2$": "b", "com-3|com-4": "c", "(?i)COM-5": "d"})
        for node, expected in (("com-17", "a"), ("com-2", "b"), ("com-20", None), ("com-39", "c"), ("com-48", "c"),
                               ("com-59", "d")):  # fmt: skip
            assert found(num_gpus=1, node=node).spec().gpu_type == expected, node

    def test_reals_default_prefix(self, spec: Callable[..., Path]) -> None:
        types = {"NODE\\d+": "a100"}
        spec(node_name_prefix=None, node_type_from_node_name=types, gpu_type_from_node_name=types)
        assert found(node="[01-02]").spec().node == "NODE[01-02]"
        assert found(node="NODE[01-02]").spec().node == "NODE[01-02]"
        assert found().warnings == ()

    def test_empty_values_are_ignored(self, spec: Callable[..., Path]) -> None:
        spec(json.dumps({key: "" for key in REAL if key != "cluster_type"} | {"cpu_image": None}))
        assert found().spec().given() == {"exp-name": "x", "command": "y"}

    def test_slurm_keys_are_ignored_for_ray(self, spec: Callable[..., Path]) -> None:
        spec(cluster_type="ray")
        resolution = found(node="[01-02]", num_gpus=1)
        job = resolution.spec()
        assert (job.run_dir, job.node) == ("/nfs/real/logs", "com-[01-02]")
        assert (job.image, job.gpu_type, job.container_mounts) == (None, None, ())
        (note, _) = resolution.notes
        assert "cluster_type is ray" in note
        for key in ("default_mount", "node_type_from_node_name", "gpu_type_from_node_name", "cpu_image", "gpu_image"):
            assert key in note

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"gpu_imag": "x"}, "unknown key 'gpu_imag' is ignored; did you mean 'gpu_image'?"),
            ({"zzz": 1}, "unknown key 'zzz' is ignored"),
            (
                {"default_mount": "/data:/data"},
                "default_mount does not include fileroot: containers do not see /nfs/real",
            ),
            ({"default_mount": "/nfs/re:/nfs/re"}, "default_mount does not include fileroot"),
            ({"default_mount": "/nfs:/mnt"}, "default_mount does not include fileroot"),
            (
                {"gpu_type_from_node_name": {"gpu\\d+": "x"}},
                "matches no host of this cluster: their names begin with com-",
            ),
            ({"node_type_from_node_name": {"NODE\\d": "x"}}, "their names begin with com-"),
        ],
    )
    def test_a_suspicious_spec_causes_a_warning(self, changes: Any, expected: str, spec: Callable[..., Path]) -> None:
        path = spec(**changes)
        resolution = found()
        assert resolution.spec()
        (warning,) = resolution.warnings
        assert str(path) in warning
        assert expected in warning

    def test_a_duplicate_key(self, spec: Callable[..., Path]) -> None:
        spec('{"cpu_image": "a", "cpu_image": "b"}')
        assert "'cpu_image' is set twice" in found().warnings[0]
        assert found().spec().image == "b"

    def test_a_script_keeps_it(self, spec: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
        spec()
        first = found(num_gpus=1, node="[01-02]")
        script = render(first.spec(), embedded=EmbeddedSpec(first.own, first.site))
        embedded = read_embedded(script, "here")
        monkeypatch.delenv("CLUSTER_SPEC_PATH")
        assert found(embedded).spec() == first.spec()
        spec(cpu_image="other", gpu_image="other")
        again = found(embedded)
        assert again.spec() == first.spec()
        assert "CLUSTER_SPEC_PATH is not read" in again.notes[0]
        assert found(embedded, profile="none").spec().image == "other"

    def test_an_empty_variable_counts_as_unset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLUSTER_SPEC_PATH", "")
        assert found().spec().run_dir == "."

    def test_config_path(self, spec: Callable[..., Path], launcher: Launcher) -> None:
        path = spec()
        assert f"{path}  (CLUSTER_SPEC_PATH: my_cluster)" in launcher("config", "path").out


# the content of the file, the message, and a part of the source or the hint
BAD = [
    ("", "is not JSON: Expecting value", ":1:1"),
    ("{'a': 1}", "is not JSON", ":1:2"),
    ('{\n  "fileroot": "/x",\n}', "is not JSON", ".json:"),
    ("[1]", "is not a JSON object: [1]", "cluster.json"),
    ("3", "is not a JSON object: 3", "cluster.json"),
    ("[" * 100_000, "cluster spec", "cluster.json"),
    ({"cluster_type": "k8s"}, "cluster_type has an invalid value: 'k8s'", "choose from slurm, ray"),
    (
        {"cluster_type": "slrm"},
        "cluster_type has an invalid value: 'slrm'",
        "did you mean 'slurm'? choose from slurm, ray",
    ),
    (f'{{"cpu_image": {"9" * 5000}}}', "is not JSON: Exceeds the limit", "cluster.json"),
    ({"gpu_type_from_node_name": {"[[a]x": "x"}}, "not valid: '[[a]x'", "gpu_type_from_node_name"),
    ({"node_name_prefix": "a" * 65}, "node-prefix is not the beginning of a host name", "node_name_prefix"),
    ({"cluster_type": 3}, "cluster_type takes text, not 3", "cluster.json: cluster_type"),
    ({"cluster_name": ["a"]}, "cluster_name takes text", "cluster.json: cluster_name"),
    ({"fileroot": "nfs"}, "fileroot is not an absolute path: 'nfs'", "the same on every node"),
    ({"fileroot": "/a\nb"}, "fileroot contains a line break", "cluster.json: fileroot"),
    ({"default_mount": ["/a"]}, "default_mount takes text", "cluster.json: default_mount"),
    ({"default_mount": "/a:/b:/c"}, "default_mount is not a mount: '/a:/b:/c'", "SRC:DST"),
    ({"default_mount": "data"}, "default_mount has neither a colon nor an absolute path", "SRC:DST"),
    ({"default_mount": "/a,,/b"}, "default_mount has an empty item", "SRC:DST"),
    ({"node_type_from_node_name": "a100"}, "takes an object with text values", "node_type_from_node_name"),
    ({"gpu_type_from_node_name": {"a": 1}}, "takes an object with text values", "gpu_type_from_node_name"),
    ({"gpu_type_from_node_name": {"com-[": "x"}}, "not valid: 'com-[': unterminated", "gpu_type_from_node_name"),
    ({"node_type_from_node_name": {"com-(": "x"}}, "not valid: 'com-(': missing )", "node_type_from_node_name"),
    ({"gpu_type_from_node_name": {"com-": ""}}, "is empty", "gpu_type_from_node_name"),
    ({"cpu_image": "a b"}, "cpu-image is not an image: 'a b'", "cluster.json: cpu_image"),
    ({"gpu_image": 1}, "gpu_image takes text", "cluster.json: gpu_image"),
    ({"node_name_prefix": "com["}, "node-prefix is not the beginning of a host name", "node_name_prefix"),
]


@pytest.mark.parametrize("way", ["variable", "import"])
@pytest.mark.parametrize(("given", "message", "where"), BAD)
def test_a_bad_file(
    given: Any, message: str, where: str, way: str, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spec_file(given) if isinstance(given, str) else spec_file(**given)
    before = sorted(Path.cwd().parent.rglob("*"))
    if way == "variable":
        monkeypatch.setenv("CLUSTER_SPEC_PATH", "cluster.json")
    answer = launcher(*GOOD) if way == "variable" else launcher("config", "import", "cluster.json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("error:") == 1
    assert "Traceback" not in answer.err
    assert message in answer.err
    assert where in answer.err
    assert str(path) in answer.err
    assert "hint: " in answer.err
    assert ("env CLUSTER_SPEC_PATH" in answer.err) == (way == "variable")
    assert sorted(Path.cwd().parent.rglob("*")) == before


def test_a_file_that_cannot_be_read(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, why in (("nowhere.json", "No such file"), (".", "Is a directory")):
        assert why in launcher("config", "import", name).err
        monkeypatch.setenv("CLUSTER_SPEC_PATH", name)
        answer = launcher(*GOOD)
        assert answer.code == 2
        assert f"the cluster spec: cannot read the file: {why}" in answer.err
        monkeypatch.delenv("CLUSTER_SPEC_PATH")
    Path("binary.json").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in launcher("config", "import", "binary.json").err
    assert launcher("config", "import", "/dev/zero").code == 2


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        realhf_import.read(spec_file(cluster_type="x", fileroot="y", cpu_image="a b", gpu_image=3))
    assert len(caught.value.problems) == 4


def test_all_invalid_expressions_are_reported() -> None:
    with pytest.raises(InvalidSpec) as caught:
        realhf_import.read(spec_file(gpu_type_from_node_name={"(": "a", "com": "b", "[": "c"}))
    assert len(caught.value.problems) == 2


def test_an_expression_with_exponential_backtracking() -> None:
    """Matched against a name of 64 letters, it would not end."""
    types = {"(a|aa)+$": "x", "(?:a+)+b": "y", "b+": "z", "ab?": "u", "b": "v"}
    found = realhf_import.read(
        spec_file(node_name_prefix="a" * 64, node_type_from_node_name=None, gpu_type_from_node_name=types)
    )
    (warning,) = [text for text in found.warnings if "no host" in text]
    assert "b.* matches no host of this cluster" in warning


class TestImport:
    def test_the_profile_is_equivalent_to_the_file(self, launcher: Launcher, spec: Callable[..., Path]) -> None:
        spec(gpu_type_from_node_name={"com-\"\\d{2}'#": "Tésla: #1", "com-.*": "tesla"}, cpu_image=None)
        flags: dict[str, Any] = {"num_gpus": 1, "node": "[01-02]"}
        by_variable = found(**flags)
        os.environ.pop("CLUSTER_SPEC_PATH")
        answer = launcher("config", "import", "cluster.json")
        assert answer.code == 0, answer.err
        by_profile = found(profile="my_cluster", **flags)
        assert by_profile.site == by_variable.site
        assert {**by_profile.spec().given(), "profile": None} == {**by_variable.spec().given(), "profile": None}

    def test_the_output(self, launcher: Launcher) -> None:
        spec_file(gpu_imag="x", cpu_image="")
        answer = launcher("config", "import", "cluster.json", "--name", "other")
        path = Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch/profiles/other.yaml")
        first, *rest = answer.out.splitlines()
        assert first == str(path)
        table = {line.split()[0]: " ".join(line.split()[1:]) for line in rest}
        assert set(table) == {*REAL, "gpu_imag"}
        assert table["fileroot"] == "run-dir: /nfs/real/logs"
        assert table["cpu_image"] == "empty: not used"
        assert table["cluster_name"] == "not used: the profile's name is other (--name)"
        assert table["gpu_imag"] == "ignored: unknown key"
        assert "warning: " in answer.err
        assert "'gpu_imag'" in answer.err
        assert "# fileroot: " in path.read_text()
        assert found(profile="other").spec().run_dir == "/nfs/real/logs"

    def test_nothing_is_overwritten(self, launcher: Launcher) -> None:
        spec_file()
        path = profile("my_cluster", "account: mine")
        answer = launcher("config", "import", "cluster.json")
        assert (answer.code, answer.out) == (2, "")
        assert "already exists" in answer.err
        assert path.read_text() == "account: mine"

    @pytest.mark.parametrize("name", ["a/b", "../x", ".x", "none", "-x"])
    def test_an_invalid_name(self, name: str, launcher: Launcher) -> None:
        spec_file(cluster_name=name)
        answer = launcher("config", "import", "cluster.json")
        assert answer.code == 2
        error, _, hint = answer.err.partition("hint:")
        assert "cluster_name in " in error
        assert "--name" not in error
        assert "--name" in hint
        wrong = launcher("config", "import", "cluster.json", "--name", name)
        assert "--name is not a valid profile name" in wrong.err
        assert not Path(os.environ["XDG_CONFIG_HOME"], "slurm-launch").exists()
        assert launcher("config", "import", "cluster.json", "--name", "good").code == 0

    def test_json_and_a_file_without_a_name(self, launcher: Launcher) -> None:
        spec_file(cluster_name=None, cluster_type="ray")
        answer = json.loads(launcher("config", "import", "cluster.json", "--json").out)
        assert answer["profile"] == "cluster"
        assert answer["keys"]["gpu_image"] == "ignored: cluster_type is ray"
        assert Path(answer["path"]).exists()
