"""The runs that a job depends on: from the user's names for them to job IDs that sbatch accepts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch import process
from slurm_launch.errors import LaunchError, UsageError
from slurm_launch.runs import search
from slurm_launch.slurm import array_ids, jobs
from slurm_launch.slurm.sbatch import REHEARSAL_CLUSTER
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.option import DEPENDENCIES, dependency_flags, flag_name

if TYPE_CHECKING:
    from slurm_launch.runs.index import Entry
    from slurm_launch.runs.record import Run
    from slurm_launch.slurm.client import SlurmClient
    from slurm_launch.spec.script_header import EmbeddedSpec

_JOB_ID = re.compile(r"(\d+)(_\d+|_\[[\d,:%-]+\])?", re.ASCII)

JobIds = dict[str, tuple[str, ...]]  # by option: after_ok -> ("12", "13_4")


def job_ids(
    spec: LaunchSpec,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    client: SlurmClient | None = None,
) -> JobIds:
    """Return the job IDs of the runs that --after and similar options name; empty without such options.

    Relative paths start at `cwd`, and runs whose files are there are found too. With a `client`, a job ID that is
    neither in the index nor known to Slurm raises UsageError: it may be mistyped, and Slurm 22.05 would not wait.
    The index is read at most once, and only if there are dependencies.
    """
    names = [name for name in DEPENDENCIES if getattr(spec, name)]
    if not names or "dependency" in spec.no_sbatch:  # the directive that the options would become
        return {}
    lookup = _JobIdLookup(spec, env, Path(process.working_directory(cwd)), client)
    found = {}
    for name in names:
        ids = [job_id for argument in getattr(spec, name) for job_id in lookup.find(name, argument)]
        found[name] = tuple(dict.fromkeys(ids))
    return found


def with_job_ids(spec: LaunchSpec, ids: JobIds) -> LaunchSpec:
    """Return the spec with job IDs in place of the names of runs."""
    return spec.model_copy(update=ids) if ids else spec


def without_past_runs(embedded: EmbeddedSpec) -> tuple[EmbeddedSpec, list[str]]:
    """Return the spec of a script to resubmit without its dependencies on other runs, and these as flags.

    Those runs have ended, and Slurm may no longer know them. --singleton names no run, so it stays.
    """
    removed = ("dependency", *DEPENDENCIES)
    own = {key: value for key, value in embedded.own.items() if key.replace("-", "_") not in removed}
    dropped = {key: value for key, value in embedded.own.items() if key not in own}
    return replace(embedded, own=own), dependency_flags(dropped)


def without_dependencies(spec: LaunchSpec) -> LaunchSpec:
    """Return the spec without --after and similar options."""
    return spec.model_copy(update=dict.fromkeys(DEPENDENCIES, ()))


@dataclass
class _JobIdLookup:
    """Looks up the runs of one launch; all lookups share one read of the index."""

    spec: LaunchSpec
    env: Mapping[str, str]
    cwd: Path
    client: SlurmClient | None

    @cached_property
    def _entries(self) -> list[Entry]:
        arguments = [argument for name in DEPENDENCIES for argument in getattr(self.spec, name)]
        return search.candidates(arguments, self.env, self.cwd)

    def find(self, option: str, argument: str) -> list[str]:
        """Return the job IDs that one RUN means; for an array they may be those of some tasks."""
        at = f"{flag_name(option)} {argument}"
        number = _JOB_ID.fullmatch(argument)
        # A number is a job ID or the whole name of a run, never a prefix. Slurm may know jobs without a record.
        if number and not any(number[1] == entry.job_id or argument == entry.name for entry in self._entries):
            self._check_slurm_knows(number[1], at)
            return array_ids.task_ids(argument)
        run = self._run(argument, at)
        if run.job_id is None:
            hint = f"`squeue --me --name={run.exp_name}` shows whether there is a job; then use its ID"
            raise UsageError("the run has no job ID: as far as is known, it was never submitted", at=at, hint=hint)
        _check_cluster(run, self.spec, self.env, at)
        if tasks := search.task_ids_in(run, argument):
            return tasks
        if option in ("after_ok", "after_notok") and run.spec.get("chain-while") in ("ok", "notok"):
            # Slurm counts an array as completed only if all its tasks ran; the links of such a chain may not.
            hint = "use --after-any, and let the command check what the chain has written"
            why = "Slurm counts links that did not run as failed"
            raise UsageError(f"{run.name} is a chain that may stop early: {why}", at=at, hint=hint)
        return [run.job_id]

    def _run(self, argument: str, at: str) -> Run:
        known = None if "/" in argument else self._entries  # a path needs no index
        try:
            return search.find(argument, self.env, self.cwd, known=known)
        except UsageError as error:
            where = at if error.at in (None, "RUN") else f"{at}: {error.at}"
            raise UsageError(error.message, at=where, hint=error.hint) from None

    def _check_slurm_knows(self, job_id: str, at: str) -> None:
        """Raise UsageError for a job ID that Slurm does not know. No answer, or another cluster's, proves nothing."""
        if self.client is None or _clusters(self.spec.sbatch):
            return
        try:
            answer = self.client(jobs.show_job_argv(job_id, None))
        except LaunchError:
            self.client = None  # one timeout is enough
            return
        if answer.returncode and jobs.is_gone(answer.stderr + answer.stdout):
            hint = "`squeue --me` lists your jobs; leave out a job that ended long ago"
            raise UsageError(f"neither Slurm nor a record has job {job_id}", at=at, hint=hint)


def _check_cluster(run: Run, spec: LaunchSpec, env: Mapping[str, str], at: str) -> None:
    """Raise UsageError for a run on another cluster: here, its job ID may belong to another user's job, or to none."""
    if run.cluster == REHEARSAL_CLUSTER:
        raise UsageError(f"{run.name} was a rehearsal: Slurm does not know it", at=at, hint="use a run on the cluster")
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
