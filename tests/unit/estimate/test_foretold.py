"""What a search is foretold to take where its time ends it, and where a compiler comes first; in
words, too."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import statistics
from collections.abc import Sequence

import pytest
from optuna.trial import TrialState

from benchmarks.runs.table import archives
from tests.support.paths import REPOSITORY
from tests.support.present import present
from tuner.config import Backend
from tuner.estimate.cost_model import Foretold, SizeCosts, key_of
from tuner.estimate.foretold import Ended, SearchForetold, off_in_common, search_foretold
from tuner.estimate.whole_estimate import (
    Estimate,
    VariantEstimate,
    search_line,
    searches_line,
    stages_of,
    trials_in_words,
)
from tuner.estimate.work_ahead import recorded_searches
from tuner.report.terminal.estimate_lines import estimate_lines
from tuner.storage.records import device_seconds
from tuner.study.archive import Archive, read_archive
from tuner.verdict.recommendation import ROUNDS, VERIFIED, VERIFIED_SEEDS

BUDGET_S = 240.0
RETUNES = ("benchmarks/retune/campaign", "benchmarks/retune/h100")
LATER = (*RETUNES, "benchmarks/retune/again")


@functools.cache
def original() -> Archive:
    """One of those searches, read once."""
    return read_archive(REPOSITORY / "benchmarks/runs/confirmed/h200-original.json.gz")


@pytest.fixture(scope="module")
def costs() -> SizeCosts:
    """Of `original` on an H200, with what a trial of its took beside training."""
    document = json.loads((REPOSITORY / "benchmarks/estimate/h200-sizes.json").read_text())
    (found,) = (each for each in document["variants"] if each["variant"] == "original")
    records = original().records
    # What was measured then was a process's first evaluation, which waits for libraries.
    usual_s = statistics.median(
        each.recorded.evaluation_s or 0.0 for each in records if each.state is TrialState.COMPLETE
    )
    costs = SizeCosts.from_json(json.dumps(found["costs"]))
    return dataclasses.replace(costs, evaluation_s=usual_s)


def foretold(
    costs: SizeCosts,
    within_s: float | None = None,
    trials: int = 2000,
    ended: Sequence[Ended] = (),
) -> SearchForetold:
    """By the searches that were recorded before those of `RETUNES`."""
    found = search_foretold(
        original().definition,
        costs,
        trials=trials,
        ended=ended,
        prune=True,  # as they did
        within_s=within_s,
        recorded=[each for each in recorded_searches() if not each.name.startswith(LATER)],
    )
    return present(found)


def test_ten_searches_had_as_many_trials_as_their_time_was_foretold_to_buy(
    costs: SizeCosts,
) -> None:
    found = foretold(costs, BUDGET_S)
    bought = present(found.bought)
    assert BUDGET_S == found.search.low < found.search.middle < found.search.high < BUDGET_S + 2
    held = []
    for folder in RETUNES:
        for each in archives(f"{folder.removeprefix('benchmarks/')}/etth-original*").values():
            records = each.records
            assert sum(device_seconds(record.recorded) for record in records) < BUDGET_S + 2
            held.append(bought.low <= len(records) <= bought.high)
    assert len(held) == 10
    assert sum(held) >= 8
    page = (REPOSITORY / "docs" / "before-you-spend.md").read_text()
    words = f"{sum(held)} of {len(held)} searches of 240 GPU seconds had as many trials as foretold"
    assert f"{words}: {trials_in_words(bought, 0)}." in " ".join(page.split())


def test_three_measured_sizes_are_told_with_as_wide_a_range_as_they_deserve(
    costs: SizeCosts,
) -> None:
    """On a device that has no kernels yet, a launch has had time for three of twenty."""
    few = dataclasses.replace(costs, sizes=costs.sizes[:3])
    known, guessed = foretold(costs, BUDGET_S), foretold(few, BUDGET_S)
    assert present(known.bought).ratio < 2 < present(guessed.bought).ratio
    held = present(guessed.bought)
    assert held.low < present(known.bought).middle < held.high
    assert known.trial.ratio < guessed.trial.ratio
    assert off_in_common([]) == 0.0
    exactly = [Foretold.exactly(1.0)]
    assert off_in_common(exactly) == 0.0
    assert off_in_common([*exactly, Foretold.around(0.0, 0.4)]) == pytest.approx(0.2 * 0.5**0.5)


def test_searches_that_are_over_are_confirmed_too(costs: SizeCosts) -> None:
    found = [foretold(costs, BUDGET_S)] * 4
    four = stages_of(found)
    five = stages_of(found, over_s=[BUDGET_S])
    default_s = 90 * found[0].default_run.middle
    beside = four.confirmation.middle - default_s  # which is run once for all of them
    assert five.confirmation.middle == pytest.approx(1.25 * beside + default_s)
    assert five.search.middle == pytest.approx(four.search.middle + BUDGET_S)
    assert 0.5 * default_s < beside / 4 < 2 * default_s


def test_time_that_is_enough_for_all_trials_ends_nothing(costs: SizeCosts) -> None:
    plain = foretold(costs, trials=50)
    assert foretold(costs, 3600.0, trials=50) == plain
    assert plain.bought is None
    assert foretold(costs, plain.search.middle * 1.01, trials=50).search.high < plain.search.high


def test_what_a_compiler_makes_once_is_waited_for_once(costs: SizeCosts) -> None:
    """For sizes that nobody has had here. Fused kernels are made beside the trials, which are of
    other sizes meanwhile.
    """

    def built(backend: Backend) -> SizeCosts:
        sizes = [
            dataclasses.replace(each, built_s=20.0, backend=backend.value)
            for each in costs.sizes[:8]
        ]
        return dataclasses.replace(costs, sizes=tuple(sizes))

    def more_s(trials: int, ended: Sequence[Ended] = ()) -> float:
        compiled, fused = (
            foretold(built(each), trials=trials, ended=ended).search.middle
            for each in (Backend.COMPILE, Backend.TRITON)
        )
        return compiled - fused

    assert more_s(400) == pytest.approx(0.75 * 12 * 20)
    assert more_s(5) == pytest.approx(0.75 * 5 * 20)
    had = {key_of(each.size) for each in costs.sizes[8:11]}
    ended = [Ended(trained_s=1.0, held_s=1.1, size=key) for key in had]
    assert more_s(400, ended) == pytest.approx(0.75 * 9 * 20)
    assert more_s(400, [Ended(trained_s=1.0, held_s=1.1)]) == pytest.approx(0.75 * 12 * 20)


def test_what_was_spent_beyond_its_time_was_spent(costs: SizeCosts) -> None:
    ended = [Ended(trained_s=3.0, held_s=3.1)] * 100
    found = foretold(costs, BUDGET_S, ended=ended)
    assert found.search.low == found.search.high == pytest.approx(310.0)
    assert present(found.bought).high == 100


def test_trials_that_failed_before_their_training_are_of_the_budget_and_of_its_time(
    costs: SizeCosts,
) -> None:
    trained = [Ended(trained_s=0.5, held_s=0.6)] * 12
    failed = [Ended(trained_s=0.0, held_s=5.0)] * 6
    plain = foretold(costs, trials=60, ended=trained)
    found = foretold(costs, trials=66, ended=[*failed, *trained])
    assert (found.trials, found.ended) == (66, 18)
    assert found.search.middle == pytest.approx(plain.search.middle + 30.0)
    bought = present(foretold(costs, BUDGET_S, ended=trained).bought)
    less = present(foretold(costs, BUDGET_S + 30.0, ended=[*failed, *trained]).bought)
    assert less.middle == bought.middle + 6


def test_a_re_evaluation_runs_three_rounds_and_the_default_in_each(costs: SizeCosts) -> None:
    found = foretold(costs, trials=200)
    again = stages_of([found], sampler="tpe").reevaluation
    runs = ROUNDS * VERIFIED_SEEDS
    times = VERIFIED * runs / 2 + runs  # each half as long as the default
    assert again.middle == pytest.approx(times * found.default_run.middle)


def test_a_re_evaluation_has_what_the_searches_leave_of_the_budget(costs: SizeCosts) -> None:
    found = [foretold(costs, 36.0)]
    plain = stages_of(found, sampler="tpe")
    assert plain.reevaluation.middle > 24.0
    assert stages_of(found, sampler="tpe", budget_s=60.0).reevaluation.high == 24.0
    assert stages_of(found, sampler="auto", budget_s=60.0).reevaluation.high == 0.0


def test_an_estimate_says_what_time_buys_and_what_is_compiled(costs: SizeCosts) -> None:
    def lines(costs: SizeCosts) -> str:
        mine = VariantEstimate(
            variant="original",
            default={"hidden_size": 64, "batch_size": 256},
            costs=costs,
            sizes=(),
            searches=(foretold(costs, BUDGET_S),),
        )
        whole = Estimate(device_model="a GPU", devices=2, variants=(mine,), searches=1, stages=None)
        return "\n".join(estimate_lines(whole))

    said = r"original: a search that has 4 min of device time makes some \d+ trials \(\d+ to \d+\) "
    assert re.search(said, lines(costs))
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
    told = re.match(r"foretold: some (\d+) trials \(\d+ to \d+\) of 2 searches take ", mixed)
    assert int(present(told)[1]) == pytest.approx(present(found.bought).middle + 50, rel=0.02)


def test_a_default_that_is_cut_off_is_told_by_whose_trials(costs: SizeCosts) -> None:
    """And one run of it that converged says that it is not cut off."""
    cut = Ended(trained_s=5.0, held_s=5.1, of_default=True, cut=True)
    others = [Ended(trained_s=5.0, held_s=5.1)] * 4
    found = foretold(costs, trials=60, ended=[cut, *others])
    line = search_line("etth-original", found, devices=1, from_trials=False)
    assert line.endswith("(four times out of five; by its own trials)")
    assert found.search.low < 60 * 5.1 < found.search.high
    converged = dataclasses.replace(cut, cut=False)
    usual = foretold(costs, trials=60, ended=[cut, converged, *others])
    line = search_line("etth-original", usual, devices=1, from_trials=False)
    assert re.search(r"by batches measured here and \d+ recorded searches\)$", line)
    assert usual.search.high < found.search.middle


def test_trials_in_words() -> None:
    found = Foretold(middle=484.4, low=474.2, high=496.0)
    assert trials_in_words(found, 0) == "some 480 trials (470 to 500)"
    assert trials_in_words(found, 445) == "some 484 trials (474 to 496)"
    one = Foretold(middle=1.0, low=1.0, high=1.0)
    assert trials_in_words(one, 0) == "1 trial"
    assert trials_in_words(one.times(3), 3) == "3 trials"


def test_a_default_that_has_run_is_foretold_by_its_runs(costs: SizeCosts) -> None:
    """Recorded defaults train for some fifty epochs; this one does for a tenth of that."""
    guessed = foretold(costs)
    runs = [Ended(trained_s=0.1, held_s=0.2, of_default=True)] * 4
    others = [Ended(trained_s=5.0, held_s=5.1)] * 4
    known = foretold(costs, ended=[*runs, *others])
    assert known.default_run.middle < 0.3 * guessed.default_run.middle
    assert known.default_run.ratio < 1.2 < guessed.default_run.ratio
    confirmation = [stages_of([each]).confirmation.middle for each in (known, guessed)]
    assert confirmation[0] < 0.3 * confirmation[1]
