"""Prepared data on a device. A batch is a gather by window number, without waiting for the host."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tuner.config import ModelShapes
from tuner.data.prepare import SPLITS, PreparedData, PreparedSplit
from tuner.data.task import Task
from tuner.errors import UsageError, first_line
from tuner.files.plain import excerpt

OF_COLUMNS = ("minimum", "scale", "change", "covariate_minimum", "covariate_scale")
"""Figures of each column of a series, from its training rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """B windows. Last axis of `past`: targets, past covariates, past of the future covariates."""

    past: Tensor  # (B, L, C + P + F)
    future: Tensor | None  # (B, T, F); None where the task has no future covariates
    static: Tensor | None  # (B, S); None where it has no static covariate
    target: Tensor  # (B, T, C), scaled
    series: Tensor | None = None  # (B,) int64, the number of each window's; where asked for


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeviceSplit:
    """One split's rows and windows as tensors on one device."""

    history: Tensor  # (R, C + P + F)
    targets: Tensor  # (R, C)
    future: Tensor | None  # (R, F)
    static: Tensor | None  # (series, S)
    starts: Tensor  # (N,) int64: first row of each window
    series_index: Tensor  # (N,) int64: series of each window
    past_steps: Tensor  # (1, L) int64: 0 .. L-1
    future_steps: Tensor  # (1, T) int64: L .. L+T-1

    def __len__(self) -> int:
        """Number of windows."""
        return self.starts.shape[0]

    def __repr__(self) -> str:
        return f"<{len(self)} windows on {self.starts.device}>"

    def gather(self, index: Tensor, *, with_series: bool = False) -> Batch:
        """The windows with these numbers, (B,) int64 on the same device.

        Only indexing by device tensors: nothing waits for the host, so the gather can be captured
        in a CUDA graph.
        """
        start = self.starts[index].unsqueeze(1)  # (B, 1)
        rows = start + self.future_steps  # (B, T)
        return Batch(
            past=self.history[start + self.past_steps],
            future=None if self.future is None else self.future[rows],
            static=None if self.static is None else self.static[self.series_index[index]],
            target=self.targets[rows],
            series=self.series_index[index] if with_series else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeviceData:
    """A task's data on a device. original = scaled * scale[series] + minimum[series], float64."""

    task: Task
    shapes: ModelShapes
    series: tuple[str, ...]
    train: DeviceSplit
    val: DeviceSplit
    test: DeviceSplit
    minimum: Tensor  # (series, C) float64
    scale: Tensor  # (series, C) float64
    change: Tensor  # (series, C) float64: mean absolute change from row to row, original units
    covariate_minimum: Tensor  # (series, P + F without the calendar's) float64
    covariate_scale: Tensor  # the same
    data_hash: str = ""
    """Of the task and what was read, as a study keeps it."""
    kept: dict[Hashable, Any] = field(default_factory=dict, init=False)
    """What was worked out of this data once and serves all trainings on it, by whoever did."""

    def seeing(self, input_size: int | None) -> DeviceData:
        """The same windows, of whose past only the last `input_size` rows are seen; all of them
        where None. Forecasts are of the same rows, and the tensors are shared.

        Raises:
            UsageError: the windows have no such past.
        """
        whole = self.shapes.input_size
        if input_size in (None, whole):
            return self
        if not 1 <= input_size <= whole:
            raise UsageError(
                f"input_size {input_size}: the windows of task {self.task.name!r} have {whole} "
                f"rows of past; expected 1 to {whole}, or a longer input_size in the task"
            )
        found: DeviceData | None = self.kept.get(input_size)
        if found is None:
            task = self.task.model_copy(update={"input_size": input_size})
            sizes = replace(self.shapes, input_size=input_size)
            parts: dict[str, Any] = {
                name: _shorter(getattr(self, name), whole, input_size) for name in SPLITS
            }
            found = replace(self, task=task, shapes=sizes, **parts)
            self.kept[input_size] = found
        return found

    def __repr__(self) -> str:
        """What people want to see of it in a notebook: no tensors."""
        counts = f"{len(self.train)} train, {len(self.val)} val, {len(self.test)} test windows"
        return f"<{self.task.name}: {', '.join(self.series)}; {counts}; on {self.minimum.device}>"


def _shorter(split: DeviceSplit, whole: int, input_size: int) -> DeviceSplit:
    """The windows without the first rows of their past."""
    left_out = whole - input_size
    return replace(
        split,
        starts=split.starts + left_out,
        past_steps=split.past_steps[:, :input_size],
        future_steps=split.future_steps - left_out,
    )


def refuse_absent_device(device: torch.device | str) -> None:
    """Raises UsageError where torch has no such device here."""
    try:
        torch.empty(0, device=torch.device(device))
    except (TypeError, RuntimeError, AssertionError) as error:
        why = excerpt(first_line(error), at_most=200)
        raise UsageError(f"device {device!r}: torch has none here ({why})") from None


def to_device(
    prepared: PreparedData, device: torch.device | str, *, dtype: torch.dtype = torch.float32
) -> DeviceData:
    """Copy prepared data to `device`, once.

    `dtype` is that of targets and covariates (float64 for exact comparisons).
    """
    device = torch.device(device)
    static = _tensor(prepared.static, device).to(dtype) if prepared.shapes.n_static else None
    parts: dict[str, Any] = {name: _tensor(getattr(prepared, name), device) for name in OF_COLUMNS}
    for name in SPLITS:
        parts[name] = _split(getattr(prepared, name), prepared.shapes, static, device, dtype)
    return DeviceData(
        task=prepared.task,
        shapes=prepared.shapes,
        series=prepared.series,
        data_hash=prepared.data_hash,
        **parts,
    )


def _split(
    split: PreparedSplit,
    sizes: ModelShapes,
    static: Tensor | None,
    device: torch.device,
    dtype: torch.dtype,
) -> DeviceSplit:
    history = np.hstack([split.targets, split.past, split.future])
    window = sizes.input_size + sizes.horizon
    steps = torch.arange(window, device=device).unsqueeze(0)  # (1, L + T)
    return DeviceSplit(
        history=_tensor(history, device).to(dtype),
        targets=_tensor(split.targets, device).to(dtype),
        future=_tensor(split.future, device).to(dtype) if sizes.n_future else None,
        static=static,
        starts=_tensor(split.starts, device),
        series_index=_tensor(split.series_index, device),
        past_steps=steps[:, : sizes.input_size],
        future_steps=steps[:, sizes.input_size :],
    )


def _tensor(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array).copy()).to(device)
