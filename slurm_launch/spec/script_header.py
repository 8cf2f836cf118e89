"""What a generated script carries of its origin: the spec in its header, and the points of a sweep."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from slurm_launch.errors import UsageError
from slurm_launch.spec import sweep_points
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.sweep_points import Points

SPEC_MARK = "# spec: "
POINTS_MARK = "END_OF_POINTS"  # no line of theirs: each begins with a key and =


@dataclass(frozen=True)
class EmbeddedSpec:
    """What a script says about its own origin: the user's own values and those of the site, by YAML key.

    Apart, because another cluster replaces the second: `render --from script.sh --profile other`.
    """

    own: dict[str, Any]
    site: dict[str, Any] = field(default_factory=dict)
    points: Points | None = field(default=None, compare=False)  # of a sweep, as they stand in the script
    script: str = field(default="the script", compare=False)  # its file, for messages


@dataclass(frozen=True)
class JoinTarget:
    """The job whose cluster the nodes join, instead of making one."""

    job: str
    log: str  # its path, which tells where its Ray is
    parts: bool = False  # whether it is heterogeneous; its first component has the head


def read_embedded(text: str, where: str) -> EmbeddedSpec:
    """The origin that a script of ours carries in its header."""
    for line in text.splitlines():
        if line.startswith(SPEC_MARK):
            try:
                data = json.loads(line[len(SPEC_MARK) :])
                own, site = dict(data["own"]), dict(data.get("site", {}))
                return EmbeddedSpec(own=own, site=site, points=_embedded_points(text, where), script=where)
            except (ValueError, KeyError, TypeError):
                raise UsageError(
                    "the spec in the script's header is damaged",
                    at=where,
                    hint=f"mend the line that begins {SPEC_MARK!r}",
                ) from None
    if grows := re.search(r"^main_job=(\d+) main_log=", text, re.MULTILINE):
        hint = f"for another such job: slurm-launch grow {grows[1]}"
        raise UsageError(
            f"this script grows the cluster of job {grows[1]}: it has no spec of its own", at=where, hint=hint
        )
    raise UsageError(
        "this is no script of slurm-launch: it carries no spec",
        at=where,
        hint=f"its header would have a line that begins {SPEC_MARK!r}",
    )


def _embedded_points(text: str, where: str) -> Points | None:
    """The points of a sweep that stand in a script."""
    block = re.search(rf"<<'{POINTS_MARK}'.*\n((?:.*\n)*?){POINTS_MARK}\n", text)
    if block is None:
        return None
    try:
        return sweep_points.from_lines(block[1].splitlines())
    except BadValue as problem:
        at = f"{where}:{text.count(chr(10), 0, block.start(1)) + 1}"
        raise UsageError(f"the points in the script are damaged: {problem}", at=at, hint=problem.hint) from None


def header_text(embedded: EmbeddedSpec) -> str:
    """The JSON of the header line: ASCII only, on one line, whatever the values hold."""
    origin = {"own": embedded.own, **({"site": embedded.site} if embedded.site else {})}
    return json.dumps(origin, sort_keys=True)
