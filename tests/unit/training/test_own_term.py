"""What a user adds to the training loss: what it is given, what it changes, what is refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.fitted_results import losses_of, same_weights
from tests.support.loss_terms import with_term
from tests.support.paths import REPOSITORY
from tests.support.present import present
from tuner.config import Backend, LossTerm, Precision, RunConfig, StopReason
from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device
from tuner.models.own import load_named
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.quantile_loss import quantile_loss
from tuner.training.step import Step

Configure = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Two series in units of their own, with a past and a future covariate."""
    folder = tmp_path_factory.mktemp("measured")
    lines = ["ds,site,flow,speed,known"]
    for number, site in enumerate(("north", "south")):
        for row in range(120):
            day, hour = 1 + row // 24, row % 24
            value = 1000 * (number + 1) + 7 * hour
            lines.append(f"2024-01-{day:02}T{hour:02},{site},{value},{row % 5},{-row}")
    (folder / "measured.csv").write_text("\n".join(lines), encoding="utf-8")
    source = CsvSource(kind="csv", path=folder / "measured.csv", id_column="site")
    task = Task(
        name="measured",
        source=source,
        target_columns=("flow",),
        past_covariates=("speed",),
        future_covariates=("known",),
        calendar=("hour",),
        frequency="h",
        input_size=6,
        horizon=3,
        quantiles=(0.1, 0.5, 0.9),
    )
    return prepare(task, cache_dir=folder / "prepared")


def step_of(config: RunConfig, data: DeviceData) -> Step:
    torch.manual_seed(config.seed)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    return Step(config, data, model.train())


def seen_by(terms: Path) -> list[Any]:
    found: list[Any] = load_named(f"{terms}:SEEN")
    return found


def test_a_term_is_given_forecasts_and_windows_in_the_units_of_the_data(
    terms: Path, measured: PreparedData, run_config: Configure
) -> None:
    data = to_device(measured, "cpu")
    step = step_of(with_term(run_config(dropout=0.0), terms, "noted"), data)
    batch = step.gathered(data.train, torch.arange(len(data.train)))
    predicted = step.predicted(batch)
    step.training_loss(batch)
    forecast, past, future, target = seen_by(terms)[-1]
    b, s = len(data.train), data.shapes
    assert forecast.shape == (b, s.horizon, 1, 3)
    assert past.shape == (b, s.input_size, 1 + 1 + 3)
    assert future.shape == (b, s.horizon, 3)
    assert target.shape == (b, s.horizon, 1)
    south = data.train.series_index == 1
    assert 1000 <= target[~south].min() <= target[~south].max() <= 1161
    assert 2000 <= target[south].min() <= target[south].max() <= 2161
    hours = (target[..., 0] - 1000 * (1 + south.unsqueeze(1))) / 7
    assert torch.allclose(hours, hours.round(), atol=1e-3)
    assert set(past[..., 1].round().unique().tolist()) == {0, 1, 2, 3, 4}
    # `known` counts down by a row, from the past into the horizon; the calendar is as it was.
    assert torch.allclose(future[:, :1, 0], past[:, -1:, 2] - 1, atol=1e-3)
    assert torch.equal(future[..., 1:], present(batch.future)[..., 1:])
    owner = data.train.series_index
    lowest, unit = (each.float()[owner, None, :, None] for each in (data.minimum, data.scale))
    assert torch.equal(forecast, predicted * unit + lowest)


def test_the_training_loss_is_the_quantile_loss_and_the_weighted_term(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    step = step_of(with_term(run_config(dropout=0.0), terms, "Facts", 0.25), data)
    batch = step.gathered(data.train, torch.arange(64))
    prediction = step.predicted(batch)
    levels = torch.tensor(data.task.quantiles)
    alone = quantile_loss(prediction, batch.target, levels)
    index = data.train.series_index[:64]
    unit = data.scale[index].float().unsqueeze(1)
    term = ((prediction[..., 2] - batch.target) * unit).abs().mean()
    assert step.training_loss(batch).item() == pytest.approx((alone + 0.25 * term).item(), rel=1e-5)
    assert torch.equal(step.loss(batch), alone), "what is validated has no term"
    assert term.item() > 0


def test_a_class_is_told_the_task(terms: Path, data: DeviceData, run_config: Configure) -> None:
    step_of(with_term(run_config(), terms, "Facts"), data)
    facts = next(each for each in reversed(seen_by(terms)) if hasattr(each, "quantiles"))
    assert facts.quantiles == data.task.quantiles
    assert facts.target_columns == ("a", "b")
    assert (facts.input_size, facts.horizon, facts.frequency) == (24, 6, "h")


def test_weight_0_trains_the_same_bits_as_no_term_and_runs_no_code(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    plain = fit(run_config(dropout=0.2), data)
    for name in ("raises", "random"):
        weightless = fit(with_term(run_config(dropout=0.2), terms, name, 0.0), data)
        assert losses_of(weightless) == losses_of(plain)
        assert same_weights(weightless, plain)


def test_a_weight_changes_what_is_learned_and_not_what_is_judged(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    plain = fit(run_config(max_epochs=4, dropout=0.0), data)
    given = fit(with_term(run_config(max_epochs=4, dropout=0.0), terms, "smooth", 5.0), data)
    assert plain.model is not None
    assert given.model is not None
    batch = data.val.gather(torch.arange(len(data.val)))

    def rough(model: torch.nn.Module) -> float:
        with torch.no_grad():
            median = model(batch.past, batch.future, batch.static)[..., 2]
        return float((median[:, 1:] - median[:, :-1]).square().mean())

    assert rough(given.model) < 0.5 * rough(plain.model)
    with torch.no_grad():
        forecast = given.model(batch.past, batch.future, batch.static)
    loss = quantile_loss(forecast, batch.target, torch.tensor(data.task.quantiles))
    assert given.best_val_loss == pytest.approx(float(loss), rel=1e-5)
    assert given.history[-1].train_loss > plain.history[-1].train_loss


def test_a_searched_weight_is_taken_from_the_configuration(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    plain = run_config()
    loss = LossTerm(term=f"{terms}:smooth", weight="lambda_physics")
    own = dataclasses.replace(plain.hyperparameters, own={"lambda_physics": 0.5})
    training = plain.training.but(loss=loss)
    searched = dataclasses.replace(plain, hyperparameters=own, training=training)
    assert searched.loss_weight == 0.5
    assert searched.hyperparameters.of_network == {}, "no network is built with it"
    fixed = fit(with_term(plain, terms, "smooth", 0.5), data)
    assert losses_of(fit(searched, data)) == losses_of(fixed)


def test_accumulated_batches_have_the_gradient_of_one_large_batch(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    found = []
    for batch_size, accumulate in ((256, 1), (64, 4)):
        config = run_config(
            batch_size=batch_size, accumulate=accumulate, dropout=0.0, gradient_clip=1e9
        )
        step = step_of(with_term(config, terms, "smooth"), data)
        loss = step.train_on(data.train, torch.arange(250), batch_size)
        grads = [p.grad.flatten() for p in step.model.parameters() if p.grad is not None]
        found.append((float(loss), torch.cat(grads)))
    (whole_loss, whole), (loss_, accumulated) = found
    assert (accumulated - whole).norm() <= 1e-5 * whole.norm()
    assert loss_ == pytest.approx(whole_loss, rel=1e-5)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_in_16_bits_the_term_is_still_computed_in_32(
    terms: Path, data: DeviceData, run_config: Configure, precision: Precision
) -> None:
    config = with_term(run_config(precision=precision, max_epochs=1), terms, "noted")
    seen_by(terms).clear()
    result = fit(config, data)
    assert result.stopped_by is StopReason.EPOCH_LIMIT
    assert len(seen_by(terms)) > 2
    assert {each.dtype for given in seen_by(terms) for each in given} == {torch.float32}


def test_random_numbers_of_the_trial_of_a_term_change_nothing(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    before = torch.random.get_rng_state()
    model = build_model(run_config().architecture, data.shapes, run_config().hyperparameters)
    after_network = torch.random.get_rng_state()
    Step(with_term(run_config(), terms, "random"), data, model)
    assert torch.equal(torch.random.get_rng_state(), after_network)
    torch.random.set_rng_state(before)


def test_a_buffer_is_on_the_device_and_no_parameter(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    result = fit(with_term(run_config(max_epochs=1), terms, "Buffered"), data)
    assert result.stopped_by is StopReason.EPOCH_LIMIT


def test_the_term_of_the_page_is_what_the_page_says() -> None:
    names: dict[str, Any] = {}
    page = REPOSITORY / "docs" / "own-model.md"
    shown = re.findall(r"```py\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = shown
    exec(text, names)
    inflow, outflow = torch.rand(3, 6), torch.rand(3, 6)
    # What flows in over an hour and not out is there an hour later.
    level = torch.cumsum(inflow - outflow, dim=1) - (inflow - outflow)
    forecast = torch.stack([level, outflow], dim=-1).unsqueeze(-1).expand(3, 6, 2, 3)
    given = (torch.rand(3, 4, 3), inflow.unsqueeze(-1), torch.rand(3, 6, 2))
    assert names["continuity"](forecast, *given).item() < 1e-12
    assert names["continuity"](forecast * 2, *given).item() > 1e-3


def test_large_networks_keep_their_kernels_for_a_cpu(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    plain = fit(with_term(run_config(max_epochs=1, dropout=0.0), terms, "smooth"), data)
    config = run_config(max_epochs=1, dropout=0.0, backend=Backend.COMPILE)
    compiled = fit(with_term(config, terms, "smooth"), data)
    assert compiled.backend is Backend.COMPILE
    assert losses_of(compiled)[0] == pytest.approx(losses_of(plain)[0], rel=1e-4)
