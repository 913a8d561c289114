"""One trial of a study as a plain record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.config import OBJECTIVES, Value
from tuner.pareto import Point
from tuner.record import Recorded


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial: true parameter values, objective values (complete trials only) and what was
    recorded with it. Or all trials of one configuration as if they were one.
    """

    number: int
    state: TrialState
    params: Mapping[str, Value]
    values: Point | None
    recorded: Recorded
    started: str | None
    ended: str | None
    objectives: tuple[str, ...] = OBJECTIVES
    """Names of the values."""
    feasible: bool = True
    """False when a finished trial is beyond a limit of the study's policy, as of `--max-time`."""
    trials: tuple[TrialRecord, ...] = ()
    """Where it speaks of a configuration of which several trials ended: those with values, by
    their numbers (`tuner.study.configurations`). Empty of what is one trial."""

    @property
    def each_trial(self) -> tuple[TrialRecord, ...]:
        """The trials with values that it speaks of; of one trial that itself."""
        return self.trials or (self,)

    @property
    def runs(self) -> int:
        """How many trials the values are medians of."""
        return len(self.each_trial)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those of these trials."""
        return tuple(each.number for each in self.each_trial)

    @property
    def runs_in_words(self) -> str:
        """`4 runs`; empty of one, which needs no word."""
        return f"{self.runs} runs" if self.runs > 1 else ""

    @property
    def converged(self) -> bool:
        return bool(self.recorded.converged)

    @property
    def is_default(self) -> bool:
        return bool(self.recorded.default)

    @property
    def place(self) -> str:
        """Host and device that ran it, e.g. `node3,
        NVIDIA H200 #1`; empty where neither was recorded.
        """
        return ", ".join(name for name in (self.recorded.host, self.recorded.device_label) if name)

    @property
    def named_values(self) -> dict[str, float] | None:
        """The objective values by their names; None unless complete."""
        return dict(zip(self.objectives, self.values, strict=True)) if self.values else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: number, parameters, named values, and how the trial ended; of several trials
        also how many, and which.
        """
        plain: dict[str, Any] = {
            "trial": self.number,
            "params": self.params,
            "values": self.named_values,
            "epochs": self.recorded.epochs,
            "converged": self.converged,
            "stopped_by": self.recorded.stopped_by,
            "device": self.recorded.device_label,
            "contaminated": self.recorded.contaminated,
            "default": self.is_default,
            "feasible": self.feasible,
        }
        if self.runs > 1:
            plain |= {"runs": self.runs, "trials": list(self.numbers)}
        return plain
