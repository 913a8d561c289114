"""A worker in the lists of who is at work."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tuner.devices import CpuCores, Gpu
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.worker.outages import Retry


def new_name() -> str:
    """A worker's name that no other has: containers share process ids,
    and host names too where one gives them.
    """
    return f"{platform.node()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


@contextmanager
def registered(
    studies: Sequence[OpenStudy],
    name: str,
    device: Gpu | CpuCores,
    stored: Retry,
    prepare: Callable[[OpenStudy], None] | None = None,
) -> Iterator[None]:
    """Sign in to all studies, each after `prepare`, and out at the end. An outage of the database
    is waited for.

    Raises:
        UsageError: a study is bound to another device model.
    """
    try:
        for opened in studies:
            join = functools.partial(_join, opened, name, device, prepare)
            stored(join, "a worker's registration", until_stopped=True)
        yield
    finally:
        for opened in studies:
            with contextlib.suppress(*DATABASE_FAILURES):  # its silence will tell
                opened.roster.leave(name)


def _join(
    opened: OpenStudy,
    name: str,
    device: Gpu | CpuCores,
    prepare: Callable[[OpenStudy], None] | None,
) -> None:
    if prepare is not None:
        prepare(opened)
    opened.bind_device_model(device.model)
    opened.roster.join(
        name, host=platform.node(), pid=os.getpid(), device=device.label, device_uuid=device.uuid
    )
