"""From studies to figures: a study in a database or in a file becomes the records that `tuner.plots` draws."""

from tuner.figures.draw import KINDS, draw
from tuner.figures.series import (
    common_reference,
    front_series,
    learning_curves,
    spans_of,
    trade_series,
    verified_points,
    volume_series,
)
from tuner.figures.subject import Subject, of_archive, of_study

__all__ = [
    "KINDS",
    "Subject",
    "common_reference",
    "draw",
    "front_series",
    "learning_curves",
    "of_archive",
    "of_study",
    "spans_of",
    "trade_series",
    "verified_points",
    "volume_series",
]
