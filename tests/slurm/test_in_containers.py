"""Ray and the command in a container, on the real cluster: Charliecloud as it is, and Pyxis's options on the real srun.

The image is a folder that tests/testbed/image.py makes of this machine's own files, with Ray in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_launch.runs.record import Run
from tests.slurm.conftest import binds, left_behind, need_cluster
from tests.slurm.desk import Desk, read_until
from tests.slurm.jobs import HOME, ROOT, VENV, python, run, standing_ray, submit
from tests.slurm.test_security import command_lines
from tests.testbed import Cluster, unavailable_reason
from tests.testbed.image import make_image

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("in_containers")]
RUNTIMES = ("pyxis", "charliecloud")
IN_IMAGE = "slurm-launch test image"


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """A folder with two images, ray.sqsh and other.sqsh, which differ in their names only."""
    need_cluster()
    reason = unavailable_reason(pyxis=True) or (None if shutil.which("ch-run") else "no ch-run: run `make test`")
    if reason and os.environ.get("CI"):
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    folder = ROOT / f".test-image-{os.getpid()}"  # beside the environment, so that its files need not be copied
    try:
        make_image(folder / "ray.sqsh", [VENV])
        subprocess.run(["cp", "-al", folder / "ray.sqsh", folder / "other.sqsh"], check=True)
        name = folder / "other.sqsh/etc/os-release"
        name.unlink()
        name.write_text(f'NAME="the other {IN_IMAGE}"\n')
        yield folder
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(scope="module")
def _with_pyxis(images: Path) -> Iterator[Cluster]:
    with Cluster(nodes=4, pyxis=True, slurmd_timeout=90, binds=binds()) as running:
        yield running


@pytest.fixture
def cluster(_with_pyxis: Cluster) -> Iterator[Cluster]:
    yield _with_pyxis
    left = left_behind(_with_pyxis)
    containers = [_with_pyxis.run(["enroot", "list"], node=node).stdout for node in _with_pyxis.nodes]
    _with_pyxis.reset()
    assert not left, left
    assert not any(containers), containers


WHERE = """\
import os, ray
ray.init()
@ray.remote(num_cpus=1)
def where():
    name = open('/etc/os-release').readline().split('"')[1]
    given = os.environ['GIVEN'] + ' ' + os.environ['RAY_FROM_IMAGE']
    return f'{name} on {os.environ["SLURMD_NODENAME"]} in {os.getcwd()} with {given}'
nodes = [node['NodeID'] for node in ray.nodes()]
strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
for line in sorted(ray.get([where.options(scheduling_strategy=strategy(node, soft=False)).remote() for node in nodes])):
    print('TASK', line)
"""


def test_ray_and_the_command_run_in_the_image(cluster: Cluster, images: Path) -> None:
    """A job of each runtime side by side, on two nodes each; the workers have an image of their own."""
    cluster.run(["tee", "where.py"], stdin=WHERE, check=True)
    cluster.run(["mkdir", "-p", "data"], check=True)
    command = "grep NAME /etc/os-release; cat /mnt/word; echo $MODE; pwd; python where.py; exit 7"
    cluster.run(["bash", "-c", "echo mounted >data/word"], check=True)
    jobs = {
        runtime: submit(
            cluster,
            num_nodes=2,
            container_runtime=runtime,
            container_image=f"{images}/ray.sqsh",
            worker_image=f"{images}/other.sqsh",
            container_mounts=f"{HOME}/data:/mnt",
            container_setup=["export MODE='set up'", "echo; echo 1.0 noise"],
            env={"GIVEN": "it's $mine"},
            command=command,
        )
        for runtime in RUNTIMES
    }
    visible = []
    for job in jobs.values():
        job.wait_for(" ready ", 150)
        visible.append(command_lines(cluster, cluster.nodes))
    for job in jobs.values():
        job.wait(150)
        visible.append(command_lines(cluster, cluster.nodes))
        assert (job.code, job.end["outcome"]) == (7, "command-failed"), job.log
        assert job.output.count("1.0 noise") == 1, "before the command; before Ray it is in Ray's log"
        said = [line for line in job.output if line and "INFO" not in line and "noise" not in line]
        assert "warning" not in job.phases, job.log
        head, worker = cluster.run(["scontrol", "show", "hostnames", job.state["NodeList"]]).stdout.split()
        assert said == [
            f'NAME="{IN_IMAGE}"',
            "mounted",
            "set up",
            HOME,
            f"TASK {IN_IMAGE} on {head} in {HOME} with it's $mine image-value",
            f"TASK the other {IN_IMAGE} on {worker} in {HOME} with it's $mine image-value",
        ], job.log

    assert "srun" in visible[0], "it looked"
    for text in visible:
        assert "it's $mine" not in text, "a value of --env, which another user could see"

    pyxis = jobs["pyxis"]
    found = {(step.how, bool(step.options)): step for step in cluster.container_steps(pyxis.id)}
    assert set(found) == {("host", False), ("start", True), ("attach", True)}, found
    started = [step.options for step in cluster.container_steps(pyxis.id) if step.how == "start"]
    mounts = f"{HOME}/data:/mnt,/tmp:/tmp,{HOME}:{HOME}"
    started.sort(key=lambda options: str(options["container-image"]))  # head and worker start at the same moment
    for options, image in zip(started, ("other", "ray"), strict=True):
        assert options == {
            "container-image": f"{images}/{image}.sqsh",
            "container-name": f"slaunch_{pyxis.id}_0",
            "container-mounts": mounts,
            "container-workdir": HOME,
            "no-container-mount-home": True,
            "no-container-entrypoint": True,
            "container-env": "RAY_AUTH_MODE,GIVEN",
        }
    command_step = found["attach", True].options
    assert command_step["container-name"] == f"slaunch_{pyxis.id}_0:exec"
    assert "container-image" not in command_step
    assert not any(step.options for step in cluster.container_steps(jobs["charliecloud"].id))


def test_the_groups_of_a_heterogeneous_job(cluster: Cluster, images: Path) -> None:
    """Each group's nodes are asked what they have, and each starts its own container; all of them go in the end."""
    cpus = "import ray; ray.init(); print(ray.cluster_resources()['CPU'])"
    job = run(
        cluster,
        container_image=f"{images}/ray.sqsh",
        head_cpus=1,
        worker_group=["n=1,cpus=2", "n=1,cpus=3"],
        command=f"grep NAME /etc/os-release; {python(cpus)}",
        timeout=150,
    )
    assert job.code == 0, job.log
    assert "warning" not in job.phases, job.log
    assert {f'NAME="{IN_IMAGE}"', "6.0"} <= set(job.output), job.log


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_a_node_lacks_is_told_before_any_node_starts(cluster: Cluster, images: Path, runtime: str) -> None:
    job = run(
        cluster,
        num_nodes=2,
        container_runtime=runtime,
        container_image=f"{images}/gone.sqsh",
        container_mounts="/var/tmp/only-on-n1:/mnt",
        load_env=["[[ $SLURMD_NODENAME != n1 ]] || mkdir -p /var/tmp/only-on-n1"],
    )
    cluster.node_path("n1", "/var/tmp/only-on-n1").rmdir()
    assert (job.code, job.end["outcome"], job.end["node"]) == (79, "container-failed", "n1")
    assert job.end["cause"] == f"n1: there is no image {images}/gone.sqsh, or it cannot be read"
    lacking = sorted(re.findall(r"\] \S+ missing (.*)", job.log))
    assert lacking == [
        f"n1: there is no image {images}/gone.sqsh, or it cannot be read",
        "n2: there is no /var/tmp/only-on-n1 to mount",
        f"n2: there is no image {images}/gone.sqsh, or it cannot be read",
    ]
    assert job.end["hint"] == "it is missing on every node: check the option"
    assert "starting" not in job.phases


def test_a_runtime_that_is_not_there(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=2, container_runtime="apptainer", container_image="ubuntu:24.04")
    assert (job.code, job.end["cause"]) == (79, "n1: apptainer is not in PATH"), job.log


def test_an_image_without_a_place_for_a_mount(cluster: Cluster, images: Path) -> None:
    """Charliecloud makes none, and its own words would come from within the bring-up."""
    image = f"{images}/ray.sqsh"
    job = run(cluster, container_runtime="charliecloud", container_image=image, container_mounts="/var:/not/there")
    assert (job.code, job.end["cause"]) == (79, "n1: the image has no /not/there to mount on"), job.log


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_scancel_and_signals_reach_the_command(cluster: Cluster, images: Path, runtime: str) -> None:
    """USR1 first, which it goes on after; then SIGTERM, after which it has its time to save."""
    command = (
        "trap 'echo GOT USR1' USR1; trap 'echo GOT TERM; sleep 1; echo SAVED; exit 0' TERM;"
        " grep NAME /etc/os-release; while :; do sleep 0.1; done"
    )
    options: dict[str, Any] = {"container_runtime": runtime, "container_image": f"{images}/ray.sqsh"}
    standing = standing_ray(cluster, f"{VENV}/bin/python")
    job = submit(cluster, num_nodes=2, command=command, container_setup=[standing], **options)
    job.wait_for(f'NAME="{IN_IMAGE}"')
    cluster.run(["scancel", "--batch", "--signal=USR1", job.id], check=True)
    job.wait_for("GOT USR1")
    cluster.run(["scancel", job.id], check=True)
    job.wait()
    assert job.output[-2:] == ["GOT TERM", "SAVED"], job.log
    assert job.end["outcome"] == "ended-from-outside"


def test_the_warning_reaches_the_program_that_saves(cluster: Cluster, images: Path) -> None:
    """And spares the shell that waits for it, as without a container, whatever the signal is."""
    saves = "trap 'sleep 1; echo SAVED; exit 0' {}; echo UP; while :; do sleep 0.1; done"
    standing = standing_ray(cluster, f"{VENV}/bin/python")
    jobs = []
    for node, (runtime, signal) in enumerate([("pyxis", "HUP"), ("pyxis", "USR1"), ("charliecloud", "USR1")], 1):
        command = f'bash -c "{saves.format(signal)}"; echo "AFTER $?"'
        options: dict[str, Any] = {"container_runtime": runtime, "container_image": f"{images}/ray.sqsh"}
        options |= {"signal_before": 60, "checkpoint_signal": signal, "container_setup": [standing]}
        jobs.append(submit(cluster, node=f"n{node}", command=command, **options))
    for job in jobs:
        job.wait_for("\nUP\n")
        cluster.run(["scancel", "--batch", "--signal=USR1", job.id], check=True)
    for job in jobs:
        job.wait()
        assert (job.code, job.output[-2:]) == (0, ["SAVED", "AFTER 0"]), job.log


def test_tasks_of_an_array_meet_on_a_node(cluster: Cluster, images: Path) -> None:
    """Each has a container of its own, by its name, and ends with its own code."""
    standing = standing_ray(cluster, f"{VENV}/bin/python")
    image = f"{images}/ray.sqsh"
    command = "t=$SLURM_ARRAY_TASK_ID; until [[ $(ls here-* | wc -l) == 2 ]]; do >here-$t; sleep 0.1; done; exit $t"
    cluster.run(["bash", "-c", "rm -f here-*"])
    job = submit(cluster, array="3-4", node="n1", container_image=image, container_setup=[standing], command=command)
    job.wait()
    tasks = cluster.jobs(job.id)
    assert sorted(task["ExitCode"] for task in tasks) == ["3:0", "4:0"], tasks
    steps = [step for task in tasks for step in cluster.container_steps(task["JobId"])]
    names = {str(step.options["container-name"]) for step in steps if step.how == "start"}
    assert names == {f"slaunch_{task['JobId']}_{task['ArrayTaskId']}_0" for task in tasks}


def test_leftover_variables_stay_outside(cluster: Cluster, images: Path) -> None:
    """PYXIS_CONTAINER_IMAGE would put the checks into a container, LD_LIBRARY_PATH would break the image's programs.

    And a site that greets every task is not taken for a node that lacks something."""
    cluster.run(["tee", "greet"], stdin="#!/bin/sh\necho print Welcome to the site\n", check=True)
    cluster.run(["chmod", "755", "greet"], check=True)
    job = run(
        cluster,
        srun_arg=[f"--task-prolog={HOME}/greet"],
        container_image=f"{images}/ray.sqsh",
        container_setup=[standing_ray(cluster, f"{VENV}/bin/python")],
        load_env=["export PYXIS_CONTAINER_IMAGE=/nope LD_LIBRARY_PATH=/host PYTHONPATH=/host SEEN=1"],
        command="echo [$LD_LIBRARY_PATH$PYTHONPATH] $SEEN",
    )
    assert job.code == 0, job.log
    assert job.output[-1] == "[] 1"
    assert "warning" not in job.phases


def test_what_fails_inside_is_told(cluster: Cluster, images: Path) -> None:
    """No `ray` in its PATH, an option that srun refuses, a directory that is not in the image."""
    image = f"{images}/ray.sqsh"
    without = submit(cluster, container_setup=["PATH=/bin"], container_image=image)
    refused = submit(cluster, container_arg=["--container-nope"], container_image=image)
    nowhere = submit(cluster, container_workdir="/nowhere", container_image=image)
    for job in (without, refused, nowhere):
        job.wait()
        assert (job.code, job.end["outcome"]) == (70, "head-failed"), job.log
    assert "in the image" in without.end["hint"]
    assert "unrecognized option '--container-nope'" in refused.end["cause"]
    assert "couldn't chdir to /nowhere" in nowhere.end["cause"]


STATUS = """\
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_attach_and_dashboard_go_into_the_image(cluster: Cluster, images: Path) -> None:
    """A cluster that waits, of each runtime, side by side; the workers have an image of their own."""
    desk = Desk(cluster, home=HOME)  # Charliecloud mounts on what there is in the image
    runs = {
        runtime: desk.launch(
            *("--exp-name", runtime, "--idle", "-n", "2", "--container-runtime", runtime),
            *("--container-image", f"{images}/ray.sqsh", "--worker-image", f"{images}/other.sqsh"),
            *("--env", "GIVEN=it's $mine"),
            ray=VENV,
        )
        for runtime in RUNTIMES
    }
    code = 'grep NAME /etc/os-release; echo "$GIVEN"; pwd; cat; echo said >&2; exit 7'
    for runtime, waiting in runs.items():
        desk.wait_for(waiting, "The cluster is ready")
        for words, name in (((), IN_IMAGE), (("--node", _worker(desk, waiting)), f"the other {IN_IMAGE}")):
            done = desk.call("attach", runtime, *words, "--", "bash", "-c", code, stdin="from stdin\n")
            said = (done.returncode, done.stdout.splitlines(), done.stderr)
            assert said == (7, [f'NAME="{name}"', "it's $mine", desk.home, "from stdin"], "said\n"), runtime
        nodes = "import ray; ray.init(logging_level='error'); print(len(ray.nodes()))"
        done = desk.call("attach", runtime, "--", "python", "-c", nodes)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        with desk.terminal("attach", runtime) as shell:
            shell.wait_for(rf"\({waiting.name}\) .*\$ ")
            shell.type("grep NAME /etc/os-release; tty; exit 3\n")
            shell.wait_for(IN_IMAGE)
            shell.wait_for("/dev/pts/")
            assert shell.end() == 3, shell.screen
        tunnel = desk.popen("dashboard", runtime, "--open")
        url = read_until(tunnel, "^http://").strip()
        answer = cluster.run([desk.python, "-c", STATUS, f"{url}/api/version"])
        assert answer.stdout == "401\n", (url, answer)
        done = desk.call("cancel", runtime)
        assert done.returncode == 0, done.stderr
        tunnel.communicate(timeout=60)


def _worker(desk: Desk, run: Run) -> str:
    nodes = desk.cluster.job(str(run.job_id))["NodeList"]
    return desk.cluster.run(["scontrol", "show", "hostnames", nodes]).stdout.split()[1]
