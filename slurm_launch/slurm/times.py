"""Times as Slurm writes them: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""

from __future__ import annotations

import re
from math import inf

_TIME = re.compile(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-\d+|\d+-\d+:\d+|\d+-\d+:\d+:\d+|unlimited|infinite", re.IGNORECASE)


def is_time(text: str) -> bool:
    """Whether sbatch accepts the text as a time limit."""
    return _TIME.fullmatch(text) is not None


def seconds(time: str) -> float:
    """A time limit in seconds; 0, `unlimited` and text that is not a time are infinite."""
    if not is_time(time) or not time[0].isdigit() or len(time) > 30:  # Python limits the digits of a number
        return inf
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, secs = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, secs = parts
    else:
        hours, (minutes, secs) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs or inf
