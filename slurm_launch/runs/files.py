"""The names of a run's files, and writing them so that nothing is ever overwritten or left half-written."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

from slurm_launch.errors import UsageError

SUFFIXES = (".sh", ".log", ".json", ".ray", ".run", ".points.csv")


@dataclass(frozen=True)
class Files:
    """Where one run's files are."""

    directory: Path
    name: str

    def _with(self, suffix: str) -> Path:
        return self.directory / (self.name + suffix)

    @property
    def script(self) -> Path:
        return self._with(".sh")

    @property
    def log(self) -> Path:
        return self._with(".log")

    @property
    def record(self) -> Path:
        return self._with(".json")

    @property
    def points(self) -> Path:
        """The table of a sweep."""
        return self._with(".points.csv")

    def taken(self) -> bool:
        """Whether any of this name's files exists, be it a dangling link."""
        return any(os.path.lexists(self._with(suffix)) for suffix in SUFFIXES)


def run_name(exp_name: str, when: datetime) -> str:
    return f"{exp_name}_{when:%Y%m%d-%H%M%S}"


def names(exp_name: str, when: datetime) -> Iterator[str]:
    """The name of a run and, for when it is taken, the ones after it."""
    first = run_name(exp_name, when)
    yield first
    for number in count(2):
        yield f"{first}-{number}"


def free_files(directory: Path, exp_name: str, when: datetime) -> Files:
    """The first name that is not taken; only `create_script` makes sure of it."""
    return next(_free(directory, exp_name, when))


def _free(directory: Path, exp_name: str, when: datetime) -> Iterator[Files]:
    return (files for name in names(exp_name, when) if not (files := Files(directory, name)).taken())


def create_script(directory: Path, exp_name: str, when: datetime, text_of: Callable[[str], str]) -> Files:
    """Choose a free name, and write the script that `text_of(name)` gives.

    The exclusive creation of the script is what claims the name: of two launches in the same second one
    gets it, the other goes on to the next name.
    """
    for files in _free(directory, exp_name, when):
        data = text_of(files.name).encode("utf-8", errors="surrogateescape")
        try:
            write_new(files.script, data, 0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise unwritable(files.script, error) from None
        return files
    raise AssertionError("the names never end")


def make_directory(directory: Path) -> list[Path]:
    """Make a directory and its parents; returns those that did not exist before, the outermost first."""
    missing = []
    at = directory
    while not os.path.lexists(at) and at != at.parent:
        missing.append(at)
        at = at.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_directories(missing[::-1])
        raise unwritable(directory, error) from None
    return missing[::-1]


def remove_directories(made: list[Path]) -> None:
    """Undo `make_directory`, as far as nobody has put anything there meanwhile."""
    for directory in reversed(made):
        with suppress(OSError):
            directory.rmdir()


def sha256(path: Path) -> str:
    """What a file holds, as a number that no other content has."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a file that must not exist, completely or not at all."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        _fill(descriptor, data, mode)
    except BaseException:
        remove(path)
        raise


def _fill(descriptor: int, data: bytes, mode: int) -> None:
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask says
        file.write(data)
        file.flush()
        os.fsync(descriptor)  # a full disk behind NFS is told here


def _write_beside(path: Path, data: bytes, mode: int) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        _fill(descriptor, data, mode)
    except BaseException:
        remove(Path(name))
        raise
    return Path(name)


# File systems without hard links say one of these.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES)


def write_record(path: Path, data: bytes) -> None:
    """Create a record that must not exist; a reader sees all of it or none."""
    try:
        temporary = _write_beside(path, data, 0o600)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            write_new(path, data, 0o600)
        finally:
            remove(temporary)
    except OSError as error:
        raise unwritable(path, error) from None


def replace_record(path: Path, data: bytes) -> None:
    """Put a new record in the place of the old one, at once, and with its mode.

    Somebody else's is left alone, even by root: its owner could not use it any more."""
    try:
        mode = 0o600
        with suppress(FileNotFoundError):
            status = path.stat()
            mode = stat.S_IMODE(status.st_mode)
            if status.st_uid != os.geteuid():
                raise OSError(errno.EPERM, "the record is somebody else's")
        temporary = _write_beside(path, data, mode)
        try:
            os.replace(temporary, path)
        except BaseException:
            remove(temporary)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


PATIENCE = 2.0  # seconds for the lock of a record: longer only somebody holds it who has been stopped


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else who asks for this lock changes the file meanwhile. Where there are no locks it goes on without."""
    descriptor = None
    try:
        with suppress(OSError):
            for _ in range(100):  # somebody may have put another file in its place while we waited
                descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                if not lock(descriptor, PATIENCE) or os.path.samestat(os.fstat(descriptor), path.stat()):
                    break
                os.close(descriptor)
                descriptor = None
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # which ends the lock


def lock(descriptor: int, patience: float) -> bool:
    """Whether a file could be locked; for as long as it is open."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        except OSError:
            return False


_HINTS = {
    errno.ENOSPC: "make room (`df -h .` shows it), or choose another directory with --run-dir",
    errno.EDQUOT: "your quota is used up: make room, or choose another directory with --run-dir",
    errno.ENOTDIR: "a part of that path is a file; choose another directory with --run-dir",
    errno.EEXIST: "something of that name is in the way; choose another directory with --run-dir",
    errno.ENAMETOOLONG: "choose a shorter --run-dir or --exp-name",
}


def unwritable(path: Path, error: OSError) -> UsageError:
    """The disk's refusal in our words."""
    hint = _HINTS.get(error.errno or 0, "choose a directory that you may write to with --run-dir")
    return UsageError(f"cannot write: {error.strerror or error}", at=str(path), hint=hint)
