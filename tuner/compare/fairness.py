"""What differs between compared studies beside their variants: stated, because a reader cannot see it in a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from tuner.compare.subject import Subject
from tuner.errors import UsageError
from tuner.study.picks import picks_expected

_SETTINGS = ("max_epochs", "patience", "min_delta", "gradient_clip", "learning_rate_decay", "time_limit_s", "precision")


def refuse_different_data(subjects: Sequence[Subject]) -> None:
    """Raises UsageError where figures could not mean the same thing."""
    first = subjects[0]
    for each in subjects[1:]:
        if each.definition.data_hash != first.definition.data_hash:
            raise UsageError(
                f"studies {first.name!r} ({first.definition.task_name}) and {each.name!r} "
                f"({each.definition.task_name}) are on different data: their figures do not compare"
            )


def differences(subjects: Sequence[Subject]) -> list[str]:
    """One sentence for each thing that is not the same for all."""
    found = [
        _differ(subjects, "Search budgets are unequal", lambda s: f"{s.finished} finished trials"),
        _differ(subjects, "Devices differ, so times do not compare", lambda s: s.device_model or "none yet"),
        _differ(subjects, "Samplers differ", lambda s: s.policy.sampler),
        _differ(subjects, "Objectives of the search differ", lambda s: " and ".join(s.definition.objectives)),
        _differ(subjects, "Seeds a trial differ", lambda s: s.definition.seeds_per_trial),
        _differ(subjects, "Backend policies differ", lambda s: s.definition.training.backend.value),
        _differ(subjects, "Backends that verification ran on differ", lambda s: _used(s, "backend")),
        _differ(subjects, "PyTorch versions differ", _torch),
        _differ(subjects, "Picks were chosen from different fronts", _front),
        _differ(subjects, "Verification sessions differ: times were not interleaved", _sessions),
    ]
    found += [
        _differ(subjects, f"The setting {name} differs", lambda s, name=name: _setting(s, name))  # type: ignore[misc]
        for name in _SETTINGS
    ]
    found += [_disturbed(each) for each in subjects]
    return [each for each in found if each]


def _differ(subjects: Sequence[Subject], what: str, value: Callable[[Subject], Any]) -> str:
    values = {each.name: value(each) for each in subjects}
    known = {name: found for name, found in values.items() if found not in (None, "")}
    if len(set(known.values())) < 2:  # noqa: PLR2004 - a difference needs two
        return ""
    return f"{what}: {', '.join(f'{name} {found}' for name, found in known.items())}."


def _setting(subject: Subject, name: str) -> Any:
    return dataclasses.asdict(subject.definition.training)[name]


def _used(subject: Subject, name: str) -> str:
    attributes = [run.result.attributes for run in subject.runs if run.state == "finished" and run.result]
    return "/".join(sorted({str(found[name]) for found in attributes if found.get(name)}))


def _front(subject: Subject) -> str:
    if not subject.runs:
        return ""
    return "the expected one" if picks_expected(subject.results, subject.runs, subject.name) else "that of single runs"


def _torch(subject: Subject) -> str:
    attributes = [run.result.attributes for run in subject.runs if run.state == "finished" and run.result]
    return "/".join(sorted({str(v["torch"]) for a in attributes if (v := a.get("versions")) and v.get("torch")}))


def _sessions(subject: Subject) -> str:
    return "+".join(sorted({run.session[:8] for run in subject.runs}))


def _disturbed(subject: Subject) -> str:
    clean = sum(len(each.clean) for each in subject.verified.values())
    converged = sum(len(each.converged) for each in subject.verified.values())
    if clean == converged:
        return ""
    return f"{converged - clean} of {converged} timings of {subject.name} were contaminated and are left out."
