"""The largest batch that fits is found by halving."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tuner.config import Hyperparameters
from tuner.estimate.measuring_process import STEP, largest_batch

NETWORK = Hyperparameters(learning_rate=1e-3, weight_decay=0.0, batch_size=64)


@dataclass
class Pretended:
    """Fits up to a batch of so many."""

    most: int
    tried: list[int] = field(default_factory=list)
    spoiled: bool = False
    """A try that had no room leaves it so that nothing fits."""
    ended: int = 0

    def fits(self, wanted: Hyperparameters) -> bool:
        self.tried.append(wanted.batch_size)
        fits = wanted.batch_size <= self.most and not self.spoiled
        self.spoiled = self.spoiled or not fits
        return fits

    def end(self) -> None:
        self.spoiled = False
        self.ended += 1


@pytest.mark.parametrize("most", [1, 3, 63, 64, 65, 700, 4095, 9_999])
def test_it_is_right_within_one_step(most: int) -> None:
    process = Pretended(most)
    found = largest_batch(process.fits, process.end, NETWORK, windows=10_000)
    assert found.fits <= most
    assert found.too_large is not None
    assert most < found.too_large <= found.fits + max(1, found.fits // STEP)
    assert process.ended
    assert found.tries <= len(process.tried) < 40


def test_a_batch_of_all_windows_may_fit_and_none_may() -> None:
    process = Pretended(10_000)
    whole = largest_batch(process.fits, process.end, NETWORK, windows=10_000)
    assert (whole.fits, whole.too_large) == (10_000, None)
    process = Pretended(0)
    nothing = largest_batch(process.fits, process.end, NETWORK, windows=10_000)
    assert (nothing.fits, nothing.too_large) == (0, 1)
