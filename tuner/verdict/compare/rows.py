"""The table of a comparison: a row for the default and the retuned configuration of every study."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.config import Value
from tuner.files.plain import in_json
from tuner.record import Recorded
from tuner.storage.records import money
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import Standing, in_short
from tuner.verdict.compare.studies import DEFAULT, names_of_groups
from tuner.verdict.confirmation import Confirmation
from tuner.verdict.stats.intervals import LEAST_RUNS, Interval
from tuner.verdict.verified import Verified, verified_in

FIGURES = ("epochs", "total_time_s", "s_per_epoch", "val_loss", "test_mql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A configuration in the table. Each figure is a median
    with its interval, or one number of an unverified trial; of several, the median.
    """

    study: str
    variant: str
    core_change: str
    hyperparameters: str
    trial: int
    params: Mapping[str, Value]
    verified: bool
    runs: int
    misses: Mapping[str, int]
    cut_off: int
    """Runs of a default that the study's limit of epochs cut off, and that count all the same."""
    figures: Mapping[str, Interval | float | None]
    verdict: str = ""
    columns: Mapping[str, Interval | float | None] = field(default_factory=dict)
    """The test MQL of each target column, where there are several: in the units of the data."""
    paid: Mapping[str, Interval | float | None] = field(default_factory=dict)
    """`energy_j`, where it was resolved, and `cost`, where the study has a price: of a run."""
    search_runs: int = 1
    """How many trials of the search the figures of an unverified row are medians of."""
    mql_is: str = "test_mql"
    """What stands for the test MQL where that was not recorded."""
    contaminated: bool = False
    """That something disturbed the timing of an unverified row, which nothing else stands for."""

    def as_dict(self) -> dict[str, Any]:
        names = [each.name for each in dataclasses.fields(self)]
        if self.search_runs == 1:
            names.remove("search_runs")
        intervals = {
            kind: {name: _plain(value) for name, value in getattr(self, kind).items()}
            for kind in ("figures", "columns", "paid")
        }
        return in_json(self, *names) | intervals


def rows_of(
    studies: Sequence[StudySnapshot],
    chosen: Mapping[str, Mapping[str, int]],
    pick: str,
    between: Sequence[Standing],
    confirmed: Mapping[str, Confirmation],
) -> list[Row]:
    """Default and retuned configuration of every study: what its confirmation ran, or what is
    `chosen`. A verdict stands with the retuned one: what its variant needs against the first one's.
    """
    rows = []
    for study in studies:
        if (there := confirmed.get(study.name)) is not None:
            mine = _confirmed_rows(study, there)
        else:
            mine = _chosen_rows(study, chosen[study.name], pick)
        rows += [
            row
            if row.hyperparameters == DEFAULT
            else dataclasses.replace(row, verdict=_verdict(study, studies, between))
            for row in mine
        ]
    return rows


def _chosen_rows(study: StudySnapshot, picked: Mapping[str, int], pick: str) -> list[Row]:
    rows = []
    for role in dict.fromkeys((DEFAULT, pick)):
        if role not in picked:
            continue
        same = role == pick and picked.get(DEFAULT) == picked[pick]
        word = (
            DEFAULT
            if role == DEFAULT
            else f"retuned ({pick})" + (", the default itself" if same else "")
        )
        verified = verified_in(study).get(picked[role])
        rows.append(_row(study, picked[role], word, verified))
    return rows


def _confirmed_rows(study: StudySnapshot, there: Confirmation) -> list[Row]:
    """Of the runs of a confirmation. Where the default stands there is nothing beside it."""
    rows = [_row(study, there.frozen.default, DEFAULT, there.default)]
    if there.trial is not None:
        word = "retuned (confirmed)" if there.holds else "retuned (not shown to be as good)"
        rows.append(_row(study, there.trial, word, there.recommended))
    return rows


def _row(study: StudySnapshot, number: int, word: str, verified: Verified | None) -> Row:
    record, price = study.configuration(number), study.policy.price_per_gpu_hour
    paid: dict[str, Interval | float | None]
    figures: dict[str, Interval | float | None]
    known = (
        verified is not None and len(verified.runs) >= LEAST_RUNS
    )  # also where all of them missed
    mql_is = "test_mql"
    if verified is not None and known:
        mql_is = verified.mql_is
        figures = {
            "epochs": verified.of_counted(lambda run: run.epochs),
            "total_time_s": verified.seconds,
            "s_per_epoch": verified.of_clean(lambda run: run.s_per_epoch),
            "val_loss": verified.of_counted(lambda run: run.val_loss),
            "test_mql": verified.mql,
        }
        paid = {
            "energy_j": verified.of_clean(lambda run: run.energy_j),
            "cost": verified.of_counted(lambda run: money(run, price) if price else None),
        }
    else:
        recorded, values = record.recorded, record.values or (None, None)
        paid = {"energy_j": recorded.energy_j, "cost": record.cost}
        mql_is = record.objectives[1] if recorded.test_mql is None else mql_is
        figures = {
            "epochs": recorded.epochs,
            "total_time_s": values[0],
            "s_per_epoch": recorded.s_per_epoch,
            "val_loss": recorded.val_loss,
            "test_mql": values[1] if recorded.test_mql is None else recorded.test_mql,
        }
    return Row(
        study=study.name,
        variant=study.variant,
        core_change=study.definition.core_change,
        hyperparameters=word,
        trial=number,
        params=record.params,
        verified=known,
        runs=len(verified.runs) if verified else 0,
        misses=verified.misses if verified else {},
        cut_off=verified.cut_off if verified else 0,
        figures=figures,
        columns=_columns(record, verified if known else None),
        paid=paid,
        search_runs=1 if known else record.runs,
        mql_is=mql_is,
        contaminated=not known and bool(record.recorded.contaminated),
    )


def _columns(record: TrialRecord, verified: Verified | None) -> dict[str, Interval | float | None]:
    """Over fresh seeds where there are enough, else of the search."""
    if verified is None:
        return dict(record.recorded.column_test_mql)
    found: dict[str, Interval | float | None] = {}
    for name in record.recorded.column_test_mql:
        found[name] = verified.of_counted(functools.partial(_score_of, name))
    return found


def _score_of(column: str, run: Recorded) -> float | None:
    return run.column_test_mql.get(column)


def _verdict(
    study: StudySnapshot, studies: Sequence[StudySnapshot], between: Sequence[Standing]
) -> str:
    """In a few words, of the study's variant."""
    if study.membership.group == studies[0].membership.group:
        return "the reference"
    name = names_of_groups(studies)[study.membership.group]
    return next((in_short(each) for each in between if each.a == name), "none: not verified")


def _plain(value: Interval | float | None) -> Any:
    return value.as_dict() if isinstance(value, Interval) else value
