"""How many connections a process may have open: looked at before any load, and raised as far as the system lets it."""

from __future__ import annotations

import resource

from tokenswarm.errors import InputError

SPARE_FILES = 64  # open files a process needs beside one connection a user


def require_open_files(users: int) -> None:
    """Raise the soft limit of open files to what ``users`` connections need; ``InputError`` where it cannot be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = users + SPARE_FILES
    if soft >= need or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < need:
        raise InputError(
            f"open files: the limit of {hard} lets about {max(0, hard - SPARE_FILES)} users run in one process, "
            f"{users} are asked for; raise it (ulimit -Hn) or use more processes (--processes)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
