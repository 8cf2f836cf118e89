"""A separate head node and worker groups: what can be requested, and the directives it results in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from slurm_launch import LaunchSpec
from slurm_launch.config import resolve
from slurm_launch.errors import InvalidSpec
from slurm_launch.rendering.directives import directive_lines
from slurm_launch.slurm import jobs
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.hetjob import components, ray_labels, ray_resources, worker_groups
from slurm_launch.spec.worker_groups import WorkerGroup, parse

PLAIN: dict[str, Any] = {"exp_name": "t", "command": "true"}


def spec(**options: Any) -> LaunchSpec:
    return LaunchSpec(**{**PLAIN, **options})


def parts(spec: LaunchSpec) -> list[list[str]]:
    """The directives of each component, without those that every job has."""
    text = "\n".join(directive_lines(spec, "t.log")).replace("#SBATCH --", "")
    return [part.split() for part in re.split(r"\n?#SBATCH hetjob\n", text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus=8", "does not specify the number of nodes"),
        ("n=0", "a number of 1 or more: '0'"),
        ("n=-1", "a number of 1 or more"),
        ("n=1e3", "a number of 1 or more"),
        ("n=" + "9" * 5000, "a number of 1 or more"),
        ("n=2,gpu=8", "unknown key: 'gpu'"),
        ("n=2,n=3", "sets n twice"),
        ("n=2,", "a part without a value: ''"),
        ("n=2,mem", "a part without a value: 'mem'"),
        ("n=2,mem=lots", "mem= is not an amount of memory"),
        ("n=2,cpus=0", "cpus= is not a number"),
        ("n=2,labels=a b", "labels= is not a label: 'a b'"),
        ("n=2,labels=a:", "is not a label"),
        ("n=2,labels=a+a:b", "is duplicated: 'a'"),
        ("n=2,labels=GPU", "is a built-in resource of Ray"),
        ("n=2,labels=ray.io/x:y", "is not a label"),
        ("n=2,resources=cpu:4", "is a built-in resource of Ray"),
        ("n=2,resources=fast", "is not an amount of a resource"),
        ("n=2,resources=fast:0", "is not an amount of a resource"),
        ("n=2,resources=fast:1.5", "is not an amount of a resource"),
        ("n=2,resources=fast:1+fast:2", "is duplicated"),
        ("n=2,node=n[1-3]", "has n=2, but its node= names 3"),
        ("n=2,partition=big,short", "a part without a value: 'short'"),
        ("n=2,partition=[big,short]", "partition= is not the name of a partition: '[big,short]'"),
        ('n=2,partition="big,short', "has an unterminated quote"),
        ('n=2,partition="big"x', "has an unterminated quote"),
        ('n=2,partition=""', "partition= is empty"),
        ("", "a part without a value"),
    ],
)
def test_bad_groups_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadValue, match=re.escape(words)) as caught:
        parse(text)
    assert caught.value.hint


def test_the_keys_of_a_group() -> None:
    found = parse("n=2, gpus=8,gpu-type=h100,cpus=4,mem=64G,partition=big,constraint=a&b,node=n[1,3],labels=x")
    assert (found.n, found.gpus, found.gpu_type, found.cpus, found.mem) == (2, 8, "h100", 4, "64G")
    assert (found.partition, found.constraint, found.node) == ("big", "a&b", "n[1,3]")


def test_a_value_with_commas_is_in_quotes() -> None:
    assert parse('n=1, partition="big,short" ,gpus=2') == WorkerGroup(n=1, partition="big,short", gpus=2)
    assert parse('n=1,constraint="[a|b]*2,""c"""').constraint == '[a|b]*2,"c"'
    assert parse('n=2,node="n1,n3"').node == "n1,n3"


@pytest.mark.parametrize("partition", ["big,short", "big,gpus=8", 'a",gpus=8,"', '"', "a b"])
def test_a_value_of_a_mapping_is_not_split(partition: str, tmp_path: Path) -> None:
    group = {"constraint": "a[b", "n": 1, "partition": partition, "node": "n[1-1]"}
    wanted = WorkerGroup(n=1, partition=partition, constraint="a[b", node="n[1-1]")
    assert worker_groups(spec(worker_group=[group])) == [wanted]
    for written in (group, [group]):
        (tmp_path / "slurm-launch.yaml").write_text(json.dumps({"worker-group": written}))
        assert worker_groups(resolve.resolve(PLAIN, {}, tmp_path).spec()) == [wanted]


def test_a_label_without_a_value_is_also_a_resource() -> None:
    """With the resource a task finds its group in every version of Ray."""
    found = parse("n=1,labels=fast+zone:a,resources=disk:2")
    assert ray_labels(found) == "fast=true,zone=a"
    assert ray_resources(found) == '{"fast": 1, "disk": 2}'
    assert ray_resources(parse("n=1,labels=fast,resources=fast:4")) == '{"fast": 4}'
    assert ray_resources(parse("n=1,labels=zone:a")) == ""


def test_the_number_of_nodes_counts_the_head() -> None:
    assert spec(worker_group=["n=2", "n=3"]).nodes == 6
    assert spec(worker_group=["n=2", "n=3"], num_nodes=6).nodes == 6
    assert [group.n for group in worker_groups(spec(head_cpus=1, num_nodes=3))] == [2]
    assert spec(head_cpus=1, node="n[1-4]").nodes == 5
    assert not worker_groups(spec(num_nodes=3))
    assert not components(spec(num_nodes=3))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head_cpus": 2}, "--head-cpus leaves a single-node job without workers"),
        ({"dedicated_head": True}, "--dedicated-head leaves a single-node job"),
        ({"head_num_cpus": 0}, "--head-num-cpus 0 leaves a single-node job"),
        ({"dedicated_head": True, "num_nodes": 2, "head_num_cpus": 2}, "are mutually exclusive"),
        ({"worker_group": ["n=2"], "num_nodes": 2}, "--worker-group makes 3 nodes including the head"),
        ({"worker_group": ["n=2"], "array": "0-3"}, "--worker-group makes a heterogeneous job"),
        ({"head_mem": "1G", "num_nodes": 2, "array": "0-3"}, "which Slurm cannot run as an array"),
        ({"worker_group": ["n=2"], "sweep": {"lr": "1,2"}}, "cannot run as an array: --sweep is not possible"),
        ({"worker_group": ["n=2"], "node": "n[1-2]"}, "--node cannot be combined with --worker-group"),
        ({"head_cpus": 1, "node": "n[1-2]", "num_nodes": 2}, "2 hosts, not counting the head's own node, but"),
        ({"head_mem": "0", "num_nodes": 2}, "mem 0 (all memory of a node)"),
        ({"worker_group": ["n=1,mem=64G", "n=1"], "exclusive": True}, "cannot apply to only some"),
        ({"worker_group": ["n=1", "n=1,mem=64G", "n=1"], "sbatch": {"exclusive": "user"}}, "cannot apply to only some"),
        ({"head_mem": "1G", "num_nodes": 2, "sbatch": ["exclusive"]}, "cannot apply to only some"),
        ({"worker_group": ["n=1,gpus=2"], "gpu_directive": "none"}, "--gpu-directive none"),
        ({"worker_group": ["n=1,labels=cpu"]}, "labels= is a built-in resource of Ray"),
        ({"worker_group": [{"n": [1]}]}, "has a value of the wrong type"),
        ({"worker_group": [{"n=1,gpus": 8}]}, "has an unknown key: 'n=1,gpus'"),
        ({"worker_group": ["n=1,gpu-type=a"]}, "--worker-group has gpu-type=a, but no GPUs"),
        ({"worker_group": ["n=1,gpu-type=a,gpus=0"], "num_gpus": 2}, "--worker-group has gpu-type=a, but no GPUs"),
        ({"worker_group": ["n=1"], "gpu_type": "a"}, "--gpu-type has no effect without GPUs"),
    ],
)
def test_conflicting_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        spec(**options)


def test_head_num_cpus_needs_no_other_node() -> None:
    assert spec(head_num_cpus=2).nodes == 1


def test_the_head_has_neither_gpus_nor_the_node_selection_of_the_workers() -> None:
    job = spec(
        num_nodes=3, num_gpus=4, gpu_type="a100", cpus_per_task=8, partition="gpu", constraint="ib", exclusive=True,
        mem="9G", switches="1", head_partition="cpu", account="me", signal="B:USR1@60", on_node_loss="continue",
        sbatch={"gres": "nvme:1", "hold": None},
    )  # fmt: skip
    head, workers = parts(job)
    assert head == [
        "job-name=t", "output=t.log", "open-mode=append", "nodes=1", "ntasks-per-node=1", "cpus-per-task=8", "mem=9G",
        "partition=cpu", "account=me", "signal=B:USR1@60", "no-requeue", "no-kill", "gres=nvme:1", "hold",
    ]  # fmt: skip
    assert workers == [
        "nodes=2", "ntasks-per-node=1", "gpus-per-node=a100:4", "cpus-per-task=8", "mem=9G", "constraint=ib",
        "switches=1", "partition=gpu", "exclusive", "wait-all-nodes=1", "no-kill", "gres=nvme:1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        ({"mem": "4G"}, ["mem=4G", "mem=4G", "mem=4G"]),
        ({"mem": "4G", "head_mem": "1G"}, ["mem=1G", "mem=4G", "mem=4G"]),
        ({"head_mem": "1G", "head_cpus": 3}, ["mem-per-cpu=342M", "", ""]),
        ({"head_mem": "1G", "mem_per_cpu": "2G"}, ["mem-per-cpu=1024M", "mem-per-cpu=2G", "mem-per-cpu=2G"]),
        ({"mem_per_gpu": "2G", "num_gpus": 1}, ["", "mem-per-gpu=2G", "mem-per-gpu=2G"]),
        ({"group": "mem=500K,cpus=2"}, ["", "mem-per-cpu=1M", ""]),
        ({"group": "mem=3G", "mem": "4G"}, ["mem=4G", "mem=3G", "mem=4G"]),
        ({"group": "mem=3G", "mem": "4G", "exclusive": True}, ["mem=4G", "mem=3G", "mem=4G"]),
        ({"head_mem": "1G", "exclusive": True}, ["mem-per-cpu=1024M", "", ""]),
    ],
)
def test_memory_that_sbatch_does_not_pass_on(options: dict[str, Any], memory: list[str]) -> None:
    """sbatch passes --mem on to later components, where --mem-per-cpu is then an error."""
    group = options.pop("group", None)
    job = spec(worker_group=["n=1" + (f",{group}" if group else ""), "n=1"], **options)
    assert [" ".join(word for word in part if word.startswith("mem")) for part in parts(job)] == memory


def test_in_a_file_a_group_can_be_a_mapping(tmp_path: Path) -> None:
    text = "worker-group:\n- n=1,labels=fast\n- {n: 2, mem: 4G,\n   gpus: 1}\n"
    (tmp_path / "slurm-launch.yaml").write_text(text)
    flags = {"exp_name": "t", "command": "true"}
    found = resolve.resolve(flags, {}, tmp_path)
    assert found.spec().worker_group == ("n=1,labels=fast", "n=2,mem=4G,gpus=1")
    (tmp_path / "slurm-launch.yaml").write_text("worker-group: {n: 2}\n")
    assert resolve.resolve(flags, {}, tmp_path).spec().worker_group == ("n=2",)
    (tmp_path / "slurm-launch.yaml").write_text("worker-group:\n- n=1\n- {n: 2, n: 3}\n")
    with pytest.raises(InvalidSpec, match="worker-group has n twice"):
        resolve.resolve(flags, {}, tmp_path).spec()
    (tmp_path / "slurm-launch.yaml").write_text("worker-group:\n- n=1\n- {n: 2, gpu: 3}\n")
    with pytest.raises(InvalidSpec) as caught:
        resolve.resolve(flags, {}, tmp_path).spec()
    assert "unknown key: 'gpu'" in str(caught.value.problems[0])
    assert "slurm-launch.yaml:3" in str(caught.value.problems[0])


# --- what Slurm reports of it ---------------------------------------------------------------------------------------


def test_components_are_one_job() -> None:
    lines = [
        f"12+{part}|RUNNING|0:0|None|0|{count}|{nodes}|main|alice|N/A|N/A|N/A|/r/t.sh|t|\n"
        for part, count, nodes in ((1, 2, "n[2-3]"), (0, 1, "n1"), (10, 1, "n9"), (2, 1, "n4"))
    ]
    (job,) = jobs.parse_squeue("".join(lines))
    assert (job.id, job.state, job.nodes, job.num_nodes) == ("12", "RUNNING", "n1,n[2-3],n4,n9", 5)
    assert job.parts == ("n1", "n[2-3]", "n4", "n9")
    argv = jobs.step_argv("12", "n3", parts=job.parts)
    assert "--het-group=1" in argv
    assert not any(word.startswith("--het-group") for word in jobs.step_argv("12", "n3"))


def test_any_component_may_have_the_pending_reason() -> None:
    lines = [
        f"12+{part}|PENDING|0:0|{reason}|0|1||main|alice|N/A|N/A|N/A|/r/t.sh|t|\n"
        for part, reason in ((0, "None"), (1, "Resources"))
    ]
    (job,) = jobs.parse_squeue("".join(lines))
    assert (job.reason, job.nodes, job.num_nodes) == ("Resources", None, 2)


def test_sacct_and_scontrol_agree() -> None:
    lines = "".join(f"12+{part}|FAILED|7:0|1|n{part}|main|alice||||t|\n" for part in (0, 1))
    (job,) = jobs.parse_sacct(lines)
    assert (job.id, job.code, job.nodes) == ("12", 7, "n0,n1")
    lines = "".join(
        f"JobId={12 + part} HetJobId=12 HetJobOffset={part} JobName=t HetJobIdSet=12-13 UserId=alice(7001)"
        " JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=0 ExitCode=7:0"
        f" NodeList=n{part} NumNodes=1\n"
        for part in (0, 1)
    )
    (job,) = jobs.parse_show_job(lines)
    assert (job.id, job.code, job.nodes, job.num_nodes) == ("12", 7, "n0,n1", 2)


def test_a_pending_job_has_one_place_in_the_queue() -> None:
    text = "9|5|bob|Resources\n12+0|4|alice|Priority\n12+1|4|alice|Priority\n13|3|bob|Priority\n"
    place = jobs.parse_queue_position(text, "12")
    assert place is not None
    assert (place.place, place.of) == (2, 3)
