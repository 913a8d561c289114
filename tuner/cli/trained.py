"""What `tuner train` tells: how far it is, and what its seeds came to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.options import note
from tuner.cli.output import print_json, say

if TYPE_CHECKING:
    from tuner.export.train import Failed, Trained
    from tuner.training import EpochRecord
    from tuner.training.naive_forecasts import BaselineScore

SAY_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of the seeds."""

    trained: tuple[Trained, ...]
    failed: tuple[Failed, ...]
    baselines: tuple[BaselineScore, ...]
    """What needs no network."""
    loses: str
    """That one of them does as well, in a sentence; empty where none does."""


def tell(ended: Ended, output: Path, *, as_json: bool) -> None:
    """What the seeds came to, and which files hold the best of them."""
    from tuner.export.train import best_of, files_of
    from tuner.study.baselines import in_words

    kept, files = best_of(ended.trained), files_of(output)
    if as_json:
        print_json(
            {
                "files": files,
                "metrics": kept.as_dict(),
                "seeds": [each.as_dict() for each in ended.trained],
                "failed_seeds": [each.as_dict() for each in ended.failed],
            }
        )
    else:
        if ended.loses:
            say(f"{ended.loses}.")
        _print(ended.trained, kept)
        for series in kept.scores.test_mql:
            mql = [
                f"{in_words(each.name)} {each.evaluation.test_mql[series]:.4f}"
                for each in ended.baselines
            ]
            say(f"without a network, {series}: test MQL of {', '.join(mql)}")
    note(f"wrote {' and '.join(files)}")


def announcer() -> Callable[[int, EpochRecord], None]:
    """Says from time to time how far a training is."""
    said = time.monotonic()

    def announce(seed: int, record: EpochRecord) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            loss = f"training loss {record.train_loss:.6f}"
            if record.val_loss is not None:
                loss = f"validation loss {record.val_loss:.6f}"
            note(f"seed {seed}, epoch {record.epoch}: {loss}")

    return announce


def _print(trained: tuple[Trained, ...], kept: Trained) -> None:
    from tuner.report.terminal.interval_lines import print_forecast_quality

    for each in trained:
        r, mark = each.result, " (kept)" if each is kept else ""
        say(
            f"seed {each.seed}: {r.stopped_by} after {r.epochs} epochs, {r.wall_clock_s:.2f} s, "
            f"validation loss {r.best_val_loss:.6f}{mark}"
        )
        for series, mql in each.scores.test_mql.items():
            say(
                f"  {series}: test MQL {mql:.4f}, of sorted quantiles "
                f"{each.quality.sorted_mql[series]:.4f}"
            )
    if kept.scores.test_columns:
        columns = [f"{name} {mql:.4f}" for name, mql in kept.scores.test_columns.items()]
        say(f"test MQL by target column, in its units: {', '.join(columns)}")
    print_forecast_quality(kept.quality)
