"""What the trials that a study has by now tell of those to come."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from tuner.estimate.cost_sizes import key_of, size_of
from tuner.estimate.search_hours import Ended
from tuner.estimate.size_costs import SizeCosts, costs_of_trials
from tuner.search.history import configuration
from tuner.storage.queue.device_time import device_seconds
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, is_cut, read_results


def trained(opened: OpenStudy) -> list[TrialRecord]:
    """The trials that trained and have ended, in the order of their numbers."""
    return [each for each in _ended(opened) if (each.recorded.wall_clock_s or 0.0) > 0]


def _ended(opened: OpenStudy) -> list[TrialRecord]:
    return [record for record in read_results(opened).records if record.state.is_finished()]


def ended_trials(opened: OpenStudy) -> list[Ended]:
    """All that have ended: their times, which size each had, and which ran the default. One that
    failed before its training began held its device, too.
    """
    default = configuration(opened.definition.defaults.as_dict())
    return [
        Ended(
            trained_s=record.recorded.wall_clock_s or 0.0,
            held_s=device_seconds(record.recorded),
            size=key_of(size_of(dict(record.params))),
            of_default=configuration(record.params) == default,
            cut=is_cut(record.recorded),
        )
        for record in _ended(opened)
    ]


def costs_so_far(studies: Iterable[OpenStudy], device_model: str) -> SizeCosts | None:
    """What they recorded of their sizes; None where no trial trained."""
    records = [record for opened in studies for record in trained(opened)]
    return costs_of_trials(((each.params, each.recorded) for each in records), device_model)


def installed_torch() -> str:
    """The version of torch that a worker here would run, which is not imported for it."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
