"""Every option of a launch, declared once.

A field's name, type, default and `option(...)` are its whole declaration. The command line flag, the `SLAUNCH_*`
variable, the YAML key, the help text, the JSON schema, `config show` and, for plain directives, the `#SBATCH` line are
derived from it (cli/spec_flags.py, config/, rendering/directives.py).
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from slurm_launch.spec import checks, container_checks, sweep_points, worker_groups
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

# The command of --idle.
IDLE = "echo 'The cluster is ready: slurm-launch attach opens a shell on it, slurm-launch cancel stops it.'; exec sleep infinity"
MAX_RESTARTS = 100  # the default: enough for months of work, but a job that never saves comes to an end
_RUN = "RUN: a run's name or a prefix of it, a path, or a job ID; repeatable."


def option(default: Any, group: str, help: str, **details: Any) -> Any:
    """Declare a field; with `...` as its default it is required."""
    return Field(default, description=help, json_schema_extra=Option(group, help, **details))


# Text on one line of the script.
Line = Annotated[str, BeforeValidator(checks.scalar_text), AfterValidator(checks.nonempty_line)]
Time = Annotated[str, BeforeValidator(checks.scalar_text), AfterValidator(checks.slurm_time)]
Memory = Annotated[str, BeforeValidator(checks.scalar_text), AfterValidator(checks.memory)]
Bytes = Annotated[int, BeforeValidator(checks.memory_bytes)]
Nodelist = Annotated[str, AfterValidator(checks.nodelist)]
Code = Annotated[str, AfterValidator(checks.code)]
Lines = Annotated[tuple[Line, ...], BeforeValidator(checks.as_list)]
Codes = Annotated[tuple[Code, ...], BeforeValidator(checks.as_list)]
Variables = Annotated[dict[str, str], BeforeValidator(checks.environment)]
Directives = Annotated[dict[str, str | None], BeforeValidator(checks.directives)]
Dropped = Annotated[Lines, AfterValidator(checks.dropped_directives)]
Count = Annotated[int, Field(ge=1)]
Sweep = Annotated[dict[str, str], BeforeValidator(sweep_points.parse_sweep)]
Image = Annotated[Line, AfterValidator(container_checks.image)]
Mounts = Annotated[Lines, AfterValidator(container_checks.mounts)]
WorkerGroupText = Annotated[Line, BeforeValidator(worker_groups.as_text), AfterValidator(worker_groups.check)]
WorkerGroups = Annotated[tuple[WorkerGroupText, ...], BeforeValidator(checks.as_list)]


class SpecFields(BaseModel):
    """The fields of a spec, each with the check of its value. LaunchSpec adds the checks between them."""

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
        ..., EXPERIMENT, "Name of the experiment: the job name and the start of the file names.", metavar="NAME", examples=("test",))
    command: Code = option(
        ..., EXPERIMENT, "Command to run on the Ray cluster; can also be given after --.", metavar="CMD", examples=("python train.py",))
    idle: bool = option(
        False, EXPERIMENT, "Run no command: keep the cluster up for `slurm-launch attach` until the time limit or `slurm-launch cancel`.")

    sweep: Sweep = option(
        {}, SWEEP, "A key and its values, available to the command as a variable and as {KEY}. Repeatable: each combination is"
        " a task with its own Ray cluster.", metavar="KEY=VALUES", examples=("lr=1e-3,1e-4", "seed=0..4"))
    sweep_file: Line | None = option(
        None, SWEEP, "File with the points of a sweep: .csv, .yaml or .jsonl.", metavar="FILE", examples=("points.csv",))
    max_parallel: Count | None = option(None, SWEEP, "Maximum number of concurrent tasks of a sweep or an array.", metavar="N", examples=(4,))
    points: Annotated[Line, AfterValidator(sweep_points.check_selection)] | None = option(
        None, SWEEP, "Run only these points of the sweep, by number from 0.", metavar="3,7-9", examples=("3,7-9",))

    num_nodes: Count | None = option(
        None, RESOURCES, "Number of nodes. Default: the number of nodes in --node, or 1.",
        flags=("-n", "--nodes", "-N"), metavar="N", examples=(3,))
    node: Nodelist | None = option(
        None, RESOURCES, "Nodes to use, in the notation of sinfo.",
        flags=("-w", "--nodelist"), sbatch="nodelist", metavar="HOSTS", examples=("gpu[01-03]",))
    exclude: Nodelist | None = option(
        None, RESOURCES, "Nodes to exclude.", flags=("-x",), sbatch="exclude", metavar="HOSTS", examples=("gpu[04-05]",))
    num_gpus: Annotated[int, Field(ge=0)] = option(0, RESOURCES, "Number of GPUs per node.", metavar="N", examples=(4,))
    gpu_type: Line | None = option(None, RESOURCES, "GPU type, as named by the site.", metavar="TYPE", examples=("a100",))
    gpu_directive: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] = option(
        "gpus-per-node", RESOURCES, "Directive that requests GPUs (none: the partition implies them).")
    cpus_per_task: Count | None = option(
        None, RESOURCES, "Number of CPUs per node.", flags=("-c",), sbatch="cpus-per-task", metavar="N", examples=(8,))
    mem: Memory | None = option(
        None, RESOURCES, "Memory per node (0: all of it).", sbatch="mem", metavar="SIZE", examples=("64G",))
    mem_per_cpu: Memory | None = option(None, RESOURCES, "Memory per CPU, instead of --mem.", sbatch="mem-per-cpu", metavar="SIZE", examples=("4G",))
    mem_per_gpu: Memory | None = option(None, RESOURCES, "Memory per GPU, instead of --mem.", sbatch="mem-per-gpu", metavar="SIZE", examples=("32G",))
    exclusive: bool = option(False, RESOURCES, "Allocate whole nodes. Ray does not need it: the script is safe on shared nodes.")
    constraint: Line | None = option(
        None, RESOURCES, "Required node features.", flags=("-C",), sbatch="constraint", metavar="FEATURES", examples=("a100",))
    switches: Annotated[Line, AfterValidator(checks.switches)] | None = option(
        None, RESOURCES, "Maximum number of network switches, and how long to wait for it.", sbatch="switches", metavar="N[@TIME]", examples=("1@10:00",))
    licenses: Line | None = option(None, RESOURCES, "Licenses to allocate.", flags=("-L",), sbatch="licenses", metavar="NAMES", examples=("matlab:1",))

    head_cpus: Count | None = option(
        None, HEAD, "Number of CPUs for the head and the command, on their own node without GPUs.", metavar="N", examples=(4,))
    head_mem: Memory | None = option(None, HEAD, "Memory for the head and the command, on their own node.", metavar="SIZE", examples=("16G",))
    head_partition: Line | None = option(None, HEAD, "Partition of the head node.", metavar="NAME", examples=("cpu",))
    head_constraint: Line | None = option(None, HEAD, "Required features of the head node.", metavar="FEATURES", examples=("cpu",))
    head_num_cpus: Annotated[int, Field(ge=0)] | None = option(
        None, HEAD, "Number of CPUs that the head node offers to Ray (0: no tasks are scheduled there). Default: all.", metavar="N", examples=(0,))
    dedicated_head: bool = option(
        False, HEAD, "Reserve the first node for the head and the command: it offers neither CPUs nor GPUs to Ray.")
    worker_group: WorkerGroups = option(
        (), HEAD, "A group of workers, in addition to a separate head node; repeatable. Keys that are not set come from the plain options.",
        metavar="n=N,KEY=VALUE,...", examples=(worker_groups.EXAMPLE,))

    partition: Line | None = option(None, JOB, "Partition to submit to. Default: the default of the cluster.", flags=("-p",), sbatch="partition", metavar="NAME", examples=("main",))
    account: Line | None = option(None, JOB, "Account to charge.", flags=("-A",), sbatch="account", metavar="NAME", examples=("proj1",))
    qos: Line | None = option(None, JOB, "Quality of service (QOS).", flags=("-q",), sbatch="qos", metavar="NAME", examples=("normal",))
    time: Time | None = option(
        None, JOB, "Time limit: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS.",
        flags=("-t",), sbatch="time", metavar="TIME", examples=("1:30:00",))
    reservation: Line | None = option(None, JOB, "Reservation to use.", sbatch="reservation", metavar="NAME", examples=("course",))
    dependency: Annotated[Line, AfterValidator(checks.dependency)] | None = option(
        None, JOB, "Dependencies on other jobs, in sbatch's syntax.", flags=("-d",), sbatch="dependency", metavar="TYPE:ID", examples=("afterok:1234",))
    after: Lines = option((), JOB, f"Start after RUN has started (Slurm's `after`). {_RUN}", metavar="RUN", examples=("train",))
    after_ok: Lines = option((), JOB, f"Start after RUN has completed successfully. {_RUN}", metavar="RUN", examples=("train",))
    after_any: Lines = option((), JOB, f"Start after RUN has ended, successfully or not. {_RUN}", metavar="RUN", examples=("1234",))
    after_notok: Lines = option((), JOB, f"Start after RUN has failed. {_RUN}", metavar="RUN", examples=("1234_5",))
    singleton: bool = option(False, JOB, "Start after all of your earlier jobs with the same --exp-name have ended.")
    begin: Line | None = option(None, JOB, "Earliest start time.", flags=("-b",), sbatch="begin", metavar="TIME", examples=("now+1hour",))
    deadline: Line | None = option(None, JOB, "Remove the job if it cannot end before this time.", sbatch="deadline", metavar="TIME", examples=("2030-12-31T18:00",))
    nice: int | None = option(None, JOB, "Amount by which to lower the priority.", sbatch="nice", metavar="N", examples=(100,))
    comment: Line | None = option(None, JOB, "Comment in the job record.", sbatch="comment", metavar="TEXT", examples=("first try",))
    mail_user: Line | None = option(None, JOB, "Recipient of mail about the job.", sbatch="mail-user", metavar="ADDRESS", examples=("me@example.org",))
    mail_type: Line | None = option(None, JOB, "Events to send mail for: BEGIN, END, FAIL, ...", sbatch="mail-type", metavar="TYPES", examples=("END,FAIL",))
    signal: Annotated[Line, AfterValidator(checks.signal)] | None = option(
        None, JOB, "Signal to send before the time limit.", sbatch="signal", metavar="[B:]SIG[@S]", examples=("B:TERM@120",))
    requeue: bool = option(
        False, JOB, "Requeue the job after preemption, a node failure or exit code 85, and with --signal-before at the time limit.", examples=(True,))
    signal_before: Annotated[int, AfterValidator(checks.signal_before)] | None = option(
        None, JOB, "Signal the command this many seconds before the time limit, so that it can save its work.", metavar="S", examples=(120,))
    checkpoint_signal: Annotated[Line, AfterValidator(checks.signal_name)] | None = option(
        None, JOB, "Signal that asks the command to save its work. Default: USR1; without --signal-before TERM.", metavar="NAME", examples=("USR2",))
    checkpoint_dir: Line | None = option(
        None, JOB, "Directory passed to the command as SLAUNCH_RUN_DIR, with a subdirectory per array task. Default: <name>.run, next to the log.",
        metavar="DIR", examples=("/scratch/me/long",))
    max_restarts: Annotated[int, Field(ge=0)] | None = option(
        None, JOB, f"Maximum number of requeues. Default: {MAX_RESTARTS}.", metavar="N", examples=(10,))
    array: Annotated[Line, AfterValidator(checks.array)] | None = option(
        None, JOB, "Run as a job array; each task has its own Ray cluster.", flags=("-a",), sbatch="array", metavar="0-9%3", examples=("0-9%3",))
    chain: Annotated[int, AfterValidator(checks.chain)] | None = option(
        None, JOB, "Number of times to run the job, one after another: for work that is longer than the time limit.", metavar="N", examples=(5,))
    chain_while: Literal["any", "ok", "notok"] = option(
        "any", JOB, "When to continue the chain: any: always; ok: while links complete; notok: until one completes.")
    chdir: Line | None = option(None, JOB, "Working directory of the job.", flags=("-D",), sbatch="chdir", metavar="DIR", examples=("/scratch/me",))

    env: Variables = option({}, ENVIRONMENT, "Environment variable for the job; repeatable.", metavar="K=V", examples=("OMP_NUM_THREADS=4",))
    modules: Lines = option((), ENVIRONMENT, "Environment module to load; repeatable.", flags=("--module",), metavar="NAME", examples=("cuda/12.4",))
    conda_env: Line | None = option(None, ENVIRONMENT, "Conda environment to activate: a name or a path.", metavar="ENV", examples=("ray",))
    venv: Line | None = option(None, ENVIRONMENT, "Directory of the Python virtual environment to activate.", metavar="DIR", examples=("/home/me/venv",))
    load_env: Codes = option(
        (), ENVIRONMENT, "Shell code that sets up the environment, run before anything else; repeatable.",
        metavar="CODE", examples=("module load cuda/12.4",))

    container_image: Image | None = option(
        None, CONTAINER, "Container image for Ray and the command: a file, or a name in a registry.",
        metavar="IMAGE", examples=("nvcr.io#nvidia/pytorch:24.10-py3",))
    container_runtime: Literal["pyxis", "apptainer", "singularity", "podman", "podman-hpc", "shifter", "charliecloud", "none"] = option(
        "pyxis", CONTAINER, "Container runtime (none: no container, regardless of the profile).")
    container_mounts: Mounts = option(
        (), CONTAINER, "Directories to mount, separated by commas. The job's own directory is always mounted.",
        metavar="SRC[:DST[:ro]]", examples=("/data:/data:ro",))
    container_workdir: Annotated[Line, AfterValidator(container_checks.container_path)] | None = option(
        None, CONTAINER, "Working directory in the container. Default: the job's directory.", metavar="DIR", examples=("/work",))
    container_home: bool = option(False, CONTAINER, "Mount your home directory.")
    container_writable: bool = option(False, CONTAINER, "Make the container file system writable.")
    container_cleanenv: bool = option(False, CONTAINER, "Pass only the variables of --env, Ray and Slurm into the container.")
    container_gpus: Literal["auto", "nvidia", "amd", "none"] = option(
        "auto", CONTAINER, "GPU vendor to enable in the container (auto: from --gpu-type).")
    container_setup: Codes = option(
        (), CONTAINER, "Shell code to run in the container before Ray and the command; repeatable.",
        metavar="CODE", examples=("source /opt/venv/bin/activate",))
    container_arg: Lines = option((), CONTAINER, "Additional argument for the container runtime; repeatable.", metavar="ARG", examples=("--container-remap-root",))
    head_image: Image | None = option(
        None, CONTAINER, "Container image for the head node and the command, instead of --container-image.", metavar="IMAGE", examples=("/images/cpu.sqsh",))
    worker_image: Image | None = option(
        None, CONTAINER, "Container image for the workers, instead of --container-image.", metavar="IMAGE", examples=("/images/gpu.sqsh",))

    start_timeout: Count | None = option(
        None, CLUSTER, "Maximum time in seconds for the nodes to join. Default: 180 (900 with a container), and 1 for each node.",
        metavar="S", examples=(600,))
    node_timeout: Annotated[int, Field(ge=15)] = option(
        30, CLUSTER, "Time in seconds after which a node that does not report is lost.", metavar="S")
    min_nodes: Count | None = option(
        None, CLUSTER, "Start the command once K nodes have joined; the others may join later. Default: all.", metavar="K", examples=(2,))
    grow: Count | None = option(
        None, CLUSTER, "Submit a second job whose N nodes join the cluster when it starts; see `slurm-launch grow`.", metavar="N", examples=(2,))
    on_node_loss: Literal["fail", "continue"] = option(
        "fail", CLUSTER, "Action when a node is lost while the command runs.")
    auth: Literal["token", "off"] = option(
        "token", CLUSTER, "Protect the cluster with a random token (off: open to everyone on the network).")
    object_store_memory: Bytes | None = option(
        None, CLUSTER, "Size of Ray's object store on each node. Default: 30 % of the job's memory there.", metavar="SIZE", examples=("8G",))
    temp_dir: Annotated[Line, AfterValidator(checks.temp_dir)] = option(
        "/tmp", CLUSTER, "Node-local directory for Ray's files (%u: user, %j: job ID).", metavar="DIR")
    dashboard: bool = option(True, CLUSTER, "Start Ray's dashboard, on the head node's loopback address.")
    keep_ray_logs: bool = option(False, CLUSTER, "Keep Ray's own logs even if the run completes.")

    ip_family: Literal["auto", "4", "6"] = option("auto", NETWORK, "IP version; auto prefers IPv4 if both are available.")
    interface: Annotated[Line, AfterValidator(checks.interface)] | None = option(
        None, NETWORK, "Network interface to use on all nodes. Default: the one that the node's name resolves to.", metavar="NAME", examples=("ib0",))
    port_range: Annotated[Line, AfterValidator(checks.port_range)] | None = option(
        None, NETWORK, "Ports to use, for clusters with a firewall between nodes.", metavar="A-B", examples=("20000-20999",))

    sbatch: Directives = option({}, HATCHES, "Additional sbatch directive; repeatable.", metavar="KEY[=VALUE]", examples=("gres=nvme:1",))
    no_sbatch: Dropped = option((), HATCHES, "Directive to omit from the script; repeatable.", metavar="KEY", examples=("mem",))
    srun_arg: Annotated[Lines, AfterValidator(checks.srun_args)] = option((), HATCHES, "Additional argument for every srun of the script; repeatable.", metavar="ARG", examples=("--mpi=none",))
    ray_arg: Lines = option((), HATCHES, "Additional argument for `ray start` on every node; repeatable.", metavar="ARG", examples=("--disable-usage-stats",))
    ray_head_arg: Lines = option((), HATCHES, "Additional argument for `ray start` on the head node; repeatable.", metavar="ARG", examples=("--num-cpus=0",))
    ray_worker_arg: Lines = option((), HATCHES, "Additional argument for `ray start` on the workers; repeatable.", metavar="ARG", examples=("--labels=role=worker",))

    run_dir: Line = option(".", FILES, "Directory for the script, the log and the record.", metavar="DIR", examples=("runs",))
    template: Line | None = option(None, FILES, "Template to use instead of the built-in one.", metavar="FILE", examples=("job.sh.j2",))
    profile: Line | None = option(None, FILES, "Site profile to use: profiles/NAME.yaml in your configuration (none: no profile).", metavar="NAME", examples=("juwels",))
    config: Line | None = option(
        None, FILES, "Project file to use instead of slurm-launch.yaml in this or a parent directory.", metavar="FILE", layered=False, examples=("other.yaml",))
    # fmt: on

    @property
    def is_sweep(self) -> bool:
        return bool(self.sweep or self.sweep_file)

    @property
    def handles_restarts(self) -> bool:
        """Whether the script signals the command before the time limit, or requeues the job."""
        return self.requeue or self.signal_before is not None

    @property
    def image(self) -> str | None:
        """The image of the head and the command; None without a container."""
        return None if self.container_runtime == "none" else self.head_image or self.container_image

    @property
    def workers_image(self) -> str | None:
        """The image of the workers; None without a container."""
        return self.image and (self.worker_image or self.container_image or self.image)


def options() -> dict[str, Option]:
    """The option of every field, in the order of declaration."""
    by_name: dict[str, Option] = {}
    for name, field in SpecFields.model_fields.items():
        assert isinstance(field.json_schema_extra, Option), f"{name} is not declared with option()"
        by_name[name] = field.json_schema_extra
    return by_name
