"""Social-xLSTM in three forms: a network for each detector, one for all, and one with a head each.

Every target column is a detector with one value a time step. All three see the same, and forecast
in one way; what differs is which weights detectors share, and so in how many pieces the work comes.
With equal weights their forecasts are equal. Between the first two, groups of detectors may share.

Legend: B windows, L steps of the past, T steps ahead, N detectors (the targets, C elsewhere), P
past and F future covariates, S static ones, Q quantiles, H hidden size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.errors import UsageError
from tuner.models.layers import Grouped, ReversibleInstanceNorm
from tuner.models.names import HEADS, LOOP
from tuner.models.social_xlstm.encoder import Encoder, FlatLinear
from tuner.models.social_xlstm.variant_settings import Pooling, VariantSettings

# Which detectors lie in which cell of the square around each one: made once, from positions.


Floats = npt.NDArray[np.float64]

MOST_DETECTORS = 4096
"""Of which a table of all pairs is made: gigabytes from here on."""
FEW_NEIGHBOURS = 2
"""Fewer are less than one to each side of a road."""
SLACK = 1e-9
"""Of a cell's width: what lies on an edge but for rounding lies inside."""


def neighbour_cells(
    positions: Sequence[tuple[float, float]], *, radius: float, grid: int
) -> npt.NDArray[np.float32]:
    """A table of ones and zeros: whether detector M is in cell G of the grid around detector N.

    Nobody is in a grid of his own. A cell that is empty around everybody is left out.

    Args:
        positions: (N, 2), in any one unit of length.
        radius: half the side of the square, in `usual_distance`s; at least 1.
        grid: cells to a side, an even number.

    Returns:
        (N, G, N).

    Raises:
        UsageError: all at one place, or more detectors than a table of all pairs can have.
    """
    if len(positions) > MOST_DETECTORS:
        raise UsageError(
            f"social pooling keeps a table of all pairs, for at most {MOST_DETECTORS:,} detectors, "
            f"and the task has {len(positions):,}; split the task, or set pooling = 'none' under "
            "[model_settings]"
        )
    places = np.asarray(positions, dtype=np.float64)
    reach = radius * usual_distance(places)
    apart = places[None, :] - places[:, None]  # (N, M, 2): from each one to the others
    width = 2 * reach / grid
    near: npt.NDArray[np.bool_] = np.all(np.abs(apart) <= reach * (1 + SLACK), axis=-1)
    inside = near & ~np.eye(len(places), dtype=np.bool_)
    # The same to both sides: a neighbour on an edge is in the nearer of two cells.
    rings = np.ceil(np.abs(apart) / width - SLACK).astype(np.int64).clip(1, grid // 2)
    steps = np.where(apart >= 0, grid // 2 + rings - 1, grid // 2 - rings)
    cells = steps[..., 0] * grid + steps[..., 1]
    of, other = np.nonzero(inside)
    used, column = np.unique(cells[inside], return_inverse=True)
    table = np.zeros((len(places), len(used), len(places)), dtype=np.float32)
    table[of, column, other] = 1.0
    return table


def pooling_in_words(positions: Sequence[tuple[float, float]], radius: float) -> str:
    """Over how many others each detector pools, for the person who chose the radius.

    Args:
        positions: (N, 2), in any one unit of length.
        radius: half the side of the square, in `usual_distance`s.

    Raises:
        UsageError: as `neighbour_cells`.
    """
    table = neighbour_cells(positions, radius=radius, grid=2)
    others = table.sum(axis=(1, 2))
    usual = usual_distance(np.asarray(positions, dtype=np.float64))
    least, middle, most = int(others.min()), float(np.median(others)), int(others.max())
    pairs = ""
    if middle < FEW_NEIGHBOURS:
        pairs = (
            "; where detectors stand in pairs, such as of two carriageways, that distance is one "
            "within a pair, and pool_radius has to be larger"
        )
    return (
        f"a detector pools over {least} to {most} others, {middle:g} in the median: those within "
        f"{radius:g} times {usual:.4g}, the usual distance to the next one{pairs}"
    )


def usual_distance(places: Floats) -> float:
    """The median distance from a detector, (N, 2), to the nearest one at another place.

    Raises:
        UsageError: there is no other place.
    """
    nearest = []
    for place in places:  # row by row: a table of all distances would hold N * N numbers again
        distances = np.hypot(*(places - place).T)
        elsewhere = distances[distances > 0]
        if len(elsewhere):
            nearest.append(float(elsewhere.min()))
    if not nearest:
        raise UsageError(
            "social pooling needs detectors at two places at least, and the task's are all at one; "
            "correct its positions, or set pooling = 'none' under [model_settings]"
        )
    return float(np.median(nearest))


# From a detector's hidden state, and those around it, to its forecast.


def pooled(states: Tensor, cells: Tensor) -> Tensor:
    """The sum of the hidden states in each cell around each detector.

    Args:
        states: (B, M, H), of all detectors.
        cells: (N, G, M), as `neighbour_cells` gives them, of the N detectors that are asked for.

    Returns:
        (B, N, G * H).
    """
    n_cells, n_detectors = cells.shape[1:]
    sums = torch.matmul(cells.reshape(-1, n_detectors), states)  # (B, N * G, H)
    return sums.reshape(len(states), -1, n_cells * states.shape[-1])


class Readout(nn.Module):
    """Hidden state, pooled neighbours and context to what a head reads; then the head.

    Args:
        hidden_size: H.
        n_cells: G; 0 without pooling.
        n_context: K, what is known of the window as a whole.
        dropout: probability.
        head: (B, N, H) to (B, N, T * Q).
    """

    def __init__(
        self, hidden_size: int, *, n_cells: int, n_context: int, dropout: float, head: nn.Module
    ) -> None:
        super().__init__()
        self.embed = FlatLinear(n_cells * hidden_size, hidden_size) if n_cells else None
        self.state = FlatLinear(hidden_size, hidden_size)
        self.around = FlatLinear(hidden_size, hidden_size, bias=False) if n_cells else None
        self.context = FlatLinear(n_context, hidden_size, bias=False) if n_context else None
        self.dropout = nn.Dropout(dropout)
        self.head = head

    def forward(self, states: Tensor, around: Tensor | None, context: Tensor | None) -> Tensor:
        """(B, N, H), (B, N, G * H) or None, (B, K) or None -> (B, N, T * Q)."""
        joined = self.state(states)
        if self.embed is not None and self.around is not None and around is not None:
            joined = joined + self.around(torch.relu(self.embed(around)))
        if self.context is not None and context is not None:
            joined = joined + self.context(context).unsqueeze(1)
        forecast: Tensor = self.head(self.dropout(torch.relu(joined)))
        return forecast


class HeadsByDetector(nn.Module):
    """A linear layer of its own for each detector, all of them as one product.

    Args:
        n_detectors: N.
        n_in: H.
        n_out: T * Q.
    """

    def __init__(self, n_detectors: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)  # as torch initialises a linear layer
        self.weight = nn.Parameter(torch.empty(n_detectors, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_detectors, n_out).uniform_(-bound, bound))

    def forward(self, states: Tensor) -> Tensor:
        """(B, N, n_in) -> (B, N, n_out)."""
        by_detector = torch.matmul(states.transpose(0, 1), self.weight)  # (N, B, n_out)
        return by_detector.transpose(0, 1) + self.bias


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
    """One encoder and one readout for all detectors, or for each group of them: windows and
    detectors are one batch.

    Args:
        shapes: of the task.
        settings: of the variant.
        heads: each detector has a last layer of its own; then there are no groups.
    """

    def __init__(self, shapes: ModelShapes, settings: VariantSettings, *, heads: bool) -> None:
        super().__init__(shapes, settings)
        sizes = settings.hidden_size, shapes.horizon * shapes.n_quantiles
        head = HeadsByDetector(shapes.n_targets, *sizes) if heads else FlatLinear(*sizes)

        def encoder() -> nn.Module:
            return Encoder(shapes.n_past + shapes.n_future, settings)

        if settings.group_size is None:
            self.encoder = encoder()
            self.readout: nn.Module = _readout(shapes, settings, self.cells, head)
            return
        of = shapes.n_targets, settings.group_size
        self.encoder = Grouped(encoder, *of)
        self.readout = Grouped(
            lambda: _readout(shapes, settings, self.cells, FlatLinear(*sizes)), *of
        )

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
            _readout(shapes, settings, self.cells, FlatLinear(*sizes)) for _ in detectors
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


# From the name of a Social-xLSTM variant to its network.


def build_social(
    variant: str, shapes: ModelShapes, arguments: Mapping[str, Any]
) -> DetectorNetwork:
    """A new network on the CPU.

    Args:
        variant: one of `tuner.models.names.social_names()`.
        shapes: of the task.
        arguments: those of `VariantSettings`.

    Raises:
        UsageError: settings it does not take, a task without the positions that it pools by, or a
            cell whose package is not installed.
    """
    settings = VariantSettings.of(variant, arguments)
    try:
        if variant == LOOP:
            return LoopNetwork(shapes, settings)
        return SharedNetwork(shapes, settings, heads=variant == HEADS)
    except UsageError as error:
        raise UsageError(f"variant {variant!r}: {error}") from None
