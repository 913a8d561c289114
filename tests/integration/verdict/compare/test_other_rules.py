"""Whether a verdict stands under another stopping rule, of studies whose answers are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.support.other_rules import (
    BEST,
    all_after,
    evenly,
    half_after,
    judged,
    level_of,
    ratios,
    search,
)
from tests.support.recorded_studies import record_study
from tuner.spec.membership import Membership
from tuner.storage.queue.epochs import EpochRow
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare import findings
from tuner.verdict.compare.between import standings
from tuner.verdict.compare.other_rules import can_be_replayed, other_rules
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.compare.studies import names_of_groups, read_studies
from tuner.verdict.replayed_runs import both_ways
from tuner.verdict.stopping_rule import StoppingRule, converged_trials, is_recorded


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudySnapshot]:
    """A search of each of two variants, with 16 trials."""
    url = f"sqlite:///{tmp_path_factory.mktemp('rules')}/tuner.db"
    for variant in ("original", "rmsnorm"):
        record_study(url, variant=variant, trials=16)
    found = read_studies(["original", "rmsnorm"], task="demo", storage=url)
    return {study.variant: study for study in found}


def test_the_rules_are_half_the_patience_and_a_share_of_the_default_s_loss(
    recorded: dict[str, StudySnapshot],
) -> None:
    original = recorded["original"]
    default = original.results.default
    assert default is not None
    assert default.recorded.val_loss is not None
    short, coarse = other_rules([original], "original")
    assert short.rule == StoppingRule(patience=5, min_delta=1e-5)
    assert short.words == "With a patience of 5 in place of 10"
    assert coarse.rule.patience == 10
    assert coarse.rule.min_delta == pytest.approx(0.005 * default.recorded.val_loss, rel=0.05)
    assert "(0.5 % of the validation loss of the default of original) in place of 1e-05" in (
        coarse.words
    )
    training = original.definition.training.but(patience=1, min_delta=0.5)
    definition = dataclasses.replace(original.definition, training=training)
    (only,) = other_rules([dataclasses.replace(original, definition=definition)], "original")
    assert only.words == "With a min_delta of 5 (10 times as much) in place of 0.5"


def test_a_rule_that_halves_the_times_of_one_variant_halves_the_ratio(
    recorded: dict[str, StudySnapshot],
) -> None:
    one, other = recorded["original"], recorded["rmsnorm"]
    found = judged([search(one, all_after), search(other, half_after)])[0]
    before, after = ratios(found)
    assert after == pytest.approx(before / 2)
    assert before < 1
    assert found.stands
    assert (found.kept, found.trainings) == (28, 28)
    assert found.sentence == (
        "With a patience of 5 in place of 10, replayed from 28 of 28 recorded trainings: at a "
        f"test MQL of 50.0000 rmsnorm takes {after:.2f} of the time of original, as recorded "
        f"{before:.2f}: it stands, with no claim either way"
    )
    turned = judged([search(one, half_after), search(other, all_after, seconds=0.9 / before)])[0]
    assert ratios(turned) == pytest.approx((0.9, 1.8))
    assert turned.stands is False
    assert turned.sentence.endswith(
        "rmsnorm takes 1.80 of the time of original, as recorded 0.90: it does not stand: "
        "original is faster then, as recorded rmsnorm is faster"
    )


def test_a_rule_that_changes_nothing_lets_the_verdict_stand(
    recorded: dict[str, StudySnapshot],
) -> None:
    found = judged([search(each, all_after) for each in recorded.values()])
    assert [each.stands for each in found] == [True, True]
    for each in found:
        before, after = ratios(each)
        assert after == pytest.approx(before)


def test_a_claim_stays_one_or_the_line_says_that_it_is_lost(
    recorded: dict[str, StudySnapshot],
) -> None:
    one, other = recorded["original"], recorded["rmsnorm"]
    paces = [1.0, 1.05, 1.1, 1.15, 1.2]
    slow = [search(one, half_after, seconds=p, number=n) for n, p in enumerate(paces, 1)]
    own = ratios(judged([search(one, evenly), search(other, evenly)])[0])[0]
    equal = 0.52 / own
    fast = [search(other, all_after, seconds=equal * p, number=n) for n, p in enumerate(paces, 1)]
    times = {"demo-original": paces, "demo-rmsnorm": [0.52 * pace for pace in paces]}
    lost = judged([*slow, *fast], times)[0]
    assert lost.recorded is not None
    assert lost.replayed is not None
    assert (lost.recorded.claimed, lost.replayed.claimed) == (True, False)
    assert lost.stands is False
    assert lost.sentence.endswith("the searches do not show a difference any more")
    alike = [search(other, evenly, seconds=equal * p, number=n) for n, p in enumerate(paces, 1)]
    steady = [search(one, evenly, seconds=p, number=n) for n, p in enumerate(paces, 1)]
    kept = judged([*steady, *alike], times)[0]
    assert kept.stands
    assert kept.sentence.endswith(": it stands")
    document = kept.as_dict()
    assert document["stands"] is True
    assert document["as_recorded"]["searches"] == [5, 5]
    assert (document["patience"], document["own_patience"]) == (5, 10)
    other_way = {name: times[name] for name in reversed(times)}
    reverse = dict(zip(times, other_way.values(), strict=True))
    unlike = judged([*steady, *alike], reverse)[0]
    assert unlike.stands is None
    assert "these trainings alone do not show what the verdict says" in unlike.sentence


def test_what_keeps_other_weights_is_in_neither_figure(recorded: dict[str, StudySnapshot]) -> None:
    late = search(recorded["original"], evenly, late=2)
    both = both_ways(late, StoppingRule(patience=5, min_delta=1e-5))
    assert (both.trainings, both.kept) == (14, 12)
    assert len(both.recorded) == len(both.replayed) == 12
    assert {run.epochs for run in both.replayed} == {BEST + 5}
    few = search(recorded["rmsnorm"], evenly, late=3)
    found = judged([search(recorded["original"], evenly), few])[0]
    assert found.stands is None
    assert found.sentence == (
        "With a patience of 5 in place of 10 it cannot be told whether the verdict between "
        "rmsnorm and original stands (11 configurations of demo-rmsnorm are known under it, 12 "
        "are the least)"
    )


def test_each_seed_of_a_trial_is_a_training_and_some_seeds_alone_are_none(
    recorded: dict[str, StudySnapshot],
) -> None:
    study = search(recorded["original"], evenly)
    rule = StoppingRule(patience=5, min_delta=1e-5)
    number = next(r.number for r in study.results.records if r.converged)
    (trial,) = (r for r in study.results.records if r.number == number)
    flat = {"wall_clock_s": 3.0, "test_mql": 0.9, "converged": True, "contaminated": False}
    seeds = dataclasses.replace(trial.recorded, runs=[flat, {**flat, "test_mql": 0.8}])
    records = [
        dataclasses.replace(each, recorded=seeds) if each.number == number else each
        for each in study.results.records
    ]
    results = dataclasses.replace(study.results, records=tuple(records))
    one_known = dataclasses.replace(study, results=results)
    assert both_ways(one_known, rule).kept == 13

    def curves(asked: Collection[int]) -> dict[int, tuple[EpochRow, ...]]:
        found = dict(study.curves(asked))
        if number in found:
            again = (dataclasses.replace(row, repeat=1) for row in found[number])
            found[number] = (*found[number], *again)
        return found

    both = both_ways(dataclasses.replace(one_known, curves=curves), rule)
    assert (both.trainings, both.kept) == (15, 15)
    assert [run.mql for run in both.replayed if run.trial == number] == [0.9, 0.8]
    assert [run.seconds for run in both.recorded if run.trial == number] == [3.0, 3.0]


def test_times_that_a_stranger_wrote_are_left_out(recorded: dict[str, StudySnapshot]) -> None:
    rule = StoppingRule(patience=5, min_delta=1e-5)
    for wrong in (float("nan"), float("inf"), 0.0, -1.0):
        both = both_ways(search(recorded["original"], lambda _, wrong=wrong: wrong), rule)  # type: ignore[misc]
        assert (both.trainings, both.kept) == (14, 0)


def test_without_epochs_it_cannot_be_told(recorded: dict[str, StudySnapshot]) -> None:
    old = dataclasses.replace(search(recorded["rmsnorm"], evenly), curves=lambda _: {})
    found = judged([search(recorded["original"], evenly), old])
    assert [each.stands for each in found] == [None, None]
    assert found[0].sentence.endswith("stands (no epochs of demo-rmsnorm are recorded)")
    assert found[0].as_dict()["as_recorded"] is None
    assert is_recorded(recorded["original"])
    assert not is_recorded(old)
    assert not can_be_replayed([recorded["original"], old], [])


def test_other_clocks_and_rules_are_not_replayed(recorded: dict[str, StudySnapshot]) -> None:
    one, other = (search(each, evenly) for each in recorded.values())
    training = other.definition.training.but(patience=4)
    for change, words in (
        ({"training": training}, "have stopping rules of their own"),
        ({"objectives": ("total_s", "test_mql")}, "is total_s, not wall_clock_s"),
        ({"mql_split": "val"}, "was not searched on the test MQL"),
    ):
        definition = dataclasses.replace(other.definition, **change)
        found = judged([one, dataclasses.replace(other, definition=definition)])
        assert words in found[0].sentence


def test_epochs_are_there_when_the_database_is_closed(
    recorded: dict[str, StudySnapshot], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/tuner.db"
    record_study(url, variant="original", trials=5)
    (whole,) = read_studies(["original"], task="demo", storage=url, curves=True)
    (first,) = read_studies(["original"], task="demo", storage=url)
    (tmp_path / "tuner.db").rename(tmp_path / "away.db")
    assert sorted(whole.curves([0, 1, 2])) == [0, 1, 2]
    assert is_recorded(first)


def test_where_a_claim_is_possible_epochs_are_read_for_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tuner.db"
    for variant in ("original", "rmsnorm"):
        for number in range(1, 6):
            name = f"demo-{variant}-{number}"
            place = Membership.of_new(name, group=f"demo-{variant}", search=number)
            record_study(url, variant=variant, name=name, trials=3, membership=place)
    found = read_studies(["original", "rmsnorm"], task="demo", storage=url)
    (tmp_path / "tuner.db").rename(tmp_path / "away.db")
    assert len(found) == 10
    for each in found:
        assert sorted(each.curves(converged_trials(each))) == converged_trials(each)


def test_a_claim_says_without_being_asked_whether_it_stands(
    recorded: dict[str, StudySnapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = list(recorded.values())
    groups = groups_of(studies)
    level = level_of(groups)
    (verdict,) = standings(groups, [level], names_of_groups(studies))
    monkeypatch.setattr(findings, "registered_levels", lambda _: (level,))
    for claimed in (False, True):
        said = dataclasses.replace(verdict, claimed=claimed)
        monkeypatch.setattr(findings, "standings", lambda *_, said=said: (said,))
        report = findings.compare(studies)
        assert (report.other_rules is not None) == claimed
    assert report.other_rules
