"""The records that `tuner.report.figures` draws,
taken from a study's results, epochs, claims and verification runs.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from optuna.trial import TrialState

from tuner.display.text import in_html, shown_value
from tuner.report.figures.curves import Curve, Pace, VolumeSeries
from tuner.report.figures.front import FrontSeries, VerifiedPoint
from tuner.report.figures.trade import TradeSeries
from tuner.spec.pareto import hypervolume_trace, knee_index, reference_point
from tuner.storage.queue.epochs import EpochRow
from tuner.study.results import StudyResults, TrialRecord, median_values
from tuner.study.snapshot import Curves
from tuner.study.throughput import Throughput, throughput_of
from tuner.verdict.verified import Verified

if TYPE_CHECKING:
    from tuner.spec.pareto import Point

EMPHASISED = 5
"""Curves of one study drawn in colour: the default and the front's, evenly spread."""
STEADY = "steady trials"
COMPANY = 60
"""Other curves drawn faint behind them, the latest ones."""


def front_series(
    results: StudyResults,
    name: str,
    *,
    variant: str = "",
    verified: Sequence[Verified] = (),
    recommended: int | None = None,
) -> FrontSeries:
    """A study's configurations ready for `tuner.report.figures.front.pareto_figure`,
    called `name` in the legend.

    The points are the configurations that may stand on the front: converged ones, or all complete
    ones where none converged; of several trials of one, their medians. Configurations with enough
    verification runs are added, with their intervals. `recommended` is the number of the trial that
    is to be marked as such (`tuner.verdict.same_quality.recommended_trial`).
    """
    measured = results.objectives[1] == "test_mql"  # which is what they measure
    seeds = sorted({len(each.runs) for each in verified if _point(each) is not None})
    ends = sorted({*seeds[:1], *seeds[-1:]})
    shown = results.eligible
    default = next((index for index, record in enumerate(shown) if record.is_default), None)
    there = results.configurations
    cut = next((each.values for each in there if each.is_default and not each.converged), None)
    return FrontSeries(
        name=name,
        variant=variant,
        points=results.points,
        labels=[label(record) for record in shown],
        default=default,
        recommended=next((i for i, r in enumerate(shown) if r.number == recommended), None),
        cut_default=cut if default is None else None,
        verified=verified_points(verified) if measured else (),
        baselines=baseline_points(results),
        interval=f"95 % intervals of {' to '.join(map(str, ends))} seeds" if ends else "",
    )


def baseline_points(results: StudyResults) -> dict[str, Point]:
    """Seconds to fit and forecast, NaN where nobody knows, and MQL of what needs no network."""
    found = {}
    for each in results.baselines:
        mql = each.by(results.objectives[1])
        if mql is not None:
            known = each.fit_s is not None and each.forecast_s is not None
            seconds = (each.fit_s or 0.0) + (each.forecast_s or 0.0)
            found[each.name] = (seconds if known else math.nan, mql)
    return found


def verified_points(verified: Iterable[Verified]) -> list[VerifiedPoint]:
    """Configurations that ran again on enough fresh seeds, with the intervals of their medians."""
    return [point for each in verified if (point := _point(each)) is not None]


def _point(each: Verified) -> VerifiedPoint | None:
    seconds, mql = each.seconds, each.mql
    if seconds is None or mql is None:
        return None
    return VerifiedPoint(
        label=f"trial {each.trial_number}, {len(each.runs)} seeds", time=seconds, mql=mql
    )


def label(record: TrialRecord) -> str:
    """What a figure says of a trial when it is pointed at, as HTML."""
    lines = [f"{in_html(k)} {in_html(shown_value(v, 3))}" for k, v in record.params.items()]
    params = "<br>".join(lines)
    runs = f", {record.runs_in_words}" if record.runs > 1 else ""
    return f"trial {record.number}{runs}<br>{params}"


def volume_series(
    results: StudyResults, name: str, reference: Point | None, variant: str = ""
) -> VolumeSeries:
    """The hypervolume after each trial of what may stand on the front, in the order in which they
    ended. It falls where another run of a configuration says that the earlier ones were lucky.
    """
    of = {number: each.number for each in results.eligible for number in each.numbers}
    ended = sorted(
        (t for each in results.eligible for t in each.each_trial if t.ended is not None),
        key=lambda r: (r.ended or "", r.number),
    )
    if not ended or reference is None:
        return VolumeSeries(name=name, finished=(), hours=(), volume=())
    everything = sorted(
        r.ended for r in results.records if r.ended is not None and r.state.is_finished()
    )
    order = {moment: index + 1 for index, moment in enumerate(everything)}
    began = _moment(min(record.started or record.ended or "" for record in ended))
    return VolumeSeries(
        name=name,
        variant=variant,
        finished=[order[record.ended or ""] for record in ended],
        hours=[(_moment(record.ended or "") - began).total_seconds() / 3600 for record in ended],
        volume=hypervolume_trace(
            _running_medians(ended, of), reference, [of[each.number] for each in ended]
        ),
    )


def _running_medians(ended: Sequence[TrialRecord], of: Mapping[int, int]) -> list[Point]:
    """What the configuration of each trial comes to by then: `of` has it by the trial's number."""
    known: dict[int, list[TrialRecord]] = {}
    points = []
    for each in ended:
        mine = known.setdefault(of[each.number], [])
        mine.append(each)
        points.append(median_values(mine))
    return points


def common_reference(studies: Iterable[StudyResults]) -> Point | None:
    """One reference point for the trials of several studies, so that their hypervolumes compare."""
    points = [point for results in studies for point in results.points]
    return reference_point(points) if points else None


def trade_series(results: StudyResults, name: str, variant: str = "") -> TradeSeries:
    """Epochs and seconds an epoch of the configurations that may stand on the front."""
    known = [
        (each, (each.recorded.epochs, each.recorded.s_per_epoch))
        for each in results.eligible
        if each.recorded.epochs and each.recorded.s_per_epoch
    ]
    shown, front = [each for each, _ in known], results.on_front
    return TradeSeries(
        name=name,
        variant=variant,
        points=[point for _, point in known],
        labels=[label(record) for record in shown],
        front=[index for index, record in enumerate(shown) if record.number in front],
        default=next((index for index, record in enumerate(shown) if record.is_default), None),
    )


def learning_curves(
    results: StudyResults,
    curves: Curves,
    *,
    prefix: str = "",
    variant: str = "",
    emphasised: int = EMPHASISED,
    recommended: int | None = None,
) -> list[Curve]:
    """The learning curves of the default, of the trial that is recommended, of the front and of the
    latest trials, those at work among them.
    """
    chosen = _emphasised(results, emphasised, recommended)
    of_default: dict[int, Literal["default"]] = {
        each.number: "default" for each in results.records if each.is_default
    }
    others = [
        r.number
        for r in results.records
        if r.state != TrialState.WAITING and r.number not in chosen
    ]
    rows = curves([*chosen, *others[-COMPANY:]])
    drawn = []
    for number in [*chosen, *others[-COMPANY:]]:
        first_seed = [
            row for row in rows.get(number, ()) if row.repeat == 0 and row.val_loss is not None
        ]
        if first_seed:
            drawn.append(
                Curve(
                    label=prefix + chosen.get(number, f"trial {number}"),
                    epochs=[row.epoch for row in first_seed],
                    elapsed_s=[row.elapsed_s for row in first_seed],
                    losses=[row.val_loss for row in first_seed],
                    emphasis=number in chosen,
                    variant=variant,
                    role="recommended" if number == recommended else of_default.get(number, ""),
                )
            )
    return drawn


def paces(
    results: StudyResults, curves: Curves, *, slowed: Collection[int] = (), prefix: str = ""
) -> list[Pace]:
    """The throughput of the latest trials, those at work among them, and of those that `slowed`."""
    marked = sorted(slowed)[-EMPHASISED:]
    others = [r.number for r in results.records if r.number not in slowed][-COMPANY:]
    rows = curves([*marked, *others])
    found = []
    for number in (*marked, *others):
        pace, ends = _slowest_seed(rows.get(number, ()))
        if ends is not None:
            found.append(
                Pace(
                    label=prefix + (f"trial {number}: slowed" if number in slowed else STEADY),
                    epochs=pace.epochs,
                    throughput=[ends[0] / seconds for seconds in pace.seconds],
                    slowed=number in slowed,
                )
            )
    return found


def _slowest_seed(rows: Sequence[EpochRow]) -> tuple[Throughput, tuple[float, float] | None]:
    """Of a trial's seeds that whose throughput fell most, and its seconds an epoch at both ends."""
    seeds = sorted({row.repeat for row in rows})
    found = [throughput_of([row for row in rows if row.repeat == seed]) for seed in seeds]
    known = [(pace, pace.ends) for pace in found if pace.ends is not None]
    if not known:
        return throughput_of(()), None
    return max(known, key=lambda each: each[1][1] / each[1][0])


def _emphasised(results: StudyResults, at_most: int, recommended: int | None) -> dict[int, str]:
    """Trials to show in colour, and what to call them: the default, what is recommended, and of the
    front the knee, the ends, the rest.
    """
    again = {n for c in results.configurations if c.is_default for n in c.numbers if n != c.number}
    chosen = {
        r.number: "default hyperparameters"
        for r in results.records
        if r.is_default and r.number not in again
    }
    if recommended is not None:
        chosen.setdefault(recommended, f"trial {recommended}: recommended")
    front = results.front
    if not front:
        return chosen
    knee = knee_index([record.values for record in front if record.values])
    names = {knee: "knee of the front", len(front) - 1: "lowest MQL", 0: "fastest"}
    order = [knee, len(front) - 1, 0, *range(len(front))]
    for index in dict.fromkeys(order):
        if len(chosen) >= at_most:
            break
        what = names.get(index, "front")
        chosen.setdefault(front[index].number, f"trial {front[index].number}: {what}")
    return chosen


def _moment(iso: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(iso)
