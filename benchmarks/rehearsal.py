"""A rehearsal of `true` on three nodes compared with the floor: three `ray start` by hand.

The floor is the manual procedure: a head and two workers with the same resources, the workers started as soon as the
head's port is open, until all three run. Stopping them is not counted. The time of the rehearsal is that of the whole
command, cleanup included. Both are measured in turn, in one run; the ratio of the medians is reported.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measured import Measured, at_most, spread

ROUNDS = 5
GOAL = 1.3
BIN = Path(sys.executable).parent
NODES = 3


def measure() -> Iterator[Measured]:
    by_hand: list[float] = []
    rehearsed: list[float] = []
    for number in range(ROUNDS):
        for call, taken in ((floor, by_hand), (rehearsal, rehearsed))[:: -1 if number % 2 else 1]:
            taken.append(call())
        print(f"      round {number + 1}: by hand {by_hand[-1]:.1f} s, rehearsed {rehearsed[-1]:.1f} s", flush=True)
    ratio = statistics.median(rehearsed) / statistics.median(by_hand)
    detail = f"{spread(rehearsed)} / {spread(by_hand)}"
    yield at_most("rehearsal of `true` on 3 nodes / three bare `ray start`", GOAL, ratio, detail)


def rehearsal() -> float:
    with tempfile.TemporaryDirectory() as folder:
        argv = [f"{BIN}/slurm-launch", "rehearse", "--exp-name", "bench", "-n", str(NODES), "--command", "true"]
        begin = time.monotonic()
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        took = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(f"the rehearsal failed: {done.stdout}{done.stderr}")
    return took


def floor() -> float:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as folder:
        begin = time.monotonic()
        port = _free_port()
        started = [_ray_start(folder, 0, port)]
        while not _open("127.0.0.2", port):
            _still_in_time(begin)
        started += [_ray_start(folder, index, port) for index in range(1, NODES)]
        logs = [Path(folder, f"{index}.log") for index in range(NODES)]
        while not all("Ray runtime started" in log.read_text() for log in logs):
            _still_in_time(begin)
        subprocess.run(["true"], check=True)
        took = time.monotonic() - begin
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return took


def _ray_start(folder: str, index: int, port: int) -> subprocess.Popen[bytes]:
    address = f"127.0.0.{index + 2}"
    where = ["--head", f"--port={port}"] if index == 0 else [f"--address=127.0.0.2:{port}"]
    argv = [f"{BIN}/ray", "start", "--block", *where, f"--node-ip-address={address}", "--num-cpus=1"]
    argv += [f"--temp-dir={folder}/{index}", "--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
    argv += ["--dashboard-agent-listen-port=0"]
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"}
    with open(f"{folder}/{index}.log", "wb") as log:
        return subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _still_in_time(begin: float) -> None:
    if time.monotonic() - begin > 120:
        raise SystemExit("the floor: three Ray nodes did not start within two minutes")
    time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


def _open(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
