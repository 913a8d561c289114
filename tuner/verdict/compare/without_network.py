"""What of a comparison a forecast without a network would do as well."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.spec.objectives import axis_title
from tuner.study.baselines import baselines_of, in_words, loses
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.rows import Row
from tuner.verdict.stats.intervals import Interval

TEST = "test_mql"


def without_network(studies: Sequence[StudySnapshot], rows: Sequence[Row]) -> tuple[str, ...]:
    """Sentences: which configurations of a report lose to a baseline, these first, and what the
    baselines come to; nothing where no study recorded any. The studies are of the same data.
    """
    by_error: dict[str, dict[str, float]] = {}
    for error in (TEST, "val_mql"):
        known = (baselines_of(study.results.records, error) for study in studies)
        if (found := next(filter(None, known), None)) and any(r.mql_is == error for r in rows):
            by_error[error] = found
    sentences: list[str] = []
    for row in rows:
        figure = row.figures.get(TEST)
        mql = figure.estimate if isinstance(figure, Interval) else figure
        whose = f"{row.variant}, {row.hyperparameters},"
        baselines = by_error.get(row.mql_is, {})
        if mql is not None and (said := loses(mql, baselines, whose, error=row.mql_is)):
            sentences.append(said)
    for error, baselines in by_error.items():
        each = [f"{in_words(name)} {mql:.4g}" for name, mql in baselines.items()]
        sentences.append(f"On the same windows, {axis_title(error)}: {', '.join(each)}")
    return tuple(sentences)
