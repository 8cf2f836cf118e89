"""The rendered scripts are those in tests/golden: five as whole scripts (NAME.sh), the others as diffs (NAME.diff).

A diff is a unified diff against three-nodes.sh. `make golden` rewrites both kinds; git shows what changed.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.launch.script import sweep_tasks
from slurm_launch.rendering.render import render_script
from slurm_launch.spec.container_runtimes import RUNTIMES
from slurm_launch.spec.model import options
from slurm_launch.spec.option import CONTAINER, HEAD
from slurm_launch.spec.script_header import JoinTarget
from tests.script_parts import all_functions, story

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
BASE = "three-nodes"
WHOLE = {"one-node", BASE, "long", "pyxis", "sweep"}  # the others are stored as diffs against BASE
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

PLAIN: dict[str, Any] = {"exp_name": "train", "command": "python train.py"}
THREE: dict[str, Any] = {**PLAIN, "num_nodes": 3}
GROW: dict[str, Any] = {**PLAIN, "exp_name": "train-grow", "num_nodes": 2, "signal": "B:USR1@60"}
CASES: dict[str, dict[str, Any]] = {
    "one-node": PLAIN,
    "idle": {"exp_name": "idle", "idle": True, "num_nodes": 2},
    "three-nodes": {**THREE, "time": "1:30:00"},
    "gpus-per-node": {**THREE, "num_gpus": 4, "partition": "gpu", "cpus_per_task": 32, "mem": "200G"},
    "gres-with-type": {**THREE, "num_gpus": 4, "gpu_type": "a100", "gpu_directive": "gres"},
    "gpus-per-task": {
        **THREE,
        "num_gpus": 2,
        "gpu_type": "h100",
        "gpu_directive": "gpus-per-task",
        "mem_per_gpu": "64G",
    },
    "gpus-unmanaged": {**THREE, "num_gpus": 2, "gpu_directive": "none"},
    "modules-and-conda": {**THREE, "modules": ["cuda/12.4", "gcc/13"], "conda_env": "ray"},
    "extra-and-dropped-directives": {
        **THREE,
        "mem": "64G",
        "comment": 'it\'s 100 % "mine"',
        "sbatch": {"gres": "nvme:1", "wait-all-nodes": "0", "spread-job": None},
        "no_sbatch": ["mem", "nodes"],
    },
    "everything": {
        "exp_name": "everything",
        "command": 'python train.py --name "it\'s $SLURM_JOB_ID" \\\n  --steps 1000\necho done # and said so\n',
        "node": "gpu[01-03],big1",
        "exclude": "gpu[04-05]",
        "num_gpus": 4,
        "gpu_type": "a100",
        "cpus_per_task": 8,
        "mem_per_cpu": "4G",
        "exclusive": True,
        "constraint": "a100&ib",
        "switches": "1@10:00",
        "licenses": "matlab:1",
        "partition": "main",
        "account": "proj1",
        "qos": "normal",
        "time": "2-12",
        "reservation": "course",
        "dependency": "afterok:1234",
        "after": ["1235"],
        "after_ok": ["1236", "1237_8"],
        "after_any": ["1238"],
        "after_notok": ["1239"],
        "singleton": True,
        "begin": "now+1hour",
        "deadline": "2030-12-31T18:00",
        "nice": 100,
        "comment": "first try",
        "mail_user": "me@example.org",
        "mail_type": "END,FAIL",
        "signal": "B:TERM@120",
        "requeue": True,
        "checkpoint_signal": "HUP",
        "checkpoint_dir": "/scratch/me/check points",
        "max_restarts": 3,
        "array": "0-9%3",
        "chdir": "/scratch/me/my runs",
        "env": {"OMP_NUM_THREADS": "4", "GREETING": 'it\'s $HOME; `no` "code"'},
        "modules": ["cuda/12.4"],
        "conda_env": "/opt/envs/my ray",
        "venv": "/home/me/venv",
        "load_env": ["ulimit -c 0", "export NCCL_DEBUG=INFO\nexport NCCL_SOCKET_IFNAME=ib0"],
        "node_timeout": 90,
        "start_timeout": 300,
        "min_nodes": 2,
        "on_node_loss": "continue",
        "auth": "off",
        "object_store_memory": "8G",
        "temp_dir": "/scratch/%u",
        "dashboard": False,
        "keep_ray_logs": True,
        "ip_family": "4",
        "interface": "ib0",
        "port_range": "20000-20999",
        "sbatch": {"gres": "nvme:1"},
        "no_sbatch": ["licenses"],
        "srun_arg": ["--mem-bind=local", "--job-name=ray on $HOME"],
        "ray_arg": ["--disable-usage-stats"],
        "ray_head_arg": ["--num-cpus=0"],
        "ray_worker_arg": ['--resources={"worker": 1}'],
        "run_dir": "runs/50%",
    },
    "grow": {**GROW, "partition": "gpu"},
    "grow-pyxis": {**GROW, "container_image": "nvcr.io/nvidia/nemo-rl:latest"},
    "chain": {**THREE, "time": "1-0", "chain": 5},
    "chain-while": {**PLAIN, "time": "1-0", "chain": 5, "chain_while": "notok"},
    "chain-warned": {**PLAIN, "time": "1-0", "chain": 5, "chain_while": "notok", "signal_before": 300},
    "long": {
        **THREE,
        "time": "1-0",
        "requeue": True,
        "signal_before": 120,
        "checkpoint_signal": "SIGUSR2",
        "max_restarts": 10,
    },
    # a separate head node, and worker groups
    "dedicated-head": {**THREE, "num_gpus": 4, "dedicated_head": True},
    "het-head": {
        **THREE,
        "num_gpus": 4,
        "cpus_per_task": 32,
        "mem_per_gpu": "64G",
        "partition": "gpu",
        "constraint": "a100",
        "account": "proj1",
        "time": "2-12",
        "head_cpus": 4,
        "head_mem": "16G",
        "head_partition": "cpu",
        "head_constraint": "big",
        "head_num_cpus": 0,
    },
    "worker-groups": {
        **PLAIN,
        "cpus_per_task": 8,
        "mem": "32G",
        "exclude": "bad1",
        "sbatch": {"gres": "nvme:1", "wckey": "x"},
        "worker_group": [
            "n=2,gpus=8,gpu-type=h100,cpus=64,mem=900G,partition=big,constraint=a100&ib,labels=fast+zone:a",
            {"n": 4, "node": "cpu[1,3-5]", "resources": "disk:2"},
        ],
    },
    "sweep": {
        "exp_name": "sweep",
        "command": "python train.py --lr {lr} --name \"{name}\" --note '{name}: {{lr}} is '$lr",
        "num_nodes": 2,
        "sweep": {"lr": "1e-3,1e-4", "name": ["a b", "it's", 'x, "y"']},
        "max_parallel": 2,
        "points": "0,2-5",
    },
    # one for every container runtime
    "pyxis": {
        **THREE,
        "num_gpus": 8,
        "container_image": "nvcr.io/nvidia/nemo-rl:latest",
        "container_mounts": "/data:/data:ro,/home",
        "container_workdir": "/work",
        "env": {"HF_HOME": "/data/hf"},
    },
    "het-pyxis": {
        **PLAIN,
        "container_image": "nvcr.io/nvidia/nemo-rl:latest",
        "head_cpus": 4,
        "worker_group": ["n=2,gpus=8", "n=1"],
    },
    "pyxis-everything": {
        **THREE,
        "array": "0-3",
        "requeue": True,
        "head_image": "/images/cpu.sqsh",
        "worker_image": "./gpu.sqsh",
        "container_home": True,
        "container_writable": True,
        "container_arg": ["--container-remap-root"],
        "container_setup": ["source /opt/venv/bin/activate", "export A='it is'"],
    },
    "apptainer": {**THREE, "container_runtime": "apptainer", "container_image": "/images/ray.sif", "num_gpus": 1},
    "singularity": {
        **THREE,
        "container_runtime": "singularity",
        "container_image": "rayproject/ray:2.60.0",
        "worker_image": "rocm/pytorch",
        "num_gpus": 4,
        "gpu_type": "mi250",
        "container_cleanenv": True,
        "container_home": True,
        "container_writable": True,
        "env": {"HF_HOME": "/data/hf"},
    },
    "podman": {**THREE, "container_runtime": "podman", "container_image": "docker://quay.io/ray:1", "num_gpus": 1},
    "podman-hpc": {
        **THREE,
        "container_runtime": "podman-hpc",
        "container_image": "quay.io#ray:1",
        "num_gpus": 1,
        "container_gpus": "nvidia",
        "container_mounts": ["/data"],
        "container_cleanenv": True,
    },
    "shifter": {**THREE, "container_runtime": "shifter", "container_image": "ray:1", "container_mounts": ["/a:/b:ro"]},
    "charliecloud": {
        **THREE,
        "container_runtime": "charliecloud",
        "container_image": "/images/ray",
        "worker_image": "/images/%u",
        "env": {"A": "1"},
    },
}


def rendered(case: str) -> str:
    spec = LaunchSpec(**CASES[case])
    joins = JoinTarget("1234", "/home/me/train_20260102-020304.log") if case in ("grow", "grow-pyxis") else None
    name = f"{spec.exp_name}_20260102-030405"
    sweep = sweep_tasks(spec, None)
    return render_script(
        spec, name=name, when=WHEN, run_dir=spec.run_dir, joins=joins, points=sweep.points, tasks=sweep.tasks
    )


def golden_path(case: str) -> Path:
    return GOLDEN / f"{case}{'.sh' if case in WHOLE else '.diff'}"


def golden_text(case: str) -> str:
    """What the golden file of a case has to contain."""
    if case in WHOLE:
        return rendered(case)
    base, text = rendered(BASE).splitlines(), rendered(case).splitlines()
    lines = difflib.unified_diff(base, text, f"{BASE}.sh", f"{case}.sh", n=1, lineterm="")
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("case", CASES)
def test_the_script_is_the_golden_one(case: str, request: pytest.FixtureRequest) -> None:
    path, now = golden_path(case), golden_text(case)
    if request.config.getoption("--update-golden"):
        path.write_text(now, encoding="utf-8")
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = difflib.unified_diff(golden.splitlines(), now.splitlines(), str(path), "rendered now", lineterm="")
    assert golden == now, "if this is intended, `make golden` accepts it:\n" + "\n".join(changes)


def test_every_golden_file_has_its_case() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(golden_path(case).name for case in CASES)


def test_everything_is_everything() -> None:
    """Every option of the spec appears in a golden script."""
    alternatives = {
        "num_nodes",
        "mem",
        "mem_per_gpu",
        "gpu_directive",
        "idle",
        "chain",
        "chain_while",
        "sweep",
        "max_parallel",
        "points",
        "signal_before",
    }  # in the other cases
    about_the_launcher = {"grow", "template", "profile", "config", "sweep_file"}
    in_other_cases = {name for name, option in options().items() if option.group in (CONTAINER, HEAD)}
    rest = set(LaunchSpec.model_fields) - set(CASES["everything"])
    assert rest == alternatives | about_the_launcher | in_other_cases
    assert in_other_cases <= {name for case in CASES.values() for name in case}


def test_every_runtime_has_a_golden_script() -> None:
    shown = {case.get("container_runtime", "pyxis") for case in CASES.values() if "container_image" in case}
    assert shown == set(RUNTIMES)
    assert set(RUNTIMES) | {"none"} == set(get_args(LaunchSpec.model_fields["container_runtime"].annotation))


def findings(folder: Path, texts: dict[str, str]) -> str:
    """What bash -n and shellcheck report about scripts, each of which has its name in the report."""
    scripts = []
    for name, text in texts.items():
        scripts.append(folder / f"{name}.sh")
        scripts[-1].write_text(text, encoding="utf-8")
    commands = [["bash", "-n", str(script)] for script in scripts] + [[str(SHELLCHECK), "--norc", *map(str, scripts)]]
    results = [subprocess.run(argv, capture_output=True, text=True) for argv in commands]
    reports = [result.stdout + result.stderr for result in results]
    assert [bool(report) for report in reports] == [bool(result.returncode) for result in results]
    return "".join(reports)


def test_bash_and_shellcheck_find_nothing_in_any_script(tmp_path: Path) -> None:
    assert findings(tmp_path, {case: rendered(case) for case in CASES}) == ""


def test_a_finding_in_one_of_the_scripts_is_reported(tmp_path: Path) -> None:
    texts = {"good": "#!/bin/bash\necho\n", "careless": "#!/bin/bash\necho $1\n", "broken": "#!/bin/bash\nif\n"}
    report = findings(tmp_path, texts)
    assert "careless.sh line 2" in report
    assert "SC2086" in report
    assert "broken.sh: line 3: syntax error" in report
    assert "good.sh" not in report


@pytest.mark.parametrize("case", CASES)
def test_text_is_tidy(case: str) -> None:
    text = rendered(case)
    assert re.search(r"\S\n\Z", text), "one line end at the end, and no blank line before it"
    assert "\n\n\n" not in text
    own = {
        line
        for option in ("command", "load_env")
        for code in _list(CASES[case].get(option, ""))
        for line in code.split("\n")
    }
    assert [line for line in text.split("\n") if line != line.rstrip() and line not in own] == []


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@pytest.mark.parametrize("case", CASES)
def test_same_spec_and_clock_give_the_same_bytes(case: str) -> None:
    assert rendered(case) == rendered(case)


@pytest.mark.parametrize("case", CASES)
def test_nothing_of_this_machine_is_in_it(case: str) -> None:
    text, places = (
        rendered(case),
        {str(ROOT), str(Path.cwd()), sys.prefix, sys.base_prefix, tempfile.gettempdir() + "/"},
    )
    assert [place for place in places - {"/usr"} if place in text] == []


def headings(text: str) -> list[str]:
    return re.findall(r"^# ---- (.*?) -+$", text, re.MULTILINE)


def test_three_nodes_have_the_steps_of_a_ray_cluster_in_order() -> None:
    """They are those of Ray's documentation, in the words of the script."""
    assert story(rendered("three-nodes")) == [
        "run_node_if_in_step",
        "reset_shell",
        "find_nodes",
        "find_allocation",
        "find_head_address",
        "make_job_directory",
        "start_head",
        "start_workers",
        "wait_for_nodes",
        "run_command",
    ]
    assert headings(rendered("three-nodes")) == [
        "What the job requests from Slurm",
        "Settings: change them here",
        "What happens",
        "How it works: you should not need to change anything below",
        "Exit and signals",
        "Nodes and addresses",
        "Ports and directories",
        "On each node",
        "Steps",
        "Supervision",
        "Teardown",
        "Start",
    ]


def test_one_node_has_no_workers() -> None:
    three, one = rendered("three-nodes"), rendered("one-node")
    assert story(one) == [step for step in story(three) if step != "start_workers"]
    assert headings(one) == headings(three)
    for_workers = {"start_workers", "prepare_worker", "wait_for_head", "make_head_directory_for_old_ray"}
    assert not for_workers & set(all_functions(one))
    assert for_workers | set(all_functions(one)) <= set(all_functions(three))


# What a job may use, and how its script shows that it does.
USES = {
    "min_nodes": r"^slaunch_min_nodes=.",
    "interface": r"^slaunch_interface=.",
    "port_range": r"^slaunch_port_first=|^find_block\(\)",
    "keep_ray_logs": r"^slaunch_keep_ray_logs=.",
    "object_store_memory": r"^slaunch_object_store=.",
    "ip_family": r"^slaunch_ip_family=.",
    "checkpoint_signal": r"slaunch_checkpoint_signal",
    "checkpoint_dir": r"slaunch_checkpoint_dir|SLAUNCH_RUN_DIR",
    "max_restarts": r"slaunch_max_restarts|SLAUNCH_RESTART|^requeue\(\)",
    "env": r"^export OMP_NUM_THREADS=",
    "modules": r"^ *module load|LMOD",
    "conda_env": r"^ *conda activate|CONDA_EXE",
    "venv": r"/bin/activate",
    "load_env": r"^ulimit -c 0$",
    "num_gpus": r"^#SBATCH --(gpus|gres=gpu)",
    "on_node_loss": r"^#SBATCH --no-kill",
    "array": r"^#SBATCH .*%a",
    "after_ok": r"^#SBATCH --dependency=.*afterok:1236:1237_8",
    "requeue": r"^#SBATCH --requeue",
    "exclusive": r"^#SBATCH --exclusive",
}
# The same for what other cases use.
USES_OF_CASES = {
    "chain": r"slaunch_link|SLAUNCH_LINK",
    "chain-while": r"slaunch_chain_while|cancel_later_links",
    "sweep": r"slaunch_points|choose_point",
    "worker-groups": r"slaunch_group|HET_GROUP",
    "pyxis": r"[Cc]ontainer_|slaunch_image|slaunch_mounts|pyxis",
    "charliecloud": r"charliecloud|slaunch_worker_image",
    "grow": r"slaunch_main_|join_cluster",
}


def without_the_spec(script: str) -> str:
    return re.sub(r"^# spec: .*\n", "", script, flags=re.MULTILINE)


@pytest.mark.parametrize("option", USES)
def test_what_a_job_does_not_use_is_not_in_it(option: str) -> None:
    assert not re.search(USES[option], without_the_spec(rendered("three-nodes")), re.MULTILINE)
    assert re.search(USES[option], without_the_spec(rendered("everything")), re.MULTILINE)


@pytest.mark.parametrize("case", USES_OF_CASES)
def test_what_only_some_jobs_use_is_in_no_other(case: str) -> None:
    assert not re.search(USES_OF_CASES[case], without_the_spec(rendered("three-nodes")), re.MULTILINE)
    assert re.search(USES_OF_CASES[case], without_the_spec(rendered(case)), re.MULTILINE)


@pytest.mark.parametrize("part", sorted(path.name for path in (ROOT / "templates/parts").glob("*.sh")))
def test_every_part_is_in_some_script_as_it_is(part: str) -> None:
    """Every line: those that start with #% choose among the others, and are in no script."""
    text = (ROOT / "templates/parts" / part).read_text(encoding="utf-8")
    scripts = [rendered(case) for case in CASES]
    lines = {line for script in scripts for line in script.splitlines()}
    choices = [line for line in text.splitlines() if line.lstrip().startswith("#%")]
    others = [line for line in text.splitlines() if line not in choices]
    assert [line for line in others if line not in lines] == []
    assert [line for line in choices if line in lines] == []
    functions = {name for script in scripts for name in all_functions(script)}
    assert set(re.findall(r"^(\w+)\(\)", text, re.MULTILINE)) <= functions
    if not choices:
        assert any(text in script for script in scripts)


def directives(case: str) -> list[str]:
    return [line.removeprefix("#SBATCH --") for line in rendered(case).splitlines() if line.startswith("#SBATCH")]


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("gpus-per-node", "gpus-per-node=4"),
        ("gres-with-type", "gres=gpu:a100:4"),
        ("gpus-per-task", "gpus-per-task=h100:2"),
    ],
)
def test_gpus_are_requested_as_the_site_requires(case: str, line: str) -> None:
    assert [found for found in directives(case) if "gpu" in found and not found.startswith(("mem", "part"))] == [line]


def test_sbatch_directives_come_last_or_replace_and_no_sbatch_removes() -> None:
    assert directives("extra-and-dropped-directives") == [
        "job-name=train",
        "output=train_20260102-030405.log",
        "open-mode=append",
        "ntasks-per-node=1",
        'comment="it\'s 100 % \\"mine\\""',
        "no-requeue",
        "wait-all-nodes=0",
        "gres=nvme:1",
        "spread-job",
    ]


@pytest.mark.parametrize("case", CASES)
def test_directives_stand_before_any_command(case: str) -> None:
    """sbatch reads no further than the first line that is neither blank nor a comment."""
    body = re.search(r"^[^#\n]", rendered(case), re.MULTILINE)
    assert body
    assert re.search(r"^#SBATCH --job-name=", rendered(case)[: body.start()], re.MULTILINE)
    assert not re.search(r"^\s*#SBATCH", rendered(case)[body.start() :], re.MULTILINE)
