"""The scale of an fp16 training's loss, as torch.amp.GradScaler has it, all of it on the device.

In float16 what is below 6e-8 is 0, and gradients are often smaller. So the loss is multiplied by a
scale before the backward pass, and the gradients are divided by it after. Where one of them is then
no finite number, the update is skipped and the scale halved; after 2000 updates in a row without
that, the scale is doubled.

The figures and both operations are GradScaler's. That class itself keeps its two figures where only
it can put them back and reads them on the host to save them; a captured step, and a checkpoint,
need the very tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

INITIAL = 65536.0
GROWTH = 2.0
BACKOFF = 0.5
GROWTH_INTERVAL = 2000
"""Updates in a row without one that is skipped, after which the scale grows."""

SCALE = "loss_scale/scale"
GROWN = "loss_scale/since_growth"
OF_UPDATES = "/step"
"""How names end under which an optimiser's state counts the updates that were not skipped."""


def skipped_all(state: Mapping[str, Tensor]) -> bool:
    """Whether a training in fp16 that is over trained nothing: each of its updates was skipped.

    Args:
        state: of the engine that trained.
    """
    scale = state.get(SCALE)
    if scale is None or float(scale) >= INITIAL:
        return False
    return not any(name.endswith(OF_UPDATES) and float(each) for name, each in state.items())


class LossScale:
    """Of one training, on its device. Nothing here waits for the device, so it can be captured."""

    def __init__(self, device: torch.device) -> None:
        self._scale = torch.full((), INITIAL, dtype=torch.float32, device=device)
        self._since = torch.zeros((), dtype=torch.int32, device=device)
        self.found_inf = torch.zeros((), dtype=torch.float32, device=device)
        """1 where the present gradients are to be skipped: fused optimisers look it up."""

    def scaled(self, loss: Tensor) -> Tensor:
        """What the backward pass begins with."""
        return loss * self._scale

    @torch.no_grad()
    def unscale(self, gradients: Sequence[Tensor]) -> None:
        """Divide gradients by the scale, in place, and note whether one is no finite number."""
        self.found_inf.zero_()
        inverse = self._scale.double().reciprocal().float()
        alike: dict[torch.dtype, list[Tensor]] = {}
        for gradient in gradients:
            alike.setdefault(gradient.dtype, []).append(gradient)
        for of_a_type in alike.values():
            torch._amp_foreach_non_finite_check_and_unscale_(of_a_type, self.found_inf, inverse)

    @torch.no_grad()
    def update(self) -> None:
        """After the update, or in its place: the scale of the next one."""
        torch._amp_update_scale_(
            self._scale, self._since, self.found_inf, GROWTH, BACKOFF, GROWTH_INTERVAL
        )

    def reset(self) -> None:
        """As before the first update."""
        self._scale.fill_(INITIAL)
        self._since.zero_()

    def state(self) -> dict[str, Tensor]:
        """The very tensors, by name."""
        return {SCALE: self._scale, GROWN: self._since}

    @staticmethod
    def check(tensors: Mapping[str, Tensor]) -> None:
        """Raises ValueError where a saved state holds no scale."""
        for name, dtype in ((SCALE, torch.float32), (GROWN, torch.int32)):
            found = tensors.get(name)
            if found is None or found.shape != () or found.dtype != dtype:
                raise ValueError("it holds no scale of the loss, which fp16 needs")

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a `state` that was checked, in place."""
        self._scale.copy_(tensors[SCALE])
        self._since.copy_(tensors[GROWN])
