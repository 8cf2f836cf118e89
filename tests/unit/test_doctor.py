"""The doctor: how it assesses the output of Slurm's commands, and what sbatch would accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec, process
from slurm_launch.doctor import cluster_advice, cluster_facts, sbatch_trials, this_host
from slurm_launch.slurm import site as slurm_site
from slurm_launch.slurm import times
from slurm_launch.slurm.client import Probe
from slurm_launch.slurm.site import Node, Partition
from tests.unit import doctor_answers as answers
from tests.unit.doctor_answers import Answer, FakeRunner, about, one, query_fake, timed_out

Launcher = Callable[..., Any]  # tests/unit/conftest.py
SPEC = LaunchSpec(exp_name="doctor", command="true")


class TestParsers:
    @pytest.mark.parametrize(
        ("text", "version"), [("slurm-wlm 22.05.8\n", (22, 5)), ("slurm 23.11.4", (23, 11)), ("what?", None)]
    )
    def test_version(self, text: str, version: tuple[int, int] | None) -> None:
        assert slurm_site.parse_version(text) == version

    def test_config(self) -> None:
        config = slurm_site.parse_config(answers.CONFIG)
        assert config["KillWait"] == "5 sec"
        assert config["SchedulerParameters"].startswith("sched_interval=1,")
        assert "PlugStackConfig" not in config, "(null) is not a value"

    def test_partitions(self) -> None:
        main, short = slurm_site.parse_partitions(answers.PARTITIONS)
        assert main == Partition("main", default=True, nodes=2)
        assert short == Partition("short", nodes=2, max_time="00:01:00")
        text = answers.PARTITIONS.replace("MaxNodes=UNLIMITED", "MaxNodes=4").replace("RootOnly=NO", "RootOnly=YES")
        text = text.replace("AllowAccounts=ALL", "DenyAccounts=x,y").replace("AllowGroups=ALL", "AllowGroups=gpu")
        found = slurm_site.parse_partitions(text)[0]
        assert (found.max_nodes, found.root_only, found.denied_accounts) == (4, True, ("x", "y"))
        assert found.groups == ("gpu",)
        text = answers.PARTITIONS.replace("JobDefaults=(null)", "JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=8000", 1)
        assert [partition.default_memory for partition in slurm_site.parse_partitions(text)] == [True, False]

    def test_nodes(self) -> None:
        first, second = slurm_site.parse_nodes(answers.NODES)
        assert first == Node("n1", ("main", "short"), {"": 2})
        assert second.available
        for state in ("DOWN*", "IDLE+DRAIN", "MIXED+NOT_RESPONDING"):
            assert not replace(second, state=state).available
        assert replace(second, state="MIXED").available

    @pytest.mark.parametrize(
        ("gres", "gpus"),
        [
            ("gpu:2", {"": 2}),
            ("gpu", {"": 1}),
            ("gpu:a100:4(S:0-1),shard:8", {"a100": 4}),
            ("gpu:a100:2,gpu:h100:2", {"a100": 2, "h100": 2}),
            ("gpu:a100", {"a100": 1}),
            ("gpu:tesla:no_consume:4", {"tesla": 4}),
            ("craynetwork:4", {}),
            ("(null)", {}),
            ("gpu:0", {}),
        ],
    )
    def test_gpus(self, gres: str, gpus: dict[str, int]) -> None:
        assert slurm_site.parse_gpus(gres) == gpus

    @pytest.mark.parametrize(
        ("time", "seconds"),
        [
            ("00:01:00", 60),
            ("1-02:03:04", 93784),
            ("05:00", 300),
            ("1-12", 129600),
            ("weird", inf),
            ("1:x", inf),
            ("", inf),
        ],
    )
    def test_seconds(self, time: str, seconds: float) -> None:
        assert times.seconds(time) == seconds

    def test_addresses_that_a_job_could_use(self) -> None:
        assert this_host.parse_addresses(answers.ADDRESSES) == [
            this_host.InterfaceAddress("br0", "10.77.0.1"),
            this_host.InterfaceAddress("br0", "fd77::1"),
        ]


class TestSlurm:
    def test_a_healthy_cluster_has_no_problem(self) -> None:
        findings = cluster_advice.check_cluster(query_fake())
        assert {finding.status for finding in findings} == {"ok", "note"}
        assert one(findings, "slurm").text == "slurm-wlm 22.05.8"
        first, second, limits = about(findings, "partition")
        assert first.text == "main: default, 2 nodes, no time limit, up to 2 GPUs per node"
        assert second.text == "short: 2 nodes, time limit 00:01:00, up to 2 GPUs per node"
        assert "pending forever" in limits.text
        memory = one(findings, "memory")
        assert (
            memory.text == "allocated by Slurm; a job that requests none gets 512 MB per CPU; not enforced by a cgroup"
        )
        assert (memory.status, "OOM killer may kill your job" in str(memory.hint)) == ("note", True)
        assert not {"switch", "power-saving", "queue", "temp-dir"} & {finding.about for finding in findings}
        assert one(findings, "kill-wait").status == "note"
        assert about(findings, "preemption") == []

    def test_a_newer_slurm_has_fewer_values(self) -> None:
        changes = {"scontrol show config": answers.CONFIG_24_11, "sinfo --version": "slurm-wlm 24.11.5\n"}
        findings = cluster_advice.check_cluster(query_fake(changes))
        assert {finding.status for finding in findings} == {"ok", "note"}
        assert about(findings, "preemption") == []

    def test_a_machine_without_slurm_is_not_a_problem(self) -> None:
        missing = process.SlurmNotFound("sinfo is not in PATH")
        runner = FakeRunner({"sinfo --version": missing})
        site = cluster_facts.query_cluster(Probe({}, runner), "alice", ())
        assert [finding.status for finding in cluster_advice.check_cluster(site)] == ["note"]
        assert runner.calls == ["sinfo --version"]

    def test_versions(self) -> None:
        old = cluster_advice.check_cluster(query_fake({"sinfo --version": "slurm 21.08.1\n"}))
        assert one(old, "slurm").status == "problem"
        other = cluster_advice.check_cluster(query_fake({"sinfo --version": "slurm 23.11.1\n"}))
        assert one(other, "slurm").text == "the commands on this host are slurm 23.11.1, slurmctld is 22.05.8"

    @pytest.mark.parametrize(
        "failure",
        [
            timed_out("scontrol"),
            (1, "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"),
        ],
    )
    def test_an_unreachable_controller_is_one_problem_and_queried_once(self, failure: Answer) -> None:
        runner = FakeRunner({"scontrol show config": failure})
        probe = Probe({}, runner)
        site = cluster_facts.query_cluster(probe, "alice", ())
        findings = [*cluster_advice.check_cluster(site), *sbatch_trials.try_sbatch(probe, site, SPEC).findings]
        assert [finding.about for finding in findings if finding.status == "problem"] == ["slurmctld"]
        assert one(findings, "slurmctld").hint
        assert [line for line in runner.calls if line.startswith(("scontrol", "sbatch"))] == ["scontrol show config"]

    def test_commands_without_a_configuration_are_one_problem(self) -> None:
        failure = (
            1,
            "error: failed to fetch config\nfatal: Could not establish a configuration source",
        )
        site = query_fake({"sinfo --version": failure, "scontrol show config": failure, "srun --help": failure})
        findings = [*cluster_advice.check_cluster(site), cluster_advice.check_containers(site, [])]
        (found,) = [finding for finding in findings if finding.status == "problem"]
        assert found.line() == (
            "problem  slurm         Slurm's commands are installed, but they find no configuration; "
            "this is not a login node; `rehearse` works without Slurm"
        )
        assert "srun failed" in one(findings, "containers").text
        site = query_fake({"scontrol show config": failure})
        assert [(failure.about, failure.text) for failure in site.failures] == [("slurm", found.text)]

    @pytest.mark.parametrize("tool", ["scontrol show node", "srun --help", "sinfo --version"])
    def test_one_tool_that_fails_is_one_problem(self, tool: str) -> None:
        findings = cluster_advice.check_cluster(query_fake({tool: timed_out(tool.split()[0])}))
        assert len([finding for finding in findings if finding.status == "problem"]) == 1
        assert one(findings, "accounting")

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (("State=UP", "State=DOWN"), "it is down"),
            (("RootOnly=NO", "RootOnly=YES"), "restricted to root"),
            (("ReqResv=NO", "ReqResv=YES"), "a reservation"),
            (("AllowGroups=ALL", "AllowGroups=gpu"), "the groups gpu"),
            (("AllowAccounts=ALL", "AllowAccounts=other"), "the accounts other"),
            (("AllowAccounts=ALL", "DenyAccounts=lab"), "it denies the accounts lab"),
        ],
    )
    def test_a_partition_that_is_not_open(self, change: tuple[str, str], why: str) -> None:
        changes = {"scontrol show config": answers.WITH_ACCOUNTS}
        text = answers.PARTITIONS.replace(*change)
        findings = cluster_advice.check_cluster(query_fake({**changes, "scontrol show partition": text}, ("users",)))
        assert why in str(about(findings, "partition")[0].hint)
        assert "none is available to you" in [finding.text for finding in about(findings, "partition")]
        first = answers.PARTITIONS.replace(*change, 1)
        site = query_fake({**changes, "scontrol show partition": first}, ("users",))
        assert site.partition(None) == site.partitions[1], "the first open one"
        assert any("no default" in finding.text for finding in cluster_advice.check_cluster(site))

    def test_nodes_that_are_down(self) -> None:
        text = answers.NODES.replace("State=IDLE", "State=DOWN*", 1)
        findings = cluster_advice.check_cluster(query_fake({"scontrol show node": text}))
        assert "2 nodes (1 not available)" in about(findings, "partition")[0].text
        text = answers.NODES.replace("State=IDLE", "State=DOWN*")
        assert (
            about(cluster_advice.check_cluster(query_fake({"scontrol show node": text})), "partition")[0].status
            == "note"
        )

    def test_accounts(self) -> None:
        changes: dict[str, Answer] = {"scontrol show config": answers.WITH_ACCOUNTS}
        assert one(cluster_advice.check_cluster(query_fake(changes)), "account").text == "lab (your default)"
        changes["sacctmgr -n -P show user"] = "\n"
        assert one(cluster_advice.check_cluster(query_fake(changes)), "account").text == "lab (your only one)"
        changes["sacctmgr -n -P show assoc"] = "lab\nother\nlab\n"
        several = one(cluster_advice.check_cluster(query_fake(changes)), "account")
        assert (several.status, several.text) == ("note", "lab, other; none is the default")
        changes["sacctmgr -n -P show assoc"] = ""
        assert one(cluster_advice.check_cluster(query_fake(changes)), "account").status == "problem"
        changes["sacctmgr -n -P show assoc"] = timed_out("sacctmgr")
        assert (
            one(cluster_advice.check_cluster(query_fake(changes)), "account").text
            == "sacctmgr did not answer within 20 s"
        )

    @pytest.mark.parametrize(
        ("change", "status", "text"),
        [
            (("CR_CORE_MEMORY", "CR_CORE"), "note", "not allocated by Slurm"),
            (("DefMemPerCPU            = 512", "DefMemPerNode = UNLIMITED"), "note", "gets all"),
            (("task/none", "task/affinity,task/cgroup"), "ok", "; enforced by a cgroup if cgroup.conf has"),
            (("task/none", "task/cgroup\nConstrainRAMSpace = yes"), "ok", "; enforced by a cgroup"),
            (("task/none", "task/cgroup\nConstrainRAMSpace = no"), "note", "; not enforced by a cgroup"),
            (("JobAcctGatherParams     = (null)", "JobAcctGatherParams = OverMemoryKill"), "ok", "; enforced"),
            (("= 512", "= UNLIMITED\nJobDefaults = DefCpuPerGPU=4,DefMemPerGPU=8000"), "note", "8000 MB per GPU;"),
            (("= 512", "= 512\nJobDefaults = DefMemPerGPU=8000"), "note", "gets 512 MB per CPU or 8000 MB per GPU;"),
        ],
    )
    def test_memory(self, change: tuple[str, str], status: str, text: str) -> None:
        assert change[0] in answers.CONFIG
        found = one(
            cluster_advice.check_cluster(query_fake({"scontrol show config": answers.CONFIG.replace(*change)})),
            "memory",
        )
        assert found.status == status
        assert text in found.text

    def test_how_slurm_ends_jobs(self) -> None:
        text = answers.CONFIG.replace("5 sec", "30 sec").replace("proctrack/linuxproc", "proctrack/cgroup")
        text = text.replace("preempt/none", "preempt/qos").replace("= OFF", "= REQUEUE")
        findings = cluster_advice.check_cluster(query_fake({"scontrol show config": text}))
        assert one(findings, "kill-wait").status == one(findings, "processes").status == "ok"
        assert "by qos (requeue)" in one(findings, "preemption").text

    @pytest.mark.parametrize(
        ("setting", "what", "words"),
        [
            ("SwitchType = switch/hpe_slingshot", "switch", "--network=job_vni,single_node_vni"),
            ("SuspendProgram = /usr/sbin/off", "power-saving", "--wait-all-nodes=1"),
            ("PrivateData = usage,jobs", "queue", "your own jobs only"),
            ("JobContainerType = job_container/tmpfs", "temp-dir", "its own /tmp (job_container/tmpfs)"),
            ("NamespaceType = namespace/tmpfs", "temp-dir", "its own /tmp (namespace/tmpfs)"),
        ],
    )
    def test_what_few_sites_have(self, setting: str, what: str, words: str) -> None:
        text = answers.CONFIG.replace("JobContainerType        = job_container/none\n", f"{setting}\n")
        found = one(cluster_advice.check_cluster(query_fake({"scontrol show config": text})), what)
        assert words in found.line()

    @pytest.mark.parametrize("setting", ["SwitchType = switch/none", "SuspendProgram = (null)", "PrivateData = usage"])
    def test_what_most_sites_have(self, setting: str) -> None:
        findings = cluster_advice.check_cluster(query_fake({"scontrol show config": answers.CONFIG + setting}))
        assert not {"switch", "power-saving", "queue"} & {finding.about for finding in findings}


class TestContainers:
    def test_none(self) -> None:
        assert cluster_advice.check_containers(query_fake(), []).status == "note"
        assert "apptainer in PATH here" in cluster_advice.check_containers(query_fake(), ["apptainer"]).text
        assert (
            cluster_advice.check_containers(query_fake(), ["apptainer"], on_nodes=True).text
            == "no Pyxis; apptainer on the nodes"
        )
        assert "found on the nodes" in cluster_advice.check_containers(query_fake(), [], on_nodes=True).text

    @pytest.mark.parametrize(
        ("plugstack", "scope"),
        [
            ("required spank_pyxis.so container_scope=job runtime_path=/run\n", "container_scope job"),
            ("# container_scope=job pyxis\nrequired /usr/lib/spank_pyxis.so\n", "the default (global"),
            (None, "unknown (cannot read it"),
        ],
    )
    def test_pyxis_and_its_scope(self, tmp_path: Path, plugstack: str | None, scope: str) -> None:
        (tmp_path / "plugstack.conf").write_text("include plugstack.conf.d/*.conf\n")
        (tmp_path / "plugstack.conf.d").mkdir()
        if plugstack is not None:
            (tmp_path / "plugstack.conf.d/pyxis.conf").write_text(plugstack)
        config = answers.CONFIG.replace("/etc/slurm/slurm.conf", str(tmp_path / "slurm.conf"))
        site = query_fake({"scontrol show config": config, "srun --help": answers.PYXIS_HELP})
        assert site.pyxis
        assert scope in cluster_advice.check_containers(site, []).text
        assert not query_fake().pyxis, "--container is a different option"


class TestTrials:
    def tried(self, changes: Mapping[str, Any], spec: LaunchSpec = SPEC) -> sbatch_trials.SbatchTrials:
        probe = Probe({}, FakeRunner(changes))
        return sbatch_trials.try_sbatch(probe, cluster_facts.query_cluster(probe, "alice", ()), spec)

    def test_both_spellings(self) -> None:
        tried = self.tried({})
        assert tried.gpu_directive == "gpus-per-node"
        assert [finding.status for finding in tried.findings] == ["ok", "ok"]
        assert tried.time is None

    def test_gres_only(self) -> None:
        def sbatch(script: str) -> Answer:
            return (1, "sbatch: error: Invalid generic resource (gres) specification") if "gpus-per" in script else ""

        config = answers.CONFIG.replace("cons_tres", "cons_res")
        tried = self.tried({"scontrol show config": config, "sbatch --test-only": sbatch})
        assert tried.gpu_directive == "gres"
        found = one(tried.findings, "gpus")
        assert (found.status, found.text) == (
            "note",
            "only --gres works (select/cons_res supports no other); no types",
        )

    def test_a_site_that_requires_the_gpu_type(self) -> None:
        def sbatch(script: str) -> Answer:
            return (
                (1, "sbatch: error: a GPU type is required") if "=1\n" in script.split("gpus-per-node")[-1][:3] else ""
            )

        node = answers.NODES.replace("Gres=gpu:2", "Gres=gpu:a100:4(S:0-1)")
        tried = self.tried({"scontrol show node": node, "sbatch --test-only": sbatch})
        assert tried.gpu_directive == "gpus-per-node"
        assert "types: a100" in one(tried.findings, "gpus").text

    def test_neither(self) -> None:
        def sbatch(script: str) -> Answer:
            return (1, "sbatch: error: no GPUs for you") if "gp" in script.split("true")[0] else ""

        tried = self.tried({"sbatch --test-only": sbatch})
        assert tried.gpu_directive is None
        assert one(tried.findings, "gpus").status == "problem"
        assert "no GPUs for you" in one(tried.findings, "gpus").text

    def test_no_gpus(self) -> None:
        tried = self.tried({"scontrol show node": answers.NODES.replace("Gres=gpu:2", "Gres=(null)")})
        assert tried.gpu_directive is None
        assert one(tried.findings, "gpus").status == "ok"

    def test_a_site_that_requires_a_time_limit(self) -> None:
        def sbatch(script: str) -> Answer:
            return "" if "#SBATCH --time=" in script else (1, "sbatch: error: Time limit specification required")

        tried = self.tried({"sbatch --test-only": sbatch})
        assert tried.time == "01:00:00"
        assert (
            self.tried({"sbatch --test-only": sbatch}, SPEC.model_copy(update={"partition": "short"})).time
            == "00:01:00"
        )
        assert one(tried.findings, "sbatch").status == "note"
        timed = self.tried({"sbatch --test-only": sbatch}, SPEC.model_copy(update={"time": "10"}))
        assert (timed.time, one(timed.findings, "sbatch").status) == ("10", "ok"), "a launch needs it too"
        assert self.tried({}, SPEC.model_copy(update={"time": "10"})).time is None

    def test_a_plain_job_that_is_refused(self) -> None:
        refusal = (1, "allocation failure: Invalid account or account/partition combination specified")
        (found,) = self.tried({"sbatch --test-only": refusal}).findings
        assert (found.status, found.about) == ("problem", "sbatch")
        assert "Invalid account" in found.text
        assert "--account" in str(found.hint)

    def test_sbatch_is_missing(self) -> None:
        (found,) = self.tried({"sbatch --test-only": process.SlurmNotFound("sbatch is not in PATH")}).findings
        assert (found.status, found.text) == ("problem", "sbatch is not in PATH")
