"""sbatch: its command line and its answers. Pure."""

from __future__ import annotations

import re

REHEARSAL_CLUSTER = "rehearsal"  # the cluster in the answer of a rehearsal's fake sbatch


def sbatch_argv(script: str, *, hold: bool = False) -> list[str]:
    return ["sbatch", "--parsable", *(["--hold"] if hold else []), script]


def parse_job_id(stdout: str) -> tuple[str, str | None] | None:
    """The job ID and, in a federation, its cluster; None if there is no ID. A site's banner may surround the answer."""
    parsable = re.findall(r"^\s*(\d+)(?:;([\w.-]+))?\s*$", stdout, re.MULTILINE | re.ASCII)
    sentences = re.findall(r"Submitted batch job (\d+)(?: on cluster ([\w.-]+))?", stdout, re.ASCII)
    for found in (parsable, sentences):
        if found:
            job_id, cluster = found[-1]  # banners come before the answer
            return job_id, cluster or None
    return None


# Messages of a command that could not reach slurmctld: they say nothing about the job.
_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|standby mode"
    r"|Could not establish a configuration source|Protocol authentication error|Munge (encode|decode) failed"
    r"|Problem talking to database|connect failure",
    re.IGNORECASE,
)
# The request was sent, the answer was lost.
_ANSWER_LOST = re.compile(r"Socket timed out|Zero Bytes were transmitted", re.IGNORECASE)


def is_unreachable(stderr: str) -> bool:
    """Whether a command failed because slurmctld did not answer."""
    return bool(_UNREACHABLE.search(stderr))


def is_answer_lost(stderr: str) -> bool:
    """Whether slurmctld may have carried out the request although the command failed."""
    return bool(_ANSWER_LOST.search(stderr))
