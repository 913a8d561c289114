"""The tabular benchmark: a table goes there and back, its surrogate is like the job, a comparison
can be repeated."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState

from tuner.config import TrainingSettings
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.study.archive import Archive
from tuner.study.results import TrialRecord


def module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.samplers.{name}")


def archive(trials: int, *, repeats: int = 6) -> Archive:
    """Trials of the simulated job, the default several times, as an exported study."""
    job = module("simulated_job").SimulatedJob()
    random = np.random.default_rng(0)
    records = []
    for number in range(trials):
        params = job.default if number < repeats else job.space.at(random.uniform(size=5))
        outcome = job.run(params, random)
        attributes: dict[str, Any] = {"seed": number, "stopped_by": "diverged"}
        if outcome.values is not None:
            seconds, mql = outcome.values
            attributes |= {
                "wall_clock_s": seconds,
                "test_mql": mql,
                "epochs": round(seconds / 0.07),
            }
            attributes["stopped_by"] = "converged" if outcome.converged else "epoch_limit"
        state = TrialState.FAIL if outcome.values is None else TrialState.COMPLETE
        records.append(
            TrialRecord(
                number,
                state,
                dict(params),
                outcome.values,
                Recorded.from_flat(attributes),
                None,
                None,
            )
        )
    error = {"seed": 1, "stopped_by": "error", "failure": "somebody pulled the plug"}
    records.append(
        TrialRecord(
            trials, TrialState.FAIL, dict(job.default), None, Recorded.from_flat(error), None, None
        )
    )
    definition = StudyDefinition.of(
        load_study_file("original"),
        task={"name": "etth"},
        data_hash="0" * 64,
        training=TrainingSettings(),
    )
    return Archive(
        name="s",
        definition=definition,
        membership=Membership(group="s"),
        policy=SearchPolicy(),
        budget=trials,
        device_model="X",
        records=tuple(records),
    )


@pytest.fixture(scope="module")
def table() -> Any:
    return module("table").table_of([archive(90)])


def test_a_table_comes_back_as_it_was_written(table: Any, tmp_path: Path) -> None:
    for name in ("t.csv", "t.csv.gz"):
        module("table").write_table(table, tmp_path / name)
        again = module("table").read_table(tmp_path / name)
        assert (again.name, again.default, again.origin) == (
            "etth-original",
            table.default,
            table.origin,
        )
        assert again.space.definition() == table.space.definition()
        assert len(again.rows) == 90  # the error is no row
        for row, original in zip(again.rows, table.rows, strict=True):
            assert row["hidden_size"] == original["hidden_size"]
            assert row["stopped_by"] == original["stopped_by"]
            assert row["test_mql"] == (
                pytest.approx(original["test_mql"], rel=1e-6) if row["test_mql"] else None
            )


def test_studies_of_different_definitions_share_no_table() -> None:
    one = archive(3)
    other = dataclasses.replace(
        one, definition=dataclasses.replace(one.definition, data_hash="1" * 64)
    )
    with pytest.raises(ValueError, match="different definitions"):
        module("table").table_of([one, other])


def test_the_surrogate_is_like_the_job_and_as_noisy(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module("surrogate"), "TREES", 25)
    monkeypatch.setattr(module("surrogate"), "FOLDS", 5)
    job = module("surrogate").SurrogateJob(table)
    true = module("simulated_job").SimulatedJob()
    random = np.random.default_rng(1)
    both = []
    for _ in range(40):
        params = job.space.at(random.uniform(size=5))
        modelled, real = job.truth(params), true.truth(params)
        if modelled.values and real.values:
            both.append(
                (
                    math.log(modelled.values[0]),
                    math.log(real.values[0]),
                    modelled.values[1],
                    real.values[1],
                )
            )
    columns = np.array(both).T
    assert np.corrcoef(columns[0], columns[1])[0, 1] > 0.7
    assert np.corrcoef(columns[2], columns[3])[0, 1] > 0.5
    mqls = [job.run(job.default, random).values[1] for _ in range(200)]
    assert 0.003 < np.std(mqls) < 0.015  # the simulated seeds: 0.008
    assert job.truth(job.default) == job.truth(job.default)


def test_a_comparison_is_repeatable_resumable_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samplers = module("samplers")
    job = samplers.make_job(None, "forest")
    once, again = (samplers.search(job, "ours qmc", 3, 12) for _ in range(2))
    figures = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in rows] for rows in (once, again)
    ]
    assert figures[0] == figures[1]
    assert [row["trial"] for row in once] == [5, 10, 12]
    assert samplers.search(job, "random", 3, 12) != once
    some = {"table": None, "surrogate": "forest", "rows": slice(None), "seeds": 2, "first_seed": 5}
    arguments = argparse.Namespace(**some, trials=10, processes=1)
    for arms, searches in (
        (("random",), 2),
        (("random", "ours qmc"), 2),
        (("random", "ours qmc"), 0),
    ):
        samplers.run(argparse.Namespace(**vars(arguments), arms=arms), tmp_path / "results.csv")
        assert len(capsys.readouterr().out.splitlines()) == searches
    rows = samplers.read(tmp_path / "results.csv")
    assert {row["seed"] for row in rows} == {"5", "6"}
    text = samplers.report(rows, "a test")
    assert text.count("| ours qmc | 2 |") == 2


def test_a_comparison_on_a_part_of_the_table_knows_no_other_row(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module("surrogate"), "TREES", 25)
    monkeypatch.setattr(module("surrogate"), "FOLDS", 5)
    samplers, path = module("samplers"), tmp_path / "table.csv"
    module("table").write_table(table, path)
    part = samplers.rows_of("60-89")
    assert [row["seed"] for row in table.rows[part]] == [row["seed"] for row in table.rows[60:90]]
    defaults = [
        samplers.make_job(str(path), "forest", rows).truth(table.default)
        for rows in (slice(None), part)
    ]
    assert defaults[0] != defaults[1]


def test_the_hypervolume_is_bounded_by_the_default(table: Any) -> None:
    job = module("simulated_job").SimulatedJob()
    seconds, mql = job.truth(job.default).values
    assert module("job").reference(job) == (2 * seconds, 1.05 * mql)
