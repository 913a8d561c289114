"""What mixers are built with, known without torch."""

from __future__ import annotations

import inspect

import pytest

from tuner.errors import UsageError
from tuner.models.readings import SETTINGS, SIZES, check_mixer_arguments, of_usual_size
from tuner.models.tsmixer import TSMixer


def test_they_are_what_the_network_takes() -> None:
    taken = [
        name
        for name, each in inspect.signature(TSMixer).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    ]
    assert set(taken) == {*SIZES, *SETTINGS}


def test_what_it_takes_is_no_error() -> None:
    check_mixer_arguments("rmsnorm", {"n_blocks": 3}, {"n_blocks": 3, "hidden_size": 64})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_block": 1}, "did you mean .n_blocks.*there are: biases, "),
        ({"n_blocks": 0}, "n_blocks must be a whole number of at least 1, not 0"),
        ({"n_blocks": True}, "not True"),
        ({"hidden_size": 8}, "'hidden_size' is a hyperparameter"),
    ],
)
def test_what_it_does_not_take_is_told(settings: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_mixer_arguments("original", settings, {"dropout": 0.1, **settings})


def test_an_unusual_size_is_to_be_tried() -> None:
    assert of_usual_size({"hidden_size": 1024, "dropout": 0.0})
    assert not of_usual_size({"hidden_size": 2048})
    assert not of_usual_size({"hidden_size": 64, "n_blocks": 40})
