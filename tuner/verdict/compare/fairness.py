"""What differs between compared studies beside their variants: stated, because a reader cannot see
it in a table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tuner.config import LossTerm, TrainingSettings
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.comparable import refuse_other_clocks, refuse_other_windows
from tuner.verdict.picks import choosing, picks_expected
from tuner.verdict.verified import verified_in

_SETTINGS = [name for name in TrainingSettings.model_fields if name != "backend"]


def refuse_different_data(studies: Sequence[StudySnapshot]) -> None:
    """Raises UsageError where figures could not mean the same thing."""
    first = studies[0]
    for each in studies[1:]:
        if each.definition.data_hash != first.definition.data_hash:
            raise UsageError(
                f"studies {first.name!r} ({first.definition.task_name}) and {each.name!r} "
                f"({each.definition.task_name}) are on different data: their figures do not "
                "compare; name studies of one task"
            )
        refuse_other_windows(
            first.name, first.definition.mql_split, each.name, each.definition.mql_split
        )
        refuse_other_clocks(first.name, first.definition.clock, each.name, each.definition.clock)


def differences(studies: Sequence[StudySnapshot]) -> list[str]:
    """One sentence for each thing that is not the same for all."""
    found = [
        _differ(studies, "Search budgets are unequal", lambda s: f"{s.finished} finished trials"),
        _differ(
            studies,
            "Devices differ, so times do not compare",
            lambda s: s.device_model or "none yet",
        ),
        _differ(studies, "Samplers differ", lambda s: s.policy.sampler),
        _differ(
            studies,
            "Objectives of the search differ",
            lambda s: " and ".join(s.definition.objectives),
        ),
        _differ(studies, "Seeds a trial differ", lambda s: s.definition.seeds_per_trial),
        _differ(studies, "Backend policies differ", lambda s: s.definition.training.backend.value),
        _differ(
            studies,
            "Backends that verification ran on differ",
            lambda s: _used(s, lambda run: run.backend),
        ),
        _differ(studies, "PyTorch versions differ", _torch),
        _differ(studies, "Picks were chosen from different fronts", _front),
        _differ(studies, "Verification sessions differ: times were not interleaved", _sessions),
    ]
    found += [
        _differ(studies, f"The setting {name} differs", lambda s, name=name: _setting(s, name))  # type: ignore[misc]
        for name in _SETTINGS
    ]
    found += [_without_test(each) for each in studies]
    found += [_disturbed(each) for each in studies]
    found += [_seed_ignored(each) for each in studies]
    return [each for each in found if each]


def _differ(
    studies: Sequence[StudySnapshot], what: str, value: Callable[[StudySnapshot], Any]
) -> str:
    values = {each.name: value(each) for each in studies}
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
    return (
        "the expected one"
        if picks_expected(study.results, study.runs, study.name)
        else "that of single runs"
    )


def _torch(study: StudySnapshot) -> str:
    return _used(study, lambda run: (run.versions or {}).get("torch"))


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
            values[run.trial_number].append((recorded.named(_error(study)), recorded.val_loss))
    same = [each for each in values.values() if len(each) > 1 and len(set(each)) == 1]
    if not same:
        return ""
    return (
        f"The program of {study.name} ignores its seed: {len(same[0])} fresh seeds gave the same "
        "values bit for bit, so its intervals say nothing."
    )


def _error(study: StudySnapshot) -> str:
    return study.definition.objectives[1]
