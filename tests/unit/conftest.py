"""Every unit test runs in an empty directory, with an empty home and none of the caller's settings."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

OTHERS = ("XDG_STATE_HOME", "NO_COLOR", "FORCE_COLOR", "CLUSTER_SPEC_PATH")


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLAUNCH_", "SLURM_", "SBATCH_", "SRUN_")) or name in OTHERS:
            monkeypatch.delenv(name)
    for name, folder in (("HOME", "home"), ("XDG_CONFIG_HOME", "home/.config"), ("XDG_CONFIG_DIRS", "etc/xdg")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv(name, str(tmp_path / folder))
    (tmp_path / "work").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "work")


@dataclass(frozen=True)
class Answer:
    """What one call of the command line did."""

    code: int
    out: str
    err: str


Launcher = Callable[..., Answer]


@pytest.fixture
def launcher(capsys: pytest.CaptureFixture[str]) -> Launcher:
    """The command line in this process: launcher("render", "--exp-name", "x") -> Answer."""
    from slurm_launch.cli.main import main

    def call(*argv: str) -> Answer:
        with pytest.raises(SystemExit) as end:
            main(list(argv))
        caught = capsys.readouterr()
        return Answer(int(end.value.code or 0), caught.out, caught.err)

    return call
