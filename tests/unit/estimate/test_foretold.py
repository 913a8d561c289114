"""What a search is foretold to take where its time ends it, and where a compiler comes first; in
words, too."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from tests.support.paths import REPOSITORY
from tests.support.present import present
from tuner.config import Backend
from tuner.estimate.foretold import SearchForetold, search_foretold, stages_of
from tuner.estimate.foretold_words import search_line, searches_line
from tuner.estimate.recorded_work import recorded_searches
from tuner.estimate.size_costs import SizeCosts
from tuner.estimate.whole_estimate import Estimate, VariantEstimate
from tuner.report.terminal.estimate_lines import estimate_lines
from tuner.storage.queue.device_time import device_seconds
from tuner.study.archive import read_archive

BUDGET_S = 240.0
RETUNES = ("benchmarks/retune/campaign", "benchmarks/retune/h100")


@pytest.fixture(scope="module")
def costs() -> SizeCosts:
    """Of `original` on an H200, with what a trial of its took beside training."""
    document = json.loads((REPOSITORY / "benchmarks/estimate/h200-sizes.json").read_text())
    (found,) = (each for each in document["variants"] if each["variant"] == "original")
    return dataclasses.replace(SizeCosts.from_json(json.dumps(found["costs"])), evaluation_s=0.01)


def foretold(costs: SizeCosts, within_s: float | None = None, trials: int = 2000) -> SearchForetold:
    """By the searches that were recorded before those of `RETUNES`."""
    study = read_archive(REPOSITORY / RETUNES[0] / "etth-original.json.gz")
    found = search_foretold(
        study.definition,
        costs,
        trials=trials,
        within_s=within_s,
        recorded=[each for each in recorded_searches() if not each.name.startswith(RETUNES)],
    )
    return present(found)


def test_ten_searches_had_as_many_trials_as_their_time_was_foretold_to_buy(
    costs: SizeCosts,
) -> None:
    found = foretold(costs, BUDGET_S)
    bought = present(found.bought)
    assert found.search.low == found.search.high == BUDGET_S
    held = []
    for folder in RETUNES:
        for path in sorted((REPOSITORY / folder).glob("etth-original*.json.gz")):
            records = [each for each in read_archive(path).records if each.state.is_finished()]
            assert sum(device_seconds(each.recorded) for each in records) < BUDGET_S + 2
            held.append(bought.low <= len(records) <= bought.high)
    assert len(held) == 10
    assert sum(held) >= 8


def test_searches_that_are_over_are_confirmed_too(costs: SizeCosts) -> None:
    found = [foretold(costs, BUDGET_S)] * 4
    four, five = (stages_of(found, confirmed=number) for number in (None, 5))
    assert five.confirmation.middle == pytest.approx(1.25 * four.confirmation.middle)
    assert five.search == four.search
    each_s = 90 * found[0].default_run.middle
    assert each_s < four.confirmation.middle / 4 < 3 * each_s


def test_time_that_is_enough_for_all_trials_ends_nothing(costs: SizeCosts) -> None:
    plain = foretold(costs, trials=50)
    assert foretold(costs, 3600.0, trials=50) == plain
    assert plain.bought is None
    assert foretold(costs, plain.search.middle * 1.01, trials=50).search.high < plain.search.high


def test_what_a_compiler_makes_once_is_waited_for_once(costs: SizeCosts) -> None:
    """Fused kernels are made beside the trials, which are of other sizes meanwhile."""

    def built(backend: Backend) -> SizeCosts:
        sizes = [
            dataclasses.replace(each, built_s=20.0, backend=backend.value) for each in costs.sizes
        ]
        return dataclasses.replace(costs, sizes=tuple(sizes))

    plain = foretold(costs, trials=400).search.middle
    assert foretold(built(Backend.TRITON), trials=400).search.middle == plain
    more = foretold(built(Backend.COMPILE), trials=400).search.middle - plain
    assert more == pytest.approx(0.75 * 20 * 20)
    few = foretold(costs, trials=5).search.middle
    assert foretold(built(Backend.COMPILE), trials=5).search.middle - few == pytest.approx(75)


def test_an_estimate_says_what_time_buys_and_what_is_compiled(costs: SizeCosts) -> None:
    def lines(costs: SizeCosts) -> str:
        mine = VariantEstimate(
            variant="original",
            default={"hidden_size": 64, "batch_size": 256},
            costs=costs,
            sizes=(),
            search=foretold(costs, BUDGET_S),
        )
        whole = Estimate(device_model="a GPU", devices=2, variants=(mine,), searches=1, stages=None)
        return "\n".join(estimate_lines(whole))

    assert re.search(r"original: some \d+ trials \(\d+ to \d+\) have 4 min of device", lines(costs))
    assert "compiled" not in lines(costs)
    first = dataclasses.replace(costs.sizes[0], built_s=21.0)
    built = dataclasses.replace(costs, sizes=(first, *costs.sizes[1:]))
    assert "original: the kernels of a size are compiled once, 21 s each" in lines(built)
    assert SizeCosts.from_json(built.to_json()) == built


def test_a_launch_says_what_its_time_buys(costs: SizeCosts) -> None:
    found = foretold(costs, BUDGET_S)
    line = search_line("etth-original", found, devices=1, from_trials=False)
    assert re.match(r"foretold: etth-original has 4 min of device time, for some \d+ trials", line)
    several = searches_line([found] * 5, devices=2)
    words = r"foretold: 5 searches have 20 min of device time, 10 min on 2 devices, for some \d+ t"
    assert re.match(words, several)
    mixed = searches_line([found, foretold(costs, trials=50)], devices=1)
    assert re.match(r"foretold: some 4\d\d trials of 2 searches take ", mixed)
