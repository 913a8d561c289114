"""From which front to verify: what was recorded, and a simulated search, as the benchmark counts
them."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from tests.support.paths import BENCHMARKS
from tuner.verdict.compare.studies import read_studies


@pytest.fixture(scope="module")
def choosing() -> Any:
    return importlib.import_module("benchmarks.front_choice.choosing")


def test_what_is_expected_is_nearer_to_fresh_seeds_than_the_search_s_own_runs(
    choosing: Any,
) -> None:
    """And the committed figures are those that the exports give."""
    (study,) = read_studies([str(choosing.CAMPAIGN[0])], task="etth", storage="sqlite:///none.db")
    found = choosing.recorded(study)
    assert found["expected"]["mql"] < 0.5 * found["single"]["mql"]
    assert found["expected"]["log_time"] < found["single"]["log_time"]
    committed = json.loads((BENCHMARKS / "front_choice" / "h200.json").read_text())["recorded"][0]
    assert committed["single"] == pytest.approx(found["single"])
    assert committed["expected"] == pytest.approx(found["expected"], abs=5e-3)


def test_a_simulated_search_is_judged_by_the_truth(choosing: Any) -> None:
    job = importlib.import_module("benchmarks.samplers.samplers").make_job(None, "forest")
    found = choosing.simulated(job, seed=1, trials=60)
    assert set(found) == {"front", "expected"}
    assert all(each["hypervolume"] > 0 for each in found.values())
    assert abs(found["expected"]["promised_too_much"]) < abs(found["front"]["promised_too_much"])
