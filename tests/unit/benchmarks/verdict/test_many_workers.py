"""Simulated workers that ask at the same time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.verdict.asynchronous import Asynchronous
from benchmarks.verdict.budgets import BESIDE_S, Gpu
from benchmarks.verdict.many_workers import main, ratio
from benchmarks.verdict.truths import TRUTHS

NAME = TRUTHS[0].name


def search(workers: int, trials: int = 30) -> Asynchronous:
    found = Asynchronous(Gpu(NAME, 0, math.inf), workers, trials)
    found.run()
    return found


def test_so_many_workers_do_the_same_trials_in_a_share_of_the_time() -> None:
    one, four = search(1), search(4)
    for each in (one, four):
        assert len(each.gpu.trained) == len(each.ask_s) == 30
        assert each.gpu.trained[0][0] == each.gpu.default
    lengths = [training.seconds + BESIDE_S for _, training in one.gpu.trained]
    assert one.took_s == pytest.approx(sum(lengths))
    assert four.took_s < 0.5 * one.took_s
    assert (one.blind, one.doubled) == (12, 0)
    assert four.blind > 12, "those that run have taught nothing yet"
    again = search(4)
    assert again.gpu.trained == four.gpu.trained


def test_what_stands_is_compared_by_truth_and_seed() -> None:
    def rows(*gains: float) -> list[dict[str, object]]:
        return [{"truth": "t", "seed": i, "log_gain": gain} for i, gain in enumerate(gains)]

    middle, low, high = ratio(rows(0.4, 0.5, 0.6), rows(0.6, 0.6, 0.9))
    assert middle == pytest.approx(math.exp(0.2))
    assert low < middle < high
    assert math.isnan(ratio(rows(0.4), rows(0.4))[0])


def test_the_script_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache.jsonl"
    command = f"many --searches 1 --truths report --workers 3 --trials 24 --cache {cache}"
    for _ in range(2):
        output = tmp_path / "out"
        monkeypatch.setattr("sys.argv", [*command.split(), "--output", str(output)])
        main()
    assert len([line for line in cache.read_text().splitlines() if line]) == 4
    document = json.loads((tmp_path / "out.json").read_text())
    assert [way["workers"] for way in document["ways"]] == [3]
