"""What the search saw of a configuration, to stand beside its runs on fresh seeds: a table of both
shows the MQL of one and the same split, whatever the search minimised.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tuner.study.results import StudyResults, TrialRecord
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.verified import Verified


def split_shown(verified: Sequence[Verified]) -> str:
    """The name of the MQL that these runs have: that of the test split unless none of them told
    it.
    """
    found = {each.mql_is for each in verified if each.counted}
    return "val_mql" if found == {"val_mql"} else "test_mql"


def mql_of_search(record: TrialRecord | None, name: str) -> float | None:
    """The search's MQL of that name; None where it did not record one."""
    if record is None or record.named_values is None:
        return None
    value = record.named_values.get(name)
    return value if value is not None else _number(record.recorded.named(name))


def verified_as_dict(each: Verified, results: StudyResults) -> dict[str, Any]:
    """For JSON: how its runs ended, and all that a table shows of it, null where that is not known.

    `verified` takes a time and an MQL; `fresh_seeds` has either, as soon as enough runs count for
    it, under the names of the study's time and of the split.
    """
    clock, split = results.objectives[0], each.mql_is
    record = results.configuration_of(each.trial_number)
    seen = record.named_values if record else None
    epochs = each.of_counted(lambda run: run.epochs)
    return {
        "runs": {
            "planned": each.planned,
            "finished": len(each.runs),
            "converged": len(each.counted) - each.cut_off,
            "missed": each.missed,
            "contaminated": each.contaminated,
        },
        "misses": each.misses,
        "late": [json.loads(result.to_json()) for run in each.runs for result in run.late],
        "search": seen and (seen | {split: mql_of_search(record, split)}),
        "fresh_seeds": {
            clock: _spread(each.seconds),
            split: _spread(each.mql),
            "epochs": _spread(epochs),
        },
        "verified": each.as_dict(),
    }


def _spread(found: Interval | None) -> dict[str, float] | None:
    return None if found is None else found.as_dict() | {"runs": found.runs}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
