"""The sizes of one search, measured one after the other as long as there is time."""

from __future__ import annotations

import time
from collections.abc import Callable

from tuner.errors import TunerError
from tuner.estimate.cost_sizes import Size, hyperparameters_of, to_measure
from tuner.estimate.measuring.measuring_process import MeasuringProcess
from tuner.estimate.size_costs import MeasuredSize, SizeCosts

EVERY_SIZE = 48
"""Up to so many sizes, each is measured; of a larger space so many, spread over it."""
LEAST_FOR_ONE_S = 120.0
"""A size may take so long even where there is less time: the first one, at least, is wanted."""


def measured_costs(
    process: MeasuringProcess,
    *,
    seconds: float,
    most: int = EVERY_SIZE,
    least_for_one_s: float = LEAST_FOR_ONE_S,
    building_s: float = 0.0,
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
    # What is built once, is by now.
    began = time.monotonic()
    first_s = began - since
    wanted = to_measure(definition.space, definition.defaults, most=most)
    found: list[MeasuredSize] = []
    for size in wanted:
        built_s = min(building_s, sum(each.built_s for each in found))
        left = seconds + built_s - (time.monotonic() - began)
        if found and left <= 0:
            break
        found.append(_one(process, size, within_s=max(left, least_for_one_s)))
        told(len(found), len(wanted))
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


def _one(process: MeasuringProcess, size: Size, *, within_s: float) -> MeasuredSize:
    definition = process.subject.definition
    hyperparameters = hyperparameters_of(size, definition.space, definition.defaults)
    return process.time(hyperparameters, within_s=within_s)
