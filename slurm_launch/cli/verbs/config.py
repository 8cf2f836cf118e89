"""`slurm-launch config show|path|init|import|schema`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_launch.cli.options import SpecCommand, resolve, takes_spec
from slurm_launch.cli.output import (
    markup,
    note,
    print_error,
    print_json,
    warn,
)
from slurm_launch.config.files import (
    PROJECT_FILE,
    create,
    profile_folders,
    profile_names,
    profile_target,
)
from slurm_launch.config.messages import shown
from slurm_launch.config.starter_file import file_schema, starter_file
from slurm_launch.errors import InvalidSpec, UsageError
from slurm_launch.spec.launch_spec import LaunchSpec

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=markup(),
    no_args_is_help=True,
    help="Show, locate and begin the configuration.",
)

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


def show(flags: dict[str, Any], as_json: Json = False) -> int:
    """Print every value and where it comes from."""
    found = resolve(flags)
    problems = found.check()
    rows: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for name, field in LaunchSpec.model_fields.items():
        default = None if field.is_required() else field.get_default()
        rows[name.replace("_", "-")] = (found.values.get(name, default), found.sources[name])
    site = found.site_facts
    if as_json:
        facts = {key: (value, site.sources(key)) for key, value in site.plain().items()}
        print_json(values=_told(rows), site=_told(facts), problems=[str(problem) for problem in problems])
    else:
        rows |= site.rows()
        keys, texts = max(map(len, rows)), {key: shown(value) for key, (value, _) in rows.items()}
        width = min(40, max(map(len, texts.values())))
        for key, (_, sources) in rows.items():
            print(f"{key:<{keys}}  {texts[key]:<{width}}  {', '.join(sources)}")
    if problems:
        print_error(InvalidSpec(problems))
    return UsageError.exit_code if problems else 0


def _told(rows: dict[str, tuple[Any, tuple[str, ...]]]) -> dict[str, Any]:
    return {key: {"value": value, "sources": list(sources)} for key, (value, sources) in rows.items()}


app.command(cls=SpecCommand, name="show", help="Print every value and where it comes from.")(takes_spec(show))


@app.command()
def path(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="As for submit.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="As for submit.")] = None,
    as_json: Json = False,
) -> int:
    """Print which files are looked for, the strongest first, and which of them are read."""
    given = {"config": config, "profile": profile}
    found = resolve({name: value for name, value in given.items() if value is not None})
    names = profile_names(os.environ)
    problems = list(found.problems)  # of the files; what is missing for a job is no matter here
    if as_json:
        told = [str(problem) for problem in problems]
        print_json(files=[vars(file) for file in found.files], profiles=names, problems=told)
    else:
        width = max(10, *(len(file.role) for file in found.files))
        for file in found.files:
            print(f"{file.role:<{width}}  {file.state:<8}  {file.path}" + (f"  ({file.why})" if file.why else ""))
        places = " or ".join(map(str, profile_folders(os.environ)))
        print(f"{'profiles':<{width}}  {', '.join(names) or f'none; they belong in {places}'}")
    if problems:
        print_error(InvalidSpec(problems))
    return UsageError.exit_code if problems else 0


@app.command()
def init(
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Begin a profile instead of a project file.")
    ] = None,
) -> None:
    """Write a file with every option in it, explained and commented out; nothing is overwritten."""
    target = Path(PROJECT_FILE).absolute() if profile is None else profile_target(profile, "--profile", os.environ)
    create(target, starter_file(profile))
    print(target)
    note("take the # away from the lines that you need")


@app.command(name="import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A cluster spec, as ReaL's CLUSTER_SPEC_PATH names it.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the profile. Default: cluster_name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a profile from ReaL's cluster spec; nothing is overwritten."""
    from slurm_launch.config import realhf_import

    spec = realhf_import.read(Path(file).absolute())
    if name is None:
        name, source = spec.name, f"cluster_name in {spec.path}"
        target = profile_target(name, source, os.environ, "give --name NAME instead")
    else:
        target = profile_target(name, "--name", os.environ)
        if "cluster_name" in spec.fates:
            spec.fates["cluster_name"] = f"not used: the profile's name is {name} (--name)"
    create(target, realhf_import.profile_text(spec, name))
    for text in spec.warnings:
        warn(text)
    for text in spec.notes:
        note(text)
    if as_json:
        print_json(profile=name, path=str(target), keys=spec.fates, warnings=spec.warnings)
        return
    print(target)
    width = max(map(len, spec.fates), default=0)
    for key, fate in spec.fates.items():
        print(f"{shown(key):<{width}}  {shown(fate)}")


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration files, for an editor's YAML support."""
    print(json.dumps(file_schema(), indent=2))
