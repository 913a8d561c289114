"""What the test of "no worse" keeps, and what it cannot see."""

from __future__ import annotations

from benchmarks.verdict.rare_seeds import wrongly_claimed


def test_without_bad_seeds_it_errs_as_seldom_as_it_says() -> None:
    assert 0.02 < wrongly_claimed(0.0, 0.0, 30, draws=1000) < 0.06


def test_of_rare_and_very_bad_seeds_it_says_too_much() -> None:
    assert wrongly_claimed(0.02, 0.2, 30, draws=500) > 0.1
