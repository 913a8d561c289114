"""What the launches of a study say: how it is searched and run, which may change between two of
them; the settings that are part of what it is; and what its retune is.

Stored with the study, so that a worker on another machine needs only the database's address and the
data.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tuner.config import (
    MANY,
    MOST_SEARCHES,
    OWN_SAMPLER,
    SAMPLERS,
    MqlSplit,
    SamplerName,
    TrainingSettings,
)
from tuner.errors import StorageError, UsageError, unknown_name
from tuner.files.plain import LARGEST, UNREADABLE, excerpt, explained, read_json
from tuner.settings import DURATION, HOURS, NUMBER, SIZE, Flag, Settings, Unit, flags, in_percent
from tuner.spec.margin import CONFIRMATION_SEEDS, MARGIN, OF_MARGIN, TOO_MUCH
from tuner.spec.objectives import TimeObjective, objective_names

if TYPE_CHECKING:
    from tuner.spec.definition import StudyDefinition


LARGEST_SEED = 2**32 - 1
"""What NumPy's generators and Optuna's samplers take."""
MOST_RERUNS = 1_000_000


def sampler_named(name: str, flag: str = "sampler") -> str:
    """Raises UsageError for a sampler that there is not."""
    del flag  # the sentence tells by itself what it is about
    if name not in SAMPLERS and not re.match(OWN_SAMPLER, name):
        raise unknown_name("sampler", name, SAMPLERS, more=", or module:Class")
    return name


def _seed(text: str, flag: str) -> int:
    digits = text.strip()
    if not re.fullmatch("[0-9]{1,10}", digits) or int(digits) > LARGEST_SEED:
        raise UsageError(
            f"{flag}: {text!r} is no seed; expected a whole number from 0 to {LARGEST_SEED}"
        )
    return int(digits)


CAP = 1.5
"""Times the default's training, in a retune: what takes longer saves nothing, so its end is not
waited for."""


class SearchPolicy(Settings):
    """What the launches of a study have said, the later over the earlier.
    Workers read it before each trial.

    As what one launch says of it, only what is named counts, and None lifts a limit.
    """

    sampler: Annotated[
        SamplerName | Annotated[str, Field(pattern=OWN_SAMPLER)],
        Flag(
            "--sampler",
            f"{', '.join(SAMPLERS)}, or module:Class (auto).",
            "NAME",
            Unit(sampler_named, str),
        ),
    ] = "auto"
    seed: Annotated[
        int | None,
        Field(ge=0, le=LARGEST_SEED),
        Flag(
            "--sampler-seed",
            "Of the search, which one worker then repeats exactly (none: from its name).",
            "N|none",
            Unit(_seed, str),
            none=None,
        ),
    ] = None
    """Of the sampler; with one worker the search is then reproducible."""
    prune: Annotated[
        bool | None,
        Flag(
            "--prune",
            "End trials early whose best possible end is dominated (on; off with kg, and so "
            "with auto).",
            usual="pruning as the sampler has it",
        ),
    ] = None
    """End trials early whose best possible end is dominated by finished ones; None where nobody has
    said it: as the sampler has it (`tuner.search.methods.prunes`)."""
    max_time_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--max-time", "Configurations must take at most S seconds.", "S|none", NUMBER, none=None
        ),
    ] = None
    """Constraint on the time objective, seconds."""
    max_mql: Annotated[
        float | None,
        Field(gt=0),
        Flag("--max-mql", "Configurations must have at most Q.", "Q|none", NUMBER, none=None),
    ] = None
    max_memory_bytes: Annotated[
        int | None,
        Field(gt=0, le=LARGEST),
        Flag(
            "--max-memory",
            "Configurations must need at most this (GPU: allocated).",
            "8GB|none",
            SIZE,
            none=None,
        ),
    ] = None
    reruns: Annotated[
        int,
        Field(ge=0, le=MOST_RERUNS),
        Flag("--reruns", "How often a contaminated timing is run again (1).", "N"),
    ] = 1
    checkpoint_s: Annotated[
        float,
        Field(ge=0),
        Flag(
            "--checkpoint-every",
            "Time between two checkpoints of a training (30s).",
            "30s|none",
            DURATION,
            none=0.0,
        ),
    ] = 30.0
    """Seconds between two checkpoints of a training; 0: none."""
    margin: Annotated[
        float | None,
        Field(ge=0, lt=TOO_MUCH),
        Flag(
            "--margin",
            "As good as the default is an MQL at most so much above its own (a new study: 1%).",
            "1%",
            OF_MARGIN,
            usual=f"--margin {in_percent(MARGIN)}",
        ),
    ] = None
    """How much higher than the default's an MQL may be that is as good, relative; None where nobody
    has said it yet and no confirmation has begun."""
    search_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--search-time",
            "No trial begins once those of its search have had their devices for so long.",
            "5m|none",
            DURATION,
            none=None,
        ),
    ] = None
    max_gpu_s: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--max-gpu-hours",
            "Device hours for all that is trained for these studies, on all devices together: no "
            "training begins that cannot be paid, and one under way ends at the limit.",
            "H|none",
            HOURS,
            none=None,
        ),
    ] = None
    """Seconds of devices, for all that is trained for the studies that share it
    (`tuner.storage.queue.gpu_hours`)."""
    gpu_shared: Annotated[
        tuple[str, ...], Flag("", words=lambda names: f"(shared by {', '.join(names)})")
    ] = ()
    """The names of these studies; empty: this one alone."""
    price_per_gpu_hour: Annotated[
        float | None,
        Field(gt=0, le=LARGEST),
        Flag(
            "--price-per-gpu-hour",
            "Of a device, in any currency: each trial then has its cost.",
            "PRICE|none",
            NUMBER,
            none=None,
        ),
    ] = None
    cap: Annotated[
        float | None,
        Field(gt=1, le=LARGEST),
        Flag("", words=lambda c: f"(trainings end at {c:g} times the default's)", usual="(no cap)"),
    ] = None
    """A training ends at so many times what the default takes (`tuner.worker.trial_source`): a
    retune says so of its searches. None: it goes on until it converges."""

    against: Annotated[
        str | None,
        Field(max_length=512),
        Flag("", words=lambda name: f"(looks for the quality of {name}'s default, too)"),
    ] = None
    """The group whose default's quality is looked for as well: a retune says so of its searches."""

    @property
    def counted_margin(self) -> float:
        """The margin that counts."""
        return MARGIN if self.margin is None else self.margin

    def to_json(self) -> str:
        """The stored form."""
        return json.dumps(self.as_dict(), sort_keys=True)

    @staticmethod
    def from_json(text: str | None, study: str | None = None) -> SearchPolicy:
        """The stored policy; where none was stored, that of a new study. `study` is the name of
        whose it is.

        Raises:
            StorageError: a newer tuner wrote settings that this one does not know, or somebody what
                is none.
        """
        whose = "the study's policy" if study is None else f"the policy of study {study!r}"
        try:
            data = read_json(text) if text else {}
            unknown = data.keys() - SearchPolicy.model_fields.keys()
            if unknown:
                raise StorageError(
                    f"{whose} holds settings that this tuner does not know "
                    f"({excerpt(', '.join(sorted(unknown)))}); upgrade tuner on this machine"
                )
            return SearchPolicy.model_validate_json(text or "{}", strict=True)
        except UNREADABLE as error:
            raise StorageError(
                f"{whose} cannot be read ({explained(error)}); restore it from a backup, or start "
                "another study with --study NAME"
            ) from None


# What a launch says of what its studies are, beside variant and task.


class StudySettings(TrainingSettings):
    """What is part of what a study is, beside its variant and its task.

    Only what is named counts: the rest is the study file's, the study's, or a new study's.
    """

    seeds: Annotated[
        int,
        Field(ge=1, le=MANY),
        Flag("--seeds", "Train each configuration with so many seeds; medians count (1).", "N"),
    ] = 1
    """Trainings of each configuration; medians count."""
    time_objective: Annotated[
        TimeObjective,
        Flag("--time-objective", "Which time is minimised (a new study: wall_clock_s)."),
    ] = TimeObjective.WALL_CLOCK
    target_val_loss: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--target-val-loss",
            "The validation loss of --time-objective time_to_target_s.",
            "X",
            NUMBER,
        ),
    ] = None
    """For the time to a target, and for nothing else."""
    mql_split: Annotated[
        MqlSplit | None,
        Flag(
            "--mql-split",
            "Which split's MQL is minimised (built-in tasks: test, own data: val); origins keeps "
            "the last block of the test split for confirmations.",
        ),
    ] = None
    """None: the task's usual one."""

    @staticmethod
    def of(definition: StudyDefinition) -> StudySettings:
        """Those of a study."""
        training = definition.training
        return StudySettings(
            **{name: getattr(training, name) for name in TrainingSettings.model_fields},
            seeds=definition.seeds_per_trial,
            time_objective=TimeObjective(definition.objectives[0]),
            target_val_loss=definition.target_val_loss,
            mql_split=MqlSplit(definition.mql_split),
        )

    def trained(self, training: TrainingSettings) -> TrainingSettings:
        """`training` with what was said of it in its place."""
        said = self.said()
        return training.but(**{n: v for n, v in said.items() if n in TrainingSettings.model_fields})


def resumed(
    stored: StudyDefinition, asked: StudyDefinition, said: Collection[str]
) -> StudyDefinition:
    """`asked`, but with those settings of a launch that nobody `said` as the `stored` definition
    has them. What no flag says is the file's: one that says another asks for another study.
    """
    if "time_objective" in said:
        said = {*said, "target_val_loss"}  # they belong together
    there, here = StudySettings.of(stored), StudySettings.of(asked)
    now = here.but(
        **{name: getattr(there, name) for name in flags(StudySettings) if name not in said}
    )
    return dataclasses.replace(
        asked,
        training=now.trained(asked.training),
        seeds_per_trial=now.seeds,
        mql_split=str(now.mql_split),
        objectives=objective_names(now.time_objective, str(now.mql_split)),
        target_val_loss=now.target_val_loss,
    )


# What a retune was asked for, registered with the first study of its variant before anything
# runs.


SEARCHES, TRIALS = 5, 320
"""Of a new retune for which nobody said another number: a claim between two variants takes so many
searches of each."""
TRIALS_BEFORE_ROUNDS = 200
"""Of each search, where its sampler repeats nothing: three rounds on fresh seeds follow, so that it
comes to as many trainings."""


class Registered(Settings):
    """What a retune is; as what somebody says with one call, only what is named counts."""

    against: Annotated[
        str | None,
        Field(max_length=512),
        Flag("--against", "The reference, retuned as well (none: its own default).", "NAME"),
    ] = None
    """The reference, as it was named; None where the variant is held against its default alone."""
    searches: Annotated[
        int,
        Field(ge=1, le=MOST_SEARCHES),
        Flag("--searches", f"Independent searches of each variant ({SEARCHES}).", "S"),
    ] = SEARCHES
    trials: Annotated[
        int | None,
        Field(ge=1, le=MANY),
        Flag("--trials", f"Finished trials of each search ({TRIALS}; or what --budget buys).", "N"),
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
