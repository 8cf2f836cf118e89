"""Why a run failed: the first rule of rules.py that matches, with the lines that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from slurm_launch.explain.evidence import Evidence, JobFacts
from slurm_launch.explain.job_files import JobFiles, read_files
from slurm_launch.explain.matchers import Match
from slurm_launch.explain.rules import RULES, Rule
from slurm_launch.runs.record import Run
from slurm_launch.slurm.plain_words import describe_end
from slurm_launch.status import lookup
from slurm_launch.status.report import clock
from slurm_launch.status.task import Task


@dataclass(frozen=True)
class Explanation:
    """What happened to a run, and why."""

    cause: str  # a short name that programs can rely on
    sentence: str
    evidence: tuple[str, ...]  # lines, each prefixed with its location
    advice: str
    sure: bool = True
    node: str | None = None


def explain(facts: JobFacts) -> Explanation:
    """The first rule that matches; the last one always does."""
    evidence = Evidence(facts)
    for rule in RULES:
        match = rule.match(evidence)
        if match is not None:
            return _explanation(_adapted(rule, facts), match, evidence)
    raise AssertionError("the last rule matches everything")


def _adapted(rule: Rule, facts: JobFacts) -> Rule:
    """The rule, with other texts if `slurm-launch cancel` ended the job, or if slurmctld cannot be reached."""
    if rule.cause == "cancelled" and facts.cancelled:
        when = clock(datetime.fromisoformat(facts.cancelled), datetime.now(timezone.utc))
        sentence = f"the job was canceled by `slurm-launch cancel`, at {when}"
        return replace(rule, sentence=sentence, advice="nothing, if this was intended; otherwise submit again")
    if rule.cause == "unknown" and not facts.asked:
        sentence = "cannot reach slurmctld, and the files do not show an end: the job may still be pending or running"
        return replace(rule, sentence=sentence, advice="try again later; `scontrol ping` shows whether slurmctld is up")
    return rule


def _explanation(rule: Rule, match: Match, evidence: Evidence) -> Explanation:
    node = match.node or (evidence.end.node if evidence.end else None)
    values = {**_values(evidence, node), **match.values}
    return Explanation(
        rule.cause,
        rule.sentence.format_map(values),
        tuple(dict.fromkeys(str(line) for line in match.evidence)),
        rule.advice.format_map(values),
        match.sure,
        node,
    )


def _values(evidence: Evidence, node: str | None) -> dict[str, str]:
    """The values for the placeholders in the texts of a rule."""
    facts, end, exception = evidence.facts, evidence.end, evidence.exception
    boot = facts.state == "BOOT_FAIL"
    return {
        "node": node or "the node",
        "at": f" on {node}" if node else "",
        "cause": (end.cause if end else None) or f"the job {describe_end(facts.state, facts.code, facts.signal)}",
        "hint": (end.hint if end else None) or "look at the log",
        "code": str(end.code if end else facts.code),
        "asked": _requested_memory(facts.spec),
        "time": f" (it was {facts.spec['time']})" if facts.spec.get("time") else "",
        "place": f" ({exception.place})" if exception and exception.place else "",
        "lost": "a node of the job did not boot" if boot else "Slurm has lost a node of the job",
    }


def _requested_memory(spec: Mapping[str, Any]) -> str:
    """` (it was 2000M on each node)`; empty if none was requested."""
    hatch = spec.get("sbatch")
    given = {**spec, **hatch} if isinstance(hatch, Mapping) else spec
    option = next((key for key in ("mem", "mem-per-cpu", "mem-per-gpu") if given.get(key)), None)
    if option != "mem":
        return f" (--{option} was {given[option]})" if option else ""
    same = not (spec.get("worker-group") or spec.get("head-mem"))
    return f" (it was {given[option]}{' on each node' if same else ''})"


def explain_task(run: Run, task: Task) -> Explanation:
    """Why a job or array task failed."""
    return _explain(run, task, _read_files(task))


def explain_tasks(run: Run, tasks: Sequence[Task]) -> list[tuple[Task, Explanation]]:
    """Why each task failed; the tasks are returned with what their logs contain. Each log is parsed once."""
    explained = []
    for task in tasks:
        files = _read_files(task)
        why = _explain(run, task, files)
        if files.log.lines and files.log.complete:
            task = lookup.with_attempt(task, files.log.attempt)
        explained.append((task, why))
    return explained


def _read_files(task: Task) -> JobFiles:
    return read_files(task.log, f"{task.log.removesuffix('.log')}.ray")


def _explain(run: Run, task: Task, files: JobFiles) -> Explanation:
    facts = JobFacts(
        task.state,
        task.reason,
        task.code,
        task.signal,
        files=files,
        spec=run.spec,
        asked=task.asked,
        cancelled=run.cancelled_at(task.id),
    )
    why = explain(facts)
    return replace(why, advice=why.advice.replace("sacct -j JOB", f"sacct -j {task.id}"))
