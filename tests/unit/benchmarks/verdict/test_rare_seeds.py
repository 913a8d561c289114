"""What the test of "no worse" keeps, and what it cannot see."""

from __future__ import annotations

from benchmarks.verdict.rare_seeds import wrongly_claimed


def test_without_bad_seeds_it_errs_as_seldom_as_it_says() -> None:
    wrong = wrongly_claimed(0.0, 0.0, draws=1000)
    assert 0.02 < wrong["one look"] < 0.06
    assert 0.02 < wrong["any of the three"] < 0.06
    assert wrong["three looks"] < 0.025


def test_of_rare_and_very_bad_seeds_it_says_too_much() -> None:
    assert wrongly_claimed(0.02, 0.2, draws=500)["one look"] > 0.09
