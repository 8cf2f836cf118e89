"""`slurm-launch logs`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from slurm_launch.cli.output import markup, note
from slurm_launch.cli.run_argument import RunArgument, find_run, slurm_client
from slurm_launch.cli.summaries import help_text
from slurm_launch.control import node_logs, run_log
from slurm_launch.errors import UsageError
from slurm_launch.runs import ray_logs
from slurm_launch.runs.growing_file import LogFile, last_lines
from slurm_launch.runs.record import Run
from slurm_launch.status.task import Task
from slurm_launch.status.watch import LogFeed, RunWatcher, Snapshot

RAY_LINES = 20  # of each of Ray's log files, unless --tail is used

app = typer.Typer(add_completion=False, rich_markup_mode=markup())


DETAILS = "Select an array task by its ID, such as 12_3."


@app.command(help=help_text("logs", DETAILS))
def logs(
    run: RunArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", metavar="N", min=0, help="Show the last N lines; with --ray, of each file."),
    ] = None,
    command_only: Annotated[bool, typer.Option("--command-only", help="Show only the command's output.")] = False,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Show how Ray started on a node.")] = None,
    head: Annotated[bool, typer.Option("--head", help="Show how Ray started on the head node.")] = False,
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Show Ray's own logs: the kept ones, or those on the node while the job runs."),
    ] = False,
) -> int:
    if node is not None and head:
        raise UsageError("--node and --head are mutually exclusive", hint="use one of them")
    of_node = node is not None or head or ray
    if of_node and command_only:
        raise UsageError("--command-only does not apply to the logs of a node", hint="leave it out")
    if follow and ray:
        hint = "leave out -f, or follow how Ray starts on a node: -f --node NAME"
        raise UsageError("Ray's own logs cannot be followed", at="--ray", hint=hint)
    chosen = find_run(run)
    task_id, log = run_log.select_log(chosen, run)
    if ray:
        return _show_ray(chosen, task_id, log, node or (node_logs.head_of(log) if head else None), tail)
    if of_node:
        return _show_start(chosen, task_id, log, node or node_logs.head_of(log), tail, follow)
    output = _Output(command_only)
    if follow:
        return _follow(chosen, task_id, log, tail, output)
    if not os.path.isfile(log):
        raise run_log.missing_log_error(chosen, task_id, log, slurm_client())
    output.copy(log, run_log.start_position(log, tail, command_only))
    output.close()
    return 0


class _Output:
    """Writes log bytes to stdout unchanged, or only those of the command."""

    def __init__(self, command_only: bool = False) -> None:
        self.command_only = command_only
        self._filter = run_log.CommandOutput() if command_only else None

    def copy(self, path: str | os.PathLike[str], position: int) -> None:
        """Write a file from a position on."""
        file = LogFile(path, position=position)
        while data := file.read():
            self.write(data)

    def write(self, data: bytes) -> None:
        _write_stdout(self._filter.feed(data) if self._filter else data)

    def close(self) -> None:
        if self._filter:
            _write_stdout(self._filter.close())


def _write_stdout(data: bytes) -> None:
    if data:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class _FollowView:
    """A view for the watcher that only writes the log."""

    def __init__(self, output: _Output) -> None:
        self.output = output
        self._noted_pending = False

    def text(self, feed: LogFeed, data: bytes) -> None:
        self.output.write(data)

    def show(self, snapshot: Snapshot) -> None:
        for task in snapshot.tasks:
            if task.waiting and not self._noted_pending:
                self._noted_pending = True
                note(f"job {task.id} {task.predicate}; waiting for its log")
            elif task.running:
                self._noted_pending = False  # it may be requeued

    def note(self, text: str) -> None:
        note(text)


def _follow(run: Run, task_id: str, log: str, tail: int | None, output: _Output) -> int:
    view = _FollowView(output)

    def log_file(path: str) -> LogFile:
        return LogFile(path, position=run_log.start_position(path, tail, output.command_only))

    watcher = RunWatcher(
        run, view, slurm_client(), task=task_id if "_" in task_id else None, places=False, log_file=log_file
    )
    tasks = watcher.run_to_end()
    output.close()
    if not any(feed.begun for feed in watcher.snapshot.feeds.values()):
        message = f"there is no log: job {task_id} {tasks[0].predicate}"
        raise UsageError(message, at=log, hint=run_log.MISSING_HINT)
    return 0


def _show_start(run: Run, task_id: str, log: str, node: str, tail: int | None, follow: bool) -> int:
    """Show how Ray started on a node."""
    path = node_logs.folder_of(log) / node / ray_logs.START_LOG
    task = node_logs.task_to_query(run, task_id, log, slurm_client(), kept=path.is_file())
    if task is None:
        _Output().copy(path, run_log.start_position(str(path), tail))
        return 0
    return _from_node(run, task, log, node, ray=False, tail=tail, follow=follow)


def _show_ray(run: Run, task_id: str, log: str, node: str | None, tail: int | None) -> int:
    """Show Ray's own logs: of a node, or of all nodes whose logs were kept."""
    tail = RAY_LINES if tail is None else tail
    kept = node_logs.kept_nodes(log)
    have_kept = node in kept or (node is None and bool(kept))
    task = node_logs.task_to_query(run, task_id, log, slurm_client(), kept=have_kept)
    if task is None:
        _print_kept(log, [node] if node else node_logs.failed_node_first(log, kept), tail)
        return 0
    if node is None:
        attempt = node_logs.last_attempt(log)
        node = attempt.head if attempt else None
        if node is None:  # not in the log yet
            raise node_logs.no_logs_error("the nodes", log, task)
        if task.running:
            note(f"no logs were kept yet; showing those on the head node {node}; --node selects another one")
    return _from_node(run, task, log, node, ray=True, tail=tail, follow=False)


def _print_kept(log: str, nodes: Sequence[str], tail: int) -> None:
    output = _Output()
    each = max(3, node_logs.MAX_FILES // len(nodes))
    left = 0
    for node in nodes:
        files = node_logs.kept_files(log, node)
        left += len(files[each:])
        for kept in files[:each]:
            output.write(f"==> {node}/{kept.name} <==\n".encode(errors="surrogateescape"))
            with suppress(OSError):
                file = LogFile(kept.path, position=last_lines(kept.path, tail))
                end = b""
                while data := file.read():
                    output.write(data)
                    end = data[-1:]
                file.close()
                output.write(b"\n" if end == b"\n" else b"\n\n")
    if left:
        note(f"{left} more files are in {node_logs.folder_of(log)}")


def _from_node(run: Run, task: Task, log: str, node: str, *, ray: bool, tail: int | None, follow: bool) -> int:
    node_logs.check_node(node, log, task)
    if not task.running:
        raise node_logs.no_logs_error(node, log, task)
    sys.stdout.flush()
    return node_logs.show_from_node(
        task, node, cluster=run.cluster, ray=ray, tail=tail, follow=follow, env=os.environ, on_stderr=_write_stderr
    )


def _write_stderr(data: bytes) -> None:
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()
