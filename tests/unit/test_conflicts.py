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
