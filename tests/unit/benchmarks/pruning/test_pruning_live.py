"""Pruning confirmed live: what two searches of the same configurations, with and without it, say of
it."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from tests.support.paths import BENCHMARKS
from tests.support.present import present
from tuner.search.sampler import sampler_for
from tuner.spec.pareto import front_indices, hypervolume, reference_point
from tuner.spec.policy import SearchPolicy
from tuner.study.archive import Archive, read_archive, write_archive
from tuner.study.results import TrialRecord


@pytest.fixture(scope="module")
def live() -> Any:
    return importlib.import_module("benchmarks.pruning.live")


@pytest.fixture(scope="module")
def unpruned() -> Archive:
    """Real trainings of a small network, none of them pruned."""
    return read_archive(BENCHMARKS / "pruning" / "small-demo-small.json.gz")


def with_pruning(unpruned: Archive, ends: Callable[[TrialRecord], bool]) -> Archive:
    """The same search, in which the trials that `ends` names were pruned at a quarter of their
    epochs and seconds."""
    records = tuple(pruned(record) if ends(record) else record for record in unpruned.records)
    return dataclasses.replace(unpruned, records=records, policy=SearchPolicy(prune=True))


def pruned(record: TrialRecord) -> TrialRecord:
    a = record.recorded
    assert a.wall_clock_s is not None
    assert a.epochs is not None
    fewer = dataclasses.replace(
        a,
        stopped_by="pruned",
        converged=False,
        wall_clock_s=a.wall_clock_s / 4,
        epochs=a.epochs // 4,
    )
    return dataclasses.replace(record, state=TrialState.PRUNED, values=None, recorded=fewer)


def front_of(archive: Archive) -> list[TrialRecord]:
    eligible = [record for record in archive.records if record.converged and record.values]
    return [eligible[i] for i in front_indices([r.values for r in eligible if r.values])]


def test_pruning_dominated_trials_saves_their_seconds_and_loses_nothing(
    live: Any, unpruned: Archive
) -> None:
    front = {record.number for record in front_of(unpruned)}
    ends = {record.number for record in unpruned.records[20:40]} - front
    found = live.analyse(
        live.pairs_of(unpruned, with_pruning(unpruned, lambda r: r.number in ends))
    )
    seconds = {record.number: present(record.recorded.wall_clock_s) for record in unpruned.records}
    assert (found["configurations"], found["pruned"]) == (len(unpruned.records), len(ends))
    saved = 0.75 * sum(seconds[number] for number in ends) / sum(seconds.values())
    assert found["saved"]["share"] == pytest.approx(saved)
    epochs = {record.number: present(record.recorded.epochs) for record in unpruned.records}
    left_out = sum(
        seconds[number] * (1 - (epochs[number] // 4) / epochs[number]) for number in ends
    )
    assert found["saved_on_one_clock"] == pytest.approx(left_out / sum(seconds.values()))
    assert (found["lost"], found["lost_as_measured"], found["front_pruned"]) == (0, 0, 0)
    assert found["others"] == found["same_mql_of_the_others"] == len(unpruned.records) - len(ends)


def test_pruning_a_trial_of_the_front_loses_its_share_of_the_hypervolume(
    live: Any, unpruned: Archive
) -> None:
    front = front_of(unpruned)
    gone = front[len(front) // 2]
    found = live.analyse(
        live.pairs_of(unpruned, with_pruning(unpruned, lambda r: r.number == gone.number))
    )
    points = [r.values for r in unpruned.records if r.converged and r.values]
    reference = reference_point([r.values for r in front if r.values])
    left = [point for point in points if point != gone.values]
    assert (found["front"], found["front_pruned"]) == (len(front), 1)
    assert found["lost"] == pytest.approx(
        1 - hypervolume(left, reference) / hypervolume(points, reference)
    )
    assert found["lost"] > 0


def test_only_what_both_have_finished_is_compared(live: Any, unpruned: Archive) -> None:
    shorter = dataclasses.replace(
        with_pruning(unpruned, lambda _: False), records=unpruned.records[:30]
    )
    assert live.analyse(live.pairs_of(unpruned, shorter))["configurations"] == 30


def test_studies_that_are_no_pair_are_refused(live: Any, unpruned: Archive) -> None:
    other = with_pruning(unpruned, lambda _: False)
    with pytest.raises(SystemExit, match="then one launched with --prune"):
        live.pairs_of(other, unpruned)
    with pytest.raises(SystemExit, match="their seconds do not compare"):
        live.pairs_of(unpruned, dataclasses.replace(other, device_model="another"))
    with pytest.raises(SystemExit, match="no finished configuration in common"):
        live.pairs_of(unpruned, dataclasses.replace(other, records=()))
    elsewhere = dataclasses.replace(other.definition, data_hash="1" * 64)
    with pytest.raises(SystemExit, match="different definitions"):
        live.pairs_of(unpruned, dataclasses.replace(other, definition=elsewhere))


def test_the_result_is_written_in_both_forms(live: Any, unpruned: Archive, tmp_path: Path) -> None:
    files = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for file, archive in zip(
        files, (unpruned, with_pruning(unpruned, lambda r: r.number % 3 == 1)), strict=True
    ):
        write_archive(archive, file)
    live.main([*map(str, files), "--output", str(tmp_path / "live-1.2")])
    assert json.loads((tmp_path / "live-1.2.json").read_text())["pruned"] > 0
    assert "Hypervolume lost" in (tmp_path / "live-1.2.md").read_text()
    with pytest.raises(SystemExit, match="there is no file"):
        live.main(["nowhere.json", str(files[1]), "--output", str(tmp_path / "x")])


def test_a_sobol_search_proposes_the_same_whether_trials_are_pruned_or_not() -> None:
    """What the live comparison rests on."""
    definition = read_archive(
        BENCHMARKS / "study_overhead" / "200-trials-h200.study.json.gz"
    ).definition
    proposed = []
    for prune in (False, True):
        sampler = sampler_for("etth-original", definition, SearchPolicy(sampler="qmc", prune=prune))
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        study.enqueue_trial(dict(definition.defaults.as_dict()))
        for number in range(40):
            trial = study.ask(definition.space.stored())
            proposed.append((prune, number, dict(trial.params)))
            if prune and number % 2:
                trial.set_user_attr("stopped_by", "pruned")
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, (1.0 + number, 1.0))
    assert [each[1:] for each in proposed[:40]] == [each[1:] for each in proposed[40:]]
