"""--idle: a cluster without a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.spec.model import IDLE
from slurm_launch.spec.script_header import read_embedded

Launcher = Callable[..., Any]  # tests/unit/conftest.py


@pytest.mark.parametrize("words", [("--command", "true"), ("--", "python", "train.py")])
def test_command_and_idle_are_mutually_exclusive(launcher: Launcher, words: tuple[str, ...]) -> None:
    answer = launcher("render", "--exp-name", "x", "--idle", *words)
    assert answer.code == 2
    assert "--command and --idle are mutually exclusive" in answer.err


def spec_of(text: str) -> dict[str, Any]:
    return dict(read_embedded(text, "here").own)


def test_the_higher_layer_wins(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("slurm-launch.yaml").write_text("command: python train.py\n")
    answer = launcher("render", "--exp-name", "x", "--idle")
    assert spec_of(answer.out) == {"exp-name": "x", "idle": True}
    assert IDLE in answer.out
    assert "train.py" not in answer.out
    assert spec_of(launcher("render", "--exp-name", "x", "--no-idle").out)["command"] == "python train.py"
    monkeypatch.setenv("SLAUNCH_IDLE", "0")
    assert spec_of(launcher("render", "--exp-name", "x").out)["command"] == "python train.py"
    monkeypatch.setenv("SLAUNCH_IDLE", "1")
    assert IDLE in launcher("render", "--exp-name", "x").out
    monkeypatch.setenv("SLAUNCH_IDLE", "maybe")
    assert "--idle is neither true nor false" in launcher("render", "--exp-name", "x").err
    monkeypatch.delenv("SLAUNCH_IDLE")
    Path("slurm-launch.yaml").write_text("idle: true\n")
    assert IDLE in launcher("render", "--exp-name", "x").out
    assert spec_of(launcher("render", "--exp-name", "x", "--command", "true").out)["command"] == "true"
    answer = launcher("render", "--exp-name", "x", "--no-idle")
    assert answer.code == 2
    assert "--command is missing" in answer.err
    assert "--idle" in answer.err


def test_an_idle_script_is_rendered_again(launcher: Launcher) -> None:
    Path("old.sh").write_text(launcher("render", "--exp-name", "x", "--idle").out)
    assert spec_of(launcher("render", "--from", "old.sh").out) == {"exp-name": "x", "idle": True}
    assert "idle" not in spec_of(launcher("render", "--from", "old.sh", "--command", "true").out)


def test_the_python_api() -> None:
    assert LaunchSpec(exp_name="x", idle=True).command == IDLE
    with pytest.raises(ValueError, match="mutually exclusive"):
        LaunchSpec(exp_name="x", idle=True, command="true")
