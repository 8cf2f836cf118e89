"""A real slurmctld and N slurmd on one machine, in namespaces; see Cluster.

All of it lives below one process (init.sh) in namespaces of its own: when that process ends, the kernel ends every
daemon, job, mount and network of the cluster. It ends with the Python process that started it, even by SIGKILL. Nothing
on the machine is changed; what the cluster writes goes to memory and to one folder for configuration and logs.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from . import rootfs

HERE = Path(__file__).parent
LOGIN = "login"  # the host that runs slurmctld and where users type sbatch
USERS = {"alice": 7001, "bob": 7002}
MAX_FLAT = 24  # with more nodes the network is routed, see init.sh
STATE_PREFIX = "slurm-testbed-"
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}
PLUMBING = re.compile(
    r"(\S*/)?(slurmd|slurmctld|: slurmscriptd|slurmdbd|munged|mariadbd|unshare|setsid)(:| |$)"
    r"|bash (/testbed/node\.sh|\S+/init\.sh|-c \. /testbed/lib\.sh)"
)
TOOLS = ("slurmctld", "slurmd", "munged", "ip", "unshare", "nsenter", "setpriv", "pivot_root")


class TestbedError(RuntimeError):
    """The cluster did not do what it must; the text has the end of the logs."""

    __test__ = False  # pytest must not collect it


@dataclass(frozen=True)
class NodeOptions:
    """Where one node differs from the others; None means as given for the whole cluster."""

    tmp_size: str | None = None  # of /tmp, as tmpfs takes it: 1m, 2g
    hosts_extra: Sequence[str] = ()  # lines before all others in this node's /etc/hosts
    docker0: bool = False  # an interface docker0 with 172.17.0.1/16, the same address on each node that has one
    eth1: bool = False  # a second network, 10.88.0.x and fd88::x
    features: str | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    gpus: int | None = None


class Process(NamedTuple):
    pid: int  # as the node sees it
    user: str
    args: str
    host_pid: int  # as the test process sees it


def unavailable_reason(accounting: bool = False) -> str | None:
    """Why no cluster can run on this machine, or None."""
    if os.geteuid() != 0:
        return "the Slurm testbed needs root (it makes namespaces and mounts)"
    path = "/usr/sbin:/sbin:" + os.environ.get("PATH", os.defpath)
    wanted = TOOLS + (("mariadbd", "slurmdbd") if accounting else ())
    missing = [tool for tool in wanted if not shutil.which(tool, path=path)]
    if missing:
        packages = "slurm-wlm munge iproute2 util-linux" + (" mariadb-server slurmdbd" if accounting else "")
        return f"the Slurm testbed needs {', '.join(missing)} (Debian packages: {packages})"
    probe = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True)
    if done.returncode:
        return f"the Slurm testbed needs namespaces, which this machine refuses: {done.stderr.strip()}"
    return None


def venv_binds(*venvs: str | Path) -> list[str]:
    """The folders that virtual environments need on the nodes: themselves and the Python they were made from."""
    paths: list[str] = []
    for venv in map(Path, venvs):
        base = (venv / "bin" / "python").resolve().parent.parent
        for path in (str(venv.absolute()), str(base)):
            if path not in paths and path != "/usr":  # the system's Python: each root folder has its own /usr
                paths.append(path)
    return paths


class Cluster:
    """A Slurm cluster with nodes n1, n2, ... and a login node, for a `with` block or between start() and stop().

    All nodes share one root file system (changes are in memory) and /home, as by NFS; each has its own /tmp, /var/tmp,
    /dev/shm, network, process ids and /etc/hosts. Users: alice, bob, root. Nothing is enforced by control groups: CPUs,
    memory and GPUs are Slurm's bookkeeping.
    """

    def __init__(
        self,
        nodes: int = 3,
        families: str = "46",
        suite: str = "host",
        cpus: int = 8,
        memory_mb: int = 4096,
        gpus: int = 2,
        tmp_size: str = "1g",
        node_options: Mapping[str, NodeOptions] | None = None,
        accounting: bool = False,
        binds: Sequence[str | Path] = (),
        slurmd_timeout: int = 15,
        slurm_conf_extra: Sequence[str] = (),
    ) -> None:
        """binds are paths of the machine to have at the same place on all nodes, read-only. suite is a Debian release
        for another Slurm version, or "host". A line of slurm_conf_extra replaces ours with the same key."""
        if families not in ("4", "6", "46"):
            raise ValueError(f'families must be "4", "6" or "46", not {families!r}')
        self.nodes = [f"n{i}" for i in range(1, nodes + 1)]
        self.families = families
        self.suite = suite
        self.accounting = accounting
        self.options = {node: NodeOptions() for node in self.nodes} | dict(node_options or {})
        if unknown := set(self.options) - set(self.nodes):
            raise ValueError(f"no such node: {', '.join(sorted(unknown))}")
        self._cpus, self._memory_mb, self._gpus, self._tmp_size = cpus, memory_mb, gpus, tmp_size
        self._binds = [os.path.abspath(path) for path in binds]
        self._slurmd_timeout = slurmd_timeout
        self._slurm_conf_extra = slurm_conf_extra
        self._state: Path | None = None
        self._lock = -1
        self._init: subprocess.Popen[bytes] | None = None
        self._pids: dict[str, int] = {}  # of process 1 of each node and of the login node, as we see them
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
        if reason := unavailable_reason(self.accounting):
            raise TestbedError(reason)
        root = rootfs.root_folder(self.suite)
        if self.accounting and root != Path("/"):
            raise TestbedError("accounting works with the machine's own Slurm only")
        _remove_stale()
        self._state, self._lock = _new_state()
        try:
            self._write_files(root)
            self._launch()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends every process of the cluster and removes its folder."""
        if self._init is not None:
            assert self._init.stdin is not None
            self._init.stdin.close()  # init.sh ends at this, and the kernel ends the rest
            try:
                self._init.wait(10)
            except subprocess.TimeoutExpired:
                self._init.kill()
                self._init.wait()
            self._init = None
        if self._state is not None:
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
        (self._pids[LOGIN],) = (p for p, seen in _scan().items() if seen.parent == self._init.pid)
        (self.state / f"pids/{LOGIN}").write_text(str(self._pids[LOGIN]))
        self._until(30 + len(self.nodes) / 2, "the nodes", lambda: not self._not_idle())
        for pid, seen in (found := _scan()).items():
            wrapper = found.get(seen.parent)  # the `unshare` between init.sh and node.sh
            if wrapper and wrapper.parent == self._pids[LOGIN] and seen.args[:2] == ["bash", "/testbed/node.sh"]:
                self._pids[seen.args[2]] = pid
                (self.state / "pids" / seen.args[2]).write_text(str(pid))
        if missing := set(self.nodes) - set(self._pids):
            raise TestbedError(f"no process 1 found of: {', '.join(sorted(missing))}")

    def _until(self, seconds: float, what: str, ready: Callable[[], bool]) -> None:
        """Waits; a daemon that has ended, or the time, is an error that shows the logs."""
        deadline = time.monotonic() + seconds
        while not ready():
            ended = sorted(path.name for path in (self.state / "ended").iterdir())
            dead = self._init is None or self._init.poll() is not None
            if ended or dead or time.monotonic() > deadline:
                why = f"ended: {', '.join(ended)}" if ended else "init.sh has ended" if dead else f"{seconds:.0f} s over"
                raise TestbedError(f"{what} did not come up ({why})\n{self.log_tail(ended)}")
            time.sleep(0.03)

    def log_tail(self, names: Sequence[str] = (), lines: int = 12) -> str:
        """The end of the logs of the daemons with these names, or of all."""
        text = []
        for path in sorted((self.state / "log").iterdir()):
            if path.stat().st_size and (not names or path.name.startswith(("init", *names))):
                text += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(text)

    # Configuration

    def address(self, node: str, family: int | str = 4) -> str:
        """10.77.0.11 or fd77::11 for n1; ends in 1 for the login node."""
        if str(family) not in self.families:
            raise ValueError(f"this cluster has no IPv{family} addresses")
        return _address("10.77", "fd77", node)[str(family)]

    def _write_files(self, root: Path) -> None:
        state = self.state
        for folder in ("mem", "log", "ended", "pids", "nodes", "hosts"):
            (state / folder).mkdir()
        for script in ("init.sh", "node.sh", "lib.sh", "link.sh", "enter"):
            shutil.copy(HERE / script, state / script)
        options = self.options.values()
        max_gpus = max([self._gpus] + [o.gpus or 0 for o in options])
        variables = {
            "LOWER": str(root),
            "FAMILIES": self.families,
            "ROUTED": str(int(len(self.nodes) > MAX_FLAT)),
            "ACCOUNTING": str(int(self.accounting)),
            "MAX_GPUS": str(max_gpus),
            "LOGIN_TMP_SIZE": self._tmp_size,
        }
        lists = {"NODES": self.nodes, "BINDS": self._binds, "USERS": [f"{u}:{uid}" for u, uid in USERS.items()]}
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
        text += "".join(f"{name}=({shlex.join(values)})\n" for name, values in lists.items())
        (state / "cluster.env").write_text(text)
        hosts = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        hosts += [f"{self.address(host, family)} {host}" for host in [LOGIN, *self.nodes] for family in self.families]
        (state / "hosts" / LOGIN).write_text("\n".join(hosts) + "\n")
        for node, option in self.options.items():
            (state / "hosts" / node).write_text("\n".join([*option.hosts_extra, *hosts]) + "\n")
            first, second = _address("10.77", "fd77", node), _address("10.88", "fd88", node)
            (state / "nodes" / node).write_text(
                f"ADDRESS4={first['4']} ADDRESS6={first['6']} SECOND4={second['4']} SECOND6={second['6']}\n"
                f"TMP_SIZE={option.tmp_size or self._tmp_size} DOCKER0={option.docker0:d} ETH1={option.eth1:d}\n"
            )
        # Slurm before 23.02 cannot do without control groups, but uses none with the plugins of our slurm.conf.
        plugin = "disabled" if rootfs.slurm_version(root) >= (23, 2) else "cgroup/v1"
        (state / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\nConstrainCores=no\n")
        (state / "gres.conf").write_text("AutoDetect=off\n" + "\n".join(self._gres_lines()) + "\n")
        (state / "slurm.conf").write_text("\n".join(self._slurm_conf()) + "\n")
        if self.accounting:
            lines = ["DbdHost=login", "SlurmUser=root", "StorageType=accounting_storage/mysql", "StorageUser=root"]
            lines += ["LogFile=/testbed/log/slurmdbd.log", "PidFile=/run/slurmdbd.pid"]
            (state / "slurmdbd.conf").write_text("\n".join(lines) + "\n")

    def _gres_lines(self) -> Iterator[str]:
        for node, option in self.options.items():
            if gpus := self._gpus if option.gpus is None else option.gpus:
                yield f"NodeName={node} Name=gpu File=/etc/slurm/gpu[0-{gpus - 1}]"

    def _slurm_conf(self) -> list[str]:
        lines = [
            "ClusterName=testbed",
            f"SlurmctldHost={LOGIN}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            "StateSaveLocation=/var/spool/slurmctld",
            "SlurmdSpoolDir=/var/spool/slurmd/%n",
            "SlurmctldPidFile=/run/slurmctld.pid",
            "SlurmdPidFile=/run/slurmd.%n.pid",
            "SlurmctldLogFile=/testbed/log/slurmctld.log",
            "SlurmdLogFile=/testbed/log/slurmd.%n.log",
            "MailProg=/bin/true",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "SlurmdParameters=config_overrides",  # a node may claim more than the machine has
            "GresTypes=gpu",
            # The default intervals make some jobs wait for 30 s.
            "SchedulerParameters=sched_interval=1,sched_min_interval=100000,bf_interval=1,batch_sched_delay=0",
            "KillWait=5",
            f"SlurmdTimeout={self._slurmd_timeout}",
            "InactiveLimit=0",
            "OverTimeLimit=0",
            "ReturnToService=2",
            "JobRequeue=1",
            # Without it a job that asks for no memory gets all of it, and no other job fits on its nodes.
            f"DefMemPerCPU={self._memory_mb // self._cpus}",
            "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
            "PartitionName=short Nodes=ALL MaxTime=1 State=UP",
        ]
        if "4" not in self.families:
            lines.append("CommunicationParameters=EnableIPv6,DisableIPv4")
        if self.accounting:
            lines += ["AccountingStorageType=accounting_storage/slurmdbd", f"AccountingStorageHost={LOGIN}"]
        for node, option in self.options.items():
            cpus = option.cpus or self._cpus
            gpus = self._gpus if option.gpus is None else option.gpus
            features = ("fast" if node == "n1" else "") if option.features is None else option.features
            lines.append(
                f"NodeName={node} CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 State=UNKNOWN"
                f" RealMemory={option.memory_mb or self._memory_mb}"
                + (f" Gres=gpu:{gpus}" if gpus else "")
                + (f" Feature={features}" if features else "")
            )
        own = {_conf_key(line) for line in self._slurm_conf_extra}
        return [line for line in lines if _conf_key(line) not in own] + list(self._slurm_conf_extra)

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
        """Runs a command on the login node, or on that node, in the environment of a fresh login plus env."""
        command = self._argv(argv, user, node, env, cwd)
        # Files and not pipes: a daemon that the command leaves behind would keep a pipe open, and us waiting.
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
        """As run(), in the background. Any signal to it is SIGKILL for the command: for others use signal()."""
        command = self._argv(argv, user, node, env, cwd)
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, text=True)

    def path(self, path: str | Path) -> Path:
        """A file as all nodes share it (such as /home/alice/x) or of the login node, for the test process."""
        return self.node_path(LOGIN, path)

    def node_path(self, node: str, path: str | Path) -> Path:
        """A file of that node, such as in its own /tmp, for the test process."""
        return Path(f"/proc/{self._pids[node]}/root") / str(path).lstrip("/")

    # Jobs

    def squeue(self) -> list[dict[str, str]]:
        """The jobs in the queue: id, user, state, reason, nodes, name."""
        lines = self.run(["squeue", "-h", "-o", "%i|%u|%T|%r|%N|%j"], user="root", check=True).stdout.splitlines()
        return [dict(zip(("id", "user", "state", "reason", "nodes", "name"), line.split("|", 5))) for line in lines]

    def jobs(self, job_id: int | str) -> list[dict[str, str]]:
        """The fields of `scontrol show job`: one entry, or one per task of an array or component of a het job."""
        out = self.run(["scontrol", "show", "job", "-o", str(job_id)], user="root", check=True).stdout
        return [_fields(line) for line in out.splitlines() if line.strip()]

    def job(self, job_id: int | str) -> dict[str, str]:
        return self.jobs(job_id)[0]

    def wait_job(self, job_id: int | str, timeout: float = 60) -> dict[str, str]:
        """Waits until the job (all tasks of an array) has ended and its nodes are free again; the first entry."""
        deadline = time.monotonic() + timeout
        while True:
            jobs = self.jobs(job_id)
            if all(job["JobState"] in ENDED for job in jobs):
                return jobs[0]
            if time.monotonic() > deadline:
                states = ", ".join(f"{job['JobId']} {job['JobState']} ({job['Reason']})" for job in jobs)
                raise TestbedError(f"not ended after {timeout:.0f} s: {states}")
            time.sleep(0.1)

    # Processes and faults

    def _inside(self, node: str) -> dict[int, _Seen]:
        """The processes in the node's PID namespace."""
        namespace = _namespace(self._pids[node])
        return {pid: seen for pid, seen in _scan().items() if _namespace(pid) == namespace}

    def processes(self, node: str, user: str | None = None) -> list[Process]:
        """What runs on that node (or "login") besides its own daemons; finished and unreaped ones do not count."""
        names = {uid: name for name, uid in USERS.items()} | {0: "root"}
        found = [
            Process(seen.pids[-1], names.get(seen.uid, str(seen.uid)), " ".join(seen.args), pid)
            for pid, seen in self._inside(node).items()
            if not _plumbing(seen)
        ]
        return [process for process in found if user in (None, process.user)]

    def signal(self, node: str, target: int | str, sig: int = signal.SIGTERM) -> list[Process]:
        """To the process with this pid on that node, or to all whose command line matches; returns those."""
        found = self.processes(node)
        if isinstance(target, int):
            chosen = [process for process in found if process.pid == target]
        else:
            chosen = [process for process in found if re.search(target, process.args)]
        for process in chosen:
            _kill(process.host_pid, sig)
        return chosen

    def _slurmds(self, node: str) -> list[int]:
        found = self._inside(node).items()
        return [pid for pid, seen in found if seen.uid == 0 and seen.args[0].rpartition("/")[2] in ("slurmd", "slurmd:")]

    def kill_slurmd(self, node: str) -> None:
        """SIGKILL: what the jobs run on the node goes on, as after a crash of slurmd on a real one."""
        for pid in self._slurmds(node):
            _kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while self._slurmds(node) and time.monotonic() < deadline:
            time.sleep(0.02)

    def start_slurmd(self, node: str) -> None:
        script = f". /testbed/lib.sh; start_daemon slurmd.{node} slurmd -D"
        self.run(["bash", "-c", script], user="root", node=node, check=True)

    def link_down(self, node: str) -> None:
        """Pulls the node's cable: its interface eth0 stays, with its addresses, and has no carrier."""
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
        """Back to an idle cluster, for the next test: faults repaired, jobs and their processes and files gone.

        /home stays as it is."""
        for node in sorted(self._links_down):
            self.link_up(node)
        for node in self.nodes:
            if not self._slurmds(node):
                self.start_slurmd(node)
        deadline = time.monotonic() + timeout
        if jobs := {job["id"] for job in self.squeue()}:
            self.run(["scancel", *sorted(jobs)], user="root")
        for node in [LOGIN, *self.nodes]:
            for process in self.processes(node):
                if process.user in USERS:
                    _kill(process.host_pid, signal.SIGKILL)
        while (states := self._not_idle()) or (jobs := {job["id"] for job in self.squeue()}):
            if time.monotonic() > deadline:
                raise TestbedError(f"not idle after {timeout:.0f} s: nodes {states}, jobs {jobs}\n{self.log_tail()}")
            lost = [node for node, state in states.items() if state.startswith(("down", "drain", "drng", "fail"))]
            if lost:
                self.run(["scontrol", "update", f"nodename={','.join(lost)}", "state=resume"], user="root")
            time.sleep(0.1)
        owned = ["(", "-user", "alice", "-o", "-user", "bob", ")"]
        clean = ["find", "/tmp", "/var/tmp", "/dev/shm", "-xdev", "-mindepth", "1", *owned, "-delete"]
        for node in [LOGIN, *self.nodes]:
            self.run(clean, user="root", node=node)


# The state folder: a lock on the folder itself tells whether its cluster is alive.


def _new_state() -> tuple[Path, int]:
    while True:
        state = Path(tempfile.mkdtemp(prefix=STATE_PREFIX))
        lock = os.open(state, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if state.exists():  # else _remove_stale of another process was between
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
            shutil.rmtree(state, ignore_errors=True)
        except OSError:
            pass  # it is in use
        finally:
            os.close(lock)


# Processes, as the test process sees them in /proc


class _Seen(NamedTuple):
    parent: int
    uid: int
    pids: list[int]  # in each PID namespace, from ours to its own
    args: list[str]


def _scan() -> dict[int, _Seen]:
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = Path("/proc", entry, "status").read_text()
            args = Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:  # it has gone
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if not fields["State"].startswith(("Z", "X")):
            pids = [int(pid) for pid in fields["NSpid"].split()]
            found[int(entry)] = _Seen(int(fields["PPid"]), int(fields["Uid"].split()[0]), pids, [a for a in args if a])
    return found


def _namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has gone
        return ""


def _plumbing(seen: _Seen) -> bool:
    """The daemons of the testbed itself, which run whether there are jobs or not."""
    return seen.uid not in USERS.values() and (seen.pids[-1] == 1 or bool(PLUMBING.match(" ".join(seen.args))))


def _kill(pid: int, sig: int) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def _address(prefix4: str, prefix6: str, host: str) -> dict[str, str]:
    number = 1 if host == LOGIN else int(host[1:]) + 10
    return {"4": f"{prefix4}.{number // 256}.{number % 256}", "6": f"{prefix6}::{number}"}


def _conf_key(line: str) -> str:
    """What a line of slurm.conf sets; nodes and partitions are told apart by their names."""
    key, _, value = line.partition("=")
    return (line.split()[0] if key.lower() in ("nodename", "partitionname") else key.strip()).lower()


def _fields(line: str) -> dict[str, str]:
    """Of one line of `scontrol show -o`; a value may have spaces, so each goes to the next ` Name=`."""
    parts = re.split(r"(?:^|\s)([A-Z][A-Za-z_/:]*)=", line)
    return dict(zip(parts[1::2], (value.strip() for value in parts[2::2])))
