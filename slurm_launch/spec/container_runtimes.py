"""Container runtimes: the words that each needs before a program, or as arguments of srun. One class per runtime.

A runtime returns words for the script's arrays: `Bash` words are expanded in the job, all others are quoted. They can
use these variables of the script: $image or $worker_image, $workdir, and ${mounts[@]} (SRC:DST[:ro]), which includes
the job's own directories.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_launch.errors import show
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.hetjob import components
from slurm_launch.spec.model import SpecFields
from slurm_launch.spec.option import IMAGES, flag_name

# Variables that --container-cleanenv passes into the container, in addition to --env.
PASSED_VARIABLES = ("RAY_*", "SLURM_*", "SLAUNCH_*", "CUDA_*", "ROCR_*", "NVIDIA_*", "NCCL_*", "TMPDIR")
_AMD = re.compile(r"amd|radeon|mi\d{2,3}|gfx\d", re.IGNORECASE)
_REGISTRY = re.compile(r"[^/#]*[.:][^/#]*|localhost")  # Docker's rule for the first part of a name


class Bash(str):
    """A word that bash expands in the job."""

    __slots__ = ()


Word = str | Bash
HEAD_IMAGE = Bash('"$image"')
WORKER_IMAGE = Bash('"$worker_image"')


class Runtime:
    """A container runtime whose command precedes a program on the node."""

    names: tuple[str, ...]
    program: str | None = None  # must be installed on the nodes
    part: str | None = None  # a file in templates/ with bash functions for this runtime
    mounts_job_dirs = True  # whether the job's own directories have to be mounted
    image_files = "a file"  # the image files it accepts, for the error message; "" for none
    foreign_suffixes: tuple[str, ...] = ()  # of image files for other runtimes
    unsupported: tuple[str, ...] = ()  # options without an equivalent

    def __init__(self, name: str) -> None:
        self.name = name

    def image(self, text: str) -> str:
        """An image in this runtime's notation, from that of any runtime."""
        return text

    def check(self, spec: SpecFields) -> None:
        """Raise BadValue for options that this runtime does not support."""
        for name in IMAGES:
            image = getattr(spec, name)
            if image and is_image_file(image) and (not self.image_files or image.endswith(self.foreign_suffixes)):
                kinds = f"{self.image_files} or a name in a registry" if self.image_files else "only names of images"
                message = f"{flag_name(name)} is not an image for {self.name}: {show(image)}"
                raise BadValue(message, f"{self.name} accepts {kinds}")
        for name in self.unsupported:
            if getattr(spec, name):
                raise BadValue(f"{flag_name(name)} is not supported by {self.name}", "omit it")

    def step(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        """Arguments for the srun of a node."""
        return ()

    def enter(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        """The words before a program on the node."""
        return ()

    def enter_for_command(self) -> Sequence[Word]:
        """The words before those of `enter` when the batch script starts the command."""
        return ()

    def join_head(self) -> Sequence[Word]:
        """The words before those of `enter` for another program on the head node, as `attach` starts it."""
        return ()


class Pyxis(Runtime):
    """NVIDIA's plugin for srun: the whole step runs in the container."""

    names = ("pyxis",)
    part = "parts/pyxis.sh"
    image_files = "a squashfs file (.sqsh)"
    foreign_suffixes = (".sif", ".simg", ".tar")
    unsupported = ("container_cleanenv",)

    def image(self, text: str) -> str:
        if is_image_file(text) or re.match(r"(dockerd|podman)://", text):
            return text
        name = text.removeprefix("docker://")
        first, slash, rest = name.partition("/")
        # Pyxis separates the registry from the name by a #; with a / it would look on Docker Hub
        return f"{first}#{rest}" if slash and "#" not in name and _REGISTRY.fullmatch(first) else name

    def step(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        words: list[Word] = [Bash(f"--container-image={image}"), Bash('--container-name="$container"')]
        words += [Bash('--container-mounts="$(IFS=, && echo "${mounts[*]}")"'), Bash('--container-workdir="$workdir"')]
        words += ["--container-mount-home" if spec.container_home else "--no-container-mount-home"]
        words += ["--no-container-entrypoint", Bash('--container-env="$container_env"')]
        return [*words, *(["--container-writable"] if spec.container_writable else []), *spec.container_arg]

    def enter_for_command(self) -> Sequence[Word]:
        return ("in_head_container",)

    def join_head(self) -> Sequence[Word]:
        # srun gives a step all CPUs of the job on that node, unless one of these variables requests fewer
        words: list[Word] = ["env"]
        for name in ("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK"):
            words += ["-u", name]
        words += ["srun", "--nodes=1", "--ntasks=1", Bash('--nodelist="$head"'), "--overlap", "--export=ALL"]
        words += ["--cpu-bind=none", "--mpi=none", Bash('"${srun_args[@]}"')]
        inside = "$container_env,RAY_ADDRESS,RAY_AUTH_TOKEN_PATH,RAY_TMPDIR,SLAUNCH_NODE_DIR"
        words += [Bash('--container-name="$container:exec"'), Bash('--container-workdir="$workdir"')]
        return [*words, Bash(f'--container-env="{inside}"')]


class Apptainer(Runtime):
    names = ("apptainer", "singularity")
    image_files = "a .sif file, a directory"
    foreign_suffixes = (".sqsh", ".tar")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.program = name

    def image(self, text: str) -> str:
        return text if is_image_file(text) or "://" in text else "docker://" + text.replace("#", "/")

    def enter(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        # through the runtime's own variables: --env splits values at commas
        prefix = f"{self.name.upper()}ENV_"
        words: list[Word] = [Bash(f'{prefix}{name}="${name}"') for name in spec.env]
        words = [*(["env", *words] if words else []), self.name, "exec"]
        if spec.container_cleanenv:
            kept = " ".join(f"${{!{name[:-1]}@}}" if name.endswith("*") else name for name in passed_variables(spec))
            export = f'[[ ! ${{!name+x}} ]] || export "{prefix}$name=${{!name}}"'
            words = [
                "bash",
                "-c",
                f'for name in {kept}; do {export}; done; exec {self.name} exec --cleanenv "$@"',
                "bash",
            ]
        words += [] if spec.container_home else ["--no-home"]
        words += [Bash('"${mounts[@]/#/--bind=}"'), "--bind=/dev/shm", Bash('--pwd="$workdir"')]
        words += {"nvidia": ["--nv"], "amd": ["--rocm"]}.get(gpu_kind(spec), [])
        words += ["--writable-tmpfs"] if spec.container_writable else []
        return [*words, *spec.container_arg, image]


class Podman(Runtime):
    """With the node's network, processes and memory, which the other runtimes share by default."""

    names = ("podman", "podman-hpc")
    image_files = ""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.program = name

    def image(self, text: str) -> str:
        return text.removeprefix("docker://").replace("#", "/")

    def enter(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        words: list[Word] = [self.name, "run", "--rm", "--network=host", "--pid=host", "--ipc=host", "--userns=keep-id"]
        words += ["--ulimit=host", "--security-opt=label=disable", "--entrypoint="]
        words += (
            [f"--env={name}" for name in passed_variables(spec)]
            if spec.container_cleanenv
            else ["--env-host", *(f"--env={name}" for name in spec.env)]
        )
        words += [Bash('"${mounts[@]/#/--volume=}"'), Bash('--workdir="$workdir"')]
        words += [Bash('--volume="$HOME:$HOME"')] if spec.container_home else []
        if gpu_kind(spec) == "nvidia":
            words += ["--gpu"] if self.name == "podman-hpc" else ["--device=nvidia.com/gpu=all"]
        elif gpu_kind(spec) == "amd":
            words += ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=keep-groups"]
        return [*words, *spec.container_arg, image]


class Shifter(Runtime):
    """The site's configuration decides what is mounted: usually /tmp and the shared file systems."""

    names = ("shifter",)
    program = "shifter"
    mounts_job_dirs = False
    image_files = ""
    unsupported = ("container_cleanenv", "container_home", "container_writable")

    def image(self, text: str) -> str:
        if re.match(r"(docker|id|custom):[^/]", text):
            return text
        return "docker:" + text.removeprefix("docker://").replace("#", "/")

    def enter(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        words: list[Word] = ["shifter", Bash(f"--image={image}"), Bash('--workdir="$workdir"')]
        if spec.container_mounts:
            words.append(Bash('--volume="$(IFS=\';\' && echo "${mounts[*]}")"'))
        words += ["--module=gpu"] if gpu_kind(spec) == "nvidia" else []
        return [*words, *spec.container_arg]


class Charliecloud(Runtime):
    names = ("charliecloud",)
    program = "ch-run"
    part = "parts/charliecloud.sh"
    unsupported = ("container_cleanenv", "container_writable")  # writing would change the image itself
    image_files = "a directory, a squashfs file"
    foreign_suffixes = (".sif", ".simg", ".tar")

    def image(self, text: str) -> str:
        return text if is_image_file(text) else text.removeprefix("docker://").replace("#", "/")

    def check(self, spec: SpecFields) -> None:
        super().check(spec)
        if read_only := [mount for mount in spec.container_mounts if mount.endswith(":ro")]:
            hint = "omit :ro; file permissions also apply inside the container"
            raise BadValue(f"--container-mounts: charliecloud has no read-only mounts: {show(read_only[0])}", hint)

    def enter(self, spec: SpecFields, image: Bash) -> Sequence[Word]:
        variables = Bash('"${image_env[@]}"' if image == HEAD_IMAGE else '"${worker_image_env[@]}"')
        words: list[Word] = ["ch-run", variables, *(["--env-no-expand"] if spec.env else [])]
        words += [Bash(f'--set-env={name}="${name}"') for name in spec.env]
        words += [
            Bash('"${mounts[@]/#/--bind=}"'),
            Bash('--cd="$workdir"'),
            *(["--home"] if spec.container_home else []),
        ]
        return [*words, *spec.container_arg, image, "--"]


_CLASSES: tuple[type[Runtime], ...] = (Pyxis, Apptainer, Podman, Shifter, Charliecloud)
RUNTIMES: dict[str, type[Runtime]] = {name: kind for kind in _CLASSES for name in kind.names}


def runtime_of(spec: SpecFields) -> Runtime | None:
    """The runtime of a job; None without a container."""
    return RUNTIMES[spec.container_runtime](spec.container_runtime) if spec.image else None


def is_image_file(image: str) -> bool:
    """Whether an image is a path, not a name in a registry."""
    return image.startswith(("/", "./", "../"))


def gpu_kind(spec: SpecFields) -> str:
    """The vendor of the GPUs to enable in the container: nvidia, amd or none."""
    parts = components(spec) or [spec]
    if not any(part.num_gpus for part in parts) or spec.container_gpus == "none":
        return "none"
    if spec.container_gpus != "auto":
        return spec.container_gpus
    return "amd" if any(_AMD.search(part.gpu_type or "") for part in parts) else "nvidia"


def passed_variables(spec: SpecFields) -> list[str]:
    """The variables that --container-cleanenv passes into the container."""
    return [*PASSED_VARIABLES, *spec.env]
