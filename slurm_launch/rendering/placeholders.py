"""Placeholders of a sweep: {lr} in the command becomes the variable lr, quoted as its context requires.

    train.py --lr {lr} --name "run {seed}" --note 'lr={lr}'
    train.py --lr "${lr}" --name "run ${seed}" --note 'lr='"${lr}"''

The value itself never becomes code: whatever characters it has, the command gets it verbatim. So the command is parsed
as bash does: quotes, comments, substitutions, here-documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from slurm_launch.errors import UsageError

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_PLACEHOLDER = re.compile(rf"\{{({_NAME})\}}")
_LITERAL = re.compile(rf"\{{(\{{{_NAME}\}})\}}")
_HERE = re.compile(r"<<(-?)[ \t]*((?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|()<>'\"\\])+)")
_WORD_ENDS = " \t\n;&|()<>"
# Context -> how a placeholder is written there; None where no form is right.
_FORMS = {
    "code": '"${%s}"',
    "(": '"${%s}"',
    '"': "${%s}",
    "((": '"${%s}"',  # right for ((subshell)) too, which starts the same way
    "'": "'\"${%s}\"'",
    "$'": "'\"${%s}\"$'",
    "`": None,
    "${": None,
}


def fill(command: str, keys: Iterable[str]) -> str:
    """Return the command with variables for its placeholders; raises UsageError for one that is not a key."""
    return _CommandParser(command, tuple(keys)).parse()


class _CommandParser:
    """Parses a command in one pass, and writes it with its placeholders replaced."""

    def __init__(self, text: str, keys: tuple[str, ...]) -> None:
        self.text, self.keys = text, keys
        self.out: list[str] = []
        self.at = 0
        self.contexts = ["code"]
        # Here-documents that start on the next line: whether tabs are stripped, and the end mark.
        self.here_documents: list[tuple[bool, str]] = []
        self.uncertain = False  # whether the context may be wrong

    def parse(self) -> str:
        while self.at < len(self.text):
            if self._replace_placeholder():
                continue
            if self.contexts[-1] == "'":
                self._in_single()
            elif self.contexts[-1] == "$'":
                self._in_ansi()
            else:
                self._in_code()
        return "".join(self.out)

    def _copy(self, count: int = 1) -> None:
        self.out.append(self.text[self.at : self.at + count])
        self.at += count

    def _starts_with(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.at)

    # Braces

    def _replace_placeholder(self) -> bool:
        """Replace a placeholder, or {{name}} by a literal {name}; ${name} is left to the shell."""
        if self.text[self.at] != "{" or (self.at and self.text[self.at - 1] == "$"):
            return False
        if literal := _LITERAL.match(self.text, self.at):
            self.out.append(literal[1])
            self.at = literal.end()
            return True
        if found := _PLACEHOLDER.match(self.text, self.at):
            self.out.append(self._variable(found[1]))
            self.at = found.end()
            return True
        return False

    def _variable(self, name: str) -> str:
        if name not in self.keys:
            close = get_close_matches(name, self.keys, n=1)
            hint = f"did you mean {{{close[0]}}}? " if close else ""
            hint += f"the sweep has {', '.join(self.keys)}; write {{{{{name}}}}} for the literal text {{{name}}}"
            raise UsageError(f"--command has {{{name}}}, which is not a key of the sweep", at=self._line(), hint=hint)
        form = _FORMS[self.contexts[-1]]
        if form is None or self.uncertain:
            where = {"`": "within `...`", "${": "within ${...}"}.get(
                self.contexts[-1], "where its quoting cannot be determined"
            )
            raise self._refusal(name, where)
        if self.contexts[-1] == '"' and self.out and re.search(r"(?<!\\)(\\\\)*\\$", self.out[-1]):
            return "\\" + form % name  # after a literal backslash: it must not escape our $
        return form % name

    def _refusal(self, name: str, where: str) -> UsageError:
        hint = f"use the variable there: ${name}, in double quotes"
        return UsageError(f"--command has {{{name}}} {where}", at=self._line(), hint=hint)

    def _line(self) -> str:
        return f"--command, line {self.text.count(chr(10), 0, self.at) + 1}"

    # Quotes

    def _in_single(self) -> None:
        self._end_with("'")

    def _in_ansi(self) -> None:
        if self._starts_with("\\"):
            self._copy(2)
        else:
            self._end_with("'")

    def _end_with(self, mark: str) -> None:
        if self._starts_with(mark):
            self.contexts.pop()
        self._copy()

    # Code, and what is parsed like it: double quotes, substitutions, arithmetic

    def _in_code(self) -> None:
        context = self.contexts[-1]
        if self._starts_with("\\"):
            self._backslash(quoted=context == '"')
        elif self._starts_with("`") or context == "`":
            self._backquote()
        elif self._starts_with("${"):
            self._begin("${")
        elif self._starts_with("$(("):
            self._begin("$((", "((")
        elif self._starts_with("$("):
            self._begin("$(", "(")
        elif context == "((":
            self._arithmetic()
        elif self._starts_with('"'):
            self._begin_or_end('"')
        elif context == '"':
            self._copy()
        elif context == "${" and self.contexts[-2] == '"' and self._starts_with("'"):
            self.uncertain = True  # whether this is a quote depends on the operator
            self._copy()
        elif self._starts_with("$'"):
            self._begin("$'")
        elif self._starts_with("'"):
            self._begin("'")
        elif context == "${":
            self._end_with("}")
        else:
            self._plain_code()

    def _backquote(self) -> None:
        """Skip `...`: only its end matters."""
        if self._starts_with("`"):
            self._begin_or_end("`")
        else:
            self._copy()

    def _backslash(self, quoted: bool) -> None:
        """Copy it with the character that it escapes; in double quotes it escapes only a few."""
        if quoted and self.text[self.at + 1 : self.at + 2] not in ("$", "`", '"', "\\", "\n"):
            self._copy()
        else:
            self._copy(2)

    def _begin(self, mark: str, inside: str | None = None) -> None:
        self.contexts.append(inside or mark)
        self._copy(len(mark))

    def _begin_or_end(self, mark: str) -> None:
        if self.contexts[-1] == mark:
            self._end_with(mark)
        else:
            self._begin(mark)

    def _arithmetic(self) -> None:
        """Copy up to the )) that ends it; the brackets inside are balanced."""
        outermost = self.contexts[-2] != "(("
        if self._starts_with("("):
            self.contexts.append("((")
        elif outermost and self._starts_with("))"):
            self.contexts.pop()
            self._copy()
        elif self._starts_with(")"):
            self.uncertain = self.uncertain or outermost  # it was ((subshell))
            self.contexts.pop()
        self._copy()

    def _plain_code(self) -> None:
        starts_word = self.at == 0 or self.text[self.at - 1] in _WORD_ENDS
        if self._starts_with("#") and starts_word:
            end = self.text.find("\n", self.at)
            self._copy((len(self.text) if end < 0 else end) - self.at)
        elif self._starts_with("<<<"):
            self._copy(3)
        elif here := _HERE.match(self.text, self.at):
            self.here_documents.append((here[1] == "-", re.sub(r"['\"\\]", "", here[2])))
            self._copy(len(here[0]))
        elif self._starts_with("\n"):
            self._copy()
            self._copy_here_documents()
        elif self._starts_with("((") and starts_word:
            self._begin("((")
        elif self._starts_with("("):
            self._begin("(")
        elif self._starts_with(")"):
            if self.contexts[-1] == "(":  # otherwise it belongs to a pattern of `case`
                self.contexts.pop()
            self._copy()
        elif starts_word and len(self.contexts) > 1 and re.compile(r"case\s").match(self.text, self.at):
            self.uncertain = True  # the brackets of its patterns are not balanced
            self._copy(4)
        else:
            self._copy()

    def _copy_here_documents(self) -> None:
        for tabs, end in self.here_documents:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                line = self.text[self.at : len(self.text) if stop < 0 else stop + 1]
                if (line.lstrip("\t") if tabs else line).rstrip("\n") == end:
                    self._copy(len(line))
                    break
                self._copy_here_line(line)
        self.here_documents.clear()

    def _copy_here_line(self, line: str) -> None:
        """Copy a line verbatim: it may be any language. Only keys of the sweep are refused."""
        for found in _PLACEHOLDER.finditer(line):
            before, after = line[: found.start()][-1:], line[found.end() :][:1]
            if found[1] in self.keys and before != "$" and (before, after) != ("{", "}"):
                raise self._refusal(found[1], "within a here-document")
        names = "|".join(map(re.escape, self.keys))
        self.out.append(re.sub(rf"\{{(\{{(?:{names})\}})\}}", r"\1", line))
        self.at += len(line)
