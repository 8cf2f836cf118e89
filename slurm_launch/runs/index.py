"""The index of a user's runs: a folder with one symbolic link for each run, which points to its record.

    2026-11-16T02:50:47+00:00,12345,,9f3a1c0277ab01de,test_20261116-025047 -> /home/me/test_20261116-025047.json

The name of a link has the keys of a lookup: time of the launch, job ID, cluster of a federation, digest of the
directory of the launch, name of the run. A lookup lists the folder and follows only the links that match.
Links are created atomically, on NFS too, so concurrent launches need no lock.

The index is optional. If it cannot be read or written, nothing fails: a run is still found by the path of one of its
files, and from the directory of its record.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from slurm_launch.errors import UsageError
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run

MAX_RUNS = 20_000  # links that are kept; the oldest are removed
MAX_REMOVED = 1_000  # links that one lookup removes: on NFS each takes a round trip
_LINK = re.compile(
    r"(\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d),(\d{0,18}),([\w.-]*),([0-9a-f]{16}),([^/\x00-\x1f]+)", re.ASCII
)
_RECORD = re.compile(r"(.+_\d{8}-\d{6}(?:-\d+)?)\.json")


class RunKey(NamedTuple):
    """The keys by which a run is looked up: the name of its link."""

    created: str  # ISO 8601 in UTC: sorts by time
    job_id: str | None
    cluster: str | None
    launched_in: str  # digest of the directory of the launch
    name: str

    @property
    def order(self) -> tuple[str, int, str]:
        """Sorts by time; within one second by job ID."""
        return self.created, int(self.job_id or 0), self.name

    @property
    def exp_name(self) -> str:
        """The name without the time of the launch."""
        return re.sub(r"_\d{8}-\d{6}(-\d+)?$", "", self.name)

    def link_name(self) -> str | None:
        """The name of the link; None if a key cannot be part of a file name."""
        text = ",".join((self.created, self.job_id or "", self.cluster or "", self.launched_in, self.name))
        return text if _LINK.fullmatch(text) else None


def _parse_link_name(text: str) -> RunKey | None:
    match = _LINK.fullmatch(text)
    return RunKey(match[1], match[2] or None, match[3] or None, match[4], match[5]) if match else None


def _digest(directory: str) -> str:
    return hashlib.blake2b(os.fsencode(directory), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A run that was found, by the index or by its record."""

    key: RunKey
    record: str
    own: bool = True  # False: the record of another user, in the same directory

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def exp_name(self) -> str:
        return self.key.exp_name

    @property
    def job_id(self) -> str | None:
        return self.key.job_id

    @property
    def cluster(self) -> str | None:
        return self.key.cluster

    def read(self) -> Run:
        return records.read(self.record)


Wanted = Callable[[RunKey], bool]


def add(run: Run, env: Mapping[str, str]) -> None:
    """Enter a run. Does nothing if the index cannot be written."""
    _enter([_entry(run)], env)


def adopt(files: Iterable[str | os.PathLike[str]], env: Mapping[str, str]) -> list[Entry]:
    """Enter the runs of these scripts or records that belong to the user; return those that were not in the index."""
    index = _Index(env)
    paths = dict.fromkeys(re.sub(r"\.sh$", ".json", os.fspath(file)) for file in files)
    read = (_read_entry(path) for path in paths if index.entry_of(path) is None)
    new = [entry for entry in read if entry is not None and entry.own and index.entry_of(entry.record) is None]
    _enter(new, env)
    return new


def entries(env: Mapping[str, str], cwd: Path, wanted: Wanted | None = None) -> list[Entry]:
    """All runs that can be found, the oldest first: those in the index whose record exists, and those in `cwd`.

    With `wanted`, only runs for whose key it returns True; the links of all others are not followed.
    """
    index = _Index(env)
    found = [entry for entry in _entries_in(cwd, index, env) if wanted is None or wanted(entry.key)]
    found += _existing(index, index.keys(wanted))
    return sorted(_unique(found), key=lambda entry: entry.key.order)


def newest(env: Mapping[str, str], cwd: Path) -> Entry | None:
    """The user's newest run that was launched in `cwd` or has its record there; otherwise the newest of all."""
    index = _Index(env)
    digest = _digest(str(cwd))
    here = [entry for entry in _entries_in(cwd, index, env) if entry.own]
    here += _existing(index, index.keys(lambda key: key.launched_in == digest))
    if here:
        return max(here, key=lambda entry: entry.key.order)
    newest_first = sorted(index.keys(), key=lambda key: key.order, reverse=True)
    return next(_existing(index, newest_first), None)


def _existing(index: _Index, keys: Iterable[RunKey]) -> Iterator[Entry]:
    return (entry for key in keys if (entry := index.entry(key)) is not None)


def _unique(found: Iterable[Entry]) -> Iterable[Entry]:
    """Each run once, the first that was found: a copied directory holds the same runs."""
    unique: dict[tuple[str | None, ...], Entry] = {}
    for entry in found:
        key = entry.key
        unique.setdefault((key.name, key.job_id, key.created) if key.job_id else (entry.record,), entry)
    return unique.values()


# The folder of links


def index_folder(env: Mapping[str, str]) -> Path | None:
    """The folder of the user's index; None without a home directory."""
    base = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(env.get("HOME", ""), ".local/state")
    return Path(base) / "slurm-launch/runs" if os.path.isabs(base) else None


class _Index:
    """The index as it was when its folder was listed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        folder = index_folder(env)
        self._links = _list_links(folder) if folder else {}
        self._records = _read_runs_jsonl(folder.with_name("runs.jsonl")) if folder else {}

    def keys(self, wanted: Wanted | None = None) -> list[RunKey]:
        return [key for keys in (self._links, self._records) for key in keys if wanted is None or wanted(key)]

    def entry(self, key: RunKey) -> Entry | None:
        """The entry with this key; None if its record does not exist."""
        record = self._record(key)
        if record is None or not os.path.isfile(record):
            return None
        # A run that was found before sbatch returned may have its job ID by now.
        current = _read_entry(record) if key.job_id is None else None
        return current or Entry(key, record)

    def entry_of(self, record: str) -> Entry | None:
        """The entry of the record with this path."""
        name = os.path.basename(record).removesuffix(".json")
        keys = [key for key in self._by_name.get(name, ()) if self._record(key) == record]
        return Entry(max(keys, key=lambda key: key.order), record) if keys else None

    @cached_property
    def _by_name(self) -> dict[str, list[RunKey]]:
        keys_by_name: dict[str, list[RunKey]] = {}
        for key in self.keys():
            keys_by_name.setdefault(key.name, []).append(key)
        return keys_by_name

    def _record(self, key: RunKey) -> str | None:
        link = self._links.get(key)
        if link is None:
            return self._records.get(key)
        try:
            target = os.readlink(link)
        except OSError:  # not a link, or removed since the folder was listed
            return None
        return target if os.path.isabs(target) else None


def _list_links(folder: Path) -> dict[RunKey, str]:
    """The links of the index. Other files in its folder are ignored; of too many links the oldest are removed."""
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    links = {key: os.path.join(folder, name) for name in names if (key := _parse_link_name(name)) is not None}
    excess = len(links) - MAX_RUNS
    if excess > 0 and _may_write(folder):
        for key in sorted(links, key=lambda key: key.order)[: min(excess, MAX_REMOVED)]:
            with suppress(OSError):
                os.unlink(links.pop(key))
    return links


def _enter(new: Iterable[Entry], env: Mapping[str, str]) -> None:
    """Create the links of these runs."""
    new = list(new)
    folder = index_folder(env)
    if not new or folder is None or not _may_write(folder):
        return
    with suppress(OSError, ValueError):  # ValueError: a name that cannot be encoded
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for entry in new:
            if name := entry.key.link_name():
                _link(folder / name, entry.record)


def _link(link: Path, record: str) -> None:
    try:
        os.symlink(record, link)
    except FileExistsError:
        if not os.path.isfile(link):  # the run's directory was moved
            temporary = link.with_name(f".{os.urandom(8).hex()}")
            os.symlink(record, temporary)
            try:
                os.replace(temporary, link)
            except OSError:
                os.unlink(temporary)
                raise


def _may_write(path: Path) -> bool:
    """Whether the index belongs to this user: root under sudo must not leave files that their owner cannot change."""
    if os.geteuid():
        return True
    for place in (path, *path.parents):
        with suppress(OSError):
            return os.stat(place).st_uid == 0
    return False


# The index of version 0.1.0, a file with a line of JSON for each run. It is read, never written.


def _read_runs_jsonl(path: Path) -> dict[RunKey, str]:
    try:
        data = path.read_bytes() if path.is_file() else b""  # opening a FIFO would block
    except OSError:
        return {}
    found: dict[RunKey, str] = {}
    for line in data.split(b"\n"):
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):  # a damaged line
            fields = json.loads(line)
            key = RunKey(fields["created"], fields["job"], fields["cluster"], _digest(fields["from"]), fields["name"])
            if key.link_name() and os.path.isabs(fields["record"]):
                found[key] = fields["record"]
    return found


# Records


def _entry(run: Run, own: bool = True) -> Entry:
    return Entry(RunKey(run.created, run.job_id, run.cluster, _digest(run.submit_dir), run.name), run.record, own)


def _entries_in(directory: Path, index: _Index, env: Mapping[str, str]) -> list[Entry]:
    """The runs whose records are in a directory. Those that are not in the index are entered."""
    try:
        names = sorted(name for name in os.listdir(directory) if _RECORD.fullmatch(name))
    except OSError:
        return []
    found = []
    for path in (os.path.join(directory, name) for name in names):
        known = index.entry_of(path)
        entry = known if known is not None and known.job_id else _read_entry(path)
        if entry is not None:
            found.append(entry)
    _enter((entry for entry in found if entry.own and index.entry_of(entry.record) is None), env)
    return found


def _read_entry(path: str) -> Entry | None:
    """The run of a record; None if the file is not a record that can be read."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # opening a FIFO would block
            return None
        return _entry(records.read(path), own=status.st_uid == os.geteuid())
    except (OSError, ValueError, UsageError):
        return None
