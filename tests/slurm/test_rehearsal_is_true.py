"""Rehearsals are faithful: the same scripts on the stand-ins and on the real cluster."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.rendering.render import render_script
from tests.fake_slurm import run_job
from tests.slurm.jobs import HOME, ROOT, VENV
from tests.testbed import Cluster

pytestmark = pytest.mark.slurm

# Calls of srun and scontrol, and the environment of a job. Only error messages may differ. Differences between Slurm
# versions are left out, such as the number of tasks of `srun --nodes=2` in a job of three: the script sets all options.
# So is what varies between calls: after SIGTERM to srun a task may get that signal, or only the SIGKILL after it.
PROBE = """#!/bin/bash
#SBATCH --nodes=3 --nodelist=n[1-3] --ntasks-per-node=1 --cpus-per-task=2 --mem=100M --gpus-per-node=1
#SBATCH --job-name=probe --output=probe.log --open-mode=append --time=5 --no-requeue --comment="it's a # test"
show='for v in PROCID NODEID LOCALID NTASKS NPROCS NNODES STEP_NUM_NODES STEP_NUM_TASKS STEP_ID CPUS_ON_NODE \\
  GPUS_ON_NODE; do v=SLURM_$v; echo "$v=${!v}"; done; echo "$SLURMD_NODENAME"
  [[ $(ps -o pgid= -p $$) -eq $$ ]] && echo "a group of its own"; [[ $(ps -o sid= -p $$) -eq $$ ]] && echo "a session"'
where='echo $SLURMD_NODENAME $SLURM_NODEID'
exec 2>/dev/null
echo "1: names"; scontrol show hostnames "$SLURM_JOB_NODELIST"; scontrol show hostnames 'a[01-03,7],b'
scontrol show hostnames
echo "2: batch"
for v in SLURM_{CPUS_ON_NODE,CPUS_PER_TASK,GPUS_ON_NODE,JOB_CPUS_PER_NODE,JOB_NAME,JOB_NODELIST,JOB_NUM_NODES} \\
  SLURM_{LOCALID,MEM_PER_NODE,NNODES,NODEID,NODELIST,NTASKS,NTASKS_PER_NODE,PROCID,TASKS_PER_NODE,GPUS_PER_NODE} \\
  SLURM_{GTIDS,MEM_PER_CPU,ARRAY_TASK_ID,STEP_ID,SUBMIT_DIR} SLURMD_NODENAME ENVIRONMENT CUDA_VISIBLE_DEVICES; do
  echo "$v=${!v-unset}"
done
[[ $SLURM_JOB_ID == "$SLURM_JOBID" && $SLURM_JOB_UID == "$(id -u)" ]] && echo "ids agree"
readlink /dev/stdin; eval "${show##*NODENAME\\"}"
squeue -h -j "$SLURM_JOB_ID" -o '%T %r %j %D %N'
try() { echo "$1"; shift; "$@" | sort; echo "code ${PIPESTATUS[0]}"; }
try "3: all nodes" srun --label bash -c "$show" </dev/null
try "4: relative" srun --nodes=2 --ntasks=2 --relative=1 bash -c "$where"
try "5: nodelist" srun --nodes=1 --ntasks=1 --nodelist=n3 --overlap --cpu-bind=none --mpi=none bash -c "$where"
try "6: exclude" srun --nodes=2 --ntasks=2 --exclude=n1 bash -c "$where"
try "7: two" srun --nodes=2 --ntasks=2 --nodelist=n3,n1 --label bash -c "$where"
try "8: more nodes than tasks" srun --nodes=4 bash -c "$where"
try "8: too many nodes" srun --nodes=4 --ntasks=4 bash -c "$where"
try "8: one task" srun --ntasks=1 bash -c "$where"
try "8: nodelist alone" srun --nodelist=n2,n3 bash -c "$where"
try "8: exclude alone" srun --exclude=n2 bash -c "$where"
try "9: no such node" srun --nodes=1 --ntasks=1 --nodelist=n9 true
try "10: code" srun --nodes=1 --ntasks=1 bash -c 'exit 7'
try "11: killed" srun --nodes=1 --ntasks=1 bash -c 'kill -KILL $$'
try "12: not found" srun --nodes=1 --ntasks=1 no-such-program
try "13: bad exit" srun --kill-on-bad-exit=1 bash -c '[[ $SLURM_PROCID != 1 ]] || exit 4; exec sleep 60'
try "14: highest code" srun --kill-on-bad-exit=0 bash -c 'exit $((SLURM_PROCID + 1))'
export A=1
try "15: export" srun --nodes=1 --ntasks=1 --export=ALL,B=2 bash -c 'echo "$A $B"'
try "16: export" srun --nodes=1 --ntasks=1 --export=B=3 /bin/bash -c 'echo "${A-unset} $B"'
try "17: input" srun --label cat <<<"for all"
try "18: chdir" srun --nodes=1 --ntasks=1 --chdir=/usr pwd
try "19: a bad option" srun --no-such-option true
wait='trap "echo GOT; exit 5" USR1; echo UP; while :; do sleep 0.1; done'
srun --nodes=1 --ntasks=1 --overlap bash -c "$wait" >probe.out &
until grep -q UP probe.out; do sleep 0.1; done; kill -s USR1 $!; wait $!
echo "20: signal, code $?" "$(grep GOT probe.out)"
exit 12
"""


def run_on_cluster(cluster: Cluster, name: str, script: str) -> tuple[str, str, int]:
    cluster.run(["rm", "-f", f"{HOME}/{name}.log"])
    cluster.run(["tee", f"{name}.sh"], stdin=script, check=True)
    job = cluster.run(["sbatch", "--parsable", f"{name}.sh"], check=True).stdout.strip()
    state = cluster.wait_job(job, 120)
    text = cluster.path(f"{HOME}/{name}.log").read_text()
    return text, state["JobState"], int(state["ExitCode"].partition(":")[0])


def test_srun_scontrol_and_the_environment(cluster: Cluster, tmp_path: Path) -> None:
    text, state, code = run_on_cluster(cluster, "probe", PROBE)
    text = text.replace("SLURM_STEP_ID=-5\n", "SLURM_STEP_ID=unset\n")  # of the script itself, since Slurm 26.05
    rehearsed = run_job(PROBE, tmp_path)
    assert rehearsed.submitted.returncode == 0, rehearsed.submitted.stderr
    assert rehearsed.output.replace(str(tmp_path), HOME).splitlines() == text.splitlines()
    assert (rehearsed.state.state, rehearsed.state.code) == (state, code) == ("FAILED", 12)


ONLY_N1 = """mkdir -p bin && cat >bin/ray <<'END' && chmod +x bin/ray && export PATH=$PWD/bin:$PATH
#!/bin/bash
[[ $SLURMD_NODENAME == n1 ]] || exec ray-is-missing
exec %s/bin/ray "$@"
END"""


@pytest.mark.parametrize(
    "options",
    [
        {"node": "n[1-2]", "command": "python3 -c 'import ray; ray.init(); print(len(ray.nodes()))'; exit 3"},
        {"node": "n[1-2]", "load_env": ["true", "no-such-loader"]},
        {"node": "n[1-2]", "load_env": [ONLY_N1 % VENV]},
    ],
    ids=["command", "environment", "worker"],
)
def test_the_generated_script(cluster: Cluster, tmp_path: Path, options: dict[str, Any]) -> None:
    path = f"export PATH={VENV}/bin:$PATH"
    options = {**options, "load_env": [path, *options.get("load_env", [])]}
    spec = LaunchSpec(**{"exp_name": "same", "command": "true", "cpus_per_task": 1, **options})
    script = render_script(spec, name="same", when=datetime(2026, 11, 16, tzinfo=timezone.utc))
    text, state, code = run_on_cluster(cluster, "same", script)
    rehearsed = run_job(script, tmp_path, timeout=120)
    assert summary(rehearsed.output) == summary(text), f"{rehearsed.output}\n{text}"
    assert (rehearsed.state.state, rehearsed.state.code) == (state, code)


def test_on_a_login_node_without_root(cluster: Cluster) -> None:
    """A real Slurm is in PATH here; the rehearsal does not use it."""
    command = "python3 -c 'import ray; ray.init(); print(len(ray.nodes()), flush=True)'; whoami; exit 4"
    argv = [f"{VENV}/bin/slurm-launch", "rehearse", "--exp-name", "here", "--run-dir", "rehearsed", "-n", "2"]
    done = cluster.run([*argv, "--command", command], user="alice", env={"PYTHONPATH": str(ROOT)}, timeout=120)
    assert done.returncode == 4, done.stdout + done.stderr
    assert {"2", "alice"} <= set(done.stdout.splitlines())
    assert cluster.squeue() == []
    assert [str(each) for each in cluster.processes("login", "alice")] == []
    left = cluster.run(["bash", "-c", "ls -d /tmp/r6* /tmp/slurm-launch-* 2>/dev/null"], user="alice").stdout
    assert left == ""


def summary(log: str) -> list[str]:
    """The phases, the outcome, and the output of the command."""
    found = []
    for line in log.splitlines():
        phase = re.match(r"\[slurm-launch\] \d{4}-\S+ (\S+)", line)
        if phase is None:
            if not re.match(r"\d{4}-\d\d-\d\d .*INFO", line):
                found.append(re.sub(r"^/\S*/slurm_script", "slurm_script", line))
        elif phase[1] == "end":
            found.append(" ".join(re.findall(r"(?:outcome|code|phase|node)=\S+|cause=\"[^\"]*\"", line)))
        else:
            found.append(phase[1])
    if any(text.startswith("outcome=node-failed") for text in found):
        return [text for text in found if text != "joined"]  # a slow head joins after the worker has failed
    return found
