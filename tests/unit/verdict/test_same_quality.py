"""What a study recommends, from the campaign's exports and from studies that say too little."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.paths import REPOSITORY
from tuner.errors import UsageError
from tuner.spec.margin import LEAST_RUNS
from tuner.study.archive import read_archive
from tuner.study.results import StudyResults
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.reasons import because_of_answer
from tuner.verdict.recommendation import CHANCE, NoAnswerError, model_of, percent, why_none
from tuner.verdict.runs_model import FENCE, LEAST_CONFIGURATIONS, RunsModel
from tuner.verdict.same_quality import (
    Answer,
    answer_of,
    least_runs,
    recommended,
    recommended_against,
    recommended_trial,
)

CAMPAIGN = REPOSITORY / "benchmarks" / "campaign"


def exported(name: str) -> StudySnapshot:
    return snapshot(read_archive(CAMPAIGN / f"etth-{name}.json.gz"))


@pytest.fixture(scope="module")
def rmsnorm() -> StudySnapshot:
    return exported("rmsnorm")


@pytest.fixture(scope="module")
def layernorm() -> StudySnapshot:
    return exported("layernorm")


@pytest.fixture(scope="module")
def models(rmsnorm: StudySnapshot, layernorm: StudySnapshot) -> dict[str, RunsModel]:
    found = {study.variant: model_of(study) for study in (rmsnorm, layernorm)}
    return {name: model for name, model in found.items() if model is not None}


def with_records(study: StudySnapshot, results: StudyResults) -> StudySnapshot:
    return dataclasses.replace(study, results=results)


def test_it_is_the_fastest_of_those_that_are_surely_as_good(
    rmsnorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    model = models["rmsnorm"]
    answer = recommended(rmsnorm, model, margin=0.01)
    assert not answer.default_stands
    assert answer.nearest is None
    chances = dict(zip(model.trials, model.chance_of_default(0.01), strict=True))
    seconds = dict(zip(model.trials, model.seconds, strict=True))
    assert answer.default is not None
    runs = dict(zip(model.trials, model.runs, strict=True))
    among = [n for n in candidates_of(rmsnorm) if runs.get(n, 0) >= LEAST_RUNS]
    sure = [number for number in among if chances[number] >= CHANCE]
    assert answer.chosen.trial == min(sure, key=lambda number: seconds[number])
    assert answer.chosen.seconds < answer.default.seconds
    assert answer.chosen.chance == chances[answer.chosen.trial] >= CHANCE
    assert recommended_trial(rmsnorm) == answer.chosen.trial


def test_where_nothing_is_surely_as_good_the_default_stands_and_the_nearest_is_named(
    layernorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    answer = recommended(layernorm, models["layernorm"], margin=0.01)
    assert answer.default_stands
    assert answer.chosen.trial == 0
    assert answer.nearest is not None
    assert answer.nearest.chance < CHANCE
    assert answer.nearest.seconds < answer.chosen.seconds
    said = because_of_answer(answer)
    assert said.startswith("The default stands")
    assert f"trial {answer.nearest.trial} " in said
    assert percent(answer.nearest.chance) in said


def test_once_a_verification_has_run_what_is_recommended_has_run_some_times() -> None:
    verified = exported("batchnorm")
    assert verified.runs
    answer = answer_of(verified)
    assert isinstance(answer, Answer)
    assert answer.default_stands
    assert answer.nearest is not None
    assert answer.nearest.chance >= CHANCE
    assert answer.nearest.runs == 1
    said = because_of_answer(answer)
    assert f"but it ran once, and {LEAST_RUNS} runs of it are needed. " in said
    assert said.endswith("tests what may be as good, on fresh seeds: tuner verify --confirm.")
    searched = dataclasses.replace(verified, read_runs=lambda: ())
    assert least_runs(searched) == 1
    assert least_runs(verified) == LEAST_RUNS


def test_where_a_search_runs_configurations_again_what_is_recommended_has_run_some_times(
    rmsnorm: StudySnapshot,
) -> None:
    searched = dataclasses.replace(rmsnorm, read_runs=lambda: ())
    default = searched.results.default
    assert default is not None
    other = next(each for each in searched.results.complete if not each.is_default)
    for again, least in ((default, 1), (other, LEAST_RUNS)):
        repeated = dataclasses.replace(again, number=10**6)
        more = dataclasses.replace(searched.results, records=(*searched.results.records, repeated))
        assert least_runs(with_records(searched, more)) == least


def test_a_wider_margin_never_recommends_what_is_slower(
    layernorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    margins = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08)
    answers = [recommended(layernorm, models["layernorm"], margin=each) for each in margins]
    seconds = [answer.chosen.seconds for answer in answers]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < seconds[0]
    assert "no higher than the default's" in because_of_answer(answers[0])


def test_what_is_expected_must_be_within_the_bounds(
    rmsnorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    model = models["rmsnorm"]
    free = recommended(rmsnorm, model, margin=0.01)
    same = recommended(rmsnorm, model, margin=0.01, bounds=(free.chosen.seconds, None))
    assert same.chosen == free.chosen
    with pytest.raises(NoAnswerError, match=r"surely enough as good as its default with wall_cl"):
        recommended(rmsnorm, model, margin=0.01, bounds=(0.99 * free.chosen.seconds, None))
    with pytest.raises(NoAnswerError, match=r"test_mql <= 0\.1; the nearest to that is trial \d+"):
        recommended(rmsnorm, model, margin=0.01, bounds=(None, 0.1))


def test_another_studys_default_can_be_asked_for(
    rmsnorm: StudySnapshot, layernorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    model = models["rmsnorm"]
    answer = recommended_against(rmsnorm, model, layernorm, margin=0.01)
    assert answer.against is not None
    assert answer.against.study == "etth-layernorm"
    row = models["layernorm"].trials.index(0)
    assert answer.against.mql == pytest.approx(models["layernorm"].mql[row])
    assert 0 < answer.against.error < 0.01
    chances = model.chance_of_level(1.01 * answer.against.mql, error=answer.against.error)
    assert answer.chosen.chance == chances[model.trials.index(answer.chosen.trial)] >= CHANCE
    assert "the default of etth-layernorm" in because_of_answer(answer)


def test_only_what_compares_is_held_against(
    rmsnorm: StudySnapshot, layernorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    other_data = dataclasses.replace(
        layernorm, definition=dataclasses.replace(layernorm.definition, data_hash="0" * 64)
    )
    with pytest.raises(UsageError, match="is of another data than"):
        recommended_against(rmsnorm, models["rmsnorm"], other_data, margin=0.01)
    with pytest.raises(UsageError, match="is the study itself"):
        recommended_against(rmsnorm, models["rmsnorm"], rmsnorm, margin=0.01)
    few = with_records(
        layernorm, dataclasses.replace(layernorm.results, records=layernorm.results.records[:5])
    )
    with pytest.raises(NoAnswerError, match=r"--against etth-layernorm is no reference: of study"):
        recommended_against(rmsnorm, models["rmsnorm"], few, margin=0.01)


def test_too_few_trials_say_so(layernorm: StudySnapshot) -> None:
    converged = [record for record in layernorm.results.complete if record.converged]
    for count in (0, 1, LEAST_CONFIGURATIONS - 1, LEAST_CONFIGURATIONS):
        results = dataclasses.replace(layernorm.results, records=tuple(converged[:count]))
        study = with_records(layernorm, results)
        reason = why_none(study)
        if count == LEAST_CONFIGURATIONS:
            assert reason is None
            assert isinstance(answer_of(study), Answer)
            continue
        assert reason is not None
        assert f"{count} configuration{'' if count == 1 else 's'} converged" in reason
        assert answer_of(study) == reason
        assert recommended_trial(study) is None
        with pytest.raises(NoAnswerError, match="nothing to recommend: of study"):
            recommended(study, model_of(study), margin=0.01)


def test_a_default_that_did_not_converge_says_so(layernorm: StudySnapshot) -> None:
    records = [
        dataclasses.replace(each, recorded=dataclasses.replace(each.recorded, converged=False))
        if each.is_default
        else each
        for each in layernorm.results.records
    ]
    study = with_records(layernorm, dataclasses.replace(layernorm.results, records=tuple(records)))
    reason = why_none(study)
    assert reason is not None
    assert "the default configuration of study 'etth-layernorm' has no run that converged" in reason
    with pytest.raises(NoAnswerError, match="no run that converged"):
        recommended(study, model_of(study), margin=0.01)
    assert why_none(study, default=False) is None


def test_a_default_beyond_the_studys_limits_does_not_stand(
    layernorm: StudySnapshot, models: dict[str, RunsModel]
) -> None:
    records = [
        dataclasses.replace(each, feasible=not each.is_default)
        for each in layernorm.results.records
    ]
    study = with_records(layernorm, dataclasses.replace(layernorm.results, records=tuple(records)))
    with pytest.raises(NoAnswerError, match=r"surely enough as good as its default; the nearest"):
        recommended(study, models["layernorm"], margin=0.01)


def test_what_is_far_worse_than_the_default_is_as_bad_as_its_own_runs_say(
    layernorm: StudySnapshot,
) -> None:
    values = layernorm.record(15).values
    assert values is not None
    seconds, before = values
    records = [
        dataclasses.replace(each, values=(seconds, 5 * before)) if each.number == 15 else each
        for each in layernorm.results.records
    ]
    study = with_records(layernorm, dataclasses.replace(layernorm.results, records=tuple(records)))
    model = model_of(study)
    assert model is not None
    mql = dict(zip(model.trials, model.mql, strict=True))
    assert mql[15] == pytest.approx(5 * before)
    assert all(mql[n] < FENCE * mql[0] for n in mql if n != 15)
    assert model.mql_error.shape == model.mql.shape


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(order=st.randoms(use_true_random=False))
def test_the_same_answer_again_in_whatever_order_the_records_come(
    layernorm: StudySnapshot, order: object
) -> None:
    first = answer_of(layernorm)
    assert isinstance(first, Answer)
    assert answer_of(exported("layernorm")) == first
    shuffled = list(layernorm.results.records)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    study = with_records(layernorm, dataclasses.replace(layernorm.results, records=tuple(shuffled)))
    again = answer_of(study)
    assert isinstance(again, Answer)
    assert (again.chosen.trial, again.chosen.runs) == (first.chosen.trial, first.chosen.runs)
    assert again.chosen.seconds == pytest.approx(first.chosen.seconds, rel=1e-6)


@pytest.mark.parametrize("name", ["original", "rmsnorm"])
def test_quick_exports_are_too_few(name: str) -> None:
    study = snapshot(read_archive(Path(REPOSITORY) / "notebooks" / "data" / f"{name}.json.gz"))
    assert "and it takes 12" in (why_none(study) or "")


def test_a_chance_is_never_told_as_certain() -> None:
    assert [percent(each) for each in (1.0, 0.996, 0.954, 0.012, 0.001)] == [
        "more than 99 %",
        "more than 99 %",
        "95 %",
        "1 %",
        "less than 1 %",
    ]
