"""The trainings of a study, whichever run they were: from a committed export."""

import dataclasses
import math
from pathlib import Path

import pytest

from tests.support.present import present
from tuner.record import Recorded
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.known_runs import candidates_of, runs_of
from tuner.verdict.recommendation import model_of, recommend
from tuner.verdict.verified import values_in

EXPORT = Path(__file__).parents[3] / "benchmarks" / "campaign" / "etth-original.json.gz"


@pytest.fixture(scope="module")
def study() -> StudySnapshot:
    return read_studies([str(EXPORT)], task="etth", storage="sqlite:///none.db")[0]


def test_every_training_that_converged_is_a_run(study: StudySnapshot) -> None:
    runs = runs_of(study)
    converged = [record for record in study.results.complete if record.converged]
    assert len(runs) == len(converged) + len(study.runs)
    assert {run.trial for run in runs} == {record.number for record in converged}
    default = [run for run in runs if run.trial == 0]
    assert len(default) == 11
    assert (default[0].seconds, default[0].mql) == study.record(0).values
    assert default[0].epochs == 48


def test_runs_on_another_device_do_not_count(study: StudySnapshot) -> None:
    elsewhere = dataclasses.replace(study, device_model="another")
    assert len(runs_of(elsewhere)) == len(runs_of(study)) - len(study.runs)


def test_disturbed_timings_count_where_there_is_no_other(study: StudySnapshot) -> None:
    def disturbed(number: int) -> StudySnapshot:
        record = study.record(number)
        recorded = dataclasses.replace(record.recorded, contaminated=True)
        others = tuple(each for each in study.results.records if each.number != number)
        record = dataclasses.replace(record, recorded=recorded)
        results = dataclasses.replace(study.results, records=(*others, record))
        return dataclasses.replace(study, results=results)

    verified = [run for run in runs_of(disturbed(0)) if run.trial == 0]
    assert [run.seconds is None for run in verified] == [True] + [False] * 10
    (alone,) = (run for run in runs_of(disturbed(1)) if run.trial == 1)
    assert alone.seconds == study.record(1).recorded.wall_clock_s


def test_the_runs_of_each_seed_of_a_trial_are_runs(study: StudySnapshot) -> None:
    record = study.record(1)
    assert record.values is not None
    flat = [
        {"converged": True, "wall_clock_s": 0.5 + 0.1 * i, "test_mql": 0.8, "epochs": 20 + i}
        for i in range(3)
    ]
    several = dataclasses.replace(record, recorded=dataclasses.replace(record.recorded, runs=flat))
    results = dataclasses.replace(study.results, records=(study.record(0), several))
    runs = [r for r in runs_of(dataclasses.replace(study, results=results)) if r.trial == 1]
    assert [(run.seconds, run.epochs) for run in runs] == [(0.5, 20), (0.6, 21), (0.7, 22)]


def test_a_configuration_that_missed_on_a_fresh_seed_is_no_candidate(study: StudySnapshot) -> None:
    run = next(run for run in study.runs if run.trial_number == 177)
    assert run.result is not None
    missed = dataclasses.replace(
        run.result, recorded=dataclasses.replace(run.result.recorded, converged=False)
    )
    runs = (dataclasses.replace(run, result=missed), *study.runs[1:])
    changed = dataclasses.replace(study, read_runs=lambda: runs)
    assert candidates_of(study) - candidates_of(changed) == {177}


def test_a_run_whose_test_mql_is_no_number_is_a_miss(study: StudySnapshot) -> None:
    """JSON has no infinity: such a figure is stored as null, and its name among the nulls."""
    run = next(run for run in study.runs if run.trial_number == 177)
    result = present(run.result)
    for changed, counts in (
        ({"test_mql": math.inf}, False),
        ({"test_mql": 0.9}, True),
        ({"test_mql": None}, True),  # an older one, whose values have it
    ):
        recorded = dataclasses.replace(result.recorded, **changed).storable()
        stored = dataclasses.replace(result, recorded=Recorded.from_flat(recorded.to_flat()))
        found = values_in(dataclasses.replace(run, result=stored))
        assert (found is not None) is counts


def test_the_lucky_knee_of_the_campaign_is_not_recommended(study: StudySnapshot) -> None:
    model = model_of(study)
    assert model is not None
    chances = dict(zip(model.trials, model.chance_of_default(0.01), strict=True))
    assert max(chances[number] for number in (177, 194, 117, 139, 192)) < 0.05
    found = recommend(model, candidates=candidates_of(study))
    assert found.default is not None
    assert found.default.runs == 11
    named = found.chosen or found.nearest
    assert named is not None
    assert named.seconds < found.default.seconds


def test_too_few_configurations_make_no_model(study: StudySnapshot) -> None:
    few = dataclasses.replace(study.results, records=study.results.records[:5])
    assert model_of(dataclasses.replace(study, results=few)) is None
