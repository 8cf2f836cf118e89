"""One job: renders the script, writes it, runs sbatch and keeps a record."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from slurm_launch import __version__, process
from slurm_launch.errors import Notify, SlurmUnavailable, SubmitRefused, UsageError, warn
from slurm_launch.launch import dependencies, hints
from slurm_launch.launch.dependencies import JobIds
from slurm_launch.launch.script import SweepTasks, header_of, local_time, render_job, sweep_tasks
from slurm_launch.process import TIMEOUT, PathText, Result, Runner
from slurm_launch.runs import files as run_files
from slurm_launch.runs import index, points_table
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import sbatch
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec, JoinTarget
from slurm_launch.spec.sweep_points import Points


@dataclass(frozen=True)
class SubmissionPlan:
    """What a submission would do."""

    name: str
    text: str  # of the script
    script: str
    log: str
    record: str
    run_dir: str
    submit_dir: str
    argv: list[str]
    notes: list[str]  # about environment variables that sbatch would not get


def plan_job(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    embedded: EmbeddedSpec | None = None,
    sweep: SweepTasks | None = None,
    joins: JoinTarget | None = None,
) -> SubmissionPlan:
    """Return what `submit_job` with the same arguments would do; writes nothing and does not query Slurm."""
    env = os.environ if env is None else env
    when = local_time(when)
    location = _location(spec, cwd, env)
    files = run_files.free_files(location.run_dir, spec.exp_name, when)
    _, removed = slurm_environment.submit_env(env, spec.sbatch)
    ids = dependencies.job_ids(spec, env, location.submit_dir)
    return SubmissionPlan(
        name=files.name,
        text=render_job(
            dependencies.with_job_ids(spec, ids),
            name=files.name,
            when=when,
            run_dir=location.run_dir_in_job,
            embedded=embedded or header_of(spec),
            sweep=sweep or sweep_tasks(spec),
            joins=joins,
        ),
        script=str(files.script),
        log=str(files.log),
        record=str(files.record),
        run_dir=str(location.run_dir),
        submit_dir=location.submit_dir,
        argv=sbatch.sbatch_argv(str(files.script), hold=hold),
        notes=hints.notes(removed),
    )


def submit_job(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: EmbeddedSpec | None = None,
    sweep: SweepTasks | None = None,
    joins: JoinTarget | None = None,
    job_ids: JobIds | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> Run:
    """Write the script, submit it with sbatch, write the record and, for a sweep, the table of its points.

    The job runs in `cwd` (by default the current directory) with the environment `env` (by default this process's),
    without the variables that would override the script: `notify` gets a note on each, and sbatch's own warnings.
    `job_ids` are those of the runs that the job depends on, by default looked up.

    Raises UsageError if a file cannot be written or a dependency is unknown, SubmitRefused if sbatch refuses the job,
    SlurmUnavailable if there is no sbatch or no answer; `script` of the error names a script that is kept.
    Ctrl-C before sbatch starts leaves no files.
    """
    env = os.environ if env is None else env
    when = local_time(when)
    location = _location(spec, cwd, env)
    clean, removed = slurm_environment.submit_env(env, spec.sbatch)
    sweep = sweep or sweep_tasks(spec)
    ids = dependencies.job_ids(spec, env, location.submit_dir) if job_ids is None else job_ids
    wanted = dependencies.with_job_ids(spec, ids)
    header = embedded or header_of(spec)

    def text_of(name: str) -> str:
        return render_job(
            wanted, name=name, when=when, run_dir=location.run_dir_in_job, embedded=header, sweep=sweep, joins=joins
        )

    written = _WrittenFiles()
    started = False
    try:
        run = _write_files(spec, location, when, text_of, hold, sweep, written)
        for note in hints.notes(removed):
            notify(note)
        started = True
        run = _run_sbatch(run, clean | {"PWD": location.submit_dir}, runner, timeout, notify)
    except BaseException as error:
        if not started or isinstance(error, process.NotFound):
            written.remove()
        raise
    _write_table(run, sweep.points, notify)
    return run


@dataclass
class _WrittenFiles:
    """What a submission has created so far."""

    directories: list[Path] = field(default_factory=list)
    files: run_files.RunFiles | None = None

    def remove(self) -> None:
        if self.files is not None:
            run_files.remove(self.files.script)
            run_files.remove(self.files.record)
        run_files.remove_directories(self.directories)


def _write_files(
    spec: LaunchSpec,
    location: _RunLocation,
    when: datetime,
    text_of: Callable[[str], str],
    hold: bool,
    sweep: SweepTasks,
    written: _WrittenFiles,
) -> Run:
    """Write the script and the record of a job that does not exist yet."""
    # The log goes to this directory too: if it were missing, Slurm would accept the job and lose the log.
    written.directories = run_files.make_directory(location.run_dir)
    written.files = run_files.create_script(location.run_dir, spec.exp_name, when, text_of)
    argv = sbatch.sbatch_argv(str(written.files.script), hold=hold)
    run = _new_run(spec, location, written.files, when, argv, sweep)
    records.write(run)  # before sbatch runs: a job without a record could not be found again
    return run


def _run_sbatch(run: Run, env: Mapping[str, str], runner: Runner, timeout: float, notify: Notify) -> Run:
    """Submit the script; return the run with its job ID."""
    look = f"`squeue --me --name={run.exp_name}` shows whether there is a job"
    try:
        result = runner(run.argv, env=env, cwd=run.submit_dir, timeout=timeout)
        job_id, cluster = _job_id(run, result, look)
    except process.TimedOut as error:
        raise SlurmUnavailable(error.message, at=_kept(run), hint=look, script=run.script) from None
    except KeyboardInterrupt:
        notify(f"interrupted while sbatch was running: {look}; the script is kept: {run.script}")
        raise
    for line in result.stderr.splitlines():  # a warning from Slurm or the site
        notify(line)
    run = run.with_job(job_id, cluster, _utc(datetime.now(timezone.utc)))
    try:
        records.update(run)
        index.add(run, env)
    except UsageError as error:  # the job exists: an error would make people submit it again
        notify(f"job {job_id} is submitted, but its record lacks the job ID: {error}")
    except KeyboardInterrupt:
        notify(f"job {job_id} is submitted and keeps running; `scancel {job_id}` cancels it")
        raise
    return run


def _kept(run: Run) -> str:
    return f"{run.script} (kept)"


def _write_table(run: Run, points: Points | None, notify: Notify) -> None:
    """Write the table of a sweep's points; other jobs have none."""
    if points is None:
        return
    try:
        points_table.write(run, points.keys, points.rows)
    except UsageError as error:  # as with the record
        notify(f"job {run.job_id} is submitted, but the table of its points could not be written: {error}")


def _job_id(run: Run, result: Result, look: str) -> tuple[str, str | None]:
    """Return the job ID and the cluster that sbatch printed; raise its error otherwise."""
    output = "\n".join(text.strip("\n") for text in (result.stderr, result.stdout) if text.strip())
    if result.returncode > 0 and not sbatch.is_unreachable(result.stderr):
        run_files.remove(Path(run.record))  # there is no job
        message = f"sbatch refused the job (exit code {result.returncode}):\n{output or '(no message)'}"
        hint = hints.hint_for(output) or f"fix it and submit again, or edit the script and run: sbatch {run.script}"
        raise SubmitRefused(message, at=_kept(run), hint=hint, script=run.script)
    hint = look
    if result.returncode == 0:
        printed = sbatch.parse_job_id(result.stdout)
        if printed is not None:
            return printed
        message = f"sbatch printed no job ID:\n{output or '(no output)'}"
    elif result.returncode < 0:
        message = f"sbatch was killed by signal {-result.returncode}\n{output}".rstrip()
    else:
        message = f"cannot reach slurmctld:\n{output}"
        if not sbatch.is_answer_lost(result.stderr):
            run_files.remove(Path(run.record))  # the request was not sent: there is no job
            hint = f"`scontrol ping` shows whether it is up; later: sbatch {run.script}"
    raise SlurmUnavailable(message, at=_kept(run), hint=hint, script=run.script)


@dataclass(frozen=True)
class _RunLocation:
    """The directories of a run."""

    submit_dir: str
    run_dir: Path
    run_dir_in_job: str  # as the script names it


def _location(spec: LaunchSpec, cwd: PathText | None, env: Mapping[str, str]) -> _RunLocation:
    submit_dir = process.working_directory(cwd)
    given = spec.run_dir
    if given == "~" or given.startswith("~/"):  # from YAML, where no shell has expanded it
        given = env.get("HOME", "~") + given[1:]
    run_dir = Path(os.path.normpath(os.path.join(submit_dir, given)))
    # Slurm resolves a relative log against the job's directory, which is where sbatch runs unless --chdir changes it.
    # Slurm expands %-patterns afterwards, also those in the name of that directory.
    relative = not os.path.isabs(given) and spec.chdir is None and "chdir" not in spec.sbatch and "%" not in submit_dir
    return _RunLocation(submit_dir, run_dir, given if relative else str(run_dir))


def _new_run(
    spec: LaunchSpec,
    location: _RunLocation,
    files: run_files.RunFiles,
    when: datetime,
    argv: list[str],
    sweep: SweepTasks,
) -> Run:
    return Run(
        name=files.name,
        exp_name=spec.exp_name,
        spec=spec.given(),
        job_id=None,
        cluster=None,
        script=str(files.script),
        log=str(files.log),
        record=str(files.record),
        run_dir=str(files.directory),
        submit_dir=location.submit_dir,
        created=_utc(when),
        submitted=None,
        argv=argv,
        user=records.user_name(),
        host=socket.gethostname(),
        version=__version__,
        array=spec.tasks(sweep.tasks),
        points=None if sweep.points is None else str(files.points),
        script_sha256=run_files.sha256(files.script),
    )


def _utc(when: datetime) -> str:
    return when.astimezone(timezone.utc).isoformat(timespec="seconds")
