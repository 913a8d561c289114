"""One figure of one study or several, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from tuner.errors import UsageError
from tuner.report.figures import series
from tuner.report.figures.confirmed_figure import (
    confirmed_figure,
    confirmed_series,
    devices_of,
    first_level,
)
from tuner.report.figures.curves import curves_figure, hypervolume_figure, throughput_figure
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.parallel import parallel_figure, parallel_series
from tuner.report.figures.style import finish, label, new_figure, say_nothing_yet, style_of
from tuner.report.figures.trade import trade_figure
from tuner.report.study_status import alarms_of_ended
from tuner.spec.objectives import axis_title
from tuner.spec.program import clock_in_words, refuse_other_clocks
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.fairness import refuse_different_data
from tuner.verdict.explain import explain_study
from tuner.verdict.same_quality import recommended_trial
from tuner.verdict.verified import verified_in

if TYPE_CHECKING:
    import plotly.graph_objects as go


Studies = Sequence[StudySnapshot]


def draw(kind: str, studies: Studies) -> go.Figure:
    """The figure `kind` (one of `KINDS`) of these studies, overlaid.

    Raises:
        UsageError: there is no such kind, or the studies cannot share such a figure.
    """
    if kind not in KINDS:
        raise UsageError(f"unknown figure {kind!r}; there are: {', '.join(KINDS)}")
    if kind not in WITHOUT_TIMES:
        for each in studies[1:]:
            first = studies[0]
            refuse_other_clocks(
                first.name, first.definition.clock, each.name, each.definition.clock
            )
    if kind in OF_ONE_JOB and studies:
        refuse_different_data(studies)
    return KINDS[kind](studies)


def _front(studies: Studies) -> go.Figure:
    recommended = {study.name: recommended_trial(study) for study in studies}
    return fronts(studies, recommended=recommended)


def fronts(
    studies: Studies,
    *,
    called: Mapping[str, str] | None = None,
    recommended: Mapping[str, int | None] | None = None,
) -> go.Figure:
    """The fronts of all studies over each other, verified configurations with their intervals.

    What they are `called` and what they `recommend` is by their names.
    """
    clock, error = axes(studies)
    return pareto_figure(
        [
            series.front_series(
                study.results,
                (called or {}).get(study.name, study.name),
                variant=study.variant,
                verified=list(verified_in(study).values()),
                recommended=(recommended or {}).get(study.name),
            )
            for study in studies
        ],
        censored=all(study.results.censored for study in studies),
        clock=clock,
        error=error,
    )


def axes(studies: Studies) -> tuple[str, str]:
    """What both axes measure."""
    clock, error = (
        " or ".join(dict.fromkeys(axis_title(study.results.objectives[axis]) for study in studies))
        for axis in (0, 1)
    )
    by = clock_in_words(studies[0].definition.clock) if studies else ""
    return ", ".join(filter(None, (clock, by))), error


def _confirmed(studies: Studies) -> go.Figure:
    if len(models := devices_of(studies)) > 1:
        raise UsageError(
            f"these studies were confirmed on {' and '.join(models)}: their times do not compare; "
            "draw those of each device by themselves"
        )
    clock, _ = axes(studies)  # the error is that of the test split, whatever was searched by
    return confirmed_figure(confirmed_series(studies), level=first_level(studies), clock=clock)


def _hypervolume(studies: Studies, over: Literal["trials", "time"]) -> go.Figure:
    reference = series.common_reference(study.results for study in studies)
    volumes = [series.volume_series(s.results, s.name, reference, s.variant) for s in studies]
    return hypervolume_figure(volumes, over=over)


def _curves(studies: Studies, over: Literal["epochs", "time"]) -> go.Figure:
    several = len(studies) > 1
    found = [
        curve
        for study in studies
        for curve in series.learning_curves(
            study.results,
            study.curves,
            prefix=f"{study.name}: " if several else "",
            variant=study.variant,
            emphasised=2 if several else series.EMPHASISED,
            recommended=recommended_trial(study),
        )
    ]
    return curves_figure(found, over=over)


def _trade(studies: Studies) -> go.Figure:
    return trade_figure([series.trade_series(s.results, s.name, s.variant) for s in studies])


def _throughput(studies: Studies) -> go.Figure:
    found = [
        pace
        for study in studies
        for pace in series.paces(
            study.results,
            study.curves,
            slowed=[alarm.trial for alarm in alarms_of_ended(study.results)],
            prefix=f"{study.name}: ",
        )
    ]
    return throughput_figure(found)


def _parallel(studies: Studies) -> go.Figure:
    found = [
        parallel_series(each.results, each.name, each.variant, recommended_trial(each))
        for each in studies
    ]
    return parallel_figure(found)


def _importances(studies: Studies) -> go.Figure:
    """Each hyperparameter's share in each objective, of every study: what `tuner explain` says in
    figures.
    """
    shares = {
        f"{study.name}: {objective}" if len(studies) > 1 else objective: share
        for study in studies
        for objective, share in explain_study(study).importances.items()
    }
    return importances_figure(shares)


WITHOUT_TIMES = ("curves", "importances")
"""No axis of these compares times: studies by several clocks may share them."""
OF_ONE_JOB = ("front", "confirmed", "parallel", "hypervolume", "hypervolume-time")
"""Errors on different data, or test windows, mean different things."""
KINDS: Mapping[str, Callable[[Studies], go.Figure]] = {
    "front": _front,
    "confirmed": _confirmed,
    "hypervolume": partial(_hypervolume, over="trials"),
    "hypervolume-time": partial(_hypervolume, over="time"),
    "curves": partial(_curves, over="epochs"),
    "curves-time": partial(_curves, over="time"),
    "importances": _importances,
    "parallel": _parallel,
    "trade": _trade,
    "throughput": _throughput,
}


# Which hyperparameter matters for which objective.


PATTERNS = ("", "/", ".", "x", "-", "|")


def importances_figure(
    importances: Mapping[str, Mapping[str, float]], *, title: str = ""
) -> go.Figure:
    """Shares of each objective's variation by hyperparameter: `{objective: {hyperparameter: share
    from 0 to 1}}`.

    The hyperparameter with the largest share of any objective stands at the top.
    """
    figure = new_figure()
    names = {name for shares in importances.values() for name in shares}
    largest = {
        name: max(shares.get(name, 0.0) for shares in importances.values()) for name in names
    }
    order = sorted(names, key=lambda name: (largest[name], name))
    for index, (objective, shares) in enumerate(importances.items()):
        style = style_of(index)
        values = [shares.get(name) for name in order]  # None where a study has no such one
        figure.add_bar(
            x=values,
            y=[label(name) for name in order],
            orientation="h",
            name=label(objective),
            text=["" if value is None else f"{value:.0%}" for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": style.colour,
                "pattern": {"shape": PATTERNS[index % len(PATTERNS)], "fgcolor": "white"},
            },
            hovertemplate="%{y}<br>%{x:.1%}<extra>%{fullData.name}</extra>",
        )
    if not order:
        say_nothing_yet(figure, "too few finished trials")
    finish(figure, title=title, x="share of the objective's variation", y="", barmode="group")
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    return figure
