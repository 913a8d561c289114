"""What a script trains, and one epoch of it: losses, updates, validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.export.standalone.windows_of_series import Data, Split, gather
from tuner.training.quantile_loss import quantile_loss


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is forecast, and how the network is trained."""

    task: Mapping[str, Any]
    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    min_delta: float
    gradient_clip: float
    learning_rate_decay: float
    precision: str
    seeds: Sequence[int]
    threads: int | None
    data_hash: str
    dropout: float | None = None
    hidden_size: int | None = None
    input_size: int | None = None
    """Rows that the network sees of each window; None: as many as the task says."""
    accumulate: int = 1
    """Batches that make up one update."""
    validate_every: int = 1
    """Epochs from one validation to the next."""
    checkpoint_activations: bool = False


class ScriptStep:
    """The loss of a network, and its updates by AdamW."""

    def __init__(
        self,
        job: Job,
        data: Data,
        model: nn.Module,
        scale_of: Callable[[torch.device], Any] | None,
        checkpointed: Callable[[nn.Module], Any] | None,
        term: Callable[..., Tensor] | None = None,
    ) -> None:
        self.term = term
        self.job, self.data, self.device = job, data, data.minimum.device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=job.learning_rate, weight_decay=job.weight_decay, fused=True
        )
        self.levels = torch.tensor(job.task["quantiles"], device=self.device)
        self.scale = None if scale_of is None else scale_of(self.device)
        self.forecast: Callable[..., Tensor] = model
        if checkpointed is not None:
            self.forecast = checkpointed(model)

    def loss_of(self, split: Split, index: Tensor, *, trains: bool = False) -> Tensor:
        """The loss of some windows: a mean; where it `trains`, with the term."""
        windows = gather(self.data, split, index)
        past, future, static, target = windows
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.job.precision)
        with torch.autocast(self.device.type, dtype=half, enabled=half is not None):
            forecast = self.forecast(past, future, static)
        loss = quantile_loss(forecast.float(), target, self.levels)
        if not trains or self.term is None:
            return loss
        return loss + self.term(forecast.float(), windows, split.series[index])

    def train_on(self, order: Tensor, rate: float) -> None:
        """An epoch over all training windows, in this order."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for windows in batches(order, self.job.batch_size * self.job.accumulate):
            self.optimizer.zero_grad(set_to_none=True)
            for index in batches(windows, self.job.batch_size):
                loss = self.loss_of(self.data.train, index, trains=True)
                if len(index) < len(windows):
                    loss = loss * (len(index) / len(windows))
                (loss if self.scale is None else self.scale.scaled(loss)).backward()
            self.update()

    def update(self) -> None:
        """One step of AdamW by the gradient, clipped; in fp16 none where that is not finite."""
        if self.scale is not None:
            self.scale.unscale([p.grad for p in self.parameters if p.grad is not None])
            self.optimizer.found_inf = self.scale.found_inf  # type: ignore[attr-defined]
        nn.utils.clip_grad_norm_(self.parameters, self.job.gradient_clip)
        self.optimizer.step()
        if self.scale is not None:
            self.scale.update()

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The exact mean over all validation windows."""
        split, at_once = self.data.val, 2048 if self.device.type == "cuda" else 256
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for index in batches(torch.arange(len(split.starts), device=self.device), at_once):
            total += self.loss_of(split, index) * len(index)
        return float(total / len(split.starts))


def batches(order: Tensor, size: int) -> Iterator[Tensor]:
    """(N,) -> views of at most `size` window numbers each, in order."""
    for first in range(0, len(order), size):
        yield order[first : first + size]
