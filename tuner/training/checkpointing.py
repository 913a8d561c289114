"""Keeps a training's state at its latest epoch end, writes it out at times, and puts it back.

The copy is made on the device, off the clock: whenever a training is interrupted, also in the
middle of an epoch, there is an epoch end to write.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tuner.training.checkpoint import Checkpoint, Checkpoints, Progress
from tuner.training.engines.interface import Engine
from tuner.training.model_state import Snapshot, copy_all, copy_together

CPU_STATE, CUDA_STATE, SHUFFLES = "random/cpu", "random/cuda", "random/shuffles"


class Checkpointer:
    """Of one training: its engine, best weights and generators, and the files that outlive it."""

    def __init__(
        self,
        files: Checkpoints,
        engine: Engine,
        best: Snapshot,
        shuffles: torch.Generator,
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
            return checkpoint
        return None

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

    def write_if_due(self) -> None:
        if self._files.due():
            self.write()

    def write(self) -> None:
        """Write what is held, unless that is in a file already."""
        if self._progress is None or self._written:
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
