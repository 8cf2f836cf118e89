"""The checks of single values: each takes a value and returns it, or raises BadValue with a hint.

They accept what Slurm accepts and return the text unchanged wherever they can: sbatch reads what the user wrote.
"""

from __future__ import annotations

import re
from typing import Any

from slurm_launch.errors import show
from slurm_launch.slurm import hostlist, times

MAX_NAME = 100  # leaves room for the date, a suffix and .json within a file name's 255 bytes


class BadValue(ValueError):
    """A value that is not valid, and a hint what to write instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


# --- text ------------------------------------------------------------------------------------------------------------


def scalar_text(value: Any) -> Any:
    """A whole number as text (`time: 90`, `account: 1234`); any other value unchanged."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def is_true(value: Any) -> bool:
    """Whether pydantic reads the value as true."""
    return value is True or str(value).lower() in ("true", "yes", "on", "y", "t", "1")


def _encodable(text: str) -> str:
    if "\0" in text:
        raise BadValue("contains a NUL character", "remove it: neither a shell nor a file can hold it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValue("is not valid UTF-8 text", "write it in UTF-8") from None
    return text


def one_line(text: str) -> str:
    """Text that stays on one line of the script, such as the value of a directive."""
    _encodable(text)
    if re.search(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text):
        raise BadValue(f"contains a line break: {show(text)}", "use one line: a break would start a new script line")
    if re.search(r"[\x01-\x08\x0e-\x1b\x1f\x7f]", text):
        raise BadValue(f"contains a control character: {show(text)}", "remove it")
    return text


def nonempty_line(text: str) -> str:
    """One line that is not empty."""
    if not one_line(text).strip():
        raise BadValue("is empty", "specify a value, or omit the option")
    return text


def code(text: str) -> str:
    """The user's own shell code, which the script contains verbatim."""
    if not _encodable(text).strip():
        raise BadValue("is empty", "specify the command to run")
    if "\r" in text:
        raise BadValue("contains a carriage return", "save the text with Unix line ends (sbatch refuses DOS ones)")
    return text


def exp_name(text: str) -> str:
    """The name of the experiment: the job name and the start of the file names."""
    clean = re.sub(r"[^A-Za-z0-9._+=@-]+", "-", text).strip("-.")[:MAX_NAME] or "test"
    hint = f"use letters, digits and . _ + = @ -, starting with a letter or digit, for example {clean!r}"
    if not text:
        raise BadValue("is empty", hint)
    if len(text) > MAX_NAME:
        raise BadValue(f"has {len(text)} characters; the maximum is {MAX_NAME}", hint)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=@-]*", text) or ".." in text:
        raise BadValue(f"is not valid as a file name and a job name: {show(text)}", hint)
    return text


# --- what sbatch takes -----------------------------------------------------------------------------------------------


def slurm_time(text: str) -> str:
    if not times.is_time(text):
        raise BadValue(
            f"is not a valid Slurm time: {show(text)}",
            "write minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, for example 1:30:00 or 2-12",
        )
    return text


_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_UNIT_BITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_MEMORY_HINT = "write a whole number with K, M, G or T, for example 4G; without a unit it means megabytes"


def memory(text: str) -> str:
    """An amount of memory for Slurm."""
    if not re.fullmatch(r"\d+([KMGT]B?)?", text, re.IGNORECASE):
        raise BadValue(f"is not an amount of memory: {show(text)}", _MEMORY_HINT)
    return text


def memory_bytes(text: str, *, unit: str = "") -> int:
    """An amount of memory in bytes; a number alone counts bytes, as for Ray's own flags, or another `unit`."""
    match = _MEMORY.fullmatch(str(text).strip())
    if not match:
        raise BadValue(
            f"is not an amount of memory: {show(text)}", "write 2G, 500M, or a number of bytes, as for Ray's own flag"
        )
    return int(match[1]) << _UNIT_BITS[match[2].upper() or unit]


def nodelist(text: str) -> str:
    """A hostlist as sinfo prints it."""
    hint = "write it as sinfo does, for example gpu[01-03] or n1,n2"
    if not re.fullmatch(r"[A-Za-z0-9._,\[\]-]+", nonempty_line(text)):
        raise BadValue(f"is not a list of hosts: {show(text)}", hint)
    try:
        hosts = hostlist.expand(text)
    except Exception as error:  # the library's own BadHostlist, with the reason
        raise BadValue(f"is not a list of hosts: {show(text)}: {error}", hint) from None
    if not hosts:
        raise BadValue(f"names no host: {show(text)}", hint)
    return text


_DEPENDENCY = re.compile(
    r"(after|afterany|afterburstbuffer|aftercorr|afternotok|afterok):\d+(_\d+|_\*)?(\+\d+)?(:\d+(_\d+|_\*)?(\+\d+)?)*"
    r"|singleton"
)


def dependency(text: str) -> str:
    for part in re.split(r"[,?]", text):
        if not _DEPENDENCY.fullmatch(part):
            raise BadValue(
                f"is not a dependency: {show(part)}", "write afterok:123, afterany:123:124, after:123+5 or singleton"
            )
    return text


def signal(text: str) -> str:
    if not re.fullmatch(r"([RB]{1,2}:)?(SIG)?([A-Z0-9+]+|\d+)(@\d+)?", text, re.IGNORECASE):
        raise BadValue(f"is not a signal for sbatch: {show(text)}", "write B:USR1 or B:USR1@120")
    if "B" not in text.partition(":")[0].upper() or ":" not in text:
        hint = f"write B:{text}: the script passes USR1 and USR2 on to the command"
        raise BadValue(f"would be sent to Ray and terminate it: {show(text)}", hint)
    return text


MIN_WARNING = 30  # seconds: stopping the job takes some of them
MAX_WARNING = 65535  # sbatch's own limit


def signal_before(seconds: int) -> int:
    if not MIN_WARNING <= seconds <= MAX_WARNING:
        hint = "leave the command time to save its work and the job time to stop, for example 120"
        raise BadValue(f"must be {MIN_WARNING} to {MAX_WARNING} seconds, not {show(seconds)}", hint)
    return seconds


_CATCHABLE = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT")


def signal_name(text: str) -> str:
    """A signal that a program can catch, without SIG."""
    name = text.upper().removeprefix("SIG")
    if name not in _CATCHABLE:
        raise BadValue(f"is not a supported signal: {show(text)}", f"use one of {', '.join(_CATCHABLE)}")
    return name


def switches(text: str) -> str:
    count, _, wait = text.partition("@")
    if not count.isdigit() or (wait and not times.is_time(wait)):
        raise BadValue(f"is not a number of switches: {show(text)}", "write 1 or 1@10:00 (at most 1, wait 10 minutes)")
    return text


# --- arrays and chains -----------------------------------------------------------------------------------------------

MAX_LINKS = 100_000  # of a chain
MAX_TASK_NUMBER = 4_000_000  # Slurm's own limit, whatever MaxArraySize a site sets
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)


def array(text: str) -> str:
    """The tasks of an array as in sbatch's manual, optionally in brackets, as squeue prints them.

    sbatch itself also accepts `0-9%3%2` or `%3`, with an unexpected meaning.
    """
    hint = "write 0-9, 1,3,5, 0-20:4 or 0-9%3 (three concurrent tasks)"
    tasks, percent, concurrent = text.partition("%")
    if percent and not re.fullmatch(r"\d{1,9}", concurrent, re.ASCII):
        what = f"{concurrent} is not a number of tasks" if concurrent else "a number is missing"
        raise BadValue(f"is not a job array: {show(text)}: {what} after the %, which comes last", hint)
    if percent and int(concurrent) == 0:
        raise BadValue(f"allows 0 concurrent tasks: {show(text)}", "omit %0 for no limit")
    if tasks.startswith("[") and tasks.endswith("]"):
        tasks = tasks[1:-1]
    task_numbers(tasks, f"is not a job array: {show(text)}", hint)
    return tasks + percent + concurrent


def task_numbers(text: str, message: str, hint: str) -> None:
    """Raise BadValue unless the text is a list of tasks, such as 0-4,7,10-20:5."""
    for part in text.split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            what = f"{show(part)} is neither a number nor a range" if part else "a number is missing"
            raise BadValue(f"{message}: {what}", hint)
        if any(len(number or "") > 18 or int(number or 0) > MAX_TASK_NUMBER for number in match.groups()):
            raise BadValue(f"{message}: the highest task number of Slurm is {MAX_TASK_NUMBER}", hint)
        first, last, step = match.groups()
        if last and int(first) > int(last):
            raise BadValue(f"{message}: {part} is a descending range", hint)
        if step and int(step) == 0:
            raise BadValue(f"{message}: {part} has a step of 0", hint)


def chain(links: int) -> int:
    """The number of links in a chain."""
    if links < 2:
        raise BadValue(f"must be at least 2, not {links}", "use 2 or more; omit --chain to run the job once")
    if links > MAX_LINKS:
        raise BadValue(f"must be at most {MAX_LINKS}, not {links}", "Slurm's MaxArraySize may be lower still")
    return links


# --- what Ray needs --------------------------------------------------------------------------------------------------


def port_range(text: str) -> str:
    hint = "write A-B within 1024-65535, at least 64 ports wide, for example 20000-20999"
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if not match or int(match[1]) < 1024 or int(match[2]) > 65535 or int(match[2]) - int(match[1]) < 63:
        raise BadValue(f"is not a valid port range: {show(text)}", hint)
    return text


def interface(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:@-]{1,15}", text):
        raise BadValue(f"is not the name of a network interface: {show(text)}", "`ip -br addr` lists them, e.g. ib0")
    return text


# A Unix socket path holds 107 bytes and Ray appends 64 of its own; the node's own directory below this one needs
# 23 more (/r<job ID>-<6 random>.<node>/t, with 8 digits for the job and 3 for the node).
MAX_TEMP_DIR = 20


def temp_dir(text: str) -> str:
    """The node-local directory in which each job creates its own. %u is the user, %j the job ID."""
    hint = "use a short absolute node-local path such as /tmp or /scratch/%u"
    if not nonempty_line(text).startswith("/"):
        raise BadValue(f"is not an absolute path: {show(text)}", hint)
    if not re.fullmatch(r"[A-Za-z0-9._/%+@=-]+", text):
        raise BadValue(f"has characters that Ray does not support in its paths: {show(text)}", hint)
    if len(text.encode()) > MAX_TEMP_DIR:
        raise BadValue(f"is too long for Ray's socket paths: {show(text)} (maximum: {MAX_TEMP_DIR} bytes)", hint)
    return text


# --- lists and mappings ----------------------------------------------------------------------------------------------


def as_list(value: Any) -> Any:
    """A single text as a list of one item."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def pairs(value: Any, example: str) -> Any:
    """`[K=V, ...]`, `K=V` or a mapping as a mapping; the value of an item without `=` is None."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, dict):
        return dict(value)
    if not isinstance(value, (list, tuple)):
        raise BadValue(f"is neither a mapping nor a list: {show(value)}", f"write {example}")
    mapping: dict[str, Any] = {}
    for item in value:
        if not isinstance(item, str):
            raise BadValue(f"has an item that is not text: {show(item)}", f"write {example}")
        key, equals, text = item.partition("=")
        mapping[key.strip()] = text if equals else None
    return mapping


def _value_text(name: str, value: Any) -> str:
    """The text of one value of a mapping."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadValue(f"the value of {name} is not text: {show(value)}", "quote the value")
    return str(value)


# Variables that the script sets itself; setting them from outside would break the cluster or leak its token. All of the
# script's own variables have a prefix.
_OWN_VARIABLES = re.compile(
    r"RAY_ADDRESS|RAY_AUTH_.*|RAY_TMPDIR|SLURM_.*|SBATCH_.*|SRUN_.*|BASH_ENV|IFS|SHELLOPTS|BASHOPTS|SECONDS"
    r"|slaunch_.*|SLAUNCH_(LINK|RESTART|RUN_DIR|NODE_DIR)"
)


def environment(value: Any) -> Any:
    """Environment variables for the job: K=V."""
    variables = pairs(value, "NAME=value")
    for name, text in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            raise BadValue(f"is not the name of a variable: {show(name)}", "write NAME=value")
        if _OWN_VARIABLES.fullmatch(name):
            raise BadValue(f"{name} is reserved for the script or Slurm", "omit it: the job sets it itself")
        if text is None:
            raise BadValue(f"has no value: {name}", f"write {name}=value, or {name}= for an empty one")
        variables[name] = _encodable(_value_text(name, text))
    return variables


def srun_args(words: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments for srun that leave its streams alone: the script communicates with its steps through them."""
    for word in words:
        if re.match(r"--(label|output|error|input|unbuffered|pty)\b|-[loeiu]", word):
            hint = "omit it; --keep-ray-logs keeps Ray's own logs"
            raise BadValue(f"{show(word)} would disconnect the script from its nodes", hint)
    return words


# Directives that the script or the record depends on, and what to use instead.
_OWN_DIRECTIVES = {
    "output": "--run-dir sets the directory of the log",
    "error": "the log holds both streams; --run-dir sets its directory",
    "wrap": "use --command",
    "array": "use --array, which gives each task its own log and Ray cluster",
    "open-mode": "the log is always appended to, so that a requeue does not erase it",
    "container-image": "sbatch would run the script itself in the container, where there is no srun",
}


def directive_name(name: str) -> str:
    plain = str(name).strip().lstrip("-")
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]+", plain):
        raise BadValue(f"is not a long option of sbatch: {show(name)}", "write its long name, for example gres=gpu:2")
    return plain


def directives(value: Any) -> Any:
    """Additional directives: key=value, or key alone."""
    checked: dict[str, str | None] = {}
    for name, text in pairs(value, "key=value").items():
        plain = directive_name(name)
        if plain in _OWN_DIRECTIVES:
            raise BadValue(f"--{plain} cannot be set here", _OWN_DIRECTIVES[plain])
        checked[plain] = None if text is None else one_line(_value_text(plain, text))
    return checked


def dropped_directives(names: tuple[str, ...]) -> tuple[str, ...]:
    checked = tuple(directive_name(name) for name in names)
    for name in checked:
        if name in ("output", "open-mode"):
            raise BadValue(f"--{name} cannot be dropped", _OWN_DIRECTIVES[name])
    return checked
