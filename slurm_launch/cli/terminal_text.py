"""The text of a log as a screen may show it: no command for the terminal gets through."""

from __future__ import annotations

import codecs
import re

from slurm_launch.runs.log_phases import number, phase_of

KEPT = 1000  # lines
WIDEST = 2000  # characters of a line
# Those of our lines that the screen tells in other words.
TOLD = frozenset({"starting", "joined", "ready", "command", "stopping", "end"})
_CONTROL = re.compile(
    r"\x1b\[(?P<value>[0-?]*)[ -/]*(?P<order>[@-~])"  # what moves the cursor or colours
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[^\[\]]"
    r"|[\n\r]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?)?\Z")


class Tail:
    """The last lines of a text, as a terminal would have them: a bar of progress overwrites its former self."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0
        self._anew = False  # whether the next text takes the place of its line
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""  # the beginning of an order to the terminal

    def add(self, data: bytes) -> None:
        text = self._rest + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        text = text[: len(text) - len(self._rest)]
        place = 0
        for control in _CONTROL.finditer(text):
            self._write(text[place : control.start()])
            place = control.end()
            self._obey(control)
        self._write(text[place:])
        if len(self.lines) > 2 * KEPT:
            gone = len(self.lines) - KEPT
            self.lines, self._row = self.lines[gone:], max(0, self._row - gone)

    def last(self, count: int) -> list[str]:
        """So many lines; an empty last one, where the cursor stands, is none."""
        lines = self.lines[:-1] if not self.lines[-1] else self.lines
        shown = [line for line in lines[-count - 1 :] if not _is_told(line)] if count > 0 else []
        return shown[-count:]

    def _write(self, text: str) -> None:
        if not text:
            return
        text = "".join(char if char.isprintable() else " " * (char == "\t") * 4 for char in text)
        before = "" if self._anew else self.lines[self._row]
        self._anew = False
        self.lines[self._row] = (before + text)[:WIDEST]

    def _obey(self, control: re.Match[str]) -> None:
        if control[0] == "\r":
            self._anew = True
        elif control[0] == "\n":
            self._next()
        elif control["order"] == "A":
            self._row = max(0, self._row - (number(control["value"] or "1") or 0))
            self._anew = True
        elif control["order"] == "K" and self._anew:
            self.lines[self._row] = ""

    def _next(self) -> None:
        self._anew = False
        line = self.lines[self._row]
        if _is_told(line):
            del self.lines[self._row]
        else:
            self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")
        else:
            self._anew = True


def _is_told(line: str) -> bool:
    phase = phase_of(line)
    return phase is not None and phase.name in TOLD and line.startswith("[slurm-launch]")
