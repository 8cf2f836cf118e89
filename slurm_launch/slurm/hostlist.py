"""Hostlists such as gpu[01-03],login1."""

from __future__ import annotations

MAX_HOSTS = 100_000


def expand(text: str) -> list[str]:
    """The hosts in a hostlist.

    The only use of python-hostlist (GPL-2.0-or-later). MAX_SIZE makes it reject huge ranges quickly.
    """
    import hostlist  # type: ignore[import-untyped]

    hostlist.MAX_SIZE = MAX_HOSTS
    return list(hostlist.expand_hostlist(text))
