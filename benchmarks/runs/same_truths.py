"""Are truths fitted from the table those that are fitted from the exported studies themselves?

    git worktree add ../before REVISION
    python benchmarks/runs/same_truths.py ../before/benchmarks

The folder is one of before the exports left the repository (manifest.txt names the revision). Every array that a truth is fitted
from is compared, and each truth, fitted from both, at 500 places. Equal means the same bits.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).parents[2]))
import numpy as np

from benchmarks.runs.table import exports
from benchmarks.verdict import truths
from benchmarks.verdict.recordings import RETUNES, STUDIES, Recordings, recordings, recordings_of
from tuner.study.archive import read_archive
from tuner.study.snapshot import snapshot

PLACES = 500
HEADER = "| truth | trainings | recordings | surfaces at 500 places |"


def from_exports(folder: Path, variant: str, *, retunes: bool) -> Recordings:
    """What the exported studies in a folder hold of a variant."""
    names = exports(f"retune/{RETUNES[variant]}/etth-{variant}*") if retunes else STUDIES[variant]
    return recordings_of(
        variant, [snapshot(read_archive(folder / f"{name}.json.gz")) for name in names]
    )


def equal(one: Recordings, other: Recordings) -> bool:
    """Whether all that is recorded is the same, to the last bit."""
    return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and bool((one == other).all())
    return bool(one == other)


def surfaces(made: truths.Made, recorded: Recordings) -> np.ndarray[Any, Any]:
    """A truth's MQL, epochs and seconds at drawn places: (3, places)."""
    with mock.patch.object(truths, "recordings", return_value=recorded):
        truth = truths.Truth(made)
    where = np.random.default_rng(0).random((PLACES, recorded.where.shape[1]))
    return np.array([truth.mql(where), truth.log_epochs(where), truth.seconds(where)])


def line(made: truths.Made, before: Recordings, now: Recordings) -> str:
    told = [equal(before, now), bool((surfaces(made, before) == surfaces(made, now)).all())]
    words = " | ".join("equal" if each else "DIFFERENT" for each in told)
    return f"| {made.name} | {len(now.mql)} | {words} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="benchmarks/ as it was with its exports")
    options = parser.parse_args()
    print(HEADER, "|---|---|---|---|", sep="\n")
    for made in (*truths.TRUTHS, *truths.RETUNED):
        before = from_exports(options.folder, made.variant, retunes=made.retuned)
        now = recordings(made.variant, retunes=made.retuned)
        print(line(made, before, now), flush=True)


if __name__ == "__main__":
    main()
