"""Contract 4 and 10: nobody but the owner uses the cluster, sees the token or gets at our files."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.slurm.jobs import OLD_RAY, VENV, Job, python, run, submit
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

HOLD = "until [[ -e go ]]; do sleep 0.1; done; cp $RAY_AUTH_TOKEN_PATH seen-token"
CANARY = "canary-7f3a91"
JOIN = "import ray; ray.init(address='{}', logging_level='ERROR'); print('IN', ray.nodes())"


@pytest.fixture
def running(cluster: Cluster) -> Job:
    cluster.run(["rm", "-f", "go", "seen-token"])
    return submit(cluster, num_nodes=2, node="n[1-2]", dashboard=True, command=HOLD).wait_for(" command ")


def address_of(job: Job) -> str:
    found = re.search(r"starting .*address=(\S+)", job.log)
    assert found
    return found[1]


def test_a_neighbour_cannot_use_the_cluster(cluster: Cluster, running: Job) -> None:
    address = address_of(running)
    modes = ({"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64})
    ways = (
        [f"{VENV}/bin/python", "-c", JOIN.format(address)],
        [f"{VENV}/bin/ray", "status", f"--address={address}"],
        [f"{VENV}/bin/ray", "start", f"--address={address}", "--temp-dir=/tmp/bob"],
    )

    def attempt(mode: dict[str, str], way: list[str]) -> subprocess.CompletedProcess[str]:
        return cluster.run(["timeout", "30", *way], user="bob", node="n3", env=mode, timeout=60)

    with ThreadPoolExecutor() as pool:  # side by side: most of it is waiting
        for tried in [pool.submit(attempt, mode, way) for mode in modes for way in ways]:
            done = tried.result()
            assert done.returncode != 0, done.stdout
            assert "IN [" not in done.stdout
            assert "node_" not in done.stdout
    # The dashboard, from the head node itself: its port is two above the head's.
    port = int(address.rpartition(":")[2]) + 2
    ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/api/jobs/', timeout=9).read())"
    asked = cluster.run([f"{VENV}/bin/python", "-c", ask], user="bob", node="n1")
    assert "HTTP Error 401" in asked.stderr, asked
    cluster.run(["touch", "go"])
    assert running.wait().code == 0, running.log
    assert "/3" not in running.log
    for process in cluster.processes("n3", "bob"):
        cluster.signal("n3", process.pid, 9)
    cluster.run(["rm", "-rf", "/tmp/bob", "/tmp/ray"], user="bob", node="n3")


def command_lines(cluster: Cluster, nodes: Sequence[str]) -> str:
    """What another user can see of all processes on these nodes, by ps or in /proc."""
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; ps -ef www"
    return "".join(cluster.run(["bash", "-c", look], user="bob", node=node).stdout for node in nodes)


class Watch:
    """Reads all command lines on the nodes again and again, as another user, until it is told to stop."""

    def __init__(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        self.cluster, self.nodes = cluster, nodes
        self.seen: list[str] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _look(self) -> None:
        while not self.over.is_set():
            self.seen.append(command_lines(self.cluster, self.nodes))


# Loaded into every program of the job, it records the program's command line: one that lives for a millisecond is seen
# by chance only. The words lie one after another in memory.
RECORDER = r"""
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void record(int count, char **words) {
  int file = open("/home/alice/command-lines", O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file < 0 || count < 1) return;
  char *last = words[count - 1];
  if (write(file, words[0], last + strlen(last) + 1 - words[0]) < 0) _exit(99);
  close(file);
}
"""


@pytest.fixture
def recorder(cluster: Cluster) -> str:
    """The path of the library for LD_PRELOAD."""
    cluster.run(["rm", "-f", "command-lines"], check=True)
    library = cluster.path("/home/alice/recorder.so")
    gcc = ["gcc", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-x", "c", "-o", str(library), "-"]
    subprocess.run(gcc, input=RECORDER, text=True, check=True)
    return "/home/alice/recorder.so"


# A program in place of the runtime that only checks that there is a command: it is not the real one, which is not
# installed here, but what the script puts on command lines is the same.
STAND_IN = """#!/bin/bash
# Runs the program after the image, as the runtime would, with the variables that it would pass on.
for name in "${!APPTAINERENV_@}" "${!SINGULARITYENV_@}"; do export "${name#*ENV_}=${!name}"; done
while (($#)); do
  word=$1; shift
  [[ $word != IMAGE && $word != --image=*IMAGE && $word != docker://IMAGE && $word != docker:IMAGE ]] || break
done
while [[ ${1-} == --workdir=* || ${1-} == --volume=* ]]; do shift; done
exec "$@"
"""


@pytest.mark.parametrize("runtime", ["none", "apptainer", "singularity", "podman", "podman-hpc", "shifter"])
def test_no_value_of_env_is_on_a_command_line(cluster: Cluster, recorder: str, runtime: str) -> None:
    """Nor the token, on any node, while the job starts and while it runs. tests/slurm/test_in_containers.py has the
    runtimes that can run here; the others are stand-ins."""
    cluster.run(["rm", "-f", "go", "seen-token"])
    options: dict[str, Any] = {}
    if runtime != "none":
        cluster.run(["rm", "-rf", "stand-ins"], check=True)
        cluster.run(["mkdir", "stand-ins"], check=True)
        cluster.run(["tee", f"stand-ins/{runtime}"], stdin=STAND_IN, check=True)
        cluster.run(["chmod", "755", f"stand-ins/{runtime}"], check=True)
        options = {
            "container_runtime": runtime,
            "container_image": "IMAGE",
            "load_env": ["PATH=$HOME/stand-ins:$PATH"],
        }
    hold = f'echo "GOT $CANARY"; {HOLD}'
    with Watch(cluster, ["n1", "n2"]) as watch:
        # In env and not in load_env: a container would not get it.
        env = {"CANARY": CANARY, "LD_PRELOAD": recorder}
        job = submit(cluster, num_nodes=2, node="n[1-2]", env=env, command=hold, **options)
        job.wait_for("GOT ")
    steps = command_lines(cluster, ["n1", "n2"])
    cluster.run(["touch", "go"])
    assert job.wait().code == 0, job.log
    assert f"GOT {CANARY}" in job.output, job.log
    token = cluster.path("/home/alice/seen-token").read_text().strip()
    assert "srun" in steps, "it looked"
    recorded = cluster.path("/home/alice/command-lines").read_text().replace("\0", " ")
    for words in (
        "srun --ntasks-per-node=1 ",
        "--node-name=n1 ",
        "--node-name=n2 ",
        f"{runtime} " * (runtime != "none"),
    ):
        assert words in recorded, "it recorded"
    assert len(watch.seen) > 5
    for text in [*watch.seen, steps, recorded]:
        assert CANARY not in text
        assert token not in text
        assert "make_node_directory" not in text, "the program of a step"


def test_the_token_is_nowhere_to_be_seen(cluster: Cluster, running: Job) -> None:
    seen = {
        "ps of another user": cluster.run(["ps", "-ef", "www"], user="bob", node="n1").stdout
        + cluster.run(["ps", "-ef", "www"], user="bob", node="n2").stdout,
        "job record": cluster.run(["scontrol", "show", "job", "-dd", running.id]).stdout,
        "environment of the job": "".join(
            cluster.run(["cat", f"/proc/{process.pid}/environ"], user="alice", node=node).stdout
            for node in ("n1", "n2")
            for process in cluster.processes(node, "alice")
        ),
    }
    for process in cluster.processes("n1", "alice"):
        assert cluster.run(["cat", f"/proc/{process.pid}/environ"], user="bob", node="n1").stdout == ""
    folders = {
        node: [path for path in cluster.node_path(node, "/tmp").iterdir() if path.name.startswith(f"r{running.id}-")]
        for node in ("n1", "n2")
    }
    for found in folders.values():
        assert found
        for path in found:
            assert path.stat().st_mode & 0o777 == 0o700
            assert (path / "token").stat().st_mode & 0o777 == 0o600 if (path / "token").exists() else True
    denied = cluster.run(["ls", f"/tmp/{folders['n2'][0].name}"], user="bob", node="n2")
    assert "Permission denied" in denied.stderr
    cluster.run(["touch", "go"])
    assert running.wait().code == 0, running.log
    token = cluster.path("/home/alice/seen-token").read_text().strip()
    assert re.fullmatch("[0-9a-f]{64}", token)
    seen |= {"script": running.script, "log": running.log}
    for where, text in seen.items():
        assert text, where
        assert token not in text, where
    cluster.run(["rm", "seen-token"])
    for home in ("alice", "bob"):
        for path in cluster.path(f"/home/{home}").rglob("*"):
            if path.is_file() and not path.is_symlink():
                assert token.encode() not in path.read_bytes(), path


def test_tracing_does_not_log_the_token(cluster: Cluster) -> None:
    """People put `set -x` into an environment to see why it fails."""
    job = run(cluster, num_nodes=2, load_env=["set -xv"], command="cp $RAY_AUTH_TOKEN_PATH seen-token")
    assert job.code == 0, job.log
    token = cluster.path("/home/alice/seen-token").read_text().strip()
    cluster.run(["rm", "seen-token"])
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert token not in job.log


@pytest.mark.parametrize(("number", "words"), [(1, "File exists"), (0, "belongs to another user")])
def test_what_somebody_put_in_our_place_is_refused(cluster: Cluster, number: int, words: str) -> None:
    """The name of our directory cannot be foreseen; here it is, because the random source is a fixed one."""
    trap = "od() { printf '%080d' 0; }"
    cluster.run(["mkdir", "-p", "/tmp/bobs"], user="bob", node="n2", check=True)
    name = f"r$JOB-000000.{number}"  # a worker has 1; an old Ray uses 0 there, too
    next_id = int(cluster.run(["sbatch", "--parsable", "--hold", "--wrap=true"], check=True).stdout) + 1
    cluster.run(["scancel", str(next_id - 1)])
    link = "/tmp/" + name.replace("$JOB", str(next_id))
    cluster.run(["ln", "-s", "/tmp/bobs", link], user="bob", node="n2", check=True)
    job = run(cluster, num_nodes=2, node="n[1-2]", load_env=[trap])
    inside = cluster.run(["ls", "-A", "/tmp/bobs"], user="root", node="n2").stdout
    still_there = cluster.run(["readlink", link], user="bob", node="n2").stdout.strip()
    cluster.run(["rm", "-rf", link, "/tmp/bobs"], user="bob", node="n2")
    assert int(job.id) == next_id
    assert (job.code, job.end["node"]) == (71, "n2"), job.log
    assert words in job.log
    assert inside == ""
    assert still_there == "/tmp/bobs"


def test_auth_can_be_off_and_is_said(cluster: Cluster) -> None:
    job = run(cluster, num_nodes=1, auth="off", command='echo "MODE $RAY_AUTH_MODE"; ray status')
    assert job.code == 0, job.log
    assert "MODE disabled" in job.output
    assert "auth=off" in job.log


def test_a_ray_from_before_tokens(cluster: Cluster) -> None:
    """Ray 2.40: no tokens, no temporary directory for each node. The same script, and a warning."""
    look = python("import ray; ray.init(); print('VERSION', ray.__version__, len(ray.nodes()))")
    job = run(cluster, num_nodes=3, ray=OLD_RAY, dashboard=True, command=look)
    assert job.code == 0, job.log
    assert "VERSION 2.40.0 3" in job.output
    assert "warning Ray 2.40.0 does not support tokens" in job.log
