"""The processes of the machine, which has those of all nodes, as /proc shows them to the test process."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from .config import USERS

PLUMBING = re.compile(
    r"(\S*/)?(slurmd|slurmctld|: slurmscriptd|slurmdbd|munged|mariadbd|unshare|setsid)(:| |$)"
    r"|bash (/testbed/node\.sh|\S+/init\.sh|-c \. /testbed/lib\.sh)"
)


class Seen(NamedTuple):
    parent: int
    uid: int
    pids: list[int]  # in each PID namespace, from ours to its own
    args: list[str]

    @property
    def command(self) -> str:
        return " ".join(self.args)


def scan() -> dict[int, Seen]:
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
            found[int(entry)] = Seen(int(fields["PPid"]), int(fields["Uid"].split()[0]), pids, [a for a in args if a])
    return found


def namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:  # it has gone
        return ""


def plumbing(seen: Seen) -> bool:
    """The daemons of the testbed itself, which run whether there are jobs or not."""
    return seen.uid not in USERS.values() and (seen.pids[-1] == 1 or bool(PLUMBING.match(seen.command)))


def kill(pid: int, sig: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)
