"""Classes written for another library: which of their methods tuner does not call, and how to wrap
such a network.
"""

from __future__ import annotations

from collections.abc import Iterator

UNUSED = (
    "training_step",
    "validation_step",
    "test_step",
    "configure_optimizers",
    "optimizer_step",
    "lr_scheduler_step",
    "configure_gradient_clipping",
    "backward",
    "train_dataloader",
    "val_dataloader",
)
"""Methods by which a LightningModule says how it is trained: tuner trains all networks by one
protocol instead."""

LIBRARIES = ("neuralforecast", "darts", "pytorch_lightning", "lightning", "torch", "tuner")
"""Whose own methods say nothing about what the user wanted."""

CALLED_AS = (
    "tuner takes a torch.nn.Module called as Class(shapes, hidden_size=..., dropout=..., "
    "**settings) whose "
    "forward(past, future, static) returns (batch, horizon, targets, quantiles)"
)
WHERE = (
    "docs/own-architecture.md, 'A class of another library', "
    "shows how to wrap the network of another"
)


def unused_methods(found: type) -> tuple[str, ...]:
    """Those of `UNUSED` that the class, or one that it inherits from outside of libraries, defines
    itself.
    """
    mine = [each for each in found.__mro__ if _library(each) == ""]
    return tuple(name for name in UNUSED if any(name in vars(each) for each in mine))


def unused_notice(reference: str, methods: tuple[str, ...]) -> str:
    """That the methods are ignored, for the person who wrote them; empty where there are none."""
    if not methods:
        return ""
    named = " and ".join(filter(None, (", ".join(methods[:-1]), methods[-1])))
    return (
        f"{reference}: its own {named} will not be used: tuner trains every variant by one "
        "protocol (quantile loss, "
        "AdamW, early stopping) and takes only the network and its forward of the class; see "
        "docs/own-architecture.md"
    )


FOR_DARTS = ", or a module class with the constructor arguments of darts' _TSMixerModule"


def names_model_of_darts(location: str) -> bool:
    """Whether an import string begins where darts has its forecasting models, and no module."""
    return location in ("darts", "darts.models")


def no_model_of_darts(reference: str) -> str:
    """That such a model is not taken, and what is."""
    return (
        f"{reference}: a forecasting model of darts is not taken: it brings its own data handling "
        f"and training; {CALLED_AS}{FOR_DARTS}; {WHERE}"
    )


def advice(found: object) -> str:
    """What is accepted in place of a class that is not, for one of neuralforecast or of darts;
    empty for others.
    """
    if isinstance(found, type) and found.__module__.startswith("neuralforecast.models."):
        return f"; name it as neuralforecast:{found.__name__} instead (docs/own-architecture.md)"
    library = next((name for name in _libraries(found) if name in ("neuralforecast", "darts")), "")
    if not library:
        return ""
    taken = CALLED_AS
    if library == "darts":
        taken += FOR_DARTS
    return f"; it is a class of {library}: {taken}; {WHERE}"


def _libraries(found: object) -> Iterator[str]:
    if isinstance(found, type):
        yield from (_library(each) for each in found.__mro__)


def _library(found: type) -> str:
    root = found.__module__.partition(".")[0]
    return root if root in LIBRARIES or root == "builtins" else ""
