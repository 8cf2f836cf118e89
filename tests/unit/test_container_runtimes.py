"""Containers: what the options accept, and how each runtime uses them. tests/golden has the whole scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.spec.container_runtimes import RUNTIMES, gpu_kind

Launcher = Callable[..., Any]  # tests/unit/conftest.py
GOOD = ("--exp-name", "test", "--command", "true")
IMAGE = ("--container-image", "ubuntu:24.04")

BAD = [
    (("--container-runtime", "apptaner", *IMAGE), "has an invalid value: 'apptaner'", "did you mean 'apptainer'?"),
    (("--container-image", ""), "--container-image is empty", "omit the option"),
    (("--container-image", "a\nb"), "--container-image contains a line break", "one line"),
    (("--container-image", "a b"), "--container-image is not an image: 'a b'", "without spaces"),
    (("--container-image", "ray.sqsh"), "would be taken for a name in a registry", "write ./ray.sqsh"),
    ((*IMAGE, "--container-mounts", "data"), "neither a colon nor an absolute path: 'data'", "SRC:DST"),
    ((*IMAGE, "--container-mounts", "data:/data"), "--container-mounts is not an absolute path: 'data'", "SRC:DST"),
    ((*IMAGE, "--container-mounts", "/data:data"), "--container-mounts is not an absolute path: 'data'", "SRC:DST"),
    ((*IMAGE, "--container-mounts", "/data:"), "--container-mounts is not a mount: '/data:'", "SRC:DST"),
    ((*IMAGE, "--container-mounts", "/a:/b:rx"), "--container-mounts is not a mount: '/a:/b:rx'", "SRC:DST:ro"),
    ((*IMAGE, "--container-mounts", "/a,,/b"), "--container-mounts has an empty item", "SRC:DST"),
    ((*IMAGE, "--container-mounts", "/$HOME:/b"), "--container-mounts has a path with '$'", "%u is replaced by"),
    ((*IMAGE, "--container-mounts", "/data:/tmp"), "/data:/tmp hides --temp-dir /tmp", "another --temp-dir"),
    ((*IMAGE, "--container-mounts", "/tmp:/tmp:ro"), "/tmp:/tmp:ro hides --temp-dir /tmp", "another mount"),
    (("--srun-arg=--label",), "'--label' would disconnect the script from its nodes", "omit it"),
    ((*IMAGE, "--container-workdir", "work"), "is not an absolute path: 'work'", "inside the container"),
    (("--container-mounts", "/data"), "--container-mounts has no effect without a container", "add --container-image"),
    (("--container-workdir", "/work"), "--container-workdir has no effect without", "add --container-image"),
    (("--container-setup", "true"), "--container-setup has no effect without", "add --container-image"),
    (("--container-home",), "--container-home has no effect without", "add --container-image"),
    (("--head-image", "/a.sif", *IMAGE), "--head-image is not an image for pyxis: '/a.sif'", "a squashfs file (.sqsh)"),
    (("--container-image", "~/a.sif"), "--container-image is not a path that the job can use", "%u is replaced by"),
    ((*IMAGE, "--container-mounts", "$HOME:/b"), "is not an absolute path: '$HOME'", "%u is replaced by"),
    ((*IMAGE, "--container-runtime", "charliecloud", "--container-writable"), "is not supported by", "omit it"),
    ((*IMAGE, "--container-runtime", "shifter", "--container-home"), "is not supported by shifter", "omit it"),
    (("--worker-image", "x"), "--worker-image alone leaves the head without an image", "add --head-image"),
    (("--container-image", "/a.sif"), "--container-image is not an image for pyxis: '/a.sif'", "a squashfs file"),
    (("--container-image", "/a", "--container-runtime", "shifter"), "not an image for shifter", "only names of images"),
    (("--container-image", "/a.sqsh", "--container-runtime", "apptainer"), "not an image for apptainer", "a .sif file"),
    ((*IMAGE, "--container-cleanenv"), "--container-cleanenv is not supported by pyxis", "omit it"),
    ((*IMAGE, "--container-mounts", "/a:/b:ro", "--container-runtime", "charliecloud"), "no read-only mounts", "omit "),
    (("--sbatch", "container-image=x"), "--sbatch: --container-image cannot be set here", "where there is no srun"),
]  # fmt: skip


@pytest.mark.parametrize(("argv", "message", "hint"), BAD)
def test_bad_options_are_refused(argv: tuple[str, ...], message: str, hint: str, launcher: Launcher) -> None:
    answer = launcher("render", *GOOD, *argv)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert hint in answer.err


def test_mounts_in_every_spelling() -> None:
    spec = spec_with(container_mounts=["/data:/data:ro,/home", "/a:/b:rw", "/c"])
    assert spec.container_mounts == ("/data:/data:ro", "/home:/home", "/a:/b", "/c:/c")
    # the last mount for a target wins, as a flag does over a profile
    assert spec_with(container_mounts=["/x:/b/", "/a:/b:ro"]).container_mounts == ("/a:/b:ro",)


NAMES = {
    "pyxis": {
        "ubuntu:24.04": "ubuntu:24.04",
        "nvidia/cuda": "nvidia/cuda",
        "nvcr.io/nvidia/cuda:12": "nvcr.io#nvidia/cuda:12",
        "nvcr.io#nvidia/cuda:12": "nvcr.io#nvidia/cuda:12",
        "docker://localhost:5000/a/b": "localhost:5000#a/b",
        "/images/a.sqsh": "/images/a.sqsh",
        "dockerd://mine": "dockerd://mine",
    },
    "apptainer": {
        "ubuntu:24.04": "docker://ubuntu:24.04",
        "nvcr.io#nvidia/cuda:12": "docker://nvcr.io/nvidia/cuda:12",
        "oras://a/b": "oras://a/b",
        "./a.sif": "./a.sif",
    },
    "podman": {"docker://ubuntu": "ubuntu", "nvcr.io#nvidia/cuda": "nvcr.io/nvidia/cuda"},
    "shifter": {"ubuntu": "docker:ubuntu", "docker:ubuntu": "docker:ubuntu", "docker://a.b/c": "docker:a.b/c"},
    "charliecloud": {"/images/a": "/images/a", "docker://nvcr.io#nvidia/cuda": "nvcr.io/nvidia/cuda"},
}


@pytest.mark.parametrize("runtime", NAMES)
def test_images_in_the_notation_of_each_runtime(runtime: str) -> None:
    for written, called in NAMES[runtime].items():
        assert RUNTIMES[runtime](runtime).image(written) == called


def test_gpus_by_their_type() -> None:
    assert gpu_kind(spec_with()) == "none"
    assert gpu_kind(spec_with(num_gpus=1)) == "nvidia"
    assert gpu_kind(spec_with(num_gpus=1, gpu_type="h100")) == "nvidia"
    assert gpu_kind(spec_with(num_gpus=1, gpu_type="mi300x")) == "amd"
    assert gpu_kind(spec_with(num_gpus=1, container_gpus="amd")) == "amd"
    assert gpu_kind(spec_with(num_gpus=1, container_gpus="none")) == "none"


def test_a_runtime_none_switches_the_container_off() -> None:
    spec = spec_with(container_runtime="none", container_mounts="/a", container_home=True)
    assert spec.image is spec.workers_image is None


def test_images_by_role() -> None:
    spec = spec_with(head_image="cpu", container_image="gpu")
    assert (spec.image, spec.workers_image) == ("cpu", "gpu")
    spec = spec_with(worker_image="gpu", container_image="cpu")
    assert (spec.image, spec.workers_image) == ("cpu", "gpu")


def spec_with(**options: Any) -> LaunchSpec:
    return LaunchSpec(**{"exp_name": "a", "command": "true", "container_image": "x", **options})
