"""The sizes of one search, measured one after the other as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.errors import TunerError
from tuner.estimate.cost_sizes import Size, hyperparameters_of, key_of, to_measure
from tuner.estimate.measuring.measuring_process import MeasuringProcess
from tuner.estimate.size_costs import MeasuredSize, SizeCosts

EVERY_SIZE = 48
"""Up to so many sizes, each is measured; of a larger space so many, spread over it."""
LEAST_FOR_ONE_S = 120.0
"""A size may take so long even where there is less time: the first one, at least, is wanted."""
AS_BEFORE = 1.15
"""What was measured before stands where the default's epoch takes no more, and no less, than this
times what it took then."""


def measured_costs(
    process: MeasuringProcess,
    *,
    seconds: float,
    most: int = EVERY_SIZE,
    least_for_one_s: float = LEAST_FOR_ONE_S,
    building_s: float = 0.0,
    before: Sequence[MeasuredSize] = (),
    told: Callable[[int, int], None] = lambda _done, _of: None,
) -> SizeCosts:
    """What the search's sizes cost, the default first.

    Args:
        process: that measures.
        seconds: no size is begun after so many, once the process is ready.
        most: sizes.
        least_for_one_s: a size may take so long, however little time is left.
        building_s: more than `seconds`, where a compiler takes it: what is built once is kept, and
            trials do not wait for it again.
        before: what was measured here at an earlier time, which it goes on from. The default is
            measured again; where it does not take what it took, all are.
        told: how many are done, and of how many.

    Raises:
        TunerError: the default cannot be measured.
    """
    definition = process.subject.definition
    process.start()
    since = time.monotonic()
    first = process.fit(definition.defaults, within_s=least_for_one_s)
    if not first.fits:
        raise TunerError(f"the default configuration cannot be measured: {first.failure}")
    first_s = time.monotonic() - since
    found = _sizes(
        process,
        to_measure(definition.space, definition.defaults, most=most),
        before,
        _Time(seconds=seconds, least_for_one_s=least_for_one_s, building_s=building_s),
        told,
    )
    windows, torch_version, start_s = (
        process.windows,
        process.torch_version,
        process.start_s + first_s,
    )
    default = found[0]
    if not default.fits:
        raise TunerError(f"the default configuration cannot be measured: {default.failure}")
    evaluation_s = process.evaluation_s(definition.defaults, within_s=least_for_one_s)
    return SizeCosts(
        device_model=process.subject.device.model,
        torch_version=torch_version,
        windows=windows,
        evaluation_s=evaluation_s,
        start_s=start_s,
        sizes=tuple(found),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """That there is, as `measured_costs` has it."""

    seconds: float
    least_for_one_s: float
    building_s: float


def _sizes(
    process: MeasuringProcess,
    wanted: Sequence[Size],
    before: Sequence[MeasuredSize],
    given: _Time,
    told: Callable[[int, int], None],
) -> list[MeasuredSize]:
    """As many as there is time for, and those that were measured before and stand."""
    began = time.monotonic()
    found: list[MeasuredSize] = []
    known: dict[str, MeasuredSize] = {}
    built_s = 0.0
    for size in wanted:
        if (there := known.get(key_of(size))) is not None:
            found.append(there)
            continue
        left = given.seconds + min(given.building_s, built_s) - (time.monotonic() - began)
        if found and left <= 0:
            continue
        found.append(_one(process, size, within_s=max(left, given.least_for_one_s)))
        built_s += found[-1].built_s
        if len(found) == 1:
            known = _still_true(before, found[0])
        told(len(found), len(wanted))
    return found


def _still_true(before: Sequence[MeasuredSize], default: MeasuredSize) -> dict[str, MeasuredSize]:
    """Those that stand, by size, as far as the default tells; it is measured first."""
    there = {key_of(each.size): each for each in before}
    then = there.get(key_of(default.size))
    if then is None or then.epoch_s is None or default.epoch_s is None:
        return {}
    if not 1 / AS_BEFORE <= default.epoch_s / then.epoch_s <= AS_BEFORE:
        return {}
    return there


def _one(process: MeasuringProcess, size: Size, *, within_s: float) -> MeasuredSize:
    definition = process.subject.definition
    hyperparameters = hyperparameters_of(size, definition.space, definition.defaults)
    return process.time(hyperparameters, within_s=within_s)
