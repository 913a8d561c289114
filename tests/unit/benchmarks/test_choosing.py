"""From which front to verify: what was recorded, and a simulated search, as the benchmark counts them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.compare import read_subjects

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def choosing() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("choosing")
    sys.path.remove(str(BENCHMARKS))


def test_what_is_expected_is_nearer_to_fresh_seeds_than_the_search_s_own_runs(choosing: Any) -> None:
    """And the committed figures are those that the exports give."""
    (subject,) = read_subjects([str(choosing.CAMPAIGN[0])], task="etth", storage="sqlite:///none.db")
    found = choosing.recorded(subject)
    assert found["expected"]["mql"] < 0.5 * found["single"]["mql"]
    assert found["expected"]["log_time"] < found["single"]["log_time"]
    committed = json.loads((BENCHMARKS / "choosing-h200.json").read_text())["recorded"][0]
    assert committed["single"] == pytest.approx(found["single"])
    assert committed["expected"] == pytest.approx(found["expected"], abs=5e-3)


def test_a_simulated_search_is_judged_by_the_truth(choosing: Any) -> None:
    job = importlib.import_module("samplers").make_job(None, "forest")
    found = choosing.simulated(job, seed=1, trials=60)
    assert set(found) == {"front", "expected"}
    assert all(each["hypervolume"] > 0 for each in found.values())
    assert abs(found["expected"]["promised_too_much"]) < abs(found["front"]["promised_too_much"])
