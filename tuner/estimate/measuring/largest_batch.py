"""The largest batch that fits, found by halving between one that does and one that does not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

from tuner.config import Hyperparameters
from tuner.estimate.cost_sizes import hyperparameters_of, key_of, largest_size, size_of
from tuner.estimate.measuring.measuring_process import MeasuringProcess

STEP = 16
"""The answer is right to a sixteenth of itself."""
FIT_S = 300.0


class Tries(Protocol):
    """Says whether a configuration fits."""

    windows: int

    def fits(self, wanted: Hyperparameters, *, within_s: float) -> bool:
        """Whatever dies of it, the caller does not."""

    def end(self) -> None:
        """Have the next one tried in a fresh process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """Of one size of network."""

    fits: int
    """The largest that was tried and fits; 0 where none does."""
    too_large: int | None
    """The smallest that was tried and does not; None: a batch of all windows fits."""
    tries: int

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _look_after(process: Tries, network: Hyperparameters, fits: int) -> None:
    """What ran out of memory may fit nothing any more, in a library's state or a device's context:
    a process that cannot do again what it could is given up.
    """
    known = dataclasses.replace(network, batch_size=fits)
    if not fits or not process.fits(known, within_s=FIT_S):
        process.end()


def largest_batch(process: Tries, network: Hyperparameters, *, windows: int) -> LargestBatch:
    """Of this network: doubled until one does not fit, then halved between.

    Args:
        process: that tries.
        network: its own batch size is where it begins.
        windows: of training: no batch holds more.
    """
    fits, too_large, tries = 0, None, 0
    batch = min(network.batch_size, windows)
    while too_large is None or too_large - fits > max(1, fits // STEP):
        tries += 1
        wanted = dataclasses.replace(network, batch_size=batch)
        if process.fits(wanted, within_s=FIT_S):
            fits = batch
        else:
            too_large = batch
            _look_after(process, network, fits)
        if fits >= windows or too_large == 1:
            break
        batch = min(2 * fits, windows) if too_large is None else max(1, (fits + too_large) // 2)
    return LargestBatch(fits=fits, too_large=too_large, tries=tries)


def largest_batches(process: MeasuringProcess, windows: int) -> dict[str, dict[str, Any]]:
    """Of the default network, and of the largest of the space, in words of what they are."""
    definition = process.subject.definition
    largest = hyperparameters_of(
        largest_size(definition.space), definition.space, definition.defaults
    )
    networks = {
        "the default network": definition.defaults,
        "the largest network": dataclasses.replace(
            largest, batch_size=definition.defaults.batch_size
        ),
    }
    sizes = [key_of(size_of(each.as_dict())) for each in networks.values()]
    if sizes[0] == sizes[1]:
        del networks["the largest network"]
    return {
        name: largest_batch(process, network, windows=windows).as_dict()
        for name, network in networks.items()
    }
