"""What the card beside a model file has to say before the model is built:
every field with its type and range.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tuner.config import Hyperparameters
from tuner.config.loss_term import LossTerm
from tuner.data.task import shapes, task_of
from tuner.files.kinds import LARGEST_FIGURE
from tuner.files.plain import Digest, Loose, PlainTable, Strict, Text
from tuner.models.names import NetworkName, NetworkSettings
from tuner.spec.configuration import Configuration

Figure = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
Row = tuple[Figure, ...]


class CardNetwork(Strict):
    """An `Architecture`."""

    model: NetworkName
    settings: NetworkSettings = Field(default_factory=dict)


class CardScaling(Loose):
    """Minimum and range of each column, by series."""

    minimum: tuple[Row, ...]
    scale: tuple[Row, ...]


class CardTraining(Loose):
    """Of its settings, what says which hyperparameter is no network's."""

    loss: LossTerm | None = None


class Card(Loose):
    """As much of a card as loading reads; the rest says how the training went."""

    format: Literal[1]
    architecture: CardNetwork
    hyperparameters: Configuration
    shapes: dict[str, int]
    task: PlainTable
    series: tuple[Text, ...] = Field(min_length=1)
    scaling: CardScaling
    weights_sha256: Digest
    training: CardTraining = CardTraining()

    def configuration(self) -> Hyperparameters:
        """As the network is built with it."""
        return self.hyperparameters.beside(self.architecture.settings, self.training.loss)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        task = task_of(self.task)
        expected = shapes(task)
        if self.shapes != expected.sizes():
            raise ValueError("shapes are not those of its task")
        columns = len(task.target_columns) + len(task.past_covariates) + len(task.future_covariates)
        for name, rows in (("minimum", self.scaling.minimum), ("scale", self.scaling.scale)):
            if len(rows) != len(self.series) or any(len(row) != columns for row in rows):
                raise ValueError(
                    f"scaling.{name} has not a row for each series and a figure for each column"
                )
        return self
