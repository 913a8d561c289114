"""The best configuration of a study, in the forms that training code takes.

`pick` chooses a trial, `best_config` says what it is and where it comes from, `load` finds it in a
database or an archive, `forms` writes it. Scripts are templates in `scripts`; `bundle` cuts out of
this package what they need to run without it.
"""

from tuner.export.best_config import BestConfig
from tuner.export.forms import FORMATS, render
from tuner.export.load import is_archive, load_best
from tuner.export.pick import PICKS

__all__ = ["FORMATS", "PICKS", "BestConfig", "is_archive", "load_best", "render"]
