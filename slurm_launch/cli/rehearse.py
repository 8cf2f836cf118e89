"""`slurm-launch rehearse`."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, TextIO

import typer

from slurm_launch.cli.options import origin, resolve, verb_app
from slurm_launch.cli.output import note, print_json
from slurm_launch.rehearsal import faults
from slurm_launch.rehearsal import rehearse as rehearsal


def rehearse(
    flags: dict[str, Any],
    fault: Annotated[
        str | None,
        typer.Option(
            metavar="FAULT",
            help="Play a failure: " + ", ".join(f"{kind} ({what})" for kind, what in faults.KINDS.items()) + "."
            " A worker or node is chosen by its number: worker-dies:2.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON; the log goes to stderr.")] = False,
) -> int:
    found = resolve(flags)
    spec = found.spec()
    screen = Screen(sys.stderr if as_json else sys.stdout, spec.nodes)
    try:
        done = rehearsal.rehearse(spec, fault=fault, embedded=origin(found), tell=screen.note, audience=screen)
    finally:
        screen.close()
    run = done.run
    if as_json:
        print_json(exit_code=done.code, **{key: value for key, value in asdict(run).items() if key != "schema"})
    else:
        note(f"rehearsed; the files are {run.script.removesuffix('.sh')}.sh, .log and .json")
    return done.code


class Screen(rehearsal.Audience):
    """The log as it comes and, on a terminal, below it a line that tells how far it is."""

    def __init__(self, out: TextIO, nodes: int) -> None:
        self.out = out
        self.live = out.isatty() and sys.stderr.isatty()
        self.nodes = nodes
        self.joined = 0
        self.began = time.monotonic()
        self.phase: str | None = "starting"
        self.drawn = ""
        self.unfinished = ""  # a line of the log that has no end yet: below it there is no room for ours

    def text(self, text: str) -> None:
        self._erase()
        self.out.write(text)
        self.out.flush()
        lines = (self.unfinished + text).split("\n")
        self.unfinished = lines.pop()
        for line in lines:
            match = re.match(r"\[slurm-launch\] \d{4}-\S+ (\S+)(?:.* nodes=(\d+)/)?", line)
            if match:
                self.phase = match[1]
                self.joined = int(match[2] or self.joined)

    def tick(self) -> None:
        if not self.live or self.unfinished:
            return
        if self.phase in ("starting", "joined", "retry", "warning"):
            what = f"nodes joined {self.joined}/{self.nodes}"
        else:
            what = {"end": "ending", "command": "the command runs"}.get(self.phase or "", "")
        line = f"... {what}, {time.monotonic() - self.began:.0f} s" if what else ""
        if line != self.drawn:
            self._erase()
            sys.stderr.write(line)
            sys.stderr.flush()
            self.drawn = line

    def note(self, text: str) -> None:
        self._erase()
        note(text)

    def close(self) -> None:
        self._erase()

    def _erase(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self.drawn = ""


app = verb_app(rehearse, help="Run the script here, without Slurm: every node is a Ray of its own on this machine.")
