"""A cluster that waits, with real Ray: attach to it, reach its dashboard, end it."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.slurm.desk import WAIT, Desk, read_until
from tests.slurm.jobs import VENV
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def desk(cluster: Cluster) -> Desk:
    return Desk(cluster)


# Two connections at once: the first is in the middle of its request while the second is served. Prints both codes.
TWO = """\
import socket, sys
port, token = int(sys.argv[1]), sys.stdin.read().strip()
def ask(*lines):
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    one.sendall("\\r\\n".join(["GET /api/version HTTP/1.1", "Host: x", "Connection: close", *lines, ""]).encode())
    return one
def answer(one):
    one.sendall(b"\\r\\n")
    text = one.makefile().read()
    return text.split()[1], text.splitlines()[-1]
first, second = ask("Authorization: Bearer " + token), ask()
print(*answer(second))
print(*answer(first))
"""
USE = """\
import ray
ray.init(logging_level="error")
print(sum(ray.get([ray.remote(lambda n: n * n).remote(n) for n in range(4)])), len(ray.nodes()))
"""


def opened(tunnel: subprocess.Popen[str]) -> int:
    """The port on the login node."""
    line = read_until(tunnel, r"^http://")
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)\n", line)
    assert found, line
    return int(found[1])


def test_a_cluster_that_waits(desk: Desk) -> None:
    run = desk.launch("--idle", "-n", "2", ray=VENV)
    desk.wait_for(run, "The cluster is ready")
    name = str(run.job_id)

    done = desk.call("attach", name, "--", "python", "-", stdin=USE)
    assert (done.returncode, done.stdout) == (0, "14 2\n"), done.stderr
    count = "until (($(ray status | grep -c ' node_') == 2)); do sleep 0.5; done; ray list nodes | grep -c ALIVE"
    done = desk.call("attach", name, "--", "bash", "-c", count)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr

    told = json.loads(desk.call("dashboard", name, "--json").stdout)
    assert told["ssh"] == f"ssh -N -L 8265:127.0.0.1:{told['port']} {told['head']}"
    assert told["ssh_from_afar"] == f"ssh -N -J alice@login -L 8265:127.0.0.1:{told['port']} alice@{told['head']}"
    plain = desk.call("dashboard", name, "--port", "9999")
    assert f"ssh -N -L 9999:127.0.0.1:{told['port']} {told['head']}\n" in plain.stdout

    printed = desk.call("dashboard", name, "--token")
    token = printed.stdout.strip()
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert "can run code as you" in printed.stderr

    tunnel = desk.popen("dashboard", name, "--open")
    port = opened(tunnel)
    done = desk.cluster.run([desk.python, "-c", TWO, str(port)], stdin=token)
    assert done.returncode == 0, done.stderr
    refused, served = done.stdout.splitlines()
    assert refused.startswith("401 ")
    assert served.startswith("200 ")
    assert '"ray_version"' in served
    for node in ("login", *desk.cluster.nodes):
        shown = [process.args for process in desk.cluster.processes(node) if token in process.args]
        assert not shown
    second = desk.popen("dashboard", name, "--open")
    assert opened(second) != port
    taken = desk.call("dashboard", name, "--open", "--port", str(port))
    assert taken.returncode == 2
    assert f"cannot listen on port {port} of this machine: Address already in use" in taken.stderr

    done = desk.call("cancel", name)
    assert (done.returncode, done.stdout) == (0, f"job {name} has ended\n"), done.stderr
    for process in (tunnel, second):
        _, said = process.communicate(timeout=60)
        assert process.returncode == 7
        assert f"the tunnel has closed: job {name} " in said
    assert token not in desk.log(run)
    assert token not in desk.cluster.path(run.record).read_text()


def test_ctrl_c_closes_the_tunnel_and_not_the_job(desk: Desk) -> None:
    """And a job without a dashboard says so. Ray only stands there; what it is to offer is written into the log."""
    run = desk.up(desk.launch("--command", WAIT))
    done = desk.call("dashboard", str(run.job_id))
    assert done.returncode == 7
    assert "without the dashboard installed" in done.stderr
    assert "pip install 'ray[default]'" in done.stderr

    listener = "from http.server import *; s = ThreadingHTTPServer(('127.0.0.1', 0), BaseHTTPRequestHandler)"
    notify = (
        "print(f'[slurm-launch] 2026-11-16T09:00:00+0000 ready nodes=1/1 ray=2.60.0 dashboard=http://127.0.0.1:{p}')"
    )
    code = f"{listener}; p = s.server_port; {notify}; print('\\nup', flush=True); s.serve_forever()"
    server = desk.file("server.py", code)
    real = f"mkdir -p {desk.home}/bin; cp $(type -P ray) {desk.home}/bin; ln -sf /usr/bin/python3 {desk.home}/bin"
    path = f"export PATH={desk.home}/bin:$PATH"  # beside `ray` a Python for the far end of the tunnel
    own = desk.up(
        desk.launch("--exp-name", "own", "--load-env", real, "--load-env", path, "--command", f"exec python3 {server}")
    )
    with desk.terminal("dashboard", "own", "--open") as person:
        port = person.wait_for(r"http://127\.0\.0\.1:\d+").rpartition(":")[2]
        person.wait_for("Ctrl-C closes the tunnel")
        done = desk.cluster.run([desk.python, "-c", TWO, port], stdin="any")
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["501", "501"], "of a server without methods"
        person.type("\x03")
        assert person.end() == 0, person.screen
        assert "the tunnel is closed; job" in person.screen
    assert desk.states(own) == ["RUNNING"]
    off = desk.up(desk.launch("--exp-name", "off", "--no-dashboard", "--auth", "off", "--command", WAIT))
    done = desk.call("dashboard", "off")
    assert done.returncode == 7
    assert f"job {off.job_id} was started without the dashboard" in done.stderr
    done = desk.call("dashboard", "off", "--token")
    assert done.returncode == 7
    assert "needs no token" in done.stderr
