"""What a verdict would fail by at its end is told before anything runs: a reference whose times are
of other devices, or whose figures are of other data.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tuner.errors import UsageError
from tuner.launch.request import DeviceChoice
from tuner.launch.retune_agreement import Agreement, members_there
from tuner.launch.where import choose_where
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy
from tuner.verdict.verification_plan import refuse_apart


def workers_for(agreed: Agreement, choice: DeviceChoice, address: DatabaseUrl) -> int:
    """How many workers there will be.

    Raises:
        UsageError: devices that are not there, or of another model than a search of either variant.
        TunerError: an engine that cannot be reached.
    """
    where = choose_where(choice, environment=os.environ)
    if where.model is not None:
        for group in agreed.groups:
            with members_there(address, group) as members:
                _refuse_other_devices(group, members, where.model)
    return where.workers


def _refuse_other_devices(group: str, members: Sequence[OpenStudy], model: str) -> None:
    for each in members:
        bound = each.device_model()
        if bound not in (None, model):
            raise UsageError(
                f"{group!r} holds times measured on {bound!r}, the device here is {model!r}: times "
                "of different devices do not compare; run on the same kind of device, or retune "
                "both in a database of their own (--storage)"
            )


def refuse_other_data(
    agreed: Agreement, address: DatabaseUrl, studies: Sequence[OpenStudy]
) -> None:
    """Raises UsageError where `studies`, which are to be searched, are on other data than those
    that are there.
    """
    for group in agreed.groups:
        with members_there(address, group) as members:
            refuse_apart([*studies[:1], *members])
