"""Container runtimes: what each needs in front of a program, or on its srun. One small class each, in a registry.

A runtime yields words for the script's arrays; `Code` ones are bash that the job expands, all others are quoted. The
script has in variables what they can use: $image or $worker_image, $workdir, and ${mounts[@]} (SRC:DST[:ro]), in which
the job's own directories are already.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_launch.errors import show
from slurm_launch.spec.checks import BadValue
from slurm_launch.spec.hetjob import components
from slurm_launch.spec.model import SpecFields
from slurm_launch.spec.option import flag_name

# What reaches the inside of a container whose environment is otherwise clean; the user's --env is added.
KEPT = ("RAY_*", "SLURM_*", "SLAUNCH_*", "CUDA_*", "ROCR_*", "NVIDIA_*", "NCCL_*", "TMPDIR")
_AMD = re.compile(r"amd|radeon|mi\d{2,3}|gfx\d", re.IGNORECASE)
_REGISTRY = re.compile(r"[^/#]*[.:][^/#]*|localhost")  # docker's rule for the first part of a name


class Code(str):
    """A word that is bash: the job expands it."""

    __slots__ = ()


Word = str | Code
HEADS, WORKERS = Code('"$image"'), Code('"$worker_image"')


class Runtime:
    """A container runtime that is put in front of a program on the node itself."""

    names: tuple[str, ...]
    program: str | None = None  # that the nodes must have
    part: str | None = None  # bash functions of its own, below templates/
    mounts_ours = True  # whether the job's own directories have to be mounted
    takes_files = "a file"  # what an image that is a path may be, for the error message; "" for none
    endings: tuple[str, ...] = ()  # of files that are images for others
    cannot: tuple[str, ...] = ()  # options that it has nothing for

    def __init__(self, name: str) -> None:
        self.name = name

    def image(self, text: str) -> str:
        """An image as this runtime calls it, whichever runtime's way it was written in."""
        return text

    def check(self, spec: SpecFields) -> None:
        """Raise BadValue for what this runtime cannot do."""
        for flag, image in (("--head-image", spec.head_image), ("--worker-image", spec.worker_image),
                            ("--container-image", spec.container_image)):  # fmt: skip
            if image and is_file(image) and (not self.takes_files or image.endswith(self.endings)):
                kinds = f"{self.takes_files} or a name in a registry" if self.takes_files else "names of images only"
                raise BadValue(f"{flag} is no image for {self.name}: {show(image)}", f"{self.name} takes {kinds}")
        for name in self.cannot:
            if getattr(spec, name):
                raise BadValue(f"{flag_name(name)} cannot be had with {self.name}", "leave it out")

    def step(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        """Arguments for the srun of a node."""
        return ()

    def enter(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        """What goes before a program on the node."""
        return ()

    def enter_for_command(self) -> Sequence[Word]:
        """What goes before the words of `enter` when the command is started from the batch script."""
        return ()

    def join_head(self) -> Sequence[Word]:
        """What goes before the words of `enter` for one more program on the head node, as `attach` starts it."""
        return ()


class Pyxis(Runtime):
    """NVIDIA's plugin for srun: a step runs in the image from its beginning."""

    names = ("pyxis",)
    part = "parts/pyxis.sh"
    takes_files = "a squashfs file (.sqsh)"
    endings = (".sif", ".simg", ".tar")
    cannot = ("container_cleanenv",)

    def image(self, text: str) -> str:
        if is_file(text) or re.match(r"(dockerd|podman)://", text):
            return text
        name = text.removeprefix("docker://")
        first, slash, rest = name.partition("/")
        # Pyxis parts the registry from the name by a #; with a / it would ask Docker Hub for the whole
        return f"{first}#{rest}" if slash and "#" not in name and _REGISTRY.fullmatch(first) else name

    def step(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        words: list[Word] = [Code(f"--container-image={image}"), Code('--container-name="$container"')]
        words += [Code('--container-mounts="$(IFS=, && echo "${mounts[*]}")"'), Code('--container-workdir="$workdir"')]
        words += ["--container-mount-home" if spec.container_home else "--no-container-mount-home"]
        words += ["--no-container-entrypoint", Code('--container-env="$container_env"')]
        return [*words, *(["--container-writable"] if spec.container_writable else []), *spec.container_arg]

    def enter_for_command(self) -> Sequence[Word]:
        return ("in_head_container",)

    def join_head(self) -> Sequence[Word]:
        # srun gives a step all CPUs of the job on that node, unless one of these variables asks for fewer
        words: list[Word] = [
            "env",
            "-u",
            "SLURM_CPUS_PER_TASK",
            "-u",
            "SRUN_CPUS_PER_TASK",
            "-u",
            "SLURM_TRES_PER_TASK",
        ]
        words += ["srun", "--nodes=1", "--ntasks=1", Code('--nodelist="$head"'), "--overlap", "--export=ALL"]
        words += ["--cpu-bind=none", "--mpi=none", Code('"${srun_args[@]}"')]
        inside = "$container_env,RAY_ADDRESS,RAY_AUTH_TOKEN_PATH,RAY_TMPDIR,SLAUNCH_NODE_DIR"
        words += [Code('--container-name="$container:exec"'), Code('--container-workdir="$workdir"')]
        return [*words, Code(f'--container-env="{inside}"')]


class Apptainer(Runtime):
    names = ("apptainer", "singularity")
    takes_files = "a .sif file, a directory"
    endings = (".sqsh", ".tar")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.program = name

    def image(self, text: str) -> str:
        return text if is_file(text) or "://" in text else "docker://" + text.replace("#", "/")

    def enter(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        # by variables of its own: in --env a comma would part two
        prefix = f"{self.name.upper()}ENV_"
        words: list[Word] = [Code(f'{prefix}{name}="${name}"') for name in spec.env]
        words = [*(["env", *words] if words else []), self.name, "exec"]
        if spec.container_cleanenv:
            kept = " ".join(f"${{!{name[:-1]}@}}" if name.endswith("*") else name for name in kept_names(spec))
            export = f'[[ ! ${{!name+x}} ]] || export "{prefix}$name=${{!name}}"'
            words = [
                "bash",
                "-c",
                f'for name in {kept}; do {export}; done; exec {self.name} exec --cleanenv "$@"',
                "bash",
            ]
        words += [] if spec.container_home else ["--no-home"]
        words += [Code('"${mounts[@]/#/--bind=}"'), "--bind=/dev/shm", Code('--pwd="$workdir"')]
        words += {"nvidia": ["--nv"], "amd": ["--rocm"]}.get(gpu_kind(spec), [])
        words += ["--writable-tmpfs"] if spec.container_writable else []
        return [*words, *spec.container_arg, image]


class Podman(Runtime):
    """Shares the node's network, processes and memory, as all others do anyway."""

    names = ("podman", "podman-hpc")
    takes_files = ""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.program = name

    def image(self, text: str) -> str:
        return text.removeprefix("docker://").replace("#", "/")

    def enter(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        words: list[Word] = [self.name, "run", "--rm", "--network=host", "--pid=host", "--ipc=host", "--userns=keep-id"]
        words += ["--ulimit=host", "--security-opt=label=disable", "--entrypoint="]
        words += (
            [f"--env={name}" for name in kept_names(spec)]
            if spec.container_cleanenv
            else ["--env-host", *(f"--env={name}" for name in spec.env)]
        )
        words += [Code('"${mounts[@]/#/--volume=}"'), Code('--workdir="$workdir"')]
        words += [Code('--volume="$HOME:$HOME"')] if spec.container_home else []
        if gpu_kind(spec) == "nvidia":
            words += ["--gpu"] if self.name == "podman-hpc" else ["--device=nvidia.com/gpu=all"]
        elif gpu_kind(spec) == "amd":
            words += ["--device=/dev/kfd", "--device=/dev/dri", "--group-add=keep-groups"]
        return [*words, *spec.container_arg, image]


class Shifter(Runtime):
    """The site decides what of the node is seen inside; /tmp and the shared file systems usually are."""

    names = ("shifter",)
    program = "shifter"
    mounts_ours = False
    takes_files = ""
    cannot = ("container_cleanenv", "container_home", "container_writable")

    def image(self, text: str) -> str:
        if re.match(r"(docker|id|custom):[^/]", text):
            return text
        return "docker:" + text.removeprefix("docker://").replace("#", "/")

    def enter(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        words: list[Word] = ["shifter", Code(f"--image={image}"), Code('--workdir="$workdir"')]
        if spec.container_mounts:
            words.append(Code('--volume="$(IFS=\';\' && echo "${mounts[*]}")"'))
        words += ["--module=gpu"] if gpu_kind(spec) == "nvidia" else []
        return [*words, *spec.container_arg]


class Charliecloud(Runtime):
    names = ("charliecloud",)
    program = "ch-run"
    part = "parts/charliecloud.sh"
    cannot = ("container_cleanenv", "container_writable")  # it would write to the image itself
    takes_files = "a directory, a squashfs file"
    endings = (".sif", ".simg", ".tar")

    def image(self, text: str) -> str:
        return text if is_file(text) else text.removeprefix("docker://").replace("#", "/")

    def check(self, spec: SpecFields) -> None:
        super().check(spec)
        if read_only := [mount for mount in spec.container_mounts if mount.endswith(":ro")]:
            hint = "leave :ro out; file permissions hold inside too"
            raise BadValue(f"--container-mounts: charliecloud mounts nothing read-only: {show(read_only[0])}", hint)

    def enter(self, spec: SpecFields, image: Code) -> Sequence[Word]:
        variables = Code('"${image_env[@]}"' if image == HEADS else '"${worker_image_env[@]}"')
        words: list[Word] = ["ch-run", variables, *(["--env-no-expand"] if spec.env else [])]
        words += [Code(f'--set-env={name}="${name}"') for name in spec.env]
        words += [
            Code('"${mounts[@]/#/--bind=}"'),
            Code('--cd="$workdir"'),
            *(["--home"] if spec.container_home else []),
        ]
        return [*words, *spec.container_arg, image, "--"]


_CLASSES: tuple[type[Runtime], ...] = (Pyxis, Apptainer, Podman, Shifter, Charliecloud)
RUNTIMES: dict[str, type[Runtime]] = {name: kind for kind in _CLASSES for name in kind.names}


def runtime_of(spec: SpecFields) -> Runtime | None:
    """The runtime of a job that runs in a container."""
    return RUNTIMES[spec.container_runtime](spec.container_runtime) if spec.image else None


def is_file(image: str) -> bool:
    return image.startswith(("/", "./", "../"))


def gpu_kind(spec: SpecFields) -> str:
    """nvidia, amd or none."""
    parts = components(spec) or [spec]
    if not any(part.num_gpus for part in parts) or spec.container_gpus == "none":
        return "none"
    if spec.container_gpus != "auto":
        return spec.container_gpus
    return "amd" if any(_AMD.search(part.gpu_type or "") for part in parts) else "nvidia"


def kept_names(spec: SpecFields) -> list[str]:
    return [*KEPT, *spec.env]
