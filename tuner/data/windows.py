"""Prepared data on a device. A batch is a gather by window number, without waiting for the host.

Rows that are too many for the device stay on the host: a batch is gathered there, ahead of its time
where its order is known, and copied. The windows, their order and every bit are the same.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib.stride_tricks import as_strided
from torch import Tensor

from tuner.config import ModelShapes
from tuner.data.prepare import PreparedData, PreparedSplit
from tuner.data.splits import SPLITS
from tuner.data.task import Task
from tuner.errors import DataGoneError, UsageError, first_line
from tuner.files.plain import excerpt

_log = logging.getLogger(__name__)

SHARE_OF_DEVICE = 0.5
"""Of a GPU's free memory, at most, for the rows of a task's data: the rest is for training."""

READ_AHEAD_FOR = {"cuda"}
"""Devices beside which a thread gathers batches. Beside a training on a CPU it would take a core
from threads that wait for each other, to save the hundredth of a step that a batch takes."""

AHEAD = 2
"""Batches that are gathered before they are asked for: one is copied while one is trained on."""

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

    def reading_ahead(self, parts: Iterable[Tensor]) -> contextlib.AbstractContextManager[None]:
        """In here, batches with these numbers are asked for, one after the other: of rows that are
        on the device, nothing is to be done before.
        """
        del parts
        return contextlib.nullcontext()


# Rows that stay on the host, in memory or in a file that is mapped.


Rows = tuple[Tensor, Tensor, Tensor | None]
"""Of a batch: past, target, future."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StreamedSplit(DeviceSplit):
    """A split whose windows are gathered on the host: `history`, and its columns `targets` and
    `future`, are there. What is one number a window is on the device, as always.
    """

    dtype: torch.dtype
    """Of batches."""
    place: Path | None
    """The file that the rows are mapped from; None where they are in memory."""
    ahead: deque[_Ahead] = field(default_factory=deque, init=False)
    """Who reads ahead now, if anybody does."""

    def gather(self, index: Tensor, *, with_series: bool = False) -> Batch:
        """As of its parent: the same bits.

        Raises:
            DataGoneError: the file with the rows is there no more.
        """
        found = self.ahead[-1].next(index) if self.ahead else None
        if found is None:
            found = self.sent(self.rows_of(self.starts[index].cpu()))
        past, target, future = found
        return Batch(
            past=past,
            future=future,
            static=None if self.static is None else self.static[self.series_index[index]],
            target=target,
            series=self.series_index[index] if with_series else None,
        )

    @contextlib.contextmanager
    def reading_ahead(self, parts: Iterable[Tensor]) -> Iterator[None]:
        """In here a thread gathers the batches with these numbers, each (B,), and copies them to
        the device, at most `AHEAD` before they are asked for. Beside a CPU nobody does.
        """
        if self.starts.device.type not in READ_AHEAD_FOR:
            yield
            return
        reader = _Ahead(self, list(parts))
        self.ahead.append(reader)
        try:
            yield
        finally:
            self.ahead.remove(reader)
            reader.close()

    def rows_of(self, starts: Tensor) -> Rows:
        """Of windows that begin at `starts` (B,), on the host: in memory that a GPU reads by
        itself, where there is one.
        """
        self._refuse_gone()
        length, horizon = self.past_steps.shape[1], self.future_steps.shape[1]
        past = self._taken(self.history, length, starts)
        later = starts + length
        target = self._taken(self.targets, horizon, later)
        return (
            past,
            target,
            None if self.future is None else self._taken(self.future, horizon, later),
        )

    def sent(self, rows: Rows) -> Rows:
        """On the device. A copy from pinned memory is waited for by nobody but its stream."""
        past, target, future = (
            None if each is None else each.to(self.starts.device, self.dtype, non_blocking=True)
            for each in rows
        )
        assert past is not None
        assert target is not None
        return past, target, future

    def _taken(self, rows: Tensor, length: int, starts: Tensor) -> Tensor:
        """`length` rows from each start on, (B, length, columns): each window is one stretch of
        memory, not a row after the other.

        By numpy, on this thread alone: torch would take cores from the training.
        """
        held = rows.numpy()
        (count, columns), (row, cell) = held.shape, held.strides
        shape, strides = (count - length + 1, length, columns), (row, row, cell)
        found = as_strided(held, shape, strides, writeable=False)[starts.numpy()]
        if self.starts.device.type != "cuda":
            return torch.from_numpy(found)
        pinned = torch.empty(found.shape, dtype=rows.dtype, pin_memory=True)
        np.copyto(pinned.numpy(), found)
        return pinned

    def _refuse_gone(self) -> None:
        """To read a mapped file that was cut would end the process."""
        if self.place is None:
            return
        try:
            if self.place.stat().st_size >= self.history.nbytes:
                return
            why = "it was cut"
        except OSError as error:
            why = str(error.strerror)
        raise DataGoneError(
            f"{self.place}: is gone while it is trained on ({why}); start again, which prepares "
            "the data anew; a worker hands its trial back"
        )


class _Ahead:
    """Gathers the batches of an epoch in a thread of its own, in their order."""

    def __init__(self, split: StreamedSplit, parts: list[Tensor]) -> None:
        self._split = split
        self._due = deque(parts)
        self._ready: queue.Queue[tuple[Rows, Any] | BaseException] = queue.Queue(AHEAD)
        self._closed = False
        sizes = [len(part) for part in parts]
        # All starts at once: the host waits for the device once an epoch.
        starts = torch.split(split.starts[torch.cat(parts)].cpu(), sizes) if parts else ()
        self._thread = threading.Thread(
            target=self._read, args=(starts,), name="read ahead", daemon=True
        )
        self._thread.start()

    def next(self, index: Tensor) -> Rows | None:
        """The batch with these numbers; None where it is not the one that is due."""
        due = self._due[0] if self._due else None
        if due is None or (due.data_ptr(), due.shape) != (index.data_ptr(), index.shape):
            return None
        self._due.popleft()
        found = self._ready.get()
        if isinstance(found, BaseException):
            raise found
        rows, copied = found
        if copied is not None:
            stream = torch.cuda.current_stream(index.device)
            stream.wait_event(copied)
            for each in rows:
                if each is not None:
                    each.record_stream(stream)
        return rows

    def close(self) -> None:
        """Also where it was left in the middle."""
        self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._ready.get_nowait()
        self._thread.join()

    def _read(self, starts: Iterable[Tensor]) -> None:
        device = self._split.starts.device
        on_gpu = device.type == "cuda"
        try:
            stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
            for each in starts:
                rows = self._split.rows_of(each)
                with torch.cuda.stream(stream):  # of None, the present one
                    rows = self._split.sent(rows)
                self._put((rows, None if stream is None else stream.record_event()))
        except BaseException as error:  # noqa: BLE001 - who asks for the batch raises it
            self._put(error)

    def _put(self, found: tuple[Rows, Any] | BaseException) -> None:
        while not self._closed:
            with contextlib.suppress(queue.Full):
                self._ready.put(found, timeout=0.1)
                return


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
    streamed: str = ""
    """Why its rows stay on the host, and where, in a line; empty where they are on the device."""
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
    """Copy prepared data to `device`, once; its rows only where they fit, else they are streamed,
    and a warning says so.

    `dtype` is that of targets and covariates (float64 for exact comparisons).

    >>> to_device(prepare(load_task("demo")), "cpu").streamed
    ''
    """
    device = torch.device(device)
    streamed = _why_streamed(prepared, device, dtype)
    if not streamed:
        try:
            return _placed(prepared, device, dtype, "")
        except torch.OutOfMemoryError:
            streamed = _in_words(prepared, dtype, "they do not fit beside what is there")
    # Only out here are the frames of the failed try gone, and with them what it held.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    _log.warning("task %s: %s", prepared.task.name, streamed)
    return _placed(prepared, device, dtype, streamed)


def bytes_on_device(prepared: PreparedData, dtype: torch.dtype = torch.float32) -> int:
    """Of a task's rows, where all of them are there: targets and what is known ahead twice."""
    sizes = prepared.shapes
    rows = sum(len(getattr(prepared, name).rows) for name in SPLITS)
    return rows * (2 * (sizes.n_targets + sizes.n_future) + sizes.n_past) * dtype.itemsize


def _why_streamed(prepared: PreparedData, device: torch.device, dtype: torch.dtype) -> str:
    """Empty where the rows are to be on the device: where they are few, and it is not full."""
    allowed, needed = prepared.data_memory, bytes_on_device(prepared, dtype)
    said = "data_memory allows"
    if allowed is None and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        allowed, said = int(SHARE_OF_DEVICE * free), "the device may hold"
    if allowed is not None and needed > allowed:
        return _in_words(prepared, dtype, f"{said} {_mebibytes(allowed)}")
    if allowed is None and prepared.train.place is not None:
        return _in_words(prepared, dtype, "they are more than is kept in memory")
    return ""


def _in_words(prepared: PreparedData, dtype: torch.dtype, why: str) -> str:
    place = "memory" if prepared.train.place is None else "a memory-mapped file"
    rows = _mebibytes(bytes_on_device(prepared, dtype))
    return f"the data is streamed from {place}: its rows take {rows}, {why}"


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.3g} MiB"


def _placed(
    prepared: PreparedData, device: torch.device, dtype: torch.dtype, streamed: str
) -> DeviceData:
    static = _tensor(prepared.static, device).to(dtype) if prepared.shapes.n_static else None
    parts: dict[str, Any] = {name: _tensor(getattr(prepared, name), device) for name in OF_COLUMNS}
    for name in SPLITS:
        split = getattr(prepared, name)
        parts[name] = _split(split, prepared.shapes, static, device, dtype, streamed)
    return DeviceData(
        task=prepared.task,
        shapes=prepared.shapes,
        series=prepared.series,
        data_hash=prepared.data_hash,
        streamed=streamed,
        **parts,
    )


def _split(
    split: PreparedSplit,
    sizes: ModelShapes,
    static: Tensor | None,
    device: torch.device,
    dtype: torch.dtype,
    streamed: str,
) -> DeviceSplit:
    window = sizes.input_size + sizes.horizon
    steps = torch.arange(window, device=device).unsqueeze(0)  # (1, L + T)
    known = sizes.n_targets + sizes.n_past
    alike: dict[str, Any] = {
        "static": static,
        "starts": _tensor(split.starts, device),
        "series_index": _tensor(split.series_index, device),
        "past_steps": steps[:, : sizes.input_size],
        "future_steps": steps[:, sizes.input_size :],
    }
    if streamed:
        rows = torch.from_numpy(split.rows)
        return StreamedSplit(
            history=rows,
            targets=rows[:, : sizes.n_targets],
            future=rows[:, known:] if sizes.n_future else None,
            dtype=dtype,
            place=split.place,
            **alike,
        )
    return DeviceSplit(
        history=_tensor(split.rows, device).to(dtype),
        targets=_tensor(split.targets, device).to(dtype),
        future=_tensor(split.future, device).to(dtype) if sizes.n_future else None,
        **alike,
    )


def _tensor(array: npt.NDArray[np.generic], device: torch.device) -> Tensor:
    """A copy; on the way to a GPU no other one is made."""
    on_cpu = device.type == "cpu"
    return torch.from_numpy(np.array(array, order="C", copy=on_cpu or None)).to(device)
