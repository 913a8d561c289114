"""A result on its way: on local disk first, then in the database, however long that takes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tuner.storage.queue.outbox import Outbox
from tuner.storage.records import Claim, RunTicket, TrialResult

_log = logging.getLogger(__name__)


def delivered(
    outbox: Outbox | None, held: Claim | RunTicket, result: TrialResult, store: Callable[[], bool]
) -> bool:
    """What `store` says of the result of a trial or a verification run,
    which outlives this process meanwhile.

    Without an outbox, or where that cannot be written, only this process has it until then.

    Raises:
        DBAPIError, StorageInternalError: `store` gave up; the result stays in the
        outbox.
    """
    try:
        if outbox is not None:
            outbox.put_result(held, result)
    except OSError as error:
        _log.warning("a result is on no local disk until the database has it: %s", error)
    counted = store()
    if outbox is not None:
        outbox.remove_result(held)
    return counted
