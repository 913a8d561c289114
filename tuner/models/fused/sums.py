"""Starts the kernels that sum the parameters' gradients over the samples, from their records."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tuner.models.fused.kernels.column_gradients import sum_columns
from tuner.models.fused.kernels.gradients import sum_splits
from tuner.models.fused.kernels.weight_gradients import sum_products
from tuner.models.fused.launch_order import Launching
from tuner.models.fused.layout import ALIGNED
from tuner.models.fused.memory_plan import Sizes
from tuner.models.fused.tables import TILE, DeviceTables, columns_of

MOST_SPLITS = 32
"""Of a batch, when gradients are summed."""

PROGRAMS = 1536
"""About as many sum the gradients of weights."""

COLUMN_SAMPLES = 16
"""At least so many are summed by a program that reads one row of each, where the batch has them."""

SUMMED_AT_ONCE = 512
"""Numbers of the gradient whose splits a program adds up."""


class Squares(NamedTuple):
    """Where the gradient's squares are summed, one a program of `sum_splits`, and step's count."""

    sums: Tensor
    step: Tensor


def parameter_gradients(
    sizes: Sizes,
    tables: DeviceTables,
    workspace: Tensor,
    launching: Launching,
    squares: Squares | None = None,
) -> Tensor:
    """What the records hold, summed over the samples; the sums of squares too where wanted."""
    n_samples, n = len(workspace), tables.layout.size
    per_split = samples_per_split(len(tables.products), n_samples)
    n_splits = -(-n_samples // per_split)
    partial = torch.empty(n_splits, n, device=workspace.device)
    launching.branch()
    sum_products[len(tables.products), n_splits](
        tables.products,
        workspace,
        partial,
        n_samples,
        n,
        Z=sizes,
        SAMPLES=per_split,
        OUTPUTS=TILE,
        INPUTS=TILE,
        FEW=16,
        AT_ONCE=16,
        FAR=workspace.numel() >= 1 << 31,
        num_warps=2,  # four take wgmma for a tile of 64 x 64: TF32 only along the summed axis
        maxnreg=168,  # six programs a multiprocessor, and no spills
        num_stages=3,
        **launching.next(),
    )
    with launching.on_side():
        _sum_all_columns(sizes, tables, workspace, partial, per_split, launching)
    launching.join()
    gradient = torch.empty(n, device=workspace.device)
    sum_splits[(-(-n // SUMMED_AT_ONCE),)](
        partial,
        gradient,
        tables.used,
        *((gradient, gradient) if squares is None else squares),
        n,
        n_splits,
        ALIGNED=ALIGNED,
        SPLITS=MOST_SPLITS,
        BLOCK=SUMMED_AT_ONCE,
        SQUARED=squares is not None,
        num_warps=4,
        **(launching.next() if launching.side is None else launching.first()),
    )
    return gradient


def _sum_all_columns(
    sizes: Sizes,
    tables: DeviceTables,
    workspace: Tensor,
    partial: Tensor,
    per_split: int,
    launching: Launching,
) -> None:
    """The share of `partial` (splits, numbers) of norms, and of what samples have a share of."""
    n_samples, (n_splits, n) = len(workspace), partial.shape
    follows = launching.next() if launching.side is None else launching.first()
    for n_rows, table in tables.columns.items():
        together = max(1, COLUMN_SAMPLES // per_split) if n_rows == 1 else 1
        sum_columns[len(table), -(-n_splits // together)](
            table,
            workspace,
            partial,
            n_samples,
            n,
            n_splits,
            RECORD=sizes.record,
            ROWS=n_rows,
            SAMPLES=per_split,
            SPLITS=together,
            AT_ONCE=4 if n_rows == 1 else 32,
            BLOCK=columns_of(n_rows),
            num_warps=4,
            **follows,
        )


def samples_per_split(n_tiles: int, n_samples: int) -> int:
    """A power of two, so that few are compiled; enough programs to fill a large GPU, no more."""
    n_splits = max(4, min(MOST_SPLITS, PROGRAMS // n_tiles))
    return 1 << (-(-n_samples // n_splits) - 1).bit_length()
