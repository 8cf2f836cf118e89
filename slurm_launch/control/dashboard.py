"""The address of the dashboard of a running job, and the SSH command that leads there."""

from __future__ import annotations

import re
import shlex

from slurm_launch.control.running_job import RunningJob
from slurm_launch.errors import WrongMoment

USUAL_PORT = 8265  # of Ray's dashboard


def dashboard_port(job: RunningJob) -> int:
    """The port on the head node's loopback address. Raises WrongMoment, with the cause, if there is no dashboard."""
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d{1,5})/?", job.attempt.dashboard or "")
    if match:
        return int(match[1])
    spec = job.run.spec
    if spec.get("dashboard") is False or "dashboard=false" in str(spec.get("ray-head-arg", "")).lower():
        raise WrongMoment(f"job {job.task} was started without the dashboard", hint="leave out --no-dashboard")
    if "dashboard" in str(spec.get("ray-head-arg", "")):
        hint = "it was set with --ray-head-arg; reach it with ssh -L"
        raise WrongMoment(f"the log of job {job.task} does not show its dashboard's address", at=job.log, hint=hint)
    if job.attempt.ray in (None, "unknown"):
        raise WrongMoment(f"the log of job {job.task} does not mention a dashboard", at=job.log)
    hint = "pip install 'ray[default]' in its environment or image, and submit the job again"
    raise WrongMoment(f"job {job.task} uses Ray {job.attempt.ray} without the dashboard installed", hint=hint)


def ssh_command(job: RunningJob, remote_port: int, local_port: int, through: str | None = None) -> str:
    """The command for a tunnel to a port of the head node, from here or through another host."""
    jump = ["-J", f"{job.run.user}@{through}"] if through else []
    host = f"{job.run.user}@{job.head}" if through else job.head
    return shlex.join(["ssh", "-N", *jump, "-L", f"{local_port}:127.0.0.1:{remote_port}", host])


def is_protected(job: RunningJob) -> bool:
    """Whether the job's Ray accepts only clients that have its token."""
    ignored = any(re.search("does not support tokens|knows no tokens", text) for text in job.attempt.warnings)
    return job.attempt.auth == "token" and not ignored
