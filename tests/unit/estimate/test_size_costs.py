"""What was measured is kept, and read again with care."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.small_study import definition
from tuner.estimate.cost_model import (
    MeasuredSize,
    SizeCosts,
    costs_of_trials,
    keep,
    kept,
    key_of,
    key_of_search,
    place_of,
)
from tuner.record import Recorded

COSTS = SizeCosts(
    device_model="a GPU",
    windows=1000,
    sizes=(
        MeasuredSize(size={"batch_size": 100}, epoch_s=2.0, setup_s=0.5, peak_bytes=1 << 20),
        MeasuredSize(size={"batch_size": 200}, failure="CUDA out of memory"),
    ),
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_is_kept_is_read_again_and_what_is_damaged_is_nothing() -> None:
    key = key_of_search(definition(), "a GPU", "2.13.0")
    assert kept(key) is None
    keep(key, COSTS)
    assert kept(key) == COSTS
    place_of(key).write_text('{"sizes": 3}')
    assert kept(key) is None


@pytest.mark.parametrize("batch_size", [0, -8, True, "64", None])
def test_a_size_of_no_batch_is_damaged(batch_size: object) -> None:
    """Steps are windows over it."""
    plain = json.loads(COSTS.to_json())
    plain["sizes"][0]["size"] = {"batch_size": batch_size}
    with pytest.raises(ValueError, match=r"batch.size"):
        SizeCosts.from_json(json.dumps(plain))


def test_costs_are_of_one_network_data_device_and_torch() -> None:
    mine = definition()
    key = key_of_search(mine, "a GPU", "2.13.0")
    assert key == key_of_search(definition(), "a GPU", "2.13.0")
    assert key != key_of_search(mine, "another", "2.13.0")
    assert key != key_of_search(mine, "a GPU", "2.11.0")


def test_an_epoch_follows_from_its_steps() -> None:
    found = COSTS.epoch_seconds([{"batch_size": 100}, {"batch_size": 1000}])
    assert found[key_of({"batch_size": 100})].middle == pytest.approx(2.0)
    # A tenth of the steps, each by the root of ten as long.
    assert found[key_of({"batch_size": 1000})].middle == pytest.approx(2.0 / 10 * 10**0.5)
    assert COSTS.peak_bytes([{"batch_size": 100}])[key_of({"batch_size": 100})].middle == 1 << 20


def test_trials_tell_what_their_sizes_cost() -> None:
    seen = Recorded(s_per_epoch=2.0, samples_per_s=500.0, setup_s=0.1, evaluation_s=0.2)
    found = costs_of_trials([({"batch_size": 100, "learning_rate": 0.1}, seen)], "a GPU")
    assert found is not None
    assert (found.windows, found.evaluation_s, found.from_trials) == (1000, 0.2, True)
    assert found.sizes[0].size == {"batch_size": 100}
    assert costs_of_trials([({"batch_size": 100}, Recorded())], "a GPU") is None
