"""`slurm-launch rehearse`: run the script on this machine, without Slurm."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, TextIO

import typer

from slurm_launch.cli.output import note, print_json
from slurm_launch.cli.preflight import checked_spec
from slurm_launch.cli.signals import cleanup_on_signals
from slurm_launch.cli.spec_flags import header_spec, resolve, verb_app
from slurm_launch.rehearsal import faults
from slurm_launch.rehearsal import rehearse as rehearsal
from slurm_launch.rehearsal.tasks import rehearse_tasks
from slurm_launch.spec.launch_spec import LaunchSpec
from slurm_launch.spec.script_header import EmbeddedSpec


def rehearse(
    flags: dict[str, Any],
    fault: Annotated[
        str | None,
        typer.Option(
            metavar="FAULT",
            help="Inject a fault: " + ", ".join(f"{kind} ({what})" for kind, what in faults.KINDS.items()) + "."
            " Append :N to choose a worker or node: worker-dies:2.",
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="all|0,3-5", help="Tasks of an array or a sweep to rehearse, one by one. Default: the first."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output JSON; the log goes to stderr.")] = False,
) -> int:
    resolution = resolve(flags)
    spec = checked_spec(resolution)
    if tasks is not None:
        return _tasks(spec, tasks, fault, header_spec(resolution), as_json)
    screen = Screen(sys.stderr if as_json else sys.stdout, spec.nodes)
    with cleanup_on_signals():  # so that the job is ended too
        try:
            done = rehearsal.rehearse(
                spec, fault=fault, embedded=header_spec(resolution), notify=screen.note, observer=screen
            )
        finally:
            screen.close()
    run = done.run
    if as_json:
        print_json(exit_code=done.code, **{key: value for key, value in asdict(run).items() if key != "schema"})
    else:
        stem = run.script.removesuffix(".sh")
        note(f"rehearsed; files: {stem}.sh, {done.log.removeprefix(stem)} and .json")
    return done.code


def _tasks(spec: LaunchSpec, tasks: str, fault: str | None, embedded: EmbeddedSpec, as_json: bool) -> int:
    screens = [Screen(sys.stderr if as_json else sys.stdout, spec.nodes)]

    def next_screen() -> Screen:
        screens[-1].close()
        screens.append(Screen(screens[-1].out, spec.nodes))
        return screens[-1]

    def notify(text: str) -> None:
        screens[-1].note(text)

    with cleanup_on_signals():
        try:
            done = rehearse_tasks(spec, tasks, fault=fault, embedded=embedded, notify=notify, new_observer=next_screen)
        finally:
            screens[-1].close()
    if as_json:
        codes = {str(task): one.code for task, one in done.results.items()}
        run = {key: value for key, value in asdict(done.run).items() if key not in ("schema", "tasks")}
        print_json(exit_code=done.code, tasks=codes, **run)
    else:
        completed = sum(one.code == 0 for one in done.results.values())
        stem = done.run.script.removesuffix(".sh")
        counts = f"rehearsed {len(done.results)} tasks, {completed} completed"
        note(f"{counts}; files: {stem}.sh, _TASK.log and .json")
    return done.code


# The phases of the log that the progress line shows; `starting` shows the number of nodes.
PHASES = {"starting": "", "command": "running your command", "end": "ending"}


class Screen(rehearsal.LogObserver):
    """Prints the log as it grows and, on a terminal, a progress line below it."""

    def __init__(self, out: TextIO, nodes: int) -> None:
        self.out = out
        self.live = out.isatty() and sys.stderr.isatty()
        self.nodes = nodes
        self.joined = 0
        self.started = time.monotonic()
        self.phase = "starting"
        self.drawn = ""
        self.unfinished = b""  # the last line of the log, without a newline: the progress line cannot go below it

    def on_data(self, data: bytes) -> None:
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
        """Write the raw bytes: they need not be text, and a character can be split."""
        buffer = getattr(self.out, "buffer", None)
        try:
            if buffer is None:
                self.out.write(data.decode(errors="replace"))
            else:
                self.out.flush()
                buffer.write(data)
            self.out.flush()
        except BrokenPipeError:  # flushing the buffer would fail again when Python exits
            if buffer is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())
            raise

    def on_poll(self) -> None:
        if not self.live or self.unfinished:
            return
        what = PHASES[self.phase] or f"nodes joined {self.joined}/{self.nodes}"
        line = f"... {what}, {time.monotonic() - self.started:.0f} s"
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


app = verb_app(rehearse, "rehearse", "Every node of the job is a Ray node of its own on this machine.")
