"""The verification runs of several studies as one queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.verifications import Verifications
from tuner.study.open import OpenStudy


def verifications_of(opened: Sequence[OpenStudy]) -> Verifications:
    """The verification runs of these studies, which must be in one database."""
    engine, ids = opened[0].database.engine, [each.study_id for each in opened]
    known = {each.study_id: (each.name, each.made_at) for each in opened}
    return Verifications(engine, ids, known=known, limits=limits_of(opened))


def limits_of(opened: Sequence[OpenStudy]) -> Mapping[int, GpuHours]:
    """The limits of device time that they have, by the number of the study: one for all that share
    it.
    """
    known: dict[tuple[tuple[str, ...], float], GpuHours] = {}
    found = {}
    for each in opened:
        hours = GpuHours.of(each.database.engine, each.policy(), each.name)
        if hours is not None:
            found[each.study_id] = known.setdefault(hours.limit, hours)
    return found
