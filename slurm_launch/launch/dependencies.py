"""The runs that a job waits for: from what the user calls them to the ids that Slurm knows, and to sbatch's words."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.runs import search
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import DEPENDENCIES, dependency_flags, flag_name

if TYPE_CHECKING:
    from slurm_launch.runs.record import Run
    from slurm_launch.slurm.client import SlurmClient
    from slurm_launch.spec.script_header import EmbeddedSpec

_JOB_ID = re.compile(r"(\d+)(_\d+|_\[[\d,:%-]+\])?", re.ASCII)
REHEARSAL = "rehearsal"  # the cluster of rehearsed runs


def resolved(spec: LaunchSpec, env: Mapping[str, str], cwd: str | os.PathLike[str] | None = None) -> LaunchSpec:
    """The spec with job ids in the place of the names of runs. Raises UsageError for a run that has none.

    `cwd` is where relative paths begin; the runs that lie there are known, too."""
    names = [name for name in DEPENDENCIES if getattr(spec, name)]
    if not names or "dependency" in spec.no_sbatch:  # the directive that they would become
        return spec
    here = Path(os.path.abspath(os.getcwd() if cwd is None else cwd))
    found = {name: [one for run in getattr(spec, name) for one in _ids(name, run, spec, env, here)] for name in names}
    return spec.model_copy(update={name: tuple(dict.fromkeys(ids)) for name, ids in found.items()})


def past(embedded: EmbeddedSpec) -> tuple[EmbeddedSpec, list[str]]:
    """The origin of a script to be run again, without the runs that it waited for, and these as flags.

    They are over, and Slurm may no longer know them. --singleton names no run, so it stays."""
    own = {
        key: value for key, value in embedded.own.items() if key.replace("-", "_") not in ("dependency", *DEPENDENCIES)
    }
    waited = {key: value for key, value in embedded.own.items() if key not in own}
    return replace(embedded, own=own), dependency_flags(waited)


def without(spec: LaunchSpec) -> LaunchSpec:
    """The spec of a job that waits for no run of ours."""
    return spec.model_copy(update=dict.fromkeys(DEPENDENCIES, ()))


def check_known(spec: LaunchSpec, env: Mapping[str, str], cwd: str | os.PathLike[str], client: SlurmClient) -> None:
    """Raise UsageError for a job id that neither we nor Slurm know: it may be mistyped, and 22.05 would not wait.

    `spec` is what the user wrote. A Slurm that does not answer, or is another one, tells nothing."""
    from slurm_launch.runs import index
    from slurm_launch.slurm import jobs

    ours = {entry.job_id for entry in index.entries(env, Path(cwd))}
    for name in DEPENDENCIES:
        for argument in getattr(spec, name) if not ("dependency" in spec.no_sbatch or _clusters(spec.sbatch)) else ():
            number = _JOB_ID.fullmatch(argument)
            if number is None or number[1] in ours:
                continue
            try:
                answer = client(jobs.show_job_argv(number[1], None))
            except LaunchError:
                return
            if answer.returncode and jobs.is_gone(answer.stderr + answer.stdout):
                hint = "`squeue --me` lists your jobs; of one that has ended long ago leave it out"
                at = f"{flag_name(name)} {argument}"
                raise UsageError(f"neither Slurm nor a record knows job {number[1]}", at=at, hint=hint)


def _ids(name: str, argument: str, spec: LaunchSpec, env: Mapping[str, str], cwd: Path) -> list[str]:
    """The ids that one RUN means: of an array they may be those of some tasks."""
    from slurm_launch.runs import index
    from slurm_launch.slurm import array_ids

    at = f"{flag_name(name)} {argument}"
    number = _JOB_ID.fullmatch(argument)
    # A number is a job's, or a run's whole name: not the beginning of one. Slurm may know more jobs than we do.
    if number and not any(number[1] == entry.job_id or argument == entry.name for entry in index.entries(env, cwd)):
        return array_ids.task_ids(argument)
    try:
        run = search.find(argument, env, cwd)
    except UsageError as error:
        place = at if error.at in (None, "RUN") else f"{at}: {error.at}"
        raise UsageError(error.message, at=place, hint=error.hint) from None
    if run.job_id is None:
        hint = f"`squeue --me --name={run.exp_name}` tells whether there is a job; then give its id"
        raise UsageError("the run has no job id: it was never submitted, as far as is known", at=at, hint=hint)
    _check_cluster(run, spec, env, at)
    if tasks := search.task_ids_in(run, argument):
        return tasks
    if name in ("after_ok", "after_notok") and run.spec.get("chain-while") in ("ok", "notok"):
        # An array has ended well when all its tasks have, and of such a chain not all of them run.
        hint = "use --after-any, and let the command look at what the chain has left"
        why = "links that did not run have failed, to Slurm"
        raise UsageError(f"{run.name} is a chain that may stop early: {why}", at=at, hint=hint)
    return [run.job_id]


def _check_cluster(run: Run, spec: LaunchSpec, env: Mapping[str, str], at: str) -> None:
    """To Slurm the id of another cluster's job is just a number: it would wait for a stranger, or for nobody."""
    if run.cluster == REHEARSAL:
        raise UsageError(f"{run.name} was a rehearsal: Slurm does not know it", at=at, hint="give a run on the cluster")
    if run.cluster is None:
        return
    wanted = _clusters(spec.sbatch) or [text for text in env.get("SLURM_CLUSTERS", "").split(",") if text]
    theirs = run.spec.get("sbatch")
    chosen = _clusters(theirs) if isinstance(theirs, dict) else []
    if (wanted and run.cluster not in wanted) or (chosen and not wanted):
        hint = f"submit to the same cluster: --sbatch clusters={run.cluster}"
        raise UsageError(f"{run.name} is on the cluster {run.cluster}, and this job would not be", at=at, hint=hint)


def _clusters(directives: Mapping[str, str | None]) -> list[str]:
    text = directives.get("clusters") or directives.get("cluster") or ""
    return [name.strip() for name in str(text).split(",") if name.strip()]
