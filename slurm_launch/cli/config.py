"""`slurm-launch config show|path|init|schema`."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from slurm_launch.cli.options import SpecCommand, resolve, takes_spec
from slurm_launch.cli.output import markup, note, print_error, print_json
from slurm_launch.config_files import PROJECT_FILE, profile_names, user_folder
from slurm_launch.config_text import file_schema, starter_file
from slurm_launch.errors import InvalidSpec, UsageError
from slurm_launch.spec import LaunchSpec

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
    rows = {}
    for name, field in LaunchSpec.model_fields.items():
        default = None if field.is_required() else field.get_default()
        rows[name.replace("_", "-")] = (found.values.get(name, default), found.sources[name])
    if as_json:
        values = {key: {"value": value, "sources": list(sources)} for key, (value, sources) in rows.items()}
        print_json(values=values, problems=[str(problem) for problem in problems])
    else:
        keys, texts = max(map(len, rows)), {key: _shown(value) for key, (value, _) in rows.items()}
        width = min(40, max(map(len, texts.values())))
        for key, (_, sources) in rows.items():
            print(f"{key:<{keys}}  {texts[key]:<{width}}  {', '.join(sources)}")
    if problems:
        print_error(InvalidSpec(problems))
    return UsageError.exit_code if problems else 0


def _shown(value: Any) -> str:
    """A value on one line."""
    if value is None or value in ([], (), {}):
        return "-"
    if isinstance(value, dict):
        value = [key if text is None else f"{key}={text}" for key, text in value.items()]
    if isinstance(value, (list, tuple)):
        return _shown(shlex.join(str(item) for item in value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if str(value).isprintable() else json.dumps(value)


app.command(cls=SpecCommand, name="show", help="Print every value and where it comes from.")(takes_spec(show))


@app.command()
def path(
    config: Annotated[str | None, typer.Option(metavar="FILE", help="As for submit.")] = None,
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="As for submit.")] = None,
    as_json: Json = False,
) -> None:
    """Print which files are looked for, the strongest first, and which of them are read."""
    given = {"config": config, "profile": profile}
    found = resolve({name: value for name, value in given.items() if value is not None})
    names = profile_names(os.environ)
    files = sorted(found.files, key=lambda file: ("project", "profile", "machine").index(file.role.split()[0]))
    if as_json:
        print_json(files=[vars(file) for file in files], profiles=names)
        return
    for file in files:
        print(f"{file.role:<10}  {file.state:<8}  {file.path}")
    print(f"{'profiles':<10}  {', '.join(names) or 'none'}")


@app.command()
def init(
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Begin a profile instead of a project file.")
    ] = None,
) -> None:
    """Write a file with every option in it, explained and commented out; nothing is overwritten."""
    target = Path(PROJECT_FILE).absolute() if profile is None else _profile_target(profile)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "x", encoding="utf-8") as file:
            file.write(starter_file(profile))
    except FileExistsError:
        raise UsageError("the file exists already", at=str(target), hint="edit it, or move it away first") from None
    except OSError as error:
        hint = "go to a directory that you may write to"
        raise UsageError(f"cannot write: {error.strerror or error}", at=str(target), hint=hint) from None
    print(target)
    note("take the # away from the lines that you need")


def _profile_target(name: str) -> Path:
    folder = user_folder(os.environ)
    if folder is None:
        raise UsageError("there is no home for a profile", hint="set HOME or XDG_CONFIG_HOME")
    if not name or "/" in name or name.startswith((".", "-")) or not name.isprintable():
        hint = "use letters and digits, for example the cluster's name"
        raise UsageError(f"--profile is not a name for a profile: {name!r}", at="flag --profile", hint=hint)
    return folder / "profiles" / f"{name}.yaml"


@app.command()
def schema() -> None:
    """Print the JSON schema of the configuration files, for an editor's YAML support."""
    print(json.dumps(file_schema(), indent=2))
