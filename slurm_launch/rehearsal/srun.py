"""The fake srun: runs the tasks of a step on this machine, each as if on its own node."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from slurm_launch.rehearsal import faults
from slurm_launch.rehearsal.job import RehearsalFolder, RehearsedJob, fill, node_environment
from slurm_launch.rehearsal.option_parser import CommandOptions

_WITH_VALUE = """chdir cpu-bind cpus-per-task distribution error exclude export gpus-per-node gpus-per-task gres
het-group input job-name jobid mem mem-bind mem-per-cpu mem-per-gpu mpi network nodelist nodes ntasks ntasks-per-node
output relative time wait"""
_WITHOUT_VALUE = "exact exclusive help kill-on-bad-exit label no-kill overlap quiet unbuffered verbose whole"
# The options of Pyxis: accepted, so that the script runs unchanged, but no container is started.
_PYXIS = "container-image container-mounts container-name container-workdir container-env container-save"
_PYXIS_WITHOUT_VALUE = " ".join(
    f"container-{name} no-container-{name}" for name in ("mount-home", "remap-root", "entrypoint", "writable")
)
SHORT = {
    "c": "cpus-per-task", "D": "chdir", "e": "error", "i": "input", "J": "job-name", "K": "kill-on-bad-exit",
    "l": "label", "m": "distribution", "N": "nodes", "n": "ntasks", "o": "output", "Q": "quiet", "r": "relative",
    "t": "time", "u": "unbuffered", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
OPTIONS = CommandOptions(
    "srun", f"{_WITH_VALUE} {_PYXIS}".split(), f"{_WITHOUT_VALUE} {_PYXIS_WITHOUT_VALUE}".split(), SHORT
)
FORWARDED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(folder: RehearsalFolder, argv: list[str]) -> int:
    options, command = OPTIONS.parse(argv)
    if "help" in options:
        supported = "\n  --".join(sorted(OPTIONS.valued | OPTIONS.plain))
        print(f"Usage: srun [OPTIONS...] executable [args...]\n  --{supported}")
        return 0
    job = folder.job()
    wanted = options.get("jobid", os.environ.get("SLURM_JOB_ID"))
    if job is None or wanted != str(job.id):
        OPTIONS.fail(f"Unable to confirm allocation for job {wanted}: Invalid job id specified")
    if not command:
        OPTIONS.fail("No command given to execute.")
    nodes = _nodes(options, job)
    step = folder.new_step()
    return _Step(folder, job, step, options, nodes).run(command)


def _nodes(options: Mapping[str, str], job: RehearsedJob) -> list[str]:
    """The node of each task of the step; a node can occur several times."""
    number = int(options.get("het-group", "0"))
    if number >= len(job.groups) or ("het-group" in options and len(job.groups) == 1):
        OPTIONS.fail("No directives to start application on any available hetjob components")
    allocated = job.groups[number].nodes
    listed, excluded = _hosts(options.get("nodelist")), _hosts(options.get("exclude"))
    usable = [node for node in allocated[int(options.get("relative", "0")) :] if node not in excluded]
    per_node = OPTIONS.number(options, "ntasks-per-node", 0)
    count = OPTIONS.number(options, "nodes", int(os.environ.get("SLURM_NNODES", len(allocated))))
    tasks = OPTIONS.number(options, "ntasks", per_node * count or int(os.environ.get("SLURM_NTASKS", count)))
    if count > tasks:
        print(
            f"srun: Warning: can't run {tasks} processes on {count} nodes, setting nnodes to {tasks}", file=sys.stderr
        )
        count = tasks
    # --nodelist is a minimum: more nodes are added if more are requested, also by the job's own variables.
    chosen = [node for node in usable if node in listed] + [node for node in usable if node not in listed]
    if len(chosen) < count or not set(listed) <= set(chosen) or (per_node and tasks > count * per_node):
        OPTIONS.fail(f"Unable to create step for job {job.id}: Requested node configuration is not available")
    # In the allocation's order, whatever that of --nodelist.
    usable = [node for node in allocated if node in chosen[: max(count, len(listed))]]
    count = len(usable)
    share, extra = divmod(tasks, count)
    return [node for place, node in enumerate(usable) for _ in range(share + (place < extra))]


def _hosts(text: str | None) -> list[str]:
    if not text:
        return []
    if "[" not in text:
        return text.split(",")
    from slurm_launch.slurm import hostlist  # slow to import, and the generated script's lists have no brackets

    return hostlist.expand(text)


class _Step:
    """A step and its tasks."""

    def __init__(
        self, folder: RehearsalFolder, job: RehearsedJob, number: int, options: Mapping[str, str], nodes: list[str]
    ) -> None:
        self.folder, self.job, self.number, self.options, self.nodes = folder, job, number, options, nodes
        self.name = f"StepId={job.id}.{number}"
        self.tasks: dict[int, subprocess.Popen[bytes]] = {}
        self.codes: dict[int, int] = {}
        self.signalled = 0  # the last signal received

    def run(self, command: list[str]) -> int:
        for number in (*FORWARDED, signal.SIGTERM):
            signal.signal(number, self._forward)
        fault = faults.read(self.folder)
        for place, node in enumerate(self.nodes):
            index = self.job.nodes.index(node)
            if fault == faults.Fault("worker-missing", index):
                self._pause(faults.MISSING_AFTER)
                why = "Communication connection failure"
                print(f"srun: error: Task launch for {self.name} failed on node {node}: {why}", file=sys.stderr)
                print(f"srun: error: Application launch failed: {why}", file=sys.stderr)
                self._end_tasks()
                return 1
            if fault == faults.Fault("slow-node", index):
                self._pause(faults.SLOW_BY)
                if self.signalled:  # while the node was not up yet: start no more tasks
                    del self.nodes[place:]
                    break
            self._start(place, node, command)
        self._serve()
        return max(self.codes.values(), default=128 + self.signalled)

    def _environment(self, place: int, node: str) -> dict[str, str]:
        on_nodes = list(dict.fromkeys(self.nodes))
        per_node = [self.nodes.count(each) for each in on_nodes]
        variables = node_environment(self.job, node)
        variables |= {
            "SLURM_GTIDS": str(place),
            "SLURM_LOCALID": str(self.nodes[:place].count(node)),
            "SLURM_NNODES": str(len(on_nodes)),
            "SLURM_NODEID": str(on_nodes.index(node)),
            "SLURM_NODELIST": ",".join(on_nodes),
            "SLURM_NPROCS": str(len(self.nodes)),
            "SLURM_NTASKS": str(len(self.nodes)),
            "SLURM_PROCID": str(place),
            "SLURM_SRUN_COMM_HOST": "127.0.0.1",
            "SLURM_STEPID": str(self.number),
            "SLURM_STEP_ID": str(self.number),
            "SLURM_STEP_NODELIST": ",".join(on_nodes),
            "SLURM_STEP_NUM_NODES": str(len(on_nodes)),
            "SLURM_STEP_NUM_TASKS": str(len(self.nodes)),
            "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, per_node)),
            "SLURM_TASKS_PER_NODE": ",".join(map(str, per_node)),
            "SLURM_TASK_PID": str(os.getpid()),
        }
        if "cpus-per-task" in self.options:
            variables["SLURM_CPUS_PER_TASK"] = self.options["cpus-per-task"]
        export = self.options.get("export", "ALL")
        names = {name for name in os.environ if name.startswith("SLURM_")}
        kept = dict(os.environ) if export.split(",")[0] == "ALL" else {name: os.environ[name] for name in names}
        for item in export.split(","):
            name, equals, value = item.partition("=")
            if equals:
                kept[name] = value
            elif name in os.environ:
                kept[name] = os.environ[name]
        return kept | variables

    def _start(self, place: int, node: str, command: list[str]) -> None:
        try:
            with self._files(place, node) as (stdin, stdout, stderr):
                task = subprocess.Popen(
                    command,
                    env=self._environment(place, node),
                    cwd=self.options.get("chdir"),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    preexec_fn=os.setpgrp,  # its own process group but not its own session, like a real task
                )
        except OSError as error:
            print(f"slurmstepd: error: execve(): {command[0]}: {error.strerror}", file=sys.stderr)
            self._ended(place, 2)
            return
        self.tasks[place] = task
        self.folder.add_task(self.number, task.pid)

    @contextmanager
    def _files(self, place: int, node: str) -> Iterator[list[IO[bytes] | int | None]]:
        """The standard streams of a task; None: those of srun."""
        number = {"t": place, "n": self.nodes.index(node), "N": node, "j": self.job.id, "s": self.number}
        named = {key: fill(self.options[key], number) for key in ("input", "output", "error") if key in self.options}
        piped = subprocess.PIPE if "label" in self.options else None
        with ExitStack() as opened:
            found: list[IO[bytes] | int | None] = [None if len(self.nodes) == 1 else subprocess.PIPE, piped, piped]
            for index, key in enumerate(("input", "output", "error")):
                name = named.get(key, "all" if index == 0 else named.get("output", "all"))
                if name == "none":
                    found[index] = subprocess.DEVNULL
                elif name != "all":
                    found[index] = opened.enter_context(open(name, "ab" if index else "rb"))
            yield found

    def _serve(self) -> None:
        """Pass input to the tasks and labeled output from them, until all have ended."""
        with selectors.DefaultSelector() as waiting:
            if any(task.stdin for task in self.tasks.values()):
                try:
                    waiting.register(0, selectors.EVENT_READ)
                except PermissionError:  # a regular file: always readable
                    while data := os.read(0, 1 << 16):
                        self._feed(data)
                    self._feed(b"")
            for place, task in self.tasks.items():
                for stream, out in ((task.stdout, sys.stdout), (task.stderr, sys.stderr)):
                    if stream is not None:
                        waiting.register(stream, selectors.EVENT_READ, _LabeledOutput(place, out))
            while len(self.codes) < len(self.nodes) or any(key.data for key in waiting.get_map().values()):
                for key, _ in waiting.select(0.1):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        waiting.unregister(key.fileobj)
                    (key.data or self._feed)(data)
                for place, task in self.tasks.items():
                    if place not in self.codes and task.poll() is not None:
                        self._ended(place, task.returncode)

    def _feed(self, data: bytes) -> None:
        for task in self.tasks.values():
            if task.stdin is None:
                continue
            with suppress(OSError):
                task.stdin.write(data)
                task.stdin.flush()
                if not data:
                    task.stdin.close()

    def _ended(self, place: int, returncode: int) -> None:
        self.codes[place] = returncode if returncode >= 0 else 128 - returncode
        if returncode:
            how = f"Exited with exit code {returncode}" if returncode > 0 else _signal_text(-returncode)
            print(f"srun: error: {self.nodes[place]}: task {place}: {how}", file=sys.stderr)
            if self.options.get("kill-on-bad-exit", "0") != "0":
                print(f"srun: Terminating {self.name}", file=sys.stderr)
                self._end_tasks()

    def _end_tasks(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._send(number)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline and any(task.poll() is None for task in self.tasks.values()):
                time.sleep(0.05)

    def _send(self, number: int) -> None:
        for task in self.tasks.values():
            if task.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(task.pid, number)

    def _forward(self, number: int, _: object) -> None:
        self.signalled = number
        self._send(signal.SIGKILL if number == signal.SIGTERM else number)  # ending srun kills the step

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.signalled:
            time.sleep(0.1)


class _LabeledOutput:
    """Prints a task's output line by line, prefixed with the task's number."""

    def __init__(self, place: int, out: IO[str]) -> None:
        self.place, self.out, self.rest = place, out, b""

    def __call__(self, data: bytes) -> None:
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        if not data and self.rest:  # the end, without a newline
            lines.append(self.rest)
        for line in lines:
            print(f"{self.place}: {line.decode(errors='replace')}", file=self.out, flush=True)


def _signal_text(number: int) -> str:
    return signal.strsignal(number) or f"Signal {number}"
