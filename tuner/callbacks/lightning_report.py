"""A callback of Lightning's that reports a training to tuner, by a clock of its own.

The clock counts what Lightning does between the start of an epoch and its end, validation included:
steps, loaders, logging, and the callbacks that run meanwhile. What lies between two epochs, such as
a checkpoint that is written at an epoch's end, is not on it, nor are set-up and sanity check. The
device is synchronised at both ends of an epoch.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.callbacks.program_report import ReportsItself, library
from tuner.errors import TunerError

if TYPE_CHECKING:
    _Callback = Any
else:
    _NAMES = ("lightning.pytorch", "pytorch_lightning")
    _Callback = library(*_NAMES, needed_by="LightningReport", extra="lightning").Callback


class LightningReport(ReportsItself, _Callback):  # type: ignore[misc]
    """Reports each epoch, ends the training when tuner says so, and does nothing without tuner.

    Args:
        val_loss: what the module logs its validation loss as.

    After the training, call `final` with what the study minimises.

    Raises:
        NotUnderTunerError: the study's times are by another clock.
    """

    def __init__(self, val_loss: str = "val_loss") -> None:
        super().__init__("lightning")
        self._val_loss = val_loss
        self._losses: list[Any] = []

    @property
    def last_checkpoint(self) -> Path | None:
        """For `fit(ckpt_path=...)`: the newest checkpoint in the trial's own folder that is whole;
        None where an earlier attempt left none.
        """
        # One whose writing a kill cut short lacks its end, where an archive says what is in it.
        return self._newest_whole("*.ckpt", zipfile.is_zipfile)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._begin(pl_module.device, is_first=trainer.is_global_zero)

    def on_train_epoch_start(self, *_: Any) -> None:
        self._losses = []
        self._clock.go_on()

    def on_train_batch_end(self, trainer: Any, _module: Any, outputs: Any, *_: Any) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            self._losses.append(loss.detach())  # no wait for the device: it is read at the end
        if self._report.should_stop:
            self.stopped = trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        elapsed_s = self._clock.stop()
        if self.stopped or not trainer.is_global_zero:
            return  # an epoch that was cut is none
        if self._val_loss not in trainer.callback_metrics:
            raise TunerError(
                f"LightningReport: nothing is logged as {self._val_loss!r}; log the validation "
                "loss once an epoch, or say its name: LightningReport(val_loss=...)"
            )
        losses = [float(loss) for loss in self._losses]
        self._report.epoch(
            trainer.current_epoch + 1,
            train_loss=sum(losses) / max(len(losses), 1),
            val_loss=float(trainer.callback_metrics[self._val_loss]),
            learning_rate=_rate_of(pl_module),
            elapsed_s=elapsed_s,
        )

    def on_fit_end(self, trainer: Any, *_: Any) -> None:
        self._epochs = trainer.current_epoch


def _rate_of(module: Any) -> float | None:
    optimizers = module.optimizers()
    first = optimizers[0] if isinstance(optimizers, list) else optimizers
    groups = getattr(first, "param_groups", None)
    return float(groups[0]["lr"]) if groups else None
