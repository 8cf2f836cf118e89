"""Hints for sbatch: the flag that replaces an environment variable, and what to do when sbatch refuses a job."""

from __future__ import annotations

import re

from slurm_launch.errors import show
from slurm_launch.slurm.environment import RemovedVariables
from slurm_launch.spec.model import options
from slurm_launch.spec.option import flag_name

# Slurm sets these in every job; they are not the user's choice.
_SET_BY_SLURM = re.compile(r"SBATCH_(CPU_BIND|MEM_BIND)(_\w+)?|SBATCH_(DEBUG|IGNORE_PBS)")

# Variables of sbatch that are not named after their option.
_OPTION_OF_VARIABLE = {
    "ARRAY_INX": "array",
    "MEM_PER_NODE": "mem",
    "NO_REQUEUE": "requeue",
    "REQ_SWITCH": "switches",
    "TIMELIMIT": "time",
    "WAIT4SWITCH": "switches",
}
# Options of sbatch whose replacement is not the flag of the same name.
_REPLACEMENTS = {
    "error": "use --run-dir for the directory of the log",
    "exclusive": "use --exclusive",
    "export": "use --env",
    "gpus-per-node": "use --num-gpus",
    "job-name": "use --exp-name",
    "open-mode": "the log is always appended to",
    "output": "use --run-dir for the directory of the log",
    "requeue": "use --requeue or --no-requeue",
    "wait": "use --wait",
}


def notes(dropped: RemovedVariables) -> list[str]:
    """Return one line for each variable that sbatch does not get although it would have changed the job."""
    inside_job = dropped.outer_job is not None
    lines = []
    for name, value in dropped.values.items():
        if name == "RAY_ADDRESS":  # its value may carry credentials
            lines.append("RAY_ADDRESS is not passed on to sbatch: the job starts its own Ray cluster")
        elif value and (replacement := _replacement(name, inside_job)):
            lines.append(f"{name}={show(value)} is not passed on to sbatch: {replacement}")
    if inside_job:
        lines.append(f"submitting from within job {dropped.outer_job}: its SLURM_* variables are not passed on")
    return lines


def _replacement(variable: str, inside_job: bool) -> str | None:
    """Return what to use instead of a variable; None if it would not have changed the job."""
    if not inside_job and variable == "SLURM_HINT":
        return "use --sbatch hint=..."
    if not inside_job and variable == "SLURM_UMASK":
        return "set the umask in the shell"
    if variable == "SLURM_CLUSTERS":
        return "--sbatch clusters=... takes precedence"
    if not variable.startswith("SBATCH_") or _SET_BY_SLURM.fullmatch(variable):
        return None
    plain = variable.removeprefix("SBATCH_")
    directive = _OPTION_OF_VARIABLE.get(plain, plain.lower().replace("_", "-"))
    if directive in _REPLACEMENTS:
        return _REPLACEMENTS[directive]
    for field, option in options().items():
        if option.sbatch == directive:
            return f"use {flag_name(field)}"
    return f"use --sbatch {directive}=..."


# Frequent refusals and what to do about them; the first match counts.
_REFUSALS = {
    r"invalid partition": "`sinfo -s` lists the partitions; fix --partition, --head-partition"
    " or the partition= of a --worker-group",
    r"violates .*policy|job submit limit": "you have reached a limit: request less, or wait for other jobs to end",
    r"account": "`sacctmgr show assoc user=$USER format=account,partition,qos` lists your accounts;"
    " choose one with --account",
    r"qos": "`sacctmgr show assoc user=$USER format=account,qos` lists your QOS; choose one with --qos",
    r"time limit is invalid|--time spec": "`sinfo -o '%P %l'` shows the limits of the partitions; use a shorter --time",
    r"memory specification": "no node has that much: `sinfo -o '%P %m'` shows the memory in MB; request less",
    r"node configuration|node count spec|more processors|cpu count": "no set of nodes satisfies this: compare"
    " `sinfo -o '%P %D nodes, %c CPUs, %m MB, %G'` with --num-nodes, --num-gpus, --cpus-per-task and --mem",
    r"invalid node name": "`sinfo -N` lists the nodes; fix --node or --exclude",
    r"invalid feature": "`sinfo -o '%N %f'` lists the features; fix --constraint",
    r"\(gres\)|\(tres\)|generic resource": "`sinfo -o '%N %G'` shows the names; see --gpu-directive and --gpu-type",
    r"reservation": "`scontrol show reservation` lists them; fix --reservation",
    r"license": "`scontrol show license` lists them; fix --licenses",
    r"dependency": "Slurm must know the job to wait for (`squeue --me -t all`), and removes"
    " a job some minutes after its end; fix --after-ok and similar options, or --dependency",
    r"job array": "`scontrol show config | grep MaxArraySize` shows the limit; fix --array or --chain",
    r"unrecognized option|invalid directive": "this Slurm does not support a directive: remove it with --no-sbatch KEY",
    r"permission denied|not permitted": "choose another --partition or --account, or ask your administrators",
}


def hint_for(stderr: str) -> str | None:
    """Return what to do about a refusal; None if it is not a frequent one."""
    for pattern, hint in _REFUSALS.items():
        if re.search(pattern, stderr, re.IGNORECASE):
            return hint
    return None
