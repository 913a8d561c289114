"""Terms of a training loss, as users write them in a file of their own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tuner.config import LossTerm, RunConfig

TERMS = '''
import torch
from torch import nn

SEEN = []


def smooth(forecast, past, future, target):
    """Quadratic: forecasts that change little from step to step."""
    median = forecast[..., forecast.shape[-1] // 2]
    return (median[:, 1:] - median[:, :-1]).square().mean()


def noted(forecast, past, future, target):
    SEEN.append((forecast, past, future, target))
    return forecast.mean()


def random(forecast, past, future, target):
    return (forecast * torch.rand_like(forecast)).mean()


class Facts:
    def __init__(self, facts):
        SEEN.append(facts)
        self.middle = facts.quantiles.index(0.5)

    def __call__(self, forecast, past, future, target):
        return (forecast[..., self.middle] - target).abs().mean()


class Buffered(nn.Module):
    def __init__(self, facts):
        super().__init__()
        self.register_buffer("goal", torch.zeros(()))

    def forward(self, forecast, past, future, target):
        return (forecast - self.goal).square().mean()


class Learned(nn.Module):
    def __init__(self, facts):
        super().__init__()
        self.strength = nn.Parameter(torch.ones(()))

    def forward(self, forecast, past, future, target):
        return self.strength * forecast.mean()


class KeepsOne:
    """A weight that no module shows."""

    def __init__(self, facts):
        self.strength = torch.ones((), requires_grad=True)

    def __call__(self, forecast, past, future, target):
        return self.strength * forecast.mean()


STRENGTH = torch.ones((), requires_grad=True)


def keeps_one(forecast, past, future, target):
    return STRENGTH * forecast.mean()


def trains_another(forecast, past, future, target):
    return (STRENGTH * target).mean()


def spread(forecast, past, future, target):
    """No number where a batch has one window."""
    return forecast.std(dim=0).mean()


class Overflows(torch.autograd.Function):
    """Its gradient is more than 16 bits hold, however the loss is scaled."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


def too_steep(forecast, past, future, target):
    """A usual gradient by what it is tried on, an infinite one by a network's forecast."""
    return (Overflows.apply(forecast) if len(target) > 2 else forecast).mean()


def leaves(forecast, past, future, target):
    raise SystemExit(0)


def many(forecast, past, future, target):
    return forecast.mean(dim=0)


def plain(forecast, past, future, target):
    return 3.0


def whole(forecast, past, future, target):
    return (forecast > 0).sum()


def detached(forecast, past, future, target):
    return forecast.detach().mean()


def not_a_number(forecast, past, future, target):
    return (forecast.mean() * float("nan"))


def no_slope(forecast, past, future, target):
    return (forecast - forecast).square().sum().sqrt()


def raises(forecast, past, future, target):
    raise KeyError("density")


def later(forecast, past, future, target):
    """Fails on the forecasts of a network alone: these are not around the target."""
    if len(target) > 2:
        raise KeyError("viscosity")
    return forecast.mean()


def later_not_a_number(forecast, past, future, target):
    return forecast.mean() * (float("nan") if len(target) > 2 else 1.0)


def few(forecast):
    return forecast.mean()


MASS = 3.0
'''


def terms_file(folder: Path) -> Path:
    """`physics.py` with all of them."""
    path = folder / "physics.py"
    path.write_text(TERMS, encoding="utf-8")
    return path


def with_term(config: RunConfig, path: Path, name: str, weight: float = 0.5) -> RunConfig:
    """The same training with this term of the file."""
    loss = LossTerm(term=f"{path}:{name}", weight=weight)
    return dataclasses.replace(config, training=config.training.but(loss=loss))
