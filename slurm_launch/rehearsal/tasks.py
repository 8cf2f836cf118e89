"""Several tasks of an array or a sweep, rehearsed one after another: one script and record, a log for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.config import sweep_file
from slurm_launch.errors import LaunchError, Notify, UsageError, show
from slurm_launch.launch.job import submit_job
from slurm_launch.rehearsal.rehearse import (
    Audience,
    Performance,
    perform,
    without_waiting,
)
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.spec.array_checks import task_numbers
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec
from slurm_launch.status import chains

ALL = "all"


@dataclass(frozen=True)
class Tasks:
    """The tasks that were played, by their numbers."""

    run: Run
    played: dict[int, Performance]

    @property
    def code(self) -> int:
        """The first exit code that is not 0; of a chain, that of the last link."""
        codes = [one.error.exit_code if one.error else one.code or 0 for one in self.played.values()]
        return codes[-1] if self.run.spec.get("chain") else next((code for code in codes if code), 0)


def chosen(spec: LaunchSpec, text: str) -> list[int]:
    """The tasks that --tasks names: all, or some such as 0,3-5."""
    points = sweep_file.points_of(spec)
    array = spec.tasks(None if points is None else sweep_file.task_numbers(spec, points))
    if array is None:
        raise UsageError("--tasks is for arrays and sweeps", at="--tasks", hint="add --array, --sweep or --sweep-file")
    there = array_ids.array_numbers(array)
    if text == ALL:
        return there
    try:
        task_numbers(text, f"names no tasks: {show(text)}", "write all, 3 or 0,3-5")
    except BadValue as problem:
        raise UsageError(f"--tasks {problem}", at="--tasks", hint=problem.hint) from None
    wanted = array_ids.array_numbers(text)
    if missing := [number for number in wanted if number not in set(there)]:
        raise UsageError(
            f"--tasks names {missing[0]}, but the tasks are {array}", at="--tasks", hint="choose from them"
        )
    return wanted


def rehearse_tasks(
    spec: LaunchSpec,
    tasks: str,
    *,
    fault: str | None = None,
    embedded: EmbeddedSpec | None = None,
    notify: Notify,
    audience: Callable[[], Audience] = Audience,
) -> Tasks:
    """Play the tasks, one after another. One that fails does not keep the others from being played."""
    spec = without_waiting(spec, None, None, notify)
    numbers = chosen(spec, tasks)
    played: dict[int, Performance] = {}
    run: Run | None = None

    def submit(env: Mapping[str, str]) -> Run:
        if run is None:
            return submit_job(spec, env=env, embedded=embedded, notify=notify)
        return _again(run, env)

    for place, number in enumerate(numbers, 1):
        notify(f"task {number}, {place} of {len(numbers)}")
        job_id = run.job_id if run else None
        played[number] = perform(
            spec, submit, fault=fault, env=None, notify=notify, audience=audience(), task=number, job_id=job_id
        )
        run = played[number].run
        if (error := played[number].error) is not None:
            notify(str(error))
        if spec.chain and chains.is_over(played[number].log, number):
            notify(f"the chain is over after link {number}")
            break
    assert run is not None
    return Tasks(run, played)


def _again(run: Run, env: Mapping[str, str]) -> Run:
    """Hand the same script to the stand-in of sbatch once more."""
    clean, _ = slurm_environment.scrub(env)
    result = process.run(run.argv, env=clean | {"PWD": run.submit_dir}, cwd=run.submit_dir, timeout=process.TIMEOUT)
    if result.returncode:
        raise LaunchError(f"the rehearsal's sbatch failed:\n{result.stderr}", at=run.script)
    return run
