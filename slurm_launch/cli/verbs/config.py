"""`slurm-launch config show|path|init|import|schema`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_launch.cli.output import markup, note, print_error, print_json, warn
from slurm_launch.cli.spec_flags import SpecCommand, resolve, with_spec_options
from slurm_launch.config import realhf_import
from slurm_launch.config.files import PROJECT_FILE, create, profile_folders, profile_names, profile_target
from slurm_launch.config.messages import format_value
from slurm_launch.config.starter_file import file_schema, starter_file
from slurm_launch.errors import InvalidSpec, UsageError
from slurm_launch.spec.launch_spec import LaunchSpec

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=markup(),
    no_args_is_help=True,
    help="Show, locate and create configuration files.",
)

Json = Annotated[bool, typer.Option("--json", help="Output JSON.")]


def show(flags: dict[str, Any], as_json: Json = False) -> int:
    """Print every value and its source."""
    resolution = resolve(flags)
    problems = resolution.check()
    rows: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for name, field in LaunchSpec.model_fields.items():
        default = None if field.is_required() else field.get_default()
        rows[name.replace("_", "-")] = (resolution.values.get(name, default), resolution.sources[name])
    facts = resolution.site_facts
    if as_json:
        site = {key: (value, facts.sources(key)) for key, value in facts.as_json().items()}
        errors = [str(problem) for problem in problems]
        print_json(values=_with_sources(rows), site=_with_sources(site), problems=errors)
    else:
        rows |= facts.rows()
        texts = {key: format_value(value) for key, (value, _) in rows.items()}
        key_width = max(map(len, rows))
        value_width = min(40, max(map(len, texts.values())))
        for key, (_, sources) in rows.items():
            print(f"{key:<{key_width}}  {texts[key]:<{value_width}}  {', '.join(sources)}")
    return _report(problems)


def _with_sources(rows: dict[str, tuple[Any, tuple[str, ...]]]) -> dict[str, Any]:
    return {key: {"value": value, "sources": list(sources)} for key, (value, sources) in rows.items()}


def _report(problems: list[UsageError]) -> int:
    """Print the problems, and return the exit code."""
    if not problems:
        return 0
    print_error(InvalidSpec(problems))
    return UsageError.exit_code


app.command(cls=SpecCommand, name="show", help="Print every value and its source.")(with_spec_options(show))


@app.command()
def path(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="As for submit.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="As for submit.")] = None,
    as_json: Json = False,
) -> int:
    """Print the files that are searched, highest precedence first, and which of them are read."""
    given = {"config": config, "profile": profile}
    resolution = resolve({name: value for name, value in given.items() if value is not None})
    names = profile_names(os.environ)
    problems = list(resolution.problems)  # only those of the files
    if as_json:
        files = [vars(file) for file in resolution.files]
        print_json(files=files, profiles=names, problems=[str(problem) for problem in problems])
    else:
        width = max(10, *(len(file.role) for file in resolution.files))
        for file in resolution.files:
            print(f"{file.role:<{width}}  {file.state:<8}  {file.path}" + (f"  ({file.why})" if file.why else ""))
        places = " or ".join(map(str, profile_folders(os.environ)))
        print(f"{'profiles':<{width}}  {', '.join(names) or f'none; put them in {places}'}")
    return _report(problems)


@app.command()
def init(
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write a profile instead of a project file.")
    ] = None,
) -> None:
    """Write a file with every option, explained and commented out. An existing file is not overwritten."""
    target = Path(PROJECT_FILE).absolute() if profile is None else profile_target(profile, "--profile", os.environ)
    create(target, starter_file(profile))
    print(target)
    note("uncomment the lines that you need")


@app.command(name="import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A cluster spec, as in ReaL's CLUSTER_SPEC_PATH.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the profile. Default: cluster_name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Convert ReaL's cluster spec to a profile. An existing file is not overwritten."""
    spec = realhf_import.read(Path(file).absolute())
    if name is None:
        name, source = spec.name, f"cluster_name in {spec.path}"
        target = profile_target(name, source, os.environ, "use --name NAME")
    else:
        target = profile_target(name, "--name", os.environ)
        if "cluster_name" in spec.results:
            spec.results["cluster_name"] = f"not used: the profile's name is {name} (--name)"
    create(target, realhf_import.profile_text(spec, name))
    for text in spec.warnings:
        warn(text)
    for text in spec.notes:
        note(text)
    if as_json:
        print_json(profile=name, path=str(target), keys=spec.results, warnings=spec.warnings)
        return
    print(target)
    width = max(map(len, spec.results), default=0)
    for key, result in spec.results.items():
        print(f"{format_value(key):<{width}}  {format_value(result)}")


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration files, for an editor's YAML support."""
    print(json.dumps(file_schema(), indent=2))
