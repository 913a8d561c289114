"""The replay of pruning: what it saves, what it loses, and nothing of either where nothing is
pruned."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from types import ModuleType
from typing import Any

import pytest

from tests.support.paths import BENCHMARKS
from tuner.search.bounds import Caution


@pytest.fixture(scope="module")
def pruning() -> Any:
    return importlib.import_module("benchmarks.pruning.replay")


@pytest.fixture(scope="module")
def curves(pruning: ModuleType) -> Any:
    """The real trainings of a small network that are kept beside the benchmark."""
    return pruning.read_curves(BENCHMARKS / "pruning" / "small-demo-small.json.gz", even_clock=True)


def test_a_replay_saves_seconds_and_accounts_for_them(pruning: ModuleType, curves: Any) -> None:
    replayed = pruning.replay(curves, 0, Caution())
    assert replayed.trials == len(curves.trials) == 60
    assert replayed.pruned > 0
    assert replayed.seconds == pytest.approx(
        sum(trial.seconds for trial in curves.trials), abs=1e-3
    )
    assert replayed.saved == pytest.approx(replayed.seconds_saved / replayed.seconds, abs=1e-3)
    assert 0 <= replayed.lost < 0.05
    again = pruning.replay(curves, 0, Caution())
    assert (again.pruned, again.saved, again.lost) == (
        replayed.pruned,
        replayed.saved,
        replayed.lost,
    )


def test_where_nothing_may_be_pruned_nothing_is_saved_and_nothing_lost(
    pruning: ModuleType, curves: Any
) -> None:
    replayed = pruning.replay(curves, 1, Caution(min_finished=1000))
    assert (replayed.pruned, replayed.front_pruned) == (0, 0)
    assert (replayed.saved, replayed.lost, replayed.lost_wide) == pytest.approx(
        (0.0, 0.0, 0.0), abs=1e-12
    )


def test_simulated_trials_end_as_the_protocol_ends_them(pruning: ModuleType) -> None:
    simulated = next(iter(pruning.simulated_sets()))
    assert {trial.stopped_by for trial in simulated.trials} == {
        "converged",
        "epoch_limit",
        "diverged",
    }
    for trial in simulated.trials:
        assert len(trial.losses) == len(trial.elapsed_s) <= simulated.stopping.max_epochs
        assert list(trial.elapsed_s) == sorted(trial.elapsed_s)
        assert (trial.values is None) == (trial.stopped_by == "diverged")


def test_a_part_of_a_study_is_replayed_as_if_there_were_no_more(
    pruning: ModuleType, curves: Any
) -> None:
    numbers = pruning.numbers("20-49")
    part = pruning.read_curves(
        BENCHMARKS / "pruning" / "small-demo-small.json.gz", even_clock=True, numbers=numbers
    )
    assert [trial.number for trial in part.trials] == list(range(20, 50))
    assert part.trials == curves.trials[20:50]
    assert "trials 20-49" in part.name
    with pytest.raises(argparse.ArgumentTypeError):
        pruning.numbers("49-20")


def test_the_table_says_median_mean_and_worst(pruning: ModuleType, curves: Any) -> None:
    one = pruning.replay(curves, 0, Caution(min_finished=1000))
    shares = [(0.5, 0.0), (0.6, 0.0), (0.1, 0.03)]
    text = pruning.table(
        [dataclasses.replace(one, saved=saved, lost=lost) for saved, lost in shares]
    )
    assert "| 50%, 40%, 10% | 0.00%, 1.00%, 3.00% |" in text
