"""The file of faults fits the code as it is: `run.py` makes them, which takes its time."""

from __future__ import annotations

from collections import Counter

from tests.mutations.run import read
from tests.support.paths import REPOSITORY

SURVIVED_ONCE = {
    "carried over a resume",
    "device's lock during evaluation",
    "watchdog of a trainer",
    "dashboard over a deleted study's number",
    "caps on what a dead worker is charged",
    "settings away from their defaults",
}


def test_each_fault_changes_one_place_of_the_code_as_it_is() -> None:
    assert [problem for each in read() if (problem := each.problem(REPOSITORY))] == []


def test_no_two_faults_have_one_name() -> None:
    names = Counter(each.name for each in read())
    assert [name for name, times in names.items() if times > 1] == []


def test_each_kind_has_three_faults_or_was_added_because_some_were_not_noticed() -> None:
    kinds = Counter(each.kind for each in read())
    assert kinds.keys() >= SURVIVED_ONCE
    assert [k for k, times in kinds.items() if times < (2 if k in SURVIVED_ONCE else 3)] == []
