"""What plain Optuna sees of a study is the space that was searched, on each database."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.importance import get_param_importances
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import TrialState
from sqlalchemy import update

from tests.support.claims import start
from tests.support.databases import SQLITE_ALONE
from tests.support.foreign_trials import findings, finish_one, result, theirs
from tests.support.open_spaces import DECLARED
from tests.support.small_study import definition
from tuner.cli.main import main
from tuner.config import Hyperparameters, Value
from tuner.search.sampler import EncodedSampler
from tuner.search.suggest import UnfitConfigurationError
from tuner.spec.space import SearchSpace
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.optuna.private import PARAMS
from tuner.storage.records import Claim
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.housekeeping import repair
from tuner.study.open import OpenStudy, create_or_resume, open_study
from tuner.study.results import read_results
from tuner.study.transfer import restore

ALL_KINDS = DECLARED | {
    "hidden_size": {"type": "choice", "choices": [48, 64, 200]},
    "dropout": {"low": 0.0, "high": 0.5},
    "noise": {"type": "float", "low": 0.25, "high": 0.25, "scale": "log", "zero": True},
    "warmth": {"type": "float", "low": 0.01, "high": 1.0, "scale": "log", "zero": True},
}
"""One range of each kind: a logarithmic one whose only values are 0 and its low end, too."""
DEFAULT: dict[str, Value] = {
    "learning_rate": 1e-3,
    "weight_decay": 0.0,
    "dropout": 0.1,
    "hidden_size": 64,
    "batch_size": 192,
    "depth": 2,
    "norm": "layer",
    "bias": True,
    "kernel_size": 5,
    "noise": 0.0,
    "warmth": 0.01,
    "width": 32,
}
OWN = "of every kind"
DRAWS = int(os.environ.get("TUNER_TEST_DRAWS", "40"))
"""Of a random sampler; a fifth of it of one with a model, which is slower."""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with closing(open_database(parse_url(database_url))) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.check.SECOND_LOOK_S", 0.0)
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def searched(database: Database, variant: str, trials: int = 16) -> OpenStudy:
    """A study of a built-in variant, or of the space of every kind, with some finished trials."""
    if variant == OWN:
        space = SearchSpace.model_validate_json(json.dumps(ALL_KINDS), strict=True)
        default = Hyperparameters.of(DEFAULT)
    else:
        file = load_study_file(variant)
        space, default = file.space, file.default_hyperparameters()
    made = dataclasses.replace(definition(), space=space, defaults=default)
    study = create_or_resume(database, "small", made, trials=100)
    study.optuna.sampler = EncodedSampler(space, "qmc", seed=1)
    for number in range(trials):
        finish_one(study, 0.5 + number / 100)
    return study


def plain(study: OpenStudy, sampler: BaseSampler | None = None) -> Study:
    """As a person with Optuna alone loads it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        url = study.database.address.full()
        return optuna.load_study(study_name=study.name, storage=url, sampler=sampler)


def distributions_in(study: Study) -> dict[str, BaseDistribution]:
    return {name: d for trial in study.trials for name, d in trial.distributions.items()}


def proposals(study: OpenStudy, sampler: BaseSampler, count: int) -> list[dict[str, Any]]:
    """What the sampler proposes on the stored trials and distributions; written nowhere."""
    there = plain(study)
    copied = optuna.create_study(directions=there.directions, sampler=sampler)
    copied.add_trials(there.trials)
    distributions = distributions_in(there)
    return [copied.ask(distributions).params for _ in range(count)]


def test_plain_samplers_propose_only_what_the_space_holds(database: Database) -> None:
    study = searched(database, OWN)
    space = study.definition.space
    assert distributions_in(plain(study)) == space.stored()
    drawn = proposals(study, RandomSampler(seed=1), DRAWS)
    drawn += proposals(study, TPESampler(seed=1), DRAWS // 5)
    for params in drawn:
        assert params.keys() == space.ranges.keys()
        assert space.contains(space.only_there(space.true(params))) == []
    low = [params["weight_decay"] for params in drawn[:DRAWS] if params["weight_decay"] < 1e-3]
    assert len(low) > 0.3 * DRAWS


def test_every_built_in_space_holds_what_plain_samplers_draw_from_it() -> None:
    spaces = [load_study_file(variant).space for variant in builtin_variants()]
    for space in {each.model_dump_json(): each for each in spaces}.values():
        all_drawn_are_in(space)


def all_drawn_are_in(space: SearchSpace) -> None:
    study = optuna.create_study(sampler=RandomSampler(seed=3))
    for number in range(12):  # more than TPE begins with
        study.tell(study.ask(space.stored()), float(number))
    trial = study.trials[0]
    for sampler, count in ((RandomSampler(seed=1), DRAWS), (TPESampler(seed=1), DRAWS // 5)):
        for _ in range(count):
            drawn = {
                name: sampler.sample_independent(study, trial, name, distribution)
                for name, distribution in trial.distributions.items()
            }
            assert space.contains(space.only_there(space.true(drawn))) == []


def test_a_weight_decay_of_zero_is_the_lowest_value_to_optuna_and_zero_to_tuner(
    study: OpenStudy, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    finish_one(study)
    (trial,) = plain(study).trials
    distribution = trial.distributions["weight_decay"]
    assert isinstance(distribution, FloatDistribution)
    assert distribution.log
    assert trial.params["weight_decay"] == distribution.low == pytest.approx(1e-6)
    (again,) = open_study(study.database, study.name).optuna.trials
    assert (again.params, again.distributions) == (trial.params, trial.distributions)
    (record,) = read_results(study).records
    assert record.params["weight_decay"] == 0.0
    url = study.database.address.full()
    with pytest.raises(SystemExit) as ended:
        main(["best", "--study", "small", "--trial", "0", "--format", "json", "--storage", url])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["params"]["weight_decay"] == 0.0
    write_archive(archive_of(study), tmp_path / "small.json")
    archive = read_archive(tmp_path / "small.json")
    assert archive.records[0].params["weight_decay"] == 0.0
    copy = restore(study.database, archive, "copy")
    (copied,) = plain(copy).trials
    assert (copied.params, copied.distributions) == (trial.params, trial.distributions)
    assert read_results(copy).records[0].params == record.params


@SQLITE_ALONE
def test_a_check_takes_the_lowest_value_for_zero_and_a_repair_writes_it(
    study: OpenStudy, tmp_path: Path
) -> None:
    finish_one(study)
    assert "weight_decay" not in findings(study)
    before = plain(study).trials[0].params
    with study.database.engine.begin() as connection:
        for name, value in (("weight_decay", 1e-3), ("hidden_size", 0)):
            connection.execute(
                update(PARAMS).where(PARAMS.c.param_name == name).values(param_value=value)
            )
    said = findings(study)
    assert "its weight_decay is 0.001, recorded 0.0" in said
    assert "its hidden_size is 32, recorded 64" in said
    repair(study.database.address, tmp_path)
    assert "weight_decay" not in findings(study)
    assert plain(study).trials[0].params == before


@SQLITE_ALONE
def test_the_low_end_of_a_range_with_zero_is_told_from_zero(study: OpenStudy) -> None:
    finish_one(study)
    low = {"weight_decay": 1e-6, "hidden_size": 128}
    theirs(study).enqueue_trial(low)
    claim, trial = start(study)
    study.ledger.give_back(claim)
    _, again = start(study)
    assert trial.params == again.params
    assert again.params | low == again.params
    assert plain(study).trials[1].params["weight_decay"] == 1e-6
    running = [r for r in read_results(study).records if r.state == TrialState.RUNNING]
    assert running[0].params["weight_decay"] == 1e-6


@SQLITE_ALONE
@pytest.mark.parametrize("zero", [0, None])
def test_what_others_enqueue_runs_once_with_its_true_values(
    study: OpenStudy, zero: float | None
) -> None:
    finish_one(study)
    default = plain(study).trials[0].params
    stood_in = default["weight_decay"] if zero is None else zero
    asked = default | {"hidden_size": 128, "weight_decay": stood_in}
    plain(study).enqueue_trial(asked)
    claim, trial = start(study)
    assert trial.params == asked | {"weight_decay": 0.0}
    study.ledger.give_back(claim)
    claim, trial = start(study)
    assert trial.params == asked | {"weight_decay": 0.0}
    assert study.ledger.finish(claim, result())
    assert read_results(study).records[1].params == trial.params
    stored = plain(study).trials[1]
    assert stored.params == asked | {"weight_decay": default["weight_decay"]}
    _, following = start(study)
    assert following.params != trial.params


@SQLITE_ALONE
@pytest.mark.parametrize(
    "wrong",
    [
        {"weight_decay": 1e-9},
        {"hidden_size": 100},
        {"hidden_size": [64]},
        {"dropout": None},
        {"dropout": 10**400},
    ],
    ids=lambda wrong: str(wrong)[:24],
)
def test_what_others_enqueue_outside_the_space_is_refused(
    study: OpenStudy, wrong: dict[str, Any]
) -> None:
    finish_one(study)
    plain(study).enqueue_trial(wrong)
    claim = study.ledger.claim("ann")
    assert isinstance(claim, Claim)
    said = f"outside the space: {next(iter(wrong))} = "
    if wrong == {"dropout": 10**400}:  # beyond 64 bits: nobody reads that
        said = "which is no configuration"
    with pytest.raises(UnfitConfigurationError, match=said):
        study.ask(claim)
    assert [r.params for r in read_results(study).records if r.number == claim.trial_number] == [{}]


@SQLITE_ALONE
def test_importances_and_plots_of_optuna_read_the_stored_space(database: Database) -> None:
    study = searched(database, OWN)
    there = plain(study)
    shares = get_param_importances(there, target=lambda trial: trial.values[1])
    assert {"learning_rate", "weight_decay", "batch_size"} <= set(shares)
    assert optuna.visualization.plot_pareto_front(there).data
    assert optuna.visualization.plot_slice(there, target=lambda trial: trial.values[0]).data
