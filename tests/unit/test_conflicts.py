"""The rules between options: spec/option.py declares alternatives and needs once, spec/conflicts.py enforces them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from pydantic import ValidationError

from slurm_launch import LaunchSpec
from slurm_launch.spec.model import SpecFields, options
from slurm_launch.spec.option import ALTERNATIVES, IMAGES, NEEDS, flag_name

# Valid values that differ from the defaults, where the examples of the help are not enough.
VALUES: dict[str, Any] = {
    "idle": True,
    "chain_while": "ok",
    "container_home": True,
    "container_writable": True,
    "container_cleanenv": True,
    "container_gpus": "amd",
    "container_image": "ubuntu",
    "requeue": True,
    "array": "0-9",
}


def value(name: str) -> Any:
    return VALUES.get(name) or options()[name].examples[0]


def problem(**values: Any) -> tuple[str, str]:
    """The message and the hint of the only problem with a spec."""
    with pytest.raises(ValidationError) as caught:
        LaunchSpec(**values)
    (error,) = caught.value.errors()
    cause = error["ctx"]["error"]
    return str(cause), cause.hint


def spec_values(*names: str) -> dict[str, Any]:
    required = {"exp_name": "x"} if "idle" in names else {"exp_name": "x", "command": "true"}
    return required | {name: value(name) for name in names}


@pytest.mark.parametrize("pair", [pair for names in ALTERNATIVES for pair in combinations(names, 2)], ids="-".join)
def test_alternatives_are_mutually_exclusive(pair: tuple[str, str]) -> None:
    flags = " and ".join(map(flag_name, pair))
    assert problem(**spec_values(*pair)) == (f"{flags} are mutually exclusive", "use one of them")


@pytest.mark.parametrize("name", [name for name, need in NEEDS.items() if need.required])
def test_an_option_without_what_it_needs(name: str) -> None:
    message, hint = problem(**spec_values(name))
    assert message == f"{flag_name(name)} has no effect without {NEEDS[name].what}"
    assert hint == NEEDS[name].hint


@pytest.mark.parametrize("name", NEEDS)
def test_an_option_with_what_it_needs(name: str) -> None:
    runtime = {"container_runtime": "podman"} if NEEDS[name].options == IMAGES else {}
    for needed in NEEDS[name].options:
        head = {"head_image": "ubuntu"} if needed == "worker_image" else {}
        image = {needed: "ubuntu"} if needed in IMAGES else {}
        assert LaunchSpec(**(spec_values(name, needed) | runtime | head | image))


def test_gpus_of_a_worker_group_are_gpus() -> None:
    assert LaunchSpec(exp_name="x", command="true", gpu_type="a100", worker_group=["n=1,gpus=2"])


def test_a_checkpoint_directory_is_harmless_without_restarts() -> None:
    """A project file may set it for all of its jobs."""
    assert LaunchSpec(exp_name="x", command="true", checkpoint_dir="/scratch")


def test_the_options_of_a_container_that_is_switched_off() -> None:
    assert LaunchSpec(exp_name="x", command="true", container_runtime="none", container_home=True)


def test_the_rules_name_options_of_the_model() -> None:
    named = {name for names in ALTERNATIVES for name in names}
    named |= set(NEEDS) | {name for need in NEEDS.values() for name in need.options}
    assert named <= set(SpecFields.model_fields)


# Requests by --sbatch that the script's steps, one task on each node, cannot use


def given(text: str) -> dict[str, Any]:
    """The options of a command line without spaces in values; --sbatch is repeatable."""
    values: dict[str, Any] = {"exp_name": "x", "command": "true", "sbatch": {}, "no_sbatch": []}
    for flag, value in (word.split("=", 1) for word in text.split()):
        if flag == "sbatch":
            key, _, more = value.partition("=")
            values["sbatch"][key] = more or None
        elif flag == "no_sbatch":
            values["no_sbatch"].append(value)
        else:
            values[flag] = int(value) if value.isdigit() else value
    return values


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            "num_nodes=2 sbatch=gpus=4",
            "--sbatch gpus=4 is the number for all 2 nodes: Slurm rejects the step of a single node",
            "use --num-gpus with the GPUs of each node",
        ),
        ("grow=2 sbatch=gpus=a100:4", "--sbatch gpus=a100:4 is the number for all 2 nodes", "use --num-gpus"),
        ("head_cpus=1 num_nodes=2 sbatch=gpus=4", "--sbatch gpus=4 is the number for all 2 nodes", "use --num-gpus"),
        ("sbatch=gpus-per-socket=1", "--sbatch gpus-per-socket does not work", "use --num-gpus"),
        (
            "num_nodes=2 sbatch=ntasks-per-node=2 sbatch=gpus-per-task=1",
            "--sbatch ntasks-per-node=2 contradicts the script, which runs one task on each node:"
            " Ray would get that task's share of the node",
            "omit it; use --num-gpus with the GPUs of each node, and --cpus-per-task with its CPUs",
        ),
        ("num_nodes=2 sbatch=ntasks=4", "--sbatch ntasks=4 contradicts the script", "omit it; use --num-gpus"),
        ("sbatch=ntasks=2 no_sbatch=ntasks-per-node", "--sbatch ntasks=2 contradicts the script", "omit it"),
        ("sbatch=ntasks-per-gpu=1", "--sbatch ntasks-per-gpu=1 contradicts the script", "omit it"),
        ("sbatch=ntasks-per-node", "--sbatch ntasks-per-node contradicts the script", "omit it"),
        (
            "num_gpus=2 sbatch=gres=gpu:2",
            "--num-gpus (--gpus-per-node) and --sbatch gres=gpu:2 both request GPUs, which Slurm 26.05 refuses",
            "use one of them",
        ),
        ("num_gpus=2 sbatch=gres=nvme:1,gpu:2", "--num-gpus (--gpus-per-node) and --sbatch gres=nvme:1", "use one"),
        (
            "num_gpus=2 gpu_directive=gres sbatch=gpus-per-node=2",
            "--num-gpus (--gres) and --sbatch gpus-per",
            "use one",
        ),
        ("num_gpus=2 sbatch=gpus=2", "--num-gpus (--gpus-per-node) and --sbatch gpus=2", "use one of them"),
        ("sbatch=gpus-per-task=1 sbatch=gres=gpu:1", "--sbatch gpus-per-task=1 and --sbatch gres=gpu:1", "use one"),
        (
            "num_gpus=2 gpu_type=a100 gpu_directive=gres sbatch=gres=nvme:1",
            "--sbatch gres=nvme:1 replaces the GPUs that --gpu-directive gres requests",
            "write --sbatch gres=gpu:a100:2,nvme:1, or use another --gpu-directive",
        ),
        ("mem=4G sbatch=mem-per-cpu=1G", "--mem and --sbatch mem-per-cpu are mutually exclusive", "use one of them"),
        ("mem_per_gpu=4G sbatch=mem=1G", "--sbatch mem and --mem-per-gpu are mutually exclusive", "use one of them"),
        ("sbatch=mem=4G sbatch=mem-per-cpu=1G", "--sbatch mem and --sbatch mem-per-cpu are", "use one of them"),
    ],
)
def test_requests_that_cannot_work(options: str, message: str, hint: str) -> None:
    told, what_to_do = problem(**given(options))
    assert told.startswith(message)
    assert what_to_do.startswith(hint)


@pytest.mark.parametrize(
    "options",
    [
        "sbatch=gpus=4",
        "num_nodes=2 sbatch=gpus-per-node=4",
        "num_nodes=2 sbatch=gpus-per-task=4",
        "num_nodes=2 num_gpus=2 sbatch=gpus-per-node=4",  # replaces the other
        "num_nodes=2 num_gpus=4 gpu_directive=none sbatch=gres=gpu:4",
        "num_nodes=2 num_gpus=4 no_sbatch=gpus-per-node sbatch=gres=gpu:4",
        "num_nodes=2 num_gpus=4 sbatch=gres=nvme:1",
        "num_nodes=2 num_gpus=4 gpu_directive=gres sbatch=gres=gpu:4,nvme:1",
        "num_nodes=2 sbatch=gres=shard:2",
        "num_nodes=2 sbatch=ntasks-per-node=1 sbatch=ntasks=2",
        "mem=4G sbatch=mem=8G",
        "mem=4G no_sbatch=mem sbatch=mem-per-cpu=1G",
        "num_nodes=2 sbatch=gpus=4 no_sbatch=gpus",  # of a profile, say
        "num_nodes=2 sbatch=ntasks=4 no_sbatch=ntasks",
        "sbatch=mem-per-cpu=1G sbatch=mem-bind=local",
    ],
)
def test_requests_that_work(options: str) -> None:
    assert LaunchSpec(**given(options))
