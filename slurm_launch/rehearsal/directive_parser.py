"""How sbatch parses a `#SBATCH` line; tests/slurm/test_values_arrive.py compares this with the real sbatch."""

from __future__ import annotations

SPACES = " \t"


class Unreadable(Exception):
    """sbatch refuses the line."""


def words(line: str) -> list[str]:
    """The arguments that sbatch parses from a line; raises Unreadable."""
    if not line.startswith("#SBATCH"):
        raise Unreadable(line)
    found: list[str] = []
    rest = line.removeprefix("#SBATCH").lstrip(SPACES)
    while rest:
        word, rest = _word(rest)
        if not word:  # a comment, or a lone backslash: sbatch ignores the rest
            break
        found.append(word)
    return found


def _word(text: str) -> tuple[str, str]:
    """The first word of a text, and the rest."""
    word, quote, escaped = "", "", False
    for place, char in enumerate(text):
        # Escaped or not. Slurm 26.05 keeps an escaped space, so generated lines contain none.
        if not quote and char in SPACES:
            return word, text[place:].lstrip(SPACES)
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
