"""What a launch says of a study that was there: what stays as it was, and what changes."""

from __future__ import annotations

from collections.abc import Collection

from tuner.search.methods import prunes
from tuner.settings import changes, differing
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_settings import StudySettings
from tuner.study.open import OpenStudy


def lowered(study: OpenStudy, before: int | None) -> list[str]:
    """What a lower budget means for others who are at work on the study."""
    counts = study.ledger.counts()
    if before is None or counts.budget >= before:
        return []
    others = len(study.roster.working())
    line = f"{study.name}: --trials lowers its budget from {before} to {counts.budget}"
    if others:
        who = "1 other worker is" if others == 1 else f"{others} other workers are"
        line += f"; {who} at work on it, and will end once it is filled"
    return [line]


def in_words(
    study: OpenStudy,
    fresh: StudyDefinition,
    before: SearchPolicy,
    after: SearchPolicy,
    said: Collection[str],
) -> list[str]:
    """What a study that was there keeps although a new one
    would not have it, and what of its policy changed; `said` are the fields of it that a launch
    named.
    """
    there = StudySettings.of(study.definition).in_flags()
    own, new = after.in_flags(), StudySettings.of(fresh).in_flags()
    kept = [flag for name, flag in there.items() if flag != new[name]]
    kept += [own[name] for name in differing(SearchPolicy(), after) if name not in said]
    changed = changes(before, after)
    pruned, prunes_now = (prunes(each.sampler, each.prune) for each in (before, after))
    if "prune" not in said and pruned != prunes_now:
        changed.append("pruning to no pruning" if pruned else "no pruning to pruning")
    lines = [f"{study.name} changes from {', from '.join(changed)}"] if changed else []
    return [*lines, f"{study.name} keeps {' '.join(kept)}"] if kept else lines
