"""What `watch` shows about a job: why it is pending, its progress, how it ended and how long each part took."""

from __future__ import annotations

from datetime import datetime

from slurm_launch.slurm.jobs import QueuePosition
from slurm_launch.slurm.plain_words import describe_end
from slurm_launch.status.report import clock, duration
from slurm_launch.status.task import NOT_NEEDED, NOT_NEEDED_SENTENCE, Task


def pending_messages(task: Task, place: QueuePosition | None, now: datetime) -> list[str]:
    """For a pending job: the reason, its place in the queue, and its estimated start."""
    messages = [task.in_words + restarts_suffix(task)]
    if place is not None and (words := place_in_words(place, task.partition)):
        messages.append(words)
    if task.expected is not None and task.expected > now:
        seconds = (task.expected - now).total_seconds()
        messages.append(f"estimated start {clock(task.expected, now)}, in {duration(seconds)}")
    return messages


def restarts_suffix(task: Task) -> str:
    """`, after 2 requeues` for a job that was requeued."""
    return f", after {task.restarts} requeue{'s' * (task.restarts > 1)}" if task.restarts else ""


def place_in_words(place: QueuePosition, partition: str | None) -> str | None:
    """`3rd of 12 pending jobs in partition debug`; only among the user's own jobs if Slurm hides those of others."""
    if place.others:
        return f"{ordinal(place.place)} of {place.of} pending jobs in partition {partition}"
    return f"{ordinal(place.place)} of your {place.of} pending jobs in partition {partition}" if place.of > 1 else None


def ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def timings(task: Task) -> str:
    """`queued 2 s, bring-up 8 s, command 11 s, total 21 s`, as far as the times are known."""
    spans = (
        ("queued", "submitted", "started"),
        ("bring-up", "started", "all-nodes"),
        ("command", "command-start", "command-end"),
        ("total", "submitted", "ended"),
    )
    parts = []
    for name, begin, end in spans:
        if begin in task.times and end in task.times:
            seconds = (task.times[end] - task.times[begin]).total_seconds()
            if seconds >= 0:  # the clocks of two machines may differ
                parts.append(f"{name} {duration(seconds)}")
    return ", ".join(parts)


def outcome(task: Task) -> str:
    """How a job ended, in words that follow `job 12`."""
    if task.reason == NOT_NEEDED:
        return NOT_NEEDED_SENTENCE
    end = task.attempt.end if task.attempt else None
    if end is not None and end.command_ended and task.code:
        return f"failed: its command exited with code {task.code}" + (f": {end.cause}" if end.cause else "")
    words = describe_end(task.state, task.code, task.signal)
    return f"{words}: {end.cause}" if end is not None and end.cause else words
