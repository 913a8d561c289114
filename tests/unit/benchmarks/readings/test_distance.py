"""How far readings are from the team's figures, and what is still to be trained."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.readings.distance import (
    FIRST,
    LAST,
    NEXT,
    TEAM,
    distance,
    intervals,
    missing,
    read,
    table,
)
from benchmarks.readings.tried import TRIED
from tuner.models.readings import check_mixer_arguments

TWELVE = list(TRIED)[:12]


def rows(reading: str, seeds: tuple[int, ...], off: float = 0.0) -> list[dict[str, Any]]:
    """Trainings whose every figure is so many standard deviations from the team's."""
    return [
        {
            "reading": reading,
            "variant": variant,
            "seed": seed,
            "epochs": round(math.exp(log_epochs)),
            "val_loss": val_loss + 0.0009 * off,
            "mql": mql - 0.006 * off,
        }
        for variant, (log_epochs, val_loss, mql) in TEAM.items()
        for seed in seeds
    ]


def test_the_distance_counts_seeds_standard_deviations() -> None:
    found = distance(rows("today", FIRST, 2.0), "today", FIRST)
    assert found == pytest.approx(3 * (2.0**2 + 2.0**2))


def test_of_several_seeds_it_is_that_of_the_means() -> None:
    found = [*rows("today", (0, 1), 1.0), *rows("today", (2, 3), -1.0)]
    assert distance(found, "today", NEXT) == pytest.approx(0.0, abs=1e-12)


def test_a_training_that_lacks_leaves_it_unknown_and_one_that_diverged_makes_it_infinite() -> None:
    found = rows("today", FIRST)
    assert distance(found[1:], "today", FIRST) is None
    found[0]["mql"] = None
    assert distance(found, "today", FIRST) == math.inf


def test_stages_follow_from_what_is_there() -> None:
    found = [row for i, name in enumerate(TWELVE) for row in rows(name, FIRST, float(i))]
    assert missing(found[:-1], TWELVE, "auto") == [(TWELVE[-1], "simple", 0)]
    assert missing(found[:-1], TWELVE, "eight") == []
    second = missing(found, TWELVE, "auto")
    assert [name for name, _, _ in second[::9]] == TWELVE[:8]
    assert len(second) == 8 * 3 * 3
    found += [row for i, name in enumerate(TWELVE[:8]) for row in rows(name, (1, 2, 3), 9.0 - i)]
    last = missing(found, TWELVE, "auto")
    assert {seed for _, _, seed in last} == set(LAST)
    assert list(dict.fromkeys(name for name, _, _ in last)) == TWELVE[7:4:-1]


def test_the_nine_figures_are_looked_for_in_intervals_of_ten_seeds() -> None:
    found = [row for seed in LAST for row in rows("today", (seed,), 1.0 if seed % 2 else -1.0)]
    assert all(each[2] for of_one in intervals(found, "today").values() for each in of_one)
    far = [row | {"mql": row["mql"] + 0.1} for row in found]
    assert [each[2] for each in intervals(far, "today")["simple"]] == [True, True, False]
    assert intervals(found[1:], "today") == {}


def test_the_table_is_sorted_by_distance(tmp_path: Path) -> None:
    lines = table([*rows("today", FIRST, 1.0), *rows("he-normal", FIRST, 0.5)], TWELVE).splitlines()
    assert [line.split(" | ")[0] for line in lines[3:5]] == ["| he-normal", "| today"]
    assert "| 1 | 95, 0.2249, 0.8290 |" in lines[4]


def test_a_line_that_was_cut_short_is_trained_again(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"reading": "today"}\n{"readi', encoding="utf-8")
    assert read(tmp_path / "runs.jsonl") == [{"reading": "today"}]
    assert read(tmp_path / "none.jsonl") == []


def test_what_is_tried_are_choices_of_a_mixer() -> None:
    assert len(TRIED) >= 24
    for tried in TRIED.values():
        check_mixer_arguments("simple", tried.network, tried.network)
