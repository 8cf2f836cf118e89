"""How `watch` shows a run: as a screen that is drawn anew, or as lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, BinaryIO

from slurm_launch.cli.output import printable
from slurm_launch.cli.terminal_text import Tail
from slurm_launch.explain.explain import explain_task
from slurm_launch.status import watch_messages as words
from slurm_launch.status.report import duration
from slurm_launch.status.task import Task
from slurm_launch.status.watch import Feed, Sight

if TYPE_CHECKING:
    from rich.text import Text

MARK = "[watch] "
LAST_LINES = 20  # of the output, at most, that stay on the screen in the end
EXPLAINED = 3  # tasks whose end is explained; of more `slurm-launch explain` tells
Now = Callable[[], datetime]


def now() -> datetime:
    return datetime.now(timezone.utc)


class Plain:
    """For a pipe or a file: the log as it comes, byte for byte, and between its lines what happens to the job.

    With labels, for an array, each line of a log begins with its task."""

    def __init__(self, out: BinaryIO, labels: bool = False, now: Now = now) -> None:
        self.out, self.labels, self.now = out, labels, now
        self._said: dict[str, str] = {}  # of each task, last
        self._unfinished = False  # whether the last line of the log has no end yet
        self._begun: dict[str, bytes] = {}  # lines of an array's tasks without an end yet

    def text(self, feed: Feed, data: bytes) -> None:
        if feed.file.left_out and feed.task_id not in self._begun:
            size = f"{feed.file.left_out / 1e6:.1f} MB"
            self._say(f"the first {size} of the log are left out; `slurm-launch logs {feed.task_id}` shows all")
        before = self._begun.setdefault(feed.task_id, b"")
        if not self.labels:
            self._write(data)
            self._unfinished = not data.endswith(b"\n")
            return
        *lines, rest = (before + data).split(b"\n")
        self._begun[feed.task_id] = rest
        label = f"{feed.task_id}: ".encode()
        self._write(b"".join(label + line + b"\n" for line in lines))

    def show(self, sight: Sight) -> None:
        for task in sight.tasks:
            if task.waiting:
                news = task.in_words + str(sight.place)  # the expected start changes all the time
                said = "; ".join(words.waits(task, sight.place, self.now()))
            elif task.running and task.nodes:
                news, said = (
                    f"runs {task.restarts}",
                    f"runs on {task.nodes}{words.again(task)}",
                )  # it gives back one node after the other
            else:
                continue
            if self._said.get(task.id) != news:
                self._said[task.id] = news
                self._say(f"job {sight.points.label(task.id)} {said}")

    def note(self, text: str) -> None:
        self._say(text)

    def close(self) -> None:
        """Nothing to give back."""

    def end(self, sight: Sight) -> None:
        for task_id, rest in self._begun.items():
            if rest:
                self._write(f"{task_id}: ".encode() + rest + b"\n")
        for line in summary(sight):
            self._say(line)

    def _say(self, text: str) -> None:
        newline = "\n" if self._unfinished else ""
        self._unfinished = False
        self._write(f"{newline}{MARK}{printable(text, sys.stdout)}\n".encode(errors="backslashreplace"))

    def _write(self, data: bytes) -> None:
        self.out.write(data)
        self.out.flush()


def summary(sight: Sight) -> list[str]:
    """How it ended, and what took how long; of a large array, those tasks that did not end well."""
    tasks = sight.tasks
    shown = tasks if len(tasks) <= LAST_LINES else [task for task in tasks if task.state != "COMPLETED"]
    lines = []
    for task in shown[:LAST_LINES]:
        feed = sight.feeds.get(task.id)
        took = words.timings(task)
        label = sight.points.label(task.id)
        lines.append(f"job {label} {words.outcome(task)}" + (f" ({took})" if took else ""))
        if feed is not None and not feed.begun:
            lines.append(f"there is no log: {task.log}")
        if task.state != "COMPLETED" and len(tasks) <= EXPLAINED:
            why = explain_task(sight.run, task)
            lines += [f"why: {why.sentence}", f"what to do: {why.advice}"] if why.sure else []
    if len(tasks) > LAST_LINES:
        lines.append(f"job {sight.run.job_id}: {words.counted(tasks)}")
    return lines


class Live:
    """On a terminal: the whole screen, drawn anew when there is something new. In the end the last lines stay."""

    def __init__(self, now: Now = now) -> None:
        from rich.console import Console
        from rich.live import Live as Drawing

        self.now = now
        self.console = Console()
        self.tails: dict[str, Tail] = {}
        self.notes: list[str] = []
        self._drawing = Drawing(console=self.console, screen=True, auto_refresh=False)
        self._drawn: tuple[object, ...] = ()
        self._drawing.start()

    def text(self, feed: Feed, data: bytes) -> None:
        self.tails.setdefault(feed.task_id, Tail()).add(data)

    def note(self, text: str) -> None:
        self.notes = [*self.notes, f"{datetime.now():%H:%M:%S} {text}"][-20:]

    def show(self, sight: Sight) -> None:
        from rich.console import Group

        size = self.console.size
        lines = screen_lines(sight, self.tails, self.notes, size.width, size.height, self.now(), self._bar())
        drawn = (size, *((line.plain, tuple(line.spans)) for line in lines))
        if drawn != self._drawn:
            self._drawn = drawn
            self._drawing.update(Group(*lines), refresh=True)

    def _bar(self) -> tuple[str, str]:
        return ("#", "-") if self.console.options.ascii_only else ("━", "─")

    def close(self) -> None:
        """Give the terminal back as it was."""
        self._drawing.stop()

    def end(self, sight: Sight) -> None:
        from rich.text import Text

        for note in self.notes:
            self.console.print(Text(printable(note, sys.stdout), style="yellow"))
        if len(sight.tasks) == 1:
            for line in _output(sight.tasks[0].id, self.tails, min(LAST_LINES, self.console.size.height - 4)):
                self.console.print(Text(line), soft_wrap=True)
        good = all(task.state == "COMPLETED" for task in sight.tasks)
        for line in summary(sight):
            self.console.print(
                Text(printable(line, sys.stdout), style="bold green" if good else "bold red"), soft_wrap=True
            )


def screen_lines(
    sight: Sight,
    tails: dict[str, Tail],
    notes: Sequence[str],
    width: int,
    height: int,
    at: datetime,
    bar: tuple[str, str],
) -> list[Text]:
    """The whole screen, line by line: never more than it has."""
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(printable(text, sys.stdout).replace("\n", " "), style=style, no_wrap=True, overflow="ellipsis")

    run = sight.run
    top = [line(f"{run.name}  job {run.job_id}", "bold")]
    if sight.problem:
        top.append(line(f"Slurm does not answer, asking again: {sight.problem.splitlines()[0]}", "yellow"))
    elif notes:
        top.append(line(notes[-1], "yellow"))
    if not sight.tasks:
        top.append(line("asking Slurm"))
    bottom = [line("Ctrl-C stops watching; the job goes on", "dim")]
    if not sight.array:
        for task in sight.tasks:
            top += [line(text, style) for text, style in _about(task, sight, width, at, bar)]
    else:
        top.append(line(words.counted(sight.tasks)))
    room = height - len(top) - len(bottom) - 1
    if room < 1:  # what matters most first
        return top[:height] if room < 0 else [*top, *bottom][:height]
    rule = line((bar[1]) * width, "dim")
    if sight.array:
        rows = [line(text) for text in _rows(sight, tails, room)]
        return [*top, rule, *rows, *[line("")] * (room - len(rows)), *bottom]
    # Before Slurm has answered there is no task, but there may be a log.
    shown = [task.id for task in sight.tasks] or (list(tails) if len(tails) == 1 else [])
    output = [line(text) for task_id in shown for text in _output(task_id, tails, room)]
    return [*top, rule, *output, *[line("")] * (room - len(output)), *bottom]


def _about(task: Task, sight: Sight, width: int, at: datetime, bar: tuple[str, str]) -> list[tuple[str, str]]:
    """The lines on one job: text and style."""
    if task.waiting:
        said = [(text, "cyan" if number == 0 else "") for number, text in enumerate(words.waits(task, sight.place, at))]
        since = task.times.get("submitted")
        return said + ([(f"waiting for {duration((at - since).total_seconds())}", "")] if since else [])
    if not task.running:
        return [(words.outcome(task), "bold"), (words.timings(task), "")]
    nodes = f" on {task.nodes}" if task.nodes else ""
    since = task.times.get("command-start" if task.phase == "command" else "started")
    lasts = f", for {duration((at - since).total_seconds())}" if since else ""
    said = [(f"{task.in_words}{lasts}{nodes}{words.again(task)}", "cyan")]
    attempt = task.attempt
    if attempt is not None and task.phase == "bring-up" and attempt.count:
        said.append((_progress(len(attempt.joined), attempt.count, width, bar), "green"))
    if attempt is not None and attempt.lost:
        said.append((f"lost: {' '.join(attempt.lost[-5:])}", "red"))
    return said


def _progress(joined: int, count: int, width: int, bar: tuple[str, str]) -> str:
    told = f" {joined}/{count} nodes joined"
    room = max(5, min(40, width - len(told)))
    full = room * min(joined, count) // count
    return bar[0] * full + bar[1] * (room - full) + told


def _output(task_id: str, tails: dict[str, Tail], room: int) -> list[str]:
    return tails[task_id].last(room) if task_id in tails else []


def _rows(sight: Sight, tails: dict[str, Tail], room: int) -> list[str]:
    """A line for each task, as many as there is room for: those that run first."""
    tasks = sorted(sight.tasks, key=lambda task: (not task.running, task.ended))
    shown = tasks if len(tasks) <= room else tasks[: room - 1]
    rows = []
    for task in shown:
        last = _output(task.id, tails, 1)
        said = words.outcome(task) if not (task.waiting or task.running) else task.in_words
        label = sight.points.label(task.id)
        rows.append(f"{label}  {said}" + (f"  | {last[0].strip()}" if last else ""))
    return rows + [f"and {len(tasks) - len(shown)} more"] * (len(shown) < len(tasks))


def chosen(labels: bool) -> Plain | Live:
    """What fits where our output goes."""
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return Live()
    sys.stdout.flush()
    return Plain(sys.stdout.buffer, labels)
