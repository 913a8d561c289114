"""How rough a surface a search expects: what is compared, and what is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.retune.report import read
from benchmarks.verdict import effect_priors, foretold_mqls
from benchmarks.verdict.effect_priors import COMPARED, Row
from benchmarks.verdict.priors import PRIORS, believing
from benchmarks.verdict.truths import RETUNED, TRUTHS
from tuner.search import next_run_model
from tuner.search.gaussian_process import LENGTH_PRIOR

VERDICT = Path(__file__).parents[4] / "benchmarks" / "verdict"


def test_the_prior_that_was_taken_is_the_one_that_searches_go_by() -> None:
    now = next_run_model.EFFECT_PRIOR, next_run_model.SLOPE_PRIOR, LENGTH_PRIOR
    taken = PRIORS[1]
    assert (taken.effect, taken.slope, taken.length) == now
    with believing(PRIORS[0]):
        assert next_run_model.EFFECT_PRIOR == PRIORS[0].effect != now[0]
    assert now[0] == next_run_model.EFFECT_PRIOR


def test_no_truth_is_both_for_tuning_and_for_reporting() -> None:
    names = [made.name for made in (*TRUTHS, *RETUNED)]
    assert len(set(names)) == len(names)
    of_report = {(made.variant, made.surface) for made in RETUNED if made.report}
    assert len(of_report) == 3
    assert not of_report & {(made.variant, made.surface) for made in RETUNED if not made.report}


def rows(prior: str, gain: float, *, confirmed: float) -> list[Row]:
    return [
        Row(truth, seed, prior, gain + 0.01 * seed, 0.9, confirmed, 0.0)
        for truth in ("a", "b")
        for seed in range(3)
    ]


def test_a_prior_that_saves_more_has_a_quotient_below_one() -> None:
    before, after = (prior.name for prior in COMPARED)
    found = effect_priors.part(
        "Made", [*rows(before, 0.7, confirmed=0.8), *rows(after, 0.9, confirmed=1.0)]
    )
    assert found["compared"]["ratio"] == pytest.approx(0.8187, abs=1e-4)
    assert [way["confirmed"] for way in found["ways"]] == pytest.approx([0.8, 1.0])
    said = effect_priors.lines(found)
    assert "With smaller effects 0.819 [0.819, 0.819] times as much time stands (6 pairs)." in said


def test_what_was_foretold_of_a_recorded_search_is_held_against_what_came() -> None:
    (study,) = read(VERDICT.parent / "retune" / "h100", "etth-original-4")
    search = foretold_mqls.searched(study)
    assert search is not None
    assert [each.first for each in search.candidates] == [True] + [False] * (
        len(search.candidates) - 1
    )
    assert not search.candidates[0].confirmed, "it was 1.1 % worse, where 1 % is asked for"
    assert search.candidates[0].ratio == pytest.approx(0.0112, abs=2e-4)
    told = []
    for prior in PRIORS[:2]:
        with believing(prior):
            told.append(foretold_mqls.foretold(search))
    optimistic, taken = told
    assert optimistic[0].too_good > taken[0].too_good > 0
    assert optimistic[0].chance > taken[0].chance
    assert optimistic[0].log_density < taken[0].log_density


def test_the_committed_rows_are_of_all_recorded_searches() -> None:
    document = json.loads((VERDICT / "foretold-mqls.json").read_text(encoding="utf-8"))
    first = [row for row in document["rows"] if row["which"] == "tested first"]
    assert [row["prior"]["name"] for row in first] == [prior.name for prior in PRIORS]
    assert {row["candidates"] for row in first} == {34}
    assert first[0]["foretold"] - first[0]["confirmed"] > 0.2
