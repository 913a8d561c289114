"""What a retune was asked for, registered with the first study of its variant before anything runs.

A later call keeps what it does not say, as launches do, and says what it changes. Once a
confirmation has begun nothing changes any more: the verdict rests on what was said before it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tuner.config import MANY, MOST_SEARCHES
from tuner.errors import UsageError
from tuner.settings import DURATION, PART, Flag, Settings
from tuner.spec.margin import CONFIRMATION_SEEDS, MARGIN, OF_MARGIN, TOO_MUCH

SEARCHES, TRIALS = 5, 320
"""Of a new retune for which nobody said another number: a claim between two variants takes so many
searches of each."""
TRIALS_BEFORE_ROUNDS = 200
"""Of each search, where its sampler repeats nothing: three rounds on fresh seeds follow, so that it
comes to as many trainings."""


class Registered(Settings):
    """What a retune is; as what somebody says with one call, only what is named counts."""

    first = (
        "against",
        "searches",
        "trials",
        "budget_s",
        "margin",
        "confirm_seeds",
        "together",
        "finished",
    )

    against: Annotated[
        str | None,
        Field(max_length=512),
        Flag(
            "--against",
            "The variant to hold it against, which is retuned as well; without it, its own default "
            "alone counts.",
            "NAME",
        ),
    ] = None
    """The reference, as it was named; None where the variant is held against its default alone."""
    searches: Annotated[
        int,
        Field(ge=1, le=MOST_SEARCHES),
        Flag(
            "--searches",
            f"Independent searches of each variant ({SEARCHES}: a claim between two variants takes "
            "so many).",
            "S",
        ),
    ] = SEARCHES
    trials: Annotated[
        int | None,
        Field(ge=1, le=MANY),
        Flag(
            "--trials",
            f"Finished trials of each search ({TRIALS}; with --budget as many as it buys).",
            "N",
        ),
    ] = TRIALS
    """Of each search; None: as many as the budget buys."""
    budget_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--budget",
            "Device time for all searches and their re-evaluation together; the confirmation comes "
            "on top.",
            "20m",
            DURATION,
        ),
    ] = None
    """Seconds on devices for searches and re-evaluation of all variants together."""
    margin: Annotated[
        float,
        Field(ge=0, lt=TOO_MUCH),
        Flag(
            "--margin",
            "As good as the default is an MQL at most so much above its own (1%).",
            "1%",
            OF_MARGIN,
        ),
    ] = MARGIN
    until: Annotated[float | None, Field(gt=0, lt=1), Flag("--until", unit=PART, none=None)] = None
    """With how little left to gain each search stops (`SearchPolicy.until`)."""
    confirm_seeds: Annotated[
        int,
        Field(ge=1, le=MANY),
        Flag("--confirm-seeds", f"Fresh seeds of the confirmation ({CONFIRMATION_SEEDS}).", "N"),
    ] = CONFIRMATION_SEEDS
    together: Annotated[int, Field(ge=1, le=2)] = 1
    """How many variants are retuned, and share the budget: the reference is one of them where it
    had no confirmation yet."""
    finished: bool = False
    """There is nothing left to run."""

    @staticmethod
    def usual(*, repeats: bool) -> Registered:
        """One that nobody said anything of, by a sampler that repeats configurations, or not."""
        return Registered() if repeats else Registered(trials=TRIALS_BEFORE_ROUNDS)


def agreed(
    name: str, there: Registered | None, usual: Registered, said: Registered, *, begun: bool
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
        if new.budget_s is not None and not said.says("trials"):  # as many as it buys
            new = new.but(trials=None)
        return new, []
    now = said.over(there)
    was, is_, plain = there.in_flags(), now.in_flags(), usual.in_flags()
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
        and not (field == "trials" and now.trials is None)  # as many as the budget buys
    ]
    if kept:
        lines.append(f"the retune of {name} keeps {' '.join(kept)}")
    return now.but(finished=there.finished and not changed), lines


_SHARED = ("against", "searches")
"""What a budget was shared by."""
