"""The noise of simulated seeds is that of recorded ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.verdict import seed_noise
from benchmarks.verdict.foretold_mqls import retuned
from benchmarks.verdict.truths import NOISE_OF_RETUNES
from tests.support.paths import BENCHMARKS
from tests.support.present import present
from tuner.verdict.confirmation import confirmation_of


def simulated(epochs: float) -> float:
    """Standard deviation of the MQL of a simulated training so long."""
    known = np.log(NOISE_OF_RETUNES.epochs)
    return float(np.interp(np.log(epochs), known, NOISE_OF_RETUNES.sd))


def test_simulated_seeds_have_the_noise_of_the_retunes_that_their_truths_are_made_of() -> None:
    document = json.loads((BENCHMARKS / "verdict" / "seed-noise.json").read_text(encoding="utf-8"))
    rows = document["rows"]
    assert sum(each["configurations"] for each in rows) > 100
    for each in rows:
        # Five configurations on 30 to 90 seeds tell a standard deviation to some 7 %.
        assert simulated(each["epochs"]) == pytest.approx(each["sd"], rel=0.08)
    shortest, longest = NOISE_OF_RETUNES.skew
    many = [each for each in rows if each["configurations"] >= 20]
    assert all(longest <= each["skew"] <= shortest for each in many)


def test_seeds_of_a_later_retune_have_it_too() -> None:
    """One that no truth was made of."""
    groups = seed_noise.grouped(seed_noise.recorded(["again"]))
    assert sum(each.configurations for each in groups) == 19
    for each in groups:
        near = 0.1 if each.configurations > 1 else 0.25
        assert each.sd == pytest.approx(simulated(each.epochs), rel=near)


def test_a_configuration_of_few_seeds_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    study = retuned(["again"])[0]
    default = present(present(confirmation_of(study)).default)
    found = present(seed_noise.of_configuration(default))
    assert found.epochs == pytest.approx(51.0, abs=1.5)
    monkeypatch.setattr(seed_noise, "LEAST_SEEDS", 91)
    assert seed_noise.of_configuration(default) is None
