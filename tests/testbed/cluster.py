"""A real slurmctld and N slurmd on one machine, in namespaces; see Cluster.

Everything runs below one process (init.sh) in its own namespaces: when it ends, the kernel removes every daemon, job,
mount and network of the cluster. It ends with the Python process that started it, also after SIGKILL; guard.sh then
removes the cluster's cgroups. Nothing else on the machine is changed; the cluster writes to memory and to one folder
for configuration and logs.
"""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from . import cgroups as cgroup_trees
from . import config, rootfs
from . import pyxis as pyxis_plugin
from .config import LOGIN, USERS, NodeOptions, Settings
from .procs import is_testbed_daemon, kill, namespace, scan

STATE_PREFIX = "slurm-testbed-"
FAILED = {"BOOT_FAIL", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
ENDED = FAILED | {"CANCELLED", "COMPLETED"}
TOOLS = ("slurmctld", "slurmd", "munged", "ip", "unshare", "nsenter", "setpriv", "pivot_root")


class TestbedError(RuntimeError):
    """The cluster failed; the message contains the end of the logs."""

    __test__ = False  # pytest must not collect it


class Process(NamedTuple):
    pid: int  # in the PID namespace of the node
    user: str
    args: str
    host_pid: int  # in that of the test process


def unavailable_reason(accounting: bool = False, pyxis: bool = False, cgroups: bool = False) -> str | None:
    """The reason why no cluster (with all of these) can run on this machine, or None."""
    if os.geteuid() != 0:
        return "the Slurm testbed needs root (it creates namespaces and mounts)"
    path = "/usr/sbin:/sbin:" + os.environ.get("PATH", os.defpath)
    wanted = TOOLS + (("mariadbd", "slurmdbd") if accounting else ())
    missing = [tool for tool in wanted if not shutil.which(tool, path=path)]
    missing += pyxis_plugin.missing() if pyxis else []
    if missing:
        packages = "slurm-wlm munge iproute2 util-linux" + (" mariadb-server slurmdbd" if accounting else "")
        packages += f" {pyxis_plugin.PACKAGES}" if pyxis else ""
        return f"the Slurm testbed needs {', '.join(missing)} (Debian packages: {packages})"
    probe = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True)
    if done.returncode:
        return f"the Slurm testbed needs namespaces, which this machine refuses: {done.stderr.strip()}"
    return cgroup_trees.missing_reason() if cgroups else None


def venv_binds(*venvs: str | Path) -> list[str]:
    """The folders that virtual environments need on the nodes: their own, and that of their base Python."""
    paths: list[str] = []
    for venv in map(Path, venvs):
        python = (venv / "bin" / "python").resolve()
        found = [str(venv.absolute()), str(python.parent.parent)]
        if found[1] == "/usr":  # the system Python: another release has another one, which init.sh replaces
            found[1:] = [str(python), f"/usr/lib/{python.name}"]
        paths += [path for path in found if path not in paths]
    return paths


class Cluster:
    """A Slurm cluster with nodes n1, n2, ... and a login node, for a `with` block or between start() and stop().

    All nodes share one root file system (changes are in memory) and /home, as with NFS. Each has its own /tmp,
    /var/tmp, /dev/shm, network, process IDs, cgroups and /etc/hosts. Users: alice, bob, root.

    As on most real clusters, cgroups track the processes of a job, limit its memory, and let it open its own GPUs only
    (fake ones: ENXIO for its own, EPERM for others). CPUs are only counted, unless they are real_cpus: by default a
    node has more of them than the machine.
    """

    def __init__(
        self,
        nodes: int = 3,
        families: str = "46",
        suite: str = "host",
        cpus: int = 8,
        memory_mb: int = 8192,
        gpus: int = 2,
        tmp_size: str = "1g",
        node_options: Mapping[str, NodeOptions] | None = None,
        accounting: bool = False,
        pyxis: bool = False,
        binds: Sequence[str | Path] = (),
        slurmd_timeout: int = 15,
        slurm_conf_extra: Sequence[str] = (),
        etc_slurm: Mapping[str, str] | None = None,
        cgroups: bool = True,
        threads: int = 1,
        real_cpus: bool = False,
        private_tmp: bool = False,
    ) -> None:
        """binds are paths of the machine to mount read-only at the same place on all nodes. suite is a Debian release
        with another Slurm version, or "host". A line of slurm_conf_extra replaces the default with the same key.
        etc_slurm are more files for /etc/slurm, such as {"prolog.sh": "#!/bin/bash..."}, or replacements of the default
        ones. With pyxis, srun has the options of Pyxis: see pyxis.c.

        Without cgroups the plugins are proctrack/linuxproc and task/none, and nothing is enforced. This is also what
        starts on a machine without cgroup v1, with a note on stderr; settings.cgroups then is False. threads is the
        number of CPUs per core. With real_cpus each node has the CPUs of the machine, whatever cpus and threads are,
        and a step can use its own only (task/affinity, ConstrainCores). With private_tmp each job has its own /tmp
        (job_container/tmpfs).

        Slurm needs longer than slurmd_timeout to give up on a node: with 15, a job ends as NODE_FAIL 30 to 34 s after
        the loss of a slurmd or a link; with 10 and MessageTimeout=4, after 16 to 18 s."""
        if families not in ("4", "6", "46"):
            raise ValueError(f'families must be "4", "6" or "46", not {families!r}')
        self.nodes = [f"n{i}" for i in range(1, nodes + 1)]
        options = {node: NodeOptions() for node in self.nodes} | dict(node_options or {})
        if unknown := set(options) - set(self.nodes):
            raise ValueError(f"no such node: {', '.join(sorted(unknown))}")
        self.suite = suite
        self.settings = Settings(
            options=options,
            families=families,
            cpus=os.cpu_count() or 1 if real_cpus else cpus,
            memory_mb=memory_mb,
            gpus=gpus,
            tmp_size=tmp_size,
            accounting=accounting,
            pyxis=pyxis,
            binds=[os.path.abspath(path) for path in binds],
            slurmd_timeout=slurmd_timeout,
            slurm_conf_extra=slurm_conf_extra,
            etc_slurm=etc_slurm or {},
            cgroups=cgroups,
            threads=threads,
            real_cpus=real_cpus,
            private_tmp=private_tmp,
        )
        self._state: Path | None = None
        self._lock = -1
        self._init: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._cgroups: dict[str, Path] = {}  # by controller; those of the nodes are below
        self._pids: dict[str, int] = {}  # process 1 of each node and of the login node, in our PID namespace
        self._links_down: set[str] = set()

    # Start and stop

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def state(self) -> Path:
        """The folder with the configuration, the logs (log/) and the script `enter`."""
        if self._state is None:
            raise TestbedError("the cluster is not started")
        return self._state

    def start(self) -> None:
        if reason := unavailable_reason(self.settings.accounting, self.settings.pyxis):
            raise TestbedError(reason)
        root = rootfs.root_folder(self.suite)
        if self.settings.accounting and root != Path("/"):
            raise TestbedError("accounting works with the machine's own Slurm only")
        if self.settings.pyxis and root != Path("/"):
            raise TestbedError("the plugin for Pyxis is built for the machine's own Slurm only")
        if self.settings.cgroups and (reason := cgroup_trees.missing_reason()):
            print(f"note: this cluster runs without cgroups: {reason}", file=sys.stderr)
            self.settings = dataclasses.replace(self.settings, cgroups=False)
        _remove_stale()
        self._state, self._lock = _new_state()
        try:
            if self.settings.cgroups:
                self._guard = cgroup_trees.guard(self._state.name)
                self._cgroups = cgroup_trees.create(self._state.name)
            config.write_files(self.settings, root, self._state, self._cgroups)
            if self.settings.pyxis:
                pyxis_plugin.build(self._state)
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the cluster and remove its cgroups and its folder."""
        _close(self._guard)  # it removes the cgroups, and before that it thaws frozen processes, which could not end
        if self._init is not None:
            # unshare ends after init.sh, which ends after the kernel has ended all of its descendants.
            if self._init.poll() is None:
                inside = [pid for pid, seen in scan().items() if seen.parent == self._init.pid]
                for pid in inside or [self._init.pid]:
                    kill(pid, signal.SIGKILL)
                self._init.wait(60)
            _close(self._init)
            self._init = None
        removed = True
        if self._guard is not None:
            removed = self._guard.wait() == 0 or cgroup_trees.remove(self.state.name)
            self._guard = None
            self._cgroups = {}
        if self._state is not None:
            if removed:  # otherwise the next start tries again, as it finds the folder
                shutil.rmtree(self._state, ignore_errors=True)
            os.close(self._lock)
            self._state = None
        self._pids.clear()
        self._links_down.clear()

    def _launch(self) -> None:
        argv = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv += ["bash", str(self.state / "init.sh"), str(self.state)]
        with (self.state / "log/init.out").open("wb") as out:
            self._init = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                start_new_session=True,  # Ctrl-C is for Python, which then stops the cluster
            )
        self._until(60, "the daemons", (self.state / "started").exists)
        (self._pids[LOGIN],) = (p for p, seen in scan().items() if seen.parent == self._init.pid)
        (self.state / f"pids/{LOGIN}").write_text(str(self._pids[LOGIN]))
        self._until(30 + len(self.nodes) / 2, "the nodes", lambda: not self._not_idle())
        for pid, seen in (found := scan()).items():
            wrapper = found.get(seen.parent)  # the `unshare` between init.sh and node.sh
            if wrapper and wrapper.parent == self._pids[LOGIN] and seen.args[:2] == ["bash", "/testbed/node.sh"]:
                self._pids[seen.args[2]] = pid
                (self.state / "pids" / seen.args[2]).write_text(str(pid))
        if missing := set(self.nodes) - set(self._pids):
            raise TestbedError(f"no process 1 found for: {', '.join(sorted(missing))}")

    def _until(self, seconds: float, what: str, ready: Callable[[], bool]) -> None:
        """Wait until it is ready; a daemon that has ended, or the timeout, raises an error with the logs."""
        deadline = time.monotonic() + seconds
        while not ready():
            ended = sorted(path.name for path in (self.state / "ended").iterdir())
            dead = self._init is None or self._init.poll() is not None
            if ended or dead or time.monotonic() > deadline:
                why = f"ended: {' '.join(ended)}" if ended else "init.sh ended" if dead else f"waited {seconds:.0f} s"
                raise TestbedError(f"{what} did not come up ({why})\n{self.log_tail(ended)}")
            time.sleep(0.03)

    def log_tail(self, names: Sequence[str] = (), lines: int = 12) -> str:
        """The end of the logs of these daemons, or of all."""
        text = []
        for path in sorted((self.state / "log").iterdir()):
            if path.suffix == ".out" and path.with_suffix(".log").exists():
                continue  # it has the same content
            if path.stat().st_size and (not names or path.name.startswith(("init", *names))):
                text += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(text)

    def address(self, node: str, family: int | str = 4) -> str:
        """The address of a node, or of "login", in all hosts files."""
        if str(family) not in self.settings.families:
            raise ValueError(f"this cluster has no IPv{family} addresses")
        return config.address(node, family)

    # Commands and files

    def _argv(
        self, argv: Sequence[str], user: str, node: str | None, env: Mapping[str, str] | None, cwd: str | Path | None
    ) -> list[str]:
        command = [str(self.state / "enter"), "--user", user, "--node", node or LOGIN]
        if cwd is not None:
            command += ["--cwd", str(cwd)]
        for name, value in (env or {}).items():
            command += ["--env", f"{name}={value}"]
        return [*command, *argv]

    def run(
        self,
        argv: Sequence[str],
        user: str = "alice",
        node: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: str | None = None,
        timeout: float = 60,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node, or on that node, in the environment of a new login plus env."""
        command = self._argv(argv, user, node, env, cwd)
        # Files, not pipes: a daemon that the command leaves behind would keep a pipe open and block us.
        with tempfile.TemporaryFile("w+") as into, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            into.write(stdin or "")
            into.seek(0)
            code: int | None = None
            with subprocess.Popen(command, stdin=into, stdout=out, stderr=err) as process:
                try:
                    code = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    pass
                finally:
                    process.kill()
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode(errors="replace"))
        if code is None:
            raise subprocess.TimeoutExpired(list(argv), timeout, texts[0], texts[1])
        if check and code:
            raise TestbedError(f"{shlex.join(argv)} returned {code}\n{texts[0]}{texts[1]}".rstrip())
        return subprocess.CompletedProcess(list(argv), code, texts[0], texts[1])

    def popen(
        self,
        argv: Sequence[str],
        user: str = "alice",
        node: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdin: int | IO[str] | None = subprocess.DEVNULL,
        stdout: int | IO[str] | None = subprocess.PIPE,
        stderr: int | IO[str] | None = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Like run(), in the background. Any signal to it becomes SIGKILL for the command: for others use signal()."""
        command = self._argv(argv, user, node, env, cwd)
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, text=True)

    def path(self, path: str | Path) -> Path:
        """The path, for the test process, of a file that all nodes share (/home/alice/x) or of the login node."""
        return self.node_path(LOGIN, path)

    def node_path(self, node: str, path: str | Path) -> Path:
        """The path, for the test process, of a file of that node, such as in its /tmp."""
        return Path(f"/proc/{self._pids[node]}/root") / str(path).lstrip("/")

    # Jobs

    def squeue(self) -> list[dict[str, str]]:
        """The jobs in the queue: id, user, state, reason, nodes, name."""
        lines = self.run(["squeue", "-h", "-o", "%i|%u|%T|%r|%N|%j"], user="root", check=True).stdout.splitlines()
        names = ("id", "user", "state", "reason", "nodes", "name")
        return [dict(zip(names, line.split("|", 5), strict=True)) for line in lines]

    def jobs(self, job_id: int | str) -> list[dict[str, str]]:
        """The fields of `scontrol show job`: one entry, or one per task of an array or component of a het job."""
        out = self.run(["scontrol", "show", "job", "-o", str(job_id)], user="root", check=True).stdout
        return [_fields(line) for line in out.splitlines() if line.strip()]

    def job(self, job_id: int | str) -> dict[str, str]:
        return self.jobs(job_id)[0]

    def wait_job(self, job_id: int | str, timeout: float = 60) -> dict[str, str]:
        """Wait until the job (all tasks of an array) has ended and its nodes are free; returns the first entry."""
        deadline = time.monotonic() + timeout
        while True:
            jobs = self.jobs(job_id)
            if all(job["JobState"] in ENDED for job in jobs):
                return jobs[0]
            if time.monotonic() > deadline:
                states = ", ".join(f"{job['JobId']} {job['JobState']} ({job['Reason']})" for job in jobs)
                raise TestbedError(f"not ended after {timeout:.0f} s: {states}")
            time.sleep(0.1)

    def container_steps(self, job_id: int | str | None = None) -> list[pyxis_plugin.Step]:
        """The steps of srun, of that job or of all, with their Pyxis options on each of their nodes."""
        steps = pyxis_plugin.recorded(self.state)
        return [step for step in steps if job_id is None or step.job == int(job_id)]

    # Processes and faults

    def processes(self, node: str, user: str | None = None) -> list[Process]:
        """The processes on that node (or "login") without its own daemons and without zombies."""
        return [process for process in self._processes()[node] if user in (None, process.user)]

    def leftovers(self, seconds: float = 2) -> list[Process]:
        """The processes left on the nodes after this time; a slurmstepd outlives its job by some milliseconds."""
        deadline = time.monotonic() + seconds
        while True:
            found = self._processes()
            left = [process for node in self.nodes for process in found[node]]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)

    def _processes(self) -> dict[str, list[Process]]:
        found: dict[str, list[Process]] = {node: [] for node in self._pids}
        names = {uid: name for name, uid in USERS.items()} | {0: "root"}
        nodes = {namespace(pid): node for node, pid in self._pids.items()}
        for pid, seen in scan().items():
            node = nodes.get(namespace(pid))
            if node and not is_testbed_daemon(seen):
                user = names.get(seen.uid, str(seen.uid))
                found[node].append(Process(seen.pids[-1], user, seen.command, pid))
        return found

    def signal(self, node: str, target: int | str, sig: int = signal.SIGTERM) -> list[Process]:
        """Signal the process with this PID on that node, or all whose command line matches; returns those."""
        found = self.processes(node)
        if isinstance(target, int):
            chosen = [process for process in found if process.pid == target]
        else:
            chosen = [process for process in found if re.search(target, process.args)]
        for process in chosen:
            kill(process.host_pid, sig)
        return chosen

    def _slurmds(self) -> dict[str, int]:
        """The PID of slurmd on the nodes where it runs."""
        nodes = {namespace(pid): node for node, pid in self._pids.items()}
        found = {namespace(pid): pid for pid, seen in scan().items() if re.match(r"(\S*/)?slurmd( |$)", seen.command)}
        return {nodes[space]: pid for space, pid in found.items() if space in nodes}

    def kill_slurmd(self, node: str) -> None:
        """Kill slurmd: the jobs on the node keep running, as after a crash of slurmd on a real node."""
        kill(self._slurmds()[node], signal.SIGKILL)

    def start_slurmd(self, node: str) -> None:
        script = f". /testbed/lib.sh; start_daemon slurmd.{node} slurmd -D"
        self.run(["bash", "-c", script], user="root", node=node, check=True)

    def link_down(self, node: str) -> None:
        """Unplug the node's cable: its interface eth0 keeps its addresses and has no carrier."""
        self.run(["ip", "link", "set", node, "down"], user="root", check=True)
        self._links_down.add(node)

    def link_up(self, node: str) -> None:
        self.run(["bash", "/testbed/link.sh", node], user="root", check=True)
        self._links_down.discard(node)

    def _not_idle(self) -> dict[str, str]:
        done = self.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%N %t"], user="root")
        states = dict(line.split() for line in done.stdout.splitlines())
        return {node: states.get(node, "unknown") for node in self.nodes if states.get(node) != "idle"}

    def reset(self, timeout: float = 60) -> None:
        """Reset to an idle cluster for the next test: repair faults, remove jobs with their processes and files.

        /home is not changed."""
        deadline = time.monotonic() + timeout
        for node in sorted(self._links_down):
            self.link_up(node)
        for node in set(self.nodes) - set(self._slurmds()):
            self.start_slurmd(node)
        while True:
            jobs = sorted({job["id"] for job in self.squeue()})
            states = self._not_idle()
            # Those of the users and, once the queue is empty, the slurmstepds of lost jobs, which Slurm does not end.
            left = [
                process
                for process in itertools.chain(*self._processes().values())
                if process.user in USERS or (not (jobs or states) and process.args.startswith("slurmstepd"))
            ]
            if not (jobs or states or left):
                break
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"not idle after {timeout:.0f} s: jobs {jobs}, nodes {states}, processes {left}\n{self.log_tail()}"
                )
            if jobs:
                self.run(["scancel", *jobs], user="root")
            for process in left:
                kill(process.host_pid, signal.SIGKILL)
            if left and self._cgroups:
                cgroup_trees.thaw(self._cgroups["freezer"])
            lost = [node for node, state in states.items() if state.startswith(("down", "drain", "drng", "fail"))]
            if lost:
                self.run(["scontrol", "update", f"nodename={','.join(lost)}", "state=resume"], user="root")
            time.sleep(0.1)
        for cgroup in self._cgroups.values():
            for node in self.nodes:
                cgroup_trees.remove_jobs(cgroup / node)
        for folder in ("/tmp", "/var/tmp", "/dev/shm"):
            for node in self._pids:
                _remove_owned(self.node_path(node, folder))
        shutil.rmtree(self.path(pyxis_plugin.NAMED), ignore_errors=True)


# The state folder: a lock on the folder itself shows whether its cluster is alive.


def _new_state() -> tuple[Path, int]:
    while True:
        state = Path(tempfile.mkdtemp(prefix=STATE_PREFIX))
        lock = os.open(state, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if state.exists():  # otherwise _remove_stale of another process was faster
            state.chmod(0o755)
            return state, lock
        os.close(lock)


def _remove_stale() -> None:
    for state in Path(tempfile.gettempdir()).glob(STATE_PREFIX + "*"):
        try:
            lock = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if re.fullmatch(r"[\w-]+", state.name) and cgroup_trees.remove(state.name):
                shutil.rmtree(state, ignore_errors=True)
        except OSError:
            pass  # in use
        finally:
            os.close(lock)


def _close(process: subprocess.Popen[bytes] | None) -> None:
    """Close the standard input of that process, which ends it."""
    if process is not None and process.stdin is not None:
        process.stdin.close()


def _remove_owned(folder: Path) -> None:
    for path in folder.iterdir():
        if path.lstat().st_uid in USERS.values():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _fields(line: str) -> dict[str, str]:
    """The fields of one line of `scontrol show -o`; a value can contain spaces and ends at the next ` Name=`."""
    parts = re.split(r"(?:^|\s)([A-Z][A-Za-z_/:]*)=", line)
    return dict(zip(parts[1::2], (value.strip() for value in parts[2::2]), strict=True))
