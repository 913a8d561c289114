"""A process apart from everything on its host, as a job of a scheduler may be."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

VARIABLE = "TUNER_TEST_APART"
"""In the environment of a forked command: it gets namespaces of its own, and this folder to itself.
"""
_NEW = {"mount": 0x0002_0000, "ipc": 0x0800_0000, "network": 0x4000_0000}
_RECURSIVE_PRIVATE = 0x4000 | 0x4_0000


def may_be_had() -> bool:
    """Whether this user may have namespaces of its own."""
    child = os.fork()
    if child == 0:
        try:
            enter("/tmp")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def enter_if_asked(environment: Mapping[str, str]) -> None:
    if folder := environment.get(VARIABLE):
        enter(folder)


def enter(folder: str) -> None:
    """Have mounts, a network and an IPC of this process's own from now on, and nothing in `folder`.

    Raises:
        OSError: that is not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(sum(_NEW.values())))
    _checked(libc.mount(b"none", b"/", None, _RECURSIVE_PRIVATE, None))
    _checked(libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"mode=1777"))


def _checked(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
