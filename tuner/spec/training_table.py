"""The table `[training]` of a study file."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tuner.config import MOST_ACCUMULATED, Backend, CompileMode, Precision, TrainingSettings
from tuner.files.kinds import MOST_EPOCHS
from tuner.spec.loss_table import LossTable


class FixedTraining(BaseModel):
    """The fixed settings of training; what a file leaves out has the protocol's value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_epochs: Annotated[int, Field(gt=0, le=MOST_EPOCHS)] = 200
    patience: Annotated[int, Field(gt=0, le=MOST_EPOCHS)] = 10
    min_delta: Annotated[float, Field(ge=0)] = 1e-5
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 0.999
    precision: Precision = Precision.FP32
    accumulate: Annotated[int, Field(gt=0, le=MOST_ACCUMULATED)] = 1
    checkpoint_activations: Annotated[bool, Field(strict=True)] = False
    validate_every: Annotated[int, Field(gt=0, le=MOST_EPOCHS)] = 1
    loss: LossTable | None = None

    def settings(self) -> TrainingSettings:
        """As trainings get them."""
        plain = self.model_dump(exclude={"loss"})
        return TrainingSettings(**plain, loss=None if self.loss is None else self.loss.record())


class ExecutedTraining(FixedTraining):
    """The same, and how it is executed."""

    backend: Backend = Backend.AUTO
    compile_mode: CompileMode = CompileMode.DEFAULT
