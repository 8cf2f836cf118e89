"""Why runs fail: one rule for each cause, in one table; the first that fits counts.

A rule says the cause in one sentence and tells what to do; cause_finders.py has how it is known. What the script itself
has found out is said in the script's own words.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_launch.explain import matchers as find


@dataclass(frozen=True)
class Rule:
    """A cause, and how it is known. In the texts {hint} is the script's own, {at} is ` on NODE`."""

    cause: str
    sentence: str
    advice: str
    find: find.Find
    words: tuple[str, ...] = ()  # parts of the script's texts by which it is known, or which it repeats


CAUSE = "{cause}"
# In this order: what has not failed, then the special causes before the general outcomes.
RULES: tuple[Rule, ...] = (
    Rule("not-failed", "it has not failed: the command ended with code 0", "nothing", find.not_failed),
    Rule(
        "not-needed",
        "it has not failed: a link before it has ended the chain, so it never ran",
        "nothing; --chain-while says when a chain goes on",
        find.not_needed,
    ),
    Rule(
        "dependency",
        "the job that it depends on has ended otherwise: it will never start",
        "cancel it; submit it again when the other job has run, or without --after-ok, --after-notok or --dependency",
        find.never,
    ),
    Rule("waiting", "it has not failed: it waits: {why}", "`squeue --start` may tell how long", find.waits),
    Rule(
        "running",
        "it has not failed: it runs",
        "`slurm-launch status` tells how far it is",
        find.runs,
    ),
    # Memory
    Rule(
        "out-of-memory",
        "the job ran out of memory{at}, and Slurm killed it",
        "ask for more with --mem{asked}; or let Ray hold less: --object-store-memory, fewer tasks at a time",
        find.slurm_oom,
    ),
    Rule(
        "ray-out-of-memory",
        "a node ran low on memory, and Ray killed a task",
        "ask for more with --mem{asked}; or run fewer tasks at a time, by num_cpus or memory of each",
        find.ray_oom,
    ),
    Rule(
        "gpu-out-of-memory",
        "the command ran out of the GPU's memory{place}",
        "smaller batches, fewer processes on each GPU, or a --gpu-type with more memory",
        find.line(
            find.error,
            r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|RESOURCE_EXHAUSTED: Out of memory",
        ),
    ),
    Rule(
        "object-store-full",
        "Ray's object store is full, and so is the disk to which it spills",
        "choose a --temp-dir with more room, give more to --object-store-memory, or keep fewer objects",
        find.raised(r"^(OutOfDiskError|ObjectStoreFullError): "),
    ),
    # What the nodes have
    Rule(
        "no-space",
        "there is no space left{at}",
        "make room, or choose another --temp-dir; `df -h` on the node, and `quota`, tell where",
        find.either(
            find.line(find.told, r"No space left on device|Disk quota exceeded"),
            find.line(find.before, r"No space left on device|Disk quota exceeded", "temp-dir", "environment-failed"),
            find.line(find.error, r"No space left on device|Disk quota exceeded", "command-failed"),
        ),
        ("no space on ", "choose another --temp-dir"),
    ),
    Rule(
        "no-gpu",
        "the command found no GPU{place}",
        "ask for GPUs with --num-gpus; in a task, ask Ray for them with num_gpus",
        find.line(
            find.error,
            r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|not compiled with CUDA"
            r"|NVIDIA-SMI has failed|No HIP GPUs are available",
            "command-failed",
        ),
    ),
    Rule(
        "never-enough",
        "the command waits for what no node has: {request}",
        "ask Slurm for more, with --num-gpus, --cpus-per-task or --mem; or ask Ray for less",
        find.never_enough,
    ),
    Rule(
        "version-mismatch",
        "the nodes have different versions of Ray or Python{versions}",
        "load the same environment on all nodes and in the command",
        find.version,
        ("the nodes have different versions of Ray or Python", "ersion mismatch", "ray, version"),
    ),
    Rule(
        "token-mismatch",
        "another token than the job's was used{at}",
        "do not set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or RAY_AUTH_MODE: the script does it",
        find.either(
            find.line(find.told, r"InvalidAuthToken|AuthenticationError", *find.BRING_UP),
            find.line(find.error, r"(AuthenticationError: .*)(InvalidAuthToken|RAY_AUTH)", "command-failed"),
        ),
        ("has another token", "AuthToken"),
    ),
    Rule(
        "port-in-use",
        "a port is in use already{at}",
        "in the command let the system choose (port 0); for Ray do not fix one, or widen --port-range",
        find.either(
            find.line(find.told, r"no free block of ports in (?P<range>\S+)", "head-failed"),
            find.line(find.told, r"[Aa]ddress already in use|ort \d+ is already in use", *find.BRING_UP),
            find.line(find.error, r"Address already in use|EADDRINUSE", "command-failed"),
        ),
        ("no free block of ports in", "give a wider --port-range", "Address already in use"),
    ),
    # The temporary directory
    Rule(
        "temp-dir-too-long",
        "the path of the temporary directory is too long for Ray's sockets{at}",
        "choose a shorter --temp-dir",
        find.either(
            find.line(find.told, r"cannot use .*: the path is too long", "temp-dir"),
            find.line(find.told, r"AF_UNIX path length cannot exceed|File name too long", *find.BRING_UP),
        ),
        ("cannot use ", ": the path is too long"),
    ),
    Rule(
        "temp-dir-on-network",
        "the temporary directory {dir} {what}",
        "choose a node-local --temp-dir, such as /tmp: Ray needs pipes, sockets and locks there",
        find.network_folder,
        ("is on a network file system", "choose a node-local --temp-dir"),
    ),
    Rule("temp-dir", CAUSE, "{hint}", find.outcome("temp-dir"), ("cannot use ",)),
    # Before Ray starts
    Rule(
        "ray-missing",
        "there is no Ray{at}",
        "install Ray on every node, or load an environment that all nodes can see: --venv, --conda-env, --modules",
        find.either(
            find.line(find.told, r'cause="failed: ray is not in PATH"', "environment-failed"),
            find.line(find.told, r"\bray: .*(No such file|not found)|\"ray\": .*not found", *find.BRING_UP),
        ),
        ("ray is not in PATH", "install Ray on "),
    ),
    Rule(
        "environment",
        "the environment could not be loaded: {failed}",
        "{hint}",
        find.environment,
        ("failed: ", "mend the environment options, or this script"),
    ),
    Rule("script-ended", CAUSE, "{hint}", find.outcome("script-failed"), ("the script itself ended",)),
    Rule(
        "container",
        CAUSE,
        "{hint}",
        find.line(find.log, r"\] \S+ missing |outcome=container-failed", "container-failed"),
        ("there is no image", "to mount", "is not in PATH"),
    ),
    Rule(
        "no-address",
        CAUSE,
        "{hint}",
        find.line(
            lambda scene: [*scene.before[-2:], *scene.told], r"does not exist|has no usable address", "no-address"
        ),
        ("has no usable address",),
    ),
    # While the cluster comes up
    Rule(
        "option-refused",
        "an option is not known: {option}",
        "correct --ray-arg, --ray-head-arg, --ray-worker-arg, --srun-arg or --container-arg",
        find.line(
            find.told,
            r"(unrecognized|[Nn]o such|invalid) option:? (-- )?['\"]?(?P<option>[^'\"\s]+)['\"]?",
            *find.BRING_UP,
        ),
    ),
    Rule(
        "head-not-reached",
        "{node} cannot reach the head at {address}: {why}",
        "choose with --interface a network that all nodes have, or leave the node out with --exclude",
        find.unreached,
        (" never reached ", "cannot be reached: leave it out with --exclude, or choose --interface"),
    ),
    Rule(
        "too-slow",
        "Ray gave up because the node was too slow{at}",
        "ask for more --cpus-per-task, or leave the node out with --exclude; is its file system slow?",
        find.line(find.told, r"timed out during startup|No node info found for head node", *find.BRING_UP),
        ("was too slow for Ray", "during startup"),
    ),
    Rule(
        "start-timeout",
        CAUSE,
        "give a longer --start-timeout, or --min-nodes; {hint}",
        find.outcome("nodes-missing"),
        ("missing after ", "nodes joined"),
    ),
    # Nodes
    Rule(
        "node-failure",
        "{lost}",
        "sinfo -R may tell why; submit again",
        find.either(
            find.line(find.log, r"DUE TO (?P<due>NODE FAILURE)|cause=\"(?P<lost>Slurm has lost a node of the job)\""),
            find.state("NODE_FAIL", "BOOT_FAIL"),
        ),
        ("Slurm has lost a node of the job", "sinfo -R may tell why; submit again"),
    ),
    Rule(
        "node-unreachable",
        CAUSE,
        "leave {node} out with --exclude; `sinfo -R` may tell more",
        find.line(
            find.told,
            r"nothing was heard of it|[Cc]onnection failure|[Cc]onnection timed out",
            "node-lost",
            *find.BRING_UP,
        ),
        ("nothing was heard of it for ", "onnection failure"),
    ),
    Rule(
        "ray-died",
        CAUSE,
        "{hint}{more}",
        find.died_ray,
        ("its Ray has ended", "did not start", "was lost while the command ran", "failed: "),
    ),
    # The end from outside
    Rule(
        "not-requeued",
        "its work is not done, and the job was not run again: {why}",
        "submit it again, and let it read what the command has saved; --max-restarts allows more lives",
        find.not_requeued,
        ("it has been requeued ", "Slurm did not requeue it: "),
    ),
    Rule(
        "time-limit",
        "the time limit was reached",
        "ask for more with --time{time}",
        find.either(
            find.outcome("time-limit"),
            find.state("TIMEOUT"),
            find.line(find.log, r"CANCELLED AT \S+ DUE TO TIME LIMIT"),
        ),
        ("the time limit was reached", "ask for more with --time"),
    ),
    Rule(
        "preempted",
        "the job was preempted: another one took its nodes",
        "submit it again, or with --requeue let Slurm do that; another --qos or --partition may be spared",
        find.either(
            find.state("PREEMPTED"),
            find.line(find.log, r"CANCELLED AT \S+ DUE TO PREEMPTION"),
            find.line(find.told, r"ended from outside \(preemption\)|cause=.preempted, and"),
        ),
    ),
    Rule(
        "deadline",
        "the job could not end before its deadline",
        "give a later --deadline, or a shorter --time",
        find.state("DEADLINE"),
    ),
    Rule(
        "prolog-failed",
        "the site's prolog failed{at}: the job did not begin",
        "submit again; if it stays so, leave the node out with --exclude and tell the administrators",
        find.line(find.log, r"Error running slurm prolog"),
    ),
    Rule(
        "cancelled",
        "{ended}",
        "`sacct -j JOB -X --format=State%30` may tell who did it; submit again",
        find.either(find.outcome("ended-from-outside"), find.state("CANCELLED", "REVOKED")),
        ("the job was ended from outside (",),
    ),
    Rule(
        "not-launched",
        "Slurm could not start the script: it could not make the log, or go to the directory",
        "both must exist on the nodes, and be yours: see --run-dir and --chdir",
        find.no_launch,
    ),
    Rule(
        "script-killed",
        "the script itself was killed by {signal}; nobody told by whom",
        "often it is memory: ask for more with --mem{asked}; else ask the administrators",
        find.script_killed,
    ),
    # The command
    Rule(
        "module-missing",
        "the command needs a Python module that is not there: {module}{place}",
        "install it in the environment that the job loads, where all nodes can see it",
        find.raised(r"^(ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)'?"),
    ),
    Rule(
        "file-missing",
        "the command needs a file that is not there: {path}",
        "check the path: it is that of the node, and the command runs where you submitted, or in --chdir",
        find.either(
            find.raised(r"^FileNotFoundError: \[Errno 2\] No such file or directory: (?P<path>.+)"),
            find.line(find.error, r"can't open file (?P<path>'[^']+'): \[Errno 2\]", "command-failed"),
        ),
    ),
    Rule(
        "worker-died",
        "one of Ray's workers died{place}: {said}",
        "its last words are in Ray's logs (worker-*.err); a crash of native code, an exit, or memory",
        find.raised(rf"^{find.DIED}: ", sure=False),
    ),
    Rule("python-error", "the command failed with {said}{place}", "mend {file}", find.raised(r"")),
    Rule(
        "command-not-found",
        "there is no program {program}",
        "check its name and the environment: --venv, --conda-env, --modules or --load-env",
        lambda scene: (
            find.line(
                find.error,
                r"line \d+: (?P<program>.+?): (command not found|No such file or directory)",
                "command-failed",
            )(scene)
            if scene.end and scene.end.code == 127
            else None
        ),
    ),
    Rule(
        "not-executable",
        "the program {program} may not be run",
        "`chmod +x` it, or begin the command with its interpreter",
        lambda scene: (
            find.line(
                find.error,
                r"line \d+: (?P<program>.+?): (Permission denied|Is a directory|cannot execute.*)",
                "command-failed",
            )(scene)
            if scene.end and scene.end.code == 126
            else None
        ),
    ),
    Rule(
        "shell-syntax",
        "bash does not understand the command: {message}",
        "`bash -n` with the command in a file shows where",
        find.line(find.error, r"bash: -c: line \d+: (?P<message>syntax error.*|unexpected EOF.*)", "command-failed"),
    ),
    Rule(
        "command-killed",
        "the command {how}",
        "{mend}",
        find.killed,
    ),
    Rule(
        "command-failed",
        "the command ended with code {code}; why, its own last lines must tell",
        "look at the command's output in the log",
        lambda scene: find.Finding(find.last(scene), sure=False) if scene.outcome == "command-failed" else None,
    ),
    Rule(
        "unknown",
        "nobody can tell why: the job {ended}",
        "look at the log and at `sacct -j JOB`; Ray's own logs are kept with --keep-ray-logs",
        lambda scene: find.Finding(find.last(scene), sure=False),
    ),
)
