"""`slurm-launch rehearse` from the command line. With real Ray where it matters, otherwise with a fake `ray`."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from slurm_launch import LaunchSpec
from slurm_launch.errors import UsageError
from slurm_launch.rehearsal import faults
from slurm_launch.rehearsal.rehearse import install_fake_commands, rehearsal_folder, rehearse
from slurm_launch.rendering.render import render_script
from slurm_launch.spec.script_header import read_embedded
from tests.fake_slurm import ROOT, env_with_fake_ray, leftovers, start_rehearsal

NO_RAY = not shutil.which("ray", path=os.path.dirname(sys.executable))
real_ray = pytest.mark.skipif(NO_RAY, reason="Ray is not installed: run `make test`")
STAYS = "trap 'echo SAVED; exit 0' TERM; echo BEGUN; while :; do sleep 0.1; done"
BEGUN = "\nBEGUN\n"  # from now on it handles SIGTERM
SHOW_NODES = """python -c '
import ray; ray.init()
for node in sorted(ray.nodes(), key=lambda n: n["NodeName"]):
    has = node["Resources"]
    memory = has["memory"] + has["object_store_memory"]
    print("SEEN", node["NodeName"], node["NodeManagerAddress"], has["CPU"], has.get("GPU", 0), memory)
'; exit 3"""


def processes_of_rehearsals() -> set[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"slurm_launch.rehearsal" in path.read_bytes():
                found.add(path.parent.name)
        except OSError:
            continue
    return found


@real_ray
def test_three_nodes_a_failing_command_and_a_local_ray(tmp_path: Path) -> None:
    held = []
    for port in (6379, 8265, 10001, 52365):  # as a Ray on this machine would
        held.append(socket.socket())
        try:
            held[-1].bind(("127.0.0.1", port))
            held[-1].listen()
        except OSError:
            pass  # there is one already
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    options = ["--num-nodes", "3", "--cpus-per-task", "2", "--num-gpus", "1", "--mem", "600M", "--command", SHOW_NODES]
    done = start_rehearsal(tmp_path, *options, env={**os.environ, "PATH": path, "SLAUNCH_KEEP_RAY_LOGS": "yes"}).wait()
    for one in held:
        one.close()
    assert done.code == 3, done.out + done.err
    seen = [line.split()[1:] for line in done.log.splitlines() if line.startswith("SEEN")]
    assert seen == [[f"node{i}", f"127.0.0.{i + 2}", "2.0", "1.0", str(600.0 * 2**20)] for i in range(3)]
    assert done.out == done.log, "the log is shown unchanged"
    assert "nodes=3/3" in done.log
    assert " end outcome=command-failed code=3 " in done.log
    names = {path.suffix for path in tmp_path.iterdir()}
    assert names == {".sh", ".log", ".json", ".ray"}
    assert sorted(path.name for path in next(tmp_path.glob("*.ray")).iterdir()) == ["node0", "node1", "node2"]
    assert leftovers(done.job_id) == []
    # The script is identical to the one that submit writes.
    script = next(tmp_path.glob("*.sh")).read_text()
    record = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert (record["cluster"], record["job_id"]) == ("rehearsal", str(done.job_id))
    spec = LaunchSpec(**record["spec"])
    again = render_script(
        spec, name=record["name"], when=_made_at(script), run_dir=".", embedded=read_embedded(script, "script")
    )
    assert again == script


def _made_at(script: str):  # type: ignore[no-untyped-def]
    from datetime import datetime

    made = re.search(r" at (\d{4}-\S+[+-]\d\d:?\d\d)\. ", script)
    assert made, script[:300]
    return datetime.fromisoformat(made[1])


@real_ray
@pytest.mark.parametrize("how", ["ctrl-c", "killed"])
def test_nothing_is_left_when_the_user_ends_it(tmp_path: Path, how: str) -> None:
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    running = start_rehearsal(tmp_path, "--num-nodes", "2", "--command", STAYS, env={**os.environ, "PATH": path})
    running.wait_for(BEGUN)
    if how == "ctrl-c":
        running.process.send_signal(signal.SIGINT)
        running.wait()
        assert running.code == 130
        assert "SAVED" in running.out, "the command gets SIGTERM and its grace period"
        assert " end outcome=ended-from-outside " in running.out
        assert running.out == running.log, "nothing is shown twice"
        assert running.err.splitlines()[-1] == "interrupted"
    else:
        running.process.kill()
        running.process.wait()
        assert leftovers(running.job_id, 40, running.tmp) == []
        running.wait()
    assert leftovers(running.job_id, 40) == []
    assert "SAVED" in running.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job_too(tmp_path: Path, number: signal.Signals) -> None:
    running = start_rehearsal(tmp_path, "--command", STAYS, env=env_with_fake_ray(tmp_path)).wait_for(BEGUN)
    running.process.send_signal(number)
    assert running.wait().code == 128 + number
    assert "SAVED" in running.out
    assert leftovers(running.job_id) == []


def test_ctrl_c_without_a_reader(tmp_path: Path) -> None:
    """As in `slurm-launch rehearse | tee file`, where Ctrl-C ends both."""
    running = start_rehearsal(tmp_path, "--command", STAYS, env=env_with_fake_ray(tmp_path)).wait_for(BEGUN)
    running.process.stdout.close()  # type: ignore[union-attr]
    running.process.stdout = None
    running.process.send_signal(signal.SIGINT)
    assert running.wait().code == 130
    assert "SAVED" in running.log
    assert leftovers(running.job_id) == []


def test_ctrl_c_while_sbatch_runs(tmp_path: Path) -> None:
    """The daemon is running already, sbatch has ended: the job is ended and the folder removed."""
    with rehearsal_folder() as (folder, _):
        folder.write("setup.json", {"temp_dir": str(tmp_path)})
        (tmp_path / "script").write_text(
            "#!/bin/bash\necho $$ >pid; trap 'sleep 0.3; >saved; exit' TERM; sleep 900 & wait"
        )
        argv = [str(install_fake_commands(folder) / "sbatch"), f"--output={tmp_path}/out", str(tmp_path / "script")]
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
    assert (tmp_path / "saved").exists()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    assert not folder.path.exists()


def test_the_log_is_shown_byte_by_byte(tmp_path: Path) -> None:
    code = r"printf 'a\303'; sleep 0.5; printf '\244 \377\r\n%s\n' \303; yes | head -c 3000000"
    done = start_rehearsal(tmp_path, "--command", code, env=env_with_fake_ray(tmp_path)).wait()
    assert "a\N{LATIN SMALL LETTER A WITH DIAERESIS} \udcff\r\n" in done.out
    assert done.out == done.log
    assert done.code == 0


def test_a_real_sbatch_is_never_called(tmp_path: Path) -> None:
    env = env_with_fake_ray(tmp_path)
    (tmp_path / "bin" / "sbatch").write_text(f"#!/bin/sh\n>{tmp_path}/called\necho 1")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    (tmp_path / "a:b").mkdir()
    done = start_rehearsal(tmp_path, "--command", "true", env=env, tmp=tmp_path / "a:b").wait()
    assert done.code == 2
    assert "cannot run programs in " in done.err
    assert "(noexec, or a colon in its name)" in done.err
    assert "set TMPDIR" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_no_directory_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"{tmp_path}/none")
    with pytest.raises(UsageError, match="set TMPDIR"):
        rehearse(LaunchSpec(exp_name="test", command="true"), env=env_with_fake_ray(tmp_path), cwd=tmp_path)


def test_a_replaced_path(tmp_path: Path) -> None:
    env = env_with_fake_ray(tmp_path)
    done = start_rehearsal(tmp_path, "--env", "PATH=/usr/bin", "--command", "true", env=env).wait()
    assert done.code == 2
    assert "--load-env 'export PATH=/dir:$PATH'" in done.err
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\necho no >&2; exit 1")
    (tmp_path / "bin" / "srun").chmod(0o755)
    load = f"export PATH={tmp_path}/bin:/usr/bin:/bin"
    done = start_rehearsal(tmp_path, "--load-env", load, "--command", "true", env=env).wait()
    assert done.code == 5, done.out + done.err
    assert "the script did not find the rehearsal's srun" in done.err


def test_an_environment_that_adds_to_the_path(tmp_path: Path) -> None:
    done = start_rehearsal(
        tmp_path, "--load-env", "export PATH=/opt:$PATH", "--command", "true", env=env_with_fake_ray(tmp_path)
    ).wait()
    assert done.code == 0, done.out + done.err
    assert "rehearsal's srun" not in done.err


def test_a_temp_dir_of_the_job_is_removed_too(tmp_path: Path) -> None:
    argv = ["--temp-dir", "/tmp/%j", "--command", "ls -d /tmp/$SLURM_JOB_ID"]
    done = start_rehearsal(tmp_path, *argv, env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 0, done.out + done.err
    assert not Path(f"/tmp/{done.job_id}").exists()


def test_pyxis_is_accepted_without_a_container(tmp_path: Path) -> None:
    image = ["--container-image", "nvcr.io#nvidia/ray:1", "--container-workdir", "/nowhere", "--num-nodes", "2"]
    done = start_rehearsal(
        tmp_path, *image, "--command", "echo in $(pwd); exit 7", env=env_with_fake_ray(tmp_path)
    ).wait()
    assert done.code == 7
    assert "note: no container: Pyxis needs Slurm" in done.err
    assert f"\nin {tmp_path}\n" in done.out
    done = start_rehearsal(
        tmp_path, *image, "--container-mounts", "/nope:/x", "--command", "true", env=dict(os.environ)
    ).wait()
    assert done.code == 5
    assert "there is no /nope to mount (exit code 79)" in done.err


def test_another_runtime_is_used(tmp_path: Path) -> None:
    """A fake apptainer prints its arguments; Ray need not be on this machine, it is in the image."""
    env = env_with_fake_ray(tmp_path)
    (tmp_path / "bin/apptainer").write_text(
        '#!/bin/bash\nshift\nwhile [[ $1 == --* ]]; do shift; done\necho in $1\n"${@:2}"\n'
    )
    (tmp_path / "bin/apptainer").chmod(0o755)
    image = ["--container-image", "ray:1", "--container-runtime", "apptainer"]
    done = start_rehearsal(tmp_path, *image, "--command", "echo a command", env=env).wait()
    assert done.code == 0
    assert "\nin docker://ray:1\na command\n" in done.out


def test_an_array_names_its_log(tmp_path: Path) -> None:
    done = start_rehearsal(tmp_path, "--array", "4-9", "--command", "exit 3", env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 3, done.out + done.err
    assert re.search(r"files: \S+\.sh, _4\.log and \.json", done.err)
    assert list(tmp_path.glob("*_4.log"))


def test_a_second_ctrl_c_kills(tmp_path: Path) -> None:
    running = start_rehearsal(
        tmp_path, "--command", "trap '' TERM; sleep 900 & wait; sleep 900", env=env_with_fake_ray(tmp_path)
    )
    running.wait_for(" command ")
    running.process.send_signal(signal.SIGINT)
    while b"again to kill" not in (line := running.process.stderr.readline()):  # type: ignore[union-attr]
        assert line
    running.process.send_signal(signal.SIGINT)
    running.wait(20)
    assert running.code == 130
    assert leftovers(running.job_id) == []


def test_the_daemon_dies(tmp_path: Path) -> None:
    before = processes_of_rehearsals()
    running = start_rehearsal(
        tmp_path, "--num-nodes", "2", "--command", f"echo $PPID; {STAYS}", env=env_with_fake_ray(tmp_path)
    )
    running.wait_for(BEGUN)
    script = int(running.log.splitlines()[-2])
    daemon = int(Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[1])
    assert str(daemon) in processes_of_rehearsals() - before
    os.kill(daemon, signal.SIGKILL)
    running.wait(60)
    assert running.code == 1
    assert "the rehearsal's daemon has died" in running.err
    assert "SAVED" in running.log
    assert leftovers(running.job_id) == []


@pytest.mark.parametrize(
    ("fault", "options", "code", "expected"),
    [
        (
            "worker-missing:1",
            [],
            5,
            "outcome=node-failed code=71 phase=bring-up node=node1 .*Communication connection failure",
        ),
        ("worker-missing:2", ["--min-nodes", "2"], 0, "lost node=node2 "),
        ("slow-node:2", ["--start-timeout", "4"], 5, "missing after 4 s: node2 .2 of 3 nodes joined"),
    ],
)
def test_faults_of_the_bring_up(tmp_path: Path, fault: str, options: list[str], code: int, expected: str) -> None:
    done = start_rehearsal(
        tmp_path,
        "--num-nodes",
        "3",
        "--fault",
        fault,
        *options,
        "--command",
        "sleep 7",
        env=env_with_fake_ray(tmp_path),
    )
    done.wait()
    assert done.code == code, done.out + done.err
    assert re.search(expected, done.log), done.log
    assert "note: fault: " in done.err
    assert leftovers(done.job_id) == []


@real_ray
@pytest.mark.parametrize(
    ("fault", "options", "code", "expected"),
    [
        ("worker-dies:2", [], 5, "outcome=node-lost code=72 phase=command node=node2"),
        ("worker-dies:1", ["--on-node-loss", "continue"], 0, "lost node=node1 .*continuing without it"),
        ("head-dies", ["--on-node-loss", "continue"], 5, "outcome=node-lost code=72 phase=command node=node0"),
    ],
)
def test_faults_while_the_command_runs(
    tmp_path: Path, fault: str, options: list[str], code: int, expected: str
) -> None:
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    lost = "until grep -q 'los[t] node' *.log; do sleep 0.2; done"
    argv = ["--num-nodes", "3", "--no-dashboard", "--fault", fault, *options, "--command", lost]
    done = start_rehearsal(tmp_path, *argv, env={**os.environ, "PATH": path}).wait()
    assert done.code == code, done.out + done.err
    assert re.search(expected, done.log), done.log
    assert "was injected" not in done.err
    assert leftovers(done.job_id) == []


def test_a_lost_node_restarts_the_job(tmp_path: Path) -> None:
    """Its Ray dies in every attempt, and the last one ends as without --requeue."""
    work = tmp_path / "work"
    work.mkdir()
    dies = """d=${RAY_TMPDIR%.0/t}.1
for p in /proc/[0-9]*; do ! grep -qzxF "SLAUNCH_NODE_DIR=$d" "$p/environ" || kill -9 "${p#/proc/}"; done 2>/dev/null
sleep 90"""
    argv = ["--num-nodes", "2", "--requeue", "--max-restarts", "1", "--command", dies]
    done = start_rehearsal(work, *argv, env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 5, done.out + done.err
    first, last = re.findall(r" end (.*)", done.log)
    assert " requeue restart=1 reason=node-lost\n" in done.log
    assert first.startswith("outcome=requeued code=0 phase=command node=node1 ")
    assert 'cause="node1 was lost while the command ran: ' in first
    assert last.startswith("outcome=node-lost code=72 phase=command node=node1 ")
    assert ', and it has been requeued 1 time (--max-restarts 1)"' in last
    assert sorted(path.name.partition(".")[2] for path in work.glob("*.ray*")) == ["ray", "ray-0"], "logs are kept"


def test_several_at_once(tmp_path: Path) -> None:
    env = env_with_fake_ray(tmp_path)
    running = []
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        running.append(
            start_rehearsal(tmp_path / str(number), "--num-nodes", "3", "--command", f"exit {number}", env=env)
        )
    for number, each in enumerate(running):
        assert each.wait().code == number, each.out + each.err
        assert leftovers(each.job_id) == []


def test_the_command_ends_before_the_fault(tmp_path: Path) -> None:
    done = start_rehearsal(
        tmp_path, "--fault", "head-dies", "--command", "true", env=env_with_fake_ray(tmp_path)
    ).wait()
    assert done.code == 0
    assert "the job ended before the fault (head-dies) was injected" in done.err


def test_json(tmp_path: Path) -> None:
    done = start_rehearsal(
        tmp_path, "--json", "--command", "echo HELLO; exit 4", env=env_with_fake_ray(tmp_path)
    ).wait()
    answer = json.loads(done.out)
    assert (done.code, answer["exit_code"], answer["cluster"]) == (4, 4, "rehearsal")
    assert "HELLO" in done.err


def test_the_progress_line(tmp_path: Path) -> None:
    """On a terminal the last line shows the progress; it is erased when the log grows."""
    terminal, theirs = pty.openpty()
    argv = [sys.executable, "-m", "slurm_launch", "rehearse", "--exp-name", "test", "-n", "2", "--command", "sleep 1"]
    env = {**env_with_fake_ray(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # a closed terminal
        while more := os.read(terminal, 1 << 16):
            shown += more
    os.close(terminal)
    assert process.wait() == 0, shown
    assert re.search(rb"\.\.\. nodes joined 0/2, \d+ s\r\x1b\[K", shown), shown
    assert b"... running your command, " in shown
    assert shown.rstrip().endswith(b".log and .json")


def test_the_time_limit(tmp_path: Path) -> None:
    done = start_rehearsal(tmp_path, "--time", "0:06", "--command", STAYS, env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 5
    assert "outcome=time-limit code=74" in done.log
    assert "SAVED" in done.log
    assert leftovers(done.job_id) == []


def test_without_ray_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(UsageError) as error:
        rehearse(LaunchSpec(exp_name="test", command="true"), env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path)
    assert 'pip install "slurm-launch[ray]"' in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_directive_leaves_the_script_and_nothing_else(tmp_path: Path) -> None:
    done = start_rehearsal(
        tmp_path, "--sbatch", "no-such-thing=1", "--command", "true", env=env_with_fake_ray(tmp_path)
    ).wait()
    assert done.code == 3
    assert "not supported in a rehearsal" in done.err
    assert "--no-sbatch" in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("explode", "unknown fault 'explode'"),
        ("worker-dies:3", "worker-dies:3 is not a node of this job: use 1 to 2"),
        ("worker-dies:0", "worker-dies:0 is not a node"),
        ("worker-dies:x", "worker-dies:x is not a node"),
        ("head-dies:1", "head-dies takes no node number"),
    ],
)
def test_bad_faults(tmp_path: Path, text: str, message: str) -> None:
    done = start_rehearsal(tmp_path, "--num-nodes", "3", "--fault", text, "--command", "true").wait()
    assert done.code == 2
    assert message in done.err
    assert "hint:" in done.err
    assert list(tmp_path.iterdir()) == []


def test_faults_are_numbered_from_the_head() -> None:
    assert faults.parse("slow-node:0", 1) == faults.Fault("slow-node", 0)
    assert faults.parse("worker-dies", 2) == faults.Fault("worker-dies", 1)
    with pytest.raises(faults.BadFault, match="only the head"):
        faults.parse("worker-missing:1", 1)


def test_dependencies_of_a_chain_are_ignored(tmp_path: Path) -> None:
    """A dependency that only the cluster knows does not prevent a rehearsal."""
    command = 'echo "LINK $SLAUNCH_LINK"; ls -d "$SLAUNCH_RUN_DIR"; exit 3'
    argv = ("--after-ok", "train", "--singleton", "--chain", "3", "--chain-while", "ok", "--command", command)
    done = start_rehearsal(tmp_path, *argv, env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 3, done.err
    assert "not in the rehearsed script: --after-ok train: no run has the name or job ID 'train'" in done.err
    assert "dependencies have no effect in a rehearsal; it starts at once: --singleton" in done.err
    assert "only the first link of the chain is rehearsed" in done.err
    assert "LINK 0\n" in done.log
    (folder,) = tmp_path.glob("*.run")
    assert f"\n{folder}\n" in done.log
    script = next(tmp_path.glob("*.sh")).read_text()
    assert "#SBATCH --dependency=singleton\n" in script


def test_grow_is_left_out(tmp_path: Path) -> None:
    done = start_rehearsal(tmp_path, "--grow", "2", "--command", "true", env=env_with_fake_ray(tmp_path)).wait()
    assert done.code == 0, done.err
    assert "--grow: the additional job is not rehearsed" in done.err
