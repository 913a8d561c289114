"""A search begins as a person would: the default, rates around it, each other knob by itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from tuner.config import Value
from tuner.search.beginning import DEFAULT_AGAIN, Beginning
from tuner.spec.pareto import Point
from tuner.spec.space import ProgramSpace, SearchSpace
from tuner.spec.study_file import load_study_file

RATE = ["learning_rate"]
FILE = load_study_file("original")
SPACE, DEFAULT = FILE.space, FILE.default_hyperparameters().as_dict()


def nothing(params: Mapping[str, Value]) -> Point | None:
    del params
    return None


def beginning(seed: int) -> list[dict[str, Value]]:
    made = Beginning(SPACE, DEFAULT, seed=seed)
    found: list[dict[str, Value]] = []
    while (params := made.at(len(found), nothing)) is not None:
        found.append(params)
    return found


def differing(params: Mapping[str, Value], base: Mapping[str, Value] = DEFAULT) -> list[str]:
    return [name for name, value in params.items() if value != base[name]]


def test_the_default_runs_three_times_and_each_knob_is_moved_by_itself() -> None:
    for seed in range(20):
        found = beginning(seed)
        assert [n for n, params in enumerate(found) if params == DEFAULT] == [0, *DEFAULT_AGAIN]
        assert all(SPACE.contains(params) == [] for params in found)
        moved = [differing(params) for params in found if params != DEFAULT]
        assert all(len(names) == 1 for names in moved)
        counts = {name: moved.count([name]) for name in SPACE.ranges}
        assert counts.pop("learning_rate") >= 6
        assert set(counts.values()) == {2}
        rates = sorted(
            float(p["learning_rate"]) for p in found if differing(p) == ["learning_rate"]
        )
        steps = [b / a for a, b in itertools.pairwise(rates)]
        assert all(step == pytest.approx(2) or step == pytest.approx(4) for step in steps)
        assert rates[0] < float(DEFAULT["learning_rate"]) < rates[-1]


def test_two_searches_share_neither_rates_nor_their_order() -> None:
    one, other = beginning(1), beginning(2)
    assert one == beginning(1)
    rates, others = (
        [params["learning_rate"] for params in each if differing(params) == RATE]
        for each in (one, other)
    )
    assert set(rates).isdisjoint(others)
    order = [sorted(rates).index(rate) for rate in rates]
    assert order != [sorted(others).index(rate) for rate in others]


def test_other_knobs_are_moved_at_the_fastest_rate_that_is_as_good() -> None:
    made = Beginning(SPACE, DEFAULT, seed=3)
    rates = [
        params["learning_rate"] for params in beginning(3) if "learning_rate" in differing(params)
    ]
    seconds = {rate: 1.0 - 0.1 * place for place, rate in enumerate(rates)}
    worse = rates[-1]  # the fastest

    def known(params: Mapping[str, Value]) -> Point | None:
        rate = params["learning_rate"]
        return (seconds[rate], 0.9 if rate == worse else 0.8) if rate in seconds else (1.0, 0.8)

    first = 1 + len(rates) + len(DEFAULT_AGAIN)
    for number in range(first, first + 8):
        params = made.at(number, known)
        assert params is not None
        assert params["learning_rate"] == rates[-2]
        assert len(differing(params, DEFAULT | {"learning_rate": rates[-2]})) == 1


def test_what_is_fixed_has_no_ladder() -> None:
    fixed = SearchSpace.model_validate(
        {
            "learning_rate": {"low": 1e-4, "high": 1e-4, "scale": "log"},
            "weight_decay": {"low": 0.0, "high": 0.0},
            "batch_size": {"low": 64, "high": 256},
        }
    )
    default = {"learning_rate": 1e-4, "weight_decay": 0.0, "batch_size": 64}
    made = Beginning(fixed, default, seed=1)
    found = [made.at(number, nothing) for number in range(7)]
    assert len([params for params in found if params not in (None, default)]) == 2
    assert {params["batch_size"] for params in found if params} <= {64, 128, 256}


def test_a_program_need_not_have_a_rate() -> None:
    space = ProgramSpace.model_validate({"depth": {"type": "int", "low": 1, "high": 8}})
    made = Beginning(space, {"depth": 4}, seed=1)
    found = [made.at(number, nothing) for number in range(6)]
    assert {params["depth"] for params in found if params} > {4}
