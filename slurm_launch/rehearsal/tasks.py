"""Several tasks of an array or a sweep, rehearsed one after another: one script and record, one log per task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_launch import process
from slurm_launch.errors import LaunchError, Notify, UsageError, show
from slurm_launch.launch.job import submit_job
from slurm_launch.launch.script import sweep_tasks
from slurm_launch.rehearsal.rehearse import LogObserver, RehearsedRun, simulate, without_unknown_dependencies
from slurm_launch.runs.record import Run
from slurm_launch.slurm import array_ids
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.spec.checks import BadValue, task_numbers
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec
from slurm_launch.status import chains

ALL = "all"


@dataclass(frozen=True)
class RehearsedTasks:
    """The rehearsed tasks, by number."""

    run: Run
    results: dict[int, RehearsedRun]

    @property
    def code(self) -> int:
        """The first nonzero exit code; of a chain, that of the last link."""
        codes = [one.error.exit_code if one.error else one.code or 0 for one in self.results.values()]
        return codes[-1] if self.run.spec.get("chain") else next((code for code in codes if code), 0)


def selected_tasks(spec: LaunchSpec, text: str) -> list[int]:
    """The tasks that --tasks selects: all, or a list such as 0,3-5."""
    array = spec.tasks(sweep_tasks(spec).tasks)
    if array is None:
        raise UsageError("--tasks needs an array or a sweep", at="--tasks", hint="add --array, --sweep or --sweep-file")
    available = array_ids.array_numbers(array)
    if text == ALL:
        return available
    try:
        task_numbers(text, f"is not a list of tasks: {show(text)}", "use all, 3 or 0,3-5")
    except BadValue as problem:
        raise UsageError(f"--tasks {problem}", at="--tasks", hint=problem.hint) from None
    wanted = array_ids.array_numbers(text)
    if missing := [number for number in wanted if number not in set(available)]:
        raise UsageError(
            f"--tasks selects {missing[0]}, but the tasks are {array}", at="--tasks", hint="choose from these"
        )
    return wanted


def rehearse_tasks(
    spec: LaunchSpec,
    tasks: str,
    *,
    fault: str | None = None,
    embedded: EmbeddedSpec | None = None,
    notify: Notify,
    new_observer: Callable[[], LogObserver] = LogObserver,
) -> RehearsedTasks:
    """Rehearse the tasks, one after another; also the others after one that failed."""
    spec = without_unknown_dependencies(spec, None, None, notify)
    numbers = selected_tasks(spec, tasks)
    results: dict[int, RehearsedRun] = {}
    run: Run | None = None

    def submit(env: Mapping[str, str]) -> Run:
        if run is None:
            return submit_job(spec, env=env, embedded=embedded, notify=notify)
        return _resubmit(run, env)

    for place, number in enumerate(numbers, 1):
        notify(f"task {number}, {place} of {len(numbers)}")
        job_id = run.job_id if run else None
        results[number] = simulate(
            spec, submit, fault=fault, env=None, notify=notify, observer=new_observer(), task=number, job_id=job_id
        )
        run = results[number].run
        if (error := results[number].error) is not None:
            notify(str(error))
        if spec.chain and chains.is_over(results[number].log, number):
            notify(f"the chain ends after link {number}")
            break
    assert run is not None
    return RehearsedTasks(run, results)


def _resubmit(run: Run, env: Mapping[str, str]) -> Run:
    """Pass the same script to the fake sbatch again."""
    clean, _ = slurm_environment.submit_env(env)
    result = process.run(run.argv, env=clean | {"PWD": run.submit_dir}, cwd=run.submit_dir, timeout=process.TIMEOUT)
    if result.returncode:
        raise LaunchError(f"the rehearsal's sbatch failed:\n{result.stderr}", at=run.script)
    return run
