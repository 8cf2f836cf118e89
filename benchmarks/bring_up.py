"""Time until Ray runs on all nodes, for each method to start it, on the real test cluster. README.md describes how."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from benchmarks.measured import Measured, at_least, at_most, known, spread
from slurm_launch import LaunchSpec, render
from tests.testbed import Cluster, Process, venv_binds

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
VENV = Path(sys.prefix)
HOME = "/home/alice"
# No usage statistics: there is no network to send them to, and waiting for it would distort the comparison.
ENV = {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin", "RAY_USAGE_STATS_ENABLED": "0"}

WAYS = ("ours", "docs", "symmetric", "floor")
ROUNDS = {3: 5, 4: 2, 6: 5}  # by number of nodes
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "ours-default": {},
    "ours-open": {"auth": "off"},
    "ours-plain": {"dashboard": False},
}
OURS = {"ours": {}, **OPTIONS}
RENAMED = ("ray-", "ray::")  # Ray's dashboard and agents: the new process title overwrites their environment
OPTION_ROUNDS = 7  # of the three OPTIONS on three nodes, in turn: small differences need more rounds


@dataclass(frozen=True)
class Taken:
    """Durations of one job in seconds; all but the last count from its first line."""

    command: float  # until the command started
    nodes: float  # until a driver saw all nodes
    tasks: float  # until a task had run on every node
    freed: float | None  # from the end of the command until the nodes were free


@dataclass
class Bench:
    """Jobs on one cluster, one after another."""

    cluster: Cluster
    jobs: int = 0
    earlier: Callable[[int, str], str] | None = None  # renders the script of another version, see against.py
    taken: dict[tuple[str, int], list[Taken]] = field(default_factory=lambda: defaultdict(list))

    def run(self, ways: Sequence[str], nodes: int, rounds: int, *, to_the_end: bool = False) -> None:
        """Run each method once per round, in changing order. A method that fails is retried once, with a message."""
        for number in range(rounds):
            order = [*ways[number % len(ways) :], *ways[: number % len(ways)]]
            for way in order[::-1] if number % 2 else order:
                try:
                    taken = self._measure(way, nodes, to_the_end)
                except TimeoutError as error:
                    print(
                        f"      {nodes} nodes, round {number + 1}: {way} FAILED, retrying once:\n{error}",
                        flush=True,
                    )
                    taken = self._measure(way, nodes, to_the_end)
                self.taken[way, nodes].append(taken)
                freed = "" if taken.freed is None else f", nodes free {taken.freed:.1f} s after its end"
                print(
                    f"      {nodes} nodes, round {number + 1}: {way} {taken.nodes:.1f} s until all nodes,"
                    f" {taken.tasks:.1f} s until all tasks (command after {taken.command:.1f} s){freed}",
                    flush=True,
                )

    def seconds(self, way: str, nodes: int, name: str = "nodes") -> list[float]:
        return [getattr(taken, name) for taken in self.taken[way, nodes]]

    def _measure(self, way: str, nodes: int, to_the_end: bool) -> Taken:
        self.jobs += 1
        self.cluster.reset()
        result = f"{HOME}/probe-{self.jobs}.json"
        command = [f"{VENV}/bin/python", str(HERE / "probe.py"), str(nodes), result]
        if way == "floor":
            return self._by_hand(nodes, command, result)
        arguments: list[str] = []
        if way == "earlier" and self.earlier is not None:
            script = timed(self.earlier(nodes, shlex.join(command)))
        elif way in OURS:
            script = timed(_ours(nodes, shlex.join(command), **OURS[way]))
        else:
            script, arguments = (HERE / f"ways/{way}.sh").read_text(), command
        job, log = self._submit(script, nodes, arguments)
        moments = self._wait(result, log)
        freed = self._wait_until_freed(job) if to_the_end else None
        return _taken(moments, freed)

    def _submit(self, script: str, nodes: int, arguments: Sequence[str] = ()) -> tuple[str, Path]:
        name = f"job-{self.jobs}"
        self.cluster.run(["tee", f"{name}.sh"], stdin=script, check=True)
        argv = ["sbatch", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=1"]
        argv += [f"--output={name}.log", f"{name}.sh", *arguments]
        job = self.cluster.run(argv, env=ENV, check=True).stdout.strip()
        return job, self.cluster.path(f"{HOME}/{name}.log")

    def _wait(self, result: str, log: Path, timeout: float = 240) -> dict[str, float]:
        path = self.cluster.path(result)
        deadline = time.monotonic() + timeout
        while not path.exists():
            if time.monotonic() > deadline:
                text = log.read_text(errors="replace") if log.exists() else "no log"
                raise TimeoutError(f"the probe wrote no result within {timeout} s:\n{text}")
            time.sleep(0.03)
        moments: dict[str, float] = json.loads(path.read_text())
        return moments

    def _wait_until_freed(self, job: str, timeout: float = 240) -> float:
        deadline = time.monotonic() + timeout
        while self.cluster.run(["squeue", "-h", "-j", job, "-o", "%T"], user="root").stdout.strip():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the nodes are not free after {timeout} s")
            time.sleep(0.03)
        return time.time()

    def _by_hand(self, nodes: int, command: list[str], result: str) -> Taken:
        address = self.cluster.address("n1")
        with ExitStack() as started:
            env = ENV | {"BENCH_BEGIN": repr(time.time())}
            for node in self.cluster.nodes[:nodes]:
                argv = [str(HERE / "ways/floor.sh"), address, *command]
                log = self.cluster.path(f"{HOME}/floor-{self.jobs}-{node}.log")
                out = started.enter_context(log.open("w"))
                process = self.cluster.popen(argv, node=node, env=env, stdout=out, stderr=out)
                started.callback(process.wait)
            try:
                moments = self._wait(result, self.cluster.path(f"{HOME}/floor-{self.jobs}-n1.log"))
            finally:
                self.cluster.reset()  # kills the processes started above
        return _taken(moments, None)

    def until_it_runs(self, nodes: int) -> None:
        """Start a job whose command only sleeps; return as soon as the command has started."""
        self.jobs += 1
        self.cluster.reset()
        _, log = self._submit(_ours(nodes, "echo it runs; exec sleep 600"), nodes)
        deadline = time.monotonic() + 120
        while not log.exists() or "\nit runs" not in log.read_text():
            if time.monotonic() > deadline:
                raise SystemExit(f"the job does not start:\n{log.read_text() if log.exists() else 'no log'}")
            time.sleep(0.1)

    def beside_ray(self, nodes: int) -> tuple[list[Process], int]:
        """Return the script's own processes on the head node while a command runs, and the number of its sruns."""
        self.until_it_runs(nodes)
        time.sleep(3)  # Ray may still be starting processes
        kept, sruns = [], 0
        for process in self.cluster.processes("n1", user="alice"):
            try:
                if process.args.split(" ")[0].endswith("srun"):
                    sruns += not _is_child_of(process, "srun")  # srun forks a second process
                elif "SLAUNCH_NODE_DIR" not in _environment(process) and not process.args.startswith(RENAMED):
                    kept.append(process)  # the others belong to Ray and the command
            except OSError:
                continue  # it has exited meanwhile
        self.cluster.reset()
        return kept, sruns


def measure() -> Iterator[Measured]:
    with Cluster(nodes=max(ROUNDS), slurmd_timeout=90, binds=[ROOT, *venv_binds(VENV)]) as cluster:
        bench = Bench(cluster)
        kept, sruns = bench.beside_ray(3)
        yield Measured(
            "processes of the script on the head node beside Ray, the command and srun",
            "<= 3",
            str(len(kept)),
            len(kept) <= 3,
            "; ".join(" ".join(process.args.split())[:40] for process in kept),
        )
        yield Measured("sruns of a job on 3 nodes", "<= 3", str(sruns), sruns <= 3, "one for each step")
        for nodes, rounds in ROUNDS.items():
            bench.run(WAYS, nodes, rounds, to_the_end=nodes == 3)
        bench.run(list(OPTIONS), 3, OPTION_ROUNDS)
        for nodes, docs_goal in ((3, 3.0), (6, 4.0)):
            yield _ratio(bench, nodes, "ours", "floor", 1.25)
            yield _ratio(bench, nodes, "docs", "ours", docs_goal, least=True)
            yield _ratio(bench, nodes, "symmetric", "ours", 1.4, least=True)
        yield from _freed(bench)
        yield _ratio(bench, 3, "ours-default", "ours-open", 1.05)
        yield known(
            "bring-up, 3 nodes: ours with `--no-dashboard` / ours",
            f"{median(bench.seconds('ours-plain', 3)) / median(bench.seconds('ours-default', 3)):.2f}",
            _details(bench, 3, "ours-plain", "ours-default"),
        )
        by_nodes.update({way: {nodes: median(bench.seconds(way, nodes)) for nodes in ROUNDS} for way in WAYS})


by_nodes: dict[str, dict[int, float]] = {}  # the medians of the methods, for the plot


def _ratio(bench: Bench, nodes: int, above: str, below: str, goal: float, *, least: bool = False) -> Measured:
    ratio = median(bench.seconds(above, nodes)) / median(bench.seconds(below, nodes))
    names = {"ours-default": "ours", "ours-open": "ours without token authentication"}
    what = f"bring-up, {nodes} nodes: {names.get(above, above)} / {names.get(below, below)}"
    return (at_least if least else at_most)(what, goal, ratio, _details(bench, nodes, above, below))


def _details(bench: Bench, nodes: int, above: str, below: str) -> str:
    of_tasks = [median(bench.seconds(way, nodes, "tasks")) for way in (above, below)]
    text = " / ".join(spread(bench.seconds(way, nodes)) for way in (above, below))
    return f"{text}; until a task ran on every node {of_tasks[0]:.1f} s / {of_tasks[1]:.1f} s"


def _freed(bench: Bench) -> Iterator[Measured]:
    freed = {
        way: [taken.freed for taken in bench.taken[way, 3] if taken.freed is not None] for way in ("ours", "symmetric")
    }
    detail = f"{spread(freed['ours'])} / {spread(freed['symmetric'])}"
    ratio = median(freed["ours"]) / median(freed["symmetric"])
    yield at_most("the command's end until the nodes are free, 3 nodes: ours / symmetric", 1, ratio, detail)
    yield at_most("the same, ours", 5, median(freed["ours"]), spread(freed["ours"]), " s")


def _ours(nodes: int, command: str, **options: object) -> str:
    fields = {"exp_name": "bench", "command": command, "num_nodes": nodes, "cpus_per_task": 1, **options}
    return render(LaunchSpec.model_validate(fields), when=datetime(2026, 1, 1, tzinfo=timezone.utc))


def timed(script: str) -> str:
    """Return the script with a timestamp line added before the first line that runs."""
    first = script.index("\nslaunch_run=")
    return f"{script[:first]}\nexport BENCH_BEGIN=$EPOCHREALTIME{script[first:]}"


def _taken(moments: dict[str, float], freed: float | None) -> Taken:
    since = {name: moment - moments["first_line"] for name, moment in moments.items()}
    return Taken(since["command"], since["nodes"], since["tasks"], freed and freed - moments["end"])


def _is_child_of(process: Process, name: str) -> bool:
    parent = Path(f"/proc/{process.host_pid}/stat").read_text().rpartition(")")[2].split()[1]
    return Path(f"/proc/{parent}/comm").read_text().strip() == name


def _environment(process: Process) -> str:
    return Path(f"/proc/{process.host_pid}/environ").read_text(errors="replace")
