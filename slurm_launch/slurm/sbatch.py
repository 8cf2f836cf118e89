"""sbatch: its command line and its answers. Pure."""

from __future__ import annotations

import re


def sbatch_argv(script: str, *, hold: bool = False) -> list[str]:
    return ["sbatch", "--parsable", *(["--hold"] if hold else []), script]


def parse_job_id(stdout: str) -> tuple[str, str | None] | None:
    """The job id and, in a federation, its cluster; a site's banner may stand around it. None: no id to be seen."""
    parsable = re.findall(r"^\s*(\d+)(?:;([\w.-]+))?\s*$", stdout, re.MULTILINE | re.ASCII)
    spoken = re.findall(r"Submitted batch job (\d+)(?: on cluster ([\w.-]+))?", stdout, re.ASCII)
    for found in (parsable, spoken):
        if found:
            job_id, cluster = found[-1]  # banners come before the answer
            return job_id, cluster or None
    return None


# Slurm itself did not answer: nothing is wrong with the job.
_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|standby mode"
    r"|Could not establish a configuration source|Protocol authentication error|Munge (encode|decode) failed"
    r"|Problem talking to database|connect failure",
    re.IGNORECASE,
)
# The request went out, the answer was lost.
_LOST = re.compile(r"Socket timed out|Zero Bytes were transmitted", re.IGNORECASE)


def is_unreachable(stderr: str) -> bool:
    """Whether a command failed because Slurm did not answer."""
    return bool(_UNREACHABLE.search(stderr))


def is_lost(stderr: str) -> bool:
    """Whether the request may have been carried out although the command failed."""
    return bool(_LOST.search(stderr))
