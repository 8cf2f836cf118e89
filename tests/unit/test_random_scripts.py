"""bash, shfmt and shellcheck find nothing in scripts for many combinations of options.

The combinations are reproducible. One set has every pair of options that can be combined; the other is random.
A feature is an option, or one of the choices of an option that offers some: `requeue`, `auth=off`.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from slurm_launch import LaunchSpec
from slurm_launch.launch import grow_job
from slurm_launch.launch.script import sweep_tasks
from slurm_launch.rendering.render import render_script
from slurm_launch.spec.model import options
from slurm_launch.spec.option import IMAGES as IMAGE_OPTIONS
from slurm_launch.spec.option import NEEDS
from slurm_launch.spec.script_header import JoinTarget
from slurm_launch.spec.sweep_points import Points
from tests.script_figures import formatting_findings
from tests.unit.test_golden import WHEN, findings

RANDOM_SCRIPTS = 300
SHELLCHECKED = 12  # of the random ones: shellcheck takes half a second for each
SEED = 20260102
REPORT = 5000  # characters: the first findings are enough, and pytest keeps the scripts

COMMANDS = (
    "python train.py",
    'python train.py --name "it\'s $SLURM_JOB_ID" \\\n  --steps 1000\necho done # and said so\n',
    f"python train.py --lr {{lr}} {'--flag ' * 20}<<'END_OF_COMMAND'\nx\nEND_OF_COMMAND",
)
IMAGES = (
    "nvcr.io/nvidia/nemo-rl:latest",
    "docker://quay.io/ray:1",
    "quay.io#ray:1",
    "/images/%u.sqsh",
    "/images/ray.sif",
    "./image",
)
# Representative values of every option that changes the script; for an option with choices, all but the default.
VALUES: dict[str, Sequence[Any]] = {
    "exp_name": ("train", "a.b_c+d=e@f-1"),
    "command": COMMANDS,
    "idle": (True,),
    "sweep": ({"lr": "1e-3,1e-4", "name": ["a b", "it's", 'x, "y"']}, {"lr": "0..4"}),
    "sweep_file": ("points.csv",),
    "max_parallel": (2,),
    "points": ("0,2-3", "1"),
    "num_nodes": (2, 3, 4, 40),
    "node": ("gpu[01-03],big1", "n1,n2"),
    "exclude": ("gpu[04-05]",),
    "num_gpus": (1, 8),
    "gpu_type": ("a100", "mi250"),
    "gpu_directive": ("gres", "gpus-per-task", "none"),
    "cpus_per_task": (8,),
    "mem": ("64G", "0"),
    "mem_per_cpu": ("4G",),
    "mem_per_gpu": ("32G",),
    "exclusive": (True,),
    "constraint": ("a100&ib",),
    "switches": ("1@10:00",),
    "licenses": ("matlab:1",),
    "head_cpus": (4,),
    "head_mem": ("16G",),
    "head_partition": ("cpu",),
    "head_constraint": ("big",),
    "head_num_cpus": (0, 2),
    "dedicated_head": (True,),
    "worker_group": (
        "n=2",
        ("n=2,gpus=8,gpu-type=h100,cpus=64,mem=900G,partition=big,constraint=a100&ib,labels=fast+zone:a", "n=1,gpus=1"),
        ({"n": 3, "node": "cpu[1,3-4]", "mem": "8G", "resources": "disk:2"},),
    ),
    "partition": ("main",),
    "account": ("proj1",),
    "qos": ("normal",),
    "time": ("1:30:00", "2-12"),
    "reservation": ("course",),
    "dependency": ("afterok:1234", "singleton"),
    "after": ("1235",),
    "after_ok": (("1236", "1237_8"),),
    "after_any": ("1238",),
    "after_notok": ("1239",),
    "singleton": (True,),
    "begin": ("now+1hour",),
    "deadline": ("2030-12-31T18:00",),
    "nice": (100, -5),
    "comment": ('it\'s 100 % "mine" \\o/',),
    "mail_user": ("me@example.org",),
    "mail_type": ("END,FAIL",),
    "signal": ("B:TERM@120", "B:USR2"),
    "requeue": (True,),
    "signal_before": (120,),
    "checkpoint_signal": ("HUP", "USR2"),
    "checkpoint_dir": ("/scratch/me/check points", "checkpoints"),
    "max_restarts": (0, 10),
    "array": ("0-9", "1,3,5%2"),
    "chain": (5,),
    "chain_while": ("ok", "notok"),
    "chdir": ("/scratch/me/my runs",),
    "env": ({"OMP_NUM_THREADS": "4"}, {"GREETING": 'it\'s $HOME; `no` "code"', "LINES_": "a\nb", "PYTHONPATH": "/x"}),
    "modules": ("cuda/12.4", ("cuda/12.4", "it's $HOME")),
    "conda_env": ("ray", "/opt/envs/my ray"),
    "venv": ("/home/me/venv", "my venv"),
    "load_env": ("ulimit -c 0", ("export NCCL_DEBUG=INFO\nexport NCCL_SOCKET_IFNAME=ib0", "umask 077")),
    "container_image": IMAGES,
    "container_runtime": (
        "pyxis",
        "apptainer",
        "singularity",
        "podman",
        "podman-hpc",
        "shifter",
        "charliecloud",
        "none",
    ),
    "container_mounts": ("/data:/data:ro,/home", "/data:/mnt"),
    "container_workdir": ("/work",),
    "container_home": (True,),
    "container_writable": (True,),
    "container_cleanenv": (True,),
    "container_gpus": ("nvidia", "amd", "none"),
    "container_setup": ("source /opt/venv/bin/activate", ("export A='it is'", "cat <<'END_OF_SETUP'\nx\nEND_OF_SETUP")),
    "container_arg": ("--debug", ("--name=it's $HOME", "-x")),
    "head_image": IMAGES,
    "worker_image": IMAGES,
    "start_timeout": (300,),
    "node_timeout": (90,),
    "min_nodes": (1, 2),
    "on_node_loss": ("continue",),
    "auth": ("off",),
    "object_store_memory": ("8G",),
    "temp_dir": ("/scratch/%u", "/l/%j"),
    "dashboard": (False,),
    "keep_ray_logs": (True,),
    "ip_family": ("4", "6"),
    "interface": ("ib0",),
    "port_range": ("20000-20999",),
    "sbatch": ({"gres": "nvme:1"}, {"wckey": "it's", "spread-job": None}),
    "no_sbatch": (("mem", "nodes"), "licenses"),
    "srun_arg": (("--mem-bind=local", "--job-name=ray on $HOME"),),
    "ray_arg": ("--disable-usage-stats",),
    "ray_head_arg": ("--num-cpus=0",),
    "ray_worker_arg": ('--resources={"worker": 1}',),
    "run_dir": ("runs/50%", "/scratch/me/my runs"),
}
NOT_IN_A_SCRIPT = {
    "grow": "submits a second job; the scripts of such jobs are rendered here, too",
    "template": "replaces the script by the user's own",
    "profile": "selects a file of the launcher",
    "config": "selects a file of the launcher",
}
FILE_POINTS = Points(("lr", "name"), [("1e-3", "a b"), ("1e-4", "it's"), ("1", ""), ("2", "x")])  # of the sweep_file
# Runtimes that count as one choice, because their scripts hardly differ; the launches have one or the other.
ALIKE = {"apptainer": "singularity", "podman": "podman-hpc"}

# Options that come with another one, because it is refused or has no effect otherwise: the first possible one of each.
_SEVERAL_NODES = ("num_nodes", "node", "worker_group")
WITH: dict[str, tuple[str, ...]] = {
    **{name: need.options for name, need in NEEDS.items()},
    **dict.fromkeys(("head_cpus", "head_mem", "head_partition", "head_constraint"), _SEVERAL_NODES),
    **dict.fromkeys(("head_num_cpus", "dedicated_head", "min_nodes"), _SEVERAL_NODES),
    "gpu_type": ("num_gpus", "worker_group"),
    "mem_per_gpu": ("num_gpus",),
    "gpu_directive": ("num_gpus",),
    "worker_image": ("container_image", "head_image"),
    "container_runtime": ("container_image", "head_image"),
    "container_cleanenv": tuple(f"container_runtime={name}" for name in ALIKE),
}


# --- features --------------------------------------------------------------------------------------------------------


def has_choices(name: str) -> bool:
    return get_origin(LaunchSpec.model_fields[name].annotation) is Literal


def features_of(name: str) -> list[str]:
    if not has_choices(name):
        return [name]
    return [f"{name}={choice}" for choice in VALUES[name] if choice not in ALIKE.values()]


def option_of(feature: str) -> str:
    return feature.partition("=")[0]


def values_of(feature: str) -> Sequence[Any]:
    name, is_choice, choice = feature.partition("=")
    if not is_choice:
        return VALUES[name]
    return (choice, ALIKE[choice]) if choice in ALIKE else (choice,)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of script: the values that all of them have, and the features that they may have."""

    name: str
    base: Mapping[str, Sequence[Any]]
    features: tuple[str, ...]


JOB_BASE = {name: VALUES[name] for name in ("exp_name", "command")}
JOB = Kind("job", JOB_BASE, tuple(feature for name in VALUES if name not in JOB_BASE for feature in features_of(name)))
GROW = Kind(
    "grow",
    {
        "exp_name": ("train-grow",),
        "command": (grow_job.NO_COMMAND,),
        "signal": (grow_job.TIME_WARNING,),
    },
    tuple(feature for feature in JOB.features if option_of(feature) in grow_job.ALLOWED),
)


@dataclass(frozen=True, eq=False)
class Launch:
    """Features, and values that LaunchSpec accepts for them."""

    kind: Kind
    features: frozenset[str]
    values: Mapping[str, Any]

    def has(self, *names: str) -> bool:
        """Whether it has any of these options or features."""
        return any(name in self.features or name in map(option_of, self.features) for name in names)

    def __repr__(self) -> str:  # for a report of hypothesis
        return f"{self.kind.name}: {dict(self.values)}"


def plain(kind: Kind, chance: random.Random) -> Launch:
    return Launch(kind, frozenset(), {name: chance.choice(values) for name, values in kind.base.items()})


def extended(launch: Launch, feature: str, chance: random.Random, without: Iterable[str] = ()) -> Launch | None:
    """The launch with one more feature and what comes with it; None if LaunchSpec refuses all values."""
    name = option_of(feature)
    if launch.has(name):
        return launch if feature in launch.features else None
    needed = WITH.get(name, ())
    possible = [one for one in needed if one in launch.kind.features and one not in (*launch.features, *without)]
    if more := _with_value(launch, feature, chance):
        if not needed or more.has(*needed):
            return more
        return next(filter(None, (extended(more, one, chance, without) for one in possible)), more)
    starts = filter(None, (extended(launch, one, chance, without) for one in possible))
    return next(filter(None, (_with_value(start, feature, chance) for start in starts)), None)


def _with_value(launch: Launch, feature: str, chance: random.Random) -> Launch | None:
    """The launch with a value for one more feature; None if LaunchSpec refuses all of its values."""
    name = option_of(feature)
    for value in chance.sample(values_of(feature), len(values_of(feature))):
        values = {**launch.values, name: value}
        if name == "idle":
            del values["command"]
        if is_valid(values):
            return Launch(launch.kind, launch.features | {feature}, values)
    return None


def is_valid(values: Mapping[str, Any]) -> bool:
    try:
        LaunchSpec(**values)
    except ValidationError:
        return False
    return True


def script(launch: Launch, number: int = 0) -> str:
    spec = LaunchSpec(**launch.values)
    joins = JoinTarget("1234", "/home/me/it's.log", heterogeneous=number % 2 == 1) if launch.kind is GROW else None
    sweep = sweep_tasks(spec, FILE_POINTS if spec.sweep_file else None)
    return render_script(
        spec,
        name=f"{spec.exp_name}_20260102-030405",
        when=WHEN,
        run_dir=spec.run_dir,
        joins=joins,
        points=sweep.points,
        tasks=sweep.tasks,
    )


# --- pairs of features -----------------------------------------------------------------------------------------------

Pair = tuple[tuple[str, bool], tuple[str, bool]]  # two features, each with whether the launch has it


def all_pairs(kind: Kind) -> list[Pair]:
    """All pairs of features with and without each; choices of the same option exclude one another."""
    return [
        ((one, has_one), (other, has_other))
        for one, other in combinations(kind.features, 2)
        if option_of(one) != option_of(other)
        for has_one, has_other in product((True, False), repeat=2)
    ]


def pairs_in(launch: Launch) -> set[Pair]:
    levels = [(feature, feature in launch.features) for feature in launch.kind.features]
    return set(combinations(levels, 2))


@cache
def paired_launches(kind: Kind) -> list[Launch]:
    """Few launches that have all pairs of features between them, except those that LaunchSpec refuses.

    Greedy: each launch starts with a missing pair, and gets the other features that add most of the missing ones.
    """
    chance = random.Random(SEED)
    launches = list(_first_launches(kind, chance))
    missing = set(all_pairs(kind)).difference(*map(pairs_in, launches))
    for pair in all_pairs(kind):
        if pair not in missing:
            continue
        start = _with_pair(kind, pair, chance)
        if start is None:
            continue  # test_every_valid_pair_is_in_a_script knows which
        launch = _filled(start, {feature for feature, wanted in pair if not wanted}, missing, chance)
        missing -= pairs_in(launch)
        launches.append(launch)
    return launches


def _first_launches(kind: Kind, chance: random.Random) -> Iterator[Launch]:
    """Each runtime alone, on several nodes with one image: the others mostly have too many features to isolate it."""
    for runtime in features_of("container_runtime"):
        launch = plain(kind, chance)
        for feature in (runtime, "container_image", "num_nodes"):
            launch = extended(launch, feature, chance) or launch
        yield launch


def _with_pair(kind: Kind, pair: Pair, chance: random.Random) -> Launch | None:
    """A launch with little more than a pair; None if LaunchSpec refuses it, whichever values they have."""
    wanted = [feature for feature, has in pair if has]
    unwanted = [feature for feature, has in pair if not has]
    for attempt in range(10):
        launch: Launch | None = plain(kind, chance)
        for feature in wanted if attempt % 2 else reversed(wanted):
            launch = launch and extended(launch, feature, chance, unwanted)
        if launch is not None:
            return launch
    return None


def _filled(launch: Launch, without: set[str], missing: set[Pair], chance: random.Random) -> Launch:
    """The launch with each further feature that covers more missing pairs than its absence does."""
    order = list(launch.kind.features)
    place = {feature: number for number, feature in enumerate(order)}
    without = set(without)

    def gain(feature: str, has: bool) -> int:
        others = [*((one, True) for one in launch.features), *((one, False) for one in without)]
        level = (feature, has)
        return sum(((level, one) if place[feature] < place[one[0]] else (one, level)) in missing for one in others)

    wanted = Counter(one for pair in missing for one, has in pair if has)
    for feature in sorted(chance.sample(order, len(order)), key=lambda one: -wanted[one]):
        if feature in launch.features or feature in without:
            continue
        if gain(feature, True) > gain(feature, False) and (more := extended(launch, feature, chance, without)):
            launch = more
        else:
            without.add(feature)
    return launch


# --- random launches -------------------------------------------------------------------------------------------------


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """Features that are drawn, without those that LaunchSpec refuses together with the ones before them."""
    kind = draw(st.sampled_from((JOB, JOB, JOB, GROW)))
    chance = draw(st.randoms(use_true_random=True))  # its seed is drawn, so it is reproducible
    launch = plain(kind, chance)
    for feature in draw(st.lists(st.sampled_from(kind.features), unique=True, min_size=3, max_size=30)):
        launch = extended(launch, feature, chance) or launch
    return launch


@cache
def random_launches() -> list[Launch]:
    found: list[Launch] = []

    @settings(
        max_examples=RANDOM_SCRIPTS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(launch=launches())
    def render(launch: Launch) -> None:
        script(launch)  # hypothesis reports a small example if this fails
        found.append(launch)

    render()
    return found


# --- tests -----------------------------------------------------------------------------------------------------------

each_kind = pytest.mark.parametrize("kind", [JOB, GROW], ids=lambda kind: kind.name)


def texts_of(launches: Iterable[Launch]) -> dict[str, str]:
    """The different scripts, by a name for each."""
    texts = dict.fromkeys(script(launch, number) for number, launch in enumerate(launches))
    return {f"{number:03}": text for number, text in enumerate(texts)}


def syntax_findings(scripts: Sequence[Path]) -> str:
    """What bash -n reports. It reads one script at a time; starting it from bash is faster than from here."""
    command = ["bash", "-c", 'for script; do bash -n "$script"; done', "bash", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


def all_findings(folder: Path, texts: Mapping[str, str], shellchecked: int) -> str:
    """What bash, shfmt and, for the first scripts, shellcheck find. Each report names the file of its script."""
    first, others = list(texts.items())[:shellchecked], list(texts.items())[shellchecked:]
    for name, text in others:
        (folder / f"{name}.sh").write_text(text, encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda half: findings(folder, dict(half)), (first[::2], first[1::2])))
    reports.append(syntax_findings([folder / f"{name}.sh" for name, _ in others]))
    reports.append(formatting_findings(sorted(folder.glob("*.sh"))))
    return "".join(reports)


@each_kind
def test_nothing_is_found_in_scripts_with_any_two_options(kind: Kind, tmp_path: Path) -> None:
    texts = texts_of(paired_launches(kind))
    report = all_findings(tmp_path, texts, shellchecked=len(texts))
    assert not report, report[:REPORT]


def test_nothing_is_found_in_random_scripts(tmp_path: Path) -> None:
    texts = texts_of(random_launches())
    assert len(texts) > RANDOM_SCRIPTS * 2 // 3, "too many are the same"
    report = all_findings(tmp_path, texts, SHELLCHECKED)
    assert not report, report[:REPORT]


def test_every_finding_is_reported(tmp_path: Path) -> None:
    texts = {"good": "echo", "careless": "echo $1", "other": "echo", "broken": "if", "unformatted": "echo  x"}
    texts = {name: f"#!/bin/bash\n{text}\n" for name, text in texts.items()}
    report = all_findings(tmp_path, texts, shellchecked=3)
    assert "SC2086" in report
    assert "broken.sh: line 3: syntax error" in report
    assert "-echo  x" in report
    assert "good.sh" not in report


def test_every_option_is_in_the_table() -> None:
    """A new option needs values in VALUES, or a reason in NOT_IN_A_SCRIPT."""
    assert sorted([*VALUES, *NOT_IN_A_SCRIPT]) == sorted(options())


@pytest.mark.parametrize("name", [name for name in VALUES if has_choices(name)])
def test_every_choice_is_in_the_table(name: str) -> None:
    field = LaunchSpec.model_fields[name]
    assert {*VALUES[name], field.default} == set(get_args(field.annotation))


@pytest.mark.parametrize("name", VALUES)
def test_every_value_is_in_a_script(name: str) -> None:
    names = IMAGE_OPTIONS if name in IMAGE_OPTIONS else (name,)  # few runtimes accept all of their values
    launches = (*paired_launches(JOB), *paired_launches(GROW), *random_launches())
    used = [launch.values.get(one) for launch in launches for one in names]
    assert [value for value in VALUES[name] if value not in used] == []


# The features of the first tuple exclude those of the second.
_HETEROGENEOUS = ("head_cpus", "head_mem", "head_partition", "head_constraint", "worker_group")
_CHAIN = ("chain", "chain_while=ok", "chain_while=notok")
EXCLUSIVE: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (_HETEROGENEOUS, ("array", "sweep", "sweep_file", "max_parallel", "points", *_CHAIN)),
    (("array",), ("sweep", "sweep_file", "points", *_CHAIN)),
    (("sweep",), ("sweep_file", *_CHAIN)),
    (("sweep_file", "max_parallel", "points", "requeue", "max_restarts"), _CHAIN),
    (("node",), ("worker_group",)),
    (("mem",), ("mem_per_cpu", "mem_per_gpu")),
    (("mem_per_cpu",), ("mem_per_gpu",)),
    (("signal",), ("signal_before",)),
    (("container_runtime=pyxis",), ("container_cleanenv",)),
    (("container_runtime=shifter",), ("container_cleanenv", "container_home", "container_writable")),
    (("container_runtime=charliecloud",), ("container_cleanenv", "container_writable")),
]
# The first feature never occurs without the second.
DEPENDENT = {
    JOB: [("max_restarts", "requeue"), ("chain_while=ok", "chain"), ("chain_while=notok", "chain")],
    GROW: [("gpu_type", "num_gpus")],  # in other jobs, a worker group may have the GPUs
}


@each_kind
def test_every_valid_pair_is_in_a_script(kind: Kind) -> None:
    invalid = {
        frozenset({(one, True), (other, True)})
        for some, others in EXCLUSIVE
        for one, other in product(some, others)
        if {one, other} <= set(kind.features)
    }
    invalid |= {frozenset({(one, True), (other, False)}) for one, other in DEPENDENT[kind]}
    missing = set(all_pairs(kind)).difference(*map(pairs_in, paired_launches(kind)))
    assert set(map(frozenset, missing)) == invalid


@each_kind
def test_charliecloud_without_an_image_for_the_workers_is_in_a_script(kind: Kind) -> None:
    """A variable that only the workers' image needs was once left in such scripts, unused."""
    launches = [launch for launch in paired_launches(kind) if launch.values.get("container_runtime") == "charliecloud"]
    assert any(launch.has("num_nodes") and not launch.has("head_image", "worker_image") for launch in launches)
