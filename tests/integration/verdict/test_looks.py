"""A confirmation looks after a third of its seeds and after two: what is decided runs no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.drawn_verifications import drawn_result, verify_all
from tests.support.planned_confirmations import last, opened
from tuner.export.load import load_best
from tuner.export.script_text import headline
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy
from tuner.study.transfer import restore
from tuner.trial.job import TrialJob
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.reasons import confirmed_sentence
from tuner.verdict.verified import verifications_of

SEEDS, FIRST = 90, 30
USUAL, OFF = 0.8, 0.0045
"""MQLs of the default, and how far each run is from its mean: after 30 seeds a difference is known
to 0.21 % of that."""
AT_TWO_LOOKS = 0.80405
"""0.51 % more: within 1 %, which takes 60 seeds to say, and no hope to be within 0.5 %."""
Run = Callable[[TrialJob], TrialResult]


class Alternating:
    """Runs above and below their mean in turn, the default's the other way round."""

    def __init__(self, mql: float, *, default: float = USUAL) -> None:
        self._mql, self._default = mql, default
        self._ran: Counter[tuple[str, int]] = Counter()

    def __call__(self, job: TrialJob) -> TrialResult:
        self._ran[job.study, job.number] += 1
        sign = (-1) ** self._ran[job.study, job.number]
        if job.number == 0:
            return drawn_result(job, mql=self._default - sign * OFF, sd_mql=0.0)
        return drawn_result(job, seconds=6.0, mql=self._mql + sign * OFF, sd_mql=0.0)


def looked(studies: Sequence[OpenStudy], run: Run) -> list[int]:
    """New runs of each look, until there are none."""
    new: list[int] = []
    while (planned := plan_confirmation(studies, seeds=SEEDS)).new_runs:
        assert len(new) < 3, "it ends with its last look"
        new.append(planned.new_runs)
        assert not last(studies[0]).complete
        verify_all(studies, run)
        assert all(last(each).complete for each in studies)
    return new


def runs_of(study: OpenStudy) -> Counter[int]:
    """By trial, each on seeds of its own."""
    runs = verifications_of([study]).runs()
    assert len({(run.trial_number, run.seed) for run in runs}) == len(runs)
    return Counter(run.trial_number for run in runs)


@pytest.mark.parametrize(("mql", "claimed"), [(0.79, True), (0.83, False)])
def test_what_a_third_of_the_seeds_decides_runs_no_more(
    unverified: Database, mql: float, claimed: bool
) -> None:
    (study,) = opened(unverified, "demo-rmsnorm")
    (new,) = looked([study], Alternating(mql))
    there = last(study)
    assert new == FIRST * len(there.frozen.trials())
    assert (there.holds, there.test and there.test.blocks) == (claimed, FIRST)
    steps = there.frozen.steps()
    assert there.at_no_loss == (steps[-1] if claimed else None)
    best = load_best(study=study.name, storage=unverified.address.full())
    assert (best.trial == there.trial) == claimed
    gain = "1.7 times as fast as its default (6.00 s, was "
    assert any(gain in line for line in headline(best)) == claimed
    said = confirmed_sentence(there, name="it")
    assert f"on {FIRST} untouched seeds" in said
    assert ("it is at no loss, too (surely less than 0.5 % worse)" in said) == claimed


def test_what_is_not_decided_goes_on_beside_its_default_alone(unverified: Database) -> None:
    """It is worse by more than half of the margin, and no other question is open."""
    (study,) = opened(unverified, "demo-rmsnorm")
    first, second = looked([study], Alternating(AT_TWO_LOOKS))
    there = last(study)
    tried = runs_of(study)
    assert first == FIRST * len(there.frozen.trials())
    assert second == FIRST * sum(count > FIRST for count in tried.values())
    assert tried[there.frozen.default] == max(tried.values()) == 2 * FIRST
    assert there.holds
    assert there.test is not None
    assert there.test.blocks == 2 * FIRST
    assert there.at_no_loss is None
    assert "none is shown to be at no loss" in confirmed_sentence(there, name="it")


def test_anothers_default_goes_on_for_what_is_held_against_it(unverified: Database) -> None:
    studies = opened(unverified, "demo-original", "demo-rmsnorm")

    # The variant is much better than its own default, and near the margin of the other's.
    of = {"demo-original": Alternating(0.79), "demo-rmsnorm": Alternating(0.8053, default=0.84)}

    def run(job: TrialJob) -> TrialResult:
        return of[job.study](job)

    new = looked(studies, run)
    of_reference, of_variant = map(runs_of, studies)
    one, other = map(last, studies)
    assert len(new) > 1
    assert of_reference[one.frozen.default] > FIRST
    assert all(of_reference[number] == FIRST for number in one.frozen.steps())
    assert of_variant[other.frozen.default] == FIRST
    assert max(of_variant[number] for number in other.frozen.offered()) > FIRST


def test_an_export_between_two_looks_goes_on_elsewhere(
    unverified: Database, tmp_path: Path
) -> None:
    (study,) = opened(unverified, "demo-rmsnorm")
    looked([study], Alternating(AT_TWO_LOOKS))
    archive = archive_of(study)
    early = tuple(each for each in archive.verifications if each.block < 44)
    path = tmp_path / "early.json.gz"
    write_archive(replace(archive, verifications=early), path)
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    taken = restore(elsewhere, read_archive(path), study.name)
    assert not last(taken).complete
    looked([taken], Alternating(AT_TWO_LOOKS))
    assert runs_of(taken) == runs_of(study)
    elsewhere.close()


def test_a_plan_whose_looks_go_beyond_its_seeds_is_gone_on_with(unverified: Database) -> None:
    """As a stranger may have written it."""
    (study,) = opened(unverified, "demo-rmsnorm")
    plan_confirmation([study], seeds=SEEDS)
    queue = verifications_of([study])
    for run in queue.runs():
        queue.note(run, run.plan | {"seeds": 20, "looks": [30, 60]})
    verify_all([study], Alternating(AT_TWO_LOOKS))
    assert plan_confirmation([study], seeds=SEEDS).new_runs > 0
