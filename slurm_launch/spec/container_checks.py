"""Checks of what is said about containers: images, mounts and paths in them."""

from __future__ import annotations

import re

from slurm_launch.errors import show
from slurm_launch.spec.checks import BadValue

_UNEXPANDED = "write the path out: neither ~ nor $ is expanded here; %u stands for your user name"


def _mountable(path: str, hint: str) -> str:
    """An absolute path that every runtime can take: they put it into lists and scripts of their own."""
    if not path.startswith("/"):
        raise BadValue(f"is not an absolute path: {show(path)}", _UNEXPANDED if path[:1] in ("~", "$") else hint)
    if found := re.search(r"[,:$`\"'\\;\s]", path):
        hint = _UNEXPANDED if found[0] == "$" else hint
        raise BadValue(f"has a path with {found[0]!r}, which no container runtime takes: {show(path)}", hint)
    return path


def container_path(text: str) -> str:
    return _mountable(text, "give an absolute path, as it is called inside the container")


def mounts(items: tuple[str, ...]) -> tuple[str, ...]:
    """Mounts as SRC:DST[:ro], whichever way they were written: separated by commas, or the source alone."""
    hint = "write SRC:DST, SRC:DST:ro, or an absolute path alone, for example /data:/data:ro,/home"
    found: dict[str, str] = {}  # by target: of two for the same place the later one counts
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
        found.pop(target, None)
        found[target] = f"{source.rstrip('/') or '/'}:{target}" + (":ro" if mode == "ro" else "")
    return tuple(found.values())


def image(text: str) -> str:
    """A file (a path that begins with / or ./) or a name in a registry."""
    if text.startswith(("~", "$")):
        raise BadValue(f"is no path that the job can use: {show(text)}", _UNEXPANDED)
    if re.search(r"[\s,;$`\"'\\]", text):
        raise BadValue(f"cannot be an image: {show(text)}", "give a path without blanks, or a name like ubuntu:24.04")
    if re.search(r"\.(sqsh|sqfs|squashfs|sif|simg)$", text) and not text.startswith(("/", "./", "../")):
        raise BadValue(f"would be taken for a name in a registry: {show(text)}", f"write ./{text} or its full path")
    return text
