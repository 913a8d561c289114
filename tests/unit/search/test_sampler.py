"""Samplers search the encoded space and suggest true values that no trial has had."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.support.sampled_studies import FILE, SPACE, new_study, record, run
from tests.support.spaces import of_single_values
from tuner.config import SAMPLERS
from tuner.search.history import TrialHistory, configuration
from tuner.search.methods import STARTUP, method_of
from tuner.search.sampler import EncodedSampler, SobolPoints, neighbours

MODELS = ("kg", "gp", "tpe", "nsga2")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.mark.parametrize(
    ("sampler", "trials"),
    [
        ("auto", 20),
        ("tpe", 20),
        ("gp", STARTUP + 1),
        ("nsga2", 60),
        ("random", 30),
        ("qmc", 20),
    ],
)
def test_every_suggestion_lies_in_the_stored_space(sampler: str, trials: int) -> None:
    for params in run(new_study(sampler), trials):
        assert SPACE.contains(params) == []
        for name, distribution in SPACE.stored().items():
            assert distribution._contains(distribution.to_internal_repr(SPACE.held(params)[name]))
        for size in (params["hidden_size"], params["batch_size"]):
            assert isinstance(size, int)
            assert size & (size - 1) == 0


def test_auto_is_the_search_that_expects_noise() -> None:
    assert method_of("auto") is method_of("kg")


def test_all_samplers_of_the_command_line_are_tested_above() -> None:
    assert set(SAMPLERS) == {"auto", "kg", "gp", "tpe", "nsga2", "random", "qmc"}


def test_random_asks_cover_the_space_and_sometimes_use_no_weight_decay_at_all() -> None:
    asked = run(new_study("random"), 200)
    none = sum(params["weight_decay"] == 0.0 for params in asked)
    assert 8 <= none <= 40  # a tenth, give or take
    assert all(params["weight_decay"] >= 1e-6 for params in asked if params["weight_decay"])
    assert {params["hidden_size"] for params in asked} == {32, 64, 128, 256}
    assert {params["batch_size"] for params in asked} == {64, 128, 256, 512, 1024}
    assert sum(params["learning_rate"] < 1e-3 for params in asked) > 60  # logarithmic: half of them


def test_an_enqueued_configuration_comes_first_and_unchanged() -> None:
    study = new_study("tpe")
    study.enqueue_trial(SPACE.held(FILE.default_hyperparameters().as_dict()))
    (first,) = run(study, 1)
    assert first == FILE.default_hyperparameters().as_dict()


def test_the_genetic_sampler_breeds_from_what_was_found() -> None:
    study = new_study("nsga2")
    run(study, 160)
    generations = [trial.system_attrs["NSGAIISampler:generation"] for trial in study.trials]
    assert generations == [number // 50 for number in range(160)]
    early = sum(trial.params["hidden_size"] == 32 for trial in study.trials[:50])
    late = sum(trial.params["hidden_size"] == 32 for trial in study.trials[110:])
    assert late > 1.5 * early  # the smallest network is the fastest one here


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_a_model_learns_from_finished_trials(sampler: str) -> None:
    study = new_study(sampler)
    record(study, 24)
    asked = run(study, 4)
    assert sum(params["hidden_size"] == 32 for params in asked) >= 2
    assert sum(params["dropout"] for params in asked) / 4 > 0.3  # the middle of the range is 0.25


@pytest.mark.parametrize("sampler", MODELS)
def test_running_failed_and_pruned_trials_do_not_disturb(sampler: str) -> None:
    study = new_study(sampler)
    record(study, 52 if sampler == "nsga2" else STARTUP + 2)  # a generation has 50
    study.ask(SPACE.stored())
    for state, reason in (
        (TrialState.FAIL, "diverged"),
        (TrialState.FAIL, "error"),
        (TrialState.PRUNED, "pruned"),
    ):
        trial = study.ask(SPACE.stored())
        trial.set_user_attr("stopped_by", reason)
        study.tell(trial, state=state)
    assert SPACE.contains(SPACE.true(study.ask(SPACE.stored()).params)) == []


def test_the_stored_space_holds_true_values_that_people_can_read() -> None:
    study = new_study("random")
    run(study, 1)
    (trial,) = study.trials
    assert trial.distributions == SPACE.stored()


@pytest.mark.parametrize("sampler", sorted(set(SAMPLERS) - {"auto"}))
def test_a_seed_fixes_the_search_of_one_worker_across_restarts(sampler: str) -> None:
    def search(*, seed: int, restarted: bool) -> list[dict[str, Any]]:
        study = new_study(sampler, seed=seed)
        record(study, STARTUP)
        study.ask(SPACE.stored())
        if restarted:
            study.sampler = EncodedSampler(SPACE, sampler, seed=seed)
        return run(study, 1)

    whole = search(seed=7, restarted=False)
    assert whole == search(seed=7, restarted=True)
    assert whole != search(seed=8, restarted=False)


@pytest.mark.parametrize("sampler", ["gp", "tpe", "qmc"])
def test_workers_together_walk_one_sobol_sequence(sampler: str) -> None:
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(study_name="s", storage=storage, directions=["minimize", "minimize"])
    workers = [
        optuna.load_study(
            study_name="s", storage=storage, sampler=EncodedSampler(SPACE, sampler, seed=3)
        )
        for _ in range(3)
    ]
    # None of them finishes.
    asked = [worker.ask(SPACE.stored()).params for worker in workers + workers]
    points = SobolPoints(5, 3)
    assert asked == [SPACE.at(points.point(number)) for number in range(6)]


@pytest.mark.parametrize(
    "sampler", ["tpe", "nsga2", "random", "qmc", "optuna.samplers:RandomSampler"]
)
def test_no_configuration_is_tried_twice_however_small_the_space(sampler: str) -> None:
    small = of_single_values(SPACE, "hidden_size", "batch_size")
    study = new_study(sampler, space=small)
    asked = run(study, 20, space=small)  # 4 hidden sizes by 5 batch sizes: all there is
    assert len({configuration(params) for params in asked}) == 20
    # And then it repeats one rather than stop.
    assert small.contains(run(study, 1, space=small)[0]) == []


def test_a_duplicate_is_replaced_by_its_nearest_neighbour() -> None:
    here = FILE.default_hyperparameters().as_dict()
    near = list(neighbours(SPACE, here))
    assert all(SPACE.contains(params) == [] for params in near)
    changed = [[name for name in here if params[name] != here[name]] for params in near]
    assert all(len(names) <= 1 for names in changed)
    *_, last = (names[0] for names in changed if names)
    assert last == "hidden_size"  # the widest steps come last


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_a_model_is_told_of_trials_that_others_run(
    sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = new_study(sampler)
    record(study, 14)
    other = study.ask(SPACE.stored())
    seen: list[int] = []
    original = TrialHistory.ask

    def spy(self: TrialHistory, *args: Any, **kwargs: Any) -> Any:
        seen.extend(trial.number for trial in self._pending)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(TrialHistory, "ask", spy)
    mine = study.ask(SPACE.stored())
    assert seen == [other.number]
    assert configuration(mine.params) != configuration(other.params)


def test_a_late_answer_is_waited_for_and_then_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    study = new_study("tpe")
    # Asked for, not answered yet, and never will be.
    study.add_trial(create_trial(state=TrialState.RUNNING))
    clock = itertools.count()
    naps: list[float] = []
    time = SimpleNamespace(monotonic=lambda: float(next(clock)), sleep=naps.append)
    monkeypatch.setattr("tuner.search.sampler.time", time)
    assert SPACE.contains(SPACE.true(study.ask(SPACE.stored()).params)) == []
    assert 3 <= len(naps) <= 6
