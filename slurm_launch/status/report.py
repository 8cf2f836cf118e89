"""How a run is told to people and to programs. Nothing here asks or prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.spec.option import dependency_flags
from slurm_launch.status.task import NOT_NEEDED, NOT_NEEDED_WORD, TIMES, Task
from slurm_launch.status.task_points import PointsOf

# The parts of a run, each between two of its times.
PARTS = (
    ("in the queue", "submitted", "started"),
    ("environment, head", "started", "head-ready"),
    ("other nodes", "head-ready", "all-nodes"),
    ("command", "command-start", "command-end"),
    ("teardown", "command-end", "ended"),
)


def duration(seconds: float) -> str:
    """A time in two units at most: 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    rest = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        if number or (unit == "s" and not parts):
            parts.append(f"{number} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def clock(time: datetime, now: datetime) -> str:
    """A time as a person says it here: without the date when that is today's."""
    local = time.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == now.astimezone().date() else f"{local:%Y-%m-%d %H:%M:%S}"


def elapsed(task: Task, now: datetime) -> float | None:
    """Seconds that it has run, so far or in all."""
    started, ended = task.times.get("started"), task.times.get("ended")
    if started is None or task.waiting or (ended is None and not task.running):
        return None
    return ((ended or now) - started).total_seconds()


def state_of(tasks: Sequence[Task]) -> str:
    """The state of a run; of an array how many tasks are in which."""
    if len(tasks) == 1:
        return tasks[0].state
    counts = Counter(task.state for task in tasks for _ in range(tasks_in(task)))
    return (
        ", ".join(f"{count} {state}" for state, count in counts.most_common())
        if len(counts) > 1
        else next(iter(counts))
    )


def summary(tasks: Sequence[Task]) -> str:
    """The state of a run for people; of an array in few words: 8 ok, 2 failed, 2 running."""
    if len(tasks) == 1 and tasks_in(tasks[0]) == 1:
        return tasks[0].state
    counts = Counter(_in_a_word(task) for task in tasks for _ in range(tasks_in(task)))
    words = ("ok", "failed", "cancelled", NOT_NEEDED_WORD, "running", "waiting", "unknown")
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])


def _in_a_word(task: Task) -> str:
    if task.reason == NOT_NEEDED:
        return NOT_NEEDED_WORD
    if task.ended:
        return {"COMPLETED": "ok", "CANCELLED": "cancelled"}.get(task.state, "failed")
    return "waiting" if task.waiting else "running" if task.running else "unknown"


def tasks_in(task: Task) -> int:
    """How many tasks of an array `12_[4-9%2]` stands for."""
    return max(1, len(array_ids.task_ids(task.id)))


def as_json(run: Run, tasks: Sequence[Task], now: datetime, points: PointsOf) -> dict[str, Any]:
    """A run for programs; one that is no array has its task's fields at the top, too."""
    again = run.run_again()
    told = [
        _task_json(task, now)
        | {"cancelled": run.cancelled_at(task.id), "run_again_as": again.get(task.id), "point": points.of(task.id)}
        for task in points.each(run, tasks)
    ]
    keys = ("name", "exp_name", "job_id", "cluster", "script", "log", "logs", "record")
    about = {key: getattr(run, key) for key in keys} | {"cancelled": max(run.cancelled.values(), default=None)}
    alone = told[0] if len(told) == 1 and "_" not in tasks[0].id else {"state": state_of(tasks)}
    about["points"] = run.points
    return about | {key: value for key, value in alone.items() if key not in ("id", "log")} | {"tasks": told}


def _task_json(task: Task, now: datetime) -> dict[str, Any]:
    attempt, end = task.attempt, task.attempt.end if task.attempt else None
    return {
        "id": task.id,
        "state": task.state,
        "source": task.source,
        "reason": task.reason,
        "in_words": task.in_words,
        "phase": task.phase,
        "expected_start": _iso(task.expected),
        "partition": task.partition,
        "nodes": task.nodes,
        "num_nodes": task.num_nodes,
        "restarts": task.restarts,
        "joined": list(attempt.joined) if attempt else [],
        "lost": attempt.lost if attempt else [],
        "head": attempt.head if attempt else None,
        "address": attempt.address if attempt else None,
        "client_address": attempt.client if attempt else None,
        "dashboard_url": attempt.dashboard if attempt else None,
        "ray_version": attempt.ray if attempt else None,
        "times": {name.replace("-", "_"): _iso(task.times.get(name)) for name in TIMES},
        "elapsed_s": elapsed(task, now),
        "exit_code": task.code,
        "signal": task.signal or None,
        "outcome": end.outcome if end else None,
        "cause": end.cause if end else None,
        "hint": end.hint if end else None,
        "log": task.log,
    }


def _iso(time: datetime | None) -> str | None:
    return time.isoformat(timespec="seconds") if time else None


def status_rows(run: Run, task: Task, now: datetime) -> list[tuple[str, str]]:
    """What `status` says of a job, a line for each thing that is known."""
    attempt, times, end = task.attempt, task.times, task.attempt.end if task.attempt else None
    rows = [("state", f"{task.state}: {task.in_words.removeprefix('waits: ')}")]
    if task.source in ("log", "record"):
        rows[0] = ("state", f"{rows[0][1]} (Slurm has forgotten it: says the {task.source})")
    if end and end.hint and end.outcome != "ok" and not task.running:
        rows.append(("hint", end.hint))
    if task.waiting:
        expected = (
            f"{clock(task.expected, now)} at the latest, as Slurm plans now" if task.expected else "not known yet"
        )
        rows.append(("start", expected))
        if waits_for := dependency_flags(run.spec):
            rows.append(("waits for", ", ".join(waits_for)))
    if task.partition:
        rows.append(("partition", task.partition))
    if task.nodes or task.num_nodes:
        rows.append(("nodes", task.nodes or f"{task.num_nodes} wanted"))
    if task.running:
        if attempt and attempt.count:
            rows.append(
                ("joined", f"{len(attempt.joined)} of {attempt.count}: {', '.join(attempt.joined)}".rstrip(": "))
            )
        if task.phase == "command" and attempt:
            for label, value in (
                ("address", attempt.address),
                ("client", attempt.client),
                ("dashboard", attempt.dashboard),
            ):
                rows += [(label, value)] if value else []
        if task.limit:
            rows.append(("time left", duration((task.limit - now).total_seconds())))
    if attempt and attempt.lost:
        rows.append(("lost", ", ".join(attempt.lost)))
    rows += [("warning", text) for text in attempt.warnings] if attempt else []
    rows += [("restarts", str(task.restarts))] if task.restarts else []
    rows += _time_rows(task, now)
    if task.code is not None:
        whose = "the command's" if end is None or end.command_ended else "the script's own"
        rows.append(("exit code", f"{task.code} ({whose})"))
    if "command-start" in times and task.phase == "command":
        since = duration((now - times["command-start"]).total_seconds())
        rows.append(("command", f"running since {clock(times['command-start'], now)}, for {since}"))
    if name := run.run_again().get(task.id):
        rows.append(("run again", f"as {name}"))
    rows.append(("log", task.log))
    return rows


def _time_rows(task: Task, now: datetime) -> list[tuple[str, str]]:
    """When it was submitted, began and ended, and how long that took."""
    rows = []
    for name in ("submitted", "started", "ended"):
        if name in task.times:
            rows.append((name, clock(task.times[name], now)))
    ran = elapsed(task, now)
    if ran is not None and "ended" in task.times:
        rows[-1] = ("ended", f"{rows[-1][1]}, after {duration(ran)}")
    return rows


def timing_rows(task: Task, now: datetime, width: int = 40, block: str = "█") -> list[str]:
    """The parts of a run as bars; one that is not over yet goes on to now."""
    spans = []
    for label, begin, end in PARTS:
        first = task.times.get(begin)
        going = not task.ended and task.state != "UNKNOWN"
        last = task.times.get(end) or (now if going and not _later(task, begin) else None)
        if first and last:
            spans.append((label, max(0.0, (last - first).total_seconds()), end in task.times))
    longest = max((seconds for _, seconds, _ in spans), default=0) or 1
    rows = []
    for label, seconds, over in spans:
        bar = block * max(round(seconds / longest * width), 1 if seconds else 0)
        rows.append(f"{label:<17}  {bar:<{width}}  {duration(seconds)}{'' if over else ' so far'}")
    return rows


def _later(task: Task, name: str) -> bool:
    """Whether it is known to be past the part that begins with this time."""
    return any(other in task.times for other in TIMES[TIMES.index(name) + 1 :])
