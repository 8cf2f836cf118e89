"""The checks of container options: images, mounts and paths inside a container."""

from __future__ import annotations

import re

from slurm_launch.errors import show
from slurm_launch.spec.checks import BadValue

_UNEXPANDED = "write the full path: neither ~ nor $ is expanded here; %u is replaced by your user name"


def _mountable(path: str, hint: str) -> str:
    """An absolute path without characters that a runtime uses as separators."""
    if not path.startswith("/"):
        raise BadValue(f"is not an absolute path: {show(path)}", _UNEXPANDED if path[:1] in ("~", "$") else hint)
    if match := re.search(r"[,:$`\"'\\;\s]", path):
        hint = _UNEXPANDED if match[0] == "$" else hint
        raise BadValue(f"has a path with {match[0]!r}, which no container runtime accepts: {show(path)}", hint)
    return path


def container_path(text: str) -> str:
    return _mountable(text, "use an absolute path inside the container")


def mounts(items: tuple[str, ...]) -> tuple[str, ...]:
    """Mounts as SRC:DST[:ro], from lists with commas and from paths alone."""
    hint = "write SRC:DST, SRC:DST:ro, or an absolute path alone, for example /data:/data:ro,/home"
    by_target: dict[str, str] = {}  # the last mount for a target wins
    for item in (part.strip() for text in items for part in text.split(",")):
        source, _, rest = item.partition(":")
        target, _, mode = rest.partition(":")
        if not item:
            raise BadValue("has an empty item", hint)
        if ":" not in item and not item.startswith("/"):
            raise BadValue(f"has neither a colon nor an absolute path: {show(item)}", hint)
        if item.endswith(":") or mode not in ("", "ro", "rw"):
            raise BadValue(f"is not a mount: {show(item)}", hint)
        _mountable(source, hint)
        target = _mountable(target or source, hint).rstrip("/") or "/"
        by_target.pop(target, None)
        by_target[target] = f"{source.rstrip('/') or '/'}:{target}" + (":ro" if mode == "ro" else "")
    return tuple(by_target.values())


def image(text: str) -> str:
    """A file (a path that starts with / or ./) or a name in a registry."""
    if text.startswith(("~", "$")):
        raise BadValue(f"is not a path that the job can use: {show(text)}", _UNEXPANDED)
    if re.search(r"[\s,;$`\"'\\]", text):
        raise BadValue(f"is not an image: {show(text)}", "use a path without spaces, or a name like ubuntu:24.04")
    if re.search(r"\.(sqsh|sqfs|squashfs|sif|simg)$", text) and not text.startswith(("/", "./", "../")):
        raise BadValue(f"would be taken for a name in a registry: {show(text)}", f"write ./{text} or its full path")
    return text
