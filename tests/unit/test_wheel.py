"""What people install: the wheel, in an environment of its own, far from this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = ["--exp-name", "x", "--command", "python train.py", "--num-nodes", "3", "--port-range", "20000-20999"]


def call(*argv: str | Path, cwd: Path) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    done = subprocess.run([str(arg) for arg in argv], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_clock(script: str) -> str:
    assert re.search(r"\d{8}-\d{6}", script)
    return re.sub(r"\d{8}-\d{6}|\d{4}-\d\d-\d\dT[0-9:+-]+", "WHEN", script)


def test_the_wheel_renders_in_an_empty_environment(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    ours = call(sys.executable, "-m", "slurm_launch", "render", *OPTIONS, cwd=elsewhere)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    templates = {f"slurm_launch/{path.relative_to(ROOT)}" for path in (ROOT / "templates").rglob("*") if path.is_file()}
    assert templates | {"slurm_launch/py.typed"} <= set(names)
    assert [name for name in names if not name.startswith("slurm_launch")] == []

    venv.create(tmp_path / "empty", with_pip=True)
    binaries = tmp_path / "empty/bin"
    call(binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=elsewhere)
    where = call(binaries / "python", "-c", "import slurm_launch; print(slurm_launch.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(tmp_path / "empty")

    for launcher in ([binaries / "slurm-launch"], [binaries / "python", "-m", "slurm_launch"]):
        assert without_clock(call(*launcher, "render", *OPTIONS, cwd=elsewhere)) == without_clock(ours)
    assert list(elsewhere.iterdir()) == []
