"""Slurm's commands and the parsers of their output."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from slurm_launch.launch import hints
from slurm_launch.slurm import array_ids, jobs, sbatch
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm.jobs import JobState

# As Slurm 22.05 printed them on the test cluster.
TAIL = (
    "Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={code} RunTime=00:00:00 "
    "TimeLimit=365-00:00:00 TimeMin=N/A SubmitTime=2026-11-16T01:50:35 Command=/home/alice/a.sh 3 Power="
)
HEAD = "JobId={job} JobName=a.sh UserId=alice(7001) GroupId=alice(7001) MCS_label=N/A Priority=1 Nice=0 QOS=(null) "


def shown(job: str, state: str, reason: str = "None", code: str = "0:0", name: str = "a.sh") -> str:
    head = HEAD.format(job=job).replace("a.sh", name)
    return f"{head}JobState={state} Reason={reason} " + TAIL.format(code=code)


def test_sbatch_argv() -> None:
    assert sbatch.sbatch_argv("/d/x.sh") == ["sbatch", "--parsable", "/d/x.sh"]
    assert sbatch.sbatch_argv("/d/x.sh", hold=True) == ["sbatch", "--parsable", "--hold", "/d/x.sh"]


def test_queries_name_the_cluster_of_the_job() -> None:
    assert jobs.show_job_argv("12") == ["scontrol", "show", "job", "-o", "12"]
    assert jobs.show_job_argv("12", "west") == ["scontrol", "-M", "west", "show", "job", "-o", "12"]
    assert jobs.sacct_argv("12", "west")[:3] == ["sacct", "-M", "west"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("123\n", ("123", None)),
        ("123", ("123", None)),
        ("123;west\n", ("123", "west")),
        ("Welcome to HAL!\n2 new mails\n\n123\n", ("123", None)),
        ("*** quota: 80 % used\n123;big-1.site\nHave a nice day\n", ("123", "big-1.site")),
        ("2026\n123\n", ("123", None)),
        ("123\r\n", ("123", None)),
        ("Submitted batch job 123\n", ("123", None)),
        ("Submitted batch job 123 on cluster west\n", ("123", "west")),
        ("", None),
        ("no job for you\n", None),
        ("job 123 maybe\n", None),
    ],
)
def test_parse_job_id(said: str, expected: tuple[str, str | None] | None) -> None:
    assert sbatch.parse_job_id(said) == expected


def test_submit_env_removes_variables_of_an_outer_job() -> None:
    outer = ["SLURM_JOB_ID", "SLURM_CPU_BIND", "SRUN_CPUS_PER_TASK", "PMI_RANK", "PMI2_X", "PMIX_RANK", "SBATCH_QOS"]
    kept = {"PATH": "/bin", "SLURMISH": "1", "PMIDNIGHT": "1", "SLURM_CONF": "/etc/s.conf", "SLURM_JWT": "t"}
    clean, dropped = slurm_environment.submit_env(dict.fromkeys(outer, "1") | kept)
    assert clean == kept
    assert dropped.names == tuple(sorted(outer))


def test_submit_env_removes_what_an_outer_job_of_ours_has_set() -> None:
    """Its head's address would be wrong on every node; what the user has set stays."""
    env = {"SLAUNCH_SET": " VLLM_HOST_IP GONE", "VLLM_HOST_IP": "10.0.0.1", "GLOO_SOCKET_IFNAME": "mine"}
    assert slurm_environment.submit_env(env)[0] == {"GLOO_SOCKET_IFNAME": "mine"}


def test_submit_env_removes_an_outer_ray_and_never_shows_its_token() -> None:
    clean, dropped = slurm_environment.submit_env(
        {"RAY_ADDRESS": "u:secret@h:1", "RAY_AUTH_TOKEN": "secret", "RAY_DEDUP_LOGS": "0"}
    )
    assert clean == {"RAY_DEDUP_LOGS": "0"}
    (note,) = hints.notes(dropped)
    assert note.startswith("RAY_ADDRESS is not passed on")
    assert "secret" not in repr(dropped)


@pytest.mark.parametrize(
    ("variable", "instead"),
    [
        ("SBATCH_PARTITION", "use --partition"),
        ("SBATCH_ACCOUNT", "use --account"),
        ("SBATCH_TIMELIMIT", "use --time"),
        ("SBATCH_MEM_PER_NODE", "use --mem"),
        ("SBATCH_ARRAY_INX", "use --array"),
        ("SBATCH_NO_REQUEUE", "use --requeue or --no-requeue"),
        ("SBATCH_JOB_NAME", "use --exp-name"),
        ("SBATCH_OUTPUT", "use --run-dir for the directory of the log"),
        ("SBATCH_GPU_FREQ", "use --sbatch gpu-freq=..."),
        ("SBATCH_CLUSTERS", "use --sbatch clusters=..."),
        ("SLURM_HINT", "use --sbatch hint=..."),
    ],
)
def test_a_note_for_each_removed_variable_that_changes_a_job(variable: str, instead: str) -> None:
    _, dropped = slurm_environment.submit_env({variable: "value"})
    assert hints.notes(dropped) == [f"{variable}='value' is not passed on to sbatch: {instead}"]


def test_inside_a_job_its_own_variables_are_one_line() -> None:
    env = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_UMASK": "0022", "SBATCH_MEM_BIND_TYPE": "none", "A": "b"}
    clean, dropped = slurm_environment.submit_env(env)
    assert clean == {"A": "b"}
    assert hints.notes(dropped) == ["submitting from within job 77: its SLURM_* variables are not passed on"]


def test_no_note_without_removed_variables() -> None:
    assert hints.notes(slurm_environment.submit_env({"PATH": "/bin"})[1]) == []
    assert hints.notes(slurm_environment.submit_env({"SBATCH_PARTITION": ""})[1]) == []


def test_the_users_cluster_is_kept_unless_the_script_names_one() -> None:
    env = {"SLURM_CLUSTERS": "west"}
    assert slurm_environment.submit_env(env)[0] == env
    clean, dropped = slurm_environment.submit_env(env, {"clusters": "east"})
    assert clean == {}
    assert "SLURM_CLUSTERS" in hints.notes(dropped)[0]


def test_queries_ignore_the_users_defaults() -> None:
    env = {"SACCT_FORMAT": "x", "SLURM_CLUSTERS": "west", "SLURM_CONF": "/c", "SLURM_TIME_FORMAT": "%s", "HOME": "/h"}
    ours = {"SLURM_TIME_FORMAT": "standard", "TZ": "UTC0", "SLURM_BITSTR_LEN": "0"}
    assert slurm_environment.query_env(env) == {"SLURM_CONF": "/c", "HOME": "/h"} | ours


@pytest.mark.parametrize(
    ("stderr", "flag"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "--partition"),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "--head-partition"),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", "--worker-group"),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "--account"),
        ("Batch job submission failed: Invalid qos specification", "--qos"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "--time"),
        ("Memory specification can not be satisfied\nRequested node configuration is not available", "memory"),
        ("Batch job submission failed: Requested node configuration is not available", "--num-nodes"),
        ("Batch job submission failed: Node count specification invalid", "--num-nodes"),
        ("Batch job submission failed: Invalid node name specified", "--node"),
        ("Batch job submission failed: Invalid feature specification", "--constraint"),
        ("error: Invalid generic resource (gres) specification", "--gpu-directive"),
        ("Batch job submission failed: Requested reservation is invalid", "--reservation"),
        ("Batch job submission failed: Invalid license specification", "--licenses"),
        ("Batch job submission failed: Job dependency problem", "--dependency"),
        ("Batch job submission failed: Invalid job array specification", "--array"),
        ("sbatch: unrecognized option '--nosuch'", "--no-sbatch"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "reached a limit"),
    ],
)
def test_hints_for_messages_of_sbatch(stderr: str, flag: str) -> None:
    assert flag in str(hints.hint_for(stderr))
    assert not sbatch.is_unreachable(stderr)


def test_no_hint_for_an_unknown_message() -> None:
    assert hints.hint_for("sbatch: error: the moon is full") is None


def test_unreachable_and_rejected_are_distinguished() -> None:
    down = "Batch job submission failed: Unable to contact slurm controller (connect failure)"
    assert sbatch.is_unreachable(down)
    assert not sbatch.is_answer_lost(down)
    late = "Batch job submission failed: Socket timed out on send/recv operation"
    assert sbatch.is_unreachable(late)
    assert sbatch.is_answer_lost(late)


@pytest.mark.parametrize(
    ("line", "expected", "code"),
    [
        (shown("1", "COMPLETED"), JobState("1", "COMPLETED"), 0),
        (shown("1", "FAILED", "NonZeroExitCode", "3:0"), JobState("1", "FAILED", 3, 0, "NonZeroExitCode"), 3),
        (shown("1", "FAILED", "JobLaunchFailure", "0:53"), JobState("1", "FAILED", 0, 53, "JobLaunchFailure"), None),
        (shown("1", "FAILED", "JobLaunchFailure", "1:0"), JobState("1", "FAILED", 1, 0, "JobLaunchFailure"), None),
        (shown("1", "CANCELLED", "None", "0:15"), JobState("1", "CANCELLED", 0, 15), None),
        (shown("1", "TIMEOUT", "TimeLimit", "0:15"), JobState("1", "TIMEOUT", 0, 15, "TimeLimit"), None),
        (shown("1", "OUT_OF_MEMORY", "OOM", "0:125"), JobState("1", "OUT_OF_MEMORY", 0, 125, "OOM"), None),
        (shown("1", "FAILED", "Raised:9(Kill)", "1:9"), JobState("1", "FAILED", 1, 9, "Raised:9(Kill)"), None),
        (shown("1", "PREEMPTED", code="3:0"), JobState("1", "PREEMPTED", 3, 0), None),
    ],
)  # fmt: skip
def test_how_a_job_ended(line: str, expected: JobState, code: int | None) -> None:
    (state,) = jobs.parse_show_job(line + "\n")
    assert JobState(state.id, state.state, state.exit_code, state.signal, state.reason) == expected
    assert state.ended
    assert state.code == code


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "STOPPED"]
)
def test_states_that_are_not_final(state: str) -> None:
    (found,) = jobs.parse_show_job(shown("1", state, "JobHeldUser"))
    assert not found.ended
    assert found.code is None


def test_reason_of_more_than_one_word() -> None:
    (found,) = jobs.parse_show_job(shown("1", "PENDING", "Nodes required for job are DOWN, DRAINED"))
    assert found.reason == "Nodes required for job are DOWN, DRAINED"


def test_tasks_of_an_array_by_their_numbers() -> None:
    text = "\n".join(
        [
            shown("2 ArrayJobId=2 ArrayTaskId=3-9%2 ArrayTaskThrottle=2", "PENDING"),
            shown("4 ArrayJobId=2 ArrayTaskId=1 ArrayTaskThrottle=2", "FAILED", "NonZeroExitCode", "3:0"),
        ]
    )
    assert [(s.id, s.ended) for s in jobs.parse_show_job(text)] == [("2_[3-9%2]", False), ("2_1", True)]


def test_output_that_is_not_from_scontrol() -> None:
    assert jobs.parse_show_job("") == []
    assert jobs.parse_show_job("No jobs in the system\n") == []


def test_a_job_that_slurmctld_does_not_know() -> None:
    assert jobs.is_gone("slurm_load_jobs error: Invalid job id specified\n")
    assert not jobs.is_gone("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")


def test_sacct() -> None:
    rest = "|2|n[1-2]|main|alice|2026-11-16T11:37:33|2026-11-16T11:37:34|Unknown|a|sbatch -J 'a|b' /home/alice/a.sh\n"
    heads = ("12|COMPLETED|0:0", "13|FAILED|3:0", "14|CANCELLED by 1000|0:15", "15_[2-3]|PENDING|0:0", "noise")
    states = jobs.parse_sacct("".join(head + rest for head in heads))
    assert [(s.id, s.state, s.code) for s in states] == [
        ("12", "COMPLETED", 0),
        ("13", "FAILED", 3),
        ("14", "CANCELLED", None),
        ("15_[2-3]", "PENDING", None),
    ]
    assert (states[0].num_nodes, states[0].nodes, states[0].partition, states[0].user) == (2, "n[1-2]", "main", "alice")
    assert (states[0].name, states[0].script) == ("a", "sbatch -J 'a|b' /home/alice/a.sh")
    assert states[0].submitted == datetime(2026, 11, 16, 11, 37, 33, tzinfo=timezone.utc)
    assert states[0].end is None


@pytest.mark.parametrize(("status", "code", "signal"), [("768", 3, 0), ("3:0", 3, 0), ("15", 0, 15), ("0:9", 0, 9)])
def test_squeue(status: str, code: int, signal: int) -> None:
    line = (
        f"7_2|FAILED|{status}|NonZeroExitCode|1|3|n[1-3]|main|alice|2026-11-16T11:37:33|N/A|N/A|/home/a|b.sh|my job|\n"
    )
    (state,) = jobs.parse_squeue("CLUSTER: west\n" + line)
    assert (state.id, state.exit_code, state.signal, state.restarts) == ("7_2", code, signal, 1)
    assert (state.script, state.name, state.started, state.reason) == (
        "/home/a|b.sh",
        "my job",
        None,
        "NonZeroExitCode",
    )


def test_the_user_in_the_output_of_scontrol() -> None:
    (state,) = jobs.parse_show_job(shown("12", "RUNNING"))
    assert (state.user, state.name, state.script, state.restarts) == ("alice", "a.sh", "/home/alice/a.sh 3", 0)
    assert state.submitted == datetime(2026, 11, 16, 1, 50, 35, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("12", ["12"]),
        ("12_3", ["12_3"]),
        ("12_[4-6,9%2]", ["12_4", "12_5", "12_6", "12_9"]),
        ("12_[0-8:4]", ["12_0", "12_4", "12_8"]),
        ("12_[3,1]", ["12_1", "12_3"]),
        ("12_[1,x]", ["12_1"]),
    ],
)
def test_tasks_of_an_array(text: str, tasks: list[str]) -> None:
    assert array_ids.task_ids(text) == tasks
