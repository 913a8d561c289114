"""What a study recommends, by all its runs."""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad

from tuner.search.next_run_model import Likelihood, Repeated, believed
from tuner.spec.margin import Question, levels_of, looks_of
from tuner.verdict.known_runs import Run
from tuner.verdict.recommendation import recommend, recommend_at, to_verify
from tuner.verdict.runs_model import RunsModel
from tuner.verdict.stats.noninferiority import no_worse

SEEDS_SD = 0.008


def seconds_of(x: float) -> float:
    return math.exp(-2 * x)


def mql_of(x: float) -> float:
    """Rises beyond x = 0.5: 1 % above the default's, which lies at 0, at about 0.63."""
    return 0.8 + 0.5 * max(x - 0.5, 0.0) ** 2


def study(random: np.random.Generator, size: int = 60) -> list[Run]:
    """One run of each of many configurations; the first is the default, at x = 0."""
    where = random.random((size, 2))
    where[0] = 0.0
    return [run_at(trial, tuple(place), random) for trial, place in enumerate(where.tolist())]


def run_at(trial: int, where: tuple[float, ...], random: np.random.Generator) -> Run:
    return Run(
        trial=trial,
        where=where,
        seconds=seconds_of(where[0]) * math.exp(0.1 * random.standard_normal()),
        mql=mql_of(where[0]) + SEEDS_SD * random.standard_normal(),
        epochs=40,
    )


def test_it_recommends_what_is_truly_as_good_and_nearly_the_fastest() -> None:
    random = np.random.default_rng(1)
    right, places_chosen = 0, []
    for _ in range(10):
        runs = study(random)
        places = {run.trial: run.where for run in runs}
        model = RunsModel(runs, 0)
        for trial in (0, *to_verify(model, 8)):
            runs += [run_at(trial, places[trial], random) for _ in range(10)]
        found = recommend(RunsModel(runs, 0), margin=0.01)
        assert found.chosen is not None
        assert found.chosen.chance >= 0.95
        x = places[found.chosen.trial][0]
        right += mql_of(x) <= 0.8 * 1.01
        places_chosen.append(x)
    assert right >= 9
    assert np.median(places_chosen) > 0.45


def test_a_lucky_run_is_not_believed() -> None:
    runs = [
        *study(np.random.default_rng(2)),
        Run(trial=99, where=(0.95, 0.5), seconds=0.1, mql=0.78, epochs=40),
    ]
    found = recommend(RunsModel(runs, 0))
    assert found.chosen is None or found.chosen.trial != 99


def test_many_runs_of_one_configuration_are_believed_against_its_neighbours() -> None:
    random = np.random.default_rng(3)
    runs = study(random)
    # A configuration of which no neighbour knows how good it is: only its own runs can say so.
    runs += [
        Run(trial=99, where=(0.9, 0.5), seconds=0.15, mql=0.79 + 0.008 * z, epochs=40)
        for z in random.standard_normal(30)
    ]
    found = recommend(RunsModel(runs, 0))
    assert found.chosen is not None
    assert found.chosen.trial == 99
    assert found.chosen.runs == 30
    assert 99 not in to_verify(RunsModel(runs, 0), 60)
    assert found.chosen.mql == pytest.approx(0.79, abs=0.005)


def test_nothing_feasible_names_the_nearest() -> None:
    random = np.random.default_rng(4)
    runs = [
        run
        if run.trial == 0
        else Run(
            trial=run.trial, where=run.where, seconds=run.seconds, mql=run.mql + 0.05, epochs=40
        )
        for run in study(random)
    ]
    runs += [Run(trial=0, where=(0.0, 0.0), seconds=1.0, mql=0.8, epochs=40)] * 10
    found = recommend(RunsModel(runs, 0))
    assert found.chosen is None
    assert found.nearest is not None
    assert found.nearest.chance < 0.95
    assert found.default is not None
    assert found.default.chance == 1.0


def test_only_candidates_are_recommended() -> None:
    random = np.random.default_rng(5)
    runs = [*study(random), *(run_at(0, (0.0, 0.0), random) for _ in range(20))]
    model = RunsModel(runs, 0)
    free = recommend(model)
    assert free.chosen is not None
    others = {run.trial for run in runs} - {free.chosen.trial}
    bound = recommend(model, candidates=others)
    assert bound.chosen is None or bound.chosen.trial in others
    assert recommend(model, candidates=()).nearest is None
    assert set(to_verify(model, 5, candidates=others)) <= others
    assert recommend(model, least_runs=2).chosen is None


def test_a_level_may_be_reached_by_the_default_and_by_nothing() -> None:
    model = RunsModel(study(np.random.default_rng(6)), 0)
    easy = recommend_at(model, 0.9)
    assert easy.chosen is not None
    assert easy.chosen.seconds == pytest.approx(model.seconds.min())
    none = recommend_at(model, 0.75)
    assert none.chosen is None
    assert none.nearest is not None
    # What is known less surely is reached less surely.
    sure, unsure = (model.chance_of_level(0.83, error=error) for error in (0.0, 0.05))
    assert sure.max() > unsure.max()


def test_the_wider_the_margin_the_surer() -> None:
    model = RunsModel(study(np.random.default_rng(7)), 0)
    narrow, wide = model.chance_of_default(0.0), model.chance_of_default(0.02)
    assert (wide >= narrow).all()
    assert wide[0] == 1.0


def test_it_chooses_to_verify_what_may_be_the_answer() -> None:
    runs = study(np.random.default_rng(8))
    model = RunsModel(runs, 0)
    chosen = to_verify(model, 8)
    assert len(set(chosen)) == 8
    assert 0 not in chosen
    assert to_verify(model, 8) == chosen
    assert to_verify(model, 3) == chosen[:3]
    places = [next(run.where[0] for run in runs if run.trial == trial) for trial in chosen]
    # The true answer lies at 0.63; the luckiest end, beyond 0.9, is none.
    assert 0.45 < np.median(places) < 0.8


def test_the_model_needs_some_configurations_and_a_default_to_compare_with() -> None:
    runs = study(np.random.default_rng(9))
    with pytest.raises(ValueError, match="5 configurations converged"):
        RunsModel(runs[:5], 0)
    with pytest.raises(ValueError, match="default configuration is not among"):
        recommend(RunsModel(runs[1:], 0))
    assert recommend_at(RunsModel(runs[1:], None), 0.85).default is None


def test_disturbed_timings_do_not_count() -> None:
    runs = study(np.random.default_rng(10))
    slow = [Run(trial=3, where=runs[3].where, seconds=None, mql=0.8, epochs=None)] * 5
    expected = RunsModel(runs, 0).seconds
    assert RunsModel([*runs, *slow], 0).seconds == pytest.approx(expected)


def test_settings_are_fitted_by_their_true_gradient() -> None:
    random = np.random.default_rng(11)
    n = 25
    data = Repeated(
        where=random.random((n, 3)),
        mean=random.standard_normal(n),
        runs=random.integers(1, 6, n).astype(float),
        squares=random.random(n),
        length=-random.random(n),
    )
    likelihood = Likelihood(data)
    for _ in range(5):
        theta = 0.5 * random.standard_normal(7) - 0.5
        wrong = check_grad(lambda t: likelihood.at(t)[0], lambda t: likelihood.at(t)[1], theta)
        assert wrong < 1e-3


def test_the_noise_of_seeds_is_read_off_repeated_runs() -> None:
    random = np.random.default_rng(12)
    n, repeats = 40, 20
    where = random.random((n, 2))
    length = np.where(where[:, 0] > 0.5, -1.0, 0.0)
    sd = 0.02 * np.exp(-0.75 * length)
    draws = np.sin(3 * where[:, 1])[:, None] + sd[:, None] * random.standard_normal((n, repeats))
    means = draws.mean(axis=1)
    found = believed(
        Repeated(
            where=where,
            mean=means,
            runs=np.full(n, float(repeats)),
            squares=((draws - means[:, None]) ** 2).sum(axis=1),
            length=length,
        )
    )
    assert np.sqrt(found.noise) == pytest.approx(sd, rel=0.15)
    off = (found.mean - np.sin(3 * where[:, 1])) / np.sqrt(np.diag(found.covariance))
    assert 0.6 < float(np.std(off)) < 1.4


def test_of_what_is_surely_as_good_it_takes_what_a_confirmation_will_say_so_of() -> None:
    random = np.random.default_rng(8)
    runs = [*study(random), *(run_at(0, (0.0, 0.0), random) for _ in range(60))]
    # Twice as fast and better; and a little faster still, within the margin by little.
    for trial, seconds, mql in ((98, 0.5, 0.798), (99, 0.47, 0.8045)):
        runs += [
            Run(trial=trial, where=(0.3, 0.01 * trial), seconds=seconds, mql=mql + z, epochs=40)
            for z in 0.008 * random.standard_normal(300)
        ]
    model = RunsModel(runs, 0)
    candidates = (98, 99)
    assert model.chance_of_default(0.01)[model.trials.index(99)] >= 0.95
    found = recommend(model, candidates=candidates)
    assert found.chosen is not None
    assert found.chosen.trial == 98
    level = recommend_at(model, 0.8 * 1.01, candidates=candidates)
    assert level.chosen is not None
    assert level.chosen.trial == 99, "at a level the fastest is the answer"


@pytest.mark.parametrize("worse_by", [0.0, 0.004, 0.008])
def test_the_chance_of_a_confirmation_is_how_often_one_succeeds(worse_by: float) -> None:
    random = np.random.default_rng(9)
    runs = [*study(random), *(run_at(0, (0.0, 0.0), random) for _ in range(2000))]
    mql = 0.8 * (1 + worse_by)
    runs += [
        Run(trial=99, where=(0.3, 0.5), seconds=0.5, mql=mql + z, epochs=40)
        for z in SEEDS_SD * random.standard_normal(2000)
    ]
    model = RunsModel(runs, 0)
    said = model.chance_to_confirm(0.01, 30)[model.trials.index(99)]
    claims = 0
    for _ in range(400):
        own, others = (
            dict(enumerate(mean + SEEDS_SD * random.standard_normal(30))) for mean in (mql, 0.8)
        )
        found = no_worse(
            own, others, margin=0.01, level=levels_of(looks_of(30), Question.MARGIN)[-1]
        )
        assert found is not None
        claims += found.claimed
    assert said == pytest.approx(claims / 400, abs=0.1)
    assert model.chance_to_confirm(0.01, 30)[model.row_of_default()] == 0.0
