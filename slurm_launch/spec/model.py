"""Every option of a launch, declared once.

A field's name, type, default and `option(...)` are all there is to say about it: the command line flag,
the `SLAUNCH_*` variable, the YAML key, the help text, the JSON schema, `config show` and, for plain
directives, the `#SBATCH` line follow from it (cli/options.py, config.py, directives.py).
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from slurm_launch.spec import array_checks, checks, container_checks, worker_groups
from slurm_launch.spec import sweep_points as sweeps
from slurm_launch.spec.option import (
    CLUSTER,
    CONTAINER,
    ENVIRONMENT,
    EXPERIMENT,
    FILES,
    HATCHES,
    HEAD,
    JOB,
    NETWORK,
    RESOURCES,
    SWEEP,
    Option,
)

# The command of a cluster that waits for people.
IDLE = "echo 'The cluster waits: slurm-launch attach gives a shell on it, slurm-launch cancel ends it.'; exec sleep infinity"
MAX_RESTARTS = 100  # unless the user says otherwise: enough for months of work, and an end to a job that never saves
_RUN = "A run's name or its beginning, a path, or a job id; repeat it for more."


def option(default: Any, group: str, help: str, **details: Any) -> Any:
    """Declare a field; `...` as its default means that a launch cannot do without it."""
    return Field(default, description=help, json_schema_extra=Option(group, help, **details))


# A text that lands in one line of the script.
Line = Annotated[str, BeforeValidator(checks.scalar_text), AfterValidator(checks.filled)]
Time = Annotated[str, BeforeValidator(checks.scalar_text), AfterValidator(checks.slurm_time)]
Memory = Annotated[str, BeforeValidator(checks.scalar_text), AfterValidator(checks.memory)]
Bytes = Annotated[int, BeforeValidator(checks.memory_bytes)]
Nodelist = Annotated[str, AfterValidator(checks.nodelist)]
Code = Annotated[str, AfterValidator(checks.code)]
Lines = Annotated[tuple[Line, ...], BeforeValidator(checks.as_list)]
Codes = Annotated[tuple[Code, ...], BeforeValidator(checks.as_list)]
Variables = Annotated[dict[str, str], BeforeValidator(checks.environment)]
Directives = Annotated[dict[str, str | None], BeforeValidator(checks.directives)]
Dropped = Annotated[Lines, AfterValidator(checks.dropped)]
Count = Annotated[int, Field(ge=1)]
Sweep = Annotated[dict[str, str], BeforeValidator(sweeps.option_value)]
Image = Annotated[Line, AfterValidator(container_checks.image)]
Mounts = Annotated[Lines, AfterValidator(container_checks.mounts)]
WorkerGroup = Annotated[Line, BeforeValidator(worker_groups.as_text), AfterValidator(worker_groups.checked)]
WorkerGroups = Annotated[tuple[WorkerGroup, ...], BeforeValidator(checks.as_list)]


class SpecFields(BaseModel):
    """The fields of a spec, each with the check of its own value. LaunchSpec adds what must agree between them."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
        title="slurm-launch",
        defer_build=True,  # only LaunchSpec is ever instantiated
    )

    # fmt: off
    exp_name: Annotated[str, AfterValidator(checks.exp_name)] = option(
        ..., EXPERIMENT, "Name of the experiment: job name and beginning of the file names.", metavar="NAME", examples=("test",))
    command: Code = option(
        ..., EXPERIMENT, "Command to run on the Ray cluster; it may also follow --.", metavar="CMD", examples=("python train.py",))
    idle: bool = option(
        False, EXPERIMENT, "No command: the cluster waits for `slurm-launch attach`, until the time limit or `slurm-launch cancel`.")

    sweep: Sweep = option(
        {}, SWEEP, "A key and its values, which the command gets as a variable and as {KEY}; repeat it for more: each combination"
        " is a task with a Ray cluster of its own.", metavar="KEY=VALUES", examples=("lr=1e-3,1e-4", "seed=0..4"))
    sweep_file: Line | None = option(
        None, SWEEP, "The points of a sweep: a .csv, .yaml or .jsonl file.", metavar="FILE", examples=("points.csv",))
    max_parallel: Count | None = option(None, SWEEP, "So many tasks of a sweep or an array at a time.", metavar="N", examples=(4,))
    points: Annotated[Line, AfterValidator(sweeps.selection)] | None = option(
        None, SWEEP, "Of the sweep only these points, by their numbers from 0.", metavar="3,7-9", examples=("3,7-9",))

    num_nodes: Count | None = option(
        None, RESOURCES, "Number of nodes. Default: as many as --node names, or 1.",
        flags=("-n", "--nodes", "-N"), metavar="N", examples=(3,))
    node: Nodelist | None = option(
        None, RESOURCES, "The nodes to use, as sinfo writes them.",
        flags=("-w", "--nodelist"), sbatch="nodelist", metavar="HOSTS", examples=("gpu[01-03]",))
    exclude: Nodelist | None = option(
        None, RESOURCES, "Nodes to stay away from.", flags=("-x",), sbatch="exclude", metavar="HOSTS", examples=("gpu[04-05]",))
    num_gpus: Annotated[int, Field(ge=0)] = option(0, RESOURCES, "GPUs on each node.", metavar="N", examples=(4,))
    gpu_type: Line | None = option(None, RESOURCES, "Type of the GPUs, as the site calls it.", metavar="TYPE", examples=("a100",))
    gpu_directive: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] = option(
        "gpus-per-node", RESOURCES, "How the site wants GPUs to be asked for (none: its GPU partition implies them).")
    cpus_per_task: Count | None = option(
        None, RESOURCES, "CPUs on each node.", flags=("-c",), sbatch="cpus-per-task", metavar="N", examples=(8,))
    mem: Memory | None = option(
        None, RESOURCES, "Memory on each node (0: all of it).", sbatch="mem", metavar="SIZE", examples=("64G",))
    mem_per_cpu: Memory | None = option(None, RESOURCES, "Memory for each CPU, instead of --mem.", sbatch="mem-per-cpu", metavar="SIZE", examples=("4G",))
    mem_per_gpu: Memory | None = option(None, RESOURCES, "Memory for each GPU, instead of --mem.", sbatch="mem-per-gpu", metavar="SIZE", examples=("32G",))
    exclusive: bool = option(False, RESOURCES, "Take whole nodes. Not needed for Ray's sake: the script is safe on shared nodes.")
    constraint: Line | None = option(
        None, RESOURCES, "Features that the nodes must have.", flags=("-C",), sbatch="constraint", metavar="FEATURES", examples=("a100",))
    switches: Annotated[Line, AfterValidator(checks.switches)] | None = option(
        None, RESOURCES, "At most so many switches between the nodes.", sbatch="switches", metavar="N[@TIME]", examples=("1@10:00",))
    licenses: Line | None = option(None, RESOURCES, "Licences to hold.", flags=("-L",), sbatch="licenses", metavar="NAMES", examples=("matlab:1",))

    head_cpus: Count | None = option(
        None, HEAD, "CPUs for head and command, on a node of their own without GPUs.", metavar="N", examples=(4,))
    head_mem: Memory | None = option(None, HEAD, "Memory for head and command, on a node of their own.", metavar="SIZE", examples=("16G",))
    head_partition: Line | None = option(None, HEAD, "Partition of the head's own node.", metavar="NAME", examples=("cpu",))
    head_constraint: Line | None = option(None, HEAD, "Features that the head's own node must have.", metavar="FEATURES", examples=("cpu",))
    head_num_cpus: Annotated[int, Field(ge=0)] | None = option(
        None, HEAD, "CPUs that the head gives to Ray (0: no work is scheduled there). Default: all of them.", metavar="N", examples=(0,))
    dedicated_head: bool = option(
        False, HEAD, "Keep Ray's work off the first node: it gives Ray neither CPUs nor GPUs, and is for head and command alone.")
    worker_group: WorkerGroups = option(
        (), HEAD, "A kind of workers, beside a head on its own; repeat it for more. What it does not say is as the plain options say.",
        metavar="n=N,KEY=VALUE,...", examples=(worker_groups.EXAMPLE,))

    partition: Line | None = option(None, JOB, "Partition. Default: the cluster's.", flags=("-p",), sbatch="partition", metavar="NAME", examples=("main",))
    account: Line | None = option(None, JOB, "Account to charge.", flags=("-A",), sbatch="account", metavar="NAME", examples=("proj1",))
    qos: Line | None = option(None, JOB, "Quality of service.", flags=("-q",), sbatch="qos", metavar="NAME", examples=("normal",))
    time: Time | None = option(
        None, JOB, "Time limit: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS.",
        flags=("-t",), sbatch="time", metavar="TIME", examples=("1:30:00",))
    reservation: Line | None = option(None, JOB, "Reservation to run in.", sbatch="reservation", metavar="NAME", examples=("course",))
    dependency: Annotated[Line, AfterValidator(checks.dependency)] | None = option(
        None, JOB, "Jobs to wait for.", flags=("-d",), sbatch="dependency", metavar="TYPE:ID", examples=("afterok:1234",))
    after: Lines = option((), JOB, f"Wait until this run has begun (Slurm's `after`). {_RUN}", metavar="RUN", examples=("train",))
    after_ok: Lines = option((), JOB, f"Wait until this run has ended well. {_RUN}", metavar="RUN", examples=("train",))
    after_any: Lines = option((), JOB, f"Wait until this run has ended, well or not. {_RUN}", metavar="RUN", examples=("1234",))
    after_notok: Lines = option((), JOB, f"Wait until this run has failed. {_RUN}", metavar="RUN", examples=("1234_5",))
    singleton: bool = option(False, JOB, "Wait until no earlier job of yours with the same --exp-name is left.")
    begin: Line | None = option(None, JOB, "Not before this time.", flags=("-b",), sbatch="begin", metavar="TIME", examples=("now+1hour",))
    deadline: Line | None = option(None, JOB, "Give up if it cannot end by this time.", sbatch="deadline", metavar="TIME", examples=("2030-12-31T18:00",))
    nice: int | None = option(None, JOB, "Lower the priority by so much.", sbatch="nice", metavar="N", examples=(100,))
    comment: Line | None = option(None, JOB, "Comment in the job's record.", sbatch="comment", metavar="TEXT", examples=("first try",))
    mail_user: Line | None = option(None, JOB, "Who gets mail about the job.", sbatch="mail-user", metavar="ADDRESS", examples=("me@example.org",))
    mail_type: Line | None = option(None, JOB, "When: BEGIN, END, FAIL, ...", sbatch="mail-type", metavar="TYPES", examples=("END,FAIL",))
    signal: Annotated[Line, AfterValidator(checks.signal)] | None = option(
        None, JOB, "Signal before the time limit.", sbatch="signal", metavar="[B:]SIG[@S]", examples=("B:TERM@120",))
    requeue: bool = option(
        False, JOB, "Run the job again: after preemption or a node failure, at exit code 85, and with --signal-before at the time limit.", examples=(True,))
    signal_before: Annotated[int, AfterValidator(checks.signal_before)] | None = option(
        None, JOB, "So many seconds before the time limit the command is told to save its work.", metavar="S", examples=(120,))
    checkpoint_signal: Annotated[Line, AfterValidator(checks.signal_name)] | None = option(
        None, JOB, "The signal by which it is told. Default: USR1; without --signal-before TERM.", metavar="NAME", examples=("USR2",))
    checkpoint_dir: Line | None = option(
        None, JOB, "Folder that the command gets as SLAUNCH_RUN_DIR; each task of an array has one in it. Default: <name>.run, beside the log.",
        metavar="DIR", examples=("/scratch/me/long",))
    max_restarts: Annotated[int, Field(ge=0)] | None = option(
        None, JOB, f"Requeue at most so many times. Default: {MAX_RESTARTS}.", metavar="N", examples=(10,))
    array: Annotated[Line, AfterValidator(array_checks.array)] | None = option(
        None, JOB, "Run as a job array, a Ray cluster of its own for each task.", flags=("-a",), sbatch="array", metavar="0-9%3", examples=("0-9%3",))
    chain: Annotated[int, AfterValidator(array_checks.chain)] | None = option(
        None, JOB, "Run the same job so many times, one after another: for work that is longer than the time limit.", metavar="N", examples=(5,))
    chain_while: Literal["any", "ok", "notok"] = option(
        "any", JOB, "Go on with the chain after any end of a link, while links end well, or until one does.")
    chdir: Line | None = option(None, JOB, "Directory in which the job runs.", flags=("-D",), sbatch="chdir", metavar="DIR", examples=("/scratch/me",))

    env: Variables = option({}, ENVIRONMENT, "A variable for the job; repeat it for more.", metavar="K=V", examples=("OMP_NUM_THREADS=4",))
    modules: Lines = option((), ENVIRONMENT, "A module to load; repeat it for more.", flags=("--module",), metavar="NAME", examples=("cuda/12.4",))
    conda_env: Line | None = option(None, ENVIRONMENT, "Conda environment to activate: its name or path.", metavar="ENV", examples=("ray",))
    venv: Line | None = option(None, ENVIRONMENT, "Python virtual environment to activate: its directory.", metavar="DIR", examples=("/home/me/venv",))
    load_env: Codes = option(
        (), ENVIRONMENT, "Shell code that sets up the environment, run before anything else; repeat it for more.",
        metavar="CODE", examples=("module load cuda/12.4",))

    container_image: Image | None = option(
        None, CONTAINER, "Image in which Ray and the command run: a file, or a name in a registry.",
        metavar="IMAGE", examples=("nvcr.io#nvidia/pytorch:24.10-py3",))
    container_runtime: Literal["pyxis", "apptainer", "singularity", "podman", "podman-hpc", "shifter", "charliecloud", "none"] = option(
        "pyxis", CONTAINER, "What runs the image (none: no container, whatever the profile says).")
    container_mounts: Mounts = option(
        (), CONTAINER, "Directories to mount, separated by commas; the job's own directory is always there.",
        metavar="SRC[:DST[:ro]]", examples=("/data:/data:ro",))
    container_workdir: Annotated[Line, AfterValidator(container_checks.container_path)] | None = option(
        None, CONTAINER, "Where Ray and the command start in the container. Default: the job's directory.", metavar="DIR", examples=("/work",))
    container_home: bool = option(False, CONTAINER, "Mount your home directory.")
    container_writable: bool = option(False, CONTAINER, "Let the job write to its copy of the image.")
    container_cleanenv: bool = option(False, CONTAINER, "Keep the job's variables out, but for --env, Ray's and Slurm's.")
    container_gpus: Literal["auto", "nvidia", "amd", "none"] = option(
        "auto", CONTAINER, "Whose GPUs the runtime has to let in (auto: by --gpu-type).")
    container_setup: Codes = option(
        (), CONTAINER, "Shell code that runs inside the container before Ray and the command; repeat it for more.",
        metavar="CODE", examples=("source /opt/venv/bin/activate",))
    container_arg: Lines = option((), CONTAINER, "One more argument for the runtime.", metavar="ARG", examples=("--container-remap-root",))
    head_image: Image | None = option(
        None, CONTAINER, "Another image for the head node and the command.", metavar="IMAGE", examples=("/images/cpu.sqsh",))
    worker_image: Image | None = option(
        None, CONTAINER, "Another image for the workers.", metavar="IMAGE", examples=("/images/gpu.sqsh",))

    start_timeout: Count = option(180, CLUSTER, "Seconds within which the nodes must have joined.", metavar="S")
    min_nodes: Count | None = option(
        None, CLUSTER, "Begin the command with so many nodes; the others may join later. Default: all.", metavar="K", examples=(2,))
    grow: Count | None = option(
        None, CLUSTER, "Submit a second job of so many nodes that join the cluster when they come; see `slurm-launch grow`.", metavar="N", examples=(2,))
    on_node_loss: Literal["fail", "continue"] = option(
        "fail", CLUSTER, "What to do when a node is lost while the command runs.")
    auth: Literal["token", "off"] = option(
        "token", CLUSTER, "Keep the cluster to the job's owner by a random token (off: open to everyone in the network).")
    object_store_memory: Bytes | None = option(
        None, CLUSTER, "Ray's object store on each node. Default: 30 % of the job's memory there.", metavar="SIZE", examples=("8G",))
    temp_dir: Annotated[Line, AfterValidator(checks.temp_dir)] = option(
        "/tmp", CLUSTER, "Node-local directory for Ray's files (%u: user, %j: job id).", metavar="DIR")
    dashboard: bool = option(True, CLUSTER, "Start Ray's dashboard, on the head node's loopback address.")
    keep_ray_logs: bool = option(False, CLUSTER, "Keep Ray's own logs after a good run too.")

    ip_family: Literal["auto", "4", "6"] = option("auto", NETWORK, "Kind of addresses; auto prefers IPv4 when both exist.")
    interface: Annotated[Line, AfterValidator(checks.interface)] | None = option(
        None, NETWORK, "Network interface on all nodes. Default: the one that the node's name resolves to.", metavar="NAME", examples=("ib0",))
    port_range: Annotated[Line, AfterValidator(checks.port_range)] | None = option(
        None, NETWORK, "Use these ports only, for clusters with a firewall between nodes.", metavar="A-B", examples=("20000-20999",))

    sbatch: Directives = option({}, HATCHES, "Add any directive of sbatch; repeat it for more.", metavar="KEY[=VALUE]", examples=("gres=nvme:1",))
    no_sbatch: Dropped = option((), HATCHES, "Drop a directive that we would write.", metavar="KEY", examples=("mem",))
    srun_arg: Annotated[Lines, AfterValidator(checks.srun_args)] = option((), HATCHES, "One more argument for the script's sruns.", metavar="ARG", examples=("--mpi=none",))
    ray_arg: Lines = option((), HATCHES, "One more argument for ray start on every node.", metavar="ARG", examples=("--disable-usage-stats",))
    ray_head_arg: Lines = option((), HATCHES, "One more argument for ray start on the head node.", metavar="ARG", examples=("--num-cpus=0",))
    ray_worker_arg: Lines = option((), HATCHES, "One more argument for ray start on the workers.", metavar="ARG", examples=("--labels=role=worker",))

    run_dir: Line = option(".", FILES, "Directory for the script, the log and the record.", metavar="DIR", examples=("runs",))
    template: Line | None = option(None, FILES, "Your own template instead of ours.", metavar="FILE", examples=("job.sh.j2",))
    profile: Line | None = option(None, FILES, "The site's settings: profiles/NAME.yaml in your configuration (none: no profile).", metavar="NAME", examples=("juwels",))
    config: Line | None = option(
        None, FILES, "Project file to read instead of the slurm-launch.yaml found upward.", metavar="FILE", layered=False, examples=("other.yaml",))
    # fmt: on

    @property
    def is_sweep(self) -> bool:
        return bool(self.sweep or self.sweep_file)

    @property
    def goes_on(self) -> bool:
        """Whether the script minds what comes after it: the time limit, or another life."""
        return self.requeue or self.signal_before is not None

    @property
    def image(self) -> str | None:
        """The head's and the command's image; None without a container."""
        return None if self.container_runtime == "none" else self.head_image or self.container_image

    @property
    def workers_image(self) -> str | None:
        return self.image and (self.worker_image or self.container_image or self.image)


def options() -> dict[str, Option]:
    """Every field's option, in the order of declaration."""
    found: dict[str, Option] = {}
    for name, field in SpecFields.model_fields.items():
        assert isinstance(field.json_schema_extra, Option), f"{name} is not declared with option()"
        found[name] = field.json_schema_extra
    return found
