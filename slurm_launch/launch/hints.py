"""From sbatch's words to our flags: what to use instead of a variable, and what to do when sbatch refuses a job."""

from __future__ import annotations

import re

from slurm_launch.errors import show
from slurm_launch.slurm.environment import Dropped
from slurm_launch.spec.model import options
from slurm_launch.spec.option import flag_name

# Set in every job by Slurm itself, so they are no wish of the user's.
_NOISE = re.compile(r"SBATCH_(CPU_BIND|MEM_BIND)(_\w+)?|SBATCH_(DEBUG|IGNORE_PBS)")

# Where sbatch's variable is called other than its option.
_DIRECTIVE_OF = {
    "ARRAY_INX": "array",
    "MEM_PER_NODE": "mem",
    "NO_REQUEUE": "requeue",
    "REQ_SWITCH": "switches",
    "TIMELIMIT": "time",
    "WAIT4SWITCH": "switches",
}
# Where our flag is called other than sbatch's option, or there is a better way.
_INSTEAD = {
    "error": "--run-dir says where the log goes",
    "exclusive": "use --exclusive",
    "export": "use --env",
    "gpus-per-node": "use --num-gpus",
    "job-name": "use --exp-name",
    "open-mode": "the log is always appended to",
    "output": "--run-dir says where the log goes",
    "requeue": "use --requeue or --no-requeue",
    "wait": "use --wait",
}


def notes(dropped: Dropped) -> list[str]:
    """What the user should know about variables that sbatch does not get, a line each."""
    inside_job = dropped.outer_job is not None
    lines = []
    for name, value in dropped.values.items():
        if name == "RAY_ADDRESS":  # its value may carry credentials
            lines.append("RAY_ADDRESS is not passed on to sbatch: the job starts a Ray cluster of its own")
        elif value and (instead := _instead_of(name, inside_job)):
            lines.append(f"{name}={show(value)} is not passed on to sbatch: {instead}")
    if inside_job:
        lines.append(f"submitting from within job {dropped.outer_job}: its SLURM_* variables are not passed on")
    return lines


def _instead_of(variable: str, inside_job: bool) -> str | None:
    """What to use instead of a variable that would have changed the job; None when it would not."""
    if not inside_job and variable == "SLURM_HINT":
        return "use --sbatch hint=..."
    if not inside_job and variable == "SLURM_UMASK":
        return "set the umask in the shell"
    if variable == "SLURM_CLUSTERS":
        return "--sbatch clusters=... counts"
    if not variable.startswith("SBATCH_") or _NOISE.fullmatch(variable):
        return None
    plain = variable.removeprefix("SBATCH_")
    directive = _DIRECTIVE_OF.get(plain, plain.lower().replace("_", "-"))
    if directive in _INSTEAD:
        return _INSTEAD[directive]
    for field, option in options().items():
        if option.sbatch == directive:
            return f"use {flag_name(field)}"
    return f"use --sbatch {directive}=..."


# A refusal that people meet often, and what to do about it; the first that fits counts.
_HINTS = {
    r"invalid partition": "`sinfo -s` lists the partitions; correct --partition, --head-partition"
    " or the partition= of a --worker-group",
    r"violates .*policy|job submit limit": "a limit of yours is reached: ask for less, or wait for jobs to end",
    r"account": "`sacctmgr show assoc user=$USER format=account,partition,qos` lists yours; choose one with --account",
    r"qos": "`sacctmgr show assoc user=$USER format=account,qos` lists yours; choose one with --qos",
    r"time limit is invalid|--time spec": "`sinfo -o '%P %l'` shows the partitions' limits; choose a smaller --time",
    r"memory specification": "no node has so much: `sinfo -o '%P %m'` shows their megabytes; ask for less memory",
    r"node configuration|node count spec|more processors|cpu count": "no set of nodes offers this: compare"
    " `sinfo -o '%P %D nodes, %c CPUs, %m MB, %G'` with --num-nodes, --num-gpus, --cpus-per-task and --mem",
    r"invalid node name": "`sinfo -N` lists the nodes; correct --node or --exclude",
    r"invalid feature": "`sinfo -o '%N %f'` lists the features; correct --constraint",
    r"\(gres\)|\(tres\)|generic resource": "`sinfo -o '%N %G'` shows the names; see --gpu-directive and --gpu-type",
    r"reservation": "`scontrol show reservation` lists them; correct --reservation",
    r"license": "`scontrol show license` lists them; correct --licenses",
    r"dependency": "the job to wait for must be known to Slurm (`squeue --me -t all`), which forgets"
    " a job some minutes after its end; correct --after-ok and the like, or --dependency",
    r"job array": "`scontrol show config | grep MaxArraySize` shows the limit; correct --array or --chain",
    r"unrecognized option|invalid directive": "this Slurm does not know a directive: drop it with --no-sbatch KEY",
    r"permission denied|not permitted": "choose another --partition or --account, or ask the site",
}


def hint_for(stderr: str) -> str | None:
    """What to do about a refusal, if it is a well-known one."""
    for pattern, hint in _HINTS.items():
        if re.search(pattern, stderr, re.IGNORECASE):
            return hint
    return None
