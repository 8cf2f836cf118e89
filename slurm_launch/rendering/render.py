"""LaunchSpec -> the text of the script. Pure: the same spec, name and time give the same bytes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch import __version__
from slurm_launch.errors import UsageError
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.spec import hetjob
from slurm_launch.spec.container_runtimes import (
    HEADS,
    WORKERS,
    Code,
    Word,
    gpu_kind,
    runtime_of,
)
from slurm_launch.spec.model import MAX_RESTARTS

if TYPE_CHECKING:
    import jinja2

    from slurm_launch.spec.model import LaunchSpec
    from slurm_launch.spec.sweep_points import Points

# In a wheel the templates lie inside the package; in a checkout at the top, where people look for them.
_PACKAGE = Path(__file__).parent.parent
TEMPLATES = next(p for p in (_PACKAGE / "templates", _PACKAGE.parent / "templates") if p.is_dir())
SPEC_MARK = "# spec: "
POINTS_MARK = "END_OF_POINTS"  # no line of theirs: each begins with a key and =


class Raw(str):
    """Text that is code by intent: it goes into the script as it is."""

    __slots__ = ()


@dataclass(frozen=True)
class Embedded:
    """What a script says about its own origin: the user's own values and those of the site, by YAML key.

    Apart, because another cluster replaces the second: `render --from script.sh --profile other`.
    """

    own: dict[str, Any]
    site: dict[str, Any] = field(default_factory=dict)
    points: Points | None = field(default=None, compare=False)  # of a sweep, as they stand in the script
    script: str = field(default="the script", compare=False)  # its file, for messages


@dataclass(frozen=True)
class Joins:
    """The job whose cluster the nodes join, instead of making one."""

    job: str
    log: str  # its path, which tells where its Ray is
    parts: bool = False  # whether it is heterogeneous; its first component has the head


def render_script(
    spec: LaunchSpec,
    *,
    name: str,
    when: datetime,
    run_dir: str = ".",
    embedded: Embedded | None = None,
    points: Points | None = None,
    joins: Joins | None = None,
) -> str:
    """The whole script. `name` is the run's name without an ending, `run_dir` where its log goes.

    `points` are those of a sweep, by default the ones that the spec asks for: these may be in a file. With `joins` it
    is the script of a job that grows another one's cluster."""
    embedded = embedded or Embedded(own=spec.given())
    tasks: str | None = None
    block: PointsBlock | None = None
    if spec.is_sweep:
        from slurm_launch.config import sweep_file
        from slurm_launch.rendering import placeholders

        points = points or sweep_file.points_of(spec)
        assert points is not None
        tasks = sweep_file.task_numbers(spec, points)
        block = PointsBlock(Raw("\n".join(points.lines())), Raw(POINTS_MARK))
        spec = spec.model_copy(update={"command": placeholders.fill(spec.command, points.keys)})
    text = _render(
        spec, name=name, when=when, run_dir=run_dir, embedded=embedded, tasks=tasks, points=block, joins=joins
    )
    if block is not None and spec.template is not None and f"\n{block.text}\n{POINTS_MARK}\n" not in text:
        raise UsageError(
            "the template leaves out the points of the sweep",
            at=spec.template,
            hint="docs/template.md shows how `points` is written",
        )
    return text


@dataclass(frozen=True)
class PointsBlock:
    """What the template writes of a sweep's points."""

    text: Raw
    mark: Raw


def _render(
    spec: LaunchSpec,
    *,
    name: str,
    when: datetime,
    run_dir: str,
    embedded: Embedded,
    tasks: str | None,
    points: PointsBlock | None,
    joins: Joins | None,
) -> str:
    run = name if run_dir == "." else f"{run_dir.rstrip('/')}/{name}"
    port_first, _, port_last = (spec.port_range or "").partition("-")
    try:
        template = _template(spec.template) if joins is None else _built_in("grow.sh.j2")
        return template.render(
            spec=spec,
            name=Raw(name),
            run=run,
            run_path=_in_the_job(run),
            checkpoint_path=_in_the_job(spec.checkpoint_dir or run + ".run"),
            version=Raw(__version__),
            made_at=Raw(when.isoformat(timespec="seconds")),
            heading=Raw(_heading(spec, joins)),
            embedded=Raw(_embed(embedded)),
            directives=Raw("\n".join(directive_lines(spec, run + ".log", tasks))),
            tasks=spec.tasks(tasks),
            points=points,
            env=[f"{key}={value}" for key, value in spec.env.items()],
            groups=_groups(spec),
            ray_head_args=_ray_head_args(spec),
            end_mark=Raw(_end_mark(spec.command)),
            ports_part="parts/ports-range.sh" if spec.port_range else "parts/ports.sh",
            port_first=Raw(port_first),
            port_last=Raw(port_last),
            container=_container(spec),
            checkpoint_signal=spec.checkpoint_signal or ("TERM" if spec.signal_before is None else "USR1"),
            max_restarts=MAX_RESTARTS if spec.max_restarts is None else spec.max_restarts,
            **({} if joins is None else {"joins": joins}),
        )
    except UsageError:
        raise
    except Exception as error:
        if spec.template is None:
            raise
        raise UsageError(
            f"the template cannot be filled in: {error}",
            at=spec.template + (f":{line}" if (line := getattr(error, "lineno", None)) else ""),
            hint="docs/template.md lists the variables that a template can use",
        ) from error


def _heading(spec: LaunchSpec, joins: Joins | None) -> str:
    nodes = f"{spec.nodes} node{'s' * (spec.nodes > 1)}"
    if joins is not None:
        return f"{spec.exp_name}: {nodes} for the Ray cluster of job {joins.job}."
    return f"{spec.exp_name}: a Ray cluster of {nodes}, and a command on it."


def read_embedded(text: str, where: str) -> Embedded:
    """The origin that a script of ours carries in its header."""
    for line in text.splitlines():
        if line.startswith(SPEC_MARK):
            try:
                data = json.loads(line[len(SPEC_MARK) :])
                own, site = dict(data["own"]), dict(data.get("site", {}))
                return Embedded(own=own, site=site, points=_embedded_points(text, where), script=where)
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
    from slurm_launch.spec import sweep_points
    from slurm_launch.spec.checks import BadValue

    try:
        return sweep_points.from_lines(block[1].splitlines())
    except BadValue as problem:
        at = f"{where}:{text.count(chr(10), 0, block.start(1)) + 1}"
        raise UsageError(f"the points in the script are damaged: {problem}", at=at, hint=problem.hint) from None


def _embed(embedded: Embedded) -> str:
    # ASCII only, on one line, whatever the values hold.
    origin = {"own": embedded.own, **({"site": embedded.site} if embedded.site else {})}
    return json.dumps(origin, sort_keys=True)


def _ray_head_args(spec: LaunchSpec) -> list[str]:
    """Of two that say the same Ray takes the last: the user's own come after ours."""
    own = [] if spec.dashboard else ["--include-dashboard=false"]
    if spec.head_num_cpus is not None or spec.dedicated_head:
        own.append(f"--num-cpus={spec.head_num_cpus or 0}")
    if spec.dedicated_head or (spec.own_head and spec.num_gpus and spec.gpu_directive == "none"):
        own.append("--num-gpus=0")
    return [*own, *spec.ray_head_arg]


@dataclass(frozen=True)
class Groups:
    """What the template writes of a heterogeneous job: for each of its groups, the head's first."""

    labels: list[str]
    resources: list[str]


def _groups(spec: LaunchSpec) -> Groups | None:
    found = hetjob.groups(spec)
    if not found:
        return None
    return Groups(labels=["", *map(hetjob.ray_labels, found)], resources=["", *map(hetjob.ray_resources, found)])


@dataclass(frozen=True)
class Container:
    """What the template writes of a job's container."""

    runtime: Raw
    image: str
    worker_image: str
    program: str  # that the nodes must have, or nothing
    mounts_ours: bool
    part: str | None
    step: Raw  # words for bash arrays
    worker_step: Raw
    enter: Raw
    worker_enter: Raw
    enter_for_command: Raw
    join_head: Raw
    env: str  # names of the variables in which the image does not have the last word
    unset: Raw  # of the job's variables those that would lead the image's programs astray
    setup_mark: Raw
    visible_gpus: bool


def _container(spec: LaunchSpec) -> Container | None:
    runtime = runtime_of(spec)
    if runtime is None:
        return None
    image, worker_image = runtime.image(spec.image or ""), runtime.image(spec.workers_image or "")
    differ = worker_image != image
    setup: list[Word] = ["bash", "-c", Code('"$container_setup"'), "bash"] if spec.container_setup else []
    astray = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "TMPDIR")
    return Container(
        runtime=Raw(runtime.name),
        image=image,
        worker_image=worker_image,
        program=runtime.program or "",
        mounts_ours=runtime.mounts_ours,
        part=runtime.part,
        step=_array(runtime.step(spec, HEADS)),
        worker_step=_array(runtime.step(spec, WORKERS)) if differ else Raw('"${head_step[@]}"'),
        enter=_array([*runtime.enter(spec, HEADS), *setup]),
        worker_enter=_array([*runtime.enter(spec, WORKERS), *setup]) if differ else Raw('"${head_enter[@]}"'),
        enter_for_command=_array(runtime.enter_for_command()),
        join_head=_array(runtime.join_head()),
        env=",".join(["RAY_AUTH_MODE", *spec.env]),
        unset=Raw(" ".join(name for name in astray if name not in spec.env)),
        setup_mark=Raw(_end_mark("\n".join(spec.container_setup), "END_OF_SETUP")),
        visible_gpus=gpu_kind(spec) == "nvidia",
    )


def _in_the_job(path: str) -> Raw:
    """A path as the job finds it: it begins in the directory from which it was submitted."""
    return Raw(("" if path.startswith("/") else '"$PWD"/') + shlex.quote(path))


def _array(words: Iterable[Word]) -> Raw:
    return Raw(" ".join(word if isinstance(word, Code) else shlex.quote(word) for word in words))


def _end_mark(text: str, mark: str = "END_OF_COMMAND") -> str:
    """A line that ends a here-document and does not occur in it."""
    while re.search(rf"^{mark}$", text, re.MULTILINE):
        mark += "_"
    return mark


def _quote(value: Any) -> str:
    """Jinja's finalize: whatever is written into the script is one shell word, unless it is Raw."""
    return value if isinstance(value, Raw) else shlex.quote(str(value))


def _words(values: Iterable[Any]) -> Raw:
    return Raw(" ".join(shlex.quote(str(value)) for value in values))


def _first_line(code: str) -> str:
    return code.strip().splitlines()[0][:100]


def _template(own: str | None) -> jinja2.Template:
    return _built_in("job.sh.j2") if own is None else _users_own(own)


@lru_cache
def _environment() -> jinja2.Environment:
    import jinja2

    class Cache(jinja2.FileSystemBytecodeCache):
        """The compiled templates, kept where Python keeps our modules': to compile them is a tenth of a start.

        Whatever is wrong there (somebody else's directory, no space, a damaged file), they are compiled again.
        """

        def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            with suppress(Exception):
                super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            with suppress(OSError):
                super().dump_bytecode(bucket)

    here = Path(__file__)  # the settings below change the compiled code too: another version of this file has its own
    names = f"templates-{__version__}-{here.stat().st_mtime_ns:x}-%s.cache"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        bytecode_cache=None if sys.dont_write_bytecode else Cache(str(here.parent / "__pycache__"), names),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # bash writes ${#array[@]}
        comment_end_string="##}",
    )
    environment.filters.update(words=_words, raw=Raw, first_line=_first_line)
    return environment


@lru_cache
def _built_in(name: str) -> jinja2.Template:
    return _environment().get_template(name)


def _users_own(own: str) -> jinja2.Template:
    """Read anew each time: its owner may be editing it."""
    import jinja2

    try:
        return _environment().from_string(Path(own).read_text(encoding="utf-8"))
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(
            f"the template has a syntax error: {error.message}", at=f"{own}:{error.lineno}", hint="mend that line"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the template cannot be read: {error}", at="--template", hint="give a readable file"
        ) from None
