"""The checks of single values: each takes one value and returns it, or raises BadValue with a hint.

They accept what Slurm accepts and return the text unchanged wherever they can: what the user wrote is what
sbatch reads.
"""

from __future__ import annotations

import re
from typing import Any

from slurm_launch.errors import show
from slurm_launch.slurm import hostlist, times

MAX_NAME = 100  # leaves room for the date, a suffix and .json within a file name's 255 bytes


class BadValue(ValueError):
    """A value that cannot work, and what to write instead."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def scalar_text(value: Any) -> Any:
    """Numbers may stand for text (`time: 90`, `account: 1234`); truth values and floats may not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _writable(text: str) -> str:
    if "\0" in text:
        raise BadValue("contains a NUL character", "remove it: no shell and no file can carry one")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadValue("is not valid UTF-8 text", "write it in UTF-8") from None
    return text


def one_line(text: str) -> str:
    """Text for one line of the script, a directive's value above all."""
    _writable(text)
    if re.search(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text):
        raise BadValue(f"contains a line break: {show(text)}", "it would begin a new line of the script; use one line")
    if re.search(r"[\x01-\x08\x0e-\x1b\x1f\x7f]", text):
        raise BadValue(f"contains a control character: {show(text)}", "remove it")
    return text


def filled(text: str) -> str:
    """One line that says something."""
    if not one_line(text).strip():
        raise BadValue("is empty", "give a value, or leave the option out")
    return text


def code(text: str) -> str:
    """Shell code of the user's own, written into the script as it is."""
    if not _writable(text).strip():
        raise BadValue("is empty", "give the command to run")
    if "\r" in text:
        raise BadValue("contains a carriage return", "save the text with Unix line ends (sbatch refuses DOS ones)")
    return text


def exp_name(text: str) -> str:
    """The name of the experiment: the beginning of file names and the job's name."""
    clean = re.sub(r"[^A-Za-z0-9._+=@-]+", "-", text).strip("-.")[:MAX_NAME] or "test"
    hint = f"use letters, digits and . _ + = @ -, beginning with a letter or digit, for example {clean!r}"
    if not text:
        raise BadValue("is empty", hint)
    if len(text) > MAX_NAME:
        raise BadValue(f"has {len(text)} characters, at most {MAX_NAME} fit into the file names", hint)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+=@-]*", text) or ".." in text:
        raise BadValue(f"cannot be a file name and a job name: {show(text)}", hint)
    return text


def slurm_time(text: str) -> str:
    if not times.is_time(text):
        raise BadValue(
            f"is not a time that Slurm knows: {show(text)}",
            "write minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, for example 1:30:00 or 2-12",
        )
    return text


_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MEMORY_HINT = "write a whole number with K, M, G or T, for example 4G; without a letter it means megabytes"


def memory(text: str) -> str:
    if not re.fullmatch(r"\d+([KMGT]B?)?", text, re.IGNORECASE):
        raise BadValue(f"is not an amount of memory: {show(text)}", _MEMORY_HINT)
    return text


def memory_bytes(text: str) -> int:
    """An amount of memory for Ray, in bytes: 2G, 500M; a number alone counts bytes, as Ray's own flags do."""
    found = _MEMORY.fullmatch(str(text).strip())
    if not found:
        raise BadValue(
            f"is not an amount of memory: {show(text)}", "write 2G, 500M, or a number of bytes, as Ray's own flag does"
        )
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[found[2].upper()]


def nodelist(text: str) -> str:
    """A hostlist as sinfo prints it."""
    hint = "write it as sinfo does, for example gpu[01-03] or n1,n2"
    if not re.fullmatch(r"[A-Za-z0-9._,\[\]-]+", filled(text)):
        raise BadValue(f"is not a list of hosts: {show(text)}", hint)
    try:
        found = hostlist.expand(text)
    except Exception as error:  # BadHostlist is the library's own class; it says what is wrong
        raise BadValue(f"is not a list of hosts: {show(text)}: {error}", hint) from None
    if not found:
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


def port_range(text: str) -> str:
    hint = "write A-B within 1024-65535, at least 64 ports wide, for example 20000-20999"
    found = re.fullmatch(r"(\d+)-(\d+)", text)
    if not found or int(found[1]) < 1024 or int(found[2]) > 65535 or int(found[2]) - int(found[1]) < 63:
        raise BadValue(f"is not a usable range of ports: {show(text)}", hint)
    return text


def signal(text: str) -> str:
    if not re.fullmatch(r"([RB]{1,2}:)?(SIG)?([A-Z0-9+]+|\d+)(@\d+)?", text, re.IGNORECASE):
        raise BadValue(f"is not a signal for sbatch: {show(text)}", "write B:USR1 or B:USR1@120")
    if "B" not in text.partition(":")[0].upper() or ":" not in text:
        hint = f"write B:{text}: the script passes USR1 and USR2 on to the command"
        raise BadValue(f"would go to Ray and end it: {show(text)}", hint)
    return text


LEAST_WARNING = 30  # seconds: the end of the job takes some of them
MOST_WARNING = 65535  # sbatch takes no more


def signal_before(seconds: int) -> int:
    if not LEAST_WARNING <= seconds <= MOST_WARNING:
        hint = "give the command time to save its work, and the job time to end: 120, say"
        raise BadValue(f"must be {LEAST_WARNING} to {MOST_WARNING} seconds, not {show(seconds)}", hint)
    return seconds


_CATCHABLE = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT")


def signal_name(text: str) -> str:
    """A signal that a program can catch, without SIG."""
    name = text.upper().removeprefix("SIG")
    if name not in _CATCHABLE:
        raise BadValue(f"is not a signal for this: {show(text)}", f"write one of {', '.join(_CATCHABLE)}")
    return name


def switches(text: str) -> str:
    count, _, wait = text.partition("@")
    if not count.isdigit() or (wait and not times.is_time(wait)):
        raise BadValue(f"is not a count of switches: {show(text)}", "write 1 or 1@10:00 (at most 1, wait 10 minutes)")
    return text


def interface(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:@-]{1,15}", text):
        raise BadValue(f"is not the name of a network interface: {show(text)}", "`ip -br addr` lists them, e.g. ib0")
    return text


# A Unix socket path holds 107 bytes and Ray appends 64 of its own; the node's own directory below this one needs
# 23 more (/r<job id>-<6 random>.<node>/t, with 8 digits for the job and 3 for the node).
MAX_TEMP_DIR = 20


def temp_dir(text: str) -> str:
    """The node-local directory below which each job makes its own. %u is the user, %j the job id."""
    hint = "give a short absolute node-local path such as /tmp or /scratch/%u"
    if not filled(text).startswith("/"):
        raise BadValue(f"is not an absolute path: {show(text)}", hint)
    if not re.fullmatch(r"[A-Za-z0-9._/%+@=-]+", text):
        raise BadValue(f"has characters that Ray cannot take in its paths: {show(text)}", hint)
    if len(text.encode()) > MAX_TEMP_DIR:
        raise BadValue(f"is too long for Ray's sockets below it: {show(text)} (at most {MAX_TEMP_DIR} bytes)", hint)
    return text


def as_list(value: Any) -> Any:
    """One text stands for a list of one."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def pairs(value: Any, example: str) -> Any:
    """`[K=V, ...]`, `K=V` or a mapping, as a mapping; an item without `=` has no value."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, dict):
        return dict(value)
    if not isinstance(value, (list, tuple)):
        raise BadValue(f"is neither a mapping nor a list: {show(value)}", f"write {example}")
    found: dict[str, Any] = {}
    for item in value:
        if not isinstance(item, str):
            raise BadValue(f"has an item that is no text: {show(item)}", f"write {example}")
        key, equals, text = item.partition("=")
        found[key.strip()] = text if equals else None
    return found


# What the script sets itself; a second hand on these would break the cluster or leak its token.
_OWN_VARIABLES = re.compile(
    r"RAY_ADDRESS|RAY_AUTH_.*|RAY_TMPDIR|SLURM_.*|SBATCH_.*|SRUN_.*|BASH_ENV|IFS|SHELLOPTS|BASHOPTS|SECONDS"
    # The script's own names, in the order of their appearance: the command would see our value, not the user's.
    r"|main_(job|log|head|dir)|leaving|answered|asked_at|time_is_short"
    r"|slaunch_(run|folder|link|while|restarts?|signal|warning)|SLAUNCH_(LINK|RESTART|RUN_DIR)|reason|until|fate|ends|ended_by|command_pid|phase|run|start_timeout|min_nodes|on_node_loss|temp_base|ip_family|interface"
    r"|port_first|port_last|auth|keep_ray_logs|unmanaged_gpus|object_store|(srun|ray|ray_head|ray_worker)_args|command"
    r"|head|nodes|count|head_ip|port|attempt|step_pids|step_fds|joined|batch_pid|step_of|heard|words|why|never|token|dir"
    r"|job_dir|events|address|node_code|lost|ticked|ray|deadline|enough|ready_at|missing|command_took|node"
    r"|group_(labels|resources|first)|(head|worker)_(step|enter)|enter_for_command|join_head|at_end|(worker_)?image(_env)?|silence|runtime|workdir|mounts|container(_.*)?|keeper(_pid)?|points?"
)


def is_yes(value: Any) -> bool:
    """What pydantic takes for true."""
    return value is True or str(value).lower() in ("true", "yes", "on", "y", "t", "1")


def environment(value: Any) -> Any:
    """Variables for the job: K=V."""
    variables = pairs(value, "NAME=value")
    for name, text in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            raise BadValue(f"is not the name of a variable: {show(name)}", "write NAME=value")
        if _OWN_VARIABLES.fullmatch(name):
            raise BadValue(f"{name} belongs to the script or to Slurm", "it is set in the job; leave it out")
        if text is None:
            raise BadValue(f"has no value: {name}", f"write {name}=value, or {name}= for an empty one")
        if isinstance(text, bool) or not isinstance(text, (str, int, float)):
            raise BadValue(f"{name} is no text: {show(text)}", "put the value in quotes")
        variables[name] = _writable(str(text))
    return variables


def srun_args(words: tuple[str, ...]) -> tuple[str, ...]:
    """The script listens to its steps, and talks to them: what changes their streams would cut the line."""
    for word in words:
        if re.match(r"--(label|output|error|input|unbuffered|pty)\b|-[loeiu]", word):
            hint = "leave it out; Ray's own logs are kept with --keep-ray-logs"
            raise BadValue(f"{show(word)} would cut the script off from its nodes", hint)
    return words


# Directives that would take away what the script or the record rests on, and what to use instead.
_OWN_DIRECTIVES = {
    "output": "--run-dir says where the log goes",
    "error": "the log holds both streams; --run-dir says where it goes",
    "wrap": "--command is the command",
    "array": "--array does it, with a log and a Ray cluster of its own for each task",
    "open-mode": "the log is always appended to, so that a requeue does not erase it",
    "container-image": "sbatch would put the script itself into the container, where there is no srun",
}


def directive_name(name: str) -> str:
    plain = str(name).strip().lstrip("-")
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]+", plain):
        raise BadValue(f"is not a long option of sbatch: {show(name)}", "write its long name, for example gres=gpu:2")
    return plain


def directives(value: Any) -> Any:
    """Directives that we did not think of: key=value, or key alone."""
    found: dict[str, str | None] = {}
    for name, text in pairs(value, "key=value").items():
        plain = directive_name(name)
        if plain in _OWN_DIRECTIVES:
            raise BadValue(f"--{plain} cannot be set here", _OWN_DIRECTIVES[plain])
        if text is not None and (isinstance(text, bool) or not isinstance(text, (str, int, float))):
            raise BadValue(f"the value of {plain} is no text: {show(text)}", "put the value in quotes")
        found[plain] = None if text is None else one_line(str(text))
    return found


def dropped(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in (plain := tuple(directive_name(name) for name in names)):
        if name in ("output", "open-mode"):
            raise BadValue(f"--{name} cannot be dropped", _OWN_DIRECTIVES[name])
    return plain
