"""The components of a heterogeneous job: one for the head, one for each worker group.

A component is a spec with the values of this part of the job; rendering/directives.py writes its directives.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from slurm_launch.slurm import hostlist
from slurm_launch.spec.checks import BadValue, memory_bytes
from slurm_launch.spec.model import SpecFields
from slurm_launch.spec.option import MEMORY, flag_name, mutually_exclusive
from slurm_launch.spec.worker_groups import WorkerGroup, parse

# Directives for the job as a whole, or that sbatch passes on to all later components: only the first component has
# them. (The list is from Slurm's documentation; tests/slurm/test_heterogeneous.py checks it on a real cluster.)
_WHOLE_JOB = """account acctg-freq array begin bb bbf chdir cluster-constraint clusters comment deadline delay-boot
dependency error export export-file get-user-env gid hold ignore-pbs input job-name kill-on-invalid-dep licenses
mail-type mail-user mcs-label nice no-requeue open-mode output parsable power priority profile propagate qos quiet
requeue signal time time-min uid verbose wait wckey"""
WHOLE_JOB_DIRECTIVES = frozenset(_WHOLE_JOB.split())
_HEAD_OPTIONS = ("head_cpus", "head_mem", "head_partition", "head_constraint")
_NO_MEMORY: dict[str, Any] = dict.fromkeys(MEMORY)
Spec = TypeVar("Spec", bound=SpecFields)


def is_heterogeneous(spec: SpecFields) -> bool:
    """Whether head and command have a component of their own."""
    return bool(spec.worker_group or _head_flags(spec))


def _head_flags(spec: SpecFields) -> list[str]:
    return [flag_name(name) for name in _HEAD_OPTIONS if getattr(spec, name) is not None]


def worker_groups(spec: SpecFields) -> list[WorkerGroup]:
    """The worker groups of a heterogeneous job; without --worker-group all workers are one group."""
    if not is_heterogeneous(spec):
        return []
    return [parse(text) for text in spec.worker_group] or [WorkerGroup(n=node_count(spec) - 1)]


def node_count(spec: SpecFields) -> int:
    """The number of nodes of the Ray cluster, including the head."""
    if spec.worker_group:
        return 1 + sum(parse(text).n for text in spec.worker_group)
    if spec.num_nodes is not None:
        return spec.num_nodes
    if spec.node is not None:
        return len(hostlist.expand(spec.node)) + is_heterogeneous(spec)
    return 1


# --- checks ----------------------------------------------------------------------------------------------------------


def check(spec: SpecFields) -> None:
    """Raise BadValue when the options for the head and the workers contradict each other."""
    _check_head(spec)
    if not is_heterogeneous(spec):
        return
    _check_no_array(spec)
    if spec.worker_group:
        _check_groups(spec)
    components(spec)


def _check_head(spec: SpecFields) -> None:
    if spec.dedicated_head and spec.head_num_cpus:
        raise BadValue(*mutually_exclusive(("dedicated_head", "head_num_cpus")))
    flags = _head_flags(spec)
    if spec.head_num_cpus == 0:
        flags.insert(0, "--head-num-cpus 0")
    if spec.dedicated_head:
        flags.insert(0, "--dedicated-head")
    if flags and node_count(spec) == 1:
        hint = "use --num-nodes 2 or more: one node for the head, the others for workers"
        raise BadValue(f"{flags[0]} leaves a single-node job without workers", hint)


def _check_no_array(spec: SpecFields) -> None:
    if spec.is_sweep:
        array = "--sweep"
    elif spec.chain is not None:
        array = "--chain"
    elif spec.array is not None:
        array = "--array"
    else:
        return
    flag = "--worker-group" if spec.worker_group else _head_flags(spec)[0]
    raise BadValue(
        f"{flag} makes a heterogeneous job, which Slurm cannot run as an array: {array} is not possible",
        f"omit {array}, or use --dedicated-head, which needs no heterogeneous job",
    )


def _check_groups(spec: SpecFields) -> None:
    if spec.num_nodes is not None and spec.num_nodes != node_count(spec):
        raise BadValue(
            f"--worker-group makes {node_count(spec)} nodes including the head, but --num-nodes is {spec.num_nodes}",
            "make them agree, or omit --num-nodes",
        )
    if spec.node is not None:
        hint = "name the nodes in the groups: --worker-group 'n=2,node=gpu[01-02]'"
        raise BadValue(
            "--node cannot be combined with --worker-group: it does not specify the group of each node", hint
        )
    for group in worker_groups(spec):
        if spec.gpu_directive == "none" and group.gpus not in (None, spec.num_gpus):
            hint = "use --num-gpus for all groups, or another --gpu-directive"
            raise BadValue("--gpu-directive none requests no GPUs, so a --worker-group cannot set gpus=", hint)
        if group.gpu_type is not None and not (spec.num_gpus if group.gpus is None else group.gpus):
            raise BadValue(f"--worker-group has gpu-type={group.gpu_type}, but no GPUs", "add gpus=N to it")


# --- components ------------------------------------------------------------------------------------------------------


def components(spec: Spec) -> list[Spec]:
    """A spec for each component, the head's first; an empty list for a job that is not heterogeneous.

    A component inherits the plain options that it does not set itself."""
    if not is_heterogeneous(spec):
        return []
    parts = [_head_component(spec)]
    parts += [_group_component(spec, group) for group in worker_groups(spec)]
    return _with_memory_per_cpu(parts)


def _component(spec: Spec, values: dict[str, Any]) -> Spec:
    plain = {**dict.fromkeys(_HEAD_OPTIONS), "worker_group": (), "dedicated_head": False}
    return spec.model_copy(update={**plain, **values})


def _head_component(spec: Spec) -> Spec:
    """The head's component: without GPUs, and without the options that select the workers' nodes."""
    values: dict[str, Any] = {
        "num_nodes": 1,
        "num_gpus": 0,
        "gpu_type": None,
        "node": None,
        "exclusive": False,
        "switches": None,
        "mem_per_gpu": None,
        "constraint": spec.head_constraint,
        "cpus_per_task": spec.head_cpus or spec.cpus_per_task,
        "partition": spec.head_partition or spec.partition,
    }
    if spec.head_mem:
        values |= {**_NO_MEMORY, "mem": spec.head_mem}
    return _component(spec, values)


def _group_component(spec: Spec, group: WorkerGroup) -> Spec:
    values: dict[str, Any] = {"num_nodes": group.n}
    own = {
        "num_gpus": group.gpus,
        "gpu_type": group.gpu_type,
        "cpus_per_task": group.cpus,
        "partition": group.partition,
        "constraint": group.constraint,
        "node": group.node,
    }
    values |= {name: value for name, value in own.items() if value is not None}
    if group.mem:
        values |= {**_NO_MEMORY, "mem": group.mem}
    if values.get("num_gpus", spec.num_gpus) == 0:
        values["gpu_type"] = None
    return _component(spec, values)


def _with_memory_per_cpu(parts: list[Spec]) -> list[Spec]:
    """The components with --mem-per-cpu instead of --mem where a later one has no --mem.

    sbatch passes --mem on to all later components, and refuses another kind of memory there."""
    for place in reversed(range(len(parts) - 1)):
        component = parts[place]
        if component.mem is None or all(later.mem is not None for later in parts[place + 1 :]):
            continue
        megabytes = -(-memory_bytes(component.mem, unit="M") // 2**20)
        hint = "set the memory of the others too: --mem SIZE for all, or mem=SIZE in each --worker-group"
        where = "cannot apply to only some nodes of a heterogeneous job"
        if not megabytes:
            raise BadValue(f"mem 0 (all memory of a node) {where}", hint)
        if component.exclusive or "exclusive" in component.sbatch:  # then all CPUs of a node count
            raise BadValue(f"mem {component.mem} with --exclusive {where}", hint)
        per_cpu = -(-megabytes // (component.cpus_per_task or 1))
        parts[place] = component.model_copy(update={"mem": None, "mem_per_cpu": f"{per_cpu}M"})
    return parts


def ray_labels(group: WorkerGroup) -> str:
    """The value of `ray start --labels`."""
    return ",".join(f"{key}={value}" for key, value in group.labels.items())


def ray_resources(group: WorkerGroup) -> str:
    """The value of `ray start --resources`, or an empty text."""
    return json.dumps(group.resources) if group.resources else ""
