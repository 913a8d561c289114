"""A search by BoTorch as in its tutorial for noisy objectives: a Gaussian process for each, and the
noisy expected hypervolume improvement, eight at a time.

The recommendation is by the same model: the fastest, as expected, of what was tried that is within
the margin with the chance that ours asks for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import SumMarginalLogLikelihood
from scipy.special import ndtr
from torch import Tensor

from tuner.config import Value
from tuner.search.past_runs import Place
from tuner.spec.margin import MARGIN
from tuner.spec.space import SearchSpace
from tuner.verdict.recommendation import CHANCE

BATCH, FIRST = 8, 16
REFERENCE = (1.3, 1.05)
"""Times the default's time and its MQL."""
RESTARTS, RAW, SAMPLES = 4, 128, 64
"""Fewer than in the tutorial (10, 512, 128): each suggestion is paid for."""
MAXITER = 100


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a search: a place and (seconds, MQL) for each training that ended, the
    default's first; and the places that have no result yet.
    """

    x: tuple[Place, ...]
    y: tuple[tuple[float, float], ...]
    open: tuple[Place, ...] = ()


def quiet_and_seeded(seed: int) -> None:
    """For the whole process: one thread, which is what small matrices are fastest with."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(seed)


def first_places(space: SearchSpace, seed: int) -> list[Place]:
    """The scrambled Sobol points that come before a model is asked."""
    sobol = torch.quasirandom.SobolEngine(space.dimensions, scramble=True, seed=seed)
    return [snapped(space, one) for one in sobol.draw(FIRST).double()]


def next_places(space: SearchSpace, told: Told) -> list[Place]:
    """The next eight."""
    seconds, mql = told.y[0]
    acquisition = qLogNoisyExpectedHypervolumeImprovement(
        model=_model(told),
        ref_point=[-math.log(seconds * REFERENCE[0]), -mql * REFERENCE[1]],
        X_baseline=_tensor(told.x),
        X_pending=_tensor(told.open) if told.open else None,
        sampler=SobolQMCNormalSampler(torch.Size([SAMPLES])),
        prune_baseline=True,
    )
    size = space.dimensions
    found, _ = optimize_acqf(
        acquisition,
        bounds=torch.tensor([[0.0] * size, [1.0] * size], dtype=torch.double),
        q=BATCH,
        num_restarts=RESTARTS,
        raw_samples=RAW,
        options={"batch_limit": 5, "maxiter": MAXITER},
        sequential=True,
    )
    return [snapped(space, one) for one in found]


def recommended(told: Told) -> Place | None:
    """Of what was tried, by the posterior of the objectives without a run's noise; None where the
    default stands.
    """
    model = _model(told)
    tried = list(dict.fromkeys(told.x))
    with torch.no_grad():
        time, quality = (one.posterior(_tensor(tried)) for one in model.models)
        log_s = -time.mean[:, 0].numpy()
        mql = -quality.mean[:, 0].numpy()
        covariance = quality.distribution.covariance_matrix.numpy()
    factor = 1 + MARGIN
    variance = np.diag(covariance) + factor**2 * covariance[0, 0] - 2 * factor * covariance[0]
    chance = ndtr((factor * mql[0] - mql) / np.sqrt(np.maximum(variance, 1e-18)))
    may = [i for i in range(1, len(tried)) if chance[i] >= CHANCE and log_s[i] < log_s[0]]
    return tried[min(may, key=lambda i: log_s[i])] if may else None


def params_at(space: SearchSpace, place: Sequence[float]) -> dict[str, Value]:
    """The configuration there, or the nearest that can be trained: sizes are powers of two."""
    return dict(space.at([float(share) for share in place]))


def snapped(space: SearchSpace, shares: Tensor) -> Place:
    """Where the nearest configuration lies that can be trained."""
    return tuple(space.shares(params_at(space, shares.tolist())))


def _model(told: Told) -> ModelListGP:
    x = _tensor(told.x)
    y = torch.tensor([(-math.log(seconds), -mql) for seconds, mql in told.y], dtype=torch.double)
    model = ModelListGP(
        *(SingleTaskGP(x, y[:, [i]], outcome_transform=Standardize(m=1)) for i in range(y.shape[1]))
    )
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    return model


def _tensor(places: Sequence[Place]) -> Tensor:
    return torch.tensor(places, dtype=torch.double)
