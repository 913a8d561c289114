"""The connection of this process to a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tuner.errors import TunerError, UsageError

ADDRESS_VARIABLE = "RAY_ADDRESS"
CLUSTER, LOCAL = "tuner", "tuner-local"
"""The namespace of our actors, in a cluster that runs already and in one that is started here."""
STARTED = (
    "no Ray cluster runs on this host: one is started here for this command, and ends with it "
    f"(another cluster: {ADDRESS_VARIABLE}=HOST:PORT)"
)
_REFUSED = "Unauthenticated"
REACH_S = 5.0


def connected(address: str | None, *, may_start: bool = False) -> Any:
    """The module `ray`, connected to the cluster at `address` from now on; None: the one that
    RAY_ADDRESS names, or that runs on this host. Where none does and none is named, one of this
    host alone is started if it `may_start`, as Ray's users expect.

    Raises:
        UsageError: the address is none.
        TunerError: no cluster can be reached there.
    """
    where = address or os.environ.get(ADDRESS_VARIABLE)
    if where:
        refuse_unreachable(where)
    import ray

    if ray.is_initialized():
        return ray
    with _heard() as heard:
        try:
            try:
                _begin(ray, address or "auto", CLUSTER)
            except ConnectionError:
                if where or not may_start or _REFUSED in heard():
                    raise
                _begin(ray, "local", LOCAL)
        except Exception as error:  # noqa: BLE001 - it raises whatever its parts raise
            said = heard()
            why = "it takes no such token" if _REFUSED in said else _first_line(error)
            raise unreachable(where, why) from None
    return ray


def _begin(ray: Any, address: str, namespace: str) -> None:
    level = logging.WARNING
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=level)


def unreachable(where: str | None, why: str) -> TunerError:
    return TunerError(
        f"no Ray cluster can be reached at {where or 'this host'}: {why.rstrip('. ')}; start one "
        f"with 'ray start --head', name another with {ADDRESS_VARIABLE}=HOST:PORT, and if it asks "
        "for a token, set RAY_AUTH_TOKEN"
    )


def refuse_unreachable(where: str) -> None:
    """At once: Ray itself would try for minutes.

    Raises:
        UsageError: the address is none.
        TunerError: nobody listens there.
    """
    host, colon, port = where.removeprefix("ray://").partition("/")[0].rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - ports
        if where in ("auto", "local"):
            return
        raise UsageError(f"{where!r} is no address of a Ray cluster; expected HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
    except OSError as error:
        raise unreachable(where, error.strerror or str(error)) from None


@contextmanager
def _heard() -> Iterator[Callable[[], str]]:
    """What is written to stderr meanwhile, kept back: Ray's C++ parts write there past Python, and
    the reason why a cluster refuses stands nowhere else.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:

        def so_far() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        os.dup2(file.fileno(), 2)
        try:
            yield so_far
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
