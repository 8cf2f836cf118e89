"""The ranking of Ray's log files."""

from __future__ import annotations

from slurm_launch.runs import ray_logs


def test_the_order_of_the_files() -> None:
    names = ["zzz", "worker-1-2.out", "python-core-worker-3.log", "raylet.out", "worker-1-2.err", "raylet.err"]
    assert sorted([*names, "ray-start.log"], key=ray_logs.rank) == ["ray-start.log", *names[::-1]]


def test_the_files_that_may_show_a_failure() -> None:
    failures = ("ray-start.log", "gcs_server.out", "ray_process_exit.log", "worker-1.err", "python-core-worker-3.log")
    assert all(map(ray_logs.may_show_failure, failures))
    assert not any(map(ray_logs.may_show_failure, ("worker-1-2.out", "events.log", "zzz")))
    assert [name for name in failures if ray_logs.is_worker_log(name)] == list(failures[3:])


def test_the_output_of_srun_is_read() -> None:
    assert all(map(ray_logs.may_show_failure, ("srun.err", "srun-3.err")))
