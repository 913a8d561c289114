"""`tuner bench --ladder`: what each change to a training's settings brings, alone and on top of
those before it, in time, memory and quality.
"""

from tuner.bench.ladder.ladder_report import (
    LadderRow,
    as_ladder_documents,
    ladder_rows,
    print_ladder,
    write_ladder,
)
from tuner.bench.ladder.to_convergence import Ladder, Trainings, make_ladder, train_rungs

__all__ = [
    "Ladder",
    "LadderRow",
    "Trainings",
    "as_ladder_documents",
    "ladder_rows",
    "make_ladder",
    "print_ladder",
    "train_rungs",
    "write_ladder",
]
