"""Container runtimes: the words that each needs before a program, or as arguments of srun. One class per runtime.

A runtime returns words for the script's arrays: `Bash` words are expanded in the job, all others are quoted. They can
use these variables of the script: $slaunch_image or $slaunch_worker_image, $slaunch_workdir, and ${slaunch_mounts[@]}
(SRC:DST[:ro]), which includes the job's own directories.
"""

from __future__ import annotations

import re
import textwrap
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
HEAD_IMAGE = Bash('"$slaunch_image"')
WORKER_IMAGE = Bash('"$slaunch_worker_image"')


class Runtime:
    """A container runtime whose command precedes a program on the node."""

    names: tuple[str, ...]
    program: str | None = None  # must be installed on the nodes
    part: str | None = None  # a file in templates/ with bash functions for this runtime
    set_up = ""  # the function of that file to call before the words are used
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
    set_up = "set_up_pyxis"
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
        words: list[Word] = [Bash(f"--container-image={image}"), Bash('--container-name="$slaunch_container"')]
        words += [Bash('--container-mounts="$(IFS=, && echo "${slaunch_mounts[*]}")"')]
        words += [Bash('--container-workdir="$slaunch_workdir"')]
        words += ["--container-mount-home" if spec.container_home else "--no-container-mount-home"]
        words += ["--no-container-entrypoint", Bash('--container-env="$slaunch_container_env"')]
        return [*words, *(["--container-writable"] if spec.container_writable else []), *spec.container_arg]

    def enter_for_command(self) -> Sequence[Word]:
        return ("in_head_container",)

    def join_head(self) -> Sequence[Word]:
        # srun gives a step all CPUs of the job on that node, unless one of these variables requests fewer
        words: list[Word] = ["env"]
        for name in ("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_TRES_PER_TASK"):
            words += ["-u", name]
        words += ["srun", "--nodes=1", "--ntasks=1", Bash('--nodelist="$slaunch_head"'), "--overlap", "--export=ALL"]
        words += ["--cpu-bind=none", "--mpi=none", Bash('"${slaunch_srun_args[@]}"')]
        words += [Bash('--container-name="$slaunch_container:exec"'), Bash('--container-workdir="$slaunch_workdir"')]
        return [*words, Bash('--container-env="$env"')]


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
        # Apptainer takes the container's variables from its own, APPTAINERENV_NAME. They are exported, because
        # everyone can see a command line; and its --env splits values at commas.
        names = list(spec.env)
        if spec.container_cleanenv:
            names = [f"${{!{name[:-1]}@}}" if name.endswith("*") else name for name in passed_variables(spec)]
        words: list[Word] = [self.name, "exec"]
        if names:
            words = [*_exporting(names, f"{self.name.upper()}ENV_$slaunch_name"), *words]
        words += ["--cleanenv"] if spec.container_cleanenv else []
        words += [] if spec.container_home else ["--no-home"]
        words += [Bash('"${slaunch_mounts[@]/#/--bind=}"'), "--bind=/dev/shm", Bash('--pwd="$slaunch_workdir"')]
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
        words += [Bash('"${slaunch_mounts[@]/#/--volume=}"'), Bash('--workdir="$slaunch_workdir"')]
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
        words: list[Word] = ["shifter", Bash(f"--image={image}"), Bash('--workdir="$slaunch_workdir"')]
        if spec.container_mounts:
            words.append(Bash('--volume="$(IFS=\';\' && echo "${slaunch_mounts[*]}")"'))
        words += ["--module=gpu"] if gpu_kind(spec) == "nvidia" else []
        return [*words, *spec.container_arg]


class Charliecloud(Runtime):
    names = ("charliecloud",)
    program = "ch-run"
    part = "parts/charliecloud.sh"
    set_up = "set_up_charliecloud"
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
        own = image == HEAD_IMAGE
        words: list[Word] = ["ch-run", Bash(f'"${{slaunch_{"" if own else "worker_"}image_env[@]}}"')]
        words += [
            Bash('"${slaunch_mounts[@]/#/--bind=}"'),
            Bash('--cd="$slaunch_workdir"'),
            *(["--home"] if spec.container_home else []),
        ]
        words += [*spec.container_arg, image, "--"]
        if spec.env:
            # The image's own variables replace those of the job: copies of the job's bring them back inside. They
            # are not on the command line, which everyone can see.
            names = list(spec.env)
            words = [
                *_exporting(names, "slaunch_env_$slaunch_name"),
                *words,
                *_exporting([f"slaunch_env_{name}" for name in names], "${slaunch_name#slaunch_env_}"),
            ]
        return words


def _exporting(names: Sequence[str], new_name: str) -> list[Word]:
    """The words before a program that gets these variables under a new name, which is made of $slaunch_name."""
    listed = " \\\n".join(textwrap.wrap(" ".join(names), 70, break_long_words=False, subsequent_indent="  "))
    code = (
        f"for slaunch_name in {listed}; do\n"
        f'  [[ ! ${{!slaunch_name+x}} ]] || export "{new_name}=${{!slaunch_name}}"\n'
        "done\n"
        'exec "$@"'
    )
    return ["bash", "-c", Bash(f"'\n{code}'"), "bash"]


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
