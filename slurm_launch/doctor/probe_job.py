"""The job of `doctor --job` that checks the nodes: submit it, wait for it, read its log, remove its files."""

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
from slurm_launch.doctor.findings import has_problem, note, problem
from slurm_launch.doctor.node_advice import NodeReport
from slurm_launch.errors import LaunchError, Notify, SlurmUnavailable, SubmitRefused
from slurm_launch.launch import hints
from slurm_launch.launch.job import submit_job
from slurm_launch.process import Runner
from slurm_launch.runs import files as run_files
from slurm_launch.runs.record import Run
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm import jobs
from slurm_launch.slurm.client import PROBE_TIMEOUT
from slurm_launch.status.wait import backoff

if TYPE_CHECKING:
    from slurm_launch.spec.launch_spec import LaunchSpec

LOG_LAG = 10.0  # seconds until a shared file system shows the end of the log
LOG_POLL = 0.5  # seconds


@dataclass(frozen=True)
class PollClock:
    """Time, replaceable in tests."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    poll: Callable[[], Iterable[float]] = backoff


def probe_nodes(
    spec: LaunchSpec,
    *,
    env: Mapping[str, str],
    timeout: float,
    notify: Notify,
    runner: Runner = process.run,
    clock: PollClock | None = None,
) -> NodeReport:
    """Run the probe job with the resources of `spec` and assess what its nodes report. Ctrl-C cancels it."""
    try:
        run = _submit(spec, env, runner, notify)
    except (SubmitRefused, SlurmUnavailable) as error:
        return _not_submitted(error)
    notify(f"job {run.job_id} checks {spec.nodes} nodes; waiting for at most {timeout:.0f} s (Ctrl-C cancels it)")
    clock = clock or PollClock()
    query_env = slurm_environment.query_env(env)
    try:
        state = _wait(run, query_env, timeout, runner, clock)
    except BaseException:  # above all Ctrl-C
        _cancel(run, query_env, runner, notify)
        _remove_files(run)
        raise
    if state is not None:  # still pending, or it hangs
        _cancel(run, query_env, runner, notify)
        hint = f"allow more time with --job-timeout, or choose another --partition; kept: {run.script}"
        text = f"{run.job_id} did not end within {timeout:.0f} s: {state}"
        return NodeReport(findings=[problem("job", text, hint)])
    return _read_log(run, spec, clock)


def _submit(spec: LaunchSpec, env: Mapping[str, str], runner: Runner, notify: Notify) -> Run:
    from slurm_launch.rendering.templates import TEMPLATES
    from slurm_launch.spec.option import IMAGES
    from slurm_launch.spec.script_header import EmbeddedSpec

    # The command is a nonce: a node that finds it in the script sees the same directory.
    probe = {"template": str(TEMPLATES / "doctor.sh.j2"), "command": secrets.token_hex(8)}
    no_container = dict.fromkeys(IMAGES)
    job = spec.model_copy(update=probe | no_container)
    return submit_job(job, env=env, runner=runner, embedded=EmbeddedSpec(own={}), notify=notify)


def _not_submitted(error: LaunchError) -> NodeReport:
    if error.script:  # no one will submit this one by hand
        for suffix in (".sh", ".json"):
            run_files.remove(Path(error.script).with_suffix(suffix))
    if isinstance(error, SlurmUnavailable):
        hint = "`squeue --me --name=doctor` shows whether the job was submitted; try again later"
        return NodeReport(findings=[problem("job", error.message, hint)], unreachable=True)
    return NodeReport(findings=[problem("job", error.message, hints.hint_for(error.message))])


def _wait(run: Run, env: Mapping[str, str], timeout: float, runner: Runner, clock: PollClock) -> str | None:
    """Wait for the end of the job. Returns its state if it has not ended in time, else None."""
    deadline = clock.now() + timeout
    state = "cannot reach slurmctld"
    for pause in clock.poll():
        with suppress(process.TimedOut):  # slurmctld may be busy
            result = runner(jobs.show_job_argv(str(run.job_id), run.cluster), env=env, timeout=PROBE_TIMEOUT)
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
    argv = jobs.scancel_argv([str(run.job_id)], run.cluster)
    try:
        canceled = runner(argv, env=env, timeout=PROBE_TIMEOUT).returncode == 0
    except LaunchError:
        canceled = False
    if canceled:
        notify(f"canceled job {run.job_id}")
    else:
        notify(f"could not cancel job {run.job_id}; try: {' '.join(argv)}")


def _read_log(run: Run, spec: LaunchSpec, clock: PollClock) -> NodeReport:
    """Assess the job's log. The job's files are removed if there is no problem."""
    log = ""
    for _ in range(int(LOG_LAG / LOG_POLL)):
        with suppress(OSError):
            log = Path(run.log).read_text(encoding="utf-8", errors="replace")
        if node_advice.is_complete(log):
            break
        clock.sleep(LOG_POLL)
    if not log:
        text = f"job {run.job_id} has ended, but its log is missing here: {run.log}"
        hint = "the first node does not see this directory; choose one that all nodes share with --run-dir"
        return NodeReport(findings=[problem("run-dir", text, hint)])
    report = node_advice.assess(log, spec.nodes, in_container=spec.image is not None)
    if not node_advice.is_complete(log):
        last = log.strip().splitlines()[-1:] or ["(nothing)"]
        text = f"{run.job_id} ended early; its last output: {last[0]}"
        report.findings.append(problem("job", text, f"see {run.log}"))
    if has_problem(report.findings):
        report.findings.append(note("job", f"script and log of job {run.job_id} are kept", f"see {run.log}"))
    else:
        _remove_files(run)
    return report


def _remove_files(run: Run) -> None:
    for path in (run.script, run.log, run.record):
        run_files.remove(Path(path))
