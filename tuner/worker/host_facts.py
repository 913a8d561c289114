"""What is known of the host that a worker runs on."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version

from sqlalchemy import Engine

from tuner.devices.host import boot_id
from tuner.files.checkout import head
from tuner.storage.database_clock import clock_skew_s
from tuner.storage.queue.roster import HostFacts
from tuner.version import __version__

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
