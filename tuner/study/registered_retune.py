"""What a retune was asked for, registered with the first study of its variant before anything runs.

A later call keeps what it does not say, as launches do, and says what it changes. Once a
confirmation has begun nothing changes any more: the verdict rests on what was said before it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tuner.config import MANY, MOST_SEARCHES
from tuner.errors import StorageError, UsageError
from tuner.files.plain import Strict, explained
from tuner.spec.confirming import CONFIRMATION_SEEDS
from tuner.spec.margin import MARGIN, TOO_MUCH, in_percent
from tuner.spec.policy import NONE, exact
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, attributes_of_studies

RETUNE = "tuner_retune"
"""Where it is: with Optuna's own attributes of the study."""
SEARCHES, TRIALS = 5, 320
"""Of a new retune for which nobody said another number: a claim between two variants takes so many
searches of each."""
TRIALS_BEFORE_ROUNDS = 200
"""Of each search, where its sampler repeats nothing: three rounds on fresh seeds follow, so that it
comes to as many trainings."""


class Registered(Strict):
    """What a retune is, as it is stored in a database or in an exported study."""

    against: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The reference, as it was named; None where the variant is held against its default alone."""
    searches: Annotated[int, Field(ge=1, le=MOST_SEARCHES)] = SEARCHES
    trials: Annotated[int, Field(ge=1, le=MANY)] | None = TRIALS
    """Of each search; None: as many as the budget buys."""
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds on devices for searches and re-evaluation of all variants together."""
    margin: Annotated[float, Field(ge=0, lt=TOO_MUCH)] = MARGIN
    confirm_seeds: Annotated[int, Field(ge=1, le=MANY)] = CONFIRMATION_SEEDS
    """Of the confirmation."""
    together: Annotated[int, Field(ge=1, le=2)] = 1
    """How many variants are retuned, and share the budget: the reference is one of them where it
    had no confirmation yet."""
    finished: bool = False
    """There is nothing left to run."""

    @staticmethod
    def usual(*, repeats: bool) -> Registered:
        """One that nobody said anything of, by a sampler that repeats configurations, or not."""
        return Registered() if repeats else Registered(trials=TRIALS_BEFORE_ROUNDS)

    def flags(self) -> dict[str, str]:
        """Each setting as `tuner retune` takes it, by its field."""
        budget = NONE if self.budget_s is None else f"{exact(self.budget_s)}s"
        return {
            "against": f"--against {self.against or NONE}",
            "searches": f"--searches {self.searches}",
            "trials": f"--trials {NONE if self.trials is None else self.trials}",
            "budget_s": f"--budget {budget}",
            "margin": f"--margin {in_percent(self.margin)}",
            "confirm_seeds": f"--confirm-seeds {self.confirm_seeds}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidOfRetune:
    """What somebody said with a retune; None is what was not said."""

    against: str | None = None
    searches: int | None = None
    trials: int | None = None
    budget_s: float | None = None
    margin: float | None = None
    confirm_seeds: int | None = None

    def over(self, there: Registered) -> Registered:
        """`there` with what was said in its place."""
        names = [each.name for each in dataclasses.fields(self) if self.says(each.name)]
        return there.model_copy(update={name: getattr(self, name) for name in names})

    def says(self, field: str) -> bool:
        """Whether a setting was named."""
        return getattr(self, field) is not None


def agreed(
    name: str, there: Registered | None, usual: Registered, said: SaidOfRetune, *, begun: bool
) -> tuple[Registered, list[str]]:
    """What a retune of the group `name` is from now on, and a line for what it changes and what it
    keeps.

    Args:
        name: of the group.
        there: what is registered; None of a new retune.
        usual: what a new one would be that nobody said anything of.
        said: with this call.
        begun: whether runs of its confirmation are planned.

    Raises:
        UsageError: what was registered cannot change any more.
    """
    if there is None:
        new = said.over(usual)
        if new.budget_s is not None and said.trials is None:  # as many as it buys
            new = new.model_copy(update={"trials": None})
        return new, []
    now = said.over(there)
    was, is_, plain = there.flags(), now.flags(), usual.flags()
    changed = [field for field in was if was[field] != is_[field]]
    fixed = changed if begun else [f for f in changed if f in _SHARED and there.budget_s]
    fixed = [field for field in fixed if said.says(field)]
    if fixed:
        why = "its confirmation has begun" if begun else "its budget was shared by what there was"
        raise UsageError(
            f"the retune of {name!r} was registered with {' '.join(was[f] for f in fixed)}, and "
            f"keeps that: {why}; leave out {' '.join(is_[f] for f in fixed)}, or go on by hand "
            "with tuner launch, verify and compare"
        )
    lines = []
    if changed:
        what = ", ".join(f"from {was[field]} to {is_[field]}" for field in changed)
        lines.append(f"the retune of {name} changes {what}")
    kept = [
        is_[field]
        for field in is_
        if not said.says(field)
        and field not in changed
        and is_[field] != plain[field]
        and not _bought(field, now)
    ]
    if kept:
        lines.append(f"the retune of {name} keeps {' '.join(kept)}")
    return now.model_copy(update={"finished": there.finished and not changed}), lines


def _bought(field: str, now: Registered) -> bool:
    """Whether there are as many trials as the budget buys, so that no number is kept."""
    return field == "trials" and now.trials is None


_SHARED = ("against", "searches")
"""What a budget was shared by."""


def registered_in(database: Database, study: str) -> Registered | None:
    """What is registered with a study; None where nothing is, or there is no such study.

    Raises:
        StorageError: it cannot be read.
    """
    stored = attributes_of_studies(database).get(study, {}).get(RETUNE)
    if stored is None:
        return None
    try:
        return Registered.model_validate(stored, strict=True)
    except ValueError as error:
        raise StorageError(
            f"the retune that is registered with study {study!r} cannot be read "
            f"({explained(error)}); a newer tuner wrote it, or another program"
        ) from None


def register_retune(study: OpenStudy, retune: Registered) -> None:
    """Register it with a study."""
    study.database.optuna.set_study_user_attr(study.study_id, RETUNE, retune.model_dump())
