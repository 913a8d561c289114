"""A callback of Hugging Face's `Trainer` that reports a training to tuner, by a clock of its own.

The clock counts what the Trainer does from the start of an epoch to the end of its evaluation. What
lies between two epochs, such as a checkpoint, is not on it. The device is synchronised at both
ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.callbacks.program_report import ReportsItself, library
from tuner.errors import TunerError

if TYPE_CHECKING:
    _Callback = Any
else:
    _Callback = library(
        "transformers", needed_by="HuggingFaceReport", extra="huggingface"
    ).TrainerCallback


def _is_whole(checkpoint: Path) -> bool:
    """Its state is what the Trainer writes last: a kill may have come before, or in its middle."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return False
    return True


class HuggingFaceReport(ReportsItself, _Callback):  # type: ignore[misc]
    """Reports each epoch, ends the training when tuner says so, and does nothing without tuner.

    The Trainer has to evaluate and log once an epoch (`eval_strategy="epoch"`,
    `logging_strategy="epoch"`). After the training, call `final` with what the study minimises.

    Raises:
        NotUnderTunerError: the study's times are by another clock.
    """

    def __init__(self) -> None:
        super().__init__("huggingface")
        self._training = False
        self._train_loss: float | None = None
        self._rate: float | None = None

    @property
    def last_checkpoint(self) -> str | None:
        """For `train(resume_from_checkpoint=...)`: the newest checkpoint in the trial's own folder
        that is whole; None where an earlier attempt left none. `output_dir` has to be that folder.
        """
        found = self._newest_whole("checkpoint-*", _is_whole)
        return None if found is None else str(found)

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        self._training = True
        self._begin(args.device, is_first=state.is_world_process_zero)

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._clock.go_on()

    def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> None:
        if self._report.should_stop:
            self.stopped = control.should_training_stop = True

    def on_log(self, *_: Any, logs: dict[str, Any] | None = None, **__: Any) -> None:
        if logs and "loss" in logs:
            self._train_loss = float(logs["loss"])
            self._rate = None if "learning_rate" not in logs else float(logs["learning_rate"])

    def on_evaluate(
        self, _args: Any, state: Any, *_: Any, metrics: dict[str, Any] | None = None, **__: Any
    ) -> None:
        if not self._training:
            return  # asked for by the program itself, after its training
        elapsed_s = self._clock.stop()
        if self.stopped or not state.is_world_process_zero:
            return
        if not metrics or "eval_loss" not in metrics or self._train_loss is None:
            raise TunerError(
                "HuggingFaceReport: the Trainer told no loss or no eval_loss of this epoch; say "
                'eval_strategy="epoch" and logging_strategy="epoch"'
            )
        self._report.epoch(
            round(state.epoch),
            train_loss=self._train_loss,
            val_loss=float(metrics["eval_loss"]),
            learning_rate=self._rate,
            elapsed_s=elapsed_s,
        )
        self._train_loss = None

    def on_train_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        self._training = False
        self._epochs = round(state.epoch)
