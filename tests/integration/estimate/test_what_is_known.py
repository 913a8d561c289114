"""What `tuner estimate` need not measure: sizes of before, and trials that have ended."""

from __future__ import annotations

import dataclasses
import os
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.in_process_worker import DEVICE, RESULT
from tests.support.present import present
from tests.support.small_estimates import Small, told
from tuner.cli.app import app
from tuner.cli.estimate import known_or_measured
from tuner.estimate.cost_model import SizeCosts
from tuner.estimate.foretold import ended_trials
from tuner.estimate.measuring_process import MeasuringProcess
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.relaunch import Said, open_studies
from tuner.worker.loop import Worker

TOOK = Recorded(converged=True, stopped_by="converged", wall_clock_s=1.5, total_s=1.6, cycle_s=2.0)


@pytest.mark.parametrize(("sizes", "stays"), [(1, True), (4, False)])
def test_what_is_not_as_it_was_is_said_with_what_it_takes_now(
    sizes: int,
    stays: bool,
    process: MeasuringProcess,
    costs: SizeCosts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two sizes of ten times as much were known; some more are measured anew."""
    slower = [dataclasses.replace(each, epoch_s=10 * present(each.epoch_s)) for each in costs.sizes]
    before = dataclasses.replace(costs, sizes=tuple(slower[:2]))
    found = dataclasses.replace(costs, sizes=costs.sizes[:sizes])
    written: list[SizeCosts] = []
    monkeypatch.setattr("tuner.estimate.cost_model.kept", lambda _key: before)
    monkeypatch.setattr("tuner.estimate.cost_model.keep", lambda _key, new: written.append(new))
    monkeypatch.setattr("tuner.estimate.measuring_process.measured_costs", lambda *_, **__: found)
    now, doubts = known_or_measured(process, 1.0, again=False)
    took = f"{found.sizes[0].epoch_s:.3g} s an epoch"
    said = f"the default does not take what it took then but {took}: {sizes} sizes were measured"
    (doubt,) = (each for each in doubts if each.startswith("the default"))
    assert doubt.startswith(said)
    assert doubt.endswith("; those of then stay, 2, till --again") is stays
    assert (now, written) == ((before, []) if stays else (found, [found]))


def test_every_search_of_a_group_has_its_own_trials(
    small: Small, costs: SizeCosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four searches, the first has run all of its eight trials, the second three; all of the
    third's failed before they trained, and the fourth is not there.
    """
    monkeypatch.setattr("tuner.estimate.cost_model.kept", lambda _key: costs)
    url = f"sqlite:///{tmp_path}/t.db"
    group = f"{small.task.name}-{small.definition.variant}"
    with closing(open_database(parse_url(url))) as database:
        said = Said(searches=3, trials=8)
        made = open_studies(database, {group: small.definition}, said, device_model=None)
        for each, (budget, took) in zip(made, ((8, TOOK), (3, TOOK), (8, Recorded())), strict=True):
            each.study.set_policy(SearchPolicy(sampler="random", prune=False))
            each.study.ledger.set_budget(budget)
            result = dataclasses.replace(RESULT, recorded=took)
            Worker([each.study], DEVICE, lambda _, r=result: r, name="ann").run()  # type: ignore[misc]
            each.study.ledger.set_budget(8)
        held = [sum(trial.held_s for trial in ended_trials(each.study)) for each in made]
    words = ["estimate", *small.words, "--cpu", "--searches", "4"]
    words += ["--trials", "8", "--storage", url]
    cores = os.sched_getaffinity(0)
    try:
        document = told([*words, "--json"])
        lines = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    finally:
        os.sched_setaffinity(0, cores)
    (found,) = document["variants"]
    assert [each["trials_ended"] for each in found["searches"]] == [8, 3, 8, 0]
    all_run, begun, failed, new = (each["search_s"] for each in found["searches"])
    for done, held_s in ((all_run, held[0]), (failed, held[2])):  # nothing is to come
        assert 0 < done["low"] == done["high"] == pytest.approx(held_s)
    assert max(held[1], 3 * 2.0) < begun["low"] < begun["high"] < new["high"]
    together = sum(each["middle"] for each in (all_run, begun, failed, new))
    assert document["gpu_hours"]["middle"] == pytest.approx(together / 3600, rel=0.1)
    said_of = " ".join(lines.split())
    for number, ended in enumerate(("8", "3", "8"), 1):
        assert f"search {number} of 8 trials, {ended} of which have ended, takes" in said_of
    assert "search 4 of 8 trials takes" in said_of
