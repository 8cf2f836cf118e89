"""The components of a heterogeneous job: the head on its own, then each kind of worker.

A component is a spec like any other, with the values that this part of the job has; directives.py writes each.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from slurm_launch.slurm import hostlist
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.model import SpecFields
from slurm_launch.spec.option import flag_name
from slurm_launch.spec.worker_groups import WorkerGroup, parse

# Directives that sbatch hands on to all later components, or that are about the job as a whole: the first has them.
# (Slurm's documentation has the list, and tests/slurm/test_heterogeneous.py holds our script against the real one.)
_ONCE = """account acctg-freq array begin bb bbf chdir cluster-constraint clusters comment deadline delay-boot
dependency error export export-file get-user-env gid hold ignore-pbs input job-name kill-on-invalid-dep licenses
mail-type mail-user mcs-label nice no-requeue open-mode output parsable power priority profile propagate qos quiet
requeue signal time time-min uid verbose wait wckey"""
Spec = TypeVar("Spec", bound=SpecFields)
ONCE = frozenset(_ONCE.split())
_MEMORY: dict[str, Any] = {"mem": None, "mem_per_cpu": None, "mem_per_gpu": None}


def own_head(spec: SpecFields) -> bool:
    """Whether head and command have a component of their own."""
    return bool(spec.worker_group or _head_flags(spec))


def _head_flags(spec: SpecFields) -> list[str]:
    names = ("head_cpus", "head_mem", "head_partition", "head_constraint")
    return [flag_name(name) for name in names if getattr(spec, name) is not None]


def groups(spec: SpecFields) -> list[WorkerGroup]:
    """The kinds of workers; without --worker-group all are of one kind."""
    if not own_head(spec):
        return []
    return [parse(text) for text in spec.worker_group] or [WorkerGroup(n=nodes(spec) - 1)]


def nodes(spec: SpecFields) -> int:
    """The nodes of the whole Ray cluster, the head among them."""
    if spec.worker_group:
        return 1 + sum(parse(text).n for text in spec.worker_group)
    if spec.num_nodes is not None:
        return spec.num_nodes
    return len(hostlist.expand(spec.node)) + own_head(spec) if spec.node is not None else 1


def check(spec: SpecFields) -> None:
    """Raise BadValue when what is asked for does not fit together."""
    if spec.dedicated_head and spec.head_num_cpus:
        raise BadValue("--dedicated-head and --head-num-cpus exclude one another", "give one of them")
    alone = [flag for flag, given in (("--dedicated-head", spec.dedicated_head), *_flags(spec)) if given]
    if alone and nodes(spec) == 1:
        hint = "give --num-nodes 2 or more: the head, and as many workers as you want"
        raise BadValue(f"{alone[0]} leaves a job on one node without any worker", hint)
    if not own_head(spec):
        return
    if spec.array is not None or spec.is_sweep or spec.chain is not None:
        many = "--sweep" if spec.is_sweep else "--chain" if spec.chain is not None else "--array"
        hint = f"leave {many} out, or use --dedicated-head, which needs no heterogeneous job"
        raise BadValue(f"{_own(spec)} makes a heterogeneous job, of which Slurm makes no array: no {many}", hint)
    if spec.worker_group and spec.num_nodes is not None and spec.num_nodes != nodes(spec):
        raise BadValue(
            f"--worker-group makes {nodes(spec)} nodes, the head among them, but --num-nodes is {spec.num_nodes}",
            "make them agree, or leave --num-nodes out",
        )
    if spec.worker_group and spec.node is not None:
        hint = "say it in the groups: --worker-group 'n=2,node=gpu[01-02]'"
        raise BadValue("--node does not tell which nodes are for which --worker-group", hint)
    if spec.gpu_directive == "none" and any(group.gpus not in (None, spec.num_gpus) for group in groups(spec)):
        hint = "say --num-gpus for all, or another --gpu-directive"
        raise BadValue("--gpu-directive none leaves it to Slurm, so a --worker-group cannot have gpus of its own", hint)
    for group in groups(spec):
        if group.gpu_type is not None and not (spec.num_gpus if group.gpus is None else group.gpus):
            raise BadValue(f"--worker-group has gpu-type={group.gpu_type}, but no GPU", "add gpus=N to it")
    components(spec)


def _flags(spec: SpecFields) -> list[tuple[str, bool]]:
    return [("--head-num-cpus 0", spec.head_num_cpus == 0), *((flag, True) for flag in _head_flags(spec))]


def _own(spec: SpecFields) -> str:
    return "--worker-group" if spec.worker_group else _head_flags(spec)[0]


def components(spec: Spec) -> list[Spec]:
    """A spec for each component, the head's first; nothing for a job that is not heterogeneous.

    What a component does not say it takes from the plain options. The head takes neither GPUs nor what chooses the
    workers' nodes."""
    if not own_head(spec):
        return []
    plain: dict[str, Any] = {"worker_group": (), "head_cpus": None, "head_mem": None, "head_partition": None}
    plain |= {"head_constraint": None, "dedicated_head": False}
    head = {**plain, "num_nodes": 1, "num_gpus": 0, "gpu_type": None, "node": None, "exclusive": False}
    head |= {"switches": None, "mem_per_gpu": None, "constraint": spec.head_constraint}
    head |= {"cpus_per_task": spec.head_cpus or spec.cpus_per_task}
    head |= {"partition": spec.head_partition or spec.partition}
    head |= {**_MEMORY, "mem": spec.head_mem} if spec.head_mem else {}
    found = [spec.model_copy(update=head)]
    for group in groups(spec):
        own = {**plain, "num_nodes": group.n}
        given = {"num_gpus": group.gpus, "gpu_type": group.gpu_type, "cpus_per_task": group.cpus}
        given |= {"partition": group.partition, "constraint": group.constraint, "node": group.node}
        own |= {name: value for name, value in given.items() if value is not None}
        own |= {**_MEMORY, "mem": group.mem} if group.mem else {}
        if own.get("num_gpus", spec.num_gpus) == 0:
            own["gpu_type"] = None
        found.append(spec.model_copy(update=own))
    return _with_own_memory(found)


def _with_own_memory(found: list[Spec]) -> list[Spec]:
    """sbatch hands --mem on to all later components, and would refuse another kind of memory there.

    So a component says it by the CPU when a later one has none of its own or of another kind."""
    for place in reversed(range(len(found) - 1)):
        component = found[place]
        if component.mem is None or all(later.mem is not None for later in found[place + 1 :]):
            continue
        megabytes = _megabytes(component.mem)
        hint = "say mem for the others too: --mem SIZE for all, or mem=SIZE in each --worker-group"
        if not megabytes:
            raise BadValue("mem 0, all of a node's, cannot be said for some of a heterogeneous job's nodes", hint)
        if component.exclusive or "exclusive" in component.sbatch:  # then all CPUs of a node count
            what = f"mem {component.mem} beside --exclusive"
            raise BadValue(f"{what} cannot be said for some of a heterogeneous job's nodes", hint)
        per_cpu = -(-megabytes // (component.cpus_per_task or 1))
        found[place] = component.model_copy(update={"mem": None, "mem_per_cpu": f"{per_cpu}M"})
    return found


def _megabytes(text: str) -> int:
    amount, unit = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.IGNORECASE).groups()  # type: ignore[union-attr]
    return -(-(int(amount) << {"K": 0, "": 10, "M": 10, "G": 20, "T": 30}[unit.upper()]) // 1024)


def ray_labels(group: WorkerGroup) -> str:
    """For `ray start --labels`."""
    return ",".join(f"{key}={value}" for key, value in group.labels.items())


def ray_resources(group: WorkerGroup) -> str:
    """For `ray start --resources`."""
    return json.dumps(group.resources) if group.resources else ""
