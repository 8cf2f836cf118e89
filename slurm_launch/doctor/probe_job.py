"""The tiny job of `doctor --job`: submitted, waited for, read, and cleared away."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_launch import process
from slurm_launch.doctor import node_advice
from slurm_launch.doctor.findings import note, problem
from slurm_launch.errors import LaunchError, Notify, SlurmUnavailable, SubmitRefused
from slurm_launch.launch import hints
from slurm_launch.launch.job import submit_job
from slurm_launch.process import Runner
from slurm_launch.runs import files as run_files
from slurm_launch.runs.record import Run
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import jobs, site
from slurm_launch.status.wait import backoff

if TYPE_CHECKING:
    from slurm_launch.spec.launch_spec import LaunchSpec

TIMEOUT = 20.0  # seconds for one answer of Slurm's
KEPT = " (kept)"  # what launch.submit says behind the path of a script that it left
LOG_LAG = 10.0  # seconds that a shared file system may need to show us the end of the log


@dataclass(frozen=True)
class Clock:
    """Time, so that tests need none."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    poll: Callable[[], Iterable[float]] = backoff


def ask_nodes(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str],
    timeout: float,
    notify: Notify,
    runner: Runner = process.run,
    clock: Clock | None = None,
) -> node_advice.Advice:
    """Run the job that `spec` describes and judge what its nodes say. Ctrl-C cancels it."""
    from slurm_launch.rendering.templates import TEMPLATES
    from slurm_launch.spec.script_header import EmbeddedSpec

    ours = {"template": str(TEMPLATES / "doctor.sh.j2"), "command": secrets.token_hex(8)}
    on_the_host = {"container_image": None, "head_image": None, "worker_image": None}
    job = spec.model_copy(update=ours | on_the_host)
    try:
        run = submit_job(job, env=env, runner=runner, embedded=EmbeddedSpec(own={}), notify=notify)
    except (SubmitRefused, SlurmUnavailable) as error:
        if error.at and error.at.endswith(KEPT):  # a script that nobody will submit by hand
            for suffix in (".sh", ".json"):
                run_files.remove(Path(error.at.removesuffix(KEPT)).with_suffix(suffix))
        silent = isinstance(error, SlurmUnavailable)
        look = "`squeue --me --name=doctor` tells whether there is a job all the same; try again later"
        hint = look if silent else hints.hint_for(error.message)
        return node_advice.Advice(findings=[problem("job", error.message, hint)], silent=silent)
    notify(f"job {run.job_id} asks {spec.nodes} nodes; waiting for it, at most {timeout:.0f} s (Ctrl-C cancels it)")
    clock = clock or Clock()
    query = slurm_environment.query_env(env)
    try:
        end = _wait(run, query, timeout, runner, clock)
    except BaseException:  # Ctrl-C above all
        _cancel(run, query, runner, notify)
        _clear(run)
        raise
    if end is not None:  # it waits in the queue, or hangs
        _cancel(run, query, runner, notify)
        hint = f"give it more time with --job-timeout, or choose another --partition; kept: {run.script}"
        return node_advice.Advice(
            findings=[problem("job", f"{run.job_id} did not end within {timeout:.0f} s: {end}", hint)]
        )
    return _read(run, spec, clock)


def _wait(run: Run, env: Mapping[str, str], timeout: float, runner: Runner, clock: Clock) -> str | None:
    """Until the job has ended; if it does not in time, the state that it is in."""
    deadline, state = clock.now() + timeout, "Slurm does not answer"
    for pause in clock.poll():
        with suppress(process.TimedOut):  # slurmctld may be busy for a while
            result = runner(jobs.show_job_argv(str(run.job_id), run.cluster), env=env, timeout=TIMEOUT)
            found = jobs.parse_show_job(result.stdout)
            if jobs.is_gone(result.stderr) or (found and all(job.ended for job in found)):
                return None
            if found:
                state = found[0].state.lower() + (f" ({found[0].reason})" if found[0].reason else "")
        if clock.now() >= deadline:
            return state
        clock.sleep(pause)
    return state


def _cancel(run: Run, env: Mapping[str, str], runner: Runner, notify: Notify) -> None:
    argv = site.cancel_argv(str(run.job_id), run.cluster)
    try:
        done = runner(argv, env=env, timeout=TIMEOUT).returncode == 0
    except LaunchError:
        done = False
    notify(f"job {run.job_id} is cancelled" if done else f"job {run.job_id} could not be cancelled: {' '.join(argv)}")


def _read(run: Run, spec: LaunchSpec, clock: Clock) -> node_advice.Advice:
    """What the log says; the job's files go when nothing is wrong."""
    log = ""
    for _ in range(int(LOG_LAG / 0.5)):
        with suppress(OSError):
            log = Path(run.log).read_text(encoding="utf-8", errors="replace")
        if node_advice.complete(log):
            break
        clock.sleep(0.5)
    if not log:
        text = f"job {run.job_id} has ended, but its log is not here: {run.log}"
        hint = "the first node does not see this directory; choose one that all nodes share with --run-dir"
        return node_advice.Advice(findings=[problem("run-dir", text, hint)])
    advice = node_advice.judge(log, spec.nodes, in_container=spec.image is not None)
    if not node_advice.complete(log):
        last = log.strip().splitlines()[-1:] or ["nothing"]
        advice.findings.append(problem("job", f"{run.job_id} did not come to its end: {last[0]}", f"see {run.log}"))
    if all(finding.status != "problem" for finding in advice.findings):
        _clear(run)
    else:
        advice.findings.append(note("job", f"the script and the log of job {run.job_id} are kept", f"see {run.log}"))
    return advice


def _clear(run: Run) -> None:
    for path in (run.script, run.log, run.record):
        run_files.remove(Path(path))
