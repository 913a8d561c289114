"""One configuration with where it comes from:
study, trial, data, seeds, versions, device, and whether it is verified.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuner.config import (
    Architecture,
    Hyperparameters,
    ModelShapes,
    TrainingSettings,
    Value,
    shapes_seen,
)
from tuner.config.loss_term import LossTerm
from tuner.data.task import shapes, task_of
from tuner.errors import UsageError
from tuner.export.no_network import refuse_program
from tuner.files.meaning import In
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.seeds import seeds_of
from tuner.study.baselines import loses
from tuner.study.results import TrialRecord
from tuner.study.throughput import windows_of_an_epoch
from tuner.version import __version__

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class BestConfig:
    """One configuration from a study, with where it comes from.

    `values` are those of its one trial: seconds to convergence, and test MQL in original units. Of
    a configuration with several trials they are medians, each for itself; `trial` is the first of
    them, `provenance` says which they are (`runs`, `trials`), and its `seeds` are those of all.
    `expected` is what all runs of the study make of it, None where that was not asked for or they
    are too few. `verified` holds fresh-seed figures, None until the configuration was verified: a
    single trial may have had a lucky seed; `unverified` says why runs on fresh seeds give none.
    `chosen_on` says which of the three it was chosen on (`single`, `expected` or `verified`), and
    is None for a trial by its number. `recommendation` says what a configuration of the pick
    `same-quality` was held against, and how surely it is as good. `confirmed` is what its study's
    last confirmation found of this trial, None where that was of another one or there was none.
    `why` is a sentence of all this, and `notes` is what else to know. `source` is where a task file
    says the data is and in what dialect it is written; empty where no file was named. `baselines`
    are the MQL of forecasts without a network by the study's objective, `test_baselines` by test.
    """

    variant: str
    task: str
    study: str
    trial: int
    pick: str
    params: dict[str, Value]
    values: dict[str, float]
    verified: dict[str, Any] | None
    provenance: dict[str, Any]
    definition: StudyDefinition
    chosen_on: str | None = None
    why: str = ""
    unverified: str = ""
    expected: dict[str, float] | None = None
    recommendation: dict[str, Any] | None = None
    confirmed: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    baselines: dict[str, float] = field(default_factory=dict)
    test_baselines: dict[str, float] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    untrusted: str = ""
    """The exported study that names code of its own, which must not run unasked: its file, or the
    study that was imported from it; else empty."""
    no_code: str = ""
    """Why the study's class cannot run on this host; else empty."""

    def refuse_untrusted(self) -> None:
        """Raises UsageError where to build the network would run code that only an exported study
        named, or other code than the study's.
        """
        refuse_program(self.definition, self.study, "a network")
        if self.untrusted:
            kinds = {self.architecture.model: "the network"}
            each_one = [f"{kinds.get(it, 'the term')} {it}" for it in self.definition.own_code]
            named = " and ".join(each_one)
            raise UsageError(
                f"{self.untrusted} names {named}, whose code would run here; read it, "
                "then say --trust, or load_best(..., trust=True)"
            )
        if self.no_code:
            raise UsageError(self.no_code)

    @property
    def architecture(self) -> Architecture:
        """The network as it is to be built: its own hyperparameters are settings now."""
        of_study = self.definition.architecture
        settings = {**of_study.settings, **self.hyperparameters.of_network}
        return Architecture(model=of_study.model, settings=settings)

    @property
    def hyperparameters(self) -> Hyperparameters:
        return self.definition.hyperparameters(self.params)

    @property
    def loses(self) -> str:
        """That a forecast without a network is as good, in a sentence; empty where none is."""
        objective = self.definition.objectives[1]
        mql = self.values[objective]
        if self.verified is not None and objective in self.verified:
            mql = self.verified[objective]["median"]
        return loses(mql, self.baselines, error=objective)

    @property
    def accumulate(self) -> int:
        """Batches that make up one update, searched or fixed."""
        return self.hyperparameters.accumulate or self.training.accumulate

    @property
    def added_term(self) -> LossTerm | None:
        """What its training adds to the quantile loss; None also where its weight is 0."""
        loss = self.training.loss
        return loss if loss is not None and loss.weight_in(self.hyperparameters.own) else None

    @property
    def training(self) -> TrainingSettings:
        """The protocol's fixed settings, as the study had them."""
        return self.definition.training

    @property
    def shapes(self) -> ModelShapes:
        """The sizes of the study's task, as this configuration sees it."""
        return shapes_seen(shapes(task_of(self.definition.task)), self.hyperparameters)

    def build_model(self, shapes: ModelShapes | None = None) -> nn.Module:
        """A new, untrained network of this configuration, for the study's task or for `shapes`.

        It maps `(past (B, L, C+P+F), future (B, T, F) or None, static (B, S) or None)` to `(B, T,
        C, Q)`.

        Raises:
            UsageError: the network is a class that only an exported study names: `load_best(...,
                trust=True)`.
        """
        self.refuse_untrusted()
        from tuner.models.registry import build_model

        return build_model(self.architecture, shapes or self.shapes, self.hyperparameters)

    def to_neuralforecast(
        self, *, h: int | None = None, n_series: int | None = None, **changes: Any
    ) -> Any:
        """A new, untrained neuralforecast model of this configuration: the same network, set up to
        train like it.

        Args:
            h: horizon; the task's by default.
            n_series: series of the panel; the task's number of target columns by default.
            changes: any argument of the model class, such as `futr_exog_list`, `loss` or
                `max_steps`.

        Which hyperparameter becomes which argument: docs/use-the-best.md.

        Raises:
            UsageError: the network is a class that only an exported study names: `load_best(...,
                trust=True)`.
        """
        self.refuse_untrusted()
        from tuner.export import neuralforecast_model

        return neuralforecast_model.build_model(self, h=h, n_series=n_series, **changes)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `tuner best --format json`."""
        return {
            "variant": self.variant,
            "task": self.task,
            "study": self.study,
            "trial": self.trial,
            "pick": self.pick,
            "chosen_on": self.chosen_on,
            "why": self.why,
            "params": self.params,
            "values": self.values,
            "expected": self.expected,
            "verified": self.verified,
            "confirmed": self.confirmed,
            "recommendation": self.recommendation,
            "baselines": self.baselines or None,
            **({"test_baselines": self.test_baselines} if self.test_baselines else {}),
            "architecture": {
                "model": self.definition.architecture.model,
                "settings": dict(self.definition.architecture.settings),
            },
            "training": self.training.protocol(),
            "provenance": self.provenance,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """How a configuration was chosen, as plain data: the fields of a `BestConfig`."""

    on: str | None = None
    why: str = ""
    expected: dict[str, float] | None = None
    recommendation: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()


NOTHING_SAID = Chosen()


def to_config(
    definition: StudyDefinition,
    record: TrialRecord,
    *,
    study: str,
    pick: str,
    membership: Membership | None = None,
    searches: int = 1,
    chosen: Chosen = NOTHING_SAID,
    verified: dict[str, Any] | None = None,
    unverified: str = "",
    confirmed: dict[str, Any] | None = None,
    baselines: Mapping[str, float] | None = None,
    source: Mapping[str, Any] | None = None,
    untrusted: str = "",
) -> BestConfig:
    """The configuration of one complete trial or several, as `chosen`, in one of the `searches`."""
    place = membership or Membership(group=study)
    assert record.values is not None, "a configuration is that of a complete trial"
    return BestConfig(
        variant=definition.variant,
        task=definition.task_name,
        study=study,
        trial=record.number,
        pick=pick,
        chosen_on=chosen.on,
        why=chosen.why,
        expected=chosen.expected,
        recommendation=chosen.recommendation,
        notes=chosen.notes,
        baselines=dict(baselines or {}),
        params=dict(record.params),
        values=record.named_values or {},
        verified=verified,
        unverified=unverified,
        confirmed=confirmed,
        provenance=_provenance(definition, record, place, searches),
        definition=definition,
        source=dict(source or {}),
        untrusted=untrusted,
    )


def _provenance(
    definition: StudyDefinition, record: TrialRecord, place: Membership, searches: int
) -> dict[str, Any]:
    """How, where and on what it was trained."""
    seeds: list[int] = []
    for trial in record.each_trial:
        seeds += seeds_of(
            trial.recorded,
            trial.number,
            repeats=definition.seeds_per_trial,
            root=place.seed_root,
        )
    found = record.recorded.kept_in(In.PROVENANCE) | {
        "seeds": seeds,
        "training_windows": windows_of_an_epoch(record.recorded),
        "group": place.group,
        "search": place.search,
        "searches": searches,
        "draw": place.draw,
        "data_hash": definition.data_hash,
        "definition_hash": definition.identity(),
        "mql_split": definition.mql_split,
        "ended": record.ended,
        "exported_by": f"tuner {__version__}",
    }
    if definition.objectives[1] != "test_mql" and record.recorded.test_mql is not None:
        found["test_mql"] = record.recorded.test_mql  # as are figures of fresh seeds
    if record.recorded.column_test_mql:
        found["test_mql_of"] = dict(record.recorded.column_test_mql)
    if record.runs > 1:
        found |= {"runs": record.runs, "trials": list(record.numbers)}
    return found


def cores_of(device: str | None) -> int | None:
    """The number of cores in a CPU's recorded name (`Some CPU, 2 cores`); None for a GPU."""
    found = re.search(r", (\d+) cores?$", device or "")
    return int(found[1]) if found else None
