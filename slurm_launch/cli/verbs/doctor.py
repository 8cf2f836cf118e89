"""`slurm-launch doctor`: what this cluster is like, and whether a Ray job will get on with it."""

from __future__ import annotations

import grp
import os
import shlex
import socket
from dataclasses import asdict
from datetime import date
from typing import Annotated, Any

import typer

from slurm_launch.cli.options import resolve, verb_app
from slurm_launch.cli.output import note, print_json
from slurm_launch.config import resolve as config_resolve
from slurm_launch.config.files import create, profile_target
from slurm_launch.doctor import cluster_advice, cluster_facts, probe_job, profile_writer, sbatch_trials, this_host
from slurm_launch.doctor.findings import Finding, row
from slurm_launch.doctor.node_advice import Advice
from slurm_launch.errors import ProblemsFound, SlurmUnavailable, UsageError, show
from slurm_launch.runs.record import user_name
from slurm_launch.slurm import environment as slurm_environment
from slurm_launch.slurm.client import Probe
from slurm_launch.slurm.site import number
from slurm_launch.spec.launch_spec import LaunchSpec

# What an experiment wants of its job says nothing about the cluster: it counts only when it is given as a flag.
EXPERIMENT = (
    "num_nodes", "node", "num_gpus", "gpu_type", "cpus_per_task", "mem", "mem_per_cpu", "mem_per_gpu", "exclusive",
    "switches", "licenses", "time", "dependency", "begin", "deadline", "mail_user", "mail_type", "signal", "array",
    "min_nodes",
)  # fmt: skip
NODES = 2  # of the job, unless asked


def doctor(
    flags: dict[str, Any],
    write: Annotated[
        str | None, typer.Option("--write", metavar="NAME", help="Write what was found as the profile NAME.")
    ] = None,
    ask_nodes: Annotated[
        bool, typer.Option("--job", help="Run a tiny job that looks at two nodes (--nodes N).")
    ] = False,
    job_timeout: Annotated[
        str, typer.Option("--job-timeout", metavar="S", help="How long to wait for that job.", show_default=True)
    ] = "600",
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    timeout = _timeout(job_timeout)
    found = resolve({"exp_name": "doctor", "command": "true", **flags})
    spec = site_spec(found, flags)
    target = None if write is None else profile_target(write, "--write", os.environ)
    env = slurm_environment.query_env(os.environ)
    if spec.venv:  # the Ray that counts
        env["PATH"] = f"{spec.venv}/bin:{env.get('PATH', os.defpath)}"
    ask = Probe(env)
    site = cluster_facts.examine(ask, user_name(), _groups())
    spec = placed(spec, site)
    job_spec = for_job(spec, flags, site) if ask_nodes and site.answers else None
    tried = sbatch_trials.try_out(ask, site, spec)
    runtimes = this_host.runtimes(os.environ)
    findings = [*cluster_advice.advise(site), *tried.findings]
    directories = {"run-dir": os.path.abspath(os.path.expanduser(spec.run_dir)), "cwd": os.getcwd()}
    here = this_host.examine(ask, directories, with_job=ask_nodes)
    told = Advice()
    if job_spec is not None:
        told = probe_job.ask_nodes(job_spec, env=os.environ, timeout=timeout, notify=note)
    if told.nodes:  # they know better
        runtimes = list(told.runtimes)
    findings.append(cluster_advice.containers(site, runtimes, on_nodes=bool(told.nodes)))
    answered = {finding.about for finding in told.findings}
    findings += [one for one in here if one.status == "problem" or one.about not in answered]  # the nodes know better
    findings += told.findings
    if write is not None and target is not None and site.partitions:
        hosts = tuple(dict.fromkeys((socket.gethostname(), _full_name())))
        others = profile_writer.taken_by(hosts, os.environ)
        if others:
            text = f"{write} is not chosen by the host's name: {', '.join(others)} is for this host already"
            findings.append(Finding("note", "profile", text, f"say --profile {shlex.quote(write)}, or mend `hosts`"))
        text = profile_writer.text_of(
            profile_writer.Facts(
                name=write,
                when=date.today(),
                hosts=hosts,
                site=site,
                trials=tried,
                chosen=profile_writer.chosen_values(found.own),
                others=tuple(others),
                runtimes=(*(["pyxis"] if site.pyxis else []), *runtimes),
                nodes=told,
            )
        )
        create(target, text)
    _print(findings, str(target) if target and site.partitions else None, as_json)
    missed = ["nothing to write"] if write is not None and not site.partitions else []
    missed += ["no job"] if ask_nodes and (job_spec is None or told.silent) else []
    if missed:
        hint = "run this where Slurm is installed and answers, such as a login node"
        raise SlurmUnavailable(f"without an answer of Slurm there is {' and '.join(missed)}", hint=hint)
    return ProblemsFound.exit_code if any(finding.status == "problem" for finding in findings) else 0


def site_spec(found: config_resolve.Resolution, flags: dict[str, Any]) -> LaunchSpec:
    """The spec of a plain job here: the site's values, where it may run, its environment; no experiment's wishes."""
    spec = found.spec()
    plain = {
        name: LaunchSpec.model_fields[name].get_default()
        for name in EXPERIMENT
        if name not in flags and name.replace("_", "-") in found.own
    }
    return spec.model_copy(update=plain)


def placed(spec: LaunchSpec, site: cluster_facts.Site) -> LaunchSpec:
    """The spec with the partition and the account that a profile for this site would give it."""
    place = site.partition(spec.partition)
    update: dict[str, Any] = {}
    if spec.partition is None and place is not None and not place.default:
        update["partition"] = place.name
    if spec.account is None and site.enforces_accounts:
        update["account"] = site.account
    return spec.model_copy(update=update)


def for_job(spec: LaunchSpec, flags: dict[str, Any], site: cluster_facts.Site) -> LaunchSpec:
    """The spec of the job that asks the nodes: on two of them, for minutes, on the host itself."""
    update: dict[str, Any] = {"array": None, "requeue": False}
    place = site.partition(spec.partition)
    most = place.most_nodes if place else None
    if not {"num_nodes", "node"} & set(flags):
        update["num_nodes"] = min(NODES, most or NODES)
        update["node"] = None
    elif place and most and spec.nodes > most:
        text = f"{most} node{'s' * (most != 1)}"
        why = f"gives a job at most {text}" if most == place.max_nodes else f"has {text}"
        message = f"--nodes {spec.nodes} cannot be: the partition {place.name} {why}"
        raise UsageError(message, at="flag --nodes" if "num_nodes" in flags else "flag --node", hint="ask for fewer")
    if spec.time is None:
        update["time"] = sbatch_trials.shorter("00:05:00", place)
    return spec.model_copy(update=update)


def _print(findings: list[Finding], written: str | None, as_json: bool) -> None:
    if as_json:
        ok = all(finding.status != "problem" for finding in findings)
        print_json(ok=ok, findings=[asdict(finding) for finding in findings], profile=written)
        return
    for finding in findings:
        print(finding.line())
    if written:
        print(row("written", "profile", written))


def _timeout(text: str) -> int:
    seconds = number(text)
    if not seconds:
        kind = "is not a whole number" if seconds is None else "must be at least 1, not"
        message = f"--job-timeout {kind}{':' * (seconds is None)} {show(text)}"
        raise UsageError(message, at="flag --job-timeout", hint="write seconds, for example 600")
    return seconds


def _groups() -> tuple[str, ...]:
    names = []
    for group in {os.getgid(), *os.getgroups()}:
        try:
            names.append(grp.getgrgid(group).gr_name)
        except KeyError:  # the directory does not know it here
            continue
    return tuple(names)


def _full_name() -> str:
    """With the domain, where the name alone has none and the network knows it."""
    name, full = socket.gethostname(), socket.getfqdn()
    return full if full.startswith(f"{name}.") else name


app = verb_app(doctor, help="Look at the cluster: what works here, what is missing; write its profile.")
