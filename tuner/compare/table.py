"""The table of a comparison: a row for the default and the retuned configuration of every study."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.compare.answers import Answer
from tuner.compare.sentences import short
from tuner.compare.subject import DEFAULT, Subject
from tuner.stats import Interval
from tuner.stats.intervals import LEAST_RUNS
from tuner.study.verification import BETWEEN, sample_name

FIGURES = ("epochs", "total_time_s", "s_per_epoch", "val_loss", "test_mql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A configuration in the table. Each figure is a median with its interval, or one number of an unverified trial."""

    study: str
    variant: str
    core_change: str
    hyperparameters: str
    trial: int
    params: Mapping[str, float | int]
    verified: bool
    runs: int
    misses: Mapping[str, int]
    figures: Mapping[str, Interval | float | None]
    verdict: str = ""

    def as_dict(self) -> dict[str, Any]:
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "figures"}
        figures = {name: _plain(value) for name, value in self.figures.items()}
        return plain | {"params": dict(self.params), "misses": dict(self.misses), "figures": figures}


def rows_of(
    subjects: Sequence[Subject], chosen: Mapping[str, Mapping[str, int]], pick: str, answers: Sequence[Answer]
) -> list[Row]:
    """Default and retuned configuration of every study. A verdict stands with the retuned one, against the first's."""
    rows = []
    for subject in subjects:
        picked = chosen[subject.name]
        for role in dict.fromkeys((DEFAULT, pick)):
            if role not in picked:
                continue
            same = role == pick and picked.get(DEFAULT) == picked[pick]
            word = DEFAULT if role == DEFAULT else f"retuned ({pick})" + (", the default itself" if same else "")
            row = _row(subject, picked[role], word)
            if role == pick:
                row = dataclasses.replace(row, verdict=_verdict(subject, subjects[0], picked[pick], answers))
            rows.append(row)
    return rows


def _row(subject: Subject, number: int, word: str) -> Row:
    record = subject.record(number)
    verified = subject.verified.get(number)
    figures: dict[str, Interval | float | None]
    known = verified is not None and len(verified.runs) >= LEAST_RUNS  # also where all of them missed
    if verified is not None and known:
        figures = {
            "epochs": verified.attribute("epochs"),
            "total_time_s": verified.seconds,
            "s_per_epoch": verified.attribute("s_per_epoch"),
            "val_loss": verified.attribute("val_loss"),
            "test_mql": verified.mql,
        }
    else:
        attributes, values = record.attributes, record.values or (None, None)
        figures = {
            "epochs": attributes.get("epochs"),
            "total_time_s": values[0],
            "s_per_epoch": attributes.get("s_per_epoch"),
            "val_loss": attributes.get("val_loss"),
            "test_mql": attributes.get("test_mql", values[1]),
        }
    return Row(
        study=subject.name,
        variant=subject.variant,
        core_change=subject.definition.core_change,
        hyperparameters=word,
        trial=number,
        params=record.params,
        verified=known,
        runs=len(verified.runs) if verified else 0,
        misses=verified.misses if verified else {},
        figures=figures,
    )


def _verdict(subject: Subject, first: Subject, number: int, answers: Sequence[Answer]) -> str:
    if subject is first:
        return "the reference"
    mine = sample_name(subject.name, number)
    for answer in answers:
        asked = answer.comparison.question
        if asked.family == BETWEEN and asked.a == mine and asked.b.rpartition(" trial ")[0] == first.name:
            return short(answer.comparison)
    return "none: not verified"


def _plain(value: Interval | float | None) -> Any:
    return value.as_dict() if isinstance(value, Interval) else value
