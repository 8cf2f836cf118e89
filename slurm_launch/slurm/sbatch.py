"""What a submission needs to know of Slurm: sbatch's words, its environment, its answers. No input or output here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slurm_launch.spec.checks import show
from slurm_launch.spec.model import flag_name, options


def sbatch_argv(script: str, *, hold: bool = False) -> list[str]:
    return ["sbatch", "--parsable", *(["--hold"] if hold else []), script]


# The environment

_OUTER = ("SBATCH_", "SLURM_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
_OUTER_RAY = ("RAY_ADDRESS", "RAY_AUTH_", "RAY_JOB_CONFIG_JSON_ENV_VAR")

# They say which Slurm is meant, who asks it and how it prints times: never set by an outer job, nor part of a job.
KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"})

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


@dataclass(frozen=True)
class Dropped:
    """The variables that sbatch does not get to see."""

    names: tuple[str, ...] = ()
    changing: tuple[tuple[str, str], ...] = ()  # those that would have changed the job, each with what to do instead
    outer_job: str | None = None  # the job from within which this one is submitted

    def notes(self) -> list[str]:
        """What the user should know, a line each."""
        lines = [f"{what} is not passed on to sbatch: {instead}" for what, instead in self.changing]
        if self.outer_job is not None:
            lines.append(f"submitting from within job {self.outer_job}: its SLURM_* variables are not passed on")
        return lines


def of_outer_job(env: Mapping[str, str]) -> tuple[str, ...]:
    """Which variables a script of ours has set for the command from within which we are called.

    One of them is an option's, too: SLAUNCH_RUN_DIR. Such a folder of a job is no place for another job's files.
    """
    names = [name for name in ("SLAUNCH_NODE_DIR", "SLAUNCH_RESTART", "SLAUNCH_LINK") if name in env]
    if {"SLAUNCH_RESTART", "SLAUNCH_LINK"} & set(names) and env.get("SLAUNCH_RUN_DIR", "").endswith(".run"):
        names.append("SLAUNCH_RUN_DIR")
    return tuple(names)


def scrub(env: Mapping[str, str], given: Collection[str] = ()) -> tuple[dict[str, str], Dropped]:
    """The environment for sbatch: without what would override the script or leak from an outer job or Ray.

    `given` names the directives that the user wrote by hand: `--clusters` among them beats SLURM_CLUSTERS.
    """
    kept = KEPT - {"SLURM_CLUSTERS"} if {"cluster", "clusters"} & set(given) else KEPT
    ours = of_outer_job(env)  # among them the mark by which a job finds its processes in the end
    names = tuple(
        sorted(name for name in env if name in ours or (name.startswith(_OUTER + _OUTER_RAY) and name not in kept))
    )
    outer_job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or None
    changing = [
        (f"{name}={show(env[name])}", instead)
        for name in names
        if env[name] and (instead := _instead_of(name, outer_job is not None))
    ]
    if "RAY_ADDRESS" in names:  # its value may carry credentials
        changing.append(("RAY_ADDRESS", "the job starts a Ray cluster of its own"))
    clean = {name: value for name, value in env.items() if name not in names}
    return clean, Dropped(names, tuple(changing), outer_job)


def query_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for squeue, scontrol and sacct: no default of the user's may change what we parse.

    Times are UTC, and the list of an array's tasks is not cut short.
    """
    own = ("SQUEUE_", "SACCT_", "SCONTROL_", *_OUTER)
    keep = KEPT - {"SLURM_CLUSTERS"}  # the record knows the cluster
    clean = {name: value for name, value in env.items() if name in keep or not name.startswith(own)}
    # Slurm's times have no zone; and where the clocks are put back an hour comes twice.
    return clean | {"SLURM_TIME_FORMAT": "standard", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0"}


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


# sbatch's answer


def parse_job_id(stdout: str) -> tuple[str, str | None] | None:
    """The job id and, in a federation, its cluster; a site's banner may stand around it. None: no id to be seen."""
    parsable = re.findall(r"^\s*(\d+)(?:;([\w.-]+))?\s*$", stdout, re.MULTILINE | re.ASCII)
    spoken = re.findall(r"Submitted batch job (\d+)(?: on cluster ([\w.-]+))?", stdout, re.ASCII)
    for found in (parsable, spoken):
        if found:
            job_id, cluster = found[-1]  # banners come before the answer
            return job_id, cluster or None
    return None


# Slurm itself did not answer: nothing is wrong with the job.
_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|standby mode"
    r"|Could not establish a configuration source|Protocol authentication error|Munge (encode|decode) failed"
    r"|Problem talking to database|connect failure",
    re.IGNORECASE,
)
# The request went out, the answer was lost.
_LOST = re.compile(r"Socket timed out|Zero Bytes were transmitted", re.IGNORECASE)

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


def is_unreachable(stderr: str) -> bool:
    """Whether a command failed because Slurm did not answer."""
    return bool(_UNREACHABLE.search(stderr))


def is_lost(stderr: str) -> bool:
    """Whether the request may have been carried out although the command failed."""
    return bool(_LOST.search(stderr))


def hint_for(stderr: str) -> str | None:
    """What to do about a refusal, if it is a well-known one."""
    for pattern, hint in _HINTS.items():
        if re.search(pattern, stderr, re.IGNORECASE):
            return hint
    return None
