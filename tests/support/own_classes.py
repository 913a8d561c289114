"""Classes of a user's own, most of which cannot be used, and the command that checks one."""

from __future__ import annotations

from pathlib import Path

OWN = """
import os

import torch
from torch import nn

print("a class may say what it likes")


class Own(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.shapes = shapes
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        out = self.layer(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)


class Detached(Own):
    def forward(self, past, future, static):
        return super().forward(past, future, static).detach()


class Mistyped(Own):
    def forward(self, past, future, static):
        return undefined_name


class Strange(Own):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, **sizes)
        self.unused = nn.Linear(64, 64, bias=False)

    def forward(self, past, future, static):
        out = super().forward(past, future, static)
        if out.mean() > 0:
            out = out + 0.0
        return torch.cat([out[..., :1] * 0.0, out[..., 1:]], -1)


class Centred(Own):
    def forward(self, past, future, static):
        return super().forward(past, future, static) - past.mean()


class Noisy(Own):
    def forward(self, past, future, static):
        out = super().forward(past, future, static)
        return out + torch.randn(()) + torch.rand_like(out)


class Huge(Own):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, **sizes)
        self.huge = nn.Linear(10**6, 10**7, bias=False)


class Scratch(Own):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, **sizes)
        torch.zeros(2**50)


class Hungry(Own):
    def forward(self, past, future, static):
        if len(past) > 2:
            torch.empty(2**50)
        return super().forward(past, future, static)


class OneForAll(Own):
    def forward(self, past, future, static):
        out = super().forward(past, future, static)
        return out if len(past) == 2 else out[:1]


class OneHour(Own):
    def forward(self, past, future, static):
        out = super().forward(past, future, static)
        return out[:, :1] if self.training else out


class Prints(Own):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, **sizes)
        os.system("echo by a program")
        os.write(1, b"by itself")


class Ends(Own):
    def forward(self, past, future, static):
        os._exit(0)


class Dies(Own):
    def forward(self, past, future, static):
        os.kill(os.getpid(), 9)


class NotANumber(Own):
    def forward(self, past, future, static):
        return super().forward(past, future, static) * float("nan")
"""


def check(folder: Path, name: str, *more: str) -> tuple[str, ...]:
    return (
        "variants",
        "--check",
        f"{'lit' if name == 'Lit' else 'own'}.py:{name}",
        "--task",
        "demo",
        *more,
    )
