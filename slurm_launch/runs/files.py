"""The files of a run: their names, and writes that are atomic and never overwrite anything."""

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
class RunFiles:
    """The paths of a run's files."""

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
        """The table of a sweep's points."""
        return self._with(".points.csv")

    def taken(self) -> bool:
        """Whether a file with one of these paths exists, even as a dangling link."""
        return any(os.path.lexists(self._with(suffix)) for suffix in SUFFIXES)


def run_name(exp_name: str, when: datetime) -> str:
    return f"{exp_name}_{when:%Y%m%d-%H%M%S}"


def names(exp_name: str, when: datetime) -> Iterator[str]:
    """The candidates for the name of a run, in order."""
    first = run_name(exp_name, when)
    yield first
    for number in count(2):
        yield f"{first}-{number}"


def free_files(directory: Path, exp_name: str, when: datetime) -> RunFiles:
    """The files of the first name that is free at this moment; only `create_script` claims it."""
    return next(_free(directory, exp_name, when))


def _free(directory: Path, exp_name: str, when: datetime) -> Iterator[RunFiles]:
    return (files for name in names(exp_name, when) if not (files := RunFiles(directory, name)).taken())


def create_script(directory: Path, exp_name: str, when: datetime, text_of: Callable[[str], str]) -> RunFiles:
    """Choose a free name and write the script that `text_of(name)` returns.

    Creating the script exclusively claims the name: of two launches in the same second, one gets it and the other
    tries the next name.
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
    raise AssertionError("names() is infinite")


def make_directory(directory: Path) -> list[Path]:
    """Create a directory and its parents; return those that did not exist, the outermost first."""
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
    """Undo `make_directory`, except for directories that are no longer empty."""
    for directory in reversed(made):
        with suppress(OSError):
            directory.rmdir()


def sha256(path: Path) -> str:
    """The SHA-256 digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a file that must not exist; a partly written file is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        _fill(descriptor, data, mode)
    except BaseException:
        remove(path)
        raise


def _fill(descriptor: int, data: bytes, mode: int) -> None:
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # regardless of the umask
        file.write(data)
        file.flush()
        os.fsync(descriptor)  # NFS reports a full disk here


def _write_beside(path: Path, data: bytes, mode: int) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        _fill(descriptor, data, mode)
    except BaseException:
        remove(Path(name))
        raise
    return Path(name)


# Errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES)


def write_record(path: Path, data: bytes) -> None:
    """Create a record that must not exist, atomically."""
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
    """Replace a record atomically and keep its mode.

    A record of another user is not replaced, even by root: its owner could no longer write it.
    """
    try:
        mode = 0o600
        with suppress(FileNotFoundError):
            status = path.stat()
            mode = stat.S_IMODE(status.st_mode)
            if status.st_uid != os.geteuid():
                raise OSError(errno.EPERM, "the record belongs to another user")
        temporary = _write_beside(path, data, mode)
        try:
            os.replace(temporary, path)
        except BaseException:
            remove(temporary)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


LOCK_TIMEOUT = 2.0  # seconds; only a stopped process holds a lock for longer


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, or continue without it where locks are not available."""
    descriptor = None
    try:
        with suppress(OSError):
            for _ in range(100):  # the file may be replaced while this waits for the lock
                descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                if not _lock(descriptor, LOCK_TIMEOUT) or os.path.samestat(os.fstat(descriptor), path.stat()):
                    break
                os.close(descriptor)
                descriptor = None
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # releases the lock


def _lock(descriptor: int, timeout: float) -> bool:
    """Lock an open file; return False at the timeout or where locks are not available."""
    deadline = time.monotonic() + timeout
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
    errno.ENOSPC: "free some space (see `df -h .`), or choose another directory with --run-dir",
    errno.EDQUOT: "your quota is exceeded: free some space, or choose another directory with --run-dir",
    errno.ENOTDIR: "a component of this path is a file; choose another directory with --run-dir",
    errno.EEXIST: "a file with this name exists; choose another directory with --run-dir",
    errno.ENAMETOOLONG: "choose a shorter --run-dir or --exp-name",
}


def unwritable(path: Path, error: OSError) -> UsageError:
    """The error for a file that cannot be written."""
    hint = _HINTS.get(error.errno or 0, "choose a writable directory with --run-dir")
    return UsageError(f"cannot write: {error.strerror or error}", at=str(path), hint=hint)
