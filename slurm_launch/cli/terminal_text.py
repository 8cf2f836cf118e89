"""The text of a log as the screen shows it, without terminal control sequences."""

from __future__ import annotations

import codecs
import re

from slurm_launch.runs.log_phases import number, phase_of

MAX_LINES = 1000
MAX_COLUMNS = 2000
# Phases that the screen shows in other words.
HIDDEN_PHASES = frozenset({"starting", "joined", "ready", "command", "stopping", "end"})
_CONTROL = re.compile(
    r"\x1b\[(?P<value>[0-?]*)[ -/]*(?P<command>[@-~])"  # cursor movement, colors
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[^\[\]]"
    r"|[\n\r]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?)?\Z")


class Tail:
    """The last lines of a text as a terminal shows them: a progress bar overwrites itself."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0
        self._overwrite = False  # whether the next text replaces its line
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""  # the start of a control sequence

    def add(self, data: bytes) -> None:
        text = self._rest + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        text = text[: len(text) - len(self._rest)]
        position = 0
        for control in _CONTROL.finditer(text):
            self._write(text[position : control.start()])
            position = control.end()
            self._apply(control)
        self._write(text[position:])
        if len(self.lines) > 2 * MAX_LINES:
            gone = len(self.lines) - MAX_LINES
            self.lines, self._row = self.lines[gone:], max(0, self._row - gone)

    def last(self, count: int) -> list[str]:
        """The last lines, without an empty last line, where the cursor is."""
        lines = self.lines[:-1] if not self.lines[-1] else self.lines
        shown = [line for line in lines[-count - 1 :] if not _is_hidden(line)] if count > 0 else []
        return shown[-count:]

    def _write(self, text: str) -> None:
        if not text:
            return
        text = "".join(char if char.isprintable() else " " * (char == "\t") * 4 for char in text)
        before = "" if self._overwrite else self.lines[self._row]
        self._overwrite = False
        self.lines[self._row] = (before + text)[:MAX_COLUMNS]

    def _apply(self, control: re.Match[str]) -> None:
        if control[0] == "\r":
            self._overwrite = True
        elif control[0] == "\n":
            self._next()
        elif control["command"] == "A":
            self._row = max(0, self._row - (number(control["value"] or "1") or 0))
            self._overwrite = True
        elif control["command"] == "K" and self._overwrite:
            self.lines[self._row] = ""

    def _next(self) -> None:
        self._overwrite = False
        line = self.lines[self._row]
        if _is_hidden(line):
            del self.lines[self._row]
        else:
            self._row += 1
        if self._row == len(self.lines):
            self.lines.append("")
        else:
            self._overwrite = True


def _is_hidden(line: str) -> bool:
    phase = phase_of(line)
    return phase is not None and phase.name in HIDDEN_PHASES and line.startswith("[slurm-launch]")
