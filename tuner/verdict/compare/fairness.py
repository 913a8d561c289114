"""What differs between compared studies beside their variants: stated, because a reader cannot see
it in a table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tuner.config import LossTerm, TrainingSettings
from tuner.record import Recorded
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.picks import choosing, picks_expected
from tuner.verdict.verification_plan import refuse_unlike
from tuner.verdict.verified import verified_in

_SETTINGS = [name for name in TrainingSettings.model_fields if name != "backend"]


def refuse_different_data(studies: Sequence[StudySnapshot]) -> None:
    """Raises UsageError where figures could not mean the same thing."""
    for each in studies[1:]:
        refuse_unlike(studies[0], each, "name studies of one task")


def differences(studies: Sequence[StudySnapshot]) -> list[str]:
    """One sentence for each thing that is not the same for all."""
    each_has = [_facts(each) for each in studies]
    found = [_differ(studies, what, [has[what] for has in each_has]) for what in each_has[0]]
    for about in (_without_test, _disturbed, _seed_ignored):
        found += [about(each) for each in studies]
    return [each for each in found if each]


def _facts(study: StudySnapshot) -> dict[str, Any]:
    """What is said where the studies are not alike in it, and what it is of this one; None or empty
    where that is not known.
    """
    definition = study.definition
    facts = {
        "Search budgets are unequal": f"{study.finished} finished trials",
        "Devices differ, so times do not compare": study.device_model or "none yet",
        "Samplers differ": study.policy.sampler,
        "Objectives of the search differ": " and ".join(definition.objectives),
        "Seeds a trial differ": definition.seeds_per_trial,
        "Backend policies differ": definition.training.backend.value,
        "Backends that verification ran on differ": _used(study, lambda run: run.backend),
        "PyTorch versions differ": _used(study, lambda run: (run.versions or {}).get("torch")),
        "Picks were chosen from different fronts": _front(study),
        "Verification sessions differ: times were not interleaved": _sessions(study),
    }
    return facts | {f"The setting {name} differs": _setting(study, name) for name in _SETTINGS}


def _differ(studies: Sequence[StudySnapshot], what: str, each_has: Sequence[Any]) -> str:
    values = {each.name: has for each, has in zip(studies, each_has, strict=True)}
    known = {name: found for name, found in values.items() if found not in (None, "")}
    if len(set(known.values())) < 2:  # noqa: PLR2004 - a difference needs two
        return ""
    return f"{what}: {', '.join(f'{name} {found}' for name, found in known.items())}."


def _without_test(study: StudySnapshot) -> str:
    """That a column of test MQLs has those of validation, which stand for it."""
    if study.definition.objectives[1] == "test_mql":
        return ""
    if all(each.recorded.test_mql is not None for each in study.results.complete):
        return ""
    return (
        f"{study.name} recorded no test MQL, or not of all trials: its validation MQL stands for "
        "it here."
    )


def _setting(study: StudySnapshot, name: str) -> Any:
    found = getattr(study.definition.training, name)
    if name == "loss" and found is None:
        return "the quantile loss alone"
    return f"with {found.in_words()}" if isinstance(found, LossTerm) else found


def _used(study: StudySnapshot, what: Callable[[Recorded], str | None]) -> str:
    """What the finished verification runs of a study ran on, as their records say."""
    records = [run.result.recorded for run in study.runs if run.state == "finished" and run.result]
    return "/".join(sorted({found for recorded in records if (found := what(recorded))}))


def _front(study: StudySnapshot) -> str:
    if not choosing(study.runs):
        return ""
    return "the expected one" if picks_expected(study) else "that of single runs"


def _sessions(study: StudySnapshot) -> str:
    return "+".join(sorted({run.session[:8] for run in choosing(study.runs)}))


def _disturbed(study: StudySnapshot) -> str:
    clean = sum(len(each.clean) for each in verified_in(study).values())
    counted = sum(len(each.counted) for each in verified_in(study).values())
    if clean == counted:
        return ""
    return (
        f"{counted - clean} of {counted} timings of {study.name} were contaminated and are "
        "left out."
    )


def _seed_ignored(study: StudySnapshot) -> str:
    """That a program gave the same values on fresh seeds, bit for bit: its intervals are points."""
    if study.definition.program is None:
        return ""
    values: dict[int, list[tuple[float | None, float | None]]] = defaultdict(list)
    for run in study.runs:
        if run.state == "finished" and run.result is not None:
            recorded = run.result.recorded
            values[run.trial_number].append(
                (recorded.named(study.definition.objectives[1]), recorded.val_loss)
            )
    same = [each for each in values.values() if len(each) > 1 and len(set(each)) == 1]
    if not same:
        return ""
    return (
        f"The program of {study.name} ignores its seed: {len(same[0])} fresh seeds gave the same "
        "values bit for bit, so its intervals say nothing."
    )
