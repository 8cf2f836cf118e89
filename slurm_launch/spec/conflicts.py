"""What must agree between the options of a launch; each one's own check is in values.py and its kin."""

from __future__ import annotations

from math import inf

from slurm_launch.slurm import hostlist, times
from slurm_launch.spec import container_runtimes, hetjob
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.model import SpecFields
from slurm_launch.spec.option import IMAGES, MEMORY, NEEDS, flag_name


def check(spec: SpecFields) -> None:
    """Raise BadValue when what is asked for does not fit together."""
    given = [flag_name(name) for name in MEMORY if getattr(spec, name) is not None]
    if len(given) > 1:
        raise BadValue(f"{' and '.join(given)} exclude one another", "give one of them")
    if spec.node is not None and spec.num_nodes is not None:
        hosts = len(hostlist.expand(spec.node))
        if hosts + hetjob.own_head(spec) != spec.num_nodes:
            beside = ", and the head has one of its own" if hetjob.own_head(spec) else ""
            raise BadValue(
                f"--node names {hosts} hosts{beside}, but --num-nodes is {spec.num_nodes}",
                "make them agree, or leave --num-nodes out",
            )
    if spec.min_nodes is not None and spec.min_nodes > hetjob.nodes(spec):
        raise BadValue(
            f"--min-nodes {spec.min_nodes} is more than the {hetjob.nodes(spec)} nodes of the job",
            "give a smaller --min-nodes or a larger --num-nodes",
        )
    _tasks_fit(spec)
    if spec.gpu_type is not None and spec.num_gpus == 0 and not any(group.gpus for group in hetjob.groups(spec)):
        raise BadValue("--gpu-type without --num-gpus asks for no GPU", "add --num-gpus N")
    _dependencies_fit(spec)
    _restarts_fit(spec)
    hetjob.check(spec)
    _container_fits(spec)


def _dependencies_fit(spec: SpecFields) -> None:
    names = [name for name in ("after", "after_ok", "after_any", "after_notok", "singleton") if getattr(spec, name)]
    if not names:
        return
    if spec.dependency and "?" in spec.dependency:
        raise BadValue(
            f"--dependency {spec.dependency} and {flag_name(names[0])} cannot be joined: with ? any part is enough",
            "write all of it as one --dependency",
        )
    if "dependency" in spec.sbatch:
        raise BadValue(f"{flag_name(names[0])} and --sbatch dependency exclude one another", "use --dependency")


def _tasks_fit(spec: SpecFields) -> None:
    if spec.grow is not None and (spec.array or spec.is_sweep or spec.chain):
        raise BadValue("--grow is for a job with one cluster", "an array's task can be grown by `slurm-launch grow`")
    given = [flag_name(name) for name in ("array", "sweep", "sweep_file", "chain") if getattr(spec, name)]
    if len(given) > 1:
        raise BadValue(f"{' and '.join(given)} exclude one another", "give one of them")
    if (spec.is_sweep or spec.chain) and "array" in spec.no_sbatch:
        what = "a chain" if spec.chain else "a sweep"
        raise BadValue(f"--no-sbatch array takes away what {what} is: an array", "leave it out")
    if spec.chain is None and spec.chain_while != "any":
        raise BadValue("--chain-while without --chain has no effect", "add --chain N")
    if spec.chain is not None and spec.max_parallel is not None:
        raise BadValue("--max-parallel and --chain exclude one another", "of a chain one link runs at a time")
    if spec.points is not None and not spec.is_sweep:
        raise BadValue("--points without a sweep has no points to choose from", "add --sweep or --sweep-file")
    if spec.max_parallel is not None:
        if not given:
            raise BadValue("--max-parallel is for sweeps and arrays", "add --sweep, --sweep-file or --array")
        if "%" in (spec.array or ""):
            raise BadValue(
                f"--max-parallel {spec.max_parallel} and --array {spec.array} both say how many run at a time",
                "leave one of them out",
            )


def _restarts_fit(spec: SpecFields) -> None:
    if spec.signal is not None and spec.signal_before is not None:
        raise BadValue("--signal and --signal-before exclude one another", "give one of them")
    limit = times.seconds(spec.time) if spec.time is not None else inf
    if spec.signal_before is not None and spec.signal_before >= limit:
        raise BadValue(
            f"--signal-before {spec.signal_before} is not below the time limit: --time {spec.time} is {limit:g} s",
            "give a smaller --signal-before, or a longer --time",
        )
    if spec.requeue and spec.chain is not None:
        hint = "give one of them; a chain's links can have --signal-before, too"
        raise BadValue("--requeue and --chain exclude one another: two ways in which a job goes on", hint)
    if spec.max_restarts is not None and not spec.requeue:
        raise BadValue("--max-restarts without --requeue has no effect", "add --requeue")
    if spec.checkpoint_signal is not None and not spec.goes_on:
        raise BadValue("--checkpoint-signal without --signal-before has no effect", "add --signal-before 120")
    _hatches_agree(spec)


def _hatches_agree(spec: SpecFields) -> None:
    """The script counts on its own directives: it would wait for a warning or a life that never comes."""
    if "requeue" in spec.sbatch:
        raise BadValue("--sbatch requeue is not known to the script", "use --requeue")
    if spec.requeue and "no-requeue" in spec.sbatch:
        raise BadValue("--requeue and --sbatch no-requeue exclude one another", "give one of them")
    if spec.requeue and "requeue" in spec.no_sbatch:
        raise BadValue("--no-sbatch requeue takes away what --requeue is", "leave one of them out")
    if spec.signal_before is None:
        return
    if "signal" in spec.no_sbatch:
        raise BadValue("--no-sbatch signal takes away what --signal-before is", "leave one of them out")
    for name, instead in (("signal", "leave it out"), ("time", "use --time")):
        if name in spec.sbatch:
            raise BadValue(f"--signal-before and --sbatch {name} exclude one another", instead)


def _container_fits(spec: SpecFields) -> None:
    runtime = container_runtimes.runtime_of(spec)
    if runtime is None:
        if spec.worker_image and spec.container_runtime != "none":
            raise BadValue(
                "--worker-image alone leaves the head without an image", "add --head-image or --container-image"
            )
        for name, needed in NEEDS.items() if spec.container_runtime != "none" else ():
            if needed == IMAGES and getattr(spec, name) != type(spec).model_fields[name].default:
                raise BadValue(f"{flag_name(name)} without an image has no effect", "add --container-image")
        return
    runtime.check(spec)
    for mount in spec.container_mounts:
        source, target = mount.split(":")[:2]
        if target == spec.temp_dir.rstrip("/") and (source != target or mount.endswith(":ro")):
            raise BadValue(
                f"--container-mounts puts {mount} where --temp-dir is: {target}",
                "choose another --temp-dir, or mount it elsewhere: Ray and the script meet in --temp-dir",
            )
