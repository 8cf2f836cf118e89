"""The fake scontrol, squeue and scancel: the calls that the generated script makes, and few more."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from slurm_launch.rehearsal.job import NodeGroup, RehearsalFolder, RehearsedJob, RehearsedState
from slurm_launch.rehearsal.option_parser import CommandOptions

SCONTROL = CommandOptions(
    "scontrol", ["clusters"], ["oneliner", "details"], {"M": "clusters", "o": "oneliner", "d": "details"}
)
SQUEUE = CommandOptions(
    "squeue",
    ["clusters", "format", "jobs", "states", "name", "user"],
    ["me", "noheader"],
    {"M": "clusters", "h": "noheader", "j": "jobs", "o": "format", "t": "states", "u": "user", "n": "name"},
)
SCANCEL = CommandOptions("scancel", ["clusters", "state"], [], {"M": "clusters", "t": "state"})


def scontrol(folder: RehearsalFolder, argv: list[str]) -> int:
    _, words = SCONTROL.parse(argv)
    what = words[:2]
    options, words = SCONTROL.parse(words[2:])
    if what == ["show", "hostnames"]:
        return _hostnames(folder, words[0] if words else os.environ.get("SLURM_JOB_NODELIST", ""))
    if what[:1] == ["requeue"] and len(what) == 2 and not words:
        return _requeue(folder, what[1])
    if what == ["show", "config"]:
        print("SwitchType              = switch/none")
        return 0
    if what != ["show", "job"] or len(words) != 1:
        SCONTROL.fail(f"not supported in a rehearsal: scontrol {' '.join(argv)}")
    job = folder.job()
    if job is None or words[0].partition("_")[0] != str(job.id):
        SCONTROL.fail("slurm_load_jobs error: Invalid job id specified")
    details = [_allocation(group) for group in job.groups] if "details" in options else []
    print(_job_line(folder, job), *details)
    return 0


def _hostnames(folder: RehearsalFolder, text: str) -> int:
    job = folder.job()
    known = [group.nodes for group in job.groups if text == group.nodelist] if job is not None else []
    if known:
        found = known[0]
    else:
        from slurm_launch.slurm import hostlist

        found = hostlist.expand(text)
    print("\n".join(found))
    return 0


def _requeue(folder: RehearsalFolder, job_id: str) -> int:
    job = folder.job()
    if job is None or job_id not in (str(job.id), f"{job.id}_{job.array_task}"):
        SCONTROL.fail(f"Invalid job id specified for job {job_id}")
    if not job.requeue:
        SCONTROL.fail(f"Requested operation is presently disabled for job {job_id}")
    if folder.restarts() > folder.attempt().restarts:
        SCONTROL.fail(f"Job is pending execution for job {job_id}")
    folder.request_restart()
    return 0


def _allocation(group: NodeGroup) -> str:
    """What the job has on each node of the group; Slurm's details of a job end with such a part for equal nodes."""
    factors = {"SLURM_MEM_PER_NODE": 1, "SLURM_MEM_PER_CPU": group.cpus, "SLURM_MEM_PER_GPU": group.gpus}
    memory = sum(megabytes * factors[name] for name, megabytes in group.memory.items())
    gpus = f"gpu:{group.gpus}" if group.gpus else ""
    return f"Nodes={group.nodelist} CPU_IDs=0-{group.cpus - 1} Mem={memory} GRES={gpus}"


def _nodelist(job: RehearsedJob) -> str:
    return ",".join(group.nodelist for group in job.groups)


def _job_line(folder: RehearsalFolder, job: RehearsedJob) -> str:
    state = folder.state()
    end_at = folder.attempt().end_at
    start, end = "Unknown", "Unknown"
    if end_at is not None:
        start, end = _clock(end_at - (job.time_limit or 0)), _clock(end_at)
    array = "" if job.array_task is None else f" ArrayJobId={job.id} ArrayTaskId={job.array_task}"
    return (
        f"JobId={job.id}{array} JobName={job.name} JobState={state.state} Reason={state.reason} Dependency=(null)"
        f" Requeue={job.requeue:d} Restarts={folder.restarts()} ExitCode={state.code}:{state.signal} StartTime={start}"
        f" EndTime={end} PreemptTime=None NodeList={_nodelist(job)} NumNodes={len(job.nodes)}"
    )


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def squeue(folder: RehearsalFolder, argv: list[str]) -> int:
    options, words = SQUEUE.parse(argv)
    if words:
        SQUEUE.fail(f"Unrecognized option: {words[0]}")
    job = folder.job()
    wanted = options.get("jobs")
    if job is None or (wanted is not None and str(job.id) not in wanted.split(",")):
        SQUEUE.fail("slurm_load_jobs error: Invalid job id specified")
    if "noheader" not in options:
        print(options.get("format", "%i %T"))
    for number, group in enumerate(job.groups):
        job_id = f"{job.id}+{number}" if len(job.groups) > 1 else str(job.id)
        _print_line(folder.state(), job, group, job_id, options)
    return 0


def _print_line(
    state: RehearsedState, job: RehearsedJob, group: NodeGroup, job_id: str, options: Mapping[str, str]
) -> None:
    fields = {"i": job_id, "A": str(job.id), "T": state.state, "r": state.reason, "j": job.name}
    fields |= {"N": group.nodelist, "D": str(len(group.nodes)), "P": group.partition, "%": "%"}
    line, rest = "", options.get("format", "%i %T")
    while rest:
        before, percent, rest = rest.partition("%")
        line += before
        if percent:
            letter = rest.lstrip("0123456789.")[:1]
            if letter not in fields:
                SQUEUE.fail(f"not supported in a rehearsal: the field %{letter}")
            line, rest = line + fields[letter], rest.lstrip("0123456789.")[1:]
    print(line)


def scancel(folder: RehearsalFolder, argv: list[str]) -> int:
    """Cancel pending jobs: a rehearsal has none, so there is nothing to do."""
    options, words = SCANCEL.parse(argv)
    if options.get("state") != "PENDING" or not words:
        SCANCEL.fail(f"not supported in a rehearsal: scancel {' '.join(argv)}")
    return 0
