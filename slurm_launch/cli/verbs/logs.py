"""`slurm-launch logs`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, note
from slurm_launch.cli.run_argument import RunArgument, found, slurm_client
from slurm_launch.control import node_logs, running_job
from slurm_launch.errors import (
    LaunchError,
    SlurmUnavailable,
    UsageError,
    WrongMoment,
)
from slurm_launch.runs.growing_file import LogFile, last_lines
from slurm_launch.runs.record import Run
from slurm_launch.slurm.array_ids import array_numbers
from slurm_launch.status import lookup
from slurm_launch.status.task import Task
from slurm_launch.status.watch import Feed, Sight, Watch

RAY_LINES = 20  # of each of Ray's files, unless --tail says otherwise
_OURS = re.compile(rb"\[slurm-launch\] \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d .*\Z")
_BEGIN = b"[slurm-launch] "

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


@app.command()
def logs(
    run: RunArgument = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as the log grows, to the end of the job.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", min=0, help="Only the last N lines; of --ray, of each file.")
    ] = None,
    command_only: Annotated[
        bool, typer.Option("--command-only", help="Only the command's own output, without our lines.")
    ] = False,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="How Ray started on that node.")] = None,
    head: Annotated[bool, typer.Option("--head", help="The same of the head node.")] = False,
    ray: Annotated[
        bool, typer.Option("--ray", help="Ray's own logs: those that were kept, or, while the job runs, on the node.")
    ] = False,
) -> int:
    """Show the log of a run: the command's output, and our lines on how it goes.

    A task of an array is chosen by its id, as 12_3.
    """
    if node is not None and head:
        raise UsageError("--node and --head exclude one another", hint="give one of them")
    of_node = node is not None or head or ray
    if of_node and command_only:
        raise UsageError("--command-only is for the command's output, not for a node's logs", hint="leave it out")
    if follow and ray:
        hint = "leave -f out, or follow how Ray starts on a node: -f --node NAME"
        raise UsageError("Ray's own logs are not followed", at="--ray", hint=hint)
    chosen = found(run)
    task_id, log = _task(chosen, run)
    if ray:
        return _show_ray(chosen, task_id, log, node or (node_logs.head_of(log) if head else None), tail)
    if of_node:
        return _show_start(chosen, task_id, log, node or node_logs.head_of(log), tail, follow)
    out = _Out(command_only)
    if follow:
        return _follow(chosen, task_id, log, tail, out)
    if not os.path.isfile(log):
        raise _missing(chosen, task_id, log)
    file = LogFile(log, position=out.begin(log, tail))
    while data := file.read():
        out.write(data)
    out.close()
    return 0


def _task(run: Run, argument: str | None) -> tuple[str, str]:
    """The job or task that is meant, and its log. Slurm is not asked."""
    job = run.job_id or ""
    named = running_job.task_of(run, argument)
    if named is not None:
        return named, lookup.log_of(run, named)
    array = run.array_indexes
    if array is None:
        return job, run.log
    numbers = array_numbers(array)
    if len(numbers) > 1:
        numbers = [number for number in numbers if os.path.exists(lookup.log_of(run, f"{job}_{number}"))]
    if len(numbers) == 1:
        return f"{job}_{numbers[0]}", lookup.log_of(run, f"{job}_{numbers[0]}")
    shown = ", ".join(f"{job}_{number}" for number in numbers[:20]) + (" ..." if len(numbers) > 20 else "")
    hint = f"those with a log: {shown}" if numbers else f"none has a log yet; its tasks are {job}_N, with N of {array}"
    raise UsageError(f"job {job} is an array: say which task", at="RUN", hint=hint)


def _known(run: Run, task_id: str) -> Task:
    """What Slurm and the log tell of it."""
    return lookup.these(run, lookup.look(run, slurm_client()), [task_id] if "_" in task_id else None)[0]


def _missing(run: Run, task_id: str, log: str) -> LaunchError:
    """Why there is no log."""
    if os.path.exists(log):
        return UsageError("the log is no file", at=log)
    try:
        task = _known(run, task_id)
    except SlurmUnavailable as error:
        return UsageError("there is no log, and Slurm does not tell why", at=log, hint=error.message)
    if task.waiting or task.running:
        hint = "-f waits for it"
        return WrongMoment(f"there is no log yet: job {task.id} {task.in_words}", at=log, hint=hint)
    hint = "it was moved or removed, or the job never began; `slurm-launch status` tells what is known"
    return UsageError(f"there is no log: job {task.id} {task.in_words}", at=log, hint=hint)


class _Out:
    """Our stdout, for bytes as they are; without our own lines if that is wanted."""

    def __init__(self, command_only: bool) -> None:
        self.command_only = command_only
        self._rest = b""  # what may be the beginning of a line of ours

    def begin(self, log: str, tail: int | None) -> int:
        """Where in the log to begin."""
        if tail is None:
            return 0
        try:
            return last_lines(log, tail, (lambda line: not _OURS.match(line)) if self.command_only else None)
        except OSError:
            return 0  # it is not there yet

    def write(self, data: bytes) -> None:
        self._send(self._filtered(data) if self.command_only else data)

    def close(self) -> None:
        rest, self._rest = self._rest, b""
        self._send(_without(rest))

    def _filtered(self, data: bytes) -> bytes:
        *lines, last = (self._rest + data).split(b"\n")
        kept = []
        for line in lines:
            text = _without(line)
            # Where a line of ours began at the left, nothing is left of it.
            kept.append(text + b"\n" if text or not line else b"")
        start = last.rfind(b"[")
        ours = start >= 0 and (last[start:].startswith(_BEGIN) or _BEGIN.startswith(last[start:]))
        at = last.find(_BEGIN) if _BEGIN in last else start if ours else len(last)
        self._rest = last[at:]
        return b"".join(kept) + last[:at]

    def _send(self, data: bytes) -> None:
        if data:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def _without(line: bytes) -> bytes:
    """A line without one of ours at its end."""
    found = _OURS.search(line)
    return line if found is None else line[: found.start()]


class _Follower:
    """A view for `watch` that only passes the log on."""

    def __init__(self, out: _Out) -> None:
        self.out = out
        self._told = False

    def text(self, feed: Feed, data: bytes) -> None:
        self.out.write(data)

    def show(self, sight: Sight) -> None:
        for task in sight.tasks:
            if task.waiting and not self._told:
                self._told = True
                note(f"job {task.id} {task.in_words}; its log comes when it begins")
            elif task.running:
                self._told = False  # it may be requeued

    def note(self, text: str) -> None:
        note(text)


def _follow(run: Run, task_id: str, log: str, tail: int | None, out: _Out) -> int:
    view = _Follower(out)

    def log_file(path: str) -> LogFile:
        return LogFile(path, position=out.begin(path, tail))

    watch = Watch(run, view, slurm_client(), task=task_id if "_" in task_id else None, places=False, log_file=log_file)
    tasks = watch.to_its_end()
    out.close()
    if not any(feed.begun for feed in watch.sight.feeds.values()):
        hint = "it was moved or removed, or the job never began"
        raise UsageError(f"there is no log: job {task_id} {tasks[0].in_words}", at=log, hint=hint)
    return 0


def _show_start(run: Run, task_id: str, log: str, node: str, tail: int | None, follow: bool) -> int:
    """How Ray started on a node."""
    path = node_logs.folder_of(log) / node / node_logs.START_LOG
    task = _if_not_kept(run, task_id, log, path.is_file())
    if task is None:
        out = _Out(False)
        file = LogFile(path, position=out.begin(str(path), tail))
        while data := file.read():
            out.write(data)
        return 0
    return _from_node(run, task, log, node, ray=False, tail=tail, follow=follow)


def _show_ray(run: Run, task_id: str, log: str, node: str | None, tail: int | None) -> int:
    """Ray's own logs: of a node, or of all whose logs were kept."""
    tail = RAY_LINES if tail is None else tail
    kept = node_logs.kept_nodes(log)
    task = _if_not_kept(run, task_id, log, node in kept or (node is None and bool(kept)))
    if task is None:
        _print_kept(log, [node] if node else node_logs.in_order(log, kept), tail)
        return 0
    if node is None:
        attempt = node_logs.life_of(log)
        node = attempt.head if attempt else None
        if node is None:  # its log has not named them yet
            raise node_logs.not_there("the nodes", log, task)
        if task.running:
            note(f"nothing was kept yet: these are of the head, {node}; --node chooses another one")
    return _from_node(run, task, log, node, ray=True, tail=tail, follow=False)


def _print_kept(log: str, nodes: Sequence[str], tail: int) -> None:
    out = _Out(False)
    each = max(3, node_logs.MOST_FILES // len(nodes))
    left = 0
    for node in nodes:
        files = node_logs.kept_files(log, node)
        left += len(files[each:])
        for kept in files[:each]:
            out.write(f"==> {node}/{kept.name} <==\n".encode(errors="surrogateescape"))
            with suppress(OSError):
                file = LogFile(kept.path, position=last_lines(kept.path, tail))
                end = b""
                while data := file.read():
                    out.write(data)
                    end = data[-1:]
                file.close()
                out.write(b"\n" if end == b"\n" else b"\n\n")
    if left:
        note(f"{left} more files are in {node_logs.folder_of(log)}")


def _if_not_kept(run: Run, task_id: str, log: str, kept: bool) -> Task | None:
    """The task, if its nodes are to be asked; None when what was kept is to be shown.

    After a requeue that is of a former life: it counts when the job's Ray is not up.
    """
    attempt = node_logs.life_of(log)
    if kept and (attempt is None or attempt.directory is None or attempt.phase in ("stopping", "end")):
        return None
    try:
        task = _known(run, task_id)
    except SlurmUnavailable:
        if kept:
            return None
        raise
    return None if kept and not (task.running and task.attempt and task.attempt.directory) else task


def _from_node(run: Run, task: Task, log: str, node: str, *, ray: bool, tail: int | None, follow: bool) -> int:
    node_logs.check_node(node, log, task)
    if not task.running:
        raise node_logs.not_there(node, log, task)
    sys.stdout.flush()
    return node_logs.show_from_node(
        task, node, cluster=run.cluster, ray=ray, tail=tail, follow=follow, env=os.environ, hear=_hear
    )


def _hear(data: bytes) -> None:
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
