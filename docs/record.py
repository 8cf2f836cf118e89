"""Record a command as an SVG of a terminal session. `make picture` regenerates the one in the README.

Lines appear with their original timing; long waits are shortened. Viewers without CSS animation show all lines at once.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

FONT, ROW, COLUMN = 13, 18, 7.83  # pixels
LONGEST_WAIT = 1.5  # seconds
BUTTONS = ("#bf616a", "#ebcb8b", "#a3be8c")
COLOURS = {"plain": "#d8dee9", "prompt": "#a3be8c", "ours": "#88c0d0", "talk": "#9aa5b8", "good": "#a3be8c"}


def main(target: str, command: list[str]) -> int:
    lines = [(0.0, "$ " + shlex.join(command).replace("'", '"'))]
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SLAUNCH_RUN_DIR": folder}
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout
        for line in process.stdout:
            text = line.rstrip("\n").replace(folder + "/", "").replace(str(Path.cwd()) + "/", "")
            if not re.search(r" INFO worker\.py|\tINFO ", text):  # skip Ray's own INFO messages
                lines.append((time.monotonic(), text))
        code = process.wait()
    Path(target).write_text(svg(lines), encoding="utf-8")
    return code


def svg(lines: list[tuple[float, str]]) -> str:
    lines = [(at, part) for at, text in lines for part in wrapped(text)]
    width = int(max(len(text) for _, text in lines) * COLUMN + 40)
    height = len(lines) * ROW + 62
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>text{{font:{FONT}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}}",
        ".l{animation:a .01s both}@keyframes a{from{opacity:0}to{opacity:1}}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#242933"/>',
        *(f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="{colour}"/>' for i, colour in enumerate(BUTTONS)),
    ]
    clock, before = 0.6, 0.0
    for number, (at, text) in enumerate(lines):
        if before:
            clock += min(at - before, LONGEST_WAIT)
        before = at
        out.append(
            f'<text class="l" style="animation-delay:{clock if number else 0:.2f}s" xml:space="preserve"'
            f' x="20" y="{52 + number * ROW}" fill="{COLOURS[kind(text)]}">{escape(text)}</text>'
        )
    return "\n".join([*out, "</svg>\n"])


def wrapped(text: str, columns: int = 118) -> list[str]:
    return [text[at : at + columns] for at in range(0, len(text), columns)] or [""]


def kind(text: str) -> str:
    if text.startswith("$ "):
        return "prompt"
    if text.startswith("[slurm-launch]"):
        return "good" if " outcome=ok " in text else "ours"
    return "talk" if text.startswith("note:") else "plain"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
