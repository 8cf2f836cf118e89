"""Where a user's runs are: an index of their records, so that a run can be named from any directory.

The index is a hint, never the truth: the records are. It is a file of lines, one for each launch. Launches append
to it, as many at once as there are; whoever rewrites it (to drop what is damaged, or what is old) puts a new file in
its place while it holds the lock. Nothing here fails a launch or a question: without the index a run is found by the
path of one of its files, and from the directory where its record lies.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_launch.errors import UsageError
from slurm_launch.runs import files as run_files
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run

MAX_LINES = 20_000  # then the older half is forgotten
LINE = 400  # bytes of a line, about
PATIENCE = 2.0  # seconds for the lock: longer only somebody holds it who has been stopped
FOLDERS = 100  # as many directories are searched when the index is damaged


@dataclass(frozen=True)
class Entry:
    """What the index, or a look into a record, tells of a run; `read` has the rest."""

    record: str
    name: str
    job_id: str | None
    created: str  # ISO 8601 in UTC: it sorts by time
    cluster: str | None = None
    submit_dir: str = ""
    own: bool = True  # a record of somebody else may lie in the same directory

    def read(self) -> Run:
        return records.read(self.record)

    @property
    def order(self) -> tuple[str, int, str]:
        """By time; in the same second by the number of the job."""
        return self.created, int(self.job_id) if self.job_id else 0, self.name

    @property
    def exp_name(self) -> str:
        """The name without the time of the launch."""
        return re.sub(r"_\d{8}-\d{6}(-\d+)?$", "", self.name)

    def is_at(self, folder: str) -> bool:
        """Whether it was launched in this directory, or has its files there."""
        return folder in (self.submit_dir, os.path.dirname(self.record))

    def to_line(self) -> bytes:
        data = {
            "record": self.record,
            "name": self.name,
            "job": self.job_id,
            "created": self.created,
            "cluster": self.cluster,
            "from": self.submit_dir,
        }
        return json.dumps(data).encode("ascii") + b"\n"


def index_file(env: Mapping[str, str]) -> Path | None:
    """The user's index; None without a home."""
    base = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(env.get("HOME", ""), ".local/state")
    return Path(base) / "slurm-launch/runs.jsonl" if os.path.isabs(base) else None


def add(run: Run, env: Mapping[str, str]) -> None:
    """Enter a run. Where that cannot be, it is found by its path all the same."""
    _enter([_entry(run)], env)


def adopt(files: Iterable[str | os.PathLike[str]], env: Mapping[str, str]) -> list[Entry]:
    """Enter the runs of these scripts or records, if they are ours and not in the index yet; returns the new ones."""
    known = {entry.record for entry in _parse(_data(env))[0]}
    paths = dict.fromkeys(re.sub(r"\.sh$", ".json", os.fspath(file)) for file in files)
    looked_at = (_look_at(path) for path in paths if path not in known)
    found = [entry for entry in looked_at if entry is not None and entry.own and entry.record not in known]
    _enter(found, env)
    return found


def entries(env: Mapping[str, str], cwd: Path) -> list[Entry]:
    """All runs that can be found, the oldest first: those in the index whose records exist, and those in `cwd`.

    What the index lacks is entered; what in it cannot be read is dropped, and looked for beside what can.
    """
    known, damaged = _parse(_data(env))
    folders = [str(cwd)]
    if damaged:
        newest = sorted(known, key=lambda entry: entry.order, reverse=True)
        folders += list(dict.fromkeys(os.path.dirname(entry.record) for entry in newest))[:FOLDERS]
    indexed = {entry.record: entry for entry in known}
    beside = [entry for folder in dict.fromkeys(folders) for entry in _beside(folder, indexed)]
    new = [entry for entry in beside if entry.own and entry.record not in indexed]
    if damaged:
        _rewrite(new, env)
    elif new:
        _enter(new, env)
    here = [entry for entry in known if os.path.dirname(entry.record) == str(cwd)]
    there = (entry for entry in (*here, *beside, *known) if os.path.isfile(entry.record))
    return sorted(_once(there), key=lambda entry: entry.order)


def _once(found: Iterable[Entry]) -> Iterable[Entry]:
    """Each run once: one whose directory was copied is still the same run; the first counts."""
    seen: dict[tuple[str, ...], Entry] = {}
    for entry in found:
        run = (entry.name, entry.job_id, entry.created) if entry.job_id else (entry.record,)
        seen.setdefault(run, entry)
    return seen.values()


# The file


def _data(env: Mapping[str, str]) -> bytes:
    path = index_file(env)
    try:
        return path.read_bytes() if path and path.is_file() else b""  # a pipe would keep us waiting for ever
    except OSError:  # there is none yet, or none for us
        return b""


def _parse(data: bytes) -> tuple[list[Entry], bool]:
    """The entries in the lines, each record once; and whether there is something else between them."""
    found: dict[str, Entry] = {}
    damaged = False
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            entry = _entry_of(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError):
            damaged = True
            continue
        if entry.job_id or entry.record not in found:  # one that was found while sbatch was at work has none yet
            found[entry.record] = entry
    return list(found.values()), damaged


def _entry_of(fields: Mapping[str, str | None]) -> Entry:
    record, name, created = fields["record"], fields["name"], fields["created"]
    job, cluster, submit_dir = fields["job"], fields.get("cluster"), fields.get("from") or ""
    if not (isinstance(record, str) and os.path.isabs(record) and isinstance(name, str) and isinstance(created, str)):
        raise ValueError(fields)
    if job is not None and not (isinstance(job, str) and re.fullmatch(r"\d{1,18}", job, re.ASCII)):
        raise ValueError(fields)
    if not re.match(r"\d{4}-\d\d-\d\dT", created) or not isinstance(submit_dir, str):
        raise ValueError(fields)
    return Entry(record, name, job, created, str(cluster) if cluster else None, submit_dir)


def _enter(new: Iterable[Entry], env: Mapping[str, str]) -> None:
    """Append entries; a file that has grown too long is cut in half."""
    data = b"".join(entry.to_line() for entry in new)
    path = index_file(env)
    if not data or path is None or not _may_write(path):
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = _append(path, data)
        if size > MAX_LINES * LINE:
            _rewrite([], env)


def _append(path: Path, data: bytes) -> int:
    """Append to the file that is the index when we are done; returns its size."""
    for _ in range(10):  # somebody may put another one in its place while we wait for the lock
        with _locked(path) as (descriptor, _):
            size = os.lseek(descriptor, 0, os.SEEK_END)
            # The last line may have been torn off, by a full disk or a machine that went down.
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" + data if torn else data)
            if _is_at(descriptor, path):
                return size + len(data)
    return 0


def _rewrite(new: Iterable[Entry], env: Mapping[str, str]) -> None:
    """Put a file without damage in the place of the index, with these entries too; of too many the newer half."""
    path = index_file(env)
    if path is None or not _may_write(path):
        return
    with suppress(OSError), _locked(path) as (descriptor, locked):
        if not locked or not _is_at(descriptor, path):
            return  # the lines that others append meanwhile would be lost; somebody will do it later
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        kept = sorted(_parse(data + b"\n" + b"".join(entry.to_line() for entry in new))[0], key=lambda one: one.order)
        if len(data) > MAX_LINES * LINE or len(kept) > MAX_LINES:
            kept = kept[len(kept) // 2 :]
        _replace(path, b"".join(entry.to_line() for entry in kept))


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[tuple[int, bool]]:
    """The index, open to append, and whether nobody else appends or rewrites it meanwhile.

    Where there are no locks (some NFS), or somebody holds one for ever, appending works without.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("the index is no file")
        yield descriptor, run_files.lock(descriptor, PATIENCE)
    finally:
        os.close(descriptor)  # which ends the lock


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _may_write(path: Path) -> bool:
    """Whether the place is ours: root under sudo would leave files that their owner cannot use any more."""
    if os.geteuid():
        return True
    for place in (path, *path.parents):
        with suppress(OSError):
            return os.stat(place).st_uid == 0
    return False


# The records


def _entry(run: Run, own: bool = True) -> Entry:
    return Entry(run.record, run.name, run.job_id, run.created, run.cluster, run.submit_dir, own)


def _beside(folder: str, indexed: Mapping[str, Entry]) -> Iterator[Entry]:
    """The records in a directory; a file that is none is passed over."""
    try:
        names = sorted(name for name in os.listdir(folder) if re.search(r"_\d{8}-\d{6}(-\d+)?\.json$", name))
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)
        known = indexed.get(path)
        entry = known if known is not None and known.job_id else _look_at(path)
        if entry is not None:
            yield entry


def _look_at(path: str) -> Entry | None:
    try:
        # No pipe, which would keep us waiting for ever.
        if not stat.S_ISREG((status := os.stat(path)).st_mode):
            return None
        entry = _entry(records.read(path), own=status.st_uid == os.geteuid())
        return entry if _entry_of(json.loads(entry.to_line())) else None
    except (OSError, ValueError, UsageError):  # gone, unreadable, damaged, or of a newer version
        return None
