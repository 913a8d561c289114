"""The best configuration of a study, in the forms that training code takes.

`choice` picks a trial, `record` says what it is and where it comes from, `load` finds it in a
database or an archive; one module writes each form. `bundle` and `standalone` make scripts that run
without tuner.
"""

from tuner.export.best_config import BestConfig
from tuner.export.forms import FORMATS, render
from tuner.export.load import is_archive, load_best
from tuner.export.pick import PICKS

__all__ = ["FORMATS", "PICKS", "BestConfig", "is_archive", "load_best", "render"]
