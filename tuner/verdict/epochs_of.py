"""What the time of a recommendation is made of: fewer epochs, or faster ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.record import Recorded
from tuner.verdict.confirmation import Confirmation
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.stats.noninferiority import paired_ratio
from tuner.verdict.verified import Verified


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsOf:
    """Of what is recommended and of the default, on the seeds on which both count."""

    study: str
    trial: int
    epochs: Interval
    """The ratio: recommended over default."""
    s_per_epoch: Interval
    """The same of seconds an epoch, of timings that nothing disturbed."""
    medians: tuple[tuple[float, float], tuple[float, float]]
    """Epochs, and seconds an epoch, of what is recommended; then of the default."""
    cut_off: bool = False
    """The limit of epochs cut off runs of the default."""

    def as_dict(self) -> dict[str, Any]:
        (epochs, seconds), (default_epochs, default_seconds) = self.medians
        return {
            "study": self.study,
            "trial": self.trial,
            "epochs_ratio": self.epochs.as_estimate(),
            "s_per_epoch_ratio": self.s_per_epoch.as_estimate(),
            "default_cut_off": self.cut_off,
            "recommended": {"epochs": epochs, "s_per_epoch": seconds},
            "default": {"epochs": default_epochs, "s_per_epoch": default_seconds},
        }

    @property
    def sentence(self) -> str:
        """Without a full stop."""
        (epochs, seconds), (default_epochs, default_seconds) = self.medians
        cut = ", where its limit cuts it off" if self.cut_off else ""
        return (
            f"Trial {self.trial} of {self.study} takes {self.epochs:.2f} times the epochs "
            f"of its default ({epochs:g} against {default_epochs:g}{cut}), and "
            f"{self.s_per_epoch:.2f} times the seconds an epoch ({seconds:.3g} against "
            f"{default_seconds:.3g})"
        )


def epochs_of(there: Confirmation | None) -> EpochsOf | None:
    """Of a confirmation; None where it has nothing to hold against the default, or too few runs."""
    if there is None or there.recommended is None or there.default is None:
        return None
    one, other = there.recommended, there.default
    epochs = paired_ratio(_by_seed(one, _epochs), _by_seed(other, _epochs))
    pace = paired_ratio(_by_seed(one, _pace), _by_seed(other, _pace))
    medians = [
        (epochs_.estimate, pace_.estimate)
        for each in (one, other)
        if (epochs_ := each.of_counted(_epochs)) and (pace_ := each.of_clean(_pace))
    ]
    if epochs is None or pace is None or len(medians) < 2:  # noqa: PLR2004 - of both
        return None
    return EpochsOf(
        study=there.study,
        trial=one.trial_number,
        epochs=epochs,
        s_per_epoch=pace,
        medians=(medians[0], medians[1]),
        cut_off=other.cut_off > 0,
    )


def _by_seed(found: Verified, figure: Callable[[Recorded], float | None]) -> dict[int, float]:
    return {
        run.seed: value
        for run in found.clean
        if run.result is not None and (value := figure(run.result.recorded))
    }


def _epochs(recorded: Recorded) -> float | None:
    return recorded.epochs


def _pace(recorded: Recorded) -> float | None:
    return recorded.s_per_epoch
