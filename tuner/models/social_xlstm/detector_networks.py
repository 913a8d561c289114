"""Social-xLSTM in three forms: a network for each detector, one for all, and one with a head each.

Every target column is a detector with one value a time step. All three see the same, and forecast
in one way; what differs is which weights detectors share, and so in how many pieces the work comes.
With equal weights their forecasts are equal.

Legend: B windows, L steps of the past, T steps ahead, N detectors (the targets, C elsewhere), P
past and F future covariates, S static ones, Q quantiles, H hidden size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.errors import UsageError
from tuner.models.revin import ReversibleInstanceNorm
from tuner.models.social_xlstm.encoder import Encoder
from tuner.models.social_xlstm.neighbour_grid import neighbour_cells
from tuner.models.social_xlstm.readout import HeadsByDetector, Readout, pooled
from tuner.models.social_xlstm.variant_settings import Pooling, VariantSettings


class DetectorNetwork(nn.Module, ABC):
    """What the three have in common: the level of each window, what is pooled, and what comes out.

    Args:
        shapes: of the task; its targets are the detectors.
        settings: of the variant.

    Raises:
        UsageError: it pools, and the task names no positions, or has one detector.
    """

    cells: Tensor | None

    def __init__(self, shapes: ModelShapes, settings: VariantSettings) -> None:
        super().__init__()
        self.shapes = shapes
        self.reversible_norm = (
            ReversibleInstanceNorm(shapes.n_targets) if settings.reversible_norm else None
        )
        # A constant of the task: no part of the saved weights.
        self.register_buffer("cells", _cells_of(shapes, settings), persistent=False)

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """Forecasts every detector's quantiles at every step ahead, in the units of `past`.

        Args:
            past: (B, L, N + P + F), detectors first.
            future: (B, T, F), or None where F is 0.
            static: (B, S), or None where S is 0.

        Returns:
            (B, T, N, Q).
        """
        n_detectors = self.shapes.n_targets
        values, statistics = past[..., :n_detectors], None
        if self.reversible_norm is not None:
            normed, statistics = self.reversible_norm(values)
            values = torch.addcmul(self.reversible_norm.bias, normed, self.reversible_norm.weight)
        covariates = past[..., n_detectors:] if past.shape[-1] > n_detectors else None
        changes = self.changes(values.transpose(1, 2), covariates, _context(future, static))
        sizes = n_detectors, self.shapes.horizon, self.shapes.n_quantiles
        by_step = changes.reshape(-1, *sizes).transpose(1, 2)  # (B, T, N, Q)
        forecast: Tensor = by_step + values[:, -1:].unsqueeze(-1)
        if self.reversible_norm is None or statistics is None:
            return forecast
        restored: Tensor = self.reversible_norm.inverse(forecast, statistics)
        return restored

    @abstractmethod
    def changes(self, history: Tensor, covariates: Tensor | None, context: Tensor | None) -> Tensor:
        """The forecasts as changes from each detector's last value.

        Args:
            history: (B, N, L).
            covariates: (B, L, P + F), or None where there are none.
            context: (B, T * F + S), or None where there is none.

        Returns:
            (B, N, T * Q).
        """


class SharedNetwork(DetectorNetwork):
    """One encoder and one readout for all detectors: windows and detectors are one batch.

    Args:
        shapes: of the task.
        settings: of the variant.
        heads: each detector has a last layer of its own.
    """

    def __init__(self, shapes: ModelShapes, settings: VariantSettings, *, heads: bool) -> None:
        super().__init__(shapes, settings)
        sizes = settings.hidden_size, shapes.horizon * shapes.n_quantiles
        head = HeadsByDetector(shapes.n_targets, *sizes) if heads else nn.Linear(*sizes)
        self.encoder = Encoder(shapes.n_past + shapes.n_future, settings)
        self.readout = _readout(shapes, settings, self.cells, head)

    def changes(self, history: Tensor, covariates: Tensor | None, context: Tensor | None) -> Tensor:
        states = self.encoder(history, covariates)
        around = None if self.cells is None else pooled(states, self.cells)
        found: Tensor = self.readout(states, around, context)
        return found


class LoopNetwork(DetectorNetwork):
    """An encoder and a readout for each detector, called one after the other.

    Args:
        shapes: of the task.
        settings: of the variant.
    """

    def __init__(self, shapes: ModelShapes, settings: VariantSettings) -> None:
        super().__init__(shapes, settings)
        sizes = settings.hidden_size, shapes.horizon * shapes.n_quantiles
        n_covariates, detectors = shapes.n_past + shapes.n_future, range(shapes.n_targets)
        self.encoders = nn.ModuleList(Encoder(n_covariates, settings) for _ in detectors)
        self.readouts = nn.ModuleList(
            _readout(shapes, settings, self.cells, nn.Linear(*sizes)) for _ in detectors
        )

    def changes(self, history: Tensor, covariates: Tensor | None, context: Tensor | None) -> Tensor:
        states = torch.cat(
            [
                encode(history[:, number : number + 1], covariates)
                for number, encode in enumerate(self.encoders)
            ],
            dim=1,
        )
        found = []
        for number, read in enumerate(self.readouts):
            its = slice(number, number + 1)
            around = None if self.cells is None else pooled(states, self.cells[its])
            found.append(read(states[:, its], around, context))
        return torch.cat(found, dim=1)


def _readout(
    shapes: ModelShapes, settings: VariantSettings, cells: Tensor | None, head: nn.Module
) -> Readout:
    return Readout(
        settings.hidden_size,
        n_cells=0 if cells is None else cells.shape[1],
        n_context=shapes.horizon * shapes.n_future + shapes.n_static,
        dropout=settings.dropout,
        head=head,
    )


def _context(future: Tensor | None, static: Tensor | None) -> Tensor | None:
    """What is known of each window beside its past, (B, T * F + S)."""
    parts = [] if future is None else [future.flatten(1)]
    if static is not None:
        parts.append(static)
    return torch.cat(parts, dim=-1) if parts else None


def _cells_of(shapes: ModelShapes, settings: VariantSettings) -> Tensor | None:
    if settings.pooling is Pooling.NONE:
        return None
    remedy = "set pooling = 'none' under [model_settings] in a copy of its study file"
    if shapes.n_targets == 1:
        raise UsageError(
            "social pooling adds up the neighbours of a detector, and the task has one target "
            f"column; give each detector a column of its own, or {remedy}"
        )
    if not shapes.positions:
        raise UsageError(
            "social pooling needs to know where the detectors are, and the task does not say; add "
            'positions = "positions.csv" to the task file (columns series,x,y or series,lat,lon), '
            f"or {remedy}, without pool_radius and pool_grid"
        )
    table = neighbour_cells(shapes.positions, radius=settings.pool_radius, grid=settings.pool_grid)
    return torch.from_numpy(table)
