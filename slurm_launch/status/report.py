"""A run as text rows for people and as JSON for programs. Queries and prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.spec.option import dependency_flags
from slurm_launch.status.task import NOT_NEEDED, NOT_NEEDED_SENTENCE, NOT_NEEDED_WORD, TIMES, UNKNOWN, Task
from slurm_launch.status.task_points import TaskPoints, shorten

Row = tuple[str, str]
# The parts of a run, each between two of its times.
PARTS = (
    ("in the queue", "submitted", "started"),
    ("environment, head", "started", "head-ready"),
    ("other nodes", "head-ready", "all-nodes"),
    ("command", "command-start", "command-end"),
    ("teardown", "command-end", "ended"),
)
MEMORY_LINES = 5  # maximum number of nodes that are named


def duration(seconds: float) -> str:
    """A duration in at most two units: 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
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
    """A local time, without the date if that is today's."""
    local = time.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == now.astimezone().date() else f"{local:%Y-%m-%d %H:%M:%S}"


def elapsed(task: Task, now: datetime) -> float | None:
    """Seconds that a task has been running, so far or in total."""
    started, ended = task.times.get("started"), task.times.get("ended")
    if started is None or task.waiting or (ended is None and not task.running):
        return None
    return ((ended or now) - started).total_seconds()


def state_of(tasks: Sequence[Task]) -> str:
    """Slurm's state of a run; of an array the number of tasks in each state."""
    if len(tasks) == 1:
        return tasks[0].state
    counts = Counter(task.state for task in tasks for _ in range(tasks_in(task)))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {state}" for state, count in counts.most_common())


def summary(tasks: Sequence[Task]) -> str:
    """The state of a run for people: COMPLETED; of an array `8 ok, 2 failed, 2 running`."""
    if len(tasks) == 1 and tasks_in(tasks[0]) == 1:
        return tasks[0].state
    counts = Counter(_state_word(task) for task in tasks for _ in range(tasks_in(task)))
    words = ("ok", "failed", "cancelled", NOT_NEEDED_WORD, "running", "pending", "unknown")
    return ", ".join(f"{counts[word]} {word}" for word in words if counts[word])


def _state_word(task: Task) -> str:
    if task.reason == NOT_NEEDED:
        return NOT_NEEDED_WORD
    if task.ended:
        return {"COMPLETED": "ok", "CANCELLED": "cancelled"}.get(task.state, "failed")
    if task.waiting:
        return "pending"
    return "running" if task.running else "unknown"


def tasks_in(task: Task) -> int:
    """The number of array tasks that `12_[4-9%2]` stands for."""
    return max(1, len(array_ids.task_ids(task.id)))


def as_json(run: Run, tasks: Sequence[Task], now: datetime, points: TaskPoints) -> dict[str, Any]:
    """A run for programs. If it is not an array, the fields of its task are at the top level, too."""
    again = run.resubmitted_as()
    entries = [
        _task_json(task, now)
        | {"cancelled": run.cancelled_at(task.id), "run_again_as": again.get(task.id), "point": points.of(task.id)}
        for task in points.each(run, tasks)
    ]
    keys = ("name", "exp_name", "job_id", "cluster", "script", "log", "logs", "record")
    about = {key: getattr(run, key) for key in keys} | {"cancelled": max(run.cancelled.values(), default=None)}
    top = entries[0] if len(entries) == 1 and "_" not in tasks[0].id else {"state": state_of(tasks)}
    about["points"] = run.points
    return about | {key: value for key, value in top.items() if key not in ("id", "log")} | {"tasks": entries}


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
        "memory_kills": [asdict(kills) for kills in task.memory_kills],
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


def status_rows(run: Run, task: Task, now: datetime) -> list[Row]:
    """What `status` shows about a job, a row for each fact that is known."""
    attempt, times = task.attempt, task.times
    end = attempt.end if attempt else None
    rows = [("state", _state_row(task))]
    if end and end.hint and end.outcome != "ok" and not task.running:
        rows.append(("hint", end.hint))
    if task.waiting:
        rows += _pending_rows(run, task, now)
    if task.partition:
        rows.append(("partition", task.partition))
    if task.nodes or task.num_nodes:
        rows.append(("nodes", task.nodes or f"{task.num_nodes} requested"))
    if task.running:
        rows += _running_rows(task, now)
    if attempt and attempt.lost:
        rows.append(("lost", ", ".join(attempt.lost)))
    rows += [("memory", text) for text in memory_lines(task)]
    rows += [("warning", text) for text in attempt.warnings] if attempt else []
    rows += [("restarts", str(task.restarts))] if task.restarts else []
    rows += _time_rows(task, now)
    if task.code is not None:
        whose = "the command's" if end is None or end.command_ended else "the script's own"
        rows.append(("exit code", f"{task.code} ({whose})"))
    if "command-start" in times and task.phase == "command":
        since = duration((now - times["command-start"]).total_seconds())
        rows.append(("command", f"running since {clock(times['command-start'], now)}, for {since}"))
    if name := run.resubmitted_as().get(task.id):
        rows.append(("rerun", f"as {name}"))
    rows.append(("log", task.log))
    return rows


def memory_lines(task: Task) -> list[str]:
    """What the kernel has killed for memory: a line for each of the last nodes."""
    lines = [kills.in_words for kills in task.memory_kills[-MEMORY_LINES:]]
    more = len(task.memory_kills) - len(lines)
    return [*lines, *([f"and {more} more, in the log"] if more else [])]


def _state_row(task: Task) -> str:
    """`PENDING: jobs with a higher priority are ahead of it (Priority)`, `COMPLETED`."""
    words = task.in_words.removeprefix("pending: ").removeprefix("running: ")
    text = task.state if words == task.state.lower() else f"{task.state}: {words}"
    if task.source in ("log", "record"):
        source = "saved record" if task.source == "record" else "log"
        text += f" (from the {source}; Slurm no longer lists this job)"
    return text


def _pending_rows(run: Run, task: Task, now: datetime) -> list[Row]:
    expected = f"{clock(task.expected, now)} at the latest, by Slurm's current schedule" if task.expected else "unknown"
    rows = [("start", expected)]
    if dependencies := dependency_flags(run.spec):
        rows.append(("waits for", ", ".join(dependencies)))
    return rows


def _running_rows(task: Task, now: datetime) -> list[Row]:
    rows = []
    attempt = task.attempt
    if attempt and attempt.count:
        joined = f"{len(attempt.joined)} of {attempt.count}: {', '.join(attempt.joined)}".rstrip(": ")
        rows.append(("joined", joined))
    if task.phase == "command" and attempt:
        for label, value in (
            ("address", attempt.address),
            ("client", attempt.client),
            ("dashboard", attempt.dashboard),
        ):
            rows += [(label, value)] if value else []
    if task.limit:
        rows.append(("time left", duration((task.limit - now).total_seconds())))
    return rows


def _time_rows(task: Task, now: datetime) -> list[Row]:
    """When it was submitted, started and ended, and how long it ran."""
    rows = []
    for name in ("submitted", "started", "ended"):
        if name in task.times:
            rows.append((name, clock(task.times[name], now)))
    ran = elapsed(task, now)
    if ran is not None and "ended" in task.times:
        rows[-1] = ("ended", f"{rows[-1][1]}, after {duration(ran)}")
    return rows


def timing_rows(task: Task, now: datetime, width: int = 40, block: str = "█") -> list[str]:
    """The parts of a run as bars; a part that is not over yet extends to now."""
    spans = []
    for label, begin, end in PARTS:
        first = task.times.get(begin)
        active = not task.ended and task.state != UNKNOWN
        last = task.times.get(end) or (now if active and not _is_past(task, begin) else None)
        if first and last:
            spans.append((label, max(0.0, (last - first).total_seconds()), end in task.times))
    longest = max((seconds for _, seconds, _ in spans), default=0) or 1
    rows = []
    for label, seconds, over in spans:
        bar = block * max(round(seconds / longest * width), 1 if seconds else 0)
        rows.append(f"{label:<17}  {bar:<{width}}  {duration(seconds)}{'' if over else ' so far'}")
    return rows


def _is_past(task: Task, name: str) -> bool:
    """Whether the part that begins at this time is known to be over."""
    return any(other in task.times for other in TIMES[TIMES.index(name) + 1 :])


# A table of array tasks


def task_rows(run: Run, tasks: Sequence[Task], points: TaskPoints, now: datetime) -> list[list[str]]:
    """The header of the table, and a row for each task; for a sweep, with the values of its points."""
    resubmitted_as = run.resubmitted_as()
    rows = [["TASK", *points.keys, "STATE", "NODES", "ELAPSED", "EXIT", "REMARK"]]
    for task in points.each(run, tasks):
        point = points.of(task.id) or {}
        ran = elapsed(task, now)
        row = [
            task.id,
            *(shorten(point.get(key, "")) for key in points.keys),
            task.state,
            task.nodes or "-",
            "-" if ran is None else duration(ran),
            "-" if task.code is None else str(task.code),
            _remark(task, resubmitted_as.get(task.id)),
        ]
        rows.append(row)
    return rows


def _remark(task: Task, again: str | None) -> str:
    """Why a task is pending, its progress or why it failed, and the run as which it was resubmitted."""
    end = task.attempt.end if task.attempt else None
    if task.reason == NOT_NEEDED:
        words = NOT_NEEDED_SENTENCE
    elif task.ended:
        words = (end.cause if end and task.state != "COMPLETED" else "") or ""
    else:
        words = task.in_words.removeprefix("pending: ").removeprefix("running: ")
        words = "" if words == task.state.lower() else words
    return "; ".join(text for text in (words, f"rerun as {again}" if again else "") if text)
