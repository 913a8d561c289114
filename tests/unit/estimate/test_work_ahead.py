"""How long the trials of a search will train, by recorded searches."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from benchmarks.estimate.recorded import quantile_of
from tuner.config import TrainingSettings
from tuner.estimate.cost_model import Z80
from tuner.estimate.work_ahead import (
    Kind,
    RecordedSearch,
    SpaceCosts,
    recorded_searches,
    work_ahead,
)

KIND = Kind(
    variant="mine",
    all_over=False,
    repeats=False,
    prune=True,
    training=TrainingSettings(max_epochs=200, patience=10),
    learning_rates=(1e-5, 1e-2),
)
SIZES = [0.1, 0.2, 0.4, 0.8]
COSTS = SpaceCosts(SIZES)


def search(
    seed: int,
    *,
    scale: float = 1.0,
    trials: int = 80,
    variant: str = "other",
    pruned_share: float = 0.0,
) -> RecordedSearch:
    """Long trainings all over the space first, short ones of cheap sizes after."""
    drawn = np.random.default_rng(seed)
    early = np.arange(trials) < 20
    epochs = np.where(early, 60.0, 20.0) * scale * drawn.lognormal(0.0, 0.2, trials)
    share = np.where(early, drawn.random(trials), 0.2 * drawn.random(trials))
    return RecordedSearch(
        name=f"{variant}-{seed}",
        variant=variant,
        all_over=False,
        repeats=False,
        prune=True,
        pruned_share=pruned_share,
        max_epochs=200,
        patience=10,
        epochs=epochs,
        cost_share=share,
        learning_rate=np.full(trials, 1e-3),
        of_default=np.arange(trials) % 4 == 0,
    )


def seconds_of(each: RecordedSearch) -> np.ndarray:
    return each.seconds(COSTS, KIND.training, KIND.learning_rates)


def test_a_search_like_those_recorded_lies_in_the_range_four_times_out_of_five() -> None:
    recorded = [
        search(n, scale=float(np.exp(0.15 * np.random.default_rng(n).normal()))) for n in range(24)
    ]
    inside = 0
    for each in recorded:
        others = [one for one in recorded if one is not each]
        found = work_ahead(KIND, COSTS, others, trials=80)
        assert found is not None
        inside += found.seconds.low <= float(seconds_of(each).sum()) <= found.seconds.high
    assert 0.7 <= inside / 24 <= 1.0


def test_what_it_took_so_far_shifts_what_is_left_and_narrows_the_whole() -> None:
    recorded = [search(n, scale=scale) for n, scale in enumerate((0.5, 0.7, 1.0, 1.4, 2.0, 2.5))]
    slow = seconds_of(search(99, scale=2.0))
    before = work_ahead(KIND, COSTS, recorded, trials=80)
    after = work_ahead(KIND, COSTS, recorded, trials=80, seen_s=list(slow[:40]))
    assert before is not None
    assert after is not None
    assert after.seconds.middle == pytest.approx(float(slow[40:].sum()), rel=0.35)
    spent = float(slow[:40].sum())
    assert (spent + after.seconds.high) / (
        spent + after.seconds.low
    ) < before.seconds.high / before.seconds.low


@pytest.mark.parametrize("done", [0, 10])
def test_searches_of_its_own_variant_shift_what_others_say(done: int) -> None:
    """One by half of how far it is from all, three by three quarters."""
    others = [search(n) for n in range(8)]
    own = [search(n, scale=1.5, variant=KIND.variant) for n in range(20, 23)]
    usual_s = list(seconds_of(others[0])[:done])

    def log_seconds(recorded: list[RecordedSearch], kind: Kind = KIND) -> float:
        found = work_ahead(kind, COSTS, recorded, trials=80, seen_s=usual_s)
        assert found is not None
        return found.log_seconds

    nobodys = dataclasses.replace(KIND, variant="another")
    shifts = [
        log_seconds(recorded) - log_seconds(recorded, nobodys)
        for recorded in (others, others + own[:1], others + own)
    ]
    assert shifts[0] == 0.0
    assert 0.0 < shifts[1] < 0.5 * math.log(1.5) + 0.1
    assert 0.0 < shifts[2] < 0.75 * math.log(1.5) + 0.1
    if not done:  # then nothing else says how long its own take
        rest = np.log([seconds_of(each).sum() for each in others + own])
        assert shifts[2] == pytest.approx(0.75 * (rest[8:].mean() - rest.mean()))


def test_sizes_that_are_hardly_known_make_the_range_wide_until_trials_tell() -> None:
    recorded = [search(n, scale=scale) for n, scale in enumerate((0.5, 0.7, 1.0, 1.4, 2.0, 2.5))]
    seen = list(seconds_of(search(99))[:40])

    def ratio(unsure: float, done: int = 0, kind: Kind = KIND) -> float:
        found = work_ahead(kind, COSTS, recorded, trials=80, seen_s=seen[:done], unsure=unsure)
        assert found is not None
        return math.log(found.seconds.high / found.seconds.low) / (2 * Z80)

    assert ratio(0.0) == pytest.approx(0.2 * math.sqrt(7 / 6))
    assert ratio(0.3) == pytest.approx(math.hypot(ratio(0.0), 0.3))
    # What trials took so far says most of it: what is left is less unsure, and not sure.
    assert ratio(0.0, 40) < ratio(0.3, 40) < math.hypot(ratio(0.0, 40), 0.15)
    over = dataclasses.replace(KIND, all_over=True)
    assert ratio(0.3, kind=over) == pytest.approx(math.hypot(0.5, 0.3))


def test_few_trials_that_are_left_are_less_sure_than_many() -> None:
    """The mean of a few is not the usual trial's: their spread falls with the root of how many."""
    recorded = [search(n, trials=320) for n in range(8)]
    kind = dataclasses.replace(KIND, repeats=True)
    seen = list(seconds_of(recorded[0])[:10])
    spreads = []
    for trials in (12, 40, 310):
        found = work_ahead(kind, COSTS, recorded, trials=trials, seen_s=seen)
        assert found is not None
        spreads.append(found.spread / math.sqrt(9 / 8))
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] ** 2 - spreads[2] ** 2 == pytest.approx(0.36 * (1 / 2 - 1 / 300))


def test_nothing_is_ahead_of_a_search_that_is_full() -> None:
    assert work_ahead(KIND, COSTS, [search(1)], trials=3, seen_s=[1.0, 1.0, 1.0]) is None


def test_the_epoch_limit_and_patience_of_the_search_count() -> None:
    each = search(1)
    usual = seconds_of(each).sum()
    short = KIND.training.but(max_epochs=5)
    patient = KIND.training.but(patience=20)
    assert each.seconds(COSTS, short, KIND.learning_rates).sum() < 0.3 * usual
    more = each.seconds(COSTS, patient, KIND.learning_rates).sum() - usual
    step_s = np.quantile(SIZES, each.cost_share, method="hazen")
    assert more == pytest.approx(10 * step_s.sum(), rel=1e-6)


def test_carried_over_to_its_own_sizes_a_search_takes_what_it_took() -> None:
    figures = {str(n): seconds for n, seconds in enumerate(SIZES)}
    keys = [str(n % len(SIZES)) for n in range(80)]
    share = np.array([quantile_of(figures, key) for key in keys])
    each = dataclasses.replace(search(1), cost_share=share)
    took = each.epochs.clip(1.0, KIND.training.max_epochs) * [figures[key] for key in keys]
    assert seconds_of(each) == pytest.approx(took)


def test_trials_of_a_default_cost_half_as_the_default_at_hand_does() -> None:
    """Of the logarithm: the other half is their place among the sizes of their own space."""
    each = search(1)
    usual, dear = seconds_of(each), SpaceCosts(SIZES, 0.8)
    found = each.seconds(dear, KIND.training, KIND.learning_rates)
    of_default = np.arange(80) % 4 == 0
    assert found[~of_default] == pytest.approx(usual[~of_default])
    step_s = np.quantile(SIZES, each.cost_share, method="hazen")
    assert (found / usual)[of_default] == pytest.approx(np.sqrt(0.8 / step_s)[of_default])


def test_trials_outside_the_range_of_learning_rates_are_left_out() -> None:
    each = dataclasses.replace(search(1), learning_rate=np.where(np.arange(80) < 20, 1e-4, 1e-2))
    assert len(each.seconds(COSTS, KIND.training, (1e-3, 1e-1))) == 60
    assert len(each.seconds(COSTS, KIND.training, (1e-5, 1e-4))) == 80  # too few are inside


def test_the_table_of_recorded_searches_is_whole() -> None:
    found = recorded_searches()
    assert len(found) >= 30
    assert len({each.name for each in found}) == len(found)
    for each in found:
        assert np.isfinite(each.epochs).all()
        assert ((each.cost_share >= 0) & (each.cost_share <= 1)).all()
        assert each.of_default.shape == each.epochs.shape
    begun_with_it = [each for each in found if each.of_default[0]]
    assert len(begun_with_it) > 0.8 * len(found)


def test_searches_that_repeat_configurations_are_foretold_from_their_like() -> None:
    """They run what is fast again and again, so their later trials are shorter."""
    once = [search(n) for n in range(6)]
    repeating = [
        dataclasses.replace(each, name=f"again-{n}", repeats=True, epochs=0.5 * each.epochs)
        for n, each in enumerate(once)
    ]
    repeats = dataclasses.replace(KIND, repeats=True)
    plain = work_ahead(KIND, COSTS, once + repeating, trials=80)
    again = work_ahead(repeats, COSTS, once + repeating, trials=80)
    assert plain is not None
    assert again is not None
    assert plain.searches == again.searches == 6
    assert again.seconds.middle == pytest.approx(0.5 * plain.seconds.middle)


def test_where_nothing_is_pruned_those_go_before_of_which_hardly_anything_was() -> None:
    hardly = [search(n, scale=2.0, pruned_share=0.04) for n in range(8)]
    much = [search(n, pruned_share=0.3) for n in range(8, 24)]
    found = work_ahead(dataclasses.replace(KIND, prune=False), COSTS, [*hardly, *much], trials=80)
    assert found is not None
    assert found.searches == 8
    assert (
        found.seconds.low
        <= np.median([float(seconds_of(each).sum()) for each in hardly])
        <= found.seconds.high
    )
    assert found.seconds.low > np.median([float(seconds_of(each).sum()) for each in much])


def test_a_search_whose_default_its_limit_cuts_off_is_foretold_by_its_own_trials() -> None:
    """Its trials stay as long as they were; those of the recorded ones turned to what is fast."""
    recorded = [search(n) for n in range(12)]
    same = [10.0, 14.0, 6.0, 12.0, 8.0, 11.0, 9.0, 13.0, 7.0, 10.0]
    usual = work_ahead(KIND, COSTS, recorded, trials=40, seen_s=same)
    cut = dataclasses.replace(KIND, default_cut=True)
    found = work_ahead(cut, COSTS, recorded, trials=40, seen_s=same)
    assert usual is not None
    assert found is not None
    assert (usual.searches, found.searches) == (12, 0)
    assert found.seconds.middle == pytest.approx(30 * 10.0)
    assert found.seconds.low < 300.0 < found.seconds.high < 3 * found.seconds.low
    assert usual.seconds.middle < 0.8 * found.seconds.middle
    early = work_ahead(cut, COSTS, recorded, trials=40, seen_s=same[:2])
    assert early is not None
    assert early.searches == 12, "of two trials nobody knows how long the others will be"
    assert early.seconds.high > 2 * early.seconds.low


def test_others_are_not_foretold_from_a_search_whose_default_was_cut_off() -> None:
    recorded = [search(n) for n in range(12)]
    odd = dataclasses.replace(search(99, scale=5.0), name="odd", default_cut=True)
    with_it = work_ahead(KIND, COSTS, [*recorded, odd], trials=40)
    without = work_ahead(KIND, COSTS, recorded, trials=40)
    assert with_it is not None
    assert without is not None
    assert (with_it.searches, with_it.seconds.middle, with_it.seconds.high) == (
        12,
        without.seconds.middle,
        without.seconds.high,
    )
    three = [dataclasses.replace(search(n), default_cut=True) for n in (50, 51, 52)]
    cut = dataclasses.replace(KIND, default_cut=True)
    found = work_ahead(cut, COSTS, [*recorded, *three], trials=40, seen_s=[5.0] * 10)
    assert found is not None
    assert found.searches == 3, "its like, once enough of them are recorded"


def test_where_the_limit_would_cut_off_every_default_the_recorded_ones_count() -> None:
    """With five epochs nothing converges, and a search turns to cheap sizes all the same."""
    recorded = [search(n) for n in range(12)]
    short = KIND.training.but(max_epochs=5)
    usual = dataclasses.replace(KIND, training=short)
    cut = dataclasses.replace(usual, default_cut=True)
    ten = [1.0] * 10
    found = work_ahead(cut, COSTS, recorded, trials=40, seen_s=ten)
    same = work_ahead(usual, COSTS, recorded, trials=40, seen_s=ten)
    assert found is not None
    assert same is not None
    assert (found.searches, found.seconds.middle, found.seconds.high) == (
        12,
        same.seconds.middle,
        same.seconds.high,
    )
