"""LaunchSpec: the fields of the model, with the checks between them."""

from typing import Any

from pydantic import ConfigDict, model_validator

from slurm_launch.spec import checks, conflicts, hetjob
from slurm_launch.spec.model import IDLE, SpecFields


class LaunchSpec(SpecFields):
    """What to launch, where and how: complete, checked and frozen."""

    model_config = ConfigDict(defer_build=False)

    @model_validator(mode="before")
    @classmethod
    def _set_idle_command(cls, data: Any) -> Any:
        if isinstance(data, dict) and checks.is_true(data.get("idle")) and data.get("command") is None:
            return {**data, "command": IDLE}
        return data

    @model_validator(mode="after")
    def _check_conflicts(self) -> "LaunchSpec":
        conflicts.check(self)
        return self

    @property
    def nodes(self) -> int:
        """The number of nodes, however it was specified."""
        return hetjob.node_count(self)

    @property
    def is_heterogeneous(self) -> bool:
        """Whether it is a heterogeneous job, in which head and command have a component of their own."""
        return hetjob.is_heterogeneous(self)

    def tasks(self, numbers: str | None = None) -> str | None:
        """The value of sbatch's --array: the spec's own tasks, or the `numbers` of a sweep; None for a single job."""
        if self.chain is not None:
            return f"0-{self.chain - 1}%1"  # one at a time, in this order
        numbers = numbers or self.array
        return f"{numbers}%{self.max_parallel}" if numbers and self.max_parallel else numbers

    def given(self) -> dict[str, Any]:
        """The values that differ from the defaults, by YAML key, as JSON and YAML can hold them."""
        implied = {"command"} if self.idle else None
        values = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=implied)
        if self.sweep:  # a list keeps the order of the keys, which determines the order of the points
            values["sweep"] = [f"{key}={text}" for key, text in self.sweep.items()]
        return values
