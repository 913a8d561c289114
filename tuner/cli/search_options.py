"""Options of commands that begin searches: what a study is, and how it is searched."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.config import (
    MANY,
    MOST_ACCUMULATED,
    Backend,
    CompileMode,
    MqlSplit,
    Precision,
)
from tuner.spec.time_objectives import TimeObjective

MaxEpochs = Annotated[
    int | None,
    typer.Option(min=1, max=MANY, metavar="N", help="Epoch limit of a trial (the variant's: 200)."),
]
TimeObjectiveName = Annotated[
    TimeObjective | None,
    typer.Option(help="Which time is minimised (a new study: wall_clock_s)."),
]
TargetValLoss = Annotated[
    str | None,
    typer.Option(metavar="X", help="The validation loss of --time-objective time_to_target_s."),
]
MqlSplitName = Annotated[
    MqlSplit | None,
    typer.Option(
        help="Which split's MQL is minimised (built-in tasks: test, own data: val); origins keeps "
        "the last block of the test split for confirmations."
    ),
]
Draw = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MANY,
        metavar="N",
        help="Of all seeds, of searches, trainings and confirmations: another N asks the same "
        "question again (1).",
    ),
]
NoEstimate = Annotated[
    bool, typer.Option("--no-estimate", help="Measure nothing before the work to foretell it.")
]
BackendName = Annotated[
    Backend | None, typer.Option(help="How the mathematics is executed (auto).")
]
PrecisionName = Annotated[
    Precision | None, typer.Option(help="Arithmetic of the matrix products (fp32).")
]
Accumulate = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_ACCUMULATED,
        metavar="N",
        help="Batches whose gradients make up one update (the variant's: 1).",
    ),
]
CheckpointActivations = Annotated[
    bool | None,
    typer.Option(
        "--checkpoint-activations/--no-checkpoint-activations",
        help="Compute the network's blocks again for the backward pass: less memory, more time, "
        "the same bits (the variant's: no).",
    ),
]
CompileModeName = Annotated[
    CompileMode | None,
    typer.Option(help="How hard --backend compile tries, on a GPU (default)."),
]
ValidateEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MANY,
        metavar="N",
        help="Epochs from one validation to the next (the variant's: 1).",
    ),
]
HangLimit = Annotated[
    str | None,
    typer.Option(
        metavar="10m",
        help="Kill a worker without a sign of life for this long (30m before a trial's first "
        "epoch, then 1m), "
        "or for ten of its trial's epochs if those take longer.",
    ),
]
