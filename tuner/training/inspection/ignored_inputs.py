"""Inputs that change no forecast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.data.windows import Batch

SEED = 0


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


@torch.no_grad()
def forecasts(model: nn.Module, batch: Batch) -> Tensor:
    """(B, T, C, Q), in evaluation mode, with the same random numbers each time."""
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
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
