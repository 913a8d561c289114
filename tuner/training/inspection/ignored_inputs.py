"""Inputs that change no forecast, and other windows that change one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.data.windows import Batch

SEED = 0
SAME = 1e-4
"""Of the largest forecast, or of 1: by less, the same windows differ by rounding."""


def ignored_inputs(model: nn.Module, batch: Batch, shapes: ModelShapes) -> tuple[str, ...]:
    """Which kinds of input the forecasts of a network in evaluation mode do not depend on.

    Each kind is replaced by random numbers: the targets' past, the past covariates, the future
    covariates with their past, the static ones.
    """
    plain = forecasts(model, batch)
    found = []
    for name, changed in _changed(batch, shapes):
        if torch.equal(forecasts(model, changed), plain):
            found.append(name)
    return tuple(found)


def moved_by_others(model: nn.Module, batch: Batch) -> float:
    """By how much forecasts change, in evaluation mode, where the same windows come in pairs; 0 of
    a network whose windows do not look at each other, or that draws random numbers when it
    forecasts, so that nobody can tell.
    """
    plain = forecasts(model, batch)
    if not torch.equal(forecasts(model, batch, seed=SEED + 1), plain):
        return 0.0
    moved = 0.0
    for first in range(0, len(plain) - 2, 2):
        pair = slice(first, first + 2)
        future, static = _rows(batch.future, pair), _rows(batch.static, pair)
        paired = replace(batch, past=batch.past[pair], future=future, static=static)
        moved = max(moved, float((forecasts(model, paired) - plain[pair]).abs().max()))
    return moved if moved > SAME * max(1.0, float(plain.abs().max())) else 0.0


def _rows(of_all: Tensor | None, rows: slice) -> Tensor | None:
    return None if of_all is None else of_all[rows]


@torch.no_grad()
def forecasts(model: nn.Module, batch: Batch, *, seed: int = SEED) -> Tensor:
    """(B, T, C, Q), in evaluation mode, with the same random numbers each time."""
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        output: Tensor = model(batch.past, batch.future, batch.static)
    return output.clone()


def random_batch(like: Batch) -> Batch:
    """As many windows of random numbers between 0 and 1."""
    return Batch(
        past=torch.rand_like(like.past),
        future=None if like.future is None else torch.rand_like(like.future),
        static=None if like.static is None else torch.rand_like(like.static),
        target=torch.rand_like(like.target),
        series=like.series,
    )


def _changed(batch: Batch, shapes: ModelShapes) -> Iterator[tuple[str, Batch]]:
    s, noise = shapes, random_batch(batch)
    c, p = s.n_targets, s.n_past
    yield "the targets' past", replace(batch, past=_columns(batch.past, noise.past, 0, c))
    if p:
        yield "past covariates", replace(batch, past=_columns(batch.past, noise.past, c, c + p))
    if s.n_future:
        past = _columns(batch.past, noise.past, c + p, c + p + s.n_future)
        yield "future covariates", replace(batch, past=past, future=noise.future)
    if s.n_static:
        yield "static covariates", replace(batch, static=noise.static)


def _columns(past: Tensor, other: Tensor, first: int, end: int) -> Tensor:
    changed = past.clone()
    changed[..., first:end] = other[..., first:end]
    return changed
