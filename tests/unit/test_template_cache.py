"""The compiled templates that a start leaves for the next one: they save time, and change nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RENDER = """
from datetime import datetime, timezone
from slurm_launch import LaunchSpec, render
print(render(LaunchSpec(exp_name="x", command="true", num_nodes=3), when=datetime(2026, 1, 2, tzinfo=timezone.utc)))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("slurm_launch", "templates"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def render(package: Path, **env: str) -> str:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(package), **env}
    done = subprocess.run([sys.executable, "-c", RENDER], cwd=package, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "start_cluster" in done.stdout
    return done.stdout


def cached(package: Path) -> list[Path]:
    return sorted((package / "slurm_launch/rendering/__pycache__").glob("templates-*.cache"))


def test_the_next_start_finds_them_and_says_the_same(package: Path) -> None:
    first = render(package)
    files = cached(package)
    assert len(files) > 5
    before = [path.stat().st_mtime_ns for path in files]
    assert render(package) == first
    assert [path.stat().st_mtime_ns for path in files] == before


def test_a_changed_template_counts_at_once(package: Path) -> None:
    first = render(package)
    part = package / "templates/parts/run.sh"
    part.write_text(part.read_text() + "# mended\n")
    assert render(package) == first.rstrip("\n") + "\n# mended\n\n"


def test_other_settings_of_jinja_count_at_once(package: Path) -> None:
    first = render(package)
    code = package / "slurm_launch/rendering/render.py"
    code.write_text(code.read_text().replace("trim_blocks=True", "trim_blocks=False"))
    assert render(package).count("\n\n") > first.count("\n\n")


@pytest.mark.parametrize("size", [0, 3, 30, 300])
def test_a_damaged_file_does_no_harm(package: Path, size: int) -> None:
    first = render(package)
    for path in cached(package):
        path.write_bytes(path.read_bytes()[:size])
    assert render(package) == first


def test_a_place_that_cannot_be_written_does_no_harm(package: Path) -> None:
    (package / "slurm_launch/rendering/__pycache__").write_text("not a directory")
    assert render(package) == render(package, PYTHONDONTWRITEBYTECODE="1")


def test_who_wants_no_compiled_files_gets_none(package: Path) -> None:
    render(package, PYTHONDONTWRITEBYTECODE="1")
    assert cached(package) == []
