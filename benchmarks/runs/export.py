"""A study of the table of recorded runs as an exported study, which `tuner compare`, `best` and `study import` read:

    python benchmarks/runs/export.py retune/h100/etth-original --output OUT/etth-original.json.gz

It is compact: without learning curves, and without what the table does not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from optuna.trial import TrialState

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.runs import table
from tuner.record import Recorded
from tuner.study.archive import Archive, write_archive
from tuner.study.results import TrialRecord


def numbered(found: Archive) -> Archive:
    """The same with a trial for each number: one that had not trained waits there."""
    known = {record.number: record for record in found.records}
    records = [known.get(number) or waiting(number, found) for number in range(max(known) + 1)]
    return dataclasses.replace(table.without_ablations(found), records=tuple(records))


def waiting(number: int, found: Archive) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=TrialState.WAITING,
        params={},
        values=None,
        recorded=Recorded(),
        started=None,
        ended=None,
        objectives=found.definition.objectives,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", help="its name in the table")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    try:
        found = table.archive(options.study)
    except KeyError as error:
        raise SystemExit(error.args[0]) from None
    write_archive(numbered(found), options.output)


if __name__ == "__main__":
    main()
