"""Programs that tests start: they react to SIGHUP, also under nohup, and leave no processes behind.

nohup makes SIGHUP ignored, every child inherits that, and bash cannot trap a signal that was ignored when it started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

DEFAULT_HANGUP = ("env", "--default-signal=HUP")  # in front of a command: SIGHUP ends it, unless it handles the signal


def run_bash(code: str, cwd: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run shell code, and kill the processes that it leaves behind, whatever their session is."""
    mark = f"RUN_BASH={uuid.uuid4().hex}"
    argv = [*DEFAULT_HANGUP, mark, "bash", "-c", code]
    try:
        return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False)
    finally:
        for pid in _marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    """The processes with a variable in their environment."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids
