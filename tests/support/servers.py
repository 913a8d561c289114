"""What all servers have in common that tests start: a port of their own, and an end with the
tests."""

from __future__ import annotations

import contextlib
import ctypes
import secrets
import signal
import socket
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PORTS = range(15_000, 30_000)
"""Below those that the kernel gives to whoever connects: a server that restarts finds its own still
free."""


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    while True:
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def ends_with_the_tests(how: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends the process this signal once the tests have died."""

    def ask() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, how)

    return ask
