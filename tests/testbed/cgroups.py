"""The control groups of a cluster: cgroup v1, one tree per node and controller.

They are created below the cgroups of the test process, so that the limits of whoever started the tests stay in force,
and so that a container with its own part of the tree is enough. Their name is that of the cluster's state folder, whose
lock shows whether the cluster is alive.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
NEEDED = {"cpuset", "devices", "freezer", "memory"}  # by proctrack/cgroup and task/cgroup
GUARD = Path(__file__).with_name("guard.sh")


def own_cgroups() -> dict[str, Path]:
    """The cgroup of the test process for each usable controller."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controller, own = line.split(":", 2)
        for mount in mounts if controller in NEEDED else []:
            top, point, kind, options = mount[3], Path(mount[4]), mount[-3], mount[-1].split(",")
            if kind == "cgroup" and controller in options and point == CGROUP_ROOT / controller:
                folder = point / os.path.relpath(own, top)  # a container sees only its part of the tree
                if folder.exists() and not os.statvfs(folder).f_flag & os.ST_RDONLY:
                    found[controller] = folder
    return found


def missing_reason() -> str | None:
    """The reason why no cluster on this machine can have cgroups, or None."""
    if missing := sorted(NEEDED - set(own_cgroups())):
        return f"this machine has no writable cgroup v1 controllers {', '.join(missing)} in {CGROUP_ROOT}"
    return None


def create(name: str) -> dict[str, Path]:
    """Create the cluster's cgroup for each controller; those of the nodes below are created by init.sh."""
    created = {controller: own / name for controller, own in own_cgroups().items()}
    for folder in created.values():
        folder.mkdir()
    cpuset = created["cpuset"]
    for file in ("cpuset.cpus", "cpuset.mems"):  # no process can join while they are empty
        (cpuset / file).write_text((cpuset.parent / file).read_text())
    (cpuset / "cgroup.clone_children").write_text("1")  # the nodes inherit both
    return created


def guard(name: str) -> subprocess.Popen[bytes]:
    """A process that removes the cluster's cgroups when its standard input, or this Python process, ends."""
    argv = ["bash", str(GUARD), name]
    # In a session of its own: Ctrl-C is for Python.
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def remove(name: str) -> bool:
    """Remove the cgroups of a cluster that has ended; returns whether none is left."""
    return subprocess.run(["bash", str(GUARD), name], stdin=subprocess.DEVNULL).returncode == 0


def thaw(folder: Path) -> None:
    """Thaw all processes of that cgroup of the freezer: a frozen one does not end, not even by SIGKILL."""
    for path in folder.rglob("freezer.state"):
        with contextlib.suppress(OSError):  # removed meanwhile
            path.write_text("THAWED")


def remove_jobs(node: Path) -> None:
    """Remove the cgroups of jobs that Slurm left on this node, as after the loss of a slurmstepd."""
    for user in node.glob("slurm*/uid_*"):
        for path, _, _ in os.walk(user, topdown=False):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)
