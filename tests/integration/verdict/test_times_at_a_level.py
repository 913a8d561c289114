"""What a search answers at the quality of another default: whole searches, each confirmed on seeds
that nothing has seen, on every database."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.drawn_verifications import drawn_result, verify_all
from tests.support.planned_confirmations import SEEDS, known, last, opened
from tuner.storage.database import Database
from tuner.storage.records import TrialResult
from tuner.study.snapshot import open_group, snapshot
from tuner.trial.job import TrialJob
from tuner.verdict import confirmation_plan
from tuner.verdict.compare.findings import compare
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.runs_model import Quality, RunsModel
from tuner.verdict.verified import verifications_of

OFFERED = (9, 5, 7)


def test_another_reference_runs_its_default_beside_and_is_asked_for(unverified: Database) -> None:
    reference = open_group(unverified, "demo-original")
    (study,) = opened(unverified, "demo-rmsnorm")
    plan_confirmation([study], reference=reference, seeds=SEEDS)
    assert last(study).reference == "demo-original"
    both = [study, *reference.members]
    ran = {(run.study_id, run.trial_number) for run in verifications_of(both).runs()}
    assert (reference.members[0].study_id, 0) in ran
    verify_all(both, known())
    report = compare([snapshot(each) for each in (*reference.members, study)])
    (level, *_) = report.registered
    assert (level.group, level.confirmed, level.runs) == ("demo-original", True, SEEDS)
    assert report.confirmed[0].confirmation.study == "demo-rmsnorm"


def test_whole_searches_are_compared_and_two_of_each_are_too_few_for_a_claim(
    unverified: Database,
) -> None:
    studies = opened(unverified)
    plan_confirmation(studies, seeds=SEEDS)
    verify_all(studies, known())
    report = compare([snapshot(each) for each in studies])
    (level, other) = report.registered
    assert level.confirmed
    assert level.runs == SEEDS, "both searches have the same"
    assert level.mql == pytest.approx(1.01 * level.default_mql)
    assert other.group == "demo-rmsnorm"
    times = level.searches["demo-rmsnorm"]
    for each in (*times, *level.searches["demo-original"]):
        pace = 0.5 if "rmsnorm" in each.study else 1.0
        takes = {"recommended": 6.0, "default": 10.0}[each.how]
        assert each.seconds == pytest.approx(takes * pace, rel=0.05)
    assert "recommended" in {each.how for each in times}
    assert all(each.confirmed for each in times)
    (standing,) = report.between
    assert standing.found is not None
    assert standing.found.searches == (2, 2)
    assert standing.found.ratio is not None
    assert 0.3 * 0.95 < standing.found.ratio < 0.5 / 0.6 * 1.05
    assert not standing.claimed
    assert "2 and 2 searches are too few: searches of one variant differ" in standing.sentence
    assert report.as_dict()["between_variants"][0]["claimed"] is False


def test_what_does_not_reach_the_level_is_its_default_or_nothing(unverified: Database) -> None:
    studies = opened(unverified)
    plan_confirmation(studies, seeds=SEEDS)

    def run(job: TrialJob) -> TrialResult:
        worse = 0.83 if "rmsnorm" in job.study else 0.8
        return known(mql=0.83, default=worse)(job)

    verify_all(studies, run)
    (level, _) = compare([snapshot(each) for each in studies]).registered
    assert [each.how for each in level.searches["demo-original"]] == ["default", "default"]
    assert [each.how for each in level.searches["demo-rmsnorm"]] == ["not reached"] * 2


def steps(model: RunsModel, *_: object, level: Quality | None = None, **__: object) -> object:
    """As of a study whose fastest configuration is not as surely good as slower ones."""
    chances = np.linspace(0.5, 0.95, len(model.trials))
    numbers = reversed(OFFERED) if level is not None else OFFERED[2:]
    return tuple(model.estimate(number, chances) for number in numbers)


def test_at_anothers_quality_the_last_that_is_claimed_answers_the_surest_being_tested_first(
    unverified: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation_plan, "confirmation_steps", steps)
    studies = opened(unverified, "demo-original", "demo-rmsnorm")
    plan_confirmation(studies, seeds=SEEDS)
    for each in studies:  # the reference is no exception
        assert last(each).frozen.offers == OFFERED
        assert set(OFFERED) <= set(last(each).frozen.trials())

    def run(job: TrialJob) -> TrialResult:
        """The boldest is too bold; the bolder, the faster."""
        if "rmsnorm" not in job.study or job.number not in OFFERED:
            return known()(job)
        place = OFFERED.index(job.number)
        return drawn_result(job, seconds=3.0 + place, mql=0.8 if place else 0.85)

    verify_all(studies, run)
    (level, own) = compare([snapshot(each) for each in studies]).registered
    (found,) = level.searches["demo-rmsnorm"]
    assert (found.trial, found.how, found.confirmed) == (OFFERED[1], "recommended", True)
    assert found.seconds == pytest.approx(4.0, rel=0.05)
    # They are offered for the reference's quality: for its own its recommendation answers.
    (at_own,) = own.searches["demo-rmsnorm"]
    assert at_own.trial == last(studies[1]).frozen.recommended == OFFERED[2]
    assert [each["trial"] for each in last(studies[1]).as_dict()["offers"]] == list(OFFERED)


@pytest.mark.parametrize("mql", [0.806, 0.83])
def test_what_a_median_would_let_pass_is_not_reached_unless_it_is_shown(
    unverified: Database, monkeypatch: pytest.MonkeyPatch, mql: float
) -> None:
    """One rule for both sides: 0.806 is within the margin of 0.8, and so few noisy seeds do not
    show it.
    """
    monkeypatch.setattr(confirmation_plan, "confirmation_steps", steps)
    studies = opened(unverified, "demo-original", "demo-rmsnorm")
    plan_confirmation(studies, seeds=SEEDS)
    ran: Counter[int] = Counter()

    def run(job: TrialJob) -> TrialResult:
        if job.number == 0 and "original" in job.study:
            return known()(job)
        ran[job.number] += 1
        return drawn_result(job, seconds=3.0, mql=mql + 0.03 * (-1) ** ran[job.number])

    verify_all(studies, run)
    (level, _) = compare([snapshot(each) for each in studies]).registered
    (of_reference,) = level.searches["demo-original"]
    assert of_reference.how == "default"
    (found,) = level.searches["demo-rmsnorm"]
    assert (found.how, found.seconds) == ("not reached", None)
    assert found.promised is not None
    assert found.promised > 0.78, "no more than a search of such errors may promise"


def test_a_reference_that_was_confirmed_before_stays_and_is_held_against_by_all_its_runs(
    unverified: Database,
) -> None:
    (study,) = opened(unverified, "demo-original")
    plan_confirmation([study], seeds=SEEDS)
    verify_all([study], known())
    assert plan_confirmation([study], seeds=SEEDS).new_runs == 0
    both = [study, *opened(unverified, "demo-rmsnorm", "demo-rmsnorm-2")]
    assert plan_confirmation(both, seeds=SEEDS).new_runs
    assert last(study).frozen.attempt == 1
    verify_all(both, known())
    (level, _) = compare([snapshot(each) for each in both]).registered
    assert level.runs == 2 * SEEDS, "its default ran again, beside what is held against it"
    assert [each.how for each in level.searches["demo-rmsnorm"]] == ["recommended"] * 2
