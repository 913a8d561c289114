"""A training's checkpoint: all that its next epoch depends on, and the clock, in one file.

The tensors are weights, buffers, optimiser moments, the best epoch's weights and the states of the
random number generators; the rest (epoch, clock, early stopping, history) is JSON in the file's own
metadata, with a digest over everything and the identity of the training it belongs to. Reading one
executes nothing, and a file that is truncated, damaged, made up or another training's is never
used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from safetensors import SafetensorError
from torch import Tensor

from tuner.config import EpochRecord
from tuner.errors import first_line
from tuner.files.durable import is_full, read_regular, write_durably
from tuner.training.batching import Shuffles
from tuner.training.engines.eager import Engine
from tuner.training.model_state import Snapshot, copy_all, copy_together

FORMAT = "tuner checkpoint 1"
KEPT = 2
"""Files kept of a training: the newest, and the one before in case that one cannot be used."""
LEAST_S = 1.0
"""On the clock of a training that leaves a checkpoint: less is trained again before it is read."""
HEADER_BYTES = 64 << 20
"""At most, beside the tensors: metadata, of which the history is the largest part."""
Identity = Mapping[str, str | int]
_UNREADABLE = (
    SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError
)  # fmt: skip
_log = logging.getLogger(__name__)


class Progress(BaseModel):
    """Where a training stood when an epoch was over; times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    epoch: int = Field(ge=1)
    """Finished epochs."""
    learning_rate: float = Field(ge=0)
    """What the next epoch is trained with."""
    stopping_best: float | None
    """None, as with `best_epoch` 0, where no epoch was validated yet."""
    stopping_waited: int = Field(ge=0)
    best_epoch: int = Field(ge=0)
    n_windows: int = Field(ge=0)
    elapsed_s: float = Field(ge=0)
    """The clock."""
    setup_s: float = Field(ge=0)
    total_s: float = Field(ge=0)
    history: tuple[EpochRecord, ...]

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if [record.epoch for record in self.history] != list(range(1, self.epoch + 1)):
            raise ValueError("its history does not lead up to its epoch")
        for record in self.history:
            figures = (record.train_loss, record.learning_rate, record.elapsed_s)
            if not all(math.isfinite(n) for n in (*figures, record.val_loss or 0.0)):
                raise ValueError("its history holds something that is no number")
        if self.best_epoch > self.epoch or self.history[-1].elapsed_s > self.elapsed_s:
            raise ValueError("its figures contradict each other")
        validated = [record.epoch for record in self.history if record.val_loss is not None]
        best = [self.best_epoch] if self.best_epoch else []
        if bool(validated) != bool(best) or not set(best) <= set(validated):
            raise ValueError("its best epoch is not one that was validated")
        if (self.stopping_best is None) != (not validated):
            raise ValueError("its early stopping has seen other epochs")
        return self


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """A training between two epochs. `notes` are its caller's, plain JSON data."""

    progress: Progress
    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class CheckpointFiles:
    """The checkpoints of one training in a folder.

    Args:
        folder: created when the first is written; may be shared between machines.
        stem: how the training's files begin.
        identity: what a file must have been written with to be used.
        every_s: seconds between two of them; 0 means none but at an interruption.
        least_s: seconds on the clock below which a training leaves none: it is sooner run again.
        notes: asked at each writing for what goes with it.
    """

    folder: Path
    stem: str
    identity: Identity
    every_s: float
    least_s: float = LEAST_S
    notes: Callable[[], Mapping[str, Any]] = dict
    _last: float = field(default_factory=time.monotonic)

    def due(self) -> bool:
        """Whether one should be written now."""
        return self.every_s > 0 and time.monotonic() - self._last >= self.every_s

    def worth(self, elapsed_s: float) -> bool:
        """Whether a training with so many seconds on its clock is to leave any at all."""
        return elapsed_s >= self.least_s

    def save(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Writes one. What it cannot write it reports, and goes on."""
        path = self.folder / f"{self.stem}-epoch-{progress.epoch:06d}.safetensors"
        self._last = time.monotonic()
        try:
            write_durably(
                path,
                to_bytes(
                    Checkpoint(progress=progress, tensors=tensors, notes=self.notes()),
                    self.identity,
                ),
            )
        except OSError as error:
            why = "the disk is full" if is_full(error) else str(error.strerror or error)
            _log.warning("no checkpoint in %s: %s; the training goes on without", self.folder, why)
            return
        for old in self._files()[KEPT:]:
            old.unlink(missing_ok=True)

    def usable(self, *, at_most: int) -> Iterator[Checkpoint]:
        """Those that can be read, the newest first; `at_most` bytes of tensors each."""
        for path in self._files():
            try:
                yield from_bytes(read_regular(path, at_most=at_most + HEADER_BYTES), self.identity)
            except (OSError, ValueError) as error:
                _log.warning("the checkpoint %s is not used: %s", path, error)

    def discard(self) -> None:
        """Delete all of this training's."""
        for path in self.folder.glob(f"{self.stem}-epoch-*"):
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob(f"{self.stem}-epoch-*.safetensors"), reverse=True)


def to_bytes(checkpoint: Checkpoint, identity: Identity) -> bytes:
    """The file's content."""
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()
    }
    metadata = {
        "format": FORMAT,
        "identity": json.dumps(dict(identity), sort_keys=True),
        "progress": checkpoint.progress.model_dump_json(),
        "notes": json.dumps(dict(checkpoint.notes), allow_nan=False),
    }
    return safetensors.torch.save(tensors, metadata | {"sha256": _digest(metadata, tensors)})


def from_bytes(data: bytes, identity: Identity) -> Checkpoint:
    """What `to_bytes` was given.

    Raises:
        ValueError: in one line: these bytes are no checkpoint, damaged, or another training's.
    """
    try:
        tensors = safetensors.torch.load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        digest = metadata.pop("sha256")
        format_, whose = metadata["format"], json.loads(metadata["identity"])
    except _UNREADABLE as error:
        raise ValueError(f"truncated, or no checkpoint ({first_line(error)})") from None
    if format_ != FORMAT:
        raise ValueError("written by another version of tuner")
    if digest != _digest(metadata, tensors):
        raise ValueError("damaged: its content is not what was written")
    if whose != dict(identity):
        differing = sorted(
            key for key in {*identity, *whose} if whose.get(key) != identity.get(key)
        )
        raise ValueError(f"another training's: it differs in {', '.join(differing)}")
    try:
        notes = json.loads(metadata["notes"])
        progress = Progress.model_validate_json(metadata["progress"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"its figures make no sense ({first_line(error)})") from None
    if not isinstance(notes, dict):
        raise ValueError("its notes make no sense")  # noqa: TRY004 - what is wrong is the file
    return Checkpoint(progress=progress, tensors=tensors, notes=notes)


def _digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Holds a training's state at an epoch's end where that serves, writes it out, and puts it back.


CPU_STATE, CUDA_STATE, SHUFFLES = "random/cpu", "random/cuda", "random/shuffles"
LONG_EPOCH_S = 0.25
"""On the clock: an epoch from which on a copy of the state costs little beside it."""


class Checkpointer:
    """Of one training: its engine, best weights and generators, and the files that outlive it."""

    def __init__(
        self,
        files: CheckpointFiles,
        engine: Engine,
        best: Snapshot,
        shuffles: Shuffles,
        device: torch.device,
    ) -> None:
        self._files = files
        self._engine = engine
        self._best = best
        self._shuffles = shuffles
        self._device = device
        self._tensors: dict[str, Tensor] = {}
        self._progress: Progress | None = None
        self._written = False
        self._epoch = 0
        """After which there is a state to go on from, held or in a file."""

    def resume(self, *, before: int) -> Checkpoint | None:
        """Put back the newest checkpoint that fits, of an epoch before the last possible one.

        None where there is none, and nothing has changed.
        """
        size = sum(tensor.numel() * tensor.element_size() for tensor in self._best.tensors)
        # Weights, two moments and the best weights: four times, about.
        for checkpoint in self._files.usable(at_most=8 * size):
            try:
                if checkpoint.progress.epoch >= before:
                    raise ValueError("its training was over")  # noqa: TRY301 - one way to refuse
                self._put_back(checkpoint.tensors)
            except (ValueError, RuntimeError) as error:  # the latter is a generator's refusal
                epoch, folder = checkpoint.progress.epoch, self._files.folder
                said = "the checkpoint of epoch %d in %s is not used: %s"
                _log.warning(said, epoch, folder, error)
                continue
            self._epoch = checkpoint.progress.epoch
            return checkpoint
        return None

    def waits_for_end(self, epochs: int, elapsed_s: float) -> bool:
        """Whether a stop asked for in the middle of an epoch is to wait until that is over.

        Args:
            epochs: that are over.
            elapsed_s: on the clock.
        """
        # The first epoch is as long as the clock says: there is nothing before it to write.
        return 0 < epochs != self._epoch and self._files.worth(elapsed_s)

    def epoch_ended(
        self, progress: Callable[[], Progress], *, epoch_s: float, elapsed_s: float, stopping: bool
    ) -> None:
        """Hold the state where that serves, and write it where a file is due.

        Args:
            progress: where the training stands.
            epoch_s: what the epoch took, on the clock.
            elapsed_s: on the clock so far.
            stopping: the training is about to be interrupted.
        """
        worth = self._files.worth(elapsed_s)
        due = worth and self._files.due()
        if epoch_s >= LONG_EPOCH_S or due or (stopping and worth):
            held = progress()
            self.hold(held)
            self._epoch = held.epoch
        if due:
            self.write()

    @torch.no_grad()
    def hold(self, progress: Progress) -> None:
        """Copy everything as it is now, in the memory of the last copy."""
        now = self._engine.state() | {
            f"best/{n}": tensor for n, tensor in enumerate(self._best.tensors)
        }
        known = [name for name in now if name in self._tensors]
        copy_together([self._tensors[name] for name in known], [now[name] for name in known])
        self._tensors |= {
            name: now[name].detach().clone() for name in now if name not in self._tensors
        }
        self._tensors |= self._random_states()
        self._progress, self._written = progress, False

    def write(self) -> None:
        """Write what is held, unless that is in a file already, or not worth one."""
        if self._progress is None or self._written:
            return
        if not self._files.worth(self._progress.elapsed_s):
            return
        self._files.save(self._progress, self._tensors)
        self._written = True

    def _random_states(self) -> dict[str, Tensor]:
        states = {CPU_STATE: torch.get_rng_state(), SHUFFLES: self._shuffles.get_state()}
        if self._device.type == "cuda":
            states[CUDA_STATE] = torch.cuda.get_rng_state(self._device)
        return states

    def _put_back(self, tensors: Mapping[str, Tensor]) -> None:
        before = self._random_states()
        if not before.keys() <= tensors.keys():
            raise ValueError("it lacks the state of a random number generator")
        untouched = [tensor.clone() for tensor in self._best.tensors]
        try:
            self._set_random_states(tensors)
            copy_all(self._best.tensors, tensors, "best")
            self._engine.load(tensors)
        except (ValueError, RuntimeError):
            self._set_random_states(before)
            copy_together(self._best.tensors, untouched)
            raise

    def _set_random_states(self, tensors: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(tensors[CPU_STATE])
        self._shuffles.set_state(tensors[SHUFFLES])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(tensors[CUDA_STATE], self._device)
