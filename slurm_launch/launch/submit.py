"""From a spec to a script to a job: the Python API, and what the command line calls."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch import __version__, process
from slurm_launch.config import sweep_file
from slurm_launch.errors import SlurmUnavailable, SubmitRefused, UsageError
from slurm_launch.launch import dependencies
from slurm_launch.process import Result, Runner
from slurm_launch.runs import files as run_files
from slurm_launch.runs import index, points_table
from slurm_launch.runs import record as records
from slurm_launch.runs.record import Run
from slurm_launch.slurm import sbatch
from slurm_launch.spec.model import LaunchSpec

if TYPE_CHECKING:
    from slurm_launch.rendering.render import Embedded, Joins
    from slurm_launch.spec.sweep_points import Points

Tell = Callable[[str], object]  # gets what the user should know beside the result, a line at a time
PathText = str | os.PathLike[str]
warn: Tell = logging.getLogger("slurm_launch").warning
TIMEOUT = 60.0  # seconds that Slurm has for an answer


def render(
    spec: LaunchSpec,
    *,
    name: str | None = None,
    when: datetime | None = None,
    run_dir: str | None = None,
    embedded: Embedded | None = None,
    points: Points | None = None,
) -> str:
    """The script for a spec, as text.

    The same arguments give the same bytes. `name` is the run's name, by default `<exp_name>_<date>-<time>` of
    `when`, which is by default now. `run_dir` is the directory of the log as the job sees it, by default the
    spec's. `embedded` is the origin of the spec that the header tells, by default the values given. `points` are
    those of a sweep, by default the ones that the spec asks for. Runs to wait for are looked up among yours.
    """
    wanted, told = dependencies.resolved(spec, os.environ), embedded or _told(spec)
    return _render(wanted, name=name, when=when, run_dir=run_dir, embedded=told, points=points)


def _told(spec: LaunchSpec) -> Embedded:
    """What the header tells: what was asked for, not the job ids that it came to."""
    from slurm_launch.rendering.render import Embedded

    return Embedded(own=spec.given())


def _render(
    spec: LaunchSpec,
    *,
    name: str | None,
    when: datetime | None,
    run_dir: str | None,
    embedded: Embedded,
    points: Points | None,
    joins: Joins | None = None,
) -> str:
    from slurm_launch.rendering.render import render_script  # jinja2 costs time

    when = _local(when)
    return render_script(
        spec,
        name=run_files.run_name(spec.exp_name, when) if name is None else name,
        when=when,
        run_dir=spec.run_dir if run_dir is None else run_dir,
        embedded=embedded,
        points=points,
        joins=joins,
    )


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
    dropped: sbatch.Dropped  # what sbatch would not get to see of the environment


def plan(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    embedded: Embedded | None = None,
    points: Points | None = None,
    joins: Joins | None = None,
) -> Plan:
    """What `submit` with the same arguments would do; nothing is written and Slurm is not asked."""
    env = os.environ if env is None else env
    when = _local(when)
    place = _place(spec, cwd, env)
    files = run_files.free_files(place.run_dir, spec.exp_name, when)
    _, dropped = sbatch.scrub(env, spec.sbatch)
    _second(spec)  # which may be impossible
    return Plan(
        name=files.name,
        text=_render(
            dependencies.resolved(spec, env, place.submit_dir),
            name=files.name,
            when=when,
            run_dir=place.in_script,
            embedded=embedded or _told(spec),
            points=points,
            joins=joins,
        ),
        script=str(files.script),
        log=str(files.log),
        record=str(files.record),
        run_dir=str(place.run_dir),
        submit_dir=place.submit_dir,
        argv=sbatch.sbatch_argv(str(files.script), hold=hold),
        dropped=dropped,
    )


def submit(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str] | None = None,
    cwd: PathText | None = None,
    when: datetime | None = None,
    hold: bool = False,
    runner: Runner = process.run,
    embedded: Embedded | None = None,
    points: Points | None = None,
    joins: Joins | None = None,
    timeout: float = TIMEOUT,
    tell: Tell = warn,
) -> Run:
    """Write the script, hand it to sbatch, write the record; of a sweep the table of its points too.

    The job runs in `cwd` (by default here) with the environment `env` (by default ours), less what would
    override the script: `tell` hears of it, and of sbatch's own warnings.

    Raises UsageError when a file cannot be written or a run to wait for is unknown, SubmitRefused when sbatch says
    no (the script is kept), SlurmUnavailable when there is no sbatch or no answer. At Ctrl-C before sbatch was asked
    nothing is left.
    """
    env = os.environ if env is None else env
    when = _local(when)
    place = _place(spec, cwd, env)
    clean, dropped = sbatch.scrub(env, spec.sbatch)
    if spec.is_sweep and points is None:
        points = sweep_file.points_of(spec)  # once: the file may change meanwhile
    made: list[Path] = []
    files: run_files.Files | None = None
    asked = False
    wanted, second = dependencies.resolved(spec, env, place.submit_dir), _second(spec)
    told = embedded or _told(spec)

    def text_of(name: str) -> str:
        return _render(wanted, name=name, when=when, run_dir=place.in_script, embedded=told, points=points, joins=joins)

    try:
        # The log stands in there too: where its directory is missing, Slurm accepts the job and loses it.
        made = run_files.make_directory(place.run_dir)
        files = run_files.create_script(place.run_dir, spec.exp_name, when, text_of)
        argv = sbatch.sbatch_argv(str(files.script), hold=hold)
        run = _new_run(spec, place, files, when, argv, points)
        records.write(run)  # before there is a job: a job without a record would be lost
        for note in dropped.notes():
            tell(note)
        asked = True
        run = _ask(run, clean | {"PWD": place.submit_dir}, runner, timeout, tell)
        if points is not None:
            _write_table(run, points, tell)
    except BaseException as error:
        if not asked or isinstance(error, process.NotFound):
            if files is not None:
                run_files.remove(files.script)
                run_files.remove(files.record)
            run_files.remove_directories(made)
        raise
    if second is not None:
        from slurm_launch.control import grow

        run = grow.beside(run, second, parts=spec.own_head, env=env, runner=runner, timeout=timeout, tell=tell)
    return run


def _second(spec: LaunchSpec) -> LaunchSpec | None:
    """The spec of the job that is submitted beside this one."""
    if spec.grow is None:
        return None
    from slurm_launch.control import grow

    return grow.second(spec)


def _ask(run: Run, env: Mapping[str, str], runner: Runner, timeout: float, tell: Tell) -> Run:
    """Hand the script to sbatch; returns the run with its job."""
    look = f"`squeue --me --name={run.exp_name}` tells whether there is a job"
    try:
        result = runner(run.argv, env=env, cwd=run.submit_dir, timeout=timeout)
        job_id, cluster = _judge(run, result, look)
    except process.TimedOut as error:
        raise SlurmUnavailable(error.message, at=f"{run.script} (kept)", hint=look) from None
    except KeyboardInterrupt:
        tell(f"interrupted while sbatch was at work: {look}; the script is kept: {run.script}")
        raise
    for line in result.stderr.splitlines():  # a warning of Slurm's or of the site's
        tell(line)
    run = run.with_job(job_id, cluster, _utc(datetime.now(timezone.utc)))
    try:
        records.update(run)
        index.add(run, env)
    except UsageError as error:  # the job is there: to fail now would make people submit it again
        tell(f"job {job_id} is submitted, but its record lacks the job id: {error}")
    except KeyboardInterrupt:
        tell(f"job {job_id} is submitted and goes on; `scancel {job_id}` ends it")
        raise
    return run


def _write_table(run: Run, points: Points, tell: Tell) -> None:
    try:
        points_table.write(run, points)
    except UsageError as error:  # as with the record
        tell(f"job {run.job_id} is submitted, but there is no table of its points: {error}")


def _judge(run: Run, result: Result, look: str) -> tuple[str, str | None]:
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
    hint = sbatch.hint_for(said) or f"correct it and submit again, or edit the script and run: sbatch {run.script}"
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
    spec: LaunchSpec, place: _Place, files: run_files.Files, when: datetime, argv: list[str], points: Points | None
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
        array=spec.tasks(None if points is None else sweep_file.task_numbers(spec, points)),
        points=None if points is None else str(files.points),
        script_sha256=run_files.sha256(files.script),
    )


def _local(when: datetime | None) -> datetime:
    """A time in the local zone, as people read it in file names."""
    return (datetime.now() if when is None else when).astimezone()


def _utc(when: datetime) -> str:
    return when.astimezone(timezone.utc).isoformat(timespec="seconds")
