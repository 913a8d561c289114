"""What a verdict asks of the studies that were verified."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.verdict.stats.effects import Question

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
