"""tuner: retuning for forecasting models.
A changed architecture is a new model, so it gets its own search.

The names below are imported when they are first used: `import tuner` costs nothing.
"""

from __future__ import annotations

from tuner.version import __version__

TYPE_CHECKING = (
    False  # as type checkers take it; to import typing takes longer than all the rest here
)
if TYPE_CHECKING:
    from typing import Any

    from tuner import launch
    from tuner.api import forecast_figure, load_data, load_study
    from tuner.config import Architecture, Hyperparameters, ModelShapes, RunConfig, TrainingSettings
    from tuner.export import BestConfig, load_best
    from tuner.export.saved_model import SavedModel, load_model
    from tuner.models.registry import build_model
    from tuner.training import FitResult, evaluate, fit
    from tuner.worker.functions.called import current_seed
    from tuner.worker.functions.study import create_study, optimize


_HOMES = {
    "Architecture": "tuner.config",
    "BestConfig": "tuner.export",
    "FitResult": "tuner.training",
    "Hyperparameters": "tuner.config",
    "ModelShapes": "tuner.config",
    "RunConfig": "tuner.config",
    "SavedModel": "tuner.export.saved_model",
    "TrainingSettings": "tuner.config",
    "build_model": "tuner.models.registry",
    "create_study": "tuner.worker.functions.study",
    "current_seed": "tuner.worker.functions.called",
    "evaluate": "tuner.training",
    "fit": "tuner.training",
    "forecast_figure": "tuner.api",
    "load_best": "tuner.export",
    "load_data": "tuner.api",
    "load_model": "tuner.export.saved_model",
    "load_study": "tuner.api",
    "optimize": "tuner.worker.functions.study",
}

__all__ = [
    "Architecture",
    "BestConfig",
    "FitResult",
    "Hyperparameters",
    "ModelShapes",
    "RunConfig",
    "SavedModel",
    "TrainingSettings",
    "__version__",
    "build_model",
    "create_study",
    "current_seed",
    "evaluate",
    "fit",
    "forecast_figure",
    "launch",
    "load_best",
    "load_data",
    "load_model",
    "load_study",
    "optimize",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "launch":  # a package, whose `run` is what scripts call
        return importlib.import_module("tuner.launch")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tuner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
