"""Renders a LaunchSpec as the text of its script. Pure: the same spec, name and time give the same bytes."""

from __future__ import annotations

from datetime import datetime

from slurm_launch.errors import UsageError
from slurm_launch.rendering import templates
from slurm_launch.rendering.template_values import template_values
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import POINTS_MARK, EmbeddedSpec, JoinTarget
from slurm_launch.spec.sweep_points import Points


def render_script(
    spec: LaunchSpec,
    *,
    name: str,
    when: datetime,
    run_dir: str = ".",
    embedded: EmbeddedSpec | None = None,
    points: Points | None = None,
    tasks: str | None = None,
    joins: JoinTarget | None = None,
) -> str:
    """Return the whole script. `name` is the run's name, `run_dir` the directory of its log.

    A sweep needs its `points` and the `tasks` of its array, because no file is read here. With `joins`, it is the
    script of a job that grows another job's cluster.
    """
    embedded = embedded or EmbeddedSpec(own=spec.given())
    if spec.is_sweep:
        assert points is not None, "the caller reads the points of a sweep"
        from slurm_launch.rendering import placeholders  # only sweeps have them

        spec = spec.model_copy(update={"command": placeholders.fill(spec.command, points.keys)})
    values = template_values(
        spec,
        name=name,
        when=when,
        run_dir=run_dir,
        embedded=embedded,
        tasks=tasks,
        points=points,
        joins=joins,
    )
    if spec.template is None or joins is not None:
        return templates.built_in("job.sh.j2").render(values)
    return _render_user_template(spec.template, values)


def _render_user_template(path: str, values: dict[str, object]) -> str:
    template = templates.from_user(path)
    try:
        text = template.render(values)
    except UsageError:
        raise
    except Exception as error:  # a template can raise anything
        line = getattr(error, "lineno", None)
        raise UsageError(
            f"the template cannot be rendered: {error}",
            at=f"{path}:{line}" if line else path,
            hint="docs/template.md lists the variables of a template",
        ) from error
    points = values["points"]
    if points is not None and f"\n{getattr(points, 'text', '')}\n{POINTS_MARK}\n" not in text:
        raise UsageError(
            "the template leaves out the points of the sweep",
            at=path,
            hint="docs/template.md shows how `points` is written",
        )
    return text
