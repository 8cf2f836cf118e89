"""Why a run failed: the first rule of causes.py that fits the facts, with the lines in which it stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

from slurm_launch.explain.evidence import Facts, Scene, gather
from slurm_launch.explain.matchers import Finding
from slurm_launch.explain.rules import RULES, Rule
from slurm_launch.runs.record import Run
from slurm_launch.slurm.plain_words import how_it_ended
from slurm_launch.status.report import clock
from slurm_launch.status.task import Task


@dataclass(frozen=True)
class Explanation:
    """What became of a run, and why."""

    cause: str  # a short name that programs can rely on
    sentence: str
    evidence: tuple[str, ...]  # lines, each behind the place where it stands
    advice: str
    sure: bool = True
    node: str | None = None


def explain(facts: Facts) -> Explanation:
    """The first rule that fits; the last one always does."""
    scene = Scene(facts)
    for rule in RULES:
        found = rule.find(scene)
        if found is not None:
            return _explanation(_with_what_we_know(rule, facts), found, scene)
    raise AssertionError("the last rule fits everything")


def _with_what_we_know(rule: Rule, facts: Facts) -> Rule:
    """Other words where it was us who ended the job, or nobody has told whether it has ended."""
    if rule.cause == "cancelled" and facts.cancelled:
        when = clock(datetime.fromisoformat(facts.cancelled), datetime.now(timezone.utc))
        sentence = f"the job was cancelled by `slurm-launch cancel`, at {when}"
        return replace(rule, sentence=sentence, advice="nothing, if that was meant; else submit again")
    if rule.cause == "unknown" and not facts.asked:
        sentence = "Slurm does not answer, and the files tell of no end: the job may still wait, or run"
        return replace(rule, sentence=sentence, advice="try again later; `scontrol ping` tells whether Slurm is up")
    return rule


def _explanation(rule: Rule, found: Finding, scene: Scene) -> Explanation:
    facts, end = scene.facts, scene.end
    node = found.node or (end.node if end else None)
    asked = next((facts.spec[key] for key in ("mem", "mem-per-cpu", "mem-per-gpu") if facts.spec.get(key)), None)
    state = how_it_ended(facts.state, facts.code, facts.signal)
    values: dict[str, str] = {
        "node": node or "the node",
        "at": f" on {node}" if node else "",
        "cause": (end.cause if end else None) or f"the job {state}",
        "hint": (end.hint if end else None) or "look at the log",
        "code": str(end.code if end else facts.code),
        "asked": f" (it was {asked})" if asked else "",
        "time": f" (it was {facts.spec['time']})" if facts.spec.get("time") else "",
        "ended": (end.cause if end else None) or state,
        "place": f" ({scene.raised.place})" if scene.raised and scene.raised.place else "",
        "lost": "a node of the job did not boot" if facts.state == "BOOT_FAIL" else "Slurm has lost a node of the job",
        **found.values,
    }
    if rule.cause == "cancelled" and not (end and end.cause):
        values["ended"] = f"the job {state}"
    return Explanation(
        rule.cause,
        rule.sentence.format_map(values),
        tuple(dict.fromkeys(str(line) for line in found.evidence)),
        rule.advice.format_map(values),
        found.sure,
        node,
    )


def explain_task(run: Run, task: Task) -> Explanation:
    """Of a run that was looked up: why this job, or task of an array, failed."""
    known = gather(task.log, f"{task.log.removesuffix('.log')}.ray")
    known |= {"spec": run.spec, "asked": task.asked, "cancelled": run.cancelled_at(task.id)}
    why = explain(Facts(task.state, task.reason, task.code, task.signal, **known))
    return replace(why, advice=why.advice.replace("sacct -j JOB", f"sacct -j {task.id}"))
