"""Hostlists such as gpu[01-03],login1."""

from __future__ import annotations

MAX_HOSTS = 100_000


def expand(text: str) -> list[str]:
    """The hosts that a hostlist names.

    The only use of python-hostlist (GPL-2.0-or-later). Its own limit makes it reject an absurd range quickly.
    """
    import hostlist  # type: ignore[import-untyped]

    hostlist.MAX_SIZE = MAX_HOSTS
    return list(hostlist.expand_hostlist(text))
