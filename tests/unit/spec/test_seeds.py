"""Seeds of trainings: fixed by what a study is called, unrelated between trials and studies, and as
they always were for studies of before."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import BENCHMARKS
from tuner.record import Recorded
from tuner.spec.membership import Membership, root_of, seed_of_trial, seeds_of
from tuner.study.archive import read_archive

CAMPAIGN = BENCHMARKS / "campaign"
NAMES = st.text(min_size=1, max_size=30)
NUMBERS = st.integers(0, 10_000)
REPEATS = st.integers(0, 20)


def seeds(root: int | None, trials: int = 1000) -> set[int]:
    return {seed_of_trial(number, root=root) for number in range(trials)}


def test_a_study_of_before_keeps_its_seeds() -> None:
    archive = read_archive(CAMPAIGN / "etth-rmsnorm.json.gz")
    assert archive.membership == Membership(group="etth-rmsnorm", search=1, seed_root=None)
    recorded = {r.number: r.recorded.seed for r in archive.records if r.recorded.seed is not None}
    assert len(recorded) > 100
    assert recorded == {number: seed_of_trial(number, root=None) for number in recorded}
    assert seed_of_trial(4, 2, root=None) == np.random.SeedSequence([4, 2]).generate_state(1)[0]


def test_seeds_of_a_study_are_the_same_every_time_and_unrelated() -> None:
    for root in (None, root_of("etth-rmsnorm")):
        found = [seed_of_trial(n, k, root=root) for n in range(100) for k in range(3)]
        assert found == [seed_of_trial(n, k, root=root) for n in range(100) for k in range(3)]
        assert len(set(found)) == len(found)
        assert all(0 <= seed < 2**32 for seed in found)


def test_two_searches_share_no_seed() -> None:
    names = ["etth-rmsnorm", "etth-rmsnorm-2", "etth-rmsnorm-3", "etth-original"]
    found = [seeds(None), *(seeds(root_of(name)) for name in names)]
    assert len(set().union(*found)) == sum(map(len, found))


@given(NAMES, NAMES, NUMBERS, REPEATS)
def test_what_a_study_is_called_decides_its_seeds(
    name: str, other: str, number: int, repeat: int
) -> None:
    root = root_of(name)
    assert root == root_of(name)
    assert 2**62 <= root < 2**63
    seed = seed_of_trial(number, repeat, root=root)
    assert seed == seed_of_trial(number, repeat, root=root)
    if name != other:
        assert root != root_of(other)
        # All four numbers of one study at once: one of them might meet by chance.
        assert [seed_of_trial(n, repeat, root=root) for n in range(4)] != [
            seed_of_trial(n, repeat, root=root_of(other)) for n in range(4)
        ]


def test_recorded_seeds_come_before_those_of_the_rule() -> None:
    root = root_of("a")
    rule = [seed_of_trial(7, repeat, root=root) for repeat in range(3)]
    assert seeds_of(Recorded(), 7, repeats=1, root=root) == rule[:1]
    assert seeds_of(Recorded(seed=5), 7, repeats=1, root=root) == [5]
    assert seeds_of(Recorded(seed=5), 7, repeats=3, root=root) == rule
    runs: list[dict[str, Any]] = [{"seed": 8}, {"seed": "9"}]
    assert seeds_of(Recorded(seed=8, runs=runs), 7, repeats=3, root=root) == [8, *rule[1:]]
