"""Studies that other programs have finished, read and never written: from Optuna's SQL tables, from
a journal file, or from a CSV.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import EmptyDatabaseError, StorageError, UsageError, unknown_name
from tuner.files.plain import UNREADABLE, explained
from tuner.storage.database import read_only_storage
from tuner.storage.optuna.private import ENQUEUED, study_id_of
from tuner.storage.retry import in_one_sentence
from tuner.storage.sqlite import looks_like_sqlite
from tuner.storage.url import absolute, parse_url

MEASURED = "tuner_measures_seconds"
"""The attribute of a study of `tuner.optimize` whose second objective is the time of the call."""
VALUE, SECONDS = "value", "seconds"
"""Columns of a CSV that are no parameters."""
EXPECTED = f"a database URL, Optuna's SQLite file or journal, or a .csv with a column {VALUE!r}"
_MOST_OBJECTIVES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What somebody tried once; or typed, and nobody tried yet."""

    trial: int | None
    params: Mapping[str, Any]
    reported: float | None = None
    """Its value, as the study has it."""
    cost: float | None = None
    """What is to be saved: seconds, or the second value, so that low ones are good."""

    @property
    def in_words(self) -> str:
        return "the default" if self.trial is None else f"trial {self.trial}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignStudy:
    """A study as its program left it."""

    source: str
    """Where it was read, without secrets."""
    name: str
    directions: tuple[str, ...]
    """Of one objective or two, each "minimize" or "maximize"; seconds are none of these."""
    trials: tuple[Configuration, ...]
    """Complete ones with finite values, by number."""
    enqueued: int | None = None
    """The number of the first of them that somebody enqueued."""
    attributes: Mapping[str, Any]
    """The user's own, of the study."""

    def low(self, value: float, objective: int = 0) -> float:
        """A value so that low ones are good; of such a one, what it was."""
        up = objective < len(self.directions) and self.directions[objective] == "maximize"
        return -value if up else value

    def low_value(self, of: Configuration) -> float:
        """What a configuration reported, so that low ones are good."""
        assert of.reported is not None, "somebody tried it"
        return self.low(of.reported)

    def reported_best(self) -> Configuration:
        """By the first objective, the first of equal ones."""
        return min(self.trials, key=self.low_value)


def read_foreign(source: str, name: str | None, *, maximise: bool = False) -> ForeignStudy:
    """A study at a database URL, in an SQLite or journal file, or in a CSV, which is one study that
    says not whether to `maximise`.

    Raises:
        UsageError: no such file or study, or it has nothing to confirm.
        StorageError: it cannot be read.
    """
    path = Path(source).absolute()
    if "://" not in source and not path.is_file():
        raise UsageError(f"{source} is no file; expected {EXPECTED}")
    if "://" not in source and path.suffix.lower() == ".csv":
        return _of_csv(path, name or path.stem, maximise)
    if "://" in source or looks_like_sqlite(path):
        try:
            address = absolute(parse_url(source if "://" in source else f"sqlite:///{path}"))
        except UsageError as error:  # nobody typed that flag
            raise UsageError(str(error).replace("--storage", "SOURCE", 1)) from None
        try:
            with in_one_sentence(), closing(read_only_storage(address)) as database:
                return study_in(database.optuna, name, str(address))
        except EmptyDatabaseError:
            raise _holds_none(str(address)) from None
    try:
        journal = JournalStorage(JournalFileBackend(str(path)))  # which is written by what adds
    except UNREADABLE:
        raise _holds_none(str(path)) from None
    return study_in(journal, name, str(path))


def _holds_none(address: str) -> UsageError:
    return UsageError(f"{address} holds no study of Optuna's; expected {EXPECTED}")


def study_in(storage: BaseStorage, name: str | None, address: str) -> ForeignStudy:
    """The study of this name, or the only one.

    Raises:
        UsageError: there is no such study, or it has nothing to confirm.
        StorageError: it cannot be read.
    """
    try:
        known = {each.study_name: each for each in storage.get_all_studies()}
        if not known:
            raise _holds_none(address)
        if name is None and len(known) > 1:
            raise UsageError(f"{address} holds {', '.join(sorted(known))}; say --study NAME")
        name = next(iter(known)) if name is None else name
        if name not in known:
            raise unknown_name("study", name, known, more=f" in {address}")
        study = known[name]
        complete = storage.get_all_trials(study_id_of(study), states=(TrialState.COMPLETE,))
    except UNREADABLE as error:
        raise StorageError(f"{address} cannot be read: {explained(error)}") from None
    if (objectives := len(study.directions)) > _MOST_OBJECTIVES:
        raise UsageError(
            f"study {name!r} has {objectives} objectives; one can be confirmed, or two, of which "
            "the first must not get worse and the second is to be saved"
        )
    trials = [e for e in complete if e.values and all(map(math.isfinite, e.values))]
    if not trials:
        raise UsageError(f"study {name!r} in {address} has no complete trial")
    up = StudyDirection.MAXIMIZE
    directions = tuple("maximize" if each == up else "minimize" for each in study.directions)
    return ForeignStudy(
        source=address,
        name=name,
        directions=directions[:1] if study.user_attrs.get(MEASURED) else directions,
        trials=tuple(_configuration(each, directions) for each in trials),
        enqueued=next((e.number for e in trials if ENQUEUED in e.system_attrs), None),
        attributes=study.user_attrs,
    )


def _configuration(trial: FrozenTrial, directions: Sequence[str]) -> Configuration:
    value, *second = trial.values
    cost = trial.duration.total_seconds() if trial.duration else None
    if second:
        cost = -second[0] if directions[1] == "maximize" else second[0]
    return Configuration(trial=trial.number, params=trial.params, reported=value, cost=cost)


# A CSV: a column for each parameter, `value`, and perhaps `seconds`; a line for each trial.


def _of_csv(path: Path, name: str, maximise: bool) -> ForeignStudy:
    """An empty cell is a parameter that the configuration has not."""
    import pandas as pd

    try:
        table = pd.read_csv(path, encoding="utf-8-sig").convert_dtypes()
        values = pd.to_numeric(table[VALUE]).astype(float)
        seconds = pd.to_numeric(table.get(SECONDS, values * math.nan)).astype(float)
    except (ValueError, KeyError, OSError) as error:
        raise UsageError(
            f"{path}: expected a column for each parameter, one called {VALUE!r}, and perhaps one "
            f"called {SECONDS!r}, with numbers ({explained(error)})"
        ) from None
    parameters = table.drop(columns=[VALUE, SECONDS], errors="ignore").rename(columns=str)
    trials = []
    rows = zip(parameters.to_dict("records"), values.tolist(), seconds.tolist(), strict=True)
    for number, (row, value, took_s) in enumerate(rows):
        if math.isfinite(value):
            params = {str(name): given for name, given in row.items() if not pd.isna(given)}
            cost = took_s if math.isfinite(took_s) else None
            trials.append(Configuration(trial=number, params=params, reported=value, cost=cost))
    if not trials:
        raise UsageError(f"{path} has no line with a finite {VALUE!r}")
    return ForeignStudy(
        source=str(path),
        name=name,
        directions=("maximize" if maximise else "minimize",),
        trials=tuple(trials),
        attributes={},
    )
