"""The environment of Slurm's commands: which of the user's variables sbatch and the query commands get."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_OUTER = ("SBATCH_", "SLURM_", "SRUN_", "PMI_", "PMI2_", "PMIX_")
_OUTER_RAY = ("RAY_ADDRESS", "RAY_AUTH_", "RAY_JOB_CONFIG_JSON_ENV_VAR")

# They select the Slurm, the user and the format of times. Slurm does not set them in a job.
KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_TIME_FORMAT"})


@dataclass(frozen=True)
class RemovedVariables:
    """The variables that are removed for sbatch."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)  # by name, sorted; some are secrets
    outer_job: str | None = None  # ID of the job inside which this one is submitted

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)


def outer_job_variables(env: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that a generated script has set, if this process runs inside its job.

    SLAUNCH_RUN_DIR is also an option. A job sets it to its own folder, which must not get the files of another job.
    """
    names = [name for name in ("SLAUNCH_NODE_DIR", "SLAUNCH_RESTART", "SLAUNCH_LINK", "SLAUNCH_SET") if name in env]
    names += [name for name in env.get("SLAUNCH_SET", "").split() if name in env]  # such as addresses of its head
    if {"SLAUNCH_RESTART", "SLAUNCH_LINK"} & set(names) and env.get("SLAUNCH_RUN_DIR", "").endswith(".run"):
        names.append("SLAUNCH_RUN_DIR")
    return tuple(names)


def submit_env(env: Mapping[str, str], given: Collection[str] = ()) -> tuple[dict[str, str], RemovedVariables]:
    """The environment for sbatch, without variables that override directives or belong to an outer job or its Ray.

    `given` names the directives that the user has set: `--clusters` takes precedence over SLURM_CLUSTERS.
    """
    kept = KEPT - {"SLURM_CLUSTERS"} if {"cluster", "clusters"} & set(given) else KEPT
    own = outer_job_variables(env)  # with SLAUNCH_NODE_DIR a job recognizes its own processes at the end
    names = tuple(
        sorted(name for name in env if name in own or (name.startswith(_OUTER + _OUTER_RAY) and name not in kept))
    )
    outer_job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or None
    clean = {name: value for name, value in env.items() if name not in names}
    return clean, RemovedVariables({name: env[name] for name in names}, outer_job)


def query_env(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for squeue, scontrol and sacct, without variables that change the output.

    Times are UTC, and lists of array tasks are not truncated.
    """
    own = ("SQUEUE_", "SACCT_", "SCONTROL_", *_OUTER)
    keep = KEPT - {"SLURM_CLUSTERS"}  # the record names the cluster
    clean = {name: value for name, value in env.items() if name in keep or not name.startswith(own)}
    # Slurm's times have no zone, and at the end of daylight saving time an hour occurs twice.
    return clean | {"SLURM_TIME_FORMAT": "standard", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0"}
