"""One training to convergence: `fit(config, data) -> FitResult`, then `evaluate(model, data)`."""

from tuner.config import EpochRecord
from tuner.training.evaluate import Evaluation, evaluate
from tuner.training.fit import fit
from tuner.training.run_state import FitResult

__all__ = ["EpochRecord", "Evaluation", "FitResult", "evaluate", "fit"]
