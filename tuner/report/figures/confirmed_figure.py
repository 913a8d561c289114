"""What confirmations found: of each variant its default and what each of its searches recommends,
as fresh seeds saw them, and how far that is from what the search had seen.

The search's own points are thin and grey: of many single runs the best are the lucky ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.report.figures import style
from tuner.report.figures.front import HOVER, VerifiedPoint, bars, draw_verified
from tuner.report.figures.series import verified_points
from tuner.report.figures.style import GREY, INK, Style, label
from tuner.settings import in_percent
from tuner.spec.objectives import TEST_MQL
from tuner.spec.pareto import Point
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.registered import groups_of, registered_levels
from tuner.verdict.compare.studies import names_of_groups
from tuner.verdict.confirmation import Confirmation, confirmation_of, each_training_once
from tuner.verdict.retune_cost import costs
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.verified import Verified

if TYPE_CHECKING:
    import plotly.graph_objects as go


ROOM = 0.12
"""Around what was confirmed, as a share of the height of it."""
SHORT = 0.04
"""Of the axes: a shorter arrow would be hidden by its mark."""
LINE_OF_TEXT = 0.06
"""Of the height: labels keep so far from one another."""
BESIDE, LETTER = 0.03, 0.01
"""Of the width: from what is found to the labels, and of a letter of these."""
MARKS = (
    (": recommended, confirmed", "recommended, confirmed", {"size": 11}),
    (
        ": recommended, not shown to be as good",
        "recommended, not shown to be as good",
        {"size": 11, "color": "white", "line": {"color": GREY, "width": 2.5}},
    ),
    (
        ": as its searches saw configurations",
        "as searches saw configurations",
        {"size": 4, "opacity": 0.5},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one search recommends, on fresh seeds."""

    at: VerifiedPoint
    seen: Point | None
    """As the search saw it: the medians of its runs; None where none of them converged."""
    confirmed: bool
    """It was shown to be as good as the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedSeries:
    """One variant, all its searches."""

    name: str
    variant: str = ""
    seen: Sequence[Point]
    """Configurations as the searches saw them, (seconds, MQL)."""
    default: VerifiedPoint | None
    """On fresh seeds; None while nothing of the variant has run on any."""
    found: Sequence[Found] = ()
    answer: int | None = None
    """Which of them is labelled."""
    says: str = ""
    """The label."""


def confirmed_figure(
    series: Sequence[ConfirmedSeries],
    *,
    level: tuple[str, float] | None = None,
    clock: str = "time to convergence (s)",
) -> go.Figure:
    """Seconds against MQL: what was confirmed in the strongest ink, what was not hollow, the
    default a star, each with its intervals; an arrow leads to each from what its search had seen.

    `level` is a quality that was registered, with what it is called: a line across. The axes look
    at what ran on fresh seeds; a line says how many points of searches lie outside.
    """
    figure = style.new_figure()
    looks = style.looks([each.variant or each.name for each in series])
    for each, look in zip(series, looks, strict=True):
        style.draw_points(
            figure,
            each.seen,
            look,
            study=each.name,
            what="as its searches saw configurations",
            marker={"color": GREY, "opacity": 0.25, "size": 4},
            hoverinfo="skip",
        )
    for each, look in zip(series, looks, strict=True):
        if each.default is not None:
            style.draw_default(
                figure,
                each.default.at,
                look,
                study=each.name,
                hovertemplate=HOVER,
                text=[label(each.default.label)],
                error_x=bars([each.default.time], look),
                error_y=bars([each.default.mql], look),
            )
        for confirmed in (False, True):
            _found(figure, each, look, confirmed=confirmed)
    figure = style.finish(figure, x=clock, y="test MQL")
    if not any(each.default is not None or each.found for each in series):
        return style.say_nothing_yet(figure, "nothing has been confirmed yet")
    if level is not None:
        figure.add_hline(
            y=level[1],
            line={"color": GREY, "width": 1.5, "dash": "dot"},
            annotation={"text": label(level[0]), "font": {"color": GREY, "size": 12}},
            annotation_position="top right",
        )
    axes = _frame(figure, series, level)
    for each in series:
        _arrows(figure, each, axes)
    _answers(figure, series, axes)
    if len(series) > style.MANY:
        style.key(figure, MARKS, named=": default hyperparameters")
    return figure


def _found(figure: go.Figure, series: ConfirmedSeries, look: Style, *, confirmed: bool) -> None:
    """What is confirmed, or what is not."""
    mine = [each.at for each in series.found if each.confirmed is confirmed]
    if mine:
        what = "recommended, confirmed" if confirmed else "recommended, not shown to be as good"
        draw_verified(figure, mine, look, study=series.name, what=what, filled=confirmed)


@dataclass(frozen=True, slots=True)
class _Axes:
    """What the figure looks at, as plotly takes it: logarithms on a logarithmic axis."""

    x: tuple[float, float]
    y: tuple[float, float]
    logarithmic: bool

    def at(self, seconds: float) -> float:
        return math.log10(seconds) if self.logarithmic else seconds

    def apart(self, one: Point, other: Point) -> float:
        """As a share of the axes."""
        across = (self.at(one[0]) - self.at(other[0])) / (self.x[1] - self.x[0])
        return math.hypot(across, (one[1] - other[1]) / (self.y[1] - self.y[0]))


def _frame(
    figure: go.Figure, series: Sequence[ConfirmedSeries], level: tuple[str, float] | None
) -> _Axes:
    """Choose the axes' ranges."""
    points = [each.default for each in series if each.default is not None]
    points += [one.at for each in series for one in each.found]
    seen = [f.seen for each in series for f in each.found if f.seen is not None]
    times = [end for at in points for end in _ends(at.time)] + [x for x, _ in seen]
    errors = [end for at in points for end in _ends(at.mql)] + [y for _, y in seen]
    errors += [level[1]] if level is not None else []
    low, high = _around(errors)
    figure.update_yaxes(range=[low, high])
    wide = min(times) > 0
    first, last = (min(times) / 1.1, max(times) * 1.1) if wide else _around(times)
    axis = style.logarithmic(first, last) if wide else {"range": [first, last]}
    figure.update_xaxes(axis)
    everything = [point for each in series for point in each.seen]
    outside = sum(not (low <= y <= high and first <= x <= last) for x, y in everything)
    if outside:
        style.note_in_corner(figure, f"{outside} of {len(everything)} configurations lie outside")
    return _Axes((axis["range"][0], axis["range"][1]), (low, high), wide)


def _around(values: Sequence[float]) -> tuple[float, float]:
    """From a little below to a little above; also of one value."""
    low, high = min(values), max(values)
    margin = ROOM * (high - low) or ROOM * abs(high) or 1.0
    return low - margin, high + margin


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def _arrows(figure: go.Figure, series: ConfirmedSeries, axes: _Axes) -> None:
    """From what a search saw of its recommendation to what fresh seeds did, where there is room for
    one.
    """
    for each in series.found:
        if each.seen is None:
            continue
        if axes.apart(each.seen, each.at.at) < SHORT:
            continue
        tail = axes.at(each.seen[0]), each.seen[1]
        look = {"arrowhead": 2, "arrowwidth": 1.2, "arrowcolor": INK, "standoff": 7}
        _arrow(figure, axes, each.at, tail, text="", **look)


def _arrow(figure: go.Figure, axes: _Axes, to: VerifiedPoint, tail: Point, **more: Any) -> None:
    """From `tail`, which is in the units of the axes."""
    x, y = to.at
    ends = {"x": axes.at(x), "y": y, "ax": tail[0], "ay": tail[1], "axref": "x", "ayref": "y"}
    figure.add_annotation(showarrow=True, **ends, **more)


def _answers(figure: go.Figure, series: Sequence[ConfirmedSeries], axes: _Axes) -> None:
    """The labels of the variants' answers, one below another beside everything that was found."""
    labelled = []
    looks = style.looks([each.variant or each.name for each in series])
    for each, look in zip(series, looks, strict=True):
        if each.answer is not None:
            colour = look.colour
            labelled.append((each.found[each.answer].at, label(each.says), colour))
    if not labelled:
        return
    right = max(one.at.time.high for each in series for one in each.found)
    labelled.sort(key=lambda each: each[0].mql.estimate)
    height = axes.y[1] - axes.y[0]
    places = _apart([at.mql.estimate for at, _, _ in labelled], LINE_OF_TEXT * height, axes.y[1])
    first, last = axes.x
    farthest = last - LETTER * max(len(says) for _, says, _ in labelled) * (last - first)
    beside = min(axes.at(right) + BESIDE * (last - first), farthest)
    for (at, says, colour), place in zip(labelled, places, strict=True):
        line = {"arrowhead": 0, "arrowwidth": 1, "arrowcolor": colour, "standoff": 9}
        words = {"text": says, "xanchor": "left", "yanchor": "bottom"}
        paper = "rgba(255, 255, 255, 0.8)"
        font = {"color": colour, "size": 13}
        _arrow(figure, axes, at, (beside, place), **line, **words, font=font, bgcolor=paper)


def _apart(values: Sequence[float], least: float, top: float) -> list[float]:
    """Ascending values, moved up where they are nearer than `least` to the one before, and all of
    them down where the last would be above `top`.
    """
    found: list[float] = []
    for each in values:
        found.append(max(each, found[-1] + least) if found else each)
    above = max(0.0, found[-1] - top)
    return [each - above for each in found]


# What the figure of confirmations draws, from the searches of each variant.


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
        variant=members[0].variant,
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
    runs = tuple(run for each in each_training_once(known) for run in each.runs)
    cut_off = all(each.to_its_limit for each in known)
    return [dataclasses.replace(known[0], runs=runs, planned=len(runs), to_its_limit=cut_off)]


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
