"""What is wrong with a term that a user adds to the training loss is named, in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loss_terms import with_term
from tuner.config import Precision, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.training import fit
from tuner.trial.job import lost_context

Configure = Callable[..., RunConfig]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("many", "it returned a tensor of shape (6, 2, 5) and torch.float32; expected one number"),
        ("plain", "it returned float; expected a tensor of one number"),
        ("whole", "it returned a tensor of shape () and torch.int64"),
        ("detached", "its value has no gradient by the forecast, so it trains nothing"),
        ("not_a_number", "its value is no finite number"),
        ("no_slope", "its gradient is no finite number"),
        ("raises", "KeyError: 'density'"),
        ("few", "takes 1 positional argument but 4 were given"),
        ("Learned", "it has parameters of its own, which nothing trains; make them buffers"),
        ("KeepsOne", "it has parameters of its own, which nothing trains; make them buffers"),
        ("keeps_one", "it has parameters of its own, which nothing trains; make them buffers"),
        ("trains_another", "it has parameters of its own, which nothing trains; make them"),
        ("leaves", "failed: "),
        ("MASS", "it is no function and no class: float"),
        ("smoth", "unknown function or class in "),
    ],
)
def test_what_is_wrong_with_a_term_is_one_line_before_anything_is_trained(
    terms: Path, data: DeviceData, run_config: Configure, name: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fit(with_term(run_config(), terms, name), data)
    line = str(caught.value)
    assert said in line
    assert "physics.py" in line
    assert "\n" not in line


@pytest.mark.parametrize("left_over", [0, 1, 2])
def test_a_term_is_tried_on_a_batch_of_one_window_where_such_a_batch_comes(
    terms: Path, data: DeviceData, run_config: Configure, left_over: int
) -> None:
    batch_size = len(data.train) - left_over
    config = with_term(run_config(batch_size=batch_size, max_epochs=1), terms, "spread")
    if left_over != 1:
        assert fit(config, data).stopped_by is StopReason.EPOCH_LIMIT
        return
    with pytest.raises(UsageError, match="its value is no finite number on a batch of one window"):
        fit(config, data)


def test_a_training_whose_every_update_fp16_skipped_trained_nothing_and_says_so(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    config = run_config(precision=Precision.FP16, max_epochs=2)
    result = fit(with_term(config, terms, "too_steep"), data)
    assert result.stopped_by is StopReason.DIVERGED
    assert result.message.startswith("fp16 skipped every update")
    assert "0.5 x physics.py:too_steep may be too large" in result.message
    assert fit(config, data).stopped_by is StopReason.EPOCH_LIMIT


def test_the_line_of_the_user_is_named(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    with pytest.raises(
        UsageError, match=r"the term .*physics\.py:later failed: .*physics\.py, line"
    ):
        fit(with_term(run_config(), terms, "later"), data)


def test_a_term_that_is_no_number_later_ends_the_training_and_is_named(
    terms: Path, data: DeviceData, run_config: Configure
) -> None:
    result = fit(with_term(run_config(), terms, "later_not_a_number"), data)
    assert result.stopped_by is StopReason.DIVERGED
    assert "training loss nan (with 0.5 x physics.py:later_not_a_number)" in result.message


def test_a_weight_below_0_is_refused(terms: Path, data: DeviceData, run_config: Configure) -> None:
    with pytest.raises(UsageError, match="must be 0 or more, not -1"):
        fit(with_term(run_config(), terms, "smooth", -1.0), data)


def test_what_a_line_hides_may_be_a_lost_context() -> None:
    error = UsageError("the term failed")
    error.__cause__ = RuntimeError("CUDA error: device-side assert triggered")
    assert lost_context(error)
    error.__cause__ = KeyError("density")
    assert not lost_context(error)
