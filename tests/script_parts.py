"""Pieces of generated scripts, for tests that run them in bash without Slurm."""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"^([a-z_]+)\(\) \{\n.*?^\}\n", re.DOTALL | re.MULTILINE)
CALL_OF_MAIN = "main\n"  # the last line


def all_functions(script: str) -> dict[str, str]:
    """The functions of a script by name, in their order."""
    found = [(match[1], match[0]) for match in _FUNCTION.finditer(script)]
    assert len(found) == len(dict(found)), "a function is defined twice"
    return dict(found)


def functions(script: str, *names: str) -> str:
    """The code of some functions of a script."""
    found = all_functions(script)
    return "".join(found[name] for name in names)


def loaded(script: str) -> str:
    """The script without the call of `main`: it has its settings and functions, and loads its environment."""
    assert script.endswith(f"\n{CALL_OF_MAIN}")
    return script.removesuffix(CALL_OF_MAIN)


def settings(script: str) -> str:
    """The part that a user may change: settings, environment and command."""
    before, found, _ = script.partition("\n# ---- What happens ---")
    assert found
    return before


def story(script: str) -> list[str]:
    """The steps of `main`, without their comments."""
    _, *steps, _ = all_functions(script)["main"].splitlines()
    return [step.partition("#")[0].strip() for step in steps]


def local_variables(function: str) -> set[str]:
    """The names that a function declares as local."""
    declared = re.findall(r"\blocal (.*)", bare_code(function))
    return {word.partition("=")[0] for line in declared for word in line.split() if not word.startswith("-")}


def assigned_variables(function: str) -> set[str]:
    """The names to which a function assigns, in any way."""
    code = bare_code(function)
    start = r"(?:^ *|; |&& |\|\| |\) |\b(?:do|then|export) )"
    names = set(re.findall(rf"{start}([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=(?!=|\*\))", code, re.MULTILINE))
    names |= set(re.findall(r"\bfor (?:\(\( *)?([A-Za-z_]\w*)", code))
    names |= set(re.findall(r"\bprintf -v (\w+)", code))
    names |= set(re.findall(r"\{(\w+)\}[<>]", code))  # exec {name}<file
    names |= set(re.findall(r"\bmapfile -t (\w+)", code))
    for words in re.findall(r"\bread ([^<;&|\n]*)", code):
        options = re.sub(r"-[dtu] \S+", "", words)
        names |= {word for word in options.split() if re.fullmatch(r"[A-Za-z]\w*", word)}
    return names | local_variables(function)


def called(function: str, names: set[str]) -> set[str]:
    """Those of the names that the code of a function has as words, wherever."""
    body = "\n".join(line for line in function.splitlines()[1:] if not line.lstrip().startswith("#"))
    return {name for name in names if re.search(rf"(?<![\w/.${{-]){name}(?![\w=/.-])", re.sub(r"\s#\s.*", "", body))}


def bare_code(code: str) -> str:
    """Code without its comments, with "" in the place of every text and expansion, and with empty arrays."""
    found, at = [], 0
    while at < len(code):
        if code[at] == "#" and (at == 0 or code[at - 1].isspace()):
            at = (code + "\n").index("\n", at)
        elif code[at] == "\\":
            at += 2
        elif (end := _end_of_text(code, at)) > at:
            found.append('""')
            at = end
        else:
            found.append(code[at])
            at += 1
    return re.sub(r"=\([^()]*\)", "=()", "".join(found))


def _end_of_text(code: str, start: int) -> int:
    """Where a text or an expansion that begins here ends; `start` if there is none."""
    if code[start] == "'":
        return code.index("'", start + 1) + 1
    if code[start] == '"':
        return _skip(code, start + 1, '"')
    if code.startswith("$'", start):
        return code.index("'", start + 2) + 1
    for opening, closing in (("$(", ")"), ("${", "}"), ("<(", ")")):
        if code.startswith(opening, start):
            return _skip(code, start + 2, closing)
    return start


def _skip(code: str, at: int, closing: str) -> int:
    """The place after the closing character, whatever is nested before it."""
    depth = 0
    while code[at] != closing or depth:
        plain = closing == '"' and code[at] in "'<"  # not special between double quotes
        if code[at] == "\\":
            at += 2
        elif not plain and (inner := _end_of_text(code, at)) > at:
            at = inner
        else:
            depth += {"(": 1, ")": -1}.get(code[at], 0) if closing == ")" else 0
            at += 1
    return at + 1
