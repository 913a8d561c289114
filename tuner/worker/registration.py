"""A worker in the lists of who is at work."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from sqlalchemy import Engine

from tuner.devices import CpuCores, Gpu
from tuner.devices.host import boot_id
from tuner.files.checkout import head
from tuner.storage.dialects import clock_skew_s
from tuner.storage.queue.roster import HostFacts, clock_in_words, newcomer_in_words
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.version import __version__
from tuner.worker.outages import Retry

# What is known of the host that a worker runs on.


_REVISION_DIGITS = 12


def host_facts(engine: Engine) -> HostFacts:
    """Those of this host. Asks the database for its time, and imports nothing.

    Raises:
        DBAPIError: the database is away.
    """
    return HostFacts(
        boot_id=boot_id(),
        torch_version=torch_version(),
        tuner_version=_tuner(),
        clock_skew_s=round(clock_skew_s(engine), 3),
    )


@functools.cache
def torch_version() -> str | None:
    """That is installed here; None where none is."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _tuner() -> str:
    """With its revision, where it runs from a checkout."""
    revision = head()
    return f"{__version__}+{revision[:_REVISION_DIGITS]}" if revision else __version__


_log = logging.getLogger(__name__)


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
        ask = functools.partial(host_facts, studies[0].database.engine)
        facts = stored(ask, "a look at the database's clock", until_stopped=True)
        if (line := clock_in_words(facts, "this host")) is not None:
            _log.warning("%s", line)
        for opened in studies:
            join = functools.partial(_join, opened, name, device, facts, prepare)
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
    facts: HostFacts,
    prepare: Callable[[OpenStudy], None] | None,
) -> None:
    if prepare is not None:
        prepare(opened)
    opened.bind_device_model(device.model)
    others = [each for _, each in opened.roster.hosts(but=name)]
    for line in newcomer_in_words(opened.name, facts, others):
        _log.warning("%s", line)
    opened.roster.join(
        name,
        host=platform.node(),
        pid=os.getpid(),
        device=device.label,
        device_uuid=device.uuid,
        facts=facts,
    )
