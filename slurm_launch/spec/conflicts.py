"""The checks between the options of a launch; checks.py has those of single values."""

from __future__ import annotations

import re
from math import inf

from slurm_launch.slurm import hostlist, times
from slurm_launch.spec import container_runtimes, hetjob
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.model import IDLE, SpecFields
from slurm_launch.spec.option import (
    ALTERNATIVES,
    DEPENDENCIES,
    IMAGE_NEED,
    MEMORY,
    NEEDS,
    flag_name,
    mutually_exclusive,
)


def check(spec: SpecFields) -> None:
    """Raise BadValue when options contradict each other, or have no effect without another."""
    _check_alternatives(spec)
    _check_nodes(spec)
    _check_tasks(spec)
    _check_dependencies(spec)
    _check_restarts(spec)
    _check_escape_hatches(spec)
    _check_needs(spec)
    hetjob.check(spec)
    _check_requested_tasks(spec)
    _check_requested_gpus(spec)
    _check_requested_memory(spec)
    _check_container(spec)


def _is_given(spec: SpecFields, name: str) -> bool:
    """Whether an option differs from its default."""
    if name == "command":
        return spec.command != IDLE
    return bool(getattr(spec, name) != SpecFields.model_fields[name].get_default())


def _check_alternatives(spec: SpecFields) -> None:
    for names in ALTERNATIVES:
        given = [name for name in names if _is_given(spec, name)]
        if len(given) > 1:
            raise BadValue(*mutually_exclusive(given))


def _check_needs(spec: SpecFields) -> None:
    for name, need in NEEDS.items():
        if need is IMAGE_NEED and spec.container_runtime == "none":
            continue  # the container is switched off, with all of its options
        if need.required and _is_given(spec, name) and not any(_is_used(spec, other) for other in need.options):
            raise BadValue(f"{flag_name(name)} has no effect without {need.what}", need.hint)


def _is_used(spec: SpecFields, name: str) -> bool:
    """Whether the job uses an option that others need."""
    if name == "num_gpus" and any(group.gpus for group in hetjob.worker_groups(spec)):
        return True
    return _is_given(spec, name)


def _check_nodes(spec: SpecFields) -> None:
    if spec.node is not None and spec.num_nodes is not None:
        hosts = len(hostlist.expand(spec.node))
        own_head = hetjob.is_heterogeneous(spec)
        if hosts + own_head != spec.num_nodes:
            head = ", not counting the head's own node," if own_head else ""
            raise BadValue(
                f"--node names {hosts} hosts{head} but --num-nodes is {spec.num_nodes}",
                "make them agree, or omit --num-nodes",
            )
    if spec.min_nodes is not None and spec.min_nodes > hetjob.node_count(spec):
        raise BadValue(
            f"--min-nodes {spec.min_nodes} is more than the {hetjob.node_count(spec)} nodes of the job",
            "use a smaller --min-nodes or a larger --num-nodes",
        )


def _check_tasks(spec: SpecFields) -> None:
    if spec.grow is not None and (spec.array or spec.is_sweep or spec.chain):
        raise BadValue("--grow is for a job with one cluster", "use `slurm-launch grow` for one task of an array")
    if (spec.is_sweep or spec.chain) and "array" in spec.no_sbatch:
        what = "a chain" if spec.chain else "a sweep"
        raise BadValue(f"--no-sbatch array removes the directive that {what} needs", "omit it")
    if spec.chain is not None and spec.max_parallel is not None:
        raise BadValue(
            "--max-parallel and --chain are mutually exclusive", "omit --max-parallel: links run one at a time"
        )
    if spec.max_parallel is not None and "%" in (spec.array or ""):
        raise BadValue(
            f"--max-parallel {spec.max_parallel} and --array {spec.array} both limit the concurrent tasks",
            "omit one of them",
        )


def _check_dependencies(spec: SpecFields) -> None:
    names = [name for name in (*DEPENDENCIES, "singleton") if getattr(spec, name)]
    if not names:
        return
    if spec.dependency and "?" in spec.dependency:
        raise BadValue(
            f"--dependency {spec.dependency} cannot be combined with {flag_name(names[0])}: with ? any part is enough",
            "write all dependencies as one --dependency",
        )
    if "dependency" in spec.sbatch:
        raise BadValue(f"{flag_name(names[0])} and --sbatch dependency are mutually exclusive", "use --dependency")


def _check_restarts(spec: SpecFields) -> None:
    limit = times.seconds(spec.time) if spec.time is not None else inf
    if spec.signal_before is not None and spec.signal_before >= limit:
        raise BadValue(
            f"--signal-before {spec.signal_before} is not below the time limit: --time {spec.time} is {limit:g} s",
            "use a smaller --signal-before or a longer --time",
        )
    if spec.requeue and spec.chain is not None:
        hint = "use one of them; --signal-before works with both"
        raise BadValue("--requeue and --chain are mutually exclusive", hint)


def _check_escape_hatches(spec: SpecFields) -> None:
    """Refuse directives that contradict the script's own: it would wait for a signal or a restart that never comes."""
    if "requeue" in spec.sbatch:
        raise BadValue("--sbatch requeue bypasses the script's restart handling", "use --requeue")
    if spec.requeue and "no-requeue" in spec.sbatch:
        raise BadValue("--requeue and --sbatch no-requeue are mutually exclusive", "use one of them")
    if spec.requeue and "requeue" in spec.no_sbatch:
        raise BadValue("--no-sbatch requeue removes the directive that --requeue needs", "omit one of them")
    if spec.signal_before is None:
        return
    if "signal" in spec.no_sbatch:
        raise BadValue("--no-sbatch signal removes the directive that --signal-before needs", "omit one of them")
    for name, hint in (("signal", "omit --sbatch signal"), ("time", "use --time")):
        if name in spec.sbatch:
            raise BadValue(f"--signal-before and --sbatch {name} are mutually exclusive", hint)


_PER_NODE = "use --num-gpus with the GPUs of each node, and --cpus-per-task with its CPUs"


def hatches(spec: SpecFields) -> dict[str, str | None]:
    """The directives of --sbatch, without those that --no-sbatch drops."""
    return {key: text for key, text in spec.sbatch.items() if key not in spec.no_sbatch}


def _flag(key: str, text: str | None) -> str:
    return f"--sbatch {key}={text}" if text else f"--sbatch {key}"


def _check_requested_tasks(spec: SpecFields) -> None:
    """Refuse several tasks on a node: Slurm would share its resources out among them, and Ray runs in one."""
    expected = {"ntasks-per-node": "1", "ntasks": str(hetjob.node_count(spec)), "ntasks-per-gpu": None}
    for key, text in hatches(spec).items():
        if key in expected and (text is None or text != expected[key]):
            what = f"{_flag(key, text)} contradicts the script, which runs one task on each node"
            raise BadValue(f"{what}: Ray would get that task's share of the node", f"omit it; {_PER_NODE}")


def _check_requested_gpus(spec: SpecFields) -> None:
    """Refuse requests for GPUs that Slurm rejects, or that the steps of the script cannot use."""
    given, requests = hatches(spec), gpu_requests(spec)
    nodes = max(hetjob.node_count(spec), spec.grow or 1)
    if "gpus-per-socket" in given:
        raise BadValue("--sbatch gpus-per-socket does not work for the script's steps", _PER_NODE)
    if "gpus" in given and nodes > 1:
        what = f"{_flag('gpus', given['gpus'])} is the number for all {nodes} nodes"
        raise BadValue(f"{what}: Slurm rejects the step of a single node", _PER_NODE)
    if len(requests) > 1:
        first, second = list(requests.values())[:2]
        raise BadValue(f"{first} and {second} both request GPUs, which Slurm 26.05 refuses", "use one of them")
    if spec.gpu_directive == "gres" and "gres" in given and has_gpus(spec) and not requests:
        gres = ":".join(filter(None, ("gpu", spec.gpu_type, str(spec.num_gpus or "N"))))
        raise BadValue(
            f"{_flag('gres', given['gres'])} replaces the GPUs that --gpu-directive gres requests",
            f"write --sbatch gres={gres},{given['gres']}, or use another --gpu-directive",
        )


def gpu_requests(spec: SpecFields) -> dict[str, str]:
    """The directives that request GPUs, each with the option that sets it. --sbatch replaces one of the same name."""
    given = hatches(spec)
    requests: dict[str, str] = {}
    if has_gpus(spec) and spec.gpu_directive not in ("none", *spec.no_sbatch, *given):
        requests[spec.gpu_directive] = f"--num-gpus (--{spec.gpu_directive})"
    for key in ("gpus", "gpus-per-node", "gpus-per-task", "gres"):
        text = given.get(key)
        if text and (key != "gres" or re.search(r"(^|[,/:])gpu\b", text)):
            requests[key] = _flag(key, text)
    return requests


def has_gpus(spec: SpecFields) -> bool:
    """Whether --num-gpus or a worker group requests GPUs."""
    return _is_used(spec, "num_gpus")


def _check_requested_memory(spec: SpecFields) -> None:
    """Refuse memory that is requested in two ways, as sbatch does. --sbatch mem replaces --mem."""
    ways = {}
    for name in MEMORY:
        key = name.replace("_", "-")
        if key in hatches(spec):
            ways[key] = f"--sbatch {key}"
        elif getattr(spec, name) is not None and key not in spec.no_sbatch:
            ways[key] = flag_name(name)
    if len(ways) > 1:
        raise BadValue(f"{' and '.join(ways.values())} are mutually exclusive", "use one of them")


def _check_container(spec: SpecFields) -> None:
    runtime = container_runtimes.runtime_of(spec)
    if runtime is None:
        if spec.worker_image and spec.container_runtime != "none":
            raise BadValue(
                "--worker-image alone leaves the head without an image", "add --head-image or --container-image"
            )
        return
    runtime.check(spec)
    for mount in spec.container_mounts:
        source, target = mount.split(":")[:2]
        if target == spec.temp_dir.rstrip("/") and (source != target or mount.endswith(":ro")):
            raise BadValue(
                f"--container-mounts: {mount} hides --temp-dir {target}, which Ray and the script share",
                "use another --temp-dir or another mount target",
            )
