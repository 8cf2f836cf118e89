"""The views of `watch`: a screen that is redrawn, or lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, BinaryIO

from slurm_launch.cli.output import printable
from slurm_launch.cli.terminal_text import Tail
from slurm_launch.explain.explain import explain_task
from slurm_launch.status import report
from slurm_launch.status import watch_messages as words
from slurm_launch.status.report import duration
from slurm_launch.status.task import Task
from slurm_launch.status.watch import LogFeed, Snapshot

if TYPE_CHECKING:
    from rich.text import Text

MARK = "[watch] "
LAST_LINES = 20  # maximum number of output lines that stay on the screen at the end
MAX_EXPLAINED = 3  # larger arrays are left to `slurm-launch explain`
Now = Callable[[], datetime]


def now() -> datetime:
    return datetime.now(timezone.utc)


class PlainView:
    """For a pipe or a file: the log byte for byte and, between its lines, the events of the job.

    With labels, for an array, each line of a log starts with its task."""

    def __init__(self, out: BinaryIO, labels: bool = False, now: Now = now) -> None:
        self.out, self.labels, self.now = out, labels, now
        self._last_state: dict[str, str] = {}  # the last state printed, by task
        self._unfinished = False  # whether the last line of the log has no newline yet
        self._partial: dict[str, bytes] = {}  # unfinished lines, by task

    def text(self, feed: LogFeed, data: bytes) -> None:
        if feed.file.skipped and feed.task_id not in self._partial:
            size = f"{feed.file.skipped / 1e6:.1f} MB"
            self._print(f"the first {size} of the log are omitted; `slurm-launch logs {feed.task_id}` shows all")
        before = self._partial.setdefault(feed.task_id, b"")
        if not self.labels:
            self._write(data)
            self._unfinished = not data.endswith(b"\n")
            return
        *lines, rest = (before + data).split(b"\n")
        self._partial[feed.task_id] = rest
        label = f"{feed.task_id}: ".encode()
        self._write(b"".join(label + line + b"\n" for line in lines))

    def show(self, snapshot: Snapshot) -> None:
        for task in snapshot.tasks:
            if task.waiting:
                state = task.in_words + str(snapshot.place)  # without the expected start, which changes all the time
                text = "; ".join(words.pending_messages(task, snapshot.place, self.now()))
            elif task.running and task.nodes:
                state = f"running {task.restarts}"  # without the nodes: at the end they are released one by one
                text = f"running on {task.nodes}{words.restarts_suffix(task)}"
            else:
                continue
            if self._last_state.get(task.id) != state:
                self._last_state[task.id] = state
                self._print(f"job {snapshot.points.label(task.id)} is {text}")

    def note(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        """Nothing to restore."""

    def end(self, snapshot: Snapshot) -> None:
        for task_id, rest in self._partial.items():
            if rest:
                self._write(f"{task_id}: ".encode() + rest + b"\n")
        for line in summary(snapshot):
            self._print(line)

    def _print(self, text: str) -> None:
        newline = "\n" if self._unfinished else ""
        self._unfinished = False
        self._write(f"{newline}{MARK}{printable(text, sys.stdout)}\n".encode(errors="backslashreplace"))

    def _write(self, data: bytes) -> None:
        self.out.write(data)
        self.out.flush()


def summary(snapshot: Snapshot) -> list[str]:
    """How the run ended and how long its parts took; of a large array, only the tasks that failed."""
    tasks = snapshot.tasks
    shown = tasks if len(tasks) <= LAST_LINES else [task for task in tasks if task.state != "COMPLETED"]
    lines = []
    for task in shown[:LAST_LINES]:
        feed = snapshot.feeds.get(task.id)
        took = words.timings(task)
        label = snapshot.points.label(task.id)
        lines.append(f"job {label} {words.outcome(task)}" + (f" ({took})" if took else ""))
        if feed is not None and not feed.begun:
            lines.append(f"there is no log: {task.log}")
        if task.state != "COMPLETED" and len(tasks) <= MAX_EXPLAINED:
            why = explain_task(snapshot.run, task)
            lines += [f"why: {why.sentence}", f"what to do: {why.advice}"] if why.sure else []
        elif task.state == "COMPLETED":
            lines += report.memory_lines(task)
    if len(tasks) > LAST_LINES:
        lines.append(f"job {snapshot.run.job_id}: {report.summary(tasks)}")
    return lines


class LiveView:
    """For a terminal: the whole screen, redrawn on changes. At the end the last lines stay."""

    def __init__(self, now: Now = now) -> None:
        from rich.console import Console
        from rich.live import Live

        self.now = now
        self.console = Console()
        self.tails: dict[str, Tail] = {}
        self.notes: list[str] = []
        self._display = Live(console=self.console, screen=True, auto_refresh=False)
        self._drawn: tuple[object, ...] = ()
        self._display.start()

    def text(self, feed: LogFeed, data: bytes) -> None:
        self.tails.setdefault(feed.task_id, Tail()).add(data)

    def note(self, text: str) -> None:
        self.notes = [*self.notes, f"{datetime.now():%H:%M:%S} {text}"][-20:]

    def show(self, snapshot: Snapshot) -> None:
        from rich.console import Group

        size = self.console.size
        lines = screen_lines(snapshot, self.tails, self.notes, size.width, size.height, self.now(), self._bar())
        drawn = (size, *((line.plain, tuple(line.spans)) for line in lines))
        if drawn != self._drawn:
            self._drawn = drawn
            self._display.update(Group(*lines), refresh=True)

    def _bar(self) -> tuple[str, str]:
        return ("#", "-") if self.console.options.ascii_only else ("━", "─")

    def close(self) -> None:
        """Restore the terminal."""
        self._display.stop()

    def end(self, snapshot: Snapshot) -> None:
        from rich.text import Text

        for note in self.notes:
            self.console.print(Text(printable(note, sys.stdout), style="yellow"))
        if len(snapshot.tasks) == 1:
            for line in _output(snapshot.tasks[0].id, self.tails, min(LAST_LINES, self.console.size.height - 4)):
                self.console.print(Text(line), soft_wrap=True)
        good = all(task.state == "COMPLETED" for task in snapshot.tasks)
        for line in summary(snapshot):
            self.console.print(
                Text(printable(line, sys.stdout), style="bold green" if good else "bold red"), soft_wrap=True
            )


def screen_lines(
    snapshot: Snapshot,
    tails: dict[str, Tail],
    notes: Sequence[str],
    width: int,
    height: int,
    at: datetime,
    bar: tuple[str, str],
) -> list[Text]:
    """The lines of the whole screen, `height` at most."""
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(printable(text, sys.stdout).replace("\n", " "), style=style, no_wrap=True, overflow="ellipsis")

    run = snapshot.run
    top = [line(f"{run.name}  job {run.job_id}", "bold")]
    if snapshot.problem:
        top.append(line(f"cannot reach slurmctld, retrying: {snapshot.problem.splitlines()[0]}", "yellow"))
    elif notes:
        top.append(line(notes[-1], "yellow"))
    if not snapshot.tasks:
        top.append(line("querying Slurm"))
    bottom = [line("Ctrl-C stops watching; the job keeps running", "dim")]
    if not snapshot.array:
        for task in snapshot.tasks:
            top += [line(text, style) for text, style in _job_lines(task, snapshot, width, at, bar)]
    else:
        top.append(line(report.summary(snapshot.tasks)))
    room = height - len(top) - len(bottom) - 1
    if room < 1:  # the most important lines first
        return top[:height] if room < 0 else [*top, *bottom][:height]
    rule = line((bar[1]) * width, "dim")
    if snapshot.array:
        rows = [line(text) for text in _rows(snapshot, tails, room)]
        return [*top, rule, *rows, *[line("")] * (room - len(rows)), *bottom]
    # Before Slurm answers there are no tasks, but there may be a log.
    shown = [task.id for task in snapshot.tasks] or (list(tails) if len(tails) == 1 else [])
    output = [line(text) for task_id in shown for text in _output(task_id, tails, room)]
    return [*top, rule, *output, *[line("")] * (room - len(output)), *bottom]


def _job_lines(task: Task, snapshot: Snapshot, width: int, at: datetime, bar: tuple[str, str]) -> list[tuple[str, str]]:
    """The lines about one job: text and style."""
    if task.waiting:
        first, *others = words.pending_messages(task, snapshot.place, at)
        since = task.times.get("submitted")
        waited = [f"pending for {duration((at - since).total_seconds())}"] if since else []
        return [(first, "cyan"), *((text, "") for text in [*others, *waited])]
    if not task.running:
        return [(words.outcome(task), "bold"), (words.timings(task), "")]
    nodes = f" on {task.nodes}" if task.nodes else ""
    since = task.times.get("command-start" if task.phase == "command" else "started")
    so_far = f", for {duration((at - since).total_seconds())}" if since else ""
    lines = [(f"{task.in_words}{so_far}{nodes}{words.restarts_suffix(task)}", "cyan")]
    attempt = task.attempt
    if attempt is not None and task.phase == "bring-up" and attempt.count:
        lines.append((_progress(len(attempt.joined), attempt.count, width, bar), "green"))
    if attempt is not None and attempt.lost:
        lines.append((f"lost: {' '.join(attempt.lost[-5:])}", "red"))
    lines += [(text, "red") for text in report.memory_lines(task)]
    return lines


def _progress(joined: int, count: int, width: int, bar: tuple[str, str]) -> str:
    text = f" {joined}/{count} nodes joined"
    room = max(5, min(40, width - len(text)))
    full = room * min(joined, count) // count
    return bar[0] * full + bar[1] * (room - full) + text


def _output(task_id: str, tails: dict[str, Tail], room: int) -> list[str]:
    return tails[task_id].last(room) if task_id in tails else []


def _rows(snapshot: Snapshot, tails: dict[str, Tail], room: int) -> list[str]:
    """A line for each task, as many as fit: running tasks first."""
    tasks = sorted(snapshot.tasks, key=lambda task: (not task.running, task.ended))
    shown = tasks if len(tasks) <= room else tasks[: room - 1]
    rows = []
    for task in shown:
        last = _output(task.id, tails, 1)
        state = words.outcome(task) if not (task.waiting or task.running) else task.in_words
        label = snapshot.points.label(task.id)
        rows.append(f"{label}  {state}" + (f"  | {last[0].strip()}" if last else ""))
    return rows + [f"and {len(tasks) - len(shown)} more"] * (len(shown) < len(tasks))


def choose_view(labels: bool) -> PlainView | LiveView:
    """The view that suits stdout."""
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return LiveView()
    sys.stdout.flush()
    return PlainView(sys.stdout.buffer, labels)
