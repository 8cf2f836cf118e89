"""Checks of an array's tasks and of a chain's links, as sbatch takes them."""

from __future__ import annotations

import re

from slurm_launch.errors import show
from slurm_launch.spec.checks import BadValue

MAX_LINKS = 100_000  # of a chain
MAX_TASK_NUMBER = 4_000_000  # Slurm's own bound, whatever MaxArraySize a site sets
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)


def array(text: str) -> str:
    """The tasks of an array as sbatch's manual writes them, perhaps within brackets, as squeue does.

    sbatch itself takes more, and makes of `0-9%3%2` or `%3` what nobody meant.
    """
    hint = "write 0-9, 1,3,5, 0-20:4 or 0-9%3 (three at a time)"
    tasks, percent, at_once = text.partition("%")
    if percent and not re.fullmatch(r"\d{1,9}", at_once, re.ASCII):
        what = f"{at_once} is no number of tasks" if at_once else "a number is missing"
        raise BadValue(f"is not a job array: {show(text)}: {what} after the %, which comes last", hint)
    if percent and int(at_once) == 0:
        raise BadValue(f"lets 0 tasks run at a time: {show(text)}", "leave %0 out: then Slurm sets no limit")
    if tasks.startswith("[") and tasks.endswith("]"):
        tasks = tasks[1:-1]
    task_numbers(tasks, f"is not a job array: {show(text)}", hint)
    return tasks + percent + at_once


def task_numbers(text: str, message: str, hint: str) -> None:
    """Refuse what is no list of tasks, such as 0-4,7,10-20:5, and say which part of it."""
    for part in text.split(","):
        found = _TASKS.fullmatch(part)
        if found is None:
            what = f"{show(part)} is no number and no range" if part else "a number is missing"
            raise BadValue(f"{message}: {what}", hint)
        if any(len(number or "") > 18 or int(number or 0) > MAX_TASK_NUMBER for number in found.groups()):
            raise BadValue(f"{message}: no Slurm has a task above {MAX_TASK_NUMBER}", hint)
        first, last, step = found.groups()
        if last and int(first) > int(last):
            raise BadValue(f"{message}: {part} runs backwards", hint)
        if step and int(step) == 0:
            raise BadValue(f"{message}: {part} stands still, with steps of 0", hint)


def chain(links: int) -> int:
    """The number of a chain's links."""
    if links < 2:
        raise BadValue(f"is no chain: {links}", "give 2 or more; a job that runs once needs no --chain")
    if links > MAX_LINKS:
        raise BadValue(f"is too long a chain: {links}", f"give at most {MAX_LINKS}; Slurm's MaxArraySize may be less")
    return links
