"""`tuner train --seeds K`: what one seed comes to takes no other with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tuner.export.train as subject
from tests.support.forked_cli import Done
from tests.support.recorded_studies import record_study
from tuner import load_model
from tuner.cli.run import run as run_command
from tuner.config import RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import EpochRecord, FitResult, fit

MESSAGE = "the loss is nan in epoch 1"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("seeds")
    url = f"sqlite:///{folder}/tuner.db"
    record_study(url, variant="rmsnorm", trials=3, max_epochs=1)
    return url


@dataclass(frozen=True, slots=True)
class Asked:
    """`tuner train` of trial 0, in this process."""

    study: str
    folder: Path
    capsys: pytest.CaptureFixture[str]

    def train(self, *more: str) -> Done:
        model = str(self.folder / "model.safetensors")
        code = run_command(
            [
                *("train", "--variant", "rmsnorm", "--task", "demo", "--trial", "0", "--cpu"),
                *("--storage", self.study, "--output", model, *more),
            ]
        )
        return Done(code, *self.capsys.readouterr())

    @property
    def card(self) -> Any:
        """That of the model which was left."""
        return load_model(self.folder / "model.safetensors").card


@pytest.fixture
def asked(study: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(study, tmp_path, capsys)


def diverging(*seeds: int) -> Callable[..., FitResult]:
    """A `fit` by which these seeds diverge; the trainings are real."""

    def fake(
        config: RunConfig, data: DeviceData, *, on_epoch: Callable[[EpochRecord], None]
    ) -> FitResult:
        found = fit(config, data, on_epoch=on_epoch)
        if config.seed not in seeds:
            return found
        return dataclasses.replace(
            found, stopped_by=StopReason.DIVERGED, message=MESSAGE, model=None
        )

    return fake


def test_a_seed_that_diverges_is_told_and_the_others_are_kept(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "fit", diverging(0, 2))
    done = asked.train("--seeds", "3", "--json")
    assert done.code == 0, done.err
    for seed in (0, 2):
        line = f"training with seed {seed} ended without a model: diverged ({MESSAGE})"
        assert done.err.count(line) == 1
    failed = [{"seed": seed, "stopped_by": "diverged", "message": MESSAGE} for seed in (0, 2)]
    document = done.json()
    assert document["failed_seeds"] == failed
    assert [each["seed"] for each in document["seeds"]] == [1]
    assert asked.card["failed_seeds"] == failed
    assert asked.card["chosen"] == "lowest validation loss of 1 seed"
    assert asked.card["metrics"]["seed"] == 1


@pytest.mark.parametrize("more", [("--seeds", "3"), ("--seed", "1")])
def test_where_none_is_left_that_is_one_line_and_no_file(
    more: tuple[str, ...], asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "fit", diverging(0, 1, 2))
    done = asked.train(*more)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.endswith(f"({MESSAGE}); try another seed, or another configuration of the front")
    assert "Traceback" not in done.err
    assert list(asked.folder.glob("model*")) == []


def test_an_interruption_leaves_the_best_of_the_seeds_that_had_ended(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(
        config: RunConfig, data: DeviceData, *, on_epoch: Callable[[EpochRecord], None]
    ) -> FitResult:
        if config.seed == 2:
            raise KeyboardInterrupt
        return fit(config, data, on_epoch=on_epoch)

    monkeypatch.setattr(subject, "fit", fake)
    done = asked.train("--seeds", "3")
    assert done.code != 0
    assert "Traceback" not in done.err
    assert [each["seed"] for each in asked.card["seeds"]] == [0, 1]
    losses = [each["val_loss"] for each in asked.card["seeds"]]
    assert asked.card["metrics"]["val_loss"] == min(losses)


def interrupted(*_: Any, **__: Any) -> FitResult:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("then", "code"), [(diverging(0), 1), (interrupted, 130)])
def test_a_last_training_that_ends_early_leaves_the_model_of_the_first(
    then: Callable[..., FitResult], code: int, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [then, fit]

    def fake(*args: Any, **more: Any) -> FitResult:
        return turns.pop()(*args, **more)

    monkeypatch.setattr(subject, "fit", fake)
    done = asked.train("--refit")
    assert done.code == code
    assert "model.safetensors holds the model so far; now it is trained on all rows" in done.err
    if code == 1:
        said = f"on all rows the training with seed 0 ended without a model: diverged ({MESSAGE})"
        assert said in done.err.splitlines()[-1]
    left = load_model(asked.folder / "model.safetensors")
    assert left.trained_on.startswith("the first 60 %, 480 of 800 rows, 2024-01-01 ")
    assert left.card["refit"] is None


def test_an_ensemble_that_is_not_shown_to_help_is_said_and_the_best_seed_is_trained_again(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    done = asked.train("--seeds", "2", "--ensemble", "--refit", "--json")
    assert done.code == 0, done.err
    document, card = done.json(), asked.card
    assert document["ensemble"] == card["ensemble"]
    assert card["ensemble"].startswith("No ensemble kept"), "one epoch is no training"
    assert card["refit"] == document["refit"]
    seed = document["metrics"]["seed"]
    assert (
        f"trained once more on all 800 rows, 2024-01-01 00:00:00 to 2024-01-17 15:00:00: "
        f"seed {seed} for 1 epoch;" in document["refit"]
    )
    predict = ["predict", str(asked.folder / "model.safetensors"), "demo", "--json"]
    assert run_command(predict) == 0
    forecast = Done(0, *capsys.readouterr())
    assert f"trained on {forecast.json()['trained_on']}" in forecast.err
    assert forecast.json()["trained_on"].startswith("all 800 rows, ")
