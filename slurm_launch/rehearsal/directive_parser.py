"""How sbatch reads a `#SBATCH` line; tests/slurm/test_values_arrive.py holds this against the real one."""

from __future__ import annotations

BLANKS = " \t"


class Unreadable(Exception):
    """sbatch refuses the line."""


def words(line: str) -> list[str]:
    """The arguments that sbatch makes of a line, or Unreadable."""
    if not line.startswith("#SBATCH"):
        raise Unreadable(line)
    found: list[str] = []
    rest = line.removeprefix("#SBATCH").lstrip(BLANKS)
    while rest:
        word, rest = _word(rest)
        if not word:  # a comment, or a lonely backslash: the rest is not looked at
            break
        found.append(word)
    return found


def _word(text: str) -> tuple[str, str]:
    """The first word of a text, and what follows it."""
    word, quote, escaped = "", "", False
    for place, char in enumerate(text):
        if (
            not quote and char in BLANKS
        ):  # escaped or not; Slurm 26.05 lets an escaped one pass, so a line had better have none
            return word, text[place:].lstrip(BLANKS)
        if escaped:
            word, escaped = word + char, False
        elif char == "\\":
            escaped = True
        elif quote:
            word, quote = (word, "") if char == quote else (word + char, quote)
        elif char in "\"'":
            quote = char
        elif char == "#":
            return word, ""
        else:
            word += char
    if quote:
        raise Unreadable(f"unmatched {quote}: {text}")
    return word, ""
