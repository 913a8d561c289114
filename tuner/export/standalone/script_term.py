"""The term that a script adds to its training loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tuner.export.standalone.windows_of_series import Data
from tuner.training.added_term import AddedTerm, TermFacts, callable_term, with_calendar


def term_of_script(found: Any, weight: float, task: Mapping[str, Any], data: Data) -> AddedTerm:
    """The function or class of the study, with the task's units."""
    s = data.shapes
    facts = TermFacts(
        quantiles=tuple(task["quantiles"]),
        target_columns=tuple(task["target_columns"]),
        past_covariates=tuple(task["past_covariates"]),
        future_covariates=tuple(task["future_covariates"]),
        input_size=s.input_size,
        horizon=s.horizon,
        frequency=task["frequency"],
    )
    width = s.n_targets + s.n_past + s.n_future
    minimum = torch.cat([data.minimum, data.covariate_minimum], dim=1)
    scale = torch.cat([data.scale, data.covariate_scale], dim=1)
    return AddedTerm(
        callable_term(found, facts, data.minimum.device),
        weight,
        with_calendar(minimum, 0.0, width),
        with_calendar(scale, 1.0, width),
        (s.n_targets, s.n_future),
        torch.float32,
    )
