"""What is asked of two configurations, and what comes out: samples, questions, effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.verdict.stats.intervals import Interval

TIME_MARGIN = 1.10
"""Ratios between 1 / 1.10 and 1.10 are too small to care about."""

SECONDS, MQL = "wall_clock_s", "test_mql"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The runs of one configuration by their seed: of `runs`, those that converged have figures.

    `seconds` leaves out contaminated timings too; `misses` counts the runs that did not converge.
    """

    name: str
    seconds: Mapping[int, float]
    mql: Mapping[int, float]
    runs: int
    misses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`a` against `b`. Questions of one `family` share the chance of a false claim."""

    a: str
    b: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What `a` does to one objective of `b` on shared seeds: the mean ratio (seconds) or difference
    (MQL), its test.

    The mean of ratios is the geometric one. The interval is that of the test that decides, at
    `level`, which Holm's correction gave it; an end is infinite where so few pairs exclude nothing.
    `p` is that of the same test, `p_adjusted` after the correction, `others` shows further tests.
    `claimed`: a difference may be claimed. `within_margin`: the whole interval is too close to
    "none" to care about. `detectable` is the true difference that such runs find in nine cases of
    ten: a ratio above 1, or a difference; None where they are too few to find any. `why_not` says
    why there can be no answer; empty where there is one.
    """

    objective: str
    estimate: Interval | None
    pairs: int
    p: float | None = None
    p_adjusted: float | None = None
    level: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    claimed: bool = False
    within_margin: bool = False
    decided: bool = False
    detectable: float | None = None
    why_not: str = ""

    @property
    def nothing(self) -> float:
        """The value of "no difference"."""
        return 1.0 if self.objective == SECONDS else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer to a question, one effect an objective."""

    question: Question
    seconds: Effect
    mql: Effect

    @property
    def effects(self) -> tuple[Effect, Effect]:
        return self.seconds, self.mql

    @property
    def decided(self) -> bool:
        """Both objectives have a clear answer: a difference,
        or that there is none worth caring about.
        """
        return all(effect.decided for effect in self.effects)


# What a verdict asks of the studies that were verified.


BETWEEN, WITHIN = "between variants", "retuned against default"
"""The two families of questions: which variant is better retuned,
and what retuning gave each variant."""


def questions(
    picked: Mapping[str, Mapping[str, int]], groups: Mapping[str, str], *, pick: str = "knee"
) -> list[Question]:
    """What a verdict asks of studies in that order: each retuned variant against those before it,
    and its own default. Searches of one group, which `groups` names for each study, are not held
    against each other: they searched the same.

    Samples are named by `sample_name`.
    """
    names = [name for name in picked if pick in picked[name]]
    asked = [
        Question(
            a=sample_name(b, picked[b][pick]), b=sample_name(a, picked[a][pick]), family=BETWEEN
        )
        for index, a in enumerate(names)
        for b in names[index + 1 :]
        if groups[a] != groups[b]
    ]
    for name in names:
        own = picked[name]
        if own.get("default") not in (None, own[pick]):
            asked.append(
                Question(
                    a=sample_name(name, own[pick]),
                    b=sample_name(name, own["default"]),
                    family=WITHIN,
                )
            )
    return asked


def sample_name(study: str, trial_number: int) -> str:
    return f"{study} trial {trial_number}"
