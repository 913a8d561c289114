"""BoTorch as in its tutorial for noisy objectives: a Gaussian process for each, and the noisy
expected hypervolume improvement, eight at a time.

The recommendation is by the same model: the fastest, as expected, of what was tried that is within
the margin with the chance that ours asks for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

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

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender
from benchmarks.verdict.truths import Training, truth
from tuner.spec.margin import MARGIN
from tuner.verdict.recommendation import CHANCE

BATCH, FIRST = 8, 16
REFERENCE = (1.3, 1.05)
"""Times the default's time and its MQL."""
RESTARTS, RAW, SAMPLES = 4, 128, 64
"""Fewer than in the tutorial (10, 512, 128): each suggestion is paid for."""
MAXITER = 100


class BoTorch:
    def __init__(self, gpu: Gpu) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.manual_seed(gpu.seed)
        self._gpu, self._job = gpu, truth(gpu.name)
        sobol = torch.quasirandom.SobolEngine(len(gpu.default), scramble=True, seed=gpu.seed)
        self._first: list[Place] = [self._snapped(one) for one in sobol.draw(FIRST).double()]
        self._x: list[Place] = []
        self._y: list[tuple[float, float]] = []
        self._open: list[Place] = []
        self._begun = False

    def suggest(self) -> list[Place]:
        if not self._begun:
            self._begun, batch = True, [self._gpu.default]
        elif self._first:
            batch, self._first = self._first[:BATCH], self._first[BATCH:]
        else:
            batch = self._asked()
        self._open += batch
        return batch

    def tell(self, trainings: Sequence[Training]) -> None:
        for done in trainings:
            self._x.append(self._open.pop(0))
            self._y.append((-math.log(done.seconds), -done.mql))

    def recommended(self) -> Place | None:
        """Of what was tried, by the posterior of the objectives without a run's noise."""
        model = self._model()
        tried = list(dict.fromkeys([self._gpu.default, *self._x]))
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

    def _asked(self) -> list[Place]:
        log_s, mql = self._y[0]
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            model=self._model(),
            ref_point=[log_s - math.log(REFERENCE[0]), mql * REFERENCE[1]],
            X_baseline=_tensor(self._x),
            X_pending=_tensor(self._open) if self._open else None,
            sampler=SobolQMCNormalSampler(torch.Size([SAMPLES])),
            prune_baseline=True,
        )
        size = len(self._gpu.default)
        found, _ = optimize_acqf(
            acquisition,
            bounds=torch.tensor([[0.0] * size, [1.0] * size], dtype=torch.double),
            q=BATCH,
            num_restarts=RESTARTS,
            raw_samples=RAW,
            options={"batch_limit": 5, "maxiter": MAXITER},
            sequential=True,
        )
        return [self._snapped(one) for one in found]

    def _model(self) -> ModelListGP:
        x, y = _tensor(self._x), torch.tensor(self._y, dtype=torch.double)
        model = ModelListGP(
            *(
                SingleTaskGP(x, y[:, [i]], outcome_transform=Standardize(m=1))
                for i in range(y.shape[1])
            )
        )
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        return model

    def _snapped(self, shares: Tensor) -> Place:
        """The nearest configuration that can be trained: sizes are powers of two."""
        params = self._job.space.at([float(share) for share in shares])
        return tuple(self._job.where(dict(params))[0].tolist())


def _tensor(places: Sequence[Place]) -> Tensor:
    return torch.tensor(places, dtype=torch.double)


def contender(key: str, gpu: Gpu) -> Contender:
    assert key == "botorch", "there is one of it"
    return BoTorch(gpu)
