"""The physics of benchmarks/tcn_physics: a mass of 1 on a spring, damped, under a known force.

x' = v,   v' = u - STIFFNESS x - DAMPING v,   u held from one row to the next
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from tuner.training.own_term import TermFacts

STIFFNESS, DAMPING = 4.0, 0.4
STEP_S = 0.1
FREQUENCY = "100ms"


class Motion:
    """How far the median forecast is from the equations of motion, by the trapezoidal rule.

    Each residual is what a row lacks or has too much after a step, in units of position and of
    velocity, whose size is about 1 here: their mean square.
    """

    def __init__(self, facts: TermFacts) -> None:
        missing = {"position", "velocity"} - {*facts.target_columns}
        if missing or "force" not in facts.future_covariates or facts.frequency != FREQUENCY:
            raise ValueError(
                "the task has to forecast position and velocity and to know force, every "
                f"{FREQUENCY}"
            )
        self.position = facts.target_columns.index("position")
        self.velocity = facts.target_columns.index("velocity")
        self.force = facts.future_covariates.index("force")
        self.median = min(range(len(facts.quantiles)), key=lambda i: abs(facts.quantiles[i] - 0.5))

    def __call__(self, forecast: Tensor, past: Tensor, future: Tensor, target: Tensor) -> Tensor:
        """(B, T, C, Q), (B, L, C + P + F), (B, T, F), (B, T, C) -> a scalar."""
        del past, target
        x, v = (forecast[:, :, column, self.median] for column in (self.position, self.velocity))
        u = future[:, :-1, self.force]
        middle_x, middle_v = (x[:, 1:] + x[:, :-1]) / 2, (v[:, 1:] + v[:, :-1]) / 2
        moved = x[:, 1:] - x[:, :-1] - STEP_S * middle_v
        pushed = v[:, 1:] - v[:, :-1] - STEP_S * (u - STIFFNESS * middle_x - DAMPING * middle_v)
        return (moved.square() + pushed.square()).mean()
