"""`slurm-launch rehearse`."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, TextIO

import typer

from slurm_launch.cli.options import origin, resolve, verb_app
from slurm_launch.cli.output import note, print_json
from slurm_launch.cli.preflight import checked
from slurm_launch.cli.signals import ended_in_order
from slurm_launch.rehearsal import faults
from slurm_launch.rehearsal import rehearse as rehearsal
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec


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
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="all|0,3-5", help="Tasks of an array or a sweep to rehearse, one after another. Default: the first."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON; the log goes to stderr.")] = False,
) -> int:
    found = resolve(flags)
    spec = checked(found)
    if tasks is not None:
        return _tasks(spec, tasks, fault, origin(found), as_json)
    screen = Screen(sys.stderr if as_json else sys.stdout, spec.nodes)
    with ended_in_order():  # the job, too, has to be ended
        try:
            done = rehearsal.rehearse(spec, fault=fault, embedded=origin(found), notify=screen.note, audience=screen)
        finally:
            screen.close()
    run = done.run
    if as_json:
        print_json(exit_code=done.code, **{key: value for key, value in asdict(run).items() if key != "schema"})
    else:
        stem = run.script.removesuffix(".sh")
        note(f"rehearsed; the files are {stem}.sh, {done.log.removeprefix(stem)} and .json")
    return done.code


def _tasks(spec: LaunchSpec, tasks: str, fault: str | None, embedded: EmbeddedSpec, as_json: bool) -> int:
    from slurm_launch.rehearsal.tasks import rehearse_tasks

    screens = [Screen(sys.stderr if as_json else sys.stdout, spec.nodes)]

    def next_screen() -> Screen:
        screens[-1].close()
        screens.append(Screen(screens[-1].out, spec.nodes))
        return screens[-1]

    def notify(text: str) -> None:
        screens[-1].note(text)

    with ended_in_order():
        try:
            done = rehearse_tasks(spec, tasks, fault=fault, embedded=embedded, notify=notify, audience=next_screen)
        finally:
            screens[-1].close()
    if as_json:
        codes = {str(task): one.code for task, one in done.played.items()}
        run = {key: value for key, value in asdict(done.run).items() if key not in ("schema", "tasks")}
        print_json(exit_code=done.code, tasks=codes, **run)
    else:
        well = sum(one.code == 0 for one in done.played.values())
        stem = done.run.script.removesuffix(".sh")
        note(f"rehearsed {len(done.played)} tasks, {well} of them well; the files are {stem}.sh, _TASK.log and .json")
    return done.code


# The phases of the log that change what goes on; the words for the bring-up tell how far it is.
PHASES = {"starting": "", "command": "the command runs", "end": "ending"}


class Screen(rehearsal.Audience):
    """The log as it comes and, on a terminal, below it a line that tells how far it is."""

    def __init__(self, out: TextIO, nodes: int) -> None:
        self.out = out
        self.live = out.isatty() and sys.stderr.isatty()
        self.nodes = nodes
        self.joined = 0
        self.began = time.monotonic()
        self.phase = "starting"
        self.drawn = ""
        self.unfinished = b""  # a line of the log without an end yet, shortened: below it there is no room for ours

    def text(self, data: bytes) -> None:
        self._erase()
        self._write(data)
        lines = (self.unfinished + data).split(b"\n")
        self.unfinished = lines.pop()[:1000]
        for line in lines:
            match = re.match(r"\[slurm-launch\] \d{4}-\S+ (\S+)(?:.* nodes=(\d+)/)?", line.decode(errors="replace"))
            if match:
                self.joined = int(match[2] or self.joined)
                if match[1] in PHASES:
                    self.phase = match[1]

    def _write(self, data: bytes) -> None:
        """The bytes as they are: they need not be text, and a character may come in two parts."""
        buffer = getattr(self.out, "buffer", None)
        try:
            if buffer is None:
                self.out.write(data.decode(errors="replace"))
            else:
                self.out.flush()
                buffer.write(data)
            self.out.flush()
        except BrokenPipeError:  # what is still buffered would fail again when Python ends
            if buffer is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())
            raise

    def tick(self) -> None:
        if not self.live or self.unfinished:
            return
        what = PHASES[self.phase] or f"nodes joined {self.joined}/{self.nodes}"
        line = f"... {what}, {time.monotonic() - self.began:.0f} s"
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
