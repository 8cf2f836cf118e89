"""LaunchSpec: the fields of the model, checked against one another."""

from typing import Any

from pydantic import ConfigDict, model_validator

from slurm_launch.spec import checks, conflicts, hetjob
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.model import IDLE, SpecFields


class LaunchSpec(SpecFields):
    """What to launch, on what, and how; complete, checked and frozen."""

    model_config = ConfigDict(defer_build=False)

    @model_validator(mode="before")
    @classmethod
    def _waiting(cls, data: Any) -> Any:
        if isinstance(data, dict) and checks.is_yes(data.get("idle")):
            if data.get("command") is not None:
                raise BadValue("--command and --idle exclude one another", "give one of them")
            return {**data, "command": IDLE}
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> "LaunchSpec":
        conflicts.check(self)
        return self

    @property
    def nodes(self) -> int:
        """The number of nodes, whichever way it was given."""
        return hetjob.nodes(self)

    @property
    def own_head(self) -> bool:
        """Whether it is a heterogeneous job, in which head and command have a component of their own."""
        return hetjob.own_head(self)

    def tasks(self, numbers: str | None = None) -> str | None:
        """The tasks of the array, as sbatch takes them: of --array or, for a sweep, these; None for a single job."""
        if self.chain is not None:
            return f"0-{self.chain - 1}%1"  # one at a time, in this order
        numbers = numbers or self.array
        return f"{numbers}%{self.max_parallel}" if numbers and self.max_parallel else numbers

    def given(self) -> dict[str, Any]:
        """The values that differ from the defaults, plain enough for JSON and YAML, by their YAML keys."""
        unsaid = {"command"} if self.idle else None
        found = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=unsaid)
        if self.sweep:  # the order of its keys is that of the points: a mapping somebody might sort
            found["sweep"] = [f"{key}={text}" for key, text in self.sweep.items()]
        return found
