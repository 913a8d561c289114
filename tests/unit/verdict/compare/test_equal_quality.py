"""The levels at which times are compared, as they are shown."""

from __future__ import annotations

from tuner.verdict.compare.registered import shown_levels


def test_levels_have_as_many_digits_as_it_takes_to_tell_them_apart() -> None:
    assert shown_levels([0.8156, 0.834]) == ["0.8156", "0.834"]
    assert shown_levels([0.81561, 0.81564]) == ["0.81561", "0.81564"]
    assert shown_levels([1010000.801, 1010000.802]) == ["1010000.801", "1010000.802"]
    assert shown_levels([1234.56]) == ["1235"]
    assert shown_levels([]) == []
