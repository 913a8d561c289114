"""Where prepared arrays are kept: small ones in a file, large ones in files that are mapped."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from tuner.data.source_kinds import listed
from tuner.data.sources import OpenSource
from tuner.data.splits import (
    SPLITS,
    Floats,
    Piece,
    canonical,
    facts_of,
    fit_scaling,
    head_of,
    pieces_of,
    ready_rows,
    refuse_beyond_bounds,
    window_starts,
)
from tuner.data.task import Task
from tuner.errors import DataGoneError, first_line, unknown_name
from tuner.files.durable import replacing

if TYPE_CHECKING:
    from tuner.data.open_file import OpenFile

_log = logging.getLogger(__name__)


def kept(folder: Path, key: str) -> dict[str, npt.NDArray[Any]] | None:
    """The arrays that were stored under `key`; None where there are none, or they are damaged."""
    place = folder / f"{key}{MAPS}"
    path = place / REST if place.exists() else folder / f"{key}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = dict(file)
        if place.exists():
            stored |= {f"{name}.rows": mapped(place / f"{name}.npy") for name in SPLITS}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DataGoneError, OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        _log.warning("%s is damaged; preparing the data again (%s)", path, first_line(error))
        return None
    return stored


def keep(folder: Path, key: str, arrays: Mapping[str, Any]) -> None:
    """Store arrays under `key` in one step; a folder that cannot be written to is a warning."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / f"{key}.npz", mode=0o600) as file:
            np.savez(file, **arrays)
    except OSError as error:
        _log.warning("prepared data is not kept: cannot write to %s (%s)", folder, error.strerror)


def mapped(path: Path) -> npt.NDArray[np.float32]:
    """Writable as torch wants it, and never written to."""
    try:
        found: npt.NDArray[np.float32] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataGoneError(f"{path}: cannot be mapped ({first_line(error)})") from None
    return found


# A file that is too large to be in memory at once: its columns are looked through in one pass, and
# their rows written to where they are mapped from in another.


LARGE_CELLS = 1 << 24
"""Numbers in the used columns from which on their rows are mapped: 64 MiB of them."""
MAPS, REST = ".maps", "rest.npz"
"""How a folder of maps is called, and what in it holds all but the rows."""


def mapped_of(
    task: Task, source: OpenSource, place: Path, least: int, *, whole: bool
) -> dict[str, Any] | None:
    """The arrays, their rows as maps in the folder `place`, made once on this machine; None where
    they are fewer than `least` numbers, or have to be known together.
    """
    from filelock import FileLock

    if source.open is None or listed(task.file.id_column) or task.file.gaps == "fill":
        return None
    file = source.open()
    lacking = [name for name in task.columns if list(file.names).count(name) != 1]
    if lacking or len(file.rows) * len(task.columns) < least:
        return None
    part = place.with_suffix(".part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_suffix(".lock")):
            # Another worker may have been faster, and one that was killed left half of it.
            if not place.exists() or kept(place.parent, place.stem) is None:
                shutil.rmtree(place, ignore_errors=True)
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(mode=0o700)
                if not _write_maps(task, file, part, whole=whole):
                    return None
                part.rename(place)
    except OSError as error:
        _log.warning("data is not mapped: cannot write to %s (%s)", place.parent, error.strerror)
        return None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return kept(place.parent, place.stem)


def _write_maps(task: Task, file: OpenFile, folder: Path, *, whole: bool) -> bool:
    """As `_build`, of one series of a file, bit for bit; False where it has empty cells, which the
    whole file is needed to make sense of.
    """
    from tuner.data.table import series_of
    from tuner.data.times import TimeColumn

    assert file.blocks is not None
    no_columns: Any = {"target_columns": (), "past_covariates": (), "future_covariates": ()}
    where = TimeColumn(source=task.file, frequency=task.frequency)
    (frame,) = series_of(file, where, task.model_copy(update=no_columns))
    if task.objective_series not in (None, frame.name):
        raise unknown_name("objective_series", str(task.objective_series), (frame.name,))
    (piece,) = pieces_of(task, (frame,))
    if whole:
        everything = {"train": slice(0, len(frame.values))}
        piece = replace(piece, splits={**piece.splits, **everything})
    columns = _Columns(task, piece.splits["train"], head_of(frame, len(task.columns)))
    for block in file.blocks(task.columns):
        if not np.isfinite(block).all():
            return False
        columns.take(block)
    refuse_beyond_bounds(task, replace(frame, values=np.stack([columns.low, columns.high])))
    minimum, scale = fit_scaling(np.stack(columns.trained))
    with ExitStack() as closed:
        files = {}
        for name, rows in piece.splits.items():
            files[name] = closed.enter_context((folder / f"{name}.npy").open("wb"))
            width = len(task.columns) + 2 * len(task.calendar)
            head = {
                "descr": "<f4",
                "fortran_order": False,
                "shape": (rows.stop - rows.start, width),
            }
            np.lib.format.write_array_header_1_0(files[name], head)
        _write_rows(task, file.blocks(task.columns), piece, (minimum, scale), files)
    rest: dict[str, Any] = {
        **facts_of(task, (frame.name,), [piece], [(minimum, scale)], [columns.change()]),
        "data_hash": np.array(columns.digest.hexdigest()),
        "filled_rows": np.array([0]),
        "filled_cells": np.array([0]),
        "training_rows": np.array([columns.count, len(frame.values)]),
    }
    for name, rows in piece.splits.items():
        stride = task.horizon if name == "test" else 1
        starts = window_starts(rows.stop - rows.start, task.window, stride)
        rest |= {f"{name}.starts": starts, f"{name}.series_index": np.zeros_like(starts)}
    np.savez(folder / REST, **rest)
    return True


def _write_rows(
    task: Task,
    blocks: Iterator[Floats],
    piece: Piece,
    scaling: tuple[Floats, Floats],
    files: Mapping[str, IO[bytes]],
) -> None:
    first, frame = 0, piece.rows
    for block in blocks:
        end = first + len(block)
        clock = None if frame.clock is None else frame.clock[first:end]
        here = replace(frame, values=block, timestamps=frame.timestamps[first:end], clock=clock)
        ready = ready_rows(task, here, *scaling)
        for name, rows in piece.splits.items():
            mine = ready[max(rows.start - first, 0) : max(rows.stop - first, 0)]
            files[name].write(np.ascontiguousarray(mine, dtype="<f4").data)
        first = end
    for each in files.values():
        each.flush()
        os.fsync(each.fileno())


class _Columns:
    """What is known of columns when all their rows have passed by."""

    def __init__(self, task: Task, train: slice, head: bytes) -> None:
        self._train, self._n_targets = train, len(task.target_columns)
        self.digest = hashlib.sha256(canonical(task.definition()) + head)
        self.low, self.high = np.full((2, len(task.columns)), [[np.inf], [-np.inf]])
        self.trained = self.low, self.high
        """Lowest and highest of the training rows."""
        self.count = 0
        """Of these so far."""
        self._first = 0
        self._last: Floats | None = None
        self._changes: list[Floats] = []

    def take(self, block: Floats) -> None:
        """The next rows, (r, columns)."""
        self.digest.update(np.ascontiguousarray(block, dtype="<f8").tobytes())
        self.low, self.high = _widened((self.low, self.high), block)
        start, stop = (max(end - self._first, 0) for end in (self._train.start, self._train.stop))
        mine = block[start:stop]
        self._first += len(block)
        if not len(mine):
            return
        self.trained = _widened(self.trained, mine)
        self.count += len(mine)
        before = mine[:0] if self._last is None else self._last
        self._last = mine[-1:]
        targets = np.concatenate([before, mine])[:, : self._n_targets]
        self._changes.append(np.abs(np.diff(targets, axis=0)))
        if self._n_targets > 1:
            # numpy adds up rows one after the other, so that it can be done in steps; numbers of
            # one column it adds up in pairs, which takes all of them.
            self._changes = [np.concatenate(self._changes).sum(axis=0, keepdims=True)]

    def change(self) -> Floats:
        """As `mean_change` of the training rows."""
        together = np.concatenate(self._changes)
        if self._n_targets == 1 or self.count < 2:  # noqa: PLR2004 - else there is no change
            change = together.mean(axis=0) if len(together) else np.zeros(self._n_targets)
        else:
            change = together.sum(axis=0) / (self.count - 1)
        return np.where(change > 0, change, 1.0)


def _widened(ends: tuple[Floats, Floats], rows: Floats) -> tuple[Floats, Floats]:
    low, high = ends
    return np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
