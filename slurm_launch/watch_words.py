"""What `watch` says of a job: why it waits and for how long, how far it is, how it ended and what took how long."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from slurm_launch.observe import UNKNOWN, Task
from slurm_launch.slurm import Place
from slurm_launch.slurm_words import how_it_ended


def waits(task: Task, place: Place | None, now: datetime) -> list[str]:
    """Of a job that waits: the reason, its place, when it is expected to start, and how long it has waited."""
    said = [task.in_words + again(task)]
    if place is not None and (words := place_in_words(place, task.partition)):
        said.append(words)
    if task.expected is not None and task.expected > now:
        said.append(
            f"expected to start at {clock(task.expected, now)}, in {spoken((task.expected - now).total_seconds())}"
        )
    return said


def again(task: Task) -> str:
    """`, after 2 requeues` where it is so."""
    return f", after {task.restarts} requeue{'s' * (task.restarts > 1)}" if task.restarts else ""


def place_in_words(place: Place, partition: str | None) -> str | None:
    """`3rd of 12 waiting in partition debug`; where Slurm hides other people's jobs, only what is sure."""
    if place.others:
        return f"{ordinal(place.place)} of {place.of} waiting in partition {partition}"
    return f"{ordinal(place.place)} of your {place.of} waiting in partition {partition}" if place.of > 1 else None


def ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def clock(time: datetime, now: datetime) -> str:
    """14:05, with the date on another day."""
    local, today = time.astimezone(), now.astimezone()
    return f"{local:%H:%M}" if local.date() == today.date() else f"{local:%Y-%m-%d %H:%M}"


def spoken(seconds: float) -> str:
    """3 s, 2 min 5 s, 1 h 2 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    for size, name, smaller, name_of_smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}" + (f" {rest} {name_of_smaller}" if rest else "")
    return f"{whole} s"


def timings(task: Task) -> str:
    """What took how long, as far as it is known."""
    spans = (
        ("waited", "submitted", "started"),
        ("bring-up", "started", "all-nodes"),
        ("command", "command-start", "command-end"),
        ("in all", "submitted", "ended"),
    )
    said = []
    for name, begin, end in spans:
        if begin in task.times and end in task.times:
            seconds = (task.times[end] - task.times[begin]).total_seconds()
            if seconds >= 0:  # two machines' clocks
                said.append(f"{name} {spoken(seconds)}")
    return ", ".join(said)


def outcome(task: Task) -> str:
    """The words for its end."""
    if task.state == UNKNOWN:
        return "has left the queue without a trace"
    end = task.life.end if task.life else None
    if end is not None and end.command_ended and task.code:
        return f"has ended: its command failed with exit code {task.code}"
    words = how_it_ended(task.state, task.code, task.signal)
    return f"{words}: {end.cause}" if end is not None and end.cause else words


def counted(tasks: Iterable[Task]) -> str:
    """`3 run, 2 wait, 5 have ended (1 not well)`."""
    run = wait = ended = bad = 0
    for task in tasks:
        number = size_of(task.id)
        run += number * task.running
        wait += number * task.waiting
        ended += number * (task.ended or task.state == UNKNOWN)
        bad += task.state != "COMPLETED" and (task.ended or task.state == UNKNOWN)
    said = [f"{run} run" if run else "", f"{wait} wait" if wait else ""]
    said.append(f"{ended} ended" + (f" ({bad} not well)" if bad else "") if ended else "")
    return ", ".join(text for text in said if text)


def size_of(task_id: str) -> int:
    """How many tasks an id stands for: 12_[1,4-9:2%3] for four."""
    _, bracket, inside = task_id.partition("[")
    if not bracket:
        return 1
    number = 0
    for part in inside.rstrip("]").partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdigit() and (last or first).isdigit() and (step or "1").isdigit():
            number += len(range(int(first), int(last or first) + 1, int(step or 1)))
        else:
            number += 1  # squeue cuts off long lists
    return number
