"""Build a container image as a folder from this machine's files: no registry, no network, a few seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .config import USERS

# The tools of a small distribution image. Without `ip`: most images lack it.
TOOLS = (
    "awk bash base64 basename cat chmod chown cmp cp cut date dd df diff dirname du echo env expr false find flock "
    "getconf getent grep head hostname id install kill ln ls md5sum mkdir mkfifo mktemp mv nice nohup nproc numfmt "
    "od paste printenv printf ps pwd readlink realpath rm rmdir sed seq setsid sh sha256sum sleep sort split stat "
    "stdbuf stty sync tail tar tee test timeout touch tr true truncate tty uname uniq wc whoami xargs"
)
MOUNT_POINTS = "proc sys dev run tmp var/tmp home mnt work opt root etc usr/local/bin"
NEVER = {"test", "site-packages", "dist-packages", "idlelib", "tkinter"}  # of the base Python


def make_image(folder: Path, venvs: Sequence[Path]) -> Path:
    """Create an image in this folder with these virtual environments (see place_in_image) and their Pythons.

    Most files are hard links to the machine's files if the file system allows it: never write to them. The `ray` of the
    first environment is in the PATH of the image, and in /usr/local/bin for runtimes that keep the host's PATH."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):  # as on this machine: links into /usr, or folders
        (folder / "usr" / name).mkdir(parents=True)
        if Path("/", name).is_symlink():
            (folder / name).symlink_to(f"usr/{name}")
    for name in (*MOUNT_POINTS.split(), *(f"home/{user}" for user in USERS)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (folder / name).chmod(0o1777)

    programs = [_tool(folder, name) for name in TOOLS.split()]
    for venv in venvs:
        programs += _put_venv(folder, venv)
    for library in _libraries(programs):
        _put_file(folder, library)
    bin_folder = place_in_image(venvs[0]) / "bin"
    _write_etc(folder, bin_folder)
    (folder / "usr/local/bin/ray").symlink_to(bin_folder / "ray")
    return folder


def place_in_image(venv: Path) -> Path:
    """The path of a venv in the image: as on this machine, except below /tmp, which a container replaces."""
    real = venv.resolve()
    return Path("/opt", real.name.lstrip(".")) if real.is_relative_to("/tmp") else real


def _put_file(image: Path, path: Path, name: Path | None = None) -> None:
    target = image / str(name or path).lstrip("/")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path.resolve(), target)
    except OSError:  # another file system
        shutil.copy2(path.resolve(), target)


def _tool(image: Path, name: str) -> Path:
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if not found:
        raise RuntimeError(f"the image needs {name}, which this machine lacks")
    _put_file(image, Path(found), Path("/usr/bin", name))
    return Path(found)


def _put_venv(image: Path, venv: Path) -> list[Path]:
    """Add a virtual environment and its Python to the image; returns the files whose libraries they need."""
    real, place = venv.resolve(), place_in_image(venv)
    # With its bytecode: the image is read-only, so every start would compile Ray again.
    _put_tree(image, real, place)
    if place != real:
        _move_scripts(image / str(place).lstrip("/") / "bin", real, place)
    python = (real / "bin/python").resolve()
    prefix, version = python.parent.parent, re.sub(r".*?(\d+\.\d+)$", r"python\1", python.name)
    standard = prefix / "lib" / version
    _put_file(image, python)
    for link in python.parent.glob("python3*"):  # the environment may use another name of it
        if link.resolve() == python:
            _put_file(image, link)
    for entry in standard.iterdir():
        if entry.name not in NEVER and not entry.name.startswith("config-"):
            _put_tree(image, entry)
    packages = real / "lib" / version / "site-packages"
    found = [python, *standard.glob("lib-dynload/*.so"), *packages.glob("ray/**/*.so")]
    found += [path for name in ("raylet", "gcs_server") for path in packages.glob(f"ray/**/{name}") if path.is_file()]
    return found


def _move_scripts(folder: Path, old: Path, new: Path) -> None:
    """Fix the interpreter of scripts. As new files: writing to a hard link changes the original."""
    for script in folder.iterdir():
        if script.is_symlink() or not (content := script.read_bytes()).startswith(b"#!%b/" % bytes(old)):
            continue
        script.unlink()
        script.write_bytes(content.replace(bytes(old), bytes(new), 1))
        script.chmod(0o755)


def _put_tree(image: Path, path: Path, name: Path | None = None) -> None:
    target = image / str(name or path).lstrip("/")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    link = ["-l"] * (path.stat().st_dev == image.stat().st_dev)
    subprocess.run(["cp", "-a", *link, str(path), str(target)], check=True)


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """The shared libraries of these programs, and the loader, by the paths at which it finds them."""
    argv = ["ldd", *map(str, programs)]
    text = subprocess.run(argv, capture_output=True, text=True).stdout  # ldd fails for static programs
    return map(Path, sorted(set(re.findall(r"(?:=>\s|^\s+)(/\S+) \(0x", text, re.MULTILINE))))


def _write_etc(image: Path, bin_folder: Path) -> None:
    path = f"{bin_folder}:/usr/local/bin:/usr/bin:/bin"
    variables = f"PATH={path}\nRAY_FROM_IMAGE=image-value\n"
    users = {"root": 0, **USERS}
    passwd = "".join(f"{u}:x:{i}:{i}::{'/home/' + u if i else '/root'}:/bin/bash\n" for u, i in users.items())
    files = {
        "etc/os-release": 'NAME="slurm-launch test image"\nID=slurm-launch-test\n',
        "etc/environment": variables,
        "etc/passwd": passwd,
        "etc/group": "".join(f"{user}:x:{number}:\n" for user, number in users.items()),
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "ch/environment": variables,  # for ch-run --set-env
        # Mount points for the runtime.
        "etc/hosts": "",
        "etc/hostname": "",
        "etc/resolv.conf": "",
    }
    for name, text in files.items():
        (image / name).parent.mkdir(exist_ok=True)
        (image / name).write_text(text)
