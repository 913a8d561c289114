"""One line for each way in which a class of neuralforecast, or an argument, cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.config import ModelShapes
from tuner.errors import UsageError
from tuner.models.of_neuralforecast.build import build_of_library

ALONE = ModelShapes(
    input_size=12, horizon=4, n_targets=3, n_past=0, n_future=0, n_static=0, n_quantiles=3
)
REFUSED = {
    "random_seed": "random_seed is not a hyperparameter: each trial has a seed of its own",
    "max_steps": "max_steps is not a hyperparameter: tuner trains every variant by one protocol",
    "h": "h is not a hyperparameter: the task says it, as horizon",
    "scaler_type": "scaler_type is not a hyperparameter: tuner scales the data",
    "trainer_kwargs": "trainer_kwargs is not a hyperparameter: tuner trains every variant by one",
    "recurrent": "recurrent is not a hyperparameter: tuner takes forecasts of all hours at once",
    "encoder_size": "unknown hyperparameter of neuralforecast:LSTM 'encoder_size'",
    "enable_progress_bar": "unknown hyperparameter of neuralforecast:LSTM 'enable_progress_bar'",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_an_argument_that_is_not_the_networks_is_refused(argument: str) -> None:
    with pytest.raises(UsageError) as refusal:
        build_of_library("LSTM", ALONE, {argument: 1})
    assert REFUSED[argument] in str(refusal.value)
    assert "\n" not in str(refusal.value)


CANNOT: dict[str, tuple[dict[str, Any], str]] = {
    "LTSM": ({}, "unknown model of neuralforecast 'LTSM' (did you mean 'LSTM'"),
    "HINT": ({}, "neuralforecast:HINT is no network: it reconciles the forecasts of one"),
    "DeepAR": ({}, "neuralforecast:DeepAR forecasts hour after hour from samples of its own"),
    "FEDformer": (
        {"hidden_size": 8},
        "neuralforecast:FEDformer has complex weights, which the protocol's optimiser",
    ),
    "DeepNPTS": ({}, "only supports point loss functions"),
    "xLSTM": ({}, "neuralforecast:xLSTM needs xlstm, which is not installed"),
    "iTransformer": ({"revin": True}, "has a reversible norm of its own: set use_norm, not revin"),
    "TCN": ({"dilations": "[1, 2"}, "'[1, 2' is no list; expected e.g. '[8, 4, 1]'"),
    "TFT": (
        {"n_rnn_layers": "[1"},
        "neuralforecast:TFT: n_rnn_layers: '[1' is no list; expected",
    ),
    "NBEATS": (
        {"dropout_prob_theta": "much", "n_blocks": "[1, 1, 1]"},
        "; it was given dropout_prob_theta = 'much', n_blocks = [1, 1, 1]",
    ),
    "NHITS": ({"revin": 1}, "neuralforecast:NHITS: revin must be true or false, not 1"),
    "DLinear": (
        {"moving_avg_window": 2},
        "neuralforecast:DLinear: building it failed: moving_avg_window should be uneven",
    ),
    "PatchTST": ({"patch_len": -1}, "neuralforecast:PatchTST: building it failed: "),
}


@pytest.mark.parametrize("name", CANNOT)
def test_a_class_that_cannot_be_used_is_refused_in_one_line(name: str) -> None:
    arguments, said = CANNOT[name]
    with pytest.raises(UsageError) as refusal:
        build_of_library(name, ALONE, arguments)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
