"""Holds a training's state at an epoch's end where that serves, writes it out, and puts it back.

The copy is made on the device, off the clock. After a long epoch there is always one: a training
that is interrupted in the middle of the next epoch ends at once, and the epoch end before it is
written. Beside a short epoch the copy would cost more than the epoch is worth: there the state is
held only when a file is due or a stop was asked, and a stop in the middle of an epoch waits for its
end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tuner.training.checkpoint import Checkpoint, Checkpoints, Progress
from tuner.training.engines.interface import Engine
from tuner.training.model_state import Snapshot, copy_all, copy_together
from tuner.training.shuffles import Shuffles

CPU_STATE, CUDA_STATE, SHUFFLES = "random/cpu", "random/cuda", "random/shuffles"
LONG_EPOCH_S = 0.25
"""On the clock: an epoch from which on a copy of the state costs little beside it."""


class Checkpointer:
    """Of one training: its engine, best weights and generators, and the files that outlive it."""

    def __init__(
        self,
        files: Checkpoints,
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
                self._files.refuse(checkpoint, str(error))
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
            copy_all(
                self._best.tensors,
                {f"best/{n}": tensor for n, tensor in enumerate(untouched)},
                "best",
            )
            raise

    def _set_random_states(self, tensors: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(tensors[CPU_STATE])
        self._shuffles.set_state(tensors[SHUFFLES])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(tensors[CUDA_STATE], self._device)
