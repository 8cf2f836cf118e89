"""Why runs fail: one rule for each cause, in one table; the first that matches counts.

A rule states the cause in one sentence and what to do; matchers.py recognizes it. A cause that the script found itself
is repeated in the script's own words.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_launch.explain import matchers
from slurm_launch.explain.matchers import (
    BRING_UP,
    DIED,
    Matcher,
    address_lines,
    before_command,
    by_exception,
    by_line,
    by_outcome,
    by_state,
    error_output,
    first_of,
    reported,
    unsure,
    whole_log,
    with_code,
)
from slurm_launch.slurm.plain_words import describe_end


@dataclass(frozen=True)
class Rule:
    """A cause and how it is recognized. In the texts {hint} is the script's hint, {at} is ` on NODE`."""

    cause: str
    sentence: str
    advice: str
    match: Matcher
    words: tuple[str, ...] = ()  # parts of the script's texts that the rule recognizes or repeats


CAUSE = "{cause}"
# In this order: what has not failed, then specific causes before general outcomes.
RULES: tuple[Rule, ...] = (
    Rule(
        "not-failed", "it has not failed: the command exited with code 0{kills}", "nothing{more}", matchers.not_failed
    ),
    Rule(
        "not-needed",
        "it has not failed: an earlier link ended the chain, so it never ran",
        "nothing; --chain-while determines when a chain continues",
        matchers.not_needed,
    ),
    Rule(
        "dependency",
        "its dependency can never be satisfied: it will never start",
        "cancel it; submit it again when the other job has run, or without --after-ok, --after-notok or --dependency",
        matchers.never_satisfied,
    ),
    Rule("waiting", "still pending: {why}", "`squeue --start` may show the estimated start time", matchers.pending),
    Rule(
        "running",
        "it has not failed: still running{kills}",
        "`slurm-launch status` shows its progress",
        matchers.running,
    ),
    # Memory
    Rule(
        "out-of-memory",
        f"the job {describe_end('OUT_OF_MEMORY')}{{at}}{{killed}}",
        "request more with --mem{asked}; or let Ray use less: --object-store-memory, fewer concurrent tasks",
        matchers.slurm_out_of_memory,
        ("out of memory on ", "the kernel killed ", "at Slurm's limit", "request more memory with --mem"),
    ),
    Rule(
        "ray-out-of-memory",
        "a node ran low on memory, and Ray killed a task",
        "request more with --mem{asked}; or run fewer concurrent tasks: set num_cpus or memory of each",
        matchers.ray_out_of_memory,
    ),
    Rule(
        "gpu-out-of-memory",
        "the command ran out of GPU memory{place}",
        "use smaller batches, fewer processes on each GPU, or a --gpu-type with more memory",
        by_line(
            error_output,
            r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|RESOURCE_EXHAUSTED: Out of memory",
        ),
    ),
    Rule(
        "object-store-full",
        "Ray's object store is full, and so is the disk that it spills to",
        "choose a --temp-dir with more space, increase --object-store-memory, or keep fewer objects",
        by_exception(r"^(OutOfDiskError|ObjectStoreFullError): "),
    ),
    # What the nodes have
    Rule(
        "no-space",
        "there is no space left{at}",
        "free some space, or choose another --temp-dir; `df -h` on the node, and `quota`, show where",
        first_of(
            by_line(reported, r"No space left on device|Disk quota exceeded"),
            by_line(before_command, r"No space left on device|Disk quota exceeded", "temp-dir", "environment-failed"),
            by_line(error_output, r"No space left on device|Disk quota exceeded", "command-failed"),
        ),
        ("no space on ", "choose another --temp-dir"),
    ),
    Rule(
        "no-gpu",
        "the command found no GPU{place}",
        "request GPUs with --num-gpus; in a task, request them from Ray with num_gpus",
        by_line(
            error_output,
            r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|not compiled with CUDA"
            r"|NVIDIA-SMI has failed|No HIP GPUs are available",
            "command-failed",
        ),
    ),
    Rule(
        "never-enough",
        "the command waits for resources that no node has: {request}",
        "request more from Slurm, with --num-gpus, --cpus-per-task or --mem; or less from Ray",
        matchers.never_enough,
    ),
    Rule(
        "version-mismatch",
        "the nodes have different versions of Ray or Python{versions}",
        "load the same environment on all nodes and in the command",
        matchers.version_mismatch,
        ("the nodes have different versions of Ray or Python", "ersion mismatch", "ray, version"),
    ),
    Rule(
        "token-mismatch",
        "a token other than the job's was used{at}",
        "do not set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or RAY_AUTH_MODE: the script sets them",
        first_of(
            by_line(reported, r"InvalidAuthToken|AuthenticationError", *BRING_UP),
            by_line(error_output, r"(AuthenticationError: .*)(InvalidAuthToken|RAY_AUTH)", "command-failed"),
        ),
        ("has another token", "AuthToken"),
    ),
    Rule(
        "port-in-use",
        "a port is already in use{at}",
        "in the command, let the system choose one (port 0); for Ray, do not fix one, or widen --port-range",
        first_of(
            by_line(reported, r"no free block of ports in (?P<range>\S+)", "head-failed"),
            by_line(reported, r"[Aa]ddress already in use|ort \d+ is already in use", *BRING_UP),
            by_line(error_output, r"Address already in use|EADDRINUSE", "command-failed"),
        ),
        ("no free block of ports in", "use a wider --port-range", "Address already in use"),
    ),
    # The temporary directory
    Rule(
        "temp-dir-too-long",
        "the path of the temporary directory is too long for Ray's sockets{at}",
        "choose a shorter --temp-dir",
        first_of(
            by_line(reported, r"cannot use .*: the path is too long", "temp-dir"),
            by_line(reported, r"AF_UNIX path length cannot exceed|File name too long", *BRING_UP),
        ),
        ("cannot use ", ": the path is too long"),
    ),
    Rule(
        "temp-dir-on-network",
        "the temporary directory {dir} {what}",
        "choose a node-local --temp-dir, such as /tmp: Ray needs pipes, sockets and locks there",
        matchers.temp_dir_on_network,
        ("is on a network file system", "choose a node-local --temp-dir"),
    ),
    Rule("temp-dir", CAUSE, "{hint}", by_outcome("temp-dir"), ("cannot use ",)),
    # Before Ray starts
    Rule(
        "ray-missing",
        "Ray is not installed{at}",
        "install Ray on every node, or load an environment that all nodes can access: --venv, --conda-env, --modules",
        first_of(
            by_line(reported, r'cause="failed: ray is not in PATH"', "environment-failed"),
            by_line(reported, r"\bray: .*(No such file|not found)|\"ray\": .*not found", *BRING_UP),
        ),
        ("ray is not in PATH", "install Ray on "),
    ),
    Rule(
        "environment",
        "the environment could not be loaded: {failed}",
        "{hint}",
        matchers.environment,
        ("failed: ", "fix the environment options, or this script"),
    ),
    Rule("script-ended", CAUSE, "{hint}", by_outcome("script-failed"), ("the script itself ended",)),
    Rule(
        "container",
        CAUSE,
        "{hint}",
        by_line(whole_log, r"\] \S+ missing |outcome=container-failed", "container-failed"),
        ("there is no image", "to mount", "is not in PATH"),
    ),
    Rule(
        "no-address",
        CAUSE,
        "{hint}",
        by_line(address_lines, r"does not exist|has no usable address", "no-address"),
        ("has no usable address",),
    ),
    # While the cluster comes up
    Rule(
        "option-refused",
        "unknown option: {option}",
        "correct --ray-arg, --ray-head-arg, --ray-worker-arg, --srun-arg or --container-arg",
        by_line(
            reported,
            r"(unrecognized|[Nn]o such|invalid) option:? (-- )?['\"]?(?P<option>[^'\"\s]+)['\"]?",
            *BRING_UP,
        ),
    ),
    Rule(
        "head-not-reached",
        "{node} cannot reach the head at {address}: {why}",
        "choose with --interface a network that all nodes have, or leave the node out with --exclude",
        matchers.head_not_reached,
        (" never reached ", "cannot be reached: leave it out with --exclude, or choose --interface"),
    ),
    Rule(
        "too-slow",
        "Ray timed out during startup{at}: the node was too slow",
        "request more --cpus-per-task, or leave the node out with --exclude; check whether its file system is slow",
        by_line(reported, r"timed out during startup|No node info found for head node", *BRING_UP),
        ("was too slow for Ray", "during startup"),
    ),
    Rule(
        "start-timeout",
        CAUSE,
        "use a longer --start-timeout, or --min-nodes; {hint}",
        by_outcome("nodes-missing"),
        ("missing after ", "nodes joined"),
    ),
    # Nodes
    Rule(
        "node-failure",
        "{lost}",
        "`sinfo -R` may show why; submit again",
        first_of(
            by_line(whole_log, r"DUE TO (?P<due>NODE FAILURE)|cause=\"(?P<lost>Slurm has lost a node of the job)\""),
            by_state("NODE_FAIL", "BOOT_FAIL"),
        ),
        ("Slurm has lost a node of the job", "sinfo -R may show why; submit again"),
    ),
    Rule(
        "node-unreachable",
        CAUSE,
        "leave {node} out with --exclude; `sinfo -R` may show more",
        by_line(
            reported,
            r"no message from it|nothing was heard of it|[Cc]onnection failure|[Cc]onnection timed out",
            "node-lost",
            *BRING_UP,
        ),
        ("no message from it for ", "onnection failure"),
    ),
    Rule(
        "ray-died",
        CAUSE,
        "{hint}{more}",
        matchers.ray_died,
        ("its Ray has ended", "did not start", "was lost while the command ran", "failed: "),
    ),
    # Ends that come from outside the job
    Rule(
        "not-requeued",
        "its work is unfinished, and the job was not requeued: {why}",
        "submit it again, and let the command load what it saved; --max-restarts allows more attempts",
        matchers.not_requeued,
        ("it has been requeued ", "Slurm did not requeue it: "),
    ),
    Rule(
        "time-limit",
        "the time limit was reached",
        "request more with --time{time}",
        first_of(
            by_outcome("time-limit"),
            by_state("TIMEOUT"),
            by_line(whole_log, r"CANCELLED AT \S+ DUE TO TIME LIMIT"),
        ),
        ("the time limit was reached", "request more with --time"),
    ),
    Rule(
        "preempted",
        f"the job {describe_end('PREEMPTED')}: another job took its nodes",
        "submit it again, or use --requeue to let Slurm restart it; jobs in another --qos or --partition may be exempt",
        first_of(
            by_state("PREEMPTED"),
            by_line(whole_log, r"CANCELLED AT \S+ DUE TO PREEMPTION"),
            # `ended from outside` was written before version 0.2.0.
            by_line(reported, r"(terminated externally|ended from outside) \(preemption\)|cause=.preempted, and"),
        ),
    ),
    Rule(
        "deadline",
        f"the job {describe_end('DEADLINE')}",
        "set a later --deadline, or a shorter --time",
        by_state("DEADLINE"),
    ),
    Rule(
        "prolog-failed",
        "the site's prolog failed{at}: the job did not start",
        "submit again; if it fails again, leave the node out with --exclude and contact the administrators",
        by_line(whole_log, r"Error running slurm prolog"),
    ),
    Rule(
        "cancelled",
        CAUSE,
        "`sacct -j JOB -X --format=State%30` may show by whom; submit again",
        first_of(by_outcome("ended-from-outside"), by_state("CANCELLED", "REVOKED")),
        ("the job was terminated externally (",),
    ),
    Rule(
        "not-launched",
        "Slurm could not start the script: it could not create the log, or change to the directory",
        "both must exist on the nodes and be writable by you: see --run-dir and --chdir",
        matchers.not_launched,
    ),
    Rule(
        "script-killed",
        "the script itself was killed by {signal}; the sender is unknown",
        "often it ran out of memory: request more with --mem{asked}; otherwise ask the administrators",
        matchers.script_killed,
    ),
    # The command
    Rule(
        "module-missing",
        "the command needs a Python module that is not installed: {module}{place}",
        "install it in the environment that the job loads, where all nodes can access it",
        by_exception(r"^(ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)'?"),
    ),
    Rule(
        "file-missing",
        "the command needs a file that does not exist: {path}",
        "check the path on the node; the command runs in the directory of the submission, or in --chdir",
        first_of(
            by_exception(r"^FileNotFoundError: \[Errno 2\] No such file or directory: (?P<path>.+)"),
            by_line(error_output, r"can't open file (?P<path>'[^']+'): \[Errno 2\]", "command-failed"),
        ),
    ),
    Rule(
        "worker-died",
        "one of Ray's workers died{place}: {error}",
        "its last output is in Ray's logs (worker-*.err); possible causes: a native crash, exit(), out of memory",
        by_exception(rf"^{DIED}: ", sure=False),
    ),
    Rule("python-error", "the command failed with {error}{place}", "fix {file}", by_exception(r"")),
    Rule(
        "command-not-found",
        "there is no program {program}",
        "check its name and the environment: --venv, --conda-env, --modules or --load-env",
        with_code(
            127,
            by_line(
                error_output,
                r"line \d+: (?P<program>.+?): (command not found|No such file or directory)",
                "command-failed",
            ),
        ),
    ),
    Rule(
        "not-executable",
        "the program {program} cannot be executed",
        "use `chmod +x`, or start the command with its interpreter",
        with_code(
            126,
            by_line(
                error_output,
                r"line \d+: (?P<program>.+?): (Permission denied|Is a directory|cannot execute.*)",
                "command-failed",
            ),
        ),
    ),
    Rule(
        "shell-syntax",
        "bash cannot parse the command: {message}",
        "`bash -n` with the command in a file shows where",
        by_line(error_output, r"bash: -c: line \d+: (?P<message>syntax error.*|unexpected EOF.*)", "command-failed"),
    ),
    Rule("command-killed", "the command {how}", "{fix}", matchers.command_killed),
    Rule(
        "command-failed",
        "the command exited with code {code}; its last lines may show why",
        "look at the command's output in the log",
        unsure("command-failed"),
    ),
    Rule(
        "unknown",
        "the cause is unknown: {cause}",
        "look at the log and at `sacct -j JOB`; --keep-ray-logs keeps Ray's own logs",
        unsure(),
    ),
)
