"""The Jinja environment: the location of the templates, and the quoting of values in them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_launch.errors import UsageError

if TYPE_CHECKING:
    import jinja2

# A wheel has the templates inside the package; a checkout at the top, where people look for them.
_PACKAGE = Path(__file__).parent.parent
TEMPLATES = next(p for p in (_PACKAGE / "templates", _PACKAGE.parent / "templates") if p.is_dir())


class Raw(str):
    """Text that is code by intent: it is written to the script verbatim."""

    __slots__ = ()


def _quote(value: Any) -> str:
    """Jinja's finalize: every value in the script is quoted as one shell word, unless it is Raw."""
    return value if isinstance(value, Raw) else shlex.quote(str(value))


def _words(values: Iterable[Any]) -> Raw:
    return Raw(" ".join(shlex.quote(str(value)) for value in values))


def _first_line(code: str) -> str:
    return code.strip().splitlines()[0][:100]


@lru_cache
def _environment() -> jinja2.Environment:
    import jinja2  # a third of the time of a render: imported on first use

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # `{#` occurs in bash: ${#array[@]}
        comment_end_string="##}",
    )
    environment.filters.update(words=_words, raw=Raw, first_line=_first_line)
    return environment


@lru_cache
def built_in(name: str) -> jinja2.Template:
    """Return a template of the package."""
    return _environment().get_template(name)


def from_user(path: str) -> jinja2.Template:
    """Return the user's own template. It is read on every call, because the user may be editing it."""
    import jinja2

    try:
        return _environment().from_string(Path(path).read_text(encoding="utf-8"))
    except jinja2.TemplateSyntaxError as error:
        at = f"{path}:{error.lineno}"
        raise UsageError(f"the template has a syntax error: {error.message}", at=at, hint="fix that line") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the template cannot be read: {error}", at="--template", hint="use a readable file") from None
