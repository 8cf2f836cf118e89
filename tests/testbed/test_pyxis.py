"""The fake Pyxis plugin behaves like the real one, and the image runs Ray."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import rootfs
from .cluster import Cluster, TestbedError, unavailable_reason
from .image import make_image, place_in_image
from .pyxis import Step

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("pyxis")]
VENV = Path(__file__).parents[2] / ".venv"
NAME_IN_IMAGE = 'NAME="slurm-launch test image"'


def _need(reason: str | None) -> None:
    """Skip if no cluster can run here. In CI fail instead: a skip would go unnoticed."""
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    _need(unavailable_reason(pyxis=True))
    _need(None if (VENV / "bin/ray").exists() else f"no Ray in {VENV}: run `make test`")
    folder = make_image(tmp_path_factory.mktemp("images") / "ray.sqsh", [VENV])
    yield folder
    shutil.rmtree(folder)  # pytest would keep those of three runs


@pytest.fixture(scope="module")
def _shared(image: Path) -> Iterator[Cluster]:
    with Cluster(nodes=2, pyxis=True, binds=[image]) as running:
        yield running


@pytest.fixture
def cluster(_shared: Cluster) -> Iterator[Cluster]:
    yield _shared
    _shared.reset()


def srun(cluster: Cluster, *argv: object, **env: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(["srun", *map(str, argv)], env=env)


def bash(cluster: Cluster, image: Path, code: str, *options: object, **env: str) -> str:
    """The output of this code in an unnamed container."""
    done = srun(cluster, f"--container-image={image}", *options, "bash", "-c", code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Running:
    """A job with a container `box` on n1, in which steps of the same job can run."""

    def __init__(self, cluster: Cluster, image: Path, *options: str) -> None:
        self.cluster = cluster
        hold = f"srun -n1 -w n1 --overlap --container-image={image} {' '.join(options)} --container-name=box"
        script = f"#!/bin/bash\n{hold} bash -c 'echo first >/tmp/who; echo >/run/up; sleep 300'\nsleep 300\n"
        argv = ["sbatch", "--parsable", "-N2", "-o", "/dev/null"]
        self.job = cluster.run(argv, stdin=script, check=True).stdout.strip()
        deadline = time.monotonic() + 30
        while self.step("--container-name=box:exec", "test", "-e", "/run/up").returncode:
            assert time.monotonic() < deadline, cluster.log_tail()
            time.sleep(0.1)

    def step(self, *argv: object, node: str = "n1", **env: str) -> subprocess.CompletedProcess[str]:
        return srun(self.cluster, f"--jobid={self.job}", "--overlap", "-N1", "-n1", "-w", node, *argv, **env)

    def end_container(self) -> None:
        self.cluster.signal("n1", "^sleep 300$", 9)
        deadline = time.monotonic() + 30
        while self.step("--container-name=box:exec", "true").returncode == 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_srun_lists_the_options_and_sbatch_does_not(cluster: Cluster) -> None:
    assert "--container-image=" in srun(cluster, "--help").stdout
    assert "--container-image" not in cluster.run(["sbatch", "--help"]).stdout


def test_a_cluster_without_pyxis_refuses_the_options(image: Path) -> None:
    with Cluster(nodes=1) as plain:
        done = srun(plain, f"--container-image={image}", "true")
        assert (done.returncode, "unrecognized option '--container-image=" in done.stderr) == (255, True)


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _need(unavailable_reason(pyxis=True))
    monkeypatch.setattr(rootfs, "root_folder", lambda suite: Path("/srv", suite))  # creating one takes a minute
    with pytest.raises(TestbedError, match="machine's own Slurm only"):
        Cluster(nodes=1, suite="sid", pyxis=True).start()


def test_every_node_enters_the_image_as_the_user(cluster: Cluster, image: Path) -> None:
    code = "echo $(head -n 1 /etc/os-release) $(hostname) $(id -un) $PWD $HOME"
    lines = bash(cluster, image, code, "-N2").splitlines()
    assert sorted(lines) == [f"{NAME_IN_IMAGE} {node} alice / /home/alice" for node in ("n1", "n2")]
    assert srun(cluster, "cat", "/etc/os-release").stdout == Path("/etc/os-release").read_text()


def test_what_is_shared_with_the_node_and_what_is_not(cluster: Cluster, image: Path) -> None:
    cluster.run(["touch", "/tmp/of-the-node", "/dev/shm/of-the-node"], node="n1", check=True)
    assert bash(cluster, image, "ls /tmp /dev/shm", "-w", "n1") == "/dev/shm:\nof-the-node\n\n/tmp:"
    code = "readlink /proc/self/ns/{mnt,net,pid,ipc,uts}; cat /etc/hosts"
    inside = bash(cluster, image, code, "-w", "n1").splitlines()
    outside = srun(cluster, "-w", "n1", "bash", "-c", code).stdout.splitlines()
    assert inside[0] != outside[0]
    assert inside[1:] == outside[1:]


def test_the_image_is_read_only_unless_asked(cluster: Cluster, image: Path) -> None:
    code = "for folder in /tmp /run /opt /var/tmp $HOME; do touch $folder/x 2>/dev/null && echo $folder; done; true"
    assert bash(cluster, image, code).split() == ["/tmp", "/run"]
    writable = bash(cluster, image, code, "--container-writable").split()
    assert writable == ["/tmp", "/run", "/opt", "/var/tmp", "/home/alice"]
    assert "Read-only file system" in srun(cluster, f"--container-image={image}", "touch", "/home/alice/x").stderr
    assert not (image / "opt/x").exists()
    assert not cluster.path("/home/alice/x").exists()


def test_mounts(cluster: Cluster, image: Path) -> None:
    cluster.run(["bash", "-c", "mkdir -p ~/data; echo text >~/data/file; echo other >~/other"], check=True)
    mounts = "/home/alice/data,/home/alice/data:/new/place:ro,./other:/etc/other"
    code = "cat /home/alice/data/file /new/place/file /etc/other; touch ~/data/mine; touch /new/place/x 2>&1 || true"
    lines = bash(cluster, image, code, "--container-mounts=/never/used", f"--container-mounts={mounts}").splitlines()
    assert lines[:3] == ["text", "text", "other"]
    assert "Read-only file system" in lines[3]
    assert cluster.path("/home/alice/data/mine").exists()
    assert not (image / "new").exists()
    assert bash(cluster, image, "ls /tmp", "--container-mounts=/home/alice/data:/tmp").split() == ["file", "mine"]


def test_home_is_mounted_when_asked(cluster: Cluster, image: Path) -> None:
    cluster.run(["touch", "in-home"], check=True)
    assert bash(cluster, image, "ls ~") == ""
    assert "in-home" in bash(cluster, image, "ls ~", "--container-mount-home")
    root = bash(cluster, image, "id -u; echo ~; ls ~", "--container-mount-home", "--container-remap-root").split()
    assert root[:2] == ["0", "/root"]
    assert "in-home" in root


def test_the_working_directory(cluster: Cluster, image: Path) -> None:
    assert bash(cluster, image, "pwd", "--container-workdir=/opt") == "/opt"
    done = srun(cluster, f"--container-image={image}", "--container-workdir=/nowhere", "true")
    assert done.returncode == 1
    assert "pyxis: couldn't chdir to /nowhere: No such file or directory" in done.stderr


def test_the_environment(cluster: Cluster, image: Path) -> None:
    bin_folder = place_in_image(VENV) / "bin"
    host = {"RAY_FROM_IMAGE": "host-value", "RAY_FROM_HOST": "host-value", "LC_ALL": "C", "PATH": "/usr/bin:/from/host"}
    code = "echo $RAY_FROM_IMAGE $RAY_FROM_HOST ${LC_ALL-unset} $PATH"
    path = f"{bin_folder}:/usr/local/bin:/usr/bin:/bin"
    assert bash(cluster, image, code, **host) == f"image-value host-value unset {path}"
    wins = "--container-env=RAY_FROM_IMAGE,LC_ALL"
    assert bash(cluster, image, code, wins, **host) == f"host-value host-value C {path}"
    assert bash(cluster, image, "echo $PATH", "--container-env=PATH", **host) == host["PATH"]
    no_variables = "--container-mounts=/dev/null:/etc/environment"
    assert bash(cluster, image, "echo $PATH", no_variables, **host) == "/usr/local/bin:/usr/bin:/bin"


def test_a_command_is_looked_up_in_the_image(cluster: Cluster, image: Path) -> None:
    assert srun(cluster, f"--container-image={image}", "ray", "--version").stdout.startswith("ray, version ")
    done = srun(cluster, f"--container-image={image}", "ip", "address")
    assert done.returncode == 2
    assert "execve(): ip: No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--container-mounts=nope:/x"], 'mount source must be a relative path, an absolute path, "tmpfs" or "umount"'),
        (["--container-mounts=/tmp:x"], "mount target must be a relative path or an absolute path"),
        (["--container-name=a:b"], '--container-name: flag must be "auto", "create", "exec" or "no_exec"'),
        (["--container-image=/a", "--container-image=/b"], "--container-image specified multiple times"),
        (["--container-writable", "--container-readonly"], "both --container-writable and --container-readonly were"),
    ],
)
def test_srun_refuses(cluster: Cluster, options: list[str], text: str) -> None:
    before = cluster.container_steps()
    done = srun(cluster, *options, "true")
    assert done.returncode == 255
    assert f"srun: error: pyxis: {text}" in done.stderr
    assert f"Invalid {options[-1].partition('=')[0]} argument" in done.stderr
    assert cluster.container_steps() == before


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        (
            ["--container-image=/no/image.sqsh"],
            [
                "pyxis: failed to create container filesystem for image: /no/image.sqsh",
                "[ERROR] No such file or directory: /no/image.sqsh",
            ],
        ),
        (
            ["--container-image=image.sqsh"],
            ["pyxis: importing docker image: image.sqsh", "pyxis: failed to import docker image: image.sqsh"],
        ),
        (
            ["--container-image={image}", "--container-mounts=/no/source:/x"],
            ["pyxis: --container-mounts: source path does not exist: /no/source"],
        ),
        (
            ["--container-name=box"],
            ['pyxis: error: a container with name "pyxis_box" does not exist, and --container-image is not set'],
        ),
        (
            ["--container-image={image}", "--container-name=box:exec"],
            ['pyxis: error: "exec" flag was passed to --container-name but the container is not running'],
        ),
    ],
)
def test_a_step_fails(cluster: Cluster, image: Path, options: list[str], texts: list[str]) -> None:
    done = srun(cluster, *(option.replace("{image}", str(image)) for option in options), "true")
    assert done.returncode == 1
    for text in (*texts, "spank: required plugin spank_pyxis.so: task_init() failed with rc=-1"):
        assert text in done.stderr
    assert cluster.container_steps()[-1].how == "failed"


def test_mounts_without_an_image_are_ignored_on_the_host(cluster: Cluster) -> None:
    done = srun(cluster, "--container-mounts=/no/source:/x", "cat", "/etc/os-release")
    assert (done.returncode, done.stdout) == (0, Path("/etc/os-release").read_text())
    text = "ignoring --container-mounts because neither --container-image nor --container-name is set"
    assert f"pyxis: {text}" in done.stderr


def test_a_step_attaches_to_a_running_container(cluster: Cluster, image: Path) -> None:
    job = Running(cluster, image, "--container-mounts=/home/alice:/mnt")
    cluster.run(["touch", "in-home"], check=True)
    code = "cat /tmp/who; pwd; ls /mnt; echo $OF_THE_STEP; ls -d /new"
    options = ["--container-mounts=/home:/new", "--container-workdir=/opt", "--container-image=/no/image"]
    for flag in ("", ":exec"):
        done = job.step(f"--container-name=box{flag}", *options, "bash", "-c", code, OF_THE_STEP="yes")
        assert done.stdout.splitlines()[:2] == ["first", "/opt"]
        assert {"in-home", "yes"} <= set(done.stdout.splitlines())
        assert "/new" not in done.stdout.splitlines()
        assert "pyxis: ignoring --container-mounts when attaching to a running container" in done.stderr
    assert job.step("--container-name=box:exec", "pwd").stdout == "/\n"


def test_a_named_container_is_of_its_node_and_of_its_user(cluster: Cluster, image: Path) -> None:
    job = Running(cluster, image)
    assert "is not running" in job.step("--container-name=box:exec", "true", node="n2").stderr
    argv = ["srun", "-w", "n1", "--container-name=box:exec", "true"]
    assert "is not running" in cluster.run(argv, user="bob").stderr


def test_flags_of_a_name_that_exists(cluster: Cluster, image: Path) -> None:
    job = Running(cluster, image)
    refused = job.step("--container-name=box:create", f"--container-image={image}", "true")
    assert refused.returncode == 1
    text = 'error: "create" flag was passed to --container-name but the container already exists'
    assert f"pyxis: {text}" in refused.stderr
    other = job.step("--container-name=box:no_exec", "ls", "/tmp")
    assert (other.returncode, other.stdout) == (0, "")


def test_a_container_without_processes_starts_anew_and_can_be_removed(cluster: Cluster, image: Path) -> None:
    job = Running(cluster, image, "--container-mounts=/home:/new")
    job.end_container()
    again = job.step("--container-name=box", "bash", "-c", "ls /tmp /run; ls -d /new; ls /new")
    assert again.stdout.split() == ["/run:", "/tmp:", "/new"]  # the mount point exists, without the mount
    assert job.step("enroot", "list").stdout == "pyxis_box\n"
    assert job.step("enroot", "remove", "-f", "pyxis_box").returncode == 0
    assert "does not exist" in job.step("--container-name=box", "true").stderr
    assert "No such file" in job.step("enroot", "remove", "-f", "pyxis_box").stderr


def test_two_steps_that_create_one_name_on_a_node_collide(cluster: Cluster, image: Path) -> None:
    steps = f"srun -n1 -N1 -w n1 --overlap --container-image={image} --container-name=box sleep 1"
    script = f"{steps} & first=$!; {steps} & second=$!; wait $first; a=$?; wait $second; echo $((a + $?))"
    done = cluster.run(["salloc", "-N2", "bash", "-c", script], env={"TESTBED_UNPACK_SECONDS": "2"})
    assert done.stdout == "1\n"
    assert "FATAL ERROR: dir_scan: failed to make directory" in done.stderr
    assert "pyxis_box/boot, because File exists" in done.stderr


def test_tasks_of_a_step_share_a_container_that_is_gone_afterwards(cluster: Cluster, image: Path) -> None:
    code = (
        "readlink /proc/self/ns/mnt; touch /tmp/$SLURM_PROCID; until [[ -e /tmp/0 && -e /tmp/1 ]]; do sleep 0.1; done"
    )
    spaces = bash(cluster, image, code, "-N1", "-n2").splitlines()
    assert len(spaces) == 2
    assert len(set(spaces)) == 1
    assert bash(cluster, image, "ls /tmp") == ""


def test_a_variable_is_a_default_for_every_srun(cluster: Cluster, image: Path) -> None:
    env = {"PYXIS_CONTAINER_IMAGE": str(image), "PYXIS_CONTAINER_MOUNTS": "/home:/new", "PYXIS_CONTAINER_NAME": "box"}
    done = srun(cluster, "-w", "n1", "bash", "-c", "head -n 1 /etc/os-release; ls /new", **env)
    assert {NAME_IN_IMAGE, "alice"} <= set(done.stdout.splitlines())
    assert "create" in srun(cluster, "-w", "n1", "--container-name=box:create", "true", **env).stderr
    script = "#!/bin/bash\nhead -n 1 /etc/os-release\n"
    cluster.run(["sbatch", "--wait", "-o", "batch.out"], stdin=script, env=env, check=True)
    assert NAME_IN_IMAGE not in cluster.path("/home/alice/batch.out").read_text()


def test_each_step_is_recorded_with_its_options(cluster: Cluster, image: Path) -> None:
    plain, odd = "srun -N2 -n2 true", r"""srun -w n1 -N1 -n1 --container-mounts='/home:/a "b\c' echo 'é\n'"""
    contained = f"srun -w n2 -N1 -n1 --container-image={image} --container-name=x --container-writable true"
    script = f"#!/bin/bash\n{plain}\n{odd}\n{contained}\n"
    job = cluster.run(["sbatch", "--parsable", "-N2", "-o", "/dev/null"], stdin=script, check=True).stdout.strip()
    cluster.wait_job(job)
    options: dict[str, str | bool] = {"container-image": str(image), "container-name": "x", "container-writable": True}
    assert cluster.container_steps(job) == [
        Step("n1", int(job), 0, "host", {}, ["true"]),
        Step("n2", int(job), 0, "host", {}, ["true"]),
        Step("n1", int(job), 1, "host", {"container-mounts": '/home:/a "b\\c'}, ["echo", "é\\n"]),
        Step("n2", int(job), 2, "start", options, ["true"]),
    ]


def test_an_environment_below_tmp_has_another_place_in_the_image() -> None:
    _need(unavailable_reason(pyxis=True))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv = Path(folder, ".venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        script = f"#!{venv}/bin/python\nimport ssl, sys\nprint(sys.prefix)\n"
        (venv / "bin/ray").write_text(script)
        (venv / "bin/ray").chmod(0o755)
        made = make_image(Path(folder, "image"), [venv])
        done = subprocess.run(["chroot", str(made), "ray"], capture_output=True, text=True, check=True)
        assert done.stdout == "/opt/venv\n"
        assert (venv / "bin/ray").read_text() == script


def test_ch_run_runs_ray_in_the_image(cluster: Cluster, image: Path) -> None:
    _need(None if shutil.which("ch-run") else "no ch-run (Debian package: charliecloud-runtime)")
    done = srun(cluster, "ch-run", image, "--", "bash", "-c", "head -n 1 /etc/os-release; ray --version; id -un")
    assert done.returncode == 0, done.stderr
    name, version, user = done.stdout.splitlines()
    assert (name, version.split(",")[0], user) == (NAME_IN_IMAGE, "ray", "alice")
    done = srun(cluster, "ch-run", "--set-env", image, "--", "bash", "-c", "type -P python; echo $RAY_FROM_IMAGE")
    assert done.stdout.split() == [str(place_in_image(VENV) / "bin/python"), "image-value"]
