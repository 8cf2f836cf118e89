"""The environment of Slurm's commands: what sbatch and the query commands may see of the user's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_OUTER = ("SBATCH_", "SLURM_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
_OUTER_RAY = ("RAY_ADDRESS", "RAY_AUTH_", "RAY_JOB_CONFIG_JSON_ENV_VAR")

# They say which Slurm is meant, who asks it and how it prints times: never set by an outer job, nor part of a job.
KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"})


@dataclass(frozen=True)
class Dropped:
    """The variables that sbatch does not get to see."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)  # by name, sorted; some are secrets
    outer_job: str | None = None  # the job from within which this one is submitted

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)


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
    clean = {name: value for name, value in env.items() if name not in names}
    return clean, Dropped({name: env[name] for name in names}, outer_job)


def query_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for squeue, scontrol and sacct: no default of the user's may change what we parse.

    Times are UTC, and the list of an array's tasks is not cut short.
    """
    own = ("SQUEUE_", "SACCT_", "SCONTROL_", *_OUTER)
    keep = KEPT - {"SLURM_CLUSTERS"}  # the record knows the cluster
    clean = {name: value for name, value in env.items() if name in keep or not name.startswith(own)}
    # Slurm's times have no zone; and where the clocks are put back an hour comes twice.
    return clean | {"SLURM_TIME_FORMAT": "standard", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0"}
