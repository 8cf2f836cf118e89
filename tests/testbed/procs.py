"""The processes of the machine, including those of all nodes, from /proc of the test process."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from .config import USERS

TESTBED_DAEMONS = re.compile(
    r"(\S*/)?(slurmd|slurmctld|: slurmscriptd|slurmdbd|munged|mariadbd|unshare|setsid)(:| |$)"
    r"|bash (/testbed/node\.sh|\S+/init\.sh|-c \. /testbed/lib\.sh)"
)


class HostProcess(NamedTuple):
    parent: int
    uid: int
    pids: list[int]  # in each PID namespace, from ours to the innermost
    args: list[str]

    @property
    def command(self) -> str:
        return " ".join(self.args)


def scan() -> dict[int, HostProcess]:
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = Path("/proc", entry, "status").read_text()
            args = Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:  # it has ended
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if not fields["State"].startswith(("Z", "X")):
            pids = [int(pid) for pid in fields["NSpid"].split()]
            uid = int(fields["Uid"].split()[0])
            found[int(entry)] = HostProcess(int(fields["PPid"]), uid, pids, [word for word in args if word])
    return found


def namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has ended
        return ""


def is_testbed_daemon(seen: HostProcess) -> bool:
    """Whether it is a daemon of the testbed itself, which also runs without jobs."""
    return seen.uid not in USERS.values() and (seen.pids[-1] == 1 or bool(TESTBED_DAEMONS.match(seen.command)))


def kill(pid: int, sig: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)
