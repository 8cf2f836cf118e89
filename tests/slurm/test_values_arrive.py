"""Values with every kind of odd character, through the real sbatch and the real job, byte for byte."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Sequence
from datetime import datetime, timezone

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.rehearsal.directive_parser import Unreadable, words
from slurm_launch.rendering.render import render_script
from tests.slurm.jobs import HOME, VENV, python
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

WHEN = datetime(2026, 1, 2, tzinfo=timezone.utc)
SPECIAL = "ab '\"\\#%$`!*?~{}()[];&|<>=,:\t\u00a0éß漢🙂-/@"
ODD = " -'\"\\$HOME`id`!*?~#%j%%{a,b}(x)[y];&|<é漢🙂>\t\\"
LOGS = ["a b", "50%", "%j", "%%", "it's", 'say "x"', "#;$HOME`id`&|<>*?~!", "é漢🙂", "-x", " x ", "a\tb"]


def odd_texts(count: int) -> list[str]:
    dice = random.Random(20260102)
    found = [ODD, ":x", "#", "\\", "'", '"', '"x"', "'x'", "\\\\", "a\\ b", "%", "x" * 500]
    while len(found) < count:
        found.append("".join(dice.choices(SPECIAL, k=dice.randint(1, 20))))
    return [text for text in found if text.strip()]


def submit_held(cluster: Cluster, scripts: Sequence[str]) -> list[tuple[str, str] | None]:
    """The name and the comment of each script's job, or None where sbatch refuses. The jobs are gone then.

    squeue prints both as they are, whereas scontrol appends a blank to the comment.
    """
    folder = f"{HOME}/held"
    cluster.run(["rm", "-rf", folder], check=True)
    cluster.run(["mkdir", folder], check=True)
    for number, script in enumerate(scripts):
        cluster.path(f"{folder}/{number:04}.sh").write_text(script, encoding="utf-8")
    loop = 'for file in *.sh; do echo "$(sbatch --hold --parsable "$file" 2>/dev/null)"; done'
    ids = cluster.run(["bash", "-c", loop], cwd=folder, check=True).stdout.split("\n")[:-1]
    assert len(ids) == len(scripts)
    seen: dict[str, dict[str, str]] = {}
    for field in ("%j", "%k"):
        for line in cluster.run(["squeue", "-h", "-o", f"%i {field}"], check=True).stdout.split("\n")[:-1]:
            job, _, text = line.partition(" ")
            seen.setdefault(job, {})[field] = text
    if jobs := [job for job in ids if job]:
        cluster.run(["scancel", *jobs], check=True)
    return [(seen[job]["%j"], seen[job]["%k"]) if job else None for job in ids]


def test_directives_arrive(cluster: Cluster) -> None:
    texts = odd_texts(60)
    scripts = []
    for text in texts:
        spec = LaunchSpec(exp_name="x", command="true", comment=text, sbatch={"job-name": text[::-1]})
        scripts.append(render_script(spec, name="x_1", when=WHEN))
    assert submit_held(cluster, scripts) == [(text[::-1], text) for text in texts]


def test_our_reading_of_a_directive_is_that_of_sbatch(cluster: Cluster) -> None:
    """The unit tests and the rehearsal rest on directive_parser.py. Most of these lines are badly quoted."""
    dice = random.Random(8)
    values = ["x" + "".join(dice.choices("ab \"'\\#\t%$é", k=dice.randint(1, 9))) for _ in range(80)]
    values = [value for value in values if not re.search(r"\\[ \t]", value)]  # here versions of Slurm differ
    expected: list[tuple[str, str] | None] = []
    for value in values:
        try:
            found = words(f"#SBATCH --comment={value}")
        except Unreadable:
            found = []
        expected.append(("n", found[0].removeprefix("--comment=")) if len(found) == 1 else None)
    assert expected.count(None) not in (0, len(values))
    scripts = [f"#!/bin/bash\n#SBATCH --job-name=n\n#SBATCH --comment={value}\ntrue\n" for value in values]
    assert submit_held(cluster, scripts) == expected


def render_and_submit(cluster: Cluster, folder: str, *options: str) -> tuple[str, str]:
    """Submit as alice does, with a script that tells no more than where it runs; job id and log by the record."""
    template = f"{HOME}/tell.j2"
    cluster.run(["tee", template], stdin="#!/bin/bash\n{{ directives }}\npwd; echo {{ run }}\n", check=True)
    argv = [f"{VENV}/bin/slurm-launch", "--exp-name", "x", "--command", "true", "--template", template, *options]
    ask = "import json, sys; run = json.load(sys.stdin); print(run['job_id'], run['log'])"
    done = cluster.run([*argv, "--json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    answer = cluster.run([f"{VENV}/bin/python", "-c", ask], stdin=done.stdout, check=True).stdout
    job, _, log = answer.removesuffix("\n").partition(" ")
    return job, log


def new_folder(cluster: Cluster, name: str) -> str:
    folder = f"{HOME}/{name}"
    cluster.run(["rm", "-rf", folder], check=True)
    cluster.run(["mkdir", "-p", folder], check=True)
    return folder


def test_the_log_is_where_the_record_says(cluster: Cluster) -> None:
    folder = new_folder(cluster, "logs")
    jobs = [(log, *render_and_submit(cluster, folder, f"--run-dir={log}")) for log in LOGS]
    jobs += [(log, *render_and_submit(cluster, folder, f"--run-dir={folder}/abs/{log}")) for log in LOGS[:3]]
    for name, job, log in jobs:
        assert cluster.wait_job(job)["JobState"] == "COMPLETED", (name, log)
        text = cluster.path(log).read_text(encoding="utf-8")
        assert text.startswith(f"{folder}\n")
        assert text.rstrip("\n").endswith(log.removesuffix(".log").removeprefix(f"{folder}/"))


def test_the_logs_of_an_array_are_where_the_record_says(cluster: Cluster) -> None:
    folder = new_folder(cluster, "logs")
    job, log = render_and_submit(cluster, folder, "--run-dir=50% of %a", "--array=0-1")
    cluster.wait_job(job)
    for task in ("0", "1"):
        assert cluster.path(f"{log.removesuffix('.log')}_{task}.log").read_text(encoding="utf-8").startswith(folder)


@pytest.mark.parametrize("name", ["a b", "50%j", 'it\'s %% "x" #$;é', "a\\b"])
def test_the_job_runs_in_an_odd_directory(cluster: Cluster, name: str) -> None:
    folder = new_folder(cluster, f"chdir/{name}")
    job, log = render_and_submit(cluster, HOME, f"--chdir={folder}", "--run-dir=logs")
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    assert cluster.path(log).read_text(encoding="utf-8").startswith(f"{folder}\n")


@pytest.mark.parametrize("name", ["a b", "50%j", "it's %% #$;é"])
def test_submitted_from_an_odd_directory(cluster: Cluster, name: str) -> None:
    """Slurm puts the job's directory before a relative log, and only then fills in patterns: in both."""
    folder = new_folder(cluster, f"cwd/{name}")
    job, log = render_and_submit(cluster, folder, "--run-dir=logs")
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    assert cluster.path(log).read_text(encoding="utf-8").startswith(f"{folder}\n")


TELL = """
import json, os, ray
ray.init(logging_level="ERROR")
names = ("ODD", "LINES", "VENV_SEEN", "CODE_SEEN", "SLURM_JOB_NAME", "RAY_TMPDIR")
seen = {name: os.environ[name] for name in names}
seen["cwd"] = os.getcwd()
seen["resources"] = sorted(name for name in ray.cluster_resources() if name.startswith("odd"))
print(json.dumps(seen))
"""


def test_a_whole_job_of_odd_values(cluster: Cluster) -> None:
    at_work = new_folder(cluster, 'work it\'s "50%" #$;\\é')
    run_dir = new_folder(cluster, 'run it\'s "50%j" #$;é')
    venv = new_folder(cluster, 'venv it\'s "x" #$;\\é')
    cluster.run(["mkdir", f"{venv}/bin"], check=True)
    cluster.run(["tee", f"{venv}/bin/activate"], stdin="VENV_SEEN=$BASH_SOURCE; export VENV_SEEN\n", check=True)
    resource = f"odd{ODD}".replace(",", "")  # Ray itself takes no comma there
    temp_dir = f"{HOME}/t.+@=-x"  # the spec takes no odder ones, for Ray's sake
    spec = LaunchSpec(
        exp_name="odd",
        command=f"{python(TELL)} # {ODD}",
        cpus_per_task=1,
        comment=ODD,
        chdir=at_work,
        env={"ODD": ODD, "LINES": f"{ODD}\n{ODD}\n"},
        venv=venv,
        load_env=[f"export PATH={shlex.quote(str(VENV / 'bin'))}:$PATH", f"export CODE_SEEN={shlex.quote(ODD)}"],
        temp_dir=temp_dir,
        sbatch={"job-name": ODD},
        srun_arg=[f"--job-name={ODD}"],
        ray_arg=["--disable-usage-stats"],
        ray_head_arg=[f"--resources={json.dumps({resource: 1})}"],
        run_dir=run_dir,
    )
    cluster.run(
        ["tee", f"{run_dir}/odd.sh"], check=True, stdin=render_script(spec, name="odd", when=WHEN, run_dir=run_dir)
    )
    job = cluster.run(["sbatch", "--parsable", f"{run_dir}/odd.sh"], check=True).stdout.strip()
    comment = cluster.run(["squeue", "-h", "-j", job, "-o", "%k"], check=True).stdout
    state = cluster.wait_job(job, 90)
    log = cluster.path(f"{run_dir}/odd.log").read_text(encoding="utf-8")
    assert state["JobState"] == "COMPLETED", log
    (answer,) = [line for line in log.splitlines() if line.startswith("{")]
    seen = json.loads(answer)
    assert seen.pop("RAY_TMPDIR").startswith(f"{temp_dir}/")
    assert seen == {
        "ODD": ODD,
        "LINES": f"{ODD}\n{ODD}\n",
        "VENV_SEEN": f"{venv}/bin/activate",
        "CODE_SEEN": ODD,
        "SLURM_JOB_NAME": ODD,
        "cwd": at_work,
        "resources": [resource],
    }
    assert comment == f"{ODD}\n"
