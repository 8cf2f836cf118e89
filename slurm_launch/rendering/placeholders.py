"""Placeholders of a sweep in the command: {lr} becomes a use of the variable lr, quoted as its place in the code needs.

    train.py --lr {lr} --name "run {seed}" --note 'lr={lr}'
    train.py --lr "${lr}" --name "run ${seed}" --note 'lr='"${lr}"''

The value itself never gets into the code: whatever characters it has, the command gets them to the letter. For this
the shell text is read as bash does: quotes, comments, substitutions, here-documents.
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
# What the text is inside of: how a placeholder is written there, or None where it cannot be right.
_FORMS = {
    "code": '"${%s}"',
    "(": '"${%s}"',
    '"': "${%s}",
    "((": '"${%s}"',  # as right for a (subshell) in brackets, which begins the same
    "'": "'\"${%s}\"'",
    "$'": "'\"${%s}\"$'",
    "`": None,
    "${": None,
}


def fill(command: str, keys: Iterable[str]) -> str:
    """The command with its placeholders written as uses of the variables; UsageError for one that is no key."""
    return _Reader(command, tuple(keys)).read()


class _Reader:
    """One pass over the text."""

    def __init__(self, text: str, keys: tuple[str, ...]) -> None:
        self.text, self.keys = text, keys
        self.out: list[str] = []
        self.at = 0
        self.inside = ["code"]
        self.here: list[tuple[bool, str]] = []  # here-documents that begin on the next line: tabs go, and their end
        self.lost = False  # whether we may have mistaken what ends where

    def read(self) -> str:
        while self.at < len(self.text):
            if not self._brace():
                {"'": self._in_single, "$'": self._in_ansi}.get(self.inside[-1], self._in_code)()
        return "".join(self.out)

    def _take(self, count: int = 1) -> None:
        self.out.append(self.text[self.at : self.at + count])
        self.at += count

    def _next(self, *texts: str) -> bool:
        return self.text.startswith(texts, self.at)

    # Braces

    def _brace(self) -> bool:
        """A placeholder, or {{name}}, which is a plain {name}; ${name} is left to the shell everywhere."""
        if self.text[self.at] != "{" or (self.at and self.text[self.at - 1] == "$"):
            return False
        if literal := _LITERAL.match(self.text, self.at):
            self.out.append(literal[1])
            self.at = literal.end()
            return True
        if found := _PLACEHOLDER.match(self.text, self.at):
            self.out.append(self._use(found[1]))
            self.at = found.end()
            return True
        return False

    def _use(self, name: str) -> str:
        if name not in self.keys:
            close = get_close_matches(name, self.keys, n=1)
            hint = f"did you mean {{{close[0]}}}? " if close else ""
            hint += f"the sweep has {', '.join(self.keys)}; write {{{{{name}}}}} for the plain text {{{name}}}"
            raise UsageError(f"--command has {{{name}}}, which is no key of the sweep", at=self._place(), hint=hint)
        form = _FORMS[self.inside[-1]]
        if form is None or self.lost:
            where = {"`": "within `...`", "${": "within ${...}"}.get(
                self.inside[-1], "where its quoting cannot be told"
            )
            raise self._refusal(name, where)
        if self.inside[-1] == '"' and self.out and re.search(r"(?<!\\)(\\\\)*\\$", self.out[-1]):
            return "\\" + form % name  # a plain backslash stands before it: it must not make a plain $ of ours
        return form % name

    def _refusal(self, name: str, where: str) -> UsageError:
        hint = f"use the variable there: ${name}, in double quotes"
        return UsageError(f"--command has {{{name}}} {where}", at=self._place(), hint=hint)

    def _place(self) -> str:
        return f"--command, line {self.text.count(chr(10), 0, self.at) + 1}"

    # Quotes

    def _in_single(self) -> None:
        self._end_with("'")

    def _in_ansi(self) -> None:
        if self._next("\\"):
            self._take(2)
        else:
            self._end_with("'")

    def _end_with(self, mark: str) -> None:
        if self._next(mark):
            self.inside.pop()
        self._take()

    # Code, and all that is read like it: double quotes, substitutions, arithmetic

    def _in_code(self) -> None:
        inside = self.inside[-1]
        if self._next("\\"):
            self._backslash(quoted=inside == '"')
        elif self._next("`") or inside == "`":
            self._backquote()
        elif self._next("${"):
            self._begin("${")
        elif self._next("$(("):
            self._begin("$((", "((")
        elif self._next("$("):
            self._begin("$(", "(")
        elif inside == "((":
            self._arithmetic()
        elif self._next('"'):
            self._begin_or_end('"')
        elif inside == '"':
            self._take()
        elif inside == "${" and self.inside[-2] == '"' and self._next("'"):
            self.lost = True  # it depends on the operator whether this is a quote
            self._take()
        elif self._next("$'"):
            self._begin("$'")
        elif self._next("'"):
            self._begin("'")
        elif inside == "${":
            self._end_with("}")
        else:
            self._plain_code()

    def _backquote(self) -> None:
        """Within it nothing counts but its end."""
        if self._next("`"):
            self._begin_or_end("`")
        else:
            self._take()

    def _backslash(self, quoted: bool) -> None:
        """With what it makes plain; in double quotes it does so for a few characters only."""
        if quoted and self.text[self.at + 1 : self.at + 2] not in ("$", "`", '"', "\\", "\n"):
            self._take()
        else:
            self._take(2)

    def _begin(self, mark: str, inside: str | None = None) -> None:
        self.inside.append(inside or mark)
        self._take(len(mark))

    def _begin_or_end(self, mark: str) -> None:
        if self.inside[-1] == mark:
            self._end_with(mark)
        else:
            self._begin(mark)

    def _arithmetic(self) -> None:
        """Up to the two brackets that end it; those within come in pairs."""
        outermost = self.inside[-2] != "(("
        if self._next("("):
            self.inside.append("((")
        elif outermost and self._next("))"):
            self.inside.pop()
            self._take()
        elif self._next(")"):
            self.lost = self.lost or outermost  # it was a subshell in brackets
            self.inside.pop()
        self._take()

    def _plain_code(self) -> None:
        starts_word = self.at == 0 or self.text[self.at - 1] in _WORD_ENDS
        if self._next("#") and starts_word:
            end = self.text.find("\n", self.at)
            self._take((len(self.text) if end < 0 else end) - self.at)
        elif self._next("<<<"):
            self._take(3)
        elif here := _HERE.match(self.text, self.at):
            self.here.append((here[1] == "-", re.sub(r"['\"\\]", "", here[2])))
            self._take(len(here[0]))
        elif self._next("\n"):
            self._take()
            self._here_documents()
        elif self._next("((") and starts_word:
            self._begin("((")
        elif self._next("("):
            self._begin("(")
        elif self._next(")"):
            if self.inside[-1] == "(":  # else it belongs to a pattern of `case`
                self.inside.pop()
            self._take()
        elif starts_word and len(self.inside) > 1 and re.compile(r"case\s").match(self.text, self.at):
            self.lost = True  # the brackets of its patterns have no partners
            self._take(4)
        else:
            self._take()

    def _here_documents(self) -> None:
        for tabs, end in self.here:
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                line = self.text[self.at : len(self.text) if stop < 0 else stop + 1]
                if (line.lstrip("\t") if tabs else line).rstrip("\n") == end:
                    self._take(len(line))
                    break
                self._here_line(line)
        self.here.clear()

    def _here_line(self, line: str) -> None:
        """As it is: it may be any language. Only the sweep's own keys count."""
        for found in _PLACEHOLDER.finditer(line):
            before, after = line[: found.start()][-1:], line[found.end() :][:1]
            if found[1] in self.keys and before != "$" and (before, after) != ("{", "}"):
                raise self._refusal(found[1], "within a here-document")
        names = "|".join(map(re.escape, self.keys))
        self.out.append(re.sub(rf"\{{(\{{(?:{names})\}})\}}", r"\1", line))
        self.at += len(line)
