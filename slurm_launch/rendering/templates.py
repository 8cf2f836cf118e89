"""The Jinja environment: the location of the templates, and the quoting of values in them."""

from __future__ import annotations

import re
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


def shell_word(text: str) -> str:
    """Return a text quoted as one word of bash, in the form that reads best and that shellcheck accepts as data.

    Words of letters only are quoted, too: `x=continue` looks like a command, and `$` in single quotes like a mistake.
    """
    if re.fullmatch(r"(?=.*[0-9_@%+=:./-])[A-Za-z0-9_@%+=:./-]+", text):
        return text
    if not set("'$`") & set(text):
        return f"'{text}'"
    escaped = re.sub(r'([\\"$`])', r"\\\1", text)
    return f'"{escaped}"'


def _finalize(value: Any) -> str:
    """Every value in the script is quoted as one word of bash, unless it is Raw."""
    return value if isinstance(value, Raw) else shell_word(str(value))


def _words(values: Iterable[Any]) -> Raw:
    return Raw(" ".join(shell_word(str(value)) for value in values))


def _first_line(code: str) -> str:
    return code.strip().splitlines()[0][:100]


def _align(text: str) -> Raw:
    """Return lines with their comments in one column, as shfmt wants it; a tab separates them in the template."""
    lines = [line.partition("\t#") for line in text.splitlines()]
    width = max(len(code) for code, _, _ in lines)
    return Raw("".join(f"{code:{width}} #{comment}\n" if tab else f"{code}\n" for code, tab, comment in lines))


@lru_cache
def _environment() -> jinja2.Environment:
    import jinja2.ext  # a third of the time of a render: imported on first use

    class CommentStatements(jinja2.ext.Extension):
        """A line `#% if x` is the statement `{% if x %}`; for bash it is a comment, so that parts are plain bash."""

        def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
            return re.sub(r"^[ \t]*#% (.*)$", r"{% \1 %}", source, flags=re.MULTILINE)

    environment = jinja2.Environment(
        extensions=[CommentStatements],
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # `{#` occurs in bash: ${#array[@]}
        comment_end_string="##}",
    )
    environment.filters.update(words=_words, raw=Raw, first_line=_first_line, align=_align)
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
