"""The root file system of a cluster: the machine's own, or another Debian release installed by debootstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGES = ("slurm-wlm", "munge", "iproute2", "python3", "procps", "hostname")


def root_folder(suite: str) -> Path:
    """The root folder of that release; created if missing, which takes about a minute."""
    if suite in ("host", _machine_suite()):
        return Path("/")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slurm-launch-testbed"
    folder = cache / suite
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        _debootstrap(suite, folder)
    return folder


def slurm_version(root: Path) -> tuple[int, ...]:
    """The version of Slurm in that root folder, such as (22, 5, 8)."""
    argv = ["chroot", str(root), "slurmctld", "-V"]  # prints: slurm-wlm 22.05.8
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in text.split()[-1].split("-")[0].split("."))


def _machine_suite() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    return "host"


def _mirror() -> str:
    """The Debian mirror that this machine uses."""
    argv = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(SITE)"]
    for line in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines():
        origin, _, rest = line.partition(" ")
        release, _, site = rest.partition(" ")
        if origin == "Debian" and release == _machine_suite():
            return site
    raise RuntimeError("no Debian mirror in this machine's apt configuration (run `apt-get update`)")


def _debootstrap(suite: str, folder: Path) -> None:
    # Built in a temporary folder and renamed, so that an interrupted build is never used.
    build = Path(tempfile.mkdtemp(prefix=f"{suite}-", dir=folder.parent))
    build.chmod(0o755)  # packages run commands in it as other users
    log = build.with_suffix(".log")
    # In its own namespaces: what a package starts during installation ends with debootstrap, and no mount remains.
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(build), _mirror()]
    try:
        with log.open("w") as out:
            code = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT).returncode
        if code:
            tail = "\n".join(log.read_text().splitlines()[-20:])
            raise RuntimeError(f"debootstrap {suite} failed ({code}):\n{tail}")
        (build / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # apt in it never starts a daemon
        (build / "usr/sbin/policy-rc.d").chmod(0o755)
        try:
            build.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was faster
                raise
    finally:
        shutil.rmtree(build, ignore_errors=True)
        log.unlink(missing_ok=True)
