"""What the figure of confirmations draws, from the searches of each variant."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tuner.report.figures.confirmed_figure import ConfirmedSeries, Found
from tuner.report.figures.series import verified_points
from tuner.settings import in_percent
from tuner.spec.pareto import Point
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.registered import groups_of, registered_levels
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.retune_cost import costs
from tuner.verdict.verified import Verified

TEST_MQL = "test_mql"


def confirmed_series(studies: Sequence[StudySnapshot]) -> list[ConfirmedSeries]:
    """A series of each group, in the order in which they come. What is labelled is what stands for
    a variant where its retuning is paid back.
    """
    groups, names = groups_of(studies), names_of_groups(studies)
    answers = {each.group: each.confirmation for each in costs(groups)}
    return [_of_group(names[group], mine, answers[group]) for group, mine in groups.items()]


def first_level(studies: Sequence[StudySnapshot]) -> tuple[str, float] | None:
    """The registered level of the first group, with what it is called; None where its default is
    not confirmed.
    """
    groups, names = groups_of(studies), names_of_groups(studies)
    for group, members in list(groups.items())[:1]:
        ended = [study for study, _ in _ended(members)]
        for level in registered_levels({group: ended} if ended else {}):
            if level.confirmed:
                cut = " at its limit" if level.cut_off else ""
                margin = in_percent(level.margin)
                said = f"{names[group]}'s default{cut} + {margin}: {level.mql:.4f}"
                return said, level.mql
    return None


def devices_of(studies: Sequence[StudySnapshot]) -> list[str]:
    """The models of devices that confirmations ran on: times of several do not compare."""
    return sorted({study.device_model or "?" for study, _ in _ended(studies)})


def _ended(members: Sequence[StudySnapshot]) -> list[tuple[StudySnapshot, Confirmation]]:
    """The searches whose confirmation has ended, with it: before its end it says nothing."""
    return [
        (each, found)
        for each in members
        if (found := confirmation_of(each)) is not None and found.complete
    ]


def _of_group(
    name: str, members: Sequence[StudySnapshot], answer: Confirmation | None
) -> ConfirmedSeries:
    there = _ended(members)
    of_default = _together([each.default for _, each in there])
    default = next(iter(verified_points(of_default)), None)
    found: list[Found] = []
    labelled = None
    for study, confirmation in there:
        recommended = confirmation.recommended
        points = verified_points([recommended] if recommended is not None else [])
        if recommended is None or not points:
            continue
        if answer is not None and _same(answer, confirmation):
            labelled = len(found)
        (at,) = points
        found.append(
            Found(
                at=dataclasses.replace(at, label=f"{study.name}, {at.label}"),
                seen=_seen(study, recommended.trial_number),
                confirmed=confirmation.holds,
            )
        )
    cut_off = " cut off by its limit" if any(each.cut_off for each in of_default) else ""
    until = " to its limit" if answer is not None and answer.default_cut_off else ""
    ratio = answer.test.ratio if answer is not None and answer.test is not None else None
    return ConfirmedSeries(
        name=name,
        seen=[point for study in members if _alike(study) for point in study.results.points],
        default=default
        and dataclasses.replace(default, label=f"the default{cut_off}, {default.label}"),
        found=found,
        answer=labelled if ratio is not None else None,
        says="" if ratio is None else f"{name}: {ratio.estimate:.2f} of its default's time{until}",
    )


def _same(one: Confirmation, other: Confirmation) -> bool:
    """By more than the study's name, which another database may have, too."""
    return (one.session, one.study) == (other.session, other.study)


def _together(of_searches: Sequence[Verified | None]) -> list[Verified]:
    """One configuration of several searches with all its runs."""
    known = [each for each in of_searches if each is not None]
    if not known:
        return []
    return [
        dataclasses.replace(
            known[0],
            runs=tuple(run for each in known for run in each.runs),
            planned=sum(each.planned for each in known),
            to_its_limit=all(each.to_its_limit for each in known),
        )
    ]


def _alike(study: StudySnapshot) -> bool:
    """Whether a search saw the error that its confirmation measures: on the same windows."""
    return study.results.objectives[1] == TEST_MQL and not study.definition.keeps_last_block


def _seen(study: StudySnapshot, number: int) -> Point | None:
    """What the search saw of the configuration of this trial; None where that is another error."""
    if not _alike(study):
        return None
    of = {each: place for place, one in enumerate(study.results.eligible) for each in one.numbers}
    place = of.get(number)
    return None if place is None else study.results.points[place]
