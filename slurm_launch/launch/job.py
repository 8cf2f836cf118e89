"""One job: from a spec to a script, to sbatch, to a record."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from slurm_launch import __version__, process
from slurm_launch.errors import Notify, SlurmUnavailable, SubmitRefused, UsageError, warn
from slurm_launch.launch import dependencies, hints
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
class Plan:
    """What a submission would do."""

    name: str
    text: str  # of the script
    script: str
    log: str
    record: str
    run_dir: str
    submit_dir: str
    argv: list[str]
    notes: list[str]  # what the user should know about variables that sbatch would not get


def plan_job(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    embedded: EmbeddedSpec | None = None,
    points: Points | None = None,
    joins: JoinTarget | None = None,
) -> Plan:
    """What `submit_job` with the same arguments would do; nothing is written and Slurm is not queried."""
    env = os.environ if env is None else env
    when = local_time(when)
    place = _place(spec, cwd, env)
    files = run_files.free_files(place.run_dir, spec.exp_name, when)
    _, dropped = slurm_environment.scrub(env, spec.sbatch)
    return Plan(
        name=files.name,
        text=render_job(
            dependencies.resolved(spec, env, place.submit_dir),
            name=files.name,
            when=when,
            run_dir=place.in_script,
            embedded=embedded or header_of(spec),
            sweep=sweep_tasks(spec, points),
            joins=joins,
        ),
        script=str(files.script),
        log=str(files.log),
        record=str(files.record),
        run_dir=str(place.run_dir),
        submit_dir=place.submit_dir,
        argv=sbatch.sbatch_argv(str(files.script), hold=hold),
        notes=hints.notes(dropped),
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
    points: Points | None = None,
    joins: JoinTarget | None = None,
    timeout: float = TIMEOUT,
    notify: Notify = warn,
) -> Run:
    """Write the script, hand it to sbatch, write the record; of a sweep the table of its points too.

    The job runs in `cwd` (by default here) with the environment `env` (by default ours), less what would
    override the script: `tell` hears of it, and of sbatch's own warnings.

    Raises UsageError when a file cannot be written or a run to wait for is unknown, SubmitRefused when sbatch says
    no (the script is kept), SlurmUnavailable when there is no sbatch or no answer. At Ctrl-C before sbatch was asked
    nothing is left.
    """
    env = os.environ if env is None else env
    when = local_time(when)
    place = _place(spec, cwd, env)
    clean, dropped = slurm_environment.scrub(env, spec.sbatch)
    sweep = sweep_tasks(spec, points)
    made: list[Path] = []
    files: run_files.Files | None = None
    asked = False
    wanted = dependencies.resolved(spec, env, place.submit_dir)
    header = embedded or header_of(spec)

    def text_of(name: str) -> str:
        return render_job(
            wanted, name=name, when=when, run_dir=place.in_script, embedded=header, sweep=sweep, joins=joins
        )

    try:
        # The log stands in there too: where its directory is missing, Slurm accepts the job and loses it.
        made = run_files.make_directory(place.run_dir)
        files = run_files.create_script(place.run_dir, spec.exp_name, when, text_of)
        argv = sbatch.sbatch_argv(str(files.script), hold=hold)
        run = _new_run(spec, place, files, when, argv, sweep)
        records.write(run)  # before there is a job: a job without a record would be lost
        for note in hints.notes(dropped):
            notify(note)
        asked = True
        run = _run_sbatch(run, clean | {"PWD": place.submit_dir}, runner, timeout, notify)
        if sweep.points is not None:
            _write_table(run, sweep.points, notify)
    except BaseException as error:
        if not asked or isinstance(error, process.NotFound):
            if files is not None:
                run_files.remove(files.script)
                run_files.remove(files.record)
            run_files.remove_directories(made)
        raise
    return run


def _run_sbatch(run: Run, env: Mapping[str, str], runner: Runner, timeout: float, notify: Notify) -> Run:
    """Hand the script to sbatch; returns the run with its job."""
    look = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
    try:
        result = runner(run.argv, env=env, cwd=run.submit_dir, timeout=timeout)
        job_id, cluster = _job_id(run, result, look)
    except process.TimedOut as error:
        raise SlurmUnavailable(error.message, at=f"{run.script} (kept)", hint=look) from None
    except KeyboardInterrupt:
        notify(f"interrupted while sbatch was at work: {look}; the script is kept: {run.script}")
        raise
    for line in result.stderr.splitlines():  # a warning of Slurm's or of the site's
        notify(line)
    run = run.with_job(job_id, cluster, _utc(datetime.now(timezone.utc)))
    try:
        records.update(run)
        index.add(run, env)
    except UsageError as error:  # the job is there: to fail now would make people submit it again
        notify(f"job {job_id} is submitted, but its record lacks the job id: {error}")
    except KeyboardInterrupt:
        notify(f"job {job_id} is submitted and goes on; `scancel {job_id}` ends it")
        raise
    return run


def _write_table(run: Run, points: Points, notify: Notify) -> None:
    try:
        points_table.write(run, points.keys, points.rows)
    except UsageError as error:  # as with the record
        notify(f"job {run.job_id} is submitted, but there is no table of its points: {error}")


def _job_id(run: Run, result: Result, look: str) -> tuple[str, str | None]:
    """The job id and cluster of sbatch's answer, or the error that it is."""
    said = "\n".join(text.strip("\n") for text in (result.stderr, result.stdout) if text.strip())
    kept = f"{run.script} (kept)"
    if result.returncode == 0:
        found = sbatch.parse_job_id(result.stdout)
        if found is None:
            raise SlurmUnavailable(f"sbatch gave no job id:\n{said or '(nothing)'}", at=kept, hint=look)
        return found
    if result.returncode < 0:
        raise SlurmUnavailable(f"sbatch was killed by signal {-result.returncode}\n{said}".rstrip(), at=kept, hint=look)
    if sbatch.is_unreachable(result.stderr):
        if not sbatch.is_lost(result.stderr):
            run_files.remove(Path(run.record))
        hint = look if sbatch.is_lost(result.stderr) else f"`scontrol ping` tells; later: sbatch {run.script}"
        raise SlurmUnavailable(f"Slurm does not answer:\n{said}", at=kept, hint=hint)
    run_files.remove(Path(run.record))  # there is no job
    message = f"sbatch refused the job (exit code {result.returncode}):\n{said or '(without a word)'}"
    hint = hints.hint_for(said) or f"correct it and submit again, or edit the script and run: sbatch {run.script}"
    raise SubmitRefused(message, at=kept, hint=hint)


@dataclass(frozen=True)
class _Place:
    submit_dir: str
    run_dir: Path
    in_script: str  # the run directory as the job finds it


def _place(spec: LaunchSpec, cwd: PathText | None, env: Mapping[str, str]) -> _Place:
    try:
        submit_dir = os.path.abspath(os.getcwd() if cwd is None else cwd)
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", hint="cd to one that does") from None
    given = spec.run_dir
    if given == "~" or given.startswith("~/"):  # from YAML, where no shell has done it
        given = env.get("HOME", "~") + given[1:]
    run_dir = Path(os.path.normpath(os.path.join(submit_dir, given)))
    # Slurm takes a relative log from the job's directory, which is where sbatch runs unless --chdir says otherwise.
    # It fills in %-patterns after that, so those of the directory would be taken for its own.
    relative = not os.path.isabs(given) and spec.chdir is None and "chdir" not in spec.sbatch and "%" not in submit_dir
    return _Place(submit_dir, run_dir, given if relative else str(run_dir))


def _new_run(
    spec: LaunchSpec, place: _Place, files: run_files.Files, when: datetime, argv: list[str], sweep: SweepTasks
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
        submit_dir=place.submit_dir,
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
