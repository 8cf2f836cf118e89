"""What `watch` says of a job: why it waits and for how long, how far it is, how it ended and what took how long."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from slurm_launch.slurm.jobs import QueuePlace
from slurm_launch.slurm.plain_words import how_it_ended
from slurm_launch.status.report import clock, duration, tasks_in
from slurm_launch.status.task import NOT_NEEDED, NOT_NEEDED_SENTENCE, UNKNOWN, Task


def waits(task: Task, place: QueuePlace | None, now: datetime) -> list[str]:
    """Of a job that waits: the reason, its place, when it is expected to start, and how long it has waited."""
    said = [task.in_words + again(task)]
    if place is not None and (words := place_in_words(place, task.partition)):
        said.append(words)
    if task.expected is not None and task.expected > now:
        said.append(
            f"expected to start at {clock(task.expected, now)}, in {duration((task.expected - now).total_seconds())}"
        )
    return said


def again(task: Task) -> str:
    """`, after 2 requeues` where it is so."""
    return f", after {task.restarts} requeue{'s' * (task.restarts > 1)}" if task.restarts else ""


def place_in_words(place: QueuePlace, partition: str | None) -> str | None:
    """`3rd of 12 waiting in partition debug`; where Slurm hides other people's jobs, only what is sure."""
    if place.others:
        return f"{ordinal(place.place)} of {place.of} waiting in partition {partition}"
    return f"{ordinal(place.place)} of your {place.of} waiting in partition {partition}" if place.of > 1 else None


def ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


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
                said.append(f"{name} {duration(seconds)}")
    return ", ".join(said)


def outcome(task: Task) -> str:
    """The words for its end."""
    if task.state == UNKNOWN:
        return "has left the queue without a trace"
    if task.reason == NOT_NEEDED:
        return NOT_NEEDED_SENTENCE
    end = task.attempt.end if task.attempt else None
    if end is not None and end.command_ended and task.code:
        return f"has ended: its command failed with exit code {task.code}"
    words = how_it_ended(task.state, task.code, task.signal)
    return f"{words}: {end.cause}" if end is not None and end.cause else words


def counted(tasks: Iterable[Task]) -> str:
    """`3 run, 2 wait, 5 have ended (1 not well)`."""
    run = wait = ended = bad = 0
    for task in tasks:
        number = tasks_in(task)
        run += number * task.running
        wait += number * task.waiting
        ended += number * (task.ended or task.state == UNKNOWN)
        good = task.state == "COMPLETED" or task.reason == NOT_NEEDED
        bad += not good and (task.ended or task.state == UNKNOWN)
    said = [f"{run} run" if run else "", f"{wait} wait" if wait else ""]
    said.append(f"{ended} ended" + (f" ({bad} not well)" if bad else "") if ended else "")
    return ", ".join(text for text in said if text)
