"""Parse command lines as Slurm's commands do, for the options that a fake command supports."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn


class CommandOptions:
    """The supported options of one command: those with a value, and those without."""

    def __init__(self, program: str, valued: Sequence[str], plain: Sequence[str], short: Mapping[str, str]) -> None:
        self.program = program
        self.valued = frozenset(valued)
        self.plain = frozenset(plain)  # a value is optional, after a =
        self.short = short  # letter -> name

    def parse(self, argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """The options, and the words after them."""
        found: dict[str, str] = {}
        rest = list(argv)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            if word.startswith("--"):
                name, equals, value = word[2:].partition("=")
            else:
                name, equals, value = self.short.get(word[1], word), "=" if word[2:] else "", word[2:].removeprefix("=")
            if name in self.plain and not (equals and not word.startswith("--")):
                found[name] = value
            elif name in self.plain:  # -lu
                found[name] = ""
                rest.insert(0, "-" + word[2:])
            elif name not in self.valued:
                self.fail(f"unrecognized option '{word}': not supported in a rehearsal", 255)
            elif equals:
                found[name] = value
            elif rest:
                found[name] = rest.pop(0)
            else:
                self.fail(f"option '{word}' requires an argument", 255)
        return found, rest

    def number(self, options: Mapping[str, str], name: str, default: int) -> int:
        text = options.get(name)
        if text is None:
            return default
        first = text.partition("-")[0]  # --nodes=2-4: the minimum is allocated
        if not first.isdigit() or not int(first):
            self.fail(f"invalid value for --{name}: '{text}'")
        return int(first)

    def fail(self, message: str, code: int = 1) -> NoReturn:
        print(f"{self.program}: error: {message}", file=sys.stderr)
        sys.exit(code)
