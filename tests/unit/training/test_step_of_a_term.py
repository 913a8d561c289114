"""One training step says of a term what it is, whether it reaches the network, and what waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loss_terms import with_term
from tuner.config import RunConfig
from tuner.data.prepare import PreparedData
from tuner.errors import TunerError
from tuner.training.one_step import OneStep, train_one_step

Configure = Callable[..., RunConfig]


def stepped(config: RunConfig, prepared: PreparedData) -> OneStep:
    return train_one_step(config.architecture, config.hyperparameters, config.training, prepared)


@pytest.mark.parametrize("weight", [0.5, 0.0])
def test_one_step_says_what_the_term_is(
    terms: Path, prepared: PreparedData, run_config: Configure, weight: float
) -> None:
    """Also where the first trial does not use it."""
    config = with_term(run_config(), terms, "smooth", weight)
    seen = stepped(config, prepared)
    assert seen.term is not None
    assert seen.term.reaches
    assert seen.term.value > 0
    assert seen.term.weight == weight
    assert seen.findings.waits.found == ()


def test_one_step_says_that_a_term_trains_nothing(
    tmp_path: Path, prepared: PreparedData, run_config: Configure
) -> None:
    path = tmp_path / "physics.py"
    path.write_text(
        "def never(forecast, past, future, target):\n"
        "    return (forecast - 1e6).clamp(min=0).mean()\n",
        encoding="utf-8",
    )
    config = with_term(run_config(), path, "never")
    seen = stepped(config, prepared)
    assert seen.term is not None
    assert not seen.term.reaches
    assert "is 0 on the first windows" in seen.term.notices()[0]


def test_one_step_finds_what_waits_in_a_term(
    tmp_path: Path, prepared: PreparedData, run_config: Configure
) -> None:
    path = tmp_path / "physics.py"
    path.write_text(
        "def waiting(forecast, past, future, target):\n"
        "    return forecast.mean() * float(target.mean())\n",
        encoding="utf-8",
    )
    config = with_term(run_config(), path, "waiting")
    seen = stepped(config, prepared)
    assert [each.what for each in seen.findings.waits.found] == ["float() of a tensor"]
    assert seen.findings.waits.found[0].where.endswith("physics.py, line 2")


@pytest.mark.parametrize("name", ["raises", "later"])
def test_one_step_names_the_term_and_not_the_network(
    terms: Path, prepared: PreparedData, run_config: Configure, name: str
) -> None:
    config = with_term(run_config(), terms, name)
    with pytest.raises(TunerError, match=r"^the term .*physics.py:") as caught:
        stepped(config, prepared)
    assert "UsageError" not in str(caught.value)
