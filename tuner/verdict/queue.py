"""The verification runs of several studies as one queue."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.verifications import Verifications
from tuner.study.open import OpenStudy


def verifications_of(opened: Sequence[OpenStudy], *, lease_s: float | None = None) -> Verifications:
    """The verification runs of these studies, which must be in one database."""
    engine, ids = opened[0].database.engine, [each.study_id for each in opened]
    names = [each.name for each in opened]
    return Verifications(engine, ids, names=names, hours=hours_of(opened), lease_s=lease_s)


def hours_of(opened: Sequence[OpenStudy]) -> GpuHours | None:
    """The limit of device time that these studies share; None where none of them has one."""
    for each in opened:
        found = GpuHours.of(each.database.engine, each.policy(), each.name)
        if found is not None:
            return found
    return None
